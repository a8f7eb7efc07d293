"""A stranger reads nothing of a cluster's files, and has no program of ours write, delete or kill anything by what he puts
into directories first.
"""

import os
import shutil
import stat
import subprocess
import unittest
from pathlib import Path

from tests.attacks import stranger
from tools import cluster, cluster_directory, cluster_down, private_directory

SMALL = {"meganode_bytes": 2 << 20, "extents_bytes": 8 << 20, "regions_max": 16}


def run(program, *arguments, **options):
    return subprocess.run([cluster.binary(program), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=100, check=False, **options)


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


class Rules(unittest.TestCase):
    """The decisions, which need no other user."""

    ME, OTHER = {0, 1000}, 1001

    def test_of_the_directory_itself(self):
        for owner, bits, fine in ((1000, 0o700, True), (1000, 0o755, True), (0, 0o755, True), (1000, 0o775, False), (1000, 0o757, False),
                                  (0, 0o1777, False), (self.OTHER, 0o700, False)):
            with self.subTest(owner=owner, mode=oct(bits)):
                self.assertEqual(private_directory.own_refused("/d", owner, stat.S_IFDIR | bits, self.ME) is None, fine)
        self.assertIn("is not a directory", private_directory.own_refused("/d", 0, stat.S_IFREG, self.ME))
        self.assertIn("chmod 700 '/d d'", private_directory.own_refused("/d d", 1000, stat.S_IFDIR | 0o777, self.ME))

    def test_of_the_directories_above(self):
        for owner, bits, fine in ((0, 0o1777, True), (0, 0o777, False), (1000, 0o775, True), (1000, 0o777, False), (self.OTHER, 0o755, False)):
            with self.subTest(owner=owner, mode=oct(bits)):
                self.assertEqual(private_directory.above_refused("/d", owner, stat.S_IFDIR | bits, self.ME) is None, fine)

    def test_of_links(self):
        self.assertIsNone(private_directory.link_refused("/l", 0, self.ME))
        self.assertIn("is a symbolic link of user 1001", private_directory.link_refused("/l", self.OTHER, self.ME))


class Directories(unittest.TestCase):
    def setUp(self):
        self.parent = stranger.open_parent("cell-attack-")
        self.directory = self.parent / "cell"
        self.processes = []

    def tearDown(self):
        cluster.end(self.processes)
        if self.directory.exists() and not self.directory.is_symlink() and (self.directory / "up.json").exists():
            os.chown(self.directory, os.geteuid(), os.getegid())
            self.directory.chmod(0o700)
            cluster_down.down(self.directory)
        shutil.rmtree(self.parent, ignore_errors=True)

    def as_stranger(self, call):
        answer = stranger.run(call)
        self.assertIsNone(answer.error)
        return answer.value

    def check_refused(self, says, *more):
        for program in ("tools/up", "tools/down", *more):
            with self.subTest(program):
                refused = run(program, "--dir", self.directory)
                self.assertEqual(refused.returncode, 2, refused)
                self.assertIn(says, refused.stderr)

    def everything(self):
        return [self.directory, *self.directory.rglob("*")]

    def test_everything_is_this_users_alone(self):
        self.processes = cluster.up(self.directory / "deep" / "er", servers=2, durability="sync", **SMALL)
        self.assertEqual(run("tools/cellctl", "--cluster", self.directory / "deep" / "er", "put", "key", "secret").returncode, 0)
        backup = self.directory / "backup"
        self.assertEqual(run("tools/cellctl", "--cluster", self.directory / "deep" / "er", "backup", backup).returncode, 0)
        self.assertEqual(run("tools/cellctl", "--cluster", self.directory / "deep" / "er", "checkpoint").returncode, 0)
        cluster.end(self.processes)
        self.processes = cluster.up(self.directory / "deep" / "er")  # Files that are written again.
        for path in self.everything():
            if not stat.S_ISSOCK(path.lstat().st_mode):
                self.assertEqual(mode(path) & 0o077, 0, f"{path} has mode {mode(path):o}")
        names = {path.name for path in self.everything()}
        self.assertLessEqual({"up.json", "cluster.json", "regions.json", "processes.json", "address", "server-0.log", "server-0.lock",
                              "server-0.control", "log", "region-1", "backup"}, names)
        self.assertTrue(any(name.endswith(".ckpt") or "checkpoint" in name for name in names) or len(names) > 15, names)
        cluster.end(self.processes)

    def test_a_stranger_reads_nothing(self):
        stranger.skip_unless_root(self)
        self.processes = cluster.up(self.directory, durability="sync", **SMALL)
        self.assertEqual(run("tools/cellctl", "--cluster", self.directory, "put", "key", "secret").returncode, 0)
        paths = [str(path) for path in self.everything()]

        def open_all():
            opened = []
            for path in paths:
                for way in (os.O_RDONLY, os.O_WRONLY | os.O_NONBLOCK):
                    try:
                        os.close(os.open(path, way))
                        opened.append(path)
                    except (PermissionError, IsADirectoryError):
                        pass
            return opened

        self.assertGreater(len(paths), 10)
        self.assertEqual(self.as_stranger(open_all), [])
        self.directory.chmod(0o755)  # Also where an administrator lets others into the directory.
        self.assertEqual([path for path in self.as_stranger(open_all) if path != str(self.directory)], [])

    def test_a_directory_that_a_stranger_has_made_first_is_refused(self):
        stranger.skip_unless_root(self)
        victim = self.parent / "victim"
        victim.write_text("whole")
        victim.chmod(0o600)
        bystander = subprocess.Popen(["sleep", "100"])
        self.addCleanup(bystander.wait)
        self.addCleanup(bystander.kill)
        listed = f'[{{"pid": {bystander.pid}, "start_time": {cluster_directory.start_time(bystander.pid)}, "helper": false}}]'

        def make():
            os.mkdir(self.directory)
            for name in ("server-0.log", "up.json.new", "server-0.lock", "server-0.control.new"):
                os.symlink(victim, self.directory / name)
            (self.directory / "up.json").write_text("{}")
            (self.directory / "processes.json").write_text(listed)

        self.as_stranger(make)
        before = sorted(os.listdir(self.directory))
        self.check_refused("belongs to user 65534", "tools/wipe")
        by_hand = run("cell/cmd/cell_server", "--dir", self.directory, "--cluster", "zk://127.0.0.1:1/none", "--insecure", "--log-file",
                      self.directory / "server-0.log")
        self.assertEqual(by_hand.returncode, 2)
        self.assertIn("belongs to user 65534", by_hand.stderr)
        self.assertEqual(victim.read_text(), "whole")
        self.assertEqual(sorted(os.listdir(self.directory)), before)
        self.assertIsNone(bystander.poll())

    def test_a_link_of_a_stranger_is_not_followed(self):
        stranger.skip_unless_root(self)
        own = self.parent / "own"
        own.mkdir(mode=0o700)
        self.as_stranger(lambda: os.symlink(own, self.directory))
        self.check_refused("is a symbolic link of user 65534")
        self.directory = self.parent / "cell" / "below"
        self.check_refused("is a symbolic link of user 65534")
        self.assertEqual(list(own.iterdir()), [])

    def test_a_directory_in_a_strangers_is_refused(self):
        stranger.skip_unless_root(self)
        self.as_stranger(lambda: os.mkdir(self.directory))
        self.directory = self.directory / "cell"
        refused = run("tools/up", "--dir", self.directory)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("belongs to user 65534, who could replace what is in it", refused.stderr)
        self.assertFalse(self.directory.exists())

    def test_what_a_stranger_could_write_to_is_refused_and_what_he_has_left_there_too(self):
        self.directory.mkdir()
        self.directory.chmod(0o777)
        self.check_refused(f"chmod 700 {self.directory}")
        stranger.skip_unless_root(self)
        victim = self.parent / "victim"
        self.as_stranger(lambda: os.symlink(victim, self.directory / "server-0.log"))
        self.directory.chmod(0o700)
        with self.assertRaisesRegex(cluster_directory.ClusterError, "not empty"):
            cluster.up(self.directory, **SMALL)
        (self.directory / "server-0.log").unlink()
        self.processes = cluster.up(self.directory, durability="async", **SMALL)
        cluster_down.down(self.directory)
        self.directory.chmod(0o777)
        (self.directory / "server-0.log").unlink()
        self.as_stranger(lambda: os.symlink(victim, self.directory / "server-0.log"))
        self.directory.chmod(0o700)
        with self.assertRaisesRegex(cluster_directory.ClusterError, "server-0.log belongs to user 65534"):
            cluster.up(self.directory)
        self.assertFalse(victim.exists())

    def test_no_link_in_the_directory_is_followed(self):
        """Also none of this user's, whoever has talked him into it."""
        self.processes = cluster.up(self.directory, durability="async", **SMALL)
        cluster_down.down(self.directory)
        victim = self.parent / "victim"
        for name in ("up.json.new", "processes.json.new", "server-0.control.new", "regions.json.new"):
            (self.directory / name).unlink(missing_ok=True)
            (self.directory / name).symlink_to(victim)
        self.processes = cluster.up(self.directory)
        cluster_down.down(self.directory)
        self.assertFalse(victim.exists())
        for name in ("server-0.log", "server-0.lock"):
            kept = self.directory / "kept"
            (self.directory / name).rename(kept)
            (self.directory / name).symlink_to(victim)
            with self.subTest(name), self.assertRaises(cluster_directory.ClusterError):
                self.processes = cluster.up(self.directory)
            (self.directory / name).unlink(missing_ok=True)
            kept.rename(self.directory / name)
            self.assertFalse(victim.exists())

    def test_the_directory_of_an_earlier_release_is_closed_and_that_is_said(self):
        self.processes = cluster.up(self.directory, durability="async", **SMALL)
        cluster_down.down(self.directory)
        for path in self.everything():
            path.chmod(0o755 if path.is_dir() else 0o644)
        for path in self.directory.glob("*.lock"):
            path.chmod(0o600)  # As earlier releases made them.
        again = run("tools/up", "--dir", self.directory, "--detach")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn(f"note: other users could read {self.directory}; now it is yours alone (mode 700)\n", again.stderr)
        for path in (self.directory, self.directory / "log"):
            self.assertEqual(mode(path), 0o700, path)
        self.assertEqual(mode(self.directory / "server-0.log"), 0o600)
        self.assertEqual(run("tools/up", "--dir", self.directory, "--servers", "2", "--detach").stderr.count("note: other users"), 0)

    def test_the_default_is_a_directory_of_this_user(self):
        for program in ("tools/up", "tools/down"):
            self.assertIn(f"/tmp/cell-{os.getuid()}", run(program, "--help").stdout.replace("\n", ""))


if __name__ == "__main__":
    unittest.main()
