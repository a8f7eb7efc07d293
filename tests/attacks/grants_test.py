"""What a client gets beyond its grants, with real processes over TCP: nothing, whatever it says and however it reads."""

import json
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import raw_client as raw
from tools import cluster

SMALL = {"meganode_bytes": 2 << 20, "extents_bytes": 8 << 20, "regions_max": 8}
BIG = "big" * 100_000


class Grants(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="cell-attack-")
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.base = Path(cls.temporary.name)
        cls.secret = cls.base / "secret"
        cls.run_ctl("secret", "new", cls.secret)
        cls.servers = cluster.up(cls.base / "cell", servers=2, fabric="tcp", secret_file=str(cls.secret), **SMALL)
        cls.addClassCleanup(cluster.end, cls.servers)
        described = json.loads((cls.base / "cell" / "cluster.json").read_text())
        cls.addresses = [server["workers"][0]["tcp"] for server in described["servers"]]
        for key, value in (("a/1", "one of a"), ("a/2", "two of a"), ("a/big", BIG), ("b/1", "one of b"), ("b/big", BIG)):
            cls.run_ctl("--cluster", cls.base / "cell", "--secret-file", cls.secret, "put", key, "-", input=value)
        for table in ("t", "u"):
            for command in (("create", table), ("put", table, "k", f"value of {table}")):
                cls.run_ctl("--cluster", cls.base / "cell", "--secret-file", cls.secret, "hash", *command)
        cls.ours("users", "enforce")

    @classmethod
    def run_ctl(cls, *arguments, check=True, input=None):
        done = subprocess.run([cluster.binary("tools/cellctl"), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=False, timeout=60, input=input)
        assert not check or done.returncode == 0, (arguments, done.stderr)
        return done

    @classmethod
    def ours(cls, *arguments, check=True):
        return cls.run_ctl("--cluster", cls.base / "cell", "--secret-file", cls.secret, *arguments, check=check)

    def setUp(self):
        for user in {grant["user"] for grant in json.loads(self.ours("--output", "json", "users").stdout)["grants"]}:
            self.ours("revoke", user)
        time.sleep(1.5)  # All servers have looked since.

    def tearDown(self):
        self.assertEqual(self.ours("get", "b/1").stdout, "one of b")  # It still serves, and operators need no grants.

    def secret_of(self, who):
        path = self.base / who.replace("/", "-")
        if not path.exists():
            self.run_ctl("secret", "for", who, self.secret, path)
        return path

    def as_user(self, user, *arguments):
        return self.run_ctl("--cluster", self.base / "cell", "--secret-file", self.secret_of(f"client/{user}"), *arguments, check=False)

    def gets(self, user, expected, *arguments):
        done = self.as_user(user, *arguments)
        self.assertEqual((done.returncode, done.stdout), (0, expected), done.stderr)

    def refused(self, user, *arguments, why="no grant of"):
        done = self.as_user(user, *arguments)
        self.assertEqual(done.returncode, 2, (arguments, done.stdout))
        self.assertIn(why, done.stderr)
        return done.stdout

    def settle(self, condition):
        """Waits until both servers have seen a change of the grants."""
        limit = time.monotonic() + 30
        while not condition():
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.05)

    def grant(self, *arguments, seen_by):
        self.ours("grant", *arguments)
        user, *command = seen_by
        self.settle(lambda: self.as_user(user, *command).returncode == 0)
        time.sleep(1.5)  # All servers have looked since.

    def test_nobody_has_anything_without_a_grant(self):
        for path in ("server", "client", "hybrid"):
            why = "lets this client read no memory" if path == "client" else "client/mallory has no grant of"
            for command in (("get", "a/1"), ("has", "a/1"), ("scan",), ("hash", "get", "t", "k"), ("hash", "has", "u", "k")):
                self.assertEqual(self.refused("mallory", "--path", path, *command, why=why), "")
            for command in (("count",), ("ttl", "a/1"), ("delete-range", "--yes"), ("hash", "put", "t", "k", "x"), ("hash", "del", "u", "k")):
                self.refused("mallory", "--path", path, *command)
        for command in (("put", "a/1", "x"), ("put", "c", "x" * 100_000), ("del", "a/1")):
            self.refused("mallory", "--path", "server", *command)

    def test_a_prefix_is_that_prefix(self):
        self.grant("alice", "scan,write", "--prefix", "a/", seen_by=("alice", "get", "a/1"))
        self.gets("alice", "two of a", "get", "a/2")
        self.gets("alice", BIG, "get", "a/big")
        self.gets("alice", "a/1\na/2\na/big\n", "scan", "--prefix", "a/", "--keys-only")
        self.gets("alice", f"a/1\tone of a\na/2\ttwo of a\na/big\t{BIG}\n", "scan", "--prefix", "a/")
        self.assertEqual(self.refused("alice", "scan", "a/", "--keys-only"), "a/1\na/2\na/big\n")
        self.assertEqual(self.as_user("alice", "count", "--prefix", "a/").stdout.split()[0], "3")
        self.assertEqual(self.as_user("alice", "put", "a/3", "three").returncode, 0)
        self.assertEqual(self.as_user("alice", "del", "a/3").returncode, 0)
        self.refused("mallory", "get", "a/1")  # Though her connection may have the number of alice's.
        for command in (("get", "b/1"), ("get", "b/big"), ("get", "a0"), ("get", "a"), ("put", "b/1", "x"), ("del", "b/1"), ("scan",),
                        ("scan", "--prefix", "b/"), ("scan", "--reverse"), ("count",), ("count", "a/", "b0"),
                        ("delete-range", "a/", "b0", "--yes"), ("hash", "get", "t", "k")):
            self.assertEqual(self.refused("alice", *command), "", command)
        self.assertEqual(self.ours("count").stdout.split()[0], "5")

    def test_a_table_is_that_table(self):
        self.grant("alice", "read", "--table", "t", seen_by=("alice", "hash", "get", "t", "k"))
        self.gets("alice", "value of t", "hash", "get", "t", "k")
        for command in (("hash", "put", "t", "k", "x"), ("hash", "del", "t", "k"), ("hash", "get", "u", "k"), ("get", "a/1")):
            self.refused("alice", *command)

    def test_a_revoked_right_is_gone(self):
        self.grant("alice", "read,scan", seen_by=("alice", "--path", "client", "get", "b/1"))
        self.gets("alice", "one of b", "get", "b/1")
        self.ours("revoke", "alice", "scan")
        self.settle(lambda: self.as_user("alice", "--path", "client", "get", "b/1").returncode == 2)
        self.gets("alice", "one of b", "get", "b/1")  # The right to read is left. A server does it.
        self.ours("revoke", "alice")
        self.settle(lambda: self.as_user("alice", "get", "b/1").returncode == 2)

    def test_commands_say_what_is_wrong(self):
        for command, why in ((("grant", "alice", "fly"), "give a list of read, scan, write, admin"),
                             (("grant", "operator/olga", "read"), "needs no grants"),
                             (("grant", "a b", "read"), "is no user"),
                             (("grant", "alice", "read", "--table", "none"), 'there is no table "none"'),
                             (("grant", "alice", "read", "--prefix", "x" * 65), "too long"),
                             (("revoke", "alice", "read"), "has no grant of read for everything"),
                             (("revoke", "alice"), "has no grants")):
            done = self.ours(*command, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn(why, done.stderr)
        shown = self.ours("grant", "client/alice", "read,write", "--prefix", "a/\n").stdout
        self.assertIn(r"read,write        keys that begin with a/\n", shown)

    # The wire by hand: reads of memory, extents, roots that are none, a region of a table under the tree's name.
    def test_by_hand(self):
        self.grant("alice", "scan,write", "--prefix", "a/", seen_by=("alice", "get", "a/1"))
        for reader in self.connect("alice", raw.READS):
            for number in range(64):
                pointer = (number % 8 + 1) << 40 | (number // 8) * 4096
                reader.send(struct.pack("<QQII", number, pointer, 4096, 0))
                self.assertEqual(struct.unpack("<QII", reader.receive(16)), (number, 0, 2))
        for calls in self.connect("mallory", raw.CALLS):
            self.assertEqual(self.ask(calls, raw.upload(1, 0, b"x"), 1)[2], raw.PERMISSION_DENIED)
        seen = 0
        for calls in self.connect("alice", raw.CALLS):
            number = 0
            for root in (region << 40 | offset for region in range(1, 9) for offset in (4096, 0, 8192, 64, 4096 + (2 << 20), (1 << 40) - 8)):
                for request in (raw.get(root, b"b/1"), raw.get(root, b"k"), raw.get(root, b"b/big", 1), raw.scan(root, b"b/"),
                                raw.scan(root), raw.count(root, b"a/"), self.fetch(root, 0), self.fetch(root, 1), raw.get(root, b"a/1"),
                                raw.scan(root, b"a/", keys_only=True)):
                    number += 1
                    reply = self.ask(calls, request, number)
                    for secret in (b"of b", b"value of", b"bigbig", b"b/1", b"b/big"):
                        if reply[2] != raw.PERMISSION_DENIED:
                            self.assertNotIn(secret, reply)
                    seen += b"one of a" in reply
        self.assertGreater(seen, 0)  # What alice may see, she sees: the requests are well formed.

    @staticmethod
    def fetch(pointer, copy):
        return raw.message("fetch", struct.pack("<QIHH", pointer, 4096, copy, 0))

    def connect(self, user, purpose):
        """Returns a connection to each server."""
        path = self.secret_of(f"client/{user}")
        ident, key = path.read_text().split()[2:4]
        pipes = []
        for address in self.addresses:
            pipe = raw.Pipe(address, "-psk", key, "-psk_identity", f"client/{user} {ident}", "-ciphersuites", "TLS_AES_128_GCM_SHA256")
            self.addCleanup(pipe.close)
            greeting = raw.hello(purpose, raw.CLIENT, user)
            pipe.send(greeting)
            pipe.send(raw.proof(greeting, pipe.receive(raw.CHALLENGE_BYTES), purpose, raw.CLIENT, user))
            self.assertTrue(raw.is_welcome(pipe.receive(raw.WELCOME_BYTES)))
            pipes.append(pipe)
        return pipes

    def ask(self, pipe, request, number):
        pipe.send(struct.pack("<IIQ", len(request), raw.MESSAGE_BYTES_MAX, number) + request)
        size, _, answered = struct.unpack("<IIQ", pipe.receive(16))
        self.assertEqual(answered, number)
        reply = pipe.receive(size)
        return reply


class WithoutDurability(unittest.TestCase):
    def test_a_cluster_that_begins_again_is_not_open(self):
        with tempfile.TemporaryDirectory(prefix="cell-attack-") as temporary:
            directory = Path(temporary) / "cell"

            def ctl(*arguments):
                return subprocess.run([cluster.binary("tools/cellctl"), "--cluster", str(directory), *arguments], stdout=subprocess.PIPE,
                                      check=True, text=True, timeout=60).stdout

            servers = cluster.up(directory, servers=2, durability="none", **SMALL)
            try:
                ctl("put", "a/1", "value")
                ctl("grant", "alice", "read", "--prefix", "a/")
                ctl("evict", "ttl", "--prefix", "a/")
                ctl("users", "enforce")
                before = json.loads(ctl("--output", "json", "users"))
                self.assertTrue(before["enforced"])
            finally:
                cluster.end(servers)
            servers = cluster.up(directory, servers=2, durability="none", **SMALL)
            try:
                self.assertEqual(ctl("count").split()[0], "0")  # The pairs are lost.
                self.assertEqual(json.loads(ctl("--output", "json", "users")), before)
                self.assertIn("a/", ctl("evict"))
            finally:
                cluster.end(servers)


if __name__ == "__main__":
    unittest.main()
