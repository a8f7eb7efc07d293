"""Runs the same commands over every fabric of this machine: real processes, several servers, splits, kills, a secret.
"""

import json
import random
import subprocess
import tempfile
import time
import unittest
import unittest.mock
from pathlib import Path

from tools import cluster

SMALL = {"meganode_bytes": 2 << 20, "extents_bytes": 8 << 20, "regions_max": 64}


class Fabrics(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="cell-fabrics-")
        self.directory = Path(self.temporary.name) / "cell"
        self.servers = []

    def tearDown(self):
        cluster.end(self.servers)
        self.temporary.cleanup()

    def up(self, **options):
        self.servers = cluster.up(self.directory, **{**SMALL, **options})

    def run_tool(self, tool, *arguments, **options):
        return subprocess.run([cluster.binary(tool), "--cluster", str(self.directory), *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False, text=True, timeout=90, **options)

    def ctl(self, *arguments, **options):
        return self.run_tool("tools/cellctl", *arguments, **options)

    def done(self, *arguments, **options):
        result = self.ctl(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def secret_file(self, name):
        path = Path(self.temporary.name) / name
        subprocess.run([cluster.binary("tools/cellctl"), "secret", "new", str(path)], check=True, timeout=30)
        return str(path)

    def test_the_same_commands(self):
        for fabric in ("shm", "tcp"):
            with self.subTest(fabric=fabric):
                self.tearDown()
                self.setUp()
                self.up(servers=2, fabric=fabric)
                records = {f"key{i * 7919 % 1000003:07}": f"{i} " + "v" * 100 for i in range(40_000)}
                lines = "".join(f"{key}\t{value}\n" for key, value in records.items())
                self.assertIn("40000 records", self.done("load", "-", input=lines))
                expected = "".join(f"{key}\t{value}\n" for key, value in sorted(records.items()))
                for path in ("server", "client", "hybrid"):
                    self.assertEqual(self.done("--path", path, "scan"), expected)
                    key = random.Random(path).choice(list(records))
                    self.assertEqual(self.done("--path", path, "get", key), records[key])
                    self.assertEqual(self.ctl("--path", path, "get", "absent").returncode, 1)
                big = "x" * (1 << 20)
                self.done("put", "big", "-", input=big)
                self.assertEqual(self.done("--path", "client", "get", "big"), big)
                servers = [json.loads(line) for line in self.done("-o", "json", "status").splitlines()]
                regions = [region for server in servers for region in server["regions"]]
                self.assertGreaterEqual(len(regions), 3, "the tree has not split")
                self.assertIn("no errors", self.done("check"))
                self.assertIn("server-1", self.done("regions"))
                region = next(r for r in regions if r["tier"] == 0)["region"]
                deadline = time.monotonic() + 30
                while (split := self.ctl("split", str(region))).returncode != 0:  # It may be migrating.
                    self.assertLess(time.monotonic(), deadline, split.stderr)
                    time.sleep(0.2)
                self.done("del", "big")
                for workload in ("get", "put", "ycsb-a", "scan", "raw-read", "raw-call"):
                    for path in ("server", "client", "hybrid"):
                        bench = self.run_tool("tools/cell_bench", "--workload", workload, "--path", path, "--keys", "20000",
                                              "--seconds", "0.2", "--json", "-")
                        self.assertEqual(bench.returncode, 0, bench.stderr)
                        result = json.loads(bench.stdout)
                        self.assertGreater(result["ops_per_second"], 0)
                        self.assertEqual(result["errors"], 0)
                self.assertIn("no errors", self.done("check"))

    def test_a_server_killed_under_load_is_named(self):
        self.up(servers=2, fabric="tcp")
        bench = subprocess.Popen([cluster.binary("tools/cell_bench"), "--cluster", str(self.directory), "--keys", "10000",
                                  "--seconds", "60", "--workload", "mixed"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(2)
        self.assertIsNone(bench.poll())
        self.servers[0].kill()
        _, error = bench.communicate(timeout=30)
        self.assertEqual(bench.returncode, 2)
        self.assertIn("127.0.0.1:", error)
        refused = self.ctl("get", "key")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("no server answers at 127.0.0.1:", refused.stderr)

    def test_who_has_not_the_secret_stays_outside(self):
        secret = self.secret_file("secret")
        with unittest.mock.patch.dict("os.environ", {"CELL_SECRET_FILE": secret}):
            self.up(servers=2, fabric="tcp")
            self.done("put", "key", "value")
        for wrong in ("", self.secret_file("another")):
            with unittest.mock.patch.dict("os.environ", {"CELL_SECRET_FILE": wrong}):
                result = self.ctl("get", "key")
                self.assertEqual(result.returncode, 2)
                self.assertIn("--secret-file", result.stderr)
        self.assertEqual(self.done("--secret-file", secret, "get", "key"), "value")
        alices = str(Path(self.temporary.name) / "alices")
        subprocess.run([cluster.binary("tools/cellctl"), "secret", "for", "client/alice", secret, alices], check=True, timeout=30)
        self.assertEqual(self.done("--secret-file", alices, "get", "key"), "value")
        refused = self.ctl("--secret-file", alices, "check")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("client/alice may not send this: it is for operators", refused.stderr)
        self.done("--secret-file", secret, "check")
        Path(secret).chmod(0o644)
        result = self.ctl("--secret-file", secret, "get", "key")
        self.assertEqual(result.returncode, 2)
        self.assertIn("chmod", result.stderr)

    def test_a_client_says_when_no_fabric_leads_there(self):
        self.up(fabric="shm")
        result = self.ctl("--fabric", "tcp", "get", "key")
        self.assertEqual(result.returncode, 2)
        self.assertIn("no fabric of this program reaches shm://", result.stderr)


if __name__ == "__main__":
    unittest.main()
