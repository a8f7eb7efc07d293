"""Tests Pilaf tables on clusters of real processes: commands, growth, servers that are killed and restarted, fabrics.
"""

import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from tools import cluster

SMALL = {"meganode_bytes": 1 << 20, "extents_bytes": 1 << 20, "regions_max": 64}
ABSENT, ERROR = 1, 2
KEYS = 40_000


class Tables(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="cell-hash-")
        self.directory = Path(self.temporary.name)
        self.servers = []

    def tearDown(self):
        if os.environ.get("CELL_SHOW_LOGS"):
            for log in sorted(self.directory.glob("server-*.log")):
                print(log.read_text())
        cluster.end(self.servers)
        self.temporary.cleanup()

    def up(self, **options):
        self.servers = cluster.up(self.directory, **{**SMALL, **options})

    def ctl(self, *arguments, **options):
        return subprocess.run([cluster.binary("tools/cellctl"), "--cluster", str(self.directory), *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, text=True, timeout=90, **options)

    def done(self, *arguments, **options):
        result = self.ctl(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def refused(self, part, *arguments):
        result = self.ctl(*arguments)
        self.assertEqual(result.returncode, ERROR, result)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertIn(part, result.stderr)

    def load(self, table):
        lines = "".join(f"key{i}\t{i} {'v' * (i % 90)}\n" for i in range(KEYS))
        self.done("load", "-", "--table", table, input=lines)

    def expect(self, table, path, step=997):
        for i in range(0, KEYS, step):
            self.assertEqual(self.done("--path", path, "hash", "get", "--table", table, f"key{i}"), f"{i} {'v' * (i % 90)}")

    def stats(self, table):
        return json.loads(self.done("-o", "json", "hash", "stats", "--table", table))

    def expect_keys(self, table):
        """Expects all keys to be there. Servers report at different moments, so a part that is just moved counts twice, or not at all."""
        deadline = time.monotonic() + 30
        while self.stats(table)["keys"] != KEYS and time.monotonic() < deadline:
            time.sleep(0.2)
        self.assertEqual(self.stats(table)["keys"], KEYS)

    def test_commands_and_their_exit_status(self):
        self.up(servers=2)
        for layout in ("slots", "buckets"):
            self.done("hash", "create", layout, "--layout", layout)
            for path in ("server", "client", "hybrid"):
                with self.subTest(layout=layout, path=path):
                    on = lambda command, *rest: self.ctl("--path", path, "hash", command, "--table", layout, *rest)
                    self.assertEqual(on("put", "key", "value").returncode, 0)
                    self.assertEqual(on("get", "key").stdout, "value")
                    self.assertEqual(on("has", "key").returncode, 0)
                    self.assertEqual(on("del", "key").returncode, 0)
                    self.assertEqual(on("del", "key").returncode, ABSENT)
                    self.assertEqual(on("get", "key").returncode, ABSENT)
                    self.assertEqual(on("has", "key").returncode, ABSENT)
        self.assertEqual(self.ctl("get", "key").returncode, ABSENT)  # The tree is another map.
        self.refused("no table nope", "hash", "get", "--table", "nope", "key")
        self.refused("no table", "hash", "drop", "nope")
        self.refused("already", "hash", "create", "slots")
        self.refused("is not a valid table name", "hash", "create", "a b")
        self.refused("longer than 4096", "hash", "get", "--table", "slots", "k" * 5000)
        listed = [json.loads(line) for line in self.done("-o", "json", "hash", "list").splitlines()]
        self.assertEqual([(t["table"], t["layout"], t["parts"]) for t in listed], [("buckets", "buckets", 2), ("slots", "slots", 2)])
        self.done("hash", "drop", "slots")
        self.refused("no table slots", "hash", "get", "--table", "slots", "key")

    def test_parts_that_do_not_fit_are_not_asked_for_in_vain(self):
        self.up(servers=2, regions_max=6, server_flags=["--no-balance"])
        self.done("hash", "create", "t", "--parts", "9")  # 6 and 6, without the tree's root.
        self.assertEqual(self.stats("t")["parts"], 9)
        self.refused("a table of 3 parts: the cluster's workers have room for only 2 more regions", "hash", "create", "u", "--parts", "3")
        self.assertEqual([json.loads(line)["table"] for line in self.done("-o", "json", "hash", "list").splitlines()], ["t"])
        self.load("t")
        self.expect("t", "client", 4999)
        self.done("hash", "drop", "t")
        self.servers[1].send_signal(signal.SIGKILL)
        self.servers[1].wait()
        self.refused("table t was created with 5 of 8 parts, and can be used: ", "hash", "create", "t", "--parts", "8")
        self.assertEqual(self.stats("t")["parts"], 5)

    def test_it_grows_over_three_servers_and_a_server_can_be_drained(self):
        self.up(servers=3)
        for layout in ("slots", "buckets"):
            self.done("hash", "create", layout, "--layout", layout, "--parts", "1")
            self.load(layout)
            stats = self.stats(layout)
            self.assertEqual(stats["keys"], KEYS)
            self.assertGreater(stats["parts"], 3)
            self.assertEqual(stats["parts_missing"], 0)
            self.assertGreaterEqual(stats["probes_per_lookup"], 1)
            for path in ("server", "client"):
                self.expect(layout, path)
        self.done("drain", "server-1")
        for layout in ("slots", "buckets"):
            self.expect_keys(layout)
            for path in ("server", "client"):
                self.expect(layout, path, 1999)
        self.assertIn(f"{2 * KEYS} in tables", self.done("check"))

    def test_by_tcp(self):
        self.up(servers=2, fabric="tcp")
        for layout in ("slots", "buckets"):
            self.done("hash", "create", layout, "--layout", layout)
            self.load(layout)
            for path in ("server", "client", "hybrid"):
                self.expect(layout, path, 4999)

    def test_killed_servers_lose_nothing(self):
        self.up(servers=3, durability="sync")
        for layout in ("slots", "buckets"):
            self.done("hash", "create", layout, "--layout", layout)
            self.load(layout)
        self.servers[1].send_signal(signal.SIGKILL)
        self.servers[1].wait()
        deadline = time.monotonic() + 60
        while any(self.stats(layout)["parts_missing"] for layout in ("slots", "buckets")):
            self.assertLess(time.monotonic(), deadline, "the others do not take over")
            time.sleep(0.2)
        for layout in ("slots", "buckets"):
            self.assertEqual(self.stats(layout)["keys"], KEYS)
            for path in ("server", "client"):
                self.expect(layout, path, 1999)
        cluster.end(self.servers)
        self.servers = cluster.up(self.directory, servers=3, durability="sync", **SMALL)
        for layout in ("slots", "buckets"):
            self.expect(layout, "client", 1999)
            self.assertEqual(self.stats(layout)["keys"], KEYS)
        self.assertIn(f"{2 * KEYS} in tables", self.done("check"))

    def test_what_is_lost_without_logs_is_said(self):
        self.up(servers=2, server_flags=["--no-balance"])
        self.done("hash", "create", "t", "--layout", "slots")
        self.load("t")
        owners = [r for r in map(json.loads, self.done("-o", "json", "regions").splitlines()) if r["table"] == "t"]
        self.assertEqual({r["server"] for r in owners}, {"server-0", "server-1"})
        self.servers[1].send_signal(signal.SIGKILL)
        self.servers[1].wait()
        results = [self.ctl("--timeout", "2", "hash", "get", "--table", "t", f"key{i}") for i in range(12)]
        self.assertEqual({r.returncode for r in results}, {0, ERROR})
        self.assertTrue(all("server-1" in r.stderr for r in results if r.returncode == ERROR))

    def test_a_benchmark_makes_its_table(self):
        self.up()
        bench = [cluster.binary("tools/cell_bench"), "--cluster", str(self.directory), "--tier", "pilaf", "--keys", "5000", "--seconds", "0.2"]
        for layout in ("slots", "buckets"):
            out = subprocess.run([*bench, "--layout", layout, "--table", layout, "--workload", "get-90", "--path", "client", "--json", "-"], check=True,
                                 capture_output=True, text=True).stdout
            result = json.loads(out)
            self.assertEqual((result["errors"], result["absent"]), (0, 0))
            self.assertGreaterEqual(result["reads_per_lookup"], 1)
        scan = subprocess.run([*bench, "--workload", "scan"], check=False, capture_output=True, text=True)
        self.assertEqual(scan.returncode, ERROR)
        self.assertIn("no order", scan.stderr)


if __name__ == "__main__":
    unittest.main()
