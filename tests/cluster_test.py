"""Tests a cluster of real processes over shared memory: splits, migrations, joins, the control plane, stopped and
killed servers."""

import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from tools import cluster

SMALL = {"meganode_bytes": 2 << 20, "extents_bytes": 8 << 20, "regions_max": 64}


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


class Cluster(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="cell-cluster-")
        self.directory = Path(self.temporary.name) / "cell"
        self.servers = []

    def tearDown(self):
        for process in self.servers:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        cluster.end(self.servers)
        self.temporary.cleanup()

    def begin_anew(self):
        self.tearDown()
        self.setUp()

    def up(self, servers=3, **options):
        self.servers = cluster.up(self.directory, servers=servers, **{**SMALL, **options})

    def ctl(self, *arguments, **options):
        return subprocess.run([cluster.binary("tools/cellctl"), "--cluster", str(self.directory), *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, text=True, errors="replace", timeout=90,
                              **options)

    def done(self, *arguments):
        result = self.ctl(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def refused(self, part, *arguments):
        result = self.ctl(*arguments)
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
        self.assertIn(part, result.stderr)

    def load(self, first, count, value="v" * 100):
        text = "".join(f"key{i * 7919 % 1000003:07}\t{i} {value}\n" for i in range(first, first + count))
        return self.ctl("load", "-", input=text)

    def regions(self):
        return [json.loads(line) for line in self.done("-o", "json", "regions").splitlines()]

    def settled(self):
        """Returns the regions once none is split or migrated any more."""
        before, regions = None, self.regions()
        deadline = time.monotonic() + 30
        while (regions != before or any(r["busy"] for r in regions)) and time.monotonic() < deadline:
            time.sleep(0.4)
            before, regions = regions, self.regions()
        self.assertEqual(len({r["region"] for r in regions}), len(regions), regions)
        return regions

    def expect_keys(self, count):
        for path in ("server", "client", "hybrid"):
            keys = self.done("--path", path, "scan", "--keys-only").splitlines()
            self.assertEqual(len(keys), count, path)
            self.assertEqual(keys, sorted(keys), path)
            self.assertEqual(self.done("--path", path, "scan", "--keys-only", "--reverse").splitlines(), keys[::-1], path)
        self.assertIn("no errors", self.done("check").splitlines()[-1])

    def test_it_grows_over_all_servers_and_obeys(self):
        self.up()
        self.assertIn("memory for 2 more", self.done("allocate", "server-1", "--count", "2"))
        self.refused("its limit (--regions-max)", "allocate", "server-2", "--count", "60000")
        self.refused("server-9", "allocate", "server-9")
        self.assertEqual(self.load(0, 200_000).returncode, 0)
        regions = self.settled()
        held = {name: [r for r in regions if r["server"] == name] for name in ("server-0", "server-1", "server-2")}
        self.assertTrue(all(held.values()), held)
        self.expect_keys(200_000)

        one = next(r["region"] for r in held["server-0"] if r["tier"] == 0)
        self.assertEqual(self.done("split", str(one)), f"region {one} was split\n")
        self.assertEqual(len(self.settled()), len(regions) + 1)
        self.assertEqual(self.done("move", str(one), "server-2"), f"region {one} is now on server-2\n")
        # Balancing may already have moved it on. Or the region had been migrated before the command.
        self.assertIn(f"region {one} was migrated here from", (self.directory / "server-2.log").read_text())
        self.assertGreater(next(r["epoch"] for r in self.settled() if r["region"] == one), 1)
        self.refused("the cluster has no region 999", "split", "999")
        self.refused("server-9", "move", str(one), "server-9")
        # It is there already.
        self.done("move", str(one), next(r["server"] for r in self.settled() if r["region"] == one))
        self.refused("log level", "log-level", "server-0", "loud")
        self.done("log-level", "server-0", "debug")
        self.expect_keys(200_000)

        self.assertEqual(self.done("drain", "server-1"), "server-1 is drained: it holds no regions, and gets no new ones\n")
        self.assertEqual([r for r in self.regions() if r["server"] == "server-1"], [])
        self.expect_keys(200_000)
        self.done("drain", "server-0")
        self.refused("room for only 0", "drain", "server-2")
        self.expect_keys(200_000)
        self.assertEqual(self.done("drain", "server-0", "--cancel"), "the drain of server-0 was cancelled\n")
        self.done("drain", "server-1", "--cancel")
        self.done("rebalance")
        deadline = time.monotonic() + 20
        keys = {}
        while time.monotonic() < deadline:
            keys = {}
            for r in self.regions():
                keys[r["server"]] = keys.get(r["server"], 0) + r["keys"]
            if len(keys) == 3 and max(keys.values()) <= 1.2 * sum(keys.values()) / 3:
                break
            time.sleep(0.1)
        self.assertEqual(len(keys), 3, keys)
        self.assertLessEqual(max(keys.values()), 1.2 * sum(keys.values()) / 3, keys)
        self.expect_keys(200_000)

    def test_it_shrinks_when_its_keys_are_deleted(self):
        self.up()
        self.assertEqual(self.load(0, 100_000).returncode, 0)
        grown = self.settled()
        self.assertGreater(len(grown), 10)
        self.done("delete-range", "key0000010", "key0999990", "--yes")
        left = self.done("scan", "--keys-only").splitlines()
        self.assertLess(len(left), 20)
        deadline = time.monotonic() + 60
        while len(regions := self.regions()) > 6 and time.monotonic() < deadline:
            self.assertIn("no errors", self.done("check").splitlines()[-1])  # Also beside the joins.
            time.sleep(0.1)
        self.assertLessEqual(len(regions), 6)
        self.expect_keys(len(left))
        self.assertEqual(self.done("scan", "--keys-only").splitlines(), left)
        self.assertEqual(self.load(0, 100_000).returncode, 0)
        self.expect_keys(100_000)

    def test_regions_are_merged_by_hand(self):
        # Neighbours stay on one worker, so that each can be merged.
        self.up(servers=2, server_flags=["--no-join", "--no-balance"])
        self.assertEqual(self.load(0, 20_000).returncode, 0)
        regions = [r for r in self.settled() if r["tier"] == 0]
        self.assertGreaterEqual(len(regions), 3)
        self.refused("too full", "merge", str(regions[0]["region"]))
        self.refused("the cluster has no region 999", "merge", "999")
        self.done("delete-range", "key0000010", "key0999990", "--yes")
        time.sleep(1)
        self.assertEqual(len([r for r in self.regions() if r["tier"] == 0]), len(regions), "they were joined by themselves")
        for count in range(len(regions), 1, -1):
            left = [r for r in self.regions() if r["tier"] == 0]
            self.assertEqual(len(left), count)
            self.assertRegex(self.done("merge", str(left[0]["region"])), r"^region \d+ was merged into region \d+, its left neighbour$")
        last = next(r for r in self.regions() if r["tier"] == 0)
        self.refused("the only one of its tier", "merge", str(last["region"]))
        left = self.done("scan", "--keys-only").splitlines()
        self.assertLess(len(left), 20)
        self.expect_keys(len(left))
        self.done("hash", "create", "table", "--parts", "4")
        self.done("hash", "put", "table", "key", "value")
        for count in range(4, 1, -1):
            parts = [r for r in self.regions() if r["table"] == "table"]
            self.assertEqual(len(parts), count)
            self.done("merge", str(parts[count // 2]["region"]))
        self.assertEqual(self.done("hash", "get", "table", "key").strip(), "value")
        part = next(r for r in self.regions() if r["table"] == "table")
        self.refused("the only one of its table", "merge", str(part["region"]))

    def reach(self, point):
        """Loads until server-1 has stopped at the point. Returns a lower bound of the keys acknowledged before."""
        loaded = 0
        self.up(flags_of={"server-1": ["--stop-at", point]})
        loader = subprocess.Popen([cluster.binary("tools/cellctl"), "--cluster", str(self.directory), "--timeout", "30", "load", "-"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.set_blocking(loader.stdin.fileno(), False)
        victim = self.servers[1]
        pending = b""
        deadline = time.monotonic() + 60
        ask_at, asked = time.monotonic() + 1, []
        while state_of(victim.pid) != "T" and time.monotonic() < deadline:
            if "source" in point and time.monotonic() > ask_at:  # All servers grow alike: it need not give by itself.
                ask_at = time.monotonic() + 1
                listed = self.ctl("-o", "json", "regions")  # Fails if server-1 has just stopped, in which case it has
                                                            # reached the point.
                its = [r for r in map(json.loads, listed.stdout.splitlines()) if r["server"] == "server-1" and r["tier"] == 0]
                if its:
                    asked.append(subprocess.Popen([cluster.binary("tools/cellctl"), "--cluster", str(self.directory), "move", str(its[0]["region"]), "server-2"],
                                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            if len(pending) < 1 << 16:
                pending += b"".join(b"key%07d\t%d %s\n" % (i * 7919 % 1000003, i, b"v" * 100) for i in range(loaded, loaded + 500))
                loaded += 500
            try:
                pending = pending[os.write(loader.stdin.fileno(), pending):]
            except BlockingIOError:
                time.sleep(0.001)
        for process in asked:
            process.kill()
            process.wait()
        self.assertEqual(state_of(victim.pid), "T", f"{point} was not reached")
        return loader, pending, loaded

    def test_stopped_servers_go_on(self):
        for point in ("split: cut", "migration: source: frozen", "migration: source: sealed", "migration: target: before the table"):
            with self.subTest(point=point):
                self.begin_anew()
                loader, pending, loaded = self.reach(point)
                time.sleep(1.5)  # Longer than the others wait for a message.
                self.servers[1].send_signal(signal.SIGCONT)
                deadline = time.monotonic() + 60
                while pending and time.monotonic() < deadline:
                    if state_of(self.servers[1].pid) == "T":
                        self.servers[1].send_signal(signal.SIGCONT)  # It has reached the point again.
                    try:
                        pending = pending[os.write(loader.stdin.fileno(), pending):]
                    except BlockingIOError:
                        time.sleep(0.001)
                loader.stdin.close()
                while loader.poll() is None and time.monotonic() < deadline:
                    if state_of(self.servers[1].pid) == "T":
                        self.servers[1].send_signal(signal.SIGCONT)
                    time.sleep(0.01)
                self.assertEqual(loader.wait(5), 0, loader.stderr.read())
                loader.stdout.close()
                loader.stderr.close()
                quiet = time.monotonic() + 1.0
                while time.monotonic() < quiet:
                    if state_of(self.servers[1].pid) == "T":
                        self.servers[1].send_signal(signal.SIGCONT)
                    time.sleep(0.01)
                for path in ("server", "client"):
                    keys = self.done("--path", path, "scan", "--keys-only").splitlines()
                    self.assertEqual(len(set(keys)), len(keys))
                    self.assertEqual(len(keys), loaded, f"{point} over {path}")

    def test_what_a_killed_server_held_is_named_and_the_rest_is_there(self):
        for point in ("split: cut", "migration: source: sealed", "migration: target: after the table"):
            with self.subTest(point=point):
                self.begin_anew()
                loader, _, loaded = self.reach(point)
                self.servers[1].kill()
                self.servers[1].wait()
                loader.kill()
                loader.communicate()
                time.sleep(2.5)  # The others notice, and settle what was in progress.
                lost = found = 0
                for i in range(0, loaded, max(1, loaded // 300)):
                    key = f"key{i * 7919 % 1000003:07}"
                    answer = self.ctl("--path", "client" if i % 2 else "server", "get", key)
                    if answer.returncode == 0:
                        found += answer.stdout.startswith(f"{i} ")
                    elif answer.returncode == 2:
                        self.assertRegex(answer.stderr, r"region \d+ on server-1: ")
                        lost += 1
                self.assertGreater(found, 50)
                self.refused("server-1", "check")

    def test_tls_lets_in_who_has_a_certificate(self):
        def openssl(*arguments):
            subprocess.run(["openssl", *arguments], cwd=self.temporary.name, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2")
        for name, names in (("server", "DNS:localhost,IP:127.0.0.1"), ("client", "URI:cell://operator/alice")):
            openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
            (Path(self.temporary.name) / "san").write_text(f"subjectAltName={names}\n")
            openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.pem",
                    "-days", "2", "-extfile", "san")
        at = self.temporary.name
        self.up(servers=1, server_flags=["--control", "127.0.0.1:0", "--tls-certificate", f"{at}/server.pem", "--tls-key", f"{at}/server.key",
                                         "--tls-authority", f"{at}/ca.pem"])
        authority = ["--tls-authority", f"{at}/ca.pem"]
        self.assertIn("server-0", self.done(*authority, "--tls-certificate", f"{at}/client.pem", "--tls-key", f"{at}/client.key", "regions"))
        self.refused("are needed together", *authority, "regions")
        self.assertIn("server-0", self.done("regions"))  # By the Unix socket.


if __name__ == "__main__":
    unittest.main()
