"""A stranger who can write to a cluster's znodes ends no server, stops none, and hangs no client, whatever he writes.

The last region table that made sense stays in use, and a server says so. He can still do harm, for example empty the
table: with CELL_ZOOKEEPER_DIGEST he cannot write at all (//tests:zookeeper_test).
"""

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from tests import stored_table
from tests.attacks.znode_client import ZnodeClient, ZnodeError
from tools import cluster, cluster_directory, free_ports, zookeeper_server

SMALL = {"meganode_bytes": 2 << 20, "extents_bytes": 8 << 20, "regions_max": 64}
GARBAGE = bytes(range(256)) * 3
NOT_JSON = {"garbage": GARBAGE, "nothing": b"", "a megabyte": b"x" * 1_000_000, "deep": b"[" * 900_000, "wide": b"[" + b"1," * 490_000 + b"1]"}


def text(value):
    return json.dumps(value, separators=(",", ":")).encode()


class Znodes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="cell-znodes-")
        directory = Path(cls.temporary.name)
        cls.zookeeper_address = f"127.0.0.1:{free_ports.free_port()}"
        port = int(cls.zookeeper_address.split(":")[1])
        cls.zookeeper = zookeeper_server.start_zookeeper(directory / "zookeeper", port)
        zookeeper_server.wait_for_zookeeper(port, cls.zookeeper)
        cls.directory = directory / "cell"
        cls.servers = cluster.up(cls.directory, servers=2, zookeeper=cls.zookeeper_address, durability="async", server_flags=["--insecure"], **SMALL)
        cls.address = cluster_directory.address_of(cls.directory)

    @classmethod
    def tearDownClass(cls):
        cluster.end(cls.servers)
        os.killpg(cls.zookeeper.pid, signal.SIGKILL)
        cls.zookeeper.wait()
        cls.temporary.cleanup()

    def setUp(self):
        self.znodes = ZnodeClient(self.zookeeper_address)
        self.addCleanup(self.znodes.close)
        self.ctl("put", "key", "value")

    def ctl(self, *arguments, ends=(0,)):
        answer = subprocess.run([cluster.binary("tools/cellctl"), "--cluster", self.address, "--timeout", "2" if 2 in ends else "10", *arguments], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, errors="replace", timeout=200, check=False)
        self.assertIn(answer.returncode, ends, answer)
        return answer

    def log(self, server=0):
        return (self.directory / f"server-{server}.log").read_text(errors="replace")

    def cpu_seconds(self):
        clock = os.sysconf("SC_CLK_TCK")
        fields = [Path(f"/proc/{server.pid}/stat").read_text().rsplit(")", 1)[1].split() for server in self.servers]
        return sum(int(one[11]) + int(one[12]) for one in fields) / clock

    def write(self, path, data):
        """Writes a znode, and waits until the servers have had it for a while."""
        self.znodes.set(path, data)
        time.sleep(0.3)
        self.assertTrue(all(server.poll() is None for server in self.servers), "a server has ended")

    def check_all_is_well(self):
        self.ctl("put", "key", "other")
        self.assertEqual(self.ctl("get", "key").stdout, "other")
        self.assertTrue(all(server.poll() is None for server in self.servers))

    def test_a_workers_znode(self):
        path = "/cell/workers/server-0.0"
        good = self.znodes.get(path)
        its = json.loads(good)
        for name, junk in {**NOT_JSON, "types": text({**its, "address": 7}), "negative": text({**its, "regions_max": -1}),
                           "a list": text([its]), "a number beyond all": good.replace(b":64", b":1e999"),
                           "control characters": text({**its, "address": "tcp://\n\x1b[2J"}), "a long address": text({**its, "address": "x" * 900_000}),
                           "no address": text({**its, "address": ""}), "a port beyond all": text({**its, "address": "tcp://127.0.0.1:99999999999"})}.items():
            with self.subTest(name):
                self.write(path, junk)
                self.ctl("get", "key", ends=(0, 2))
                self.ctl("status", ends=(0, 2))
        self.write(path, good)
        self.check_all_is_well()

    def test_names_that_no_worker_has(self):
        worker = self.znodes.get("/cell/workers/server-1.0")
        made = []
        for name in ("nobodys", "server-0.01", "server-0.1024", "server-0.4294967295", " .0", "..0", "a b.0", "a\u202eb.0", "x" * 900 + ".0",
                     "server-0.1", "ghost.0"):
            try:
                self.znodes.create(f"/cell/workers/{name}", worker)
                made.append(name)
            except ZnodeError:
                pass  # ZooKeeper refuses it.
        self.assertGreater(len(made), 5)
        time.sleep(0.3)
        told = self.ctl("-o", "json", "status", ends=(0, 2))
        self.assertNotIn("\u202e", told.stdout + told.stderr)
        for name in made:
            self.znodes.delete(f"/cell/workers/{name}")
        time.sleep(0.3)
        self.check_all_is_well()

    def test_many_of_them_cost_little_and_fill_no_log(self):
        worker = self.znodes.get("/cell/workers/server-1.0")
        before = len(self.log())
        stopped = threading.Event()

        def come_and_go():
            znodes = ZnodeClient(self.zookeeper_address)
            while not stopped.is_set():
                znodes.create("/cell/workers/comes-and-goes", GARBAGE)
                znodes.delete("/cell/workers/comes-and-goes")
                time.sleep(0.02)
            znodes.close()

        names = [f"/cell/workers/junk{i}" for i in range(300)] + [f"/cell/workers/a{i}.63" for i in range(1100)]
        for name in names:
            self.znodes.create(name, worker if name.endswith(".63") else b"")

        def delete_all():
            znodes = ZnodeClient(self.zookeeper_address)  # The session of the other one may be over.
            for name in names:
                znodes.delete(name)
            znodes.close()

        self.addCleanup(delete_all)
        restless = threading.Thread(target=come_and_go)
        restless.start()
        try:
            time.sleep(5)  # Longer than a session.
            self.check_all_is_well()
        finally:
            stopped.set()
            restless.join()
        self.assertLess(len(self.log()) - before, 5_000, self.log()[-2_000:])
        self.assertIn("which is not a worker's znode", self.log())
        self.assertIn("ignoring those beyond 1024", self.log())

    def test_the_region_table(self):
        good = self.znodes.get("/cell/table")
        table = json.loads(good)
        [[first, version]] = table["shards"]
        self.assertNotIn("stays in use as it was last read", self.log())
        for name, junk in {**NOT_JSON, "types": text({**table, "shards": 7}), "negative": text({**table, "shards": [[first, -1]]}),
                           "a number beyond all": text({**table, "version": 0}).replace(b'"version":0', b'"version":1e999'),
                           "a shard that is not there": text({**table, "shards": [[first, version], [999, version]]}),
                           "a shard of another version": text({**table, "shards": [[first, version - 1]]}),
                           "a drained server's name": text({**table, "draining": ["\x1b[2J"]})}.items():
            with self.subTest(name):
                self.write("/cell/table", junk)
                self.assert_is_named(self.ctl("get", "key", ends=(2,)).stderr)
        self.assert_is_named(self.log())
        self.assertIn("stays in use as it was last read", self.log())
        self.assertEqual(self.log().count("stays in use as it was last read"), 1, "a warning a minute")
        self.write("/cell/table", good)
        self.check_all_is_well()

    def assert_is_named(self, text):
        self.assertIn("/cell/table: not a region table", text)

    def test_shards_of_the_region_table(self):
        root = json.loads(self.znodes.get("/cell/table"))
        [[first, version]] = root["shards"]
        path = f"/cell/table/{stored_table.shard_name(first)}"
        good = self.znodes.get(path)
        [region] = stored_table.regions(json.dumps(root), lambda _: good)
        for name, junk in {**NOT_JSON, "an old one": stored_table.shard(first, version - 1, [region]), "cut": good[:-1],
                           "an owner's name": stored_table.shard(first, version, [{**region, "server": "\x1b[2J\nx"}]),
                           "an epoch": stored_table.shard(first, version, [{**region, "epoch": 1 << 40}]),
                           "regions": stored_table.shard(first, version, [{**region, "region": i} for i in range(1, 300)])}.items():
            with self.subTest(name):
                self.write(path, junk)
                error = self.ctl("get", "key", ends=(2,)).stderr
                self.assert_is_named(error)
                self.assertIn(path, error)
                self.assertNotIn("\x1b", error)
                self.assertLess(len(error), 1000)
        self.znodes.delete(path)
        self.assertIn(f"{path} does not exist", self.ctl("get", "key", ends=(2,)).stderr)
        self.znodes.create(path, good)
        self.check_all_is_well()

    def test_a_region_table_that_takes_long_to_check(self):
        good = self.znodes.get("/cell/table")
        table = json.loads(good)
        version, [region] = table["version"], self.regions_stored(table)
        chain = [{**region, "region": i, "split_parent": i - 1} for i in range(region["region"] + 1, 14_000)]
        shards = [chain[at:at + 256] for at in range(0, len(chain), 256)]
        for shard in shards:
            first = shard[0]["region"]
            self.znodes.create(f"/cell/table/{stored_table.shard_name(first)}", stored_table.shard(first, version, shard))
        before = self.cpu_seconds()
        listed = table["shards"] + [[shard[0]["region"], version] for shard in shards]
        self.write("/cell/table", text({**table, "next_region": 14_000, "shards": listed}))
        self.assertEqual(self.ctl("get", "key").stdout, "value")
        self.write("/cell/table", good)
        self.check_all_is_well()
        self.assertLess(self.cpu_seconds() - before, 10)
        for shard in shards:
            self.znodes.delete(f"/cell/table/{stored_table.shard_name(shard[0]['region'])}")

    def regions_stored(self, table):
        return stored_table.regions(json.dumps(table), lambda first: self.znodes.get(f"/cell/table/{stored_table.shard_name(first)}"))

    def test_the_clusters_own_znode(self):
        good = self.znodes.get("/cell")
        for name, junk in {**NOT_JSON, "types": text({**json.loads(good), "uuid": 7}), "another format": text({**json.loads(good), "format": 1 << 40}),
                           "negative": text({**json.loads(good), "node_bytes": -512})}.items():
            with self.subTest(name):
                self.write("/cell", junk)
                self.assertLess(len(self.ctl("get", "key", ends=(2,)).stderr), 1000)
        self.write("/cell", good)
        self.check_all_is_well()

    def test_znodes_that_are_gone(self):
        paths = ["/cell/table"] + [f"/cell/table/{stored_table.shard_name(first)}" for first, _ in json.loads(self.znodes.get("/cell/table"))["shards"]]
        good = {path: self.znodes.get(path) for path in paths}
        for path in reversed(paths):
            self.znodes.delete(path)
        time.sleep(0.3)
        self.ctl("get", "key", ends=(2,))
        for path in paths:
            self.znodes.create(path, good[path])
        self.check_all_is_well()


if __name__ == "__main__":
    unittest.main()
