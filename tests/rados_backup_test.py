"""Tests backups in a pool of Ceph RADOS, with a real Ceph: a backup is there as a whole or not at all, and what is wrong with it or
with its place is said in seconds."""

import signal
import subprocess
import time
import unittest

from tests.rados_case import RadosCase
from tools import cluster, cluster_directory


class RadosBackup(RadosCase):
    def backup_fails(self, said, command, place, *arguments, seconds=40):
        began = time.monotonic()
        result = self.ctl(command, place, *arguments)
        self.assertLess(time.monotonic() - began, seconds)
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertRegex(result.stderr, said)

    def backup_objects(self):
        return sorted(name for name in self.objects() if name.startswith("backup"))

    def up_with_large_values(self, **options):
        self.up(servers=1, durability="async", **options)
        lines = "".join(f"key{i:06}\t{str(i) * (4000 // len(str(i)))}\n" for i in range(2500))
        self.done("load", "-", input=lines)
        return lines

    def test_a_backup_in_the_pool(self):
        loaded = self.up_with_large_values()
        night, key = f"rados:cell/night@{self.ceph.conf}", f"{self.temporary.name}/backup.key"
        self.assertIn(f"2500 pairs are backed up in {night}", self.done("backup", night))
        objects = self.backup_objects()
        self.assertEqual((objects[0], len(objects)), ("backup-night", 4))
        self.backup_fails("there is already a backup in", "backup", night)
        self.backup_fails("there is no backup in", "restore", self.place)
        self.done("data-key", "new", key)
        self.done("backup", self.place, "--key", key)
        self.backup_fails("is encrypted with key", "restore", "--merge", self.place)
        self.done("delete-range", "--yes")
        self.assertIn("2500 pairs were restored", self.done("restore", night))
        self.assertEqual(self.done("scan"), loaded)
        self.assertIn("2500 pairs were restored", self.done("restore", "--merge", "--key", key, self.place))
        self.assertEqual(self.done("scan"), loaded)
        # Somebody uses the command `rados` on the objects.
        for damage, said in ((("truncate", objects[2], "1000"), f"its object {objects[2]} has 1000 bytes instead of"),
                             (("rm", objects[2]), f"its object {objects[2]} is missing"),
                             (("rmomapkey", "backup-night", "attempt"), 'its object backup-night has no entry "attempt"'),
                             (("rmxattr", "backup-night", "epoch"), "object backup-night: it is damaged"),
                             (("rm", "backup-night"), "there is no backup in")):
            self.rados(*damage)
            self.backup_fails(said, "restore", "--merge", night)
        self.assertIn("is removed", self.done("backup-remove", night))
        self.assertEqual([name for name in self.backup_objects() if "night" in name], [])
        self.assertIn("2500 pairs were restored", self.done("restore", "--merge", "--key", key, self.place))
        self.done("backup-remove", self.place)
        self.backup_fails("there is no backup in", "backup-remove", self.place)

    def test_a_backup_that_is_killed_is_none(self):
        self.up_with_large_values()
        for _ in range(20):
            running = subprocess.Popen([cluster.binary("tools/cellctl"), "--cluster", cluster_directory.address_of(self.directory), "backup", self.place],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=cluster.environment(self.directory))
            while len(self.backup_objects()) < 2 and running.poll() is None:
                pass
            running.kill()
            if running.wait() < 0 and self.ctl("restore", "--merge", self.place).returncode != 0:
                break
            self.done("backup-remove", self.place)
        self.assertGreaterEqual(len(self.backup_objects()), 2)
        self.backup_fails("there is no backup in .* but one that is unfinished", "restore", "--merge", self.place)
        self.done("backup", self.place)
        self.assertEqual(len(self.backup_objects()), 4)  # Nothing is left of the first.
        self.done("restore", "--merge", self.place)
        self.done("backup-remove", self.place)

    def test_what_is_wrong_with_a_place_for_backups_is_said(self):
        self.up_with_large_values(log_store=f"dir:{self.directory}/log")
        self.backup_fails("has no pool other", "backup", f"rados:other@{self.ceph.conf}")
        for configuration, said in self.wrong_configurations():
            self.backup_fails(said, "backup", f"rados:cell{configuration}")
        self.done("backup", f"rados:cell/whole@{self.ceph.conf}")
        with self.full_pool():
            deadline = time.monotonic() + 60
            while self.ctl("backup", self.place).returncode == 0 and time.monotonic() < deadline:  # The OSDs notice it after some seconds.
                self.done("backup-remove", self.place)
            self.backup_fails("the pool is full", "backup", self.place)
            self.backup_fails("there is no backup in", "restore", self.place)
            self.done("restore", "--merge", f"rados:cell/whole@{self.ceph.conf}")
        self.assertEqual(len(self.backup_objects()), 4)  # Of `whole`.
        osds = [process for name, process in self.ceph.processes.items() if name.startswith("osd.")]
        for process in osds:
            process.send_signal(signal.SIGSTOP)
        try:
            for command in ("backup", "restore", "backup-remove"):
                self.backup_fails("Ceph did not answer for 15 s", command, f"rados:cell/whole@{self.ceph.conf}", *(["--merge"] if command == "restore" else []))
        finally:
            for process in osds:
                process.send_signal(signal.SIGCONT)
        self.ceph.wait_until_active()
        self.done("backup-remove", f"rados:cell/whole@{self.ceph.conf}")


if __name__ == "__main__":
    unittest.main()
