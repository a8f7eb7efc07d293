"""What somebody learns who has a cluster's logs or its backup, but not its keys: nothing of keys and values."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from tools import cluster, cluster_down

SMALL = {"meganode_bytes": 1 << 20, "extents_bytes": 4 << 20, "regions_max": 64}
PAIRS = {f"customer-{i:05}": f"confidential-{i} " + "v" * 100 for i in range(4000)}


class AtRest(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="cell-rest-")
        self.addCleanup(self.temporary.cleanup)
        self.base = Path(self.temporary.name)
        self.directory = self.base / "cell"
        self.key = self.base / "key"
        self.ctl("data-key", "new", self.key)
        self.assertEqual(self.key.stat().st_mode & 0o777, 0o600)
        self.servers = []
        self.addCleanup(lambda: cluster.end(self.servers))

    def ctl(self, *arguments, check=True, **options):
        done = subprocess.run([cluster.binary("tools/cellctl"), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=False, timeout=90, **options)
        self.assertTrue(not check or done.returncode == 0, done.stderr)
        return done

    def ours(self, *arguments, **options):
        return self.ctl("--cluster", self.directory, *arguments, **options)

    def up(self, *flags, servers=2, **options):
        self.servers = cluster.up(self.directory, servers=servers, durability="sync", server_flags=list(flags), **SMALL, **options)

    def down(self):
        cluster_down.down(self.directory)
        for process in self.servers:
            process.wait(30)
        self.servers = []

    def load(self):
        self.ours("load", "-", input="".join(f"{key}\t{value}\n" for key, value in PAIRS.items()))

    def all_there(self):
        self.assertEqual(self.ours("scan").stdout, "".join(f"{key}\t{value}\n" for key, value in sorted(PAIRS.items())))

    @staticmethod
    def shows(path):
        """Returns whether a file, or one in a directory, has a key or a value in plain."""
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        assert files, path
        return any(word in file.read_bytes() for file in files for word in (b"customer-", b"confidential", b"vvvvvvvv"))

    def fails_to_start(self, *flags):
        before = self.log_files()
        with self.assertRaises(cluster.ClusterError):
            self.up(*flags, wait_seconds=5)
        for process in self.servers:
            process.wait(30)
        said = "".join((self.directory / f"server-{i}.log").read_text() for i in range(2))
        self.assertLessEqual(before.keys() - {name for name in before if name.endswith(".fence")}, self.log_files().keys())
        return said

    def log_files(self):
        return {str(file): file.stat().st_size for file in (self.directory / "log").rglob("*") if file.is_file()}

    def test_logs(self):
        self.up("--log-key", str(self.key))
        self.load()
        self.ours("checkpoint")
        self.ours("put", "customer-00001", "confidential, changed")
        changed = {**PAIRS, "customer-00001": "confidential, changed"}
        self.assertFalse(self.shows(self.directory / "log"))
        # Another server takes over what was encrypted, and a restart reads it.
        self.servers[0].send_signal(signal.SIGKILL)
        self.servers[0].wait()
        self.assertEqual(self.ours("--timeout", "60", "scan").stdout, "".join(f"{k}\t{v}\n" for k, v in sorted(changed.items())))
        self.down()
        # Keys are replaced. Nothing needs the old one after a checkpoint.
        old = self.base / "old-key"
        shutil.copy(self.key, old)
        self.up("--log-key", str(self.key))
        self.ctl("data-key", "rotate", self.key)
        self.assertEqual(len(self.ctl("data-key", "show", self.key).stdout.splitlines()), 2)
        # The old one is kept as long as a log needs it, and by an operator who has not looked.
        logs = self.directory / "log"
        old_id = self.ctl("data-key", "show", old).stdout.split()[0]
        self.assertIn("give --logs DIR", self.ctl("data-key", "retire", self.key, check=False).stderr)
        self.assertIn(f"files need key {old_id}", self.ctl("data-key", "retire", self.key, "--logs", logs, check=False).stderr)
        self.assertIn("there are no logs in", self.ctl("data-key", "retire", self.key, "--logs", self.directory, check=False).stderr)
        self.assertEqual(len(self.ctl("data-key", "show", self.key).stdout.splitlines()), 2)
        self.ours("checkpoint")
        new, before = self.ctl("data-key", "show", self.key, "--logs", logs).stdout.splitlines()
        self.assertRegex(new, "^[0-9a-f]{16}  encrypts  [1-9][0-9]* files$")
        self.assertEqual(before, f"{old_id}  0 files")
        self.ctl("data-key", "retire", self.key, "--logs", logs)
        self.assertRegex(self.ctl("data-key", "show", old, "--logs", logs).stdout, f"{old_id}  encrypts  0 files\n{new.split()[0]}  [0-9]+ files  not in {old}\n")
        self.ours("put", "customer-00001", PAIRS["customer-00001"])
        self.down()
        self.assertFalse(self.shows(self.directory / "log"))
        self.up("--log-key", str(self.key))
        self.all_there()
        self.down()
        # Without the key nothing starts, and nothing is lost.
        old_id = self.ctl("data-key", "show", self.key).stdout.split()[0]
        self.assertIn(f"is encrypted with key {old_id}", self.fails_to_start())
        self.assertIn(f"is encrypted with key {old_id}, which {old} does not have", self.fails_to_start("--log-key", str(old)))
        self.up("--log-key", str(self.key))
        self.all_there()

    def test_encryption_is_turned_on(self):
        self.up()
        self.load()
        self.down()
        self.assertTrue(self.shows(self.directory / "log"))  # So this test can fail.
        self.assertIn("are these the right logs", self.ctl("data-key", "retire", self.key, "--logs", self.directory / "log", check=False).stderr)
        self.assertIn("start the servers once with --log-plain-ok", self.fails_to_start("--log-key", str(self.key)))
        self.up("--log-key", str(self.key), "--log-plain-ok")
        self.assertIn("whoever has put them there", (self.directory / "server-0.log").read_text())
        self.all_there()
        self.assertIn("files are not encrypted", self.ctl("data-key", "show", self.key, "--logs", self.directory / "log").stdout)
        self.ours("checkpoint")
        self.assertNotIn("not encrypted", self.ctl("data-key", "show", self.key, "--logs", self.directory / "log").stdout)
        self.down()
        self.assertFalse(self.shows(self.directory / "log"))
        self.up("--log-key", str(self.key))
        self.all_there()

    def test_backups(self):
        self.up(servers=1)
        self.load()
        plain, sealed = self.base / "plain", self.base / "sealed"
        self.ours("backup", plain)
        self.ours("backup", "--key", self.key, sealed)
        self.assertTrue(self.shows(plain / "backup"))
        self.assertFalse(self.shows(sealed / "backup"))
        self.assertEqual((sealed / "backup").stat().st_mode & 0o777, 0o600)
        self.ours("delete-range", "--yes")
        another = self.base / "another"
        self.ctl("data-key", "new", another)
        for flags, directory, why in (((), sealed, "is encrypted with key"), (("--key", another), sealed, "does not have"),
                                      (("--key", self.key), plain, "restore it without --key"), (("--key", self.base / "none"), sealed, "cannot read")):
            refused = self.ours("restore", *flags, directory, check=False)
            self.assertEqual(refused.returncode, 2)
            self.assertIn(why, refused.stderr)
        damaged = bytearray((sealed / "backup").read_bytes())
        damaged[len(damaged) // 2] ^= 1
        (self.base / "damaged").mkdir()
        (self.base / "damaged" / "backup").write_bytes(damaged)
        self.assertEqual(self.ours("restore", "--key", self.key, self.base / "damaged", check=False).returncode, 2)
        self.assertEqual(self.ours("count").stdout.split()[0], "0")
        self.ours("restore", "--key", self.key, sealed)
        self.all_there()

    # Somebody who gets at a server's memory, for example by a core file, finds nothing of what was deleted.
    @unittest.skipUnless(os.geteuid() == 0 or os.access("/proc/self/fd", os.R_OK), "the memory of other processes cannot be read here")
    def test_freed_memory(self):
        for flags, stays in (((), True), (("--zero-freed",), False)):
            self.directory = self.base / f"cell{len(flags)}"
            self.up(*flags, servers=1)
            self.ours("hash", "create", "t")
            for table in ((), ("--table", "t")):
                self.ours("load", "-", *table, input="".join(f"{key}\t{value}\n" for key, value in PAIRS.items()))
            for key in list(PAIRS)[:100]:
                self.ours("hash", "del", "t", key)
            self.ours("put", "customer-00001", "other")
            self.assertTrue(self.memory_shows(b"confidential-3999 "))
            self.ours("delete-range", "--yes")
            self.ours("hash", "drop", "t")
            self.assertEqual(self.memory_shows(b"confidential-3999 ") or self.memory_shows(b"confidential-1 "), stays, flags)
            self.down()

    def memory_shows(self, text):
        shown = read = 0
        for file in Path(f"/proc/{self.servers[0].pid}/fd").iterdir():
            if "memfd:cell-region" in os.readlink(file):
                content = file.read_bytes()
                read += len(content)
                shown += content.count(text)
        self.assertGreater(read, 0)
        return shown > 0

    # Somebody who can write to the log store changes what is there, with CRCs that fit or not, and puts other files there.
    def test_changed_logs(self):
        self.up("--log-key", str(self.key))
        self.load()
        self.ours("checkpoint")
        self.ours("put", "customer-00001", "confidential, changed")
        self.down()
        logs, kept = self.directory / "log", self.base / "kept"
        shutil.copytree(logs, kept)
        checkpoint = max(logs.rglob("*.checkpoint"), key=lambda path: path.stat().st_size)
        changed = bytearray(checkpoint.read_bytes())
        changed[len(changed) // 2] ^= 1
        sequence, dot, rest = checkpoint.name.partition(".")
        later = checkpoint.with_name(f"{int(sequence, 16) + 2:016x}{dot}{rest}")  # Without what the log has before that.
        for attack, why in ((lambda: checkpoint.write_bytes(changed), f"{checkpoint} is damaged at offset"),
                            (lambda: checkpoint.rename(later), f"{later} was changed at offset")):
            attack()
            self.assertIn(why, self.fails_to_start("--log-key", str(self.key)))
            shutil.rmtree(logs)
            shutil.copytree(kept, logs)
        self.up("--log-key", str(self.key))
        self.assertEqual(self.ours("get", "customer-00001").stdout.strip(), "confidential, changed")

    def test_up_asks_for_a_key_file(self):
        done = subprocess.run([cluster.binary("tools/up"), "--dir", str(self.directory), "--servers", "1", "--log-key", str(self.base / "none"), "--detach"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(f"cellctl data-key new {self.base / 'none'}", done.stderr)
        self.assertFalse(self.directory.exists())

    def test_key_files(self):
        self.assertIn("exists already", self.ctl("data-key", "new", self.key, check=False).stderr)
        os.chmod(self.key, 0o644)
        self.assertIn("chmod 600", self.ctl("data-key", "show", self.key, check=False).stderr)
        os.chmod(self.key, 0o600)
        shown = json.loads(self.ctl("--output", "json", "data-key", "show", self.key).stdout)
        self.assertEqual([one["encrypts"] for one in shown], [True])
        self.assertNotIn(self.key.read_text().split()[2], self.ctl("data-key", "show", self.key).stdout)
        self.key.write_text("nonsense\n")
        self.assertIn("does not begin with cell-key-1", self.ctl("data-key", "rotate", self.key, check=False).stderr)
        self.assertEqual(self.key.read_text(), "nonsense\n")


if __name__ == "__main__":
    unittest.main()
