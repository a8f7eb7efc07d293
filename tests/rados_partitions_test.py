"""Tests a cluster whose logs are in a real Ceph while one of its servers is cut off Ceph, ZooKeeper, or both.

Each server is on a host of its own, a network namespace of this machine (namespaces.py), and so are Ceph, ZooKeeper and
the clients, which reach all servers all the time. Two clients read and write throughout. Afterwards the history of each
key must be linearizable: no acknowledged write is lost, and no two owners have acknowledged writes of one key.
"""

import json
import re
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from tests import namespaces
from tools import cluster, zookeeper_server
from tools.ceph_server import Ceph

SERVERS = ("one", "two", "three")
KEYS = 300
FIRST_KEY = "a"  # It comes before those of the clients.
SMALL = ["--durability", "sync", "--meganode-bytes", str(256 << 10), "--extents-bytes", str(1 << 20), "--regions-max", "48"]
TAKEOVER_SECONDS = 30
PATIENCE_SECONDS = 15  # After that a call of Ceph's ends (RadosObjectStore::Options).


class Partitions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="cell-partitions-")
        cls.addClassCleanup(cls.temporary.cleanup)
        base = Path(cls.temporary.name)
        try:
            cls.network = namespaces.Network()
            cls.addClassCleanup(cls.network.close)
            cls.addresses = {name: cls.network.add(name) for name in ("ceph", "zookeeper", "client", *SERVERS)}
        except namespaces.Unavailable as error:
            raise unittest.SkipTest(str(error)) from error
        zookeeper = zookeeper_server.start_zookeeper(base / "zookeeper", 2181, host=cls.addresses["zookeeper"],
                                                     prefix=cls.network.on("zookeeper"))
        cls.addClassCleanup(cluster.end, [zookeeper])
        cls.ceph = Ceph(base / "ceph", 3300, osds=3, osd_bytes=1 << 30, host=cls.addresses["ceph"], prefix=cls.network.on("ceph"))
        cls.addClassCleanup(cls.ceph.stop, signal.SIGKILL)

    def setUp(self):
        name = self.id().rsplit(".", 1)[1]
        self.directory = Path(self.temporary.name) / name
        self.directory.mkdir()
        self.cluster = f"zk://{self.addresses['zookeeper']}:2181/{name}"
        self.pool = name
        self.ceph.ceph("osd", "pool", "create", self.pool, 8, 8, "replicated")
        self.clients, self.servers = [], {}
        self.addCleanup(self.end)
        for server in SERVERS:
            self.start(server)
        self.wait_until(lambda: len(self.serving()) == len(SERVERS), 60, "the servers do not serve")
        self.run_client("mixed", rate=300)
        self.run_client("reads", rate=100)
        self.wait_until(lambda: {region["server"] for region in self.regions()} == set(SERVERS), 30, "the regions are not on all servers")

    def end(self):
        for process in self.clients:
            process.kill()
            process.wait()
        for server in SERVERS:
            for other in ("ceph", "zookeeper"):
                self.network.mend_between(server, other)
        cluster.end(list(self.servers.values()))

    def start(self, server):
        home = self.directory / server
        home.mkdir(exist_ok=True)
        command = [*self.network.on(server), cluster.binary("cell/cmd/cell_server"), "--dir", str(home), "--name", server, "--cluster", self.cluster,
                   "--fabric", "tcp", "--listen", f"{self.addresses[server]}:7000", "--insecure", "--takeover-after", "0.5",
                   "--log-store", f"rados:{self.pool}@{self.ceph.conf}", *SMALL]
        with open(home / "log", "ab") as log:
            self.servers[server] = subprocess.Popen(command, stdout=log, stderr=log)

    def run_client(self, profile, rate, *flags):
        number = len(self.clients)
        command = [*self.network.on("client"), cluster.binary("tests/soak/soak_client"), "--cluster", self.cluster, "--fabric", "tcp",
                   "--process", str(number), "--log", str(self.directory / f"client-{number}.operations"), "--keys", str(KEYS),
                   "--seed", str(number), "--profile", profile, "--rate", str(rate), "--tasks", "16", "--seconds", "600", *flags]
        with open(self.directory / f"client-{number}.out", "wb") as output:
            self.clients.append(subprocess.Popen(command, stdout=output, stderr=output))
        return self.clients[-1]

    def ctl(self, *arguments):
        return subprocess.run([*self.network.on("client"), cluster.binary("tools/cellctl"), "--cluster", self.cluster, "--fabric", "tcp", *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=90)

    def serving(self):
        return [line for line in self.ctl("-o", "json", "status").stdout.splitlines() if '"regions"' in line]

    def regions(self):
        return [json.loads(line) for line in self.ctl("-o", "json", "regions").stdout.splitlines()]

    def wait_until(self, condition, seconds, what):
        """Returns how long it took."""
        begin = time.monotonic()
        while not condition():
            self.assertLess(time.monotonic() - begin, seconds, f"{what}\n{self.logs()}")
            time.sleep(0.1)
        return time.monotonic() - begin

    def logs(self):
        return "\n".join(f"--- {server}\n" + (self.directory / server / "log").read_text()[-3000:] for server in SERVERS)

    def log_of(self, server):
        return (self.directory / server / "log").read_text()

    def owner_of_the_root(self):
        return max(self.regions(), key=lambda region: region["tier"])["server"]

    def owner_of_the_first(self):
        """Returns the server of region 1, which has FIRST_KEY: splits leave a region its lower keys."""
        return next(region["server"] for region in self.regions() if region["region"] == 1)

    def cut(self, server, *others):
        for other in others:
            self.network.cut_between(server, other)
        return time.monotonic()

    def mend(self, server, *others):
        for other in others:
            self.network.mend_between(server, other)

    def put(self):
        return self.ctl("put", FIRST_KEY, "x", "--timeout", "2")

    def serves(self):
        """Returns whether a write succeeds, and all keys can be read."""
        return self.put().returncode == 0 and self.ctl("scan", "--keys-only", "--timeout", "2").returncode == 0

    def served_by_others(self, server):
        regions = self.regions()
        return bool(regions) and server not in {region["server"] for region in regions} and self.serves()

    def takes_a_region(self, server):
        regions = self.regions()
        return server in {region["server"] for region in regions} or (
            bool(regions) and self.ctl("move", str(regions[0]["region"]), server).returncode == 0)

    def segments(self):
        """Returns the size of each object of a segment."""
        names = [name for name in self.ceph.run("rados", "-p", self.pool, "ls").split() if ".log." in name]
        sizes = {}
        for name in names:
            told = re.search(r"size (\d+)", self.ceph.run("rados", "-p", self.pool, "stat", name, check=False))
            if told:
                sizes[name] = int(told[1])
        return sizes

    def former(self, segments):
        """Returns those which a successor has fenced: each region has a segment of a higher epoch."""
        epochs = {}
        for name in segments:
            region, part = name.split("/")
            epochs.setdefault(region, set()).add(int(part.split(".")[1], 16))
        return {name: size for name, size in segments.items() if int(name.split(".")[1], 16) < max(epochs[name.split("/")[0]])}

    def check_history(self):
        for process in self.clients:
            self.assertIsNone(process.poll(), "a client has ended")
            process.kill()  # Operations under way have an unknown outcome.
            process.wait()
        self.assertEqual(self.run_client("mixed", 300, "--settled").wait(60), 0)
        checked = subprocess.run([cluster.binary("tests/soak/soak_check"), *map(str, sorted(self.directory.glob("*.operations"))), "--keys", str(KEYS)],
                                 stdout=subprocess.PIPE, text=True, check=False, timeout=60)
        self.assertEqual(checked.returncode, 0, checked.stdout + self.logs())
        self.assertIn("no errors", self.ctl("check").stdout)
        return checked.stdout.strip().splitlines()[-1]

    def cut_and_taken_over(self, *others):
        """Cuts the owner of the root off the others, one of which is ZooKeeper. Other servers take its regions over. It comes
        back, and what it had still sent to its former logs is refused."""
        server = self.owner_of_the_root()
        begin = self.cut(server, *others)
        took = self.wait_until(lambda: self.served_by_others(server), TAKEOVER_SECONDS, "nobody serves the regions")
        former = self.former(self.segments())
        self.assertTrue(former)
        self.mend(server, *others)
        lasted = time.monotonic() - begin
        back = self.wait_until(lambda: self.takes_a_region(server), TAKEOVER_SECONDS, f"{server} does not come back")
        if "ceph" in others:  # TCP sends what was not acknowledged again, at the latest after as long as the cut has lasted.
            time.sleep(max(0, begin + 2 * lasted + 2 - time.monotonic()))
        now = self.segments()
        grown = {name: (size, now[name]) for name, size in former.items() if now.get(name, size) != size}
        self.assertEqual(grown, {}, "a former owner has written after its successor had read")
        print(f"{self.pool}: served by others after {took:.1f} s, back after {back:.1f} s; {len(former)} former segments; {self.check_history()}")

    def test_cut_off_zookeeper(self):
        self.cut_and_taken_over("zookeeper")

    def test_cut_off_both(self):
        self.cut_and_taken_over("zookeeper", "ceph")

    def test_cut_off_ceph(self):
        """The server keeps its regions: it answers reads, and refuses writes with the reason. Once Ceph answers it, it takes
        writes again. An operator who cannot wait ends the server, and others take over."""
        self.assertEqual(self.put().returncode, 0)
        server = self.owner_of_the_first()
        begin = self.cut(server, "ceph")
        self.wait_until(lambda: "has failed, and no write" in self.log_of(server), PATIENCE_SECONDS + 10, "no log has failed")
        failed = time.monotonic() - begin
        self.assertIn(f"Ceph did not answer for {PATIENCE_SECONDS} s", self.log_of(server))
        refused = self.put()
        self.assertNotEqual(refused.returncode, 0)
        self.assertEqual(self.ctl("get", FIRST_KEY, "--timeout", "2").stdout.strip(), "x")
        other = next(name for name in SERVERS if name != server)
        self.assertNotEqual(self.ctl("move", "1", other, "--timeout", "5").returncode, 0)
        self.assertEqual(self.owner_of_the_first(), server)
        self.mend(server, "ceph")
        again = self.wait_until(self.serves, TAKEOVER_SECONDS, "no write succeeds")

        server = self.owner_of_the_first()
        self.cut(server, "ceph")
        self.assertNotEqual(self.put().returncode, 0)
        self.servers[server].terminate()
        self.assertEqual(self.servers[server].wait(45), 3, self.log_of(server)[-2000:])
        ended = self.wait_until(lambda: self.served_by_others(server), TAKEOVER_SECONDS, "nobody serves the regions")
        self.mend(server, "ceph")
        self.start(server)
        self.wait_until(lambda: len(self.serving()) == len(SERVERS), TAKEOVER_SECONDS, f"{server} does not come back")
        print(f"{self.pool}: its log failed after {failed:.1f} s ({refused.stderr.strip()}), writes again after {again:.1f} s; "
              f"ended, served by others after {ended:.1f} s; {self.check_history()}")


if __name__ == "__main__":
    unittest.main()
