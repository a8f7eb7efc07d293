"""Tests the connections of clients to a real ZooKeeper: how many there are, when they end, and of which cluster they are."""

import json
import os
import signal
import subprocess
import time
import unittest
from pathlib import Path

from tests.zookeeper_case import ZooKeeperCase
from tools import cluster

ESTABLISHED = "01"  # As /proc/net/tcp has it.


def connections_of(pid, port):
    """Returns how many TCP connections a process has to a port of this machine."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(os.readlink(descriptor))
        except FileNotFoundError:
            pass  # It was closed meanwhile.
    connections = 0
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            _, _, remote, state, *_, inode = line.split()[:10]
            connections += state == ESTABLISHED and int(remote.split(":")[1], 16) == port and f"socket:[{inode}]" in sockets
    return connections


class ZooKeeperClients(ZooKeeperCase):
    def clients(self, idle="10"):
        clients = subprocess.Popen([cluster.binary("tests/zookeeper_clients"), self.address, idle], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)

        def end():
            clients.communicate(timeout=30)

        def ask(command):
            clients.stdin.write(command + "\n")
            clients.stdin.flush()
            return clients.stdout.readline().strip()
        self.addCleanup(end)
        return clients.pid, ask

    def await_connections(self, pid, port, count):
        deadline = time.monotonic() + 20
        while connections_of(pid, port) != count:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)

    def test_the_clients_of_a_process_share_a_connection(self):
        zookeeper = self.ensemble(1)
        port = int(zookeeper.split(":")[1])
        self.up(zookeeper, servers=2, durability="sync")
        bench = self.bench("--threads", "6", "--path", "client", "--keys", "1000", "--seconds", "3", "--rate", "1000")
        seen = set()
        while bench.poll() is None:
            try:
                seen.add(connections_of(bench.pid, port))
            except (FileNotFoundError, ProcessLookupError):
                pass  # It has ended meanwhile.
            time.sleep(0.05)
        out, err = bench.communicate()
        self.assertEqual(bench.returncode, 0, err)
        result = json.loads(out)
        self.assertEqual(result["errors"], 0)
        self.assertEqual(max(seen), 1, seen)
        # Their leases, and what has changed, come from servers, and not from ZooKeeper after questions in vain.
        self.assertGreater(result["table_questions"], 6)
        self.assertLessEqual(result["table_readings"], 6)

    def test_clients_that_are_opened_together_wait_together(self):
        zookeeper = self.ensemble(1)
        self.up(zookeeper, servers=1)
        pid, ask = self.clients()
        self.assertEqual(ask("together 8"), "8")
        self.assertNotIn("error", ask("open"))
        self.assertEqual(ask("together 8"), "8")
        self.assertEqual(connections_of(pid, int(zookeeper.split(":")[1])), 1)
        os.killpg(self.zookeepers[0].pid, signal.SIGSTOP)
        _, ask_others = self.clients()
        # One attempt takes 8 s. A member that is open gives its answer after 16 s, once to the first and once to all others.
        for one, seconds in ((ask_others, 20), (ask, 60)):
            began = time.monotonic()
            self.assertEqual(one("together 8"), "0")
            self.assertLess(time.monotonic() - began, seconds)

    def test_clients_that_ask_nothing_have_no_connection(self):
        zookeeper = self.ensemble(1)
        port = int(zookeeper.split(":")[1])
        self.up(zookeeper, servers=1)
        pid, ask = self.clients(idle="1")
        ask("open")
        ask("open")
        for which in (0, 1):
            self.await_connections(pid, port, 0)
            self.assertEqual(self.ctl("put", "key", "value").returncode, 0)
            self.assertGreater(int(ask(f"refresh {which}")), 0)
            self.assertEqual(connections_of(pid, port), 1)
        self.await_connections(pid, port, 0)
        self.assertEqual(ask("servers 0"), "1")

    def test_a_process_that_was_forked_opens_clients_of_its_own(self):
        zookeeper = self.ensemble(1)
        self.up(zookeeper, servers=1)
        pid, ask = self.clients()
        uuid = ask("open")
        self.assertNotIn("error", uuid)
        self.assertEqual(ask("fork"), uuid)
        self.assertGreater(int(ask("refresh 0")), 0)
        self.assertEqual(ask("open"), uuid)
        self.assertEqual(connections_of(pid, int(zookeeper.split(":")[1])), 1)
        self.assertEqual(ask("fork"), uuid)

    def test_a_client_of_a_cluster_that_was_made_again_is_told(self):
        zookeeper = self.ensemble(1)
        port = int(zookeeper.split(":")[1])
        self.up(zookeeper, servers=1)
        pid, ask = self.clients()
        former = ask("open")
        self.assertEqual(ask("open"), former)
        self.assertGreater(int(ask("refresh 0")), 0)
        self.assertEqual(connections_of(pid, port), 1)
        ask("close 0")
        self.assertGreater(int(ask("refresh 1")), 0)
        cluster.end(self.servers)
        wiped = self.wipe("--confirm", "cell")
        self.assertEqual(wiped.returncode, 0, wiped.stderr)
        self.up(zookeeper, servers=2)
        for _ in range(2):
            self.assertIn("was deleted and a new one has its name: open it again", ask("refresh 1"))
            self.assertLess(int(ask("servers 1")), 2)  # It sees nothing of the new one.
        now = ask("open")
        self.assertNotIn("error", now)
        self.assertNotEqual(now, former)
        self.assertGreater(int(ask("refresh 2")), 0)
        self.assertEqual(connections_of(pid, port), 2)  # That of the former cluster stays with its client.
        ask("close 1")
        ask("close 2")
        self.assertEqual(connections_of(pid, port), 0)

    def test_a_client_of_a_cluster_that_was_made_again_begins_few_sessions(self):
        zookeeper = self.ensemble(1)
        self.up(zookeeper, servers=1)
        pid, ask = self.clients()
        self.assertNotIn("error", ask("open"))
        os.kill(pid, signal.SIGSTOP)
        try:
            cluster.end(self.servers)
            wiped = self.wipe("--confirm", "cell")
            self.assertEqual(wiped.returncode, 0, wiped.stderr)
            self.up(zookeeper, servers=1)
            time.sleep(6)  # The client's session expires.
        finally:
            os.kill(pid, signal.SIGCONT)
        znodes = self.znodes(zookeeper)
        znodes.get("/cell")
        before = znodes.changes
        asked, deadline = 0, time.monotonic() + 3
        while asked < 50 or time.monotonic() < deadline:
            self.assertIn("error", ask("refresh 0"))
            asked += 1
        znodes.get("/cell")
        self.assertLess(znodes.changes - before, asked / 2)  # Each session that begins and ends counts as two.


if __name__ == "__main__":
    unittest.main()
