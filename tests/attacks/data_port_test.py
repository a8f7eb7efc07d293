"""What a stranger, or a client that wants to be more, gets at the data port: no secret, no data, no other role.

The wire is spoken here by Python and by OpenSSL's own s_client, not by Cell's code.
"""

import json
import os
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

import raw_client as raw
from tools import cluster

SMALL = {"meganode_bytes": 2 << 20, "extents_bytes": 8 << 20, "regions_max": 8}


class DataPort(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="cell-attack-")
        self.addCleanup(self.temporary.cleanup)
        self.base = Path(self.temporary.name)
        self.secret = self.base / "secret"
        self.ctl("secret", "new", self.secret)
        self.servers = cluster.up(self.base / "cell", servers=1, fabric="tcp", secret_file=str(self.secret), **SMALL)
        self.addCleanup(cluster.end, self.servers)
        self.address = json.loads((self.base / "cell" / "cluster.json").read_text())["servers"][0]["workers"][0]["tcp"]
        self.ours("put", "key", "a value that nobody else may see")

    def ctl(self, *arguments, check=True):
        done = subprocess.run([cluster.binary("tools/cellctl"), *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, check=False, timeout=60)
        if check:
            self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def ours(self, *arguments, check=True):
        return self.ctl("--cluster", self.base / "cell", "--secret-file", self.secret, *arguments, check=check)

    def tearDown(self):
        self.assertEqual(self.ours("get", "key").stdout, "a value that nobody else may see")  # It still serves.

    def connect(self):
        host, port = self.address.rsplit(":", 1)
        return socket.create_connection((host, int(port)), timeout=20)

    def all_of(self, connection):
        data = b""
        try:
            while part := connection.recv(65536):
                data += part
        except ConnectionResetError:
            pass
        return data

    def secret_of(self, who):
        """Returns the id and the key of a new secret file."""
        path = self.base / who.replace("/", "-")
        self.ctl("secret", "for", who, self.secret, path)
        return path.read_text().split()[2:4]

    def pipe_of(self, who, key=None):
        ident, real = self.secret_of(who)
        pipe = raw.Pipe(self.address, "-psk", key or real, "-psk_identity", f"{who} {ident}", "-ciphersuites", "TLS_AES_128_GCM_SHA256")
        self.addCleanup(pipe.close)
        return pipe

    def greet(self, pipe, purpose, role, name):
        """Shakes hands inside TLS, where no secret is needed any more. Returns whether the server agrees."""
        greeting = raw.hello(purpose, role, name)
        pipe.send(greeting)
        challenge = pipe.receive(raw.CHALLENGE_BYTES)
        if len(challenge) < raw.CHALLENGE_BYTES:
            return False
        pipe.send(raw.proof(greeting, challenge, purpose, role, name))
        return raw.is_welcome(pipe.receive(raw.WELCOME_BYTES))

    def ask(self, pipe, kind, number):
        """Sends a request that is only a header. Returns the code of the reply, and its text if it is an error."""
        request = raw.text(kind)
        pipe.send(struct.pack("<IIQ", len(request), 4096, number) + request)
        frame = pipe.receive(16)
        self.assertEqual(len(frame), 16)
        size, _, answered = struct.unpack("<IIQ", frame)
        self.assertEqual(answered, number)
        reply = pipe.receive(size)
        return struct.unpack("<H", reply[2:4])[0], reply[16:].decode(errors="replace")

    # Whoever sends nothing of TLS learns that it is Cell, and its version. There is nothing in it to guess a secret by.
    def test_a_stranger_learns_the_version_alone(self):
        for role in (raw.CLIENT, raw.OPERATOR, raw.SERVER):
            with self.connect() as connection:
                connection.sendall(raw.hello(raw.READS, role, "server-0") + bytes(32) + struct.pack("<QQII", 0, 1 << 40, 1024, 0))
                self.assertEqual(self.all_of(connection), raw.MAGIC + struct.pack("<II", 2, 1) + bytes(32))
        for nonsense in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * 200, os.urandom(200).replace(b"\x16", b"x")):
            with self.connect() as connection:
                connection.sendall(nonsense)
                self.assertEqual(self.all_of(connection), b"")

    def test_tls_without_a_credential_gets_an_alert(self):
        for flags in ((), ("-psk", "00" * 32), ("-psk", "00" * 32, "-psk_identity", "server/server-0 0011223344556677")):
            pipe = raw.Pipe(self.address, *flags)
            self.addCleanup(pipe.close)
            pipe.send(raw.hello(raw.CALLS, raw.SERVER, "server-0"))
            self.assertEqual(pipe.receive(1), b"")
        older = subprocess.run(["openssl", "s_client", "-connect", self.address, "-tls1_2"], stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=30)
        self.assertNotEqual(older.returncode, 0, older.stdout)

    # Somebody who knows everything but the key, and somebody who has a client's key and calls itself a server.
    def test_another_identity_takes_its_key(self):
        _, alices = self.secret_of("client/alice")
        for who, key in (("client/bob", "11" * 32), ("server/server-0", alices), ("operator/root", alices)):
            pipe = self.pipe_of(who, key)
            pipe.send(raw.hello(raw.CALLS, raw.SERVER, "server-0"))
            self.assertEqual(pipe.receive(1), b"", who)

    def test_a_client_stays_a_client_whatever_it_says(self):
        for role, name in ((raw.CLIENT, "carol"), (raw.SERVER, "server-0"), (raw.OPERATOR, "root")):
            pipe = self.pipe_of(f"client/carol-{role}")
            self.assertTrue(self.greet(pipe, raw.CALLS, role, name))
            self.assertEqual(self.ask(pipe, "time", 1)[0], raw.OK)
            for number, kind in enumerate(("add_route", "migration", "weigh", "remove_route", "check"), start=2):
                code, text = self.ask(pipe, kind, number)
                self.assertEqual(code, raw.PERMISSION_DENIED, f"{kind}: {text}")
                self.assertIn(f"client/carol-{role} may not send this", text)

    def test_each_role_may_what_it_may(self):
        operator = self.pipe_of("operator/olga")
        self.assertTrue(self.greet(operator, raw.CALLS, raw.OPERATOR, "olga"))
        self.assertNotEqual(self.ask(operator, "check", 1)[0], raw.PERMISSION_DENIED)
        self.assertEqual(self.ask(operator, "weigh", 2)[0], raw.PERMISSION_DENIED)
        server = self.pipe_of("server/server-7")
        self.assertTrue(self.greet(server, raw.CALLS, raw.SERVER, "server-7"))
        self.assertEqual(self.ask(server, "weigh", 1)[0], raw.OK)
        status = self.ours("--output", "json", "status")
        self.assertIn("server-0", status.stdout)

    # A proxy that changes one byte of what goes through it, after the handshake.
    def test_changed_traffic_breaks_the_connection(self):
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        changes = threading.Event()

        def carry(source, sink, changing):
            try:
                while data := bytearray(source.recv(65536)):
                    if changing and changes.is_set():
                        data[-1] ^= 1
                    sink.sendall(data)
                sink.shutdown(socket.SHUT_WR)
            except OSError:
                pass

        def serve():
            client, _ = listener.accept()
            server = self.connect()
            threads = [threading.Thread(target=carry, args=args) for args in ((client, server, True), (server, client, False))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            client.close()
            server.close()

        proxy = threading.Thread(target=serve)
        proxy.start()
        ident, key = self.secret_of("client/alice")
        pipe = raw.Pipe(f"127.0.0.1:{listener.getsockname()[1]}", "-psk", key, "-psk_identity", f"client/alice {ident}", "-ciphersuites",
                    "TLS_AES_128_GCM_SHA256")
        self.addCleanup(pipe.close)
        self.assertTrue(self.greet(pipe, raw.CALLS, raw.CLIENT, "alice"))
        self.assertEqual(self.ask(pipe, "time", 1)[0], raw.OK)
        changes.set()
        request = raw.text("time")
        pipe.send(struct.pack("<IIQ", len(request), 4096, 2) + request)
        self.assertEqual(pipe.receive(1), b"")
        proxy.join(timeout=20)

    def test_no_secret_is_overwritten(self):
        before = self.secret.read_bytes()
        alices = self.base / "alices"
        self.ctl("secret", "for", "client/alice", self.secret, alices)
        first = alices.read_bytes()
        self.assertEqual(self.ctl("secret", "new", self.secret, check=False).returncode, 2)
        self.assertEqual(self.ctl("secret", "for", "client/bob", self.secret, alices, check=False).returncode, 2)
        self.assertEqual(self.ctl("secret", "for", "client/bob", self.secret, self.secret, check=False).returncode, 2)
        self.assertEqual((self.secret.read_bytes(), alices.read_bytes()), (before, first))

    # Old and new secret are both valid between rotate and retire, and running clients notice neither.
    def test_a_rotation_under_load_loses_no_operation(self):
        bench = subprocess.Popen([cluster.binary("tools/cell_bench"), "--cluster", str(self.base / "cell"), "--secret-file", str(self.secret),
                                  "--workload", "get-90", "--keys", "2000", "--seconds", "6", "--fabric", "tcp"],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(bench.wait)
        older = self.base / "older"
        older.write_bytes(self.secret.read_bytes())
        older.chmod(0o600)
        time.sleep(1)
        self.ctl("secret", "rotate", self.secret)
        self.wait_until(lambda: self.ours("get", "key", check=False).returncode == 0)
        old = self.ctl("--cluster", self.base / "cell", "--secret-file", older, "get", "key")
        self.assertEqual(old.stdout, "a value that nobody else may see")
        self.ctl("secret", "retire", self.secret)
        self.wait_until(lambda: self.ctl("--cluster", self.base / "cell", "--secret-file", older, "get", "key", check=False).returncode == 2)
        _, errors = bench.communicate(timeout=120)
        self.assertEqual(bench.returncode, 0, errors)

    def wait_until(self, condition):
        limit = time.monotonic() + 30
        while not condition():
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.2)


if __name__ == "__main__":
    unittest.main()
