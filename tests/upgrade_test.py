"""Tests that what an older release kept is still readable: its backups and its clusters with logs.

old/layout-1 was made by the last release with layout version 1, whose pairs were all outside of the leaves: `up
--durability sync`, `cellctl load` of PAIRS, `cellctl backup`, `down`.
"""

import shutil
import unittest
from pathlib import Path

from tests.cellctl_case import CellctlCase
from tools import cluster

OLD = Path(__file__).parent / "old/layout-1"
PAIRS = "".join(f"key{i:02}\t{'v' * (10 * i)}\n" for i in range(30))  # Of both sides of --inline-max.


class Upgrade(CellctlCase):
    def test_a_backup_of_layout_1_is_restored(self):
        for inline_max in (0, 128):
            self.up_empty(server_flags=["--inline-max", str(inline_max)])
            self.assertIn(b"30 pairs were restored", self.done("restore", str(OLD)))
            self.assertEqual(self.done("scan").decode(), PAIRS)
            self.done("check")

    def test_a_cluster_of_layout_1_comes_up_with_its_keys(self):
        shutil.copytree(OLD / "cluster", self.directory, copy_function=shutil.copyfile)
        self.servers = cluster.up(self.directory)
        self.assertEqual(self.done("scan").decode(), PAIRS)
        self.done("check")
        self.done("put", "key00", "new")
        cluster.end(self.servers)
        self.servers = cluster.up(self.directory)
        self.assertEqual(self.done("scan").decode(), PAIRS.replace("key00\t\n", "key00\tnew\n"))


if __name__ == "__main__":
    unittest.main()
