"""Tests real processes: up, cellctl, cell_bench, down, and kills in between."""

import json
import os
import random
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from tools import cluster, cluster_down

ABSENT, ERROR = 1, 2


class EndToEnd(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="cell-e2e-")
        self.directory = Path(self.temporary.name)
        self.processes = []

    def tearDown(self):
        cluster.end(self.processes)
        self.temporary.cleanup()

    def up(self, **options):
        self.processes = cluster.up(self.directory, meganode_bytes=16 << 20, extents_bytes=64 << 20, **options)

    def ctl(self, *arguments, **options):
        command = [cluster.binary("tools/cellctl"), "--cluster", str(self.directory), *arguments]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False, **options)

    def assert_error(self, result, part):
        self.assertEqual(result.returncode, ERROR, result)
        lines = result.stderr.decode().splitlines()
        self.assertEqual(len(lines), 1, lines)
        self.assertIn(part, lines[0])

    def test_commands_and_their_exit_status(self):
        self.up()
        for path in ("server", "client", "hybrid"):
            with self.subTest(path=path):
                ctl = lambda *a, **o: self.ctl("--path", path, *a, **o)
                self.assertEqual(ctl("put", "key", "value").returncode, 0)
                got = ctl("get", "key")
                self.assertEqual((got.returncode, got.stdout), (0, b"value"))
                self.assertEqual(ctl("has", "key").returncode, 0)
                self.assertEqual(ctl("del", "key").returncode, 0)
                for command in ("get", "has", "del"):
                    gone = ctl(command, "key")
                    self.assertEqual((gone.returncode, gone.stdout, gone.stderr), (ABSENT, b"", b""))
                big = random.Random(1).randbytes(1 << 20)
                self.assertEqual(ctl("put", "big", "-", input=big).returncode, 0)
                self.assertEqual(ctl("get", "big").stdout, big)
                self.assert_error(ctl("put", "big", "-", input=big + b"x"), "larger than 1048576")
                self.assert_error(ctl("put", "k" * 227, "v"), "longer than 226")
                self.assert_error(ctl("put", "", "v"), "at least one byte")
        unknown = self.ctl("put", "--no-such-flag", "a", "b")
        self.assertEqual(unknown.returncode, ERROR)

    def test_load_and_scan(self):
        self.up()
        records = {f"key{i:05}": f"value {i}" for i in range(5000)}
        lines = [f"{k}\t{v}" for k, v in records.items()]
        random.Random(2).shuffle(lines)
        self.assertIn(b"5000 records", self.ctl("load", "-", input="\n".join(lines).encode()).stdout)
        for path in ("server", "client", "hybrid"):
            scan = self.ctl("--path", path, "scan").stdout.decode().splitlines()
            self.assertEqual(scan, [f"{k}\t{v}" for k, v in sorted(records.items())])
            keys = self.ctl("--path", path, "scan", "key00010", "key00020", "--keys-only", "--limit", "7").stdout.decode().split()
            self.assertEqual(keys, [f"key{i:05}" for i in range(10, 17)])
            prefix = self.ctl("--path", path, "scan", "--prefix", "key0012").stdout.decode().splitlines()
            self.assertEqual(len(prefix), 10)
        as_json = self.ctl("-o", "json", "scan", "--limit", "1").stdout
        self.assertEqual(json.loads(as_json), {"key": "key00000", "value": "value 0"})
        self.ctl("put", "binary", "-", input=b"\xff\x00")
        self.assertEqual(json.loads(self.ctl("-o", "json", "get", "binary").stdout)["value"], {"hex": "ff00"})
        bad = self.ctl("load", "-", input=b"good\tline\nno tab here\n")
        self.assertEqual(bad.returncode, ERROR)
        self.assertIn(b"line 2: it is neither", bad.stderr)
        self.assertIn(b"1 records were loaded", bad.stderr)
        status = self.ctl("-o", "json", "status").stdout
        self.assertEqual(json.loads(status)["regions"][0]["keys"], 5002)
        self.assertIn(b"no errors", self.ctl("check").stdout)
        self.assertEqual(self.ctl("count").stdout, b"5002\n")
        self.assertEqual(json.loads(self.ctl("-o", "json", "count", "key00010", "key00020").stdout), {"pairs": 10})
        self.assertEqual(self.ctl("count", "--prefix", "key0012").stdout, b"10\n")
        self.assertEqual(self.ctl("delete-range", "key00100", "key04900").stdout, b"4800 pairs deleted\n")
        self.assertEqual(json.loads(self.ctl("-o", "json", "delete-range", "--prefix", "key0001").stdout), {"deleted": 10, "exact": True})
        self.assertEqual(self.ctl("count").stdout, b"192\n")
        left = self.ctl("scan", "--keys-only", "--prefix", "key").stdout.decode().split()
        self.assertEqual(left, [f"key{i:05}" for i in (*range(10), *range(20, 100), *range(4900, 5000))])
        self.assertIn(b"no errors", self.ctl("check").stdout)
        prompt = self.ctl(input=b"put a b\nget a\nnonsense\nget a\nexit\n")
        self.assertEqual(prompt.stdout, b"b\nb\n")

    def test_a_server_killed_gives_clients_an_error_within_a_second(self):
        self.up()
        bench = subprocess.Popen(
            [cluster.binary("tools/cell_bench"), "--cluster", str(self.directory), "--keys", "10000", "--seconds", "60", "--workload",
             "mixed"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(2)
        self.assertIsNone(bench.poll())
        self.processes[0].kill()
        start = time.monotonic()
        _, error = bench.communicate(timeout=30)
        self.assertLess(time.monotonic() - start, 1.5)
        self.assertEqual(bench.returncode, ERROR)
        self.assertIn("server-0.0.sock", error.decode())
        self.processes[0].wait(10)  # While it ends, its socket may still be there.
        self.assert_error(self.ctl("get", "key"), "no server answers")

    def test_clients_killed_at_any_moment_leave_the_server_unharmed(self):
        self.up()
        for i in range(12):
            bench = subprocess.Popen(
                [cluster.binary("tools/cell_bench"), "--cluster", str(self.directory), "--keys", "5000", "--seconds", "60", "--workload",
                 ("mixed", "ycsb-a", "scan")[i % 3], "--threads", "2"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(0.1 + 0.07 * i)
            bench.kill()
            bench.wait()
        self.assertIn(b"no errors", self.ctl("check").stdout)
        for _ in range(50):  # The server notices when it next looks at its sockets.
            status = json.loads(self.ctl("-o", "json", "status").stdout)
            if status["connections"] == 1:
                break
            time.sleep(0.1)
        self.assertEqual(status["connections"], 1)
        maps = Path(f"/proc/{self.processes[0].pid}/maps").read_text()
        self.assertLessEqual(maps.count("cell-rings"), 2, "rings of dead clients are still mapped")

    def test_a_full_store_says_so_and_keeps_what_it_has(self):
        self.processes = cluster.up(self.directory, meganode_bytes=1 << 20, extents_bytes=1 << 20, regions_max=3)
        lines = "".join(f"key{i:05}\t{'v' * 1000}\n" for i in range(5000))
        full = self.ctl("load", "-", input=lines.encode())
        self.assertEqual(full.returncode, ERROR)
        self.assertIn(b"--extents-bytes", full.stderr)
        stored = self.ctl("scan", "--keys-only").stdout.split()
        self.assertGreater(len(stored), 1000)
        self.assertIn(b"no errors", self.ctl("check").stdout)

    def test_sigterm_ends_a_server_cleanly(self):
        self.up()
        self.processes[0].send_signal(signal.SIGTERM)
        self.assertEqual(self.processes[0].wait(5), 0)
        self.assertFalse((self.directory / "server-0.0.sock").exists())

    def test_down_ends_exactly_what_up_started(self):
        self.up(servers=2)
        bystander = subprocess.Popen(["sleep", "60"])
        try:
            file = self.directory / "processes.json"
            # This process has a reused id, as its start time shows.
            listed = json.loads(file.read_text()) + [{"pid": bystander.pid, "start_time": 1}]
            file.write_text(json.dumps(listed))
            self.assertEqual(cluster_down.down(self.directory), (2, []))
            self.assertIsNone(bystander.poll())
            self.assertTrue(all(p.wait(5) == 0 for p in self.processes))
            self.assertEqual(cluster_down.down(self.directory), (0, []))
        finally:
            bystander.kill()
            bystander.wait()

    def test_directories_that_are_missing_in_use_or_anothers(self):
        self.assert_error(self.ctl("get", "key"), "no cluster in")
        self.up()
        with self.assertRaisesRegex(cluster.ClusterError, "already"):
            cluster.up(self.directory)
        second = subprocess.run([cluster.binary("cell/cmd/cell_server"), "--dir", str(self.directory)], stderr=subprocess.PIPE,
                                stdout=subprocess.DEVNULL, timeout=20, check=False)
        self.assertEqual(second.returncode, ERROR)
        self.assertIn(b"already runs", second.stderr)
        self.assertEqual(self.ctl("put", "still", "here").returncode, 0)
        file = self.directory / "cluster.json"
        good = file.read_text()
        file.write_text(good.replace('"format": 2', '"format": 9'))
        self.assert_error(self.ctl("get", "key"), "format 9")
        file.write_text(good[:50])
        self.assert_error(self.ctl("get", "key"), "damaged")
        file.write_text(good)


if __name__ == "__main__":
    unittest.main()
