"""Tests backups that users make with cellctl: a backup, and what is restored from it, is right or an error."""

import json
import os
import signal
import subprocess
import time
import unittest
from pathlib import Path

from tests.cellctl_case import CellctlCase
from tools import cluster


class CellctlBackup(CellctlCase):
    def test_the_help_says_what_a_place_is(self):
        for command in ("backup", "restore", "backup-remove"):
            self.assertRegex(self.done(command, "--help").decode(), "place .*The backup: a directory")

    def test_a_backup_of_a_cluster_whose_server_is_dead_fails(self):
        self.up(servers=2)
        lines = "".join(f"key{i:06}\t{'v' * 200}\n" for i in range(30_000))
        self.done("load", "-", input=lines.encode())
        self.done("rebalance")  # On a busy machine the load may have ended before a region was migrated.
        regions = [json.loads(line) for line in self.done("-o", "json", "regions").splitlines()]
        # Kill the server that does not hold the root, so that a client can still search as far as its keys.
        root = json.loads((self.directory / "regions.json").read_text())["root"]
        other = next(s for s in ("server-0", "server-1") if s != next(r["server"] for r in regions if r["region"] == root))
        self.assertTrue(any(r["server"] == other and r["tier"] == 0 for r in regions), regions)
        self.servers[int(other[7:])].kill()
        self.servers[int(other[7:])].wait()
        lines = self.refused("no backup was made", "--timeout", "2", "backup", str(self.backup_directory()))
        self.assertEqual(len(lines), 1)
        self.assertEqual(os.listdir(self.backup_directory()), [])

    def test_a_backup_while_a_server_is_killed_is_right_or_none(self):
        self.up(servers=3, durability="sync", regions_max=64)
        values = self.load_large()
        for victim, flags in ((1, []), (2, ["--no-snapshot"])):
            backup = Path(self.temporary.name) / f"backup-{victim}"
            running = subprocess.Popen(self.command("--path", "server", "--timeout", "20", "backup", *flags, str(backup)),
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            while not (backup / "backup.unfinished").exists() and running.poll() is None:
                time.sleep(0.001)
            self.servers[victim].kill()
            out, error = running.communicate(timeout=60)
            if running.returncode != 0:
                self.assertEqual(os.listdir(backup), [], error)
                continue
            self.assertIn(f"{len(values)} pairs".encode(), out)
            self.assertEqual(b"They are of different moments" in out, flags != [])
            kept = self.directory, self.servers
            self.servers = []
            try:
                self.directory = Path(self.temporary.name) / f"restored-{victim}"
                self.up()
                self.done("restore", str(backup))
                self.assertEqual(self.done("scan").decode(), "".join(f"{k}\t{v}\n" for k, v in values.items()))
                cluster.end(self.servers)
            finally:
                self.directory, self.servers = kept[0], kept[1] + self.servers

    def test_a_backup_that_a_signal_ends_leaves_no_file(self):
        self.up()
        self.load_large()
        for ends in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            for attempt in range(50):
                backup = Path(self.temporary.name) / f"backup-{ends}-{attempt}"
                running = subprocess.Popen(self.command("backup", str(backup)), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                while not (backup / "backup.unfinished").exists() and running.poll() is None:
                    pass
                running.send_signal(signal.SIGSTOP)  # It cannot finish meanwhile.
                os.waitid(os.P_PID, running.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
                stopped = (backup / "backup.unfinished").exists()
                running.send_signal(ends)
                running.send_signal(signal.SIGCONT)
                running.communicate(timeout=60)
                if stopped:
                    break
            self.assertTrue(stopped)
            self.assertEqual((running.returncode, os.listdir(backup)), (-ends, []))

    def test_a_restore_is_whole_or_an_error(self):
        self.up(node_bytes=1024)
        values = self.load_large(300)
        self.done("put", "k" * 200, "v")
        backup = str(self.backup_directory())
        self.done("backup", backup)
        self.up_empty(node_bytes=512)
        self.refused("a key of 200 bytes", "restore", backup)
        self.assertEqual(self.done("scan"), b"")  # Nothing of it was put.
        self.up_empty(extents_bytes=1 << 20, regions_max=2)  # Too small.
        lines = self.refused(f"of {len(values) + 1} pairs were restored before", "restore", backup)
        self.assertIn("--extents-bytes", lines[-1])
        file = self.backup_directory() / "backup"
        whole = file.read_bytes()
        self.up_empty()
        file.write_bytes(whole[:100_000] + whole[200_000:])
        self.refused("is damaged at offset", "restore", backup)
        self.assertEqual(self.done("scan"), b"")


if __name__ == "__main__":
    unittest.main()
