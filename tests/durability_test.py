"""Tests durable clusters of real processes that are killed, stopped and restarted with all keys, and what is refused.
"""

import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from tools import cluster, cluster_directory, cluster_down

SMALL = {"meganode_bytes": 2 << 20, "extents_bytes": 4 << 20, "regions_max": 64}
KEYS = 60_000


class Durable(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="cell-durable-")
        self.directory = Path(self.temporary.name)
        self.servers = []

    def tearDown(self):
        if os.environ.get("CELL_SHOW_LOGS"):
            for log in sorted(self.directory.glob("server-*.log")):
                print(log.read_text())
        for process in self.servers:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        cluster.end(self.servers)
        if (self.directory / "processes.json").exists():
            cluster_down.down(self.directory)
        self.temporary.cleanup()

    def up(self, servers=3, durability="sync", **options):
        self.options = {**SMALL, "servers": servers, "durability": durability, **options}
        self.servers = cluster.up(self.directory, **self.options)

    def up_again(self):
        cluster_down.down(self.directory)
        for process in self.servers:
            process.wait(30)
        self.servers = cluster.up(self.directory, **self.options)

    def ctl(self, *arguments, **options):
        return subprocess.run([cluster.binary("tools/cellctl"), "--cluster", cluster_directory.address_of(self.directory), *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, text=True, timeout=90,
                              env=cluster.environment(self.directory), **options)

    def done(self, *arguments, **options):
        result = self.ctl(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def load(self):
        lines = sorted(f"key{i * 7919 % 1000003:07}\t{i} {'v' * 100}" for i in range(KEYS))
        self.done("load", "-", input="\n".join(lines) + "\n")
        return "\n".join(lines) + "\n"

    def owners(self):
        """Returns how many regions each server has, by the cluster's table, and the owner of the root."""
        table = json.loads((self.directory / "regions.json").read_text())
        owners = {}
        for region in table["regions"]:
            owners[region["server"]] = owners.get(region["server"], 0) + 1
        return owners, next(r["server"] for r in table["regions"] if r["region"] == table["root"])

    def kill(self, server):
        self.servers[int(server[7:])].send_signal(signal.SIGKILL)
        self.servers[int(server[7:])].wait()

    def log_bytes(self):
        return sum(f.stat().st_size for f in (self.directory / "log").rglob("*.log"))

    def test_killed_and_taken_over_sync(self):
        self.killed_and_taken_over("sync")

    def test_killed_and_taken_over_async(self):
        self.killed_and_taken_over("async")

    def killed_and_taken_over(self, durability):
        self.up(durability=durability)
        loaded = self.load()
        owners, root = self.owners()
        self.assertGreater(sum(owners.values()), 3)
        time.sleep(0.1)  # async: it has been on disk since 10 ms after the last key.
        self.kill(root)
        self.assertEqual(self.done("scan", "--timeout", "20"), loaded)
        owners, _ = self.owners()
        self.assertNotIn(root, owners)
        self.done("put", "key", "after the takeover")
        # The server comes back, empty, and the cluster is sound.
        self.servers[int(root[7:])] = cluster.start_server(self.directory, root, [])
        cluster_directory.write_processes(self.directory, self.servers)
        loaded = "key\tafter the takeover\n" + loaded
        self.assertEqual(self.done("scan"), loaded)
        self.assertIn("no errors", self.done("check"))
        # All of it is also there after the whole cluster has ended, on every path.
        self.up_again()
        for path in ("server", "client", "hybrid"):
            self.assertEqual(self.done("scan", "--path", path, "--timeout", "20"), loaded)
        self.assertIn("no errors", self.done("check"))

    def test_servers_that_had_nothing_take_their_share(self):
        self.up(server_flags=["--no-balance"])
        loaded = self.load()
        owners, root = self.owners()
        self.assertEqual(list(owners), [root])
        self.kill(root)
        self.assertEqual(self.done("scan", "--timeout", "20"), loaded)
        owners, _ = self.owners()
        self.assertEqual(len(owners), 2)

    def test_one_server_killed_at_once_after_its_last_answer(self):
        self.up(servers=1)
        for i in range(20):
            self.done("put", f"k{i}", f"v{i}")
            self.kill("server-0")
            self.servers = [cluster.start_server(self.directory, "server-0", [])]
            cluster_directory.write_processes(self.directory, self.servers)
            deadline = time.monotonic() + 20
            while self.ctl("get", f"k{i}").returncode != 0 and time.monotonic() < deadline:
                time.sleep(0.02)
            self.assertEqual(self.done("get", f"k{i}").strip(), f"v{i}")
        self.assertEqual(self.done("scan").count("\n"), 20)

    def wait_until_quiet(self):
        """Waits until no region splits or migrates. One that goes to a server that has written its checkpoints would be
        missed."""
        deadline, last = time.monotonic() + 60, None
        while True:
            regions = [json.loads(line) for line in self.done("-o", "json", "regions").splitlines()]
            now = sorted((r["server"], r["region"], r["epoch"]) for r in regions)
            if now == last and not any(r["busy"] for r in regions):
                return
            self.assertLess(time.monotonic(), deadline, "regions go on splitting and moving")
            last = now
            time.sleep(0.5)

    def test_checkpoints_keep_logs_short(self):
        self.up(servers=2)
        loaded = self.load()
        before = self.log_bytes()
        self.wait_until_quiet()
        self.assertIn("checkpoints of ", self.done("checkpoint"))
        self.assertLess(self.log_bytes(), before / 100)
        self.done("put", "key", "after the checkpoint")
        self.up_again()
        self.assertEqual(self.done("scan", "--timeout", "20"), "key\tafter the checkpoint\n" + loaded)
        self.assertIn('"durability":"sync"', self.done("-o", "json", "status").replace(" ", ""))

    def test_backup_and_restore(self):
        self.up(servers=2)
        loaded = self.load()
        with tempfile.TemporaryDirectory(prefix="cell-backup-") as backup:
            for _ in range(10):  # A region that moves, because the servers have not balanced what was loaded, ends a backup.
                result = self.ctl("backup", backup)
                if "SnapshotTooOld" not in result.stderr:
                    break
            self.assertIn(f"{KEYS} pairs are backed up", result.stdout, result.stderr)
            self.assertIn("there is already a backup", self.ctl("backup", backup).stderr)
            self.assertIn("already has keys", self.ctl("restore", backup).stderr)
            self.tearDown()
            self.setUp()
            self.up(servers=1, node_bytes=512, durability="async")  # This cluster has another shape.
            file = Path(backup) / "backup"
            whole = file.read_bytes()
            for damaged in (whole[:-1], whole + b"?", whole[:3_000_000] + b"?" + whole[3_000_001:]):
                file.write_bytes(damaged)
                refused = self.ctl("restore", backup)
                self.assertEqual(refused.returncode, 2)
                self.assertIn(f"{file} is damaged at offset", refused.stderr)
                self.assertEqual(self.done("scan"), "")  # Nothing of it was put.
            file.write_bytes(whole)
            self.assertIn(f"{KEYS} pairs were restored", self.done("restore", backup))
            self.assertEqual(self.done("scan"), loaded)
            self.assertIn("there is no backup", self.ctl("restore", str(self.directory)).stderr)

    def test_stopped_and_taken_over(self):
        self.up(durability="sync", zookeeper="start")
        loaded = self.load()
        root = next(line.split()[0] for line in self.done("regions").splitlines()[1:] if line.split()[4] == "1")
        stopped = self.servers[int(root[7:])]
        stopped.send_signal(signal.SIGSTOP)
        self.assertEqual(self.done("scan", "--timeout", "60"), loaded)
        self.done("put", "key", "after the takeover", "--timeout", "60")
        stopped.send_signal(signal.SIGCONT)
        loaded = "key\tafter the takeover\n" + loaded
        deadline = time.monotonic() + 30
        while "this worker no longer owns it" not in (self.directory / f"{root}.log").read_text():
            self.assertLess(time.monotonic(), deadline, (self.directory / f"{root}.log").read_text())
            time.sleep(0.1)
        for path in ("server", "client"):
            self.assertEqual(self.done("scan", "--path", path, "--timeout", "20"), loaded)
        self.assertIn("no errors", self.done("check"))

    def test_what_is_refused(self):
        self.up(servers=1)
        self.load()
        cluster_down.down(self.directory)
        for process in self.servers:
            process.wait()
        for change, part in (({"workers": 2}, "workers"), ({"durability": "none"}, "durability"),
                             ({"node_bytes": 512}, "node_bytes")):
            with self.assertRaises(cluster.ClusterError) as raised:
                cluster.up(self.directory, **{**self.options, **change})
            self.assertIn(part, str(raised.exception))
            self.assertIn("//tools:wipe", str(raised.exception))
        # Damage in the middle of a log: the region is not served, and the server's log says where and what to do.
        log = max((self.directory / "log" / "region-1").glob("*.log"), key=lambda f: f.stat().st_size)
        bytes_before = log.read_bytes()
        log.write_bytes(bytes_before[:5000] + bytes([bytes_before[5000] ^ 1]) + bytes_before[5001:])
        flags = ["--dir", str(self.directory), "--name", "server-0"]
        with open(self.directory / "server-0.log", "ab") as out:
            self.servers = [subprocess.Popen([cluster.binary("cell/cmd/cell_server"), *flags], stdout=out, stderr=out)]
        deadline = time.monotonic() + 30
        while "is damaged at offset" not in (self.directory / "server-0.log").read_text():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)
        self.assertIn(str(log), (self.directory / "server-0.log").read_text())
        self.servers[0].terminate()
        self.servers[0].wait()
        log.write_bytes(bytes_before)  # Restore the copy.
        self.servers = cluster.up(self.directory, **self.options)
        self.assertEqual(self.done("scan", "--timeout", "20").count("\n"), KEYS)


if __name__ == "__main__":
    unittest.main()
