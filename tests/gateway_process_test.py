"""Tests the gateway as a process: users, TLS, limits, strangers, clients that go, servers that die, and its end."""

import contextlib
import signal
import socket
import ssl
import subprocess
import threading
import time
import unittest

from tests.gateway_case import GatewayCase
from tests.redis_connection import Redis, TlsByHand
from tools import cluster


class GatewayProcess(GatewayCase):
    def test_sees_the_keys_of_other_clients(self):
        self.begin()
        subprocess.run([cluster.binary("tools/cellctl"), "--cluster", str(self.gateway.directory), "put", "k", "v"], check=True)
        connection = self.connect()
        self.assertEqual(connection.call("GET", "k"), b"$1\r\nv\r\n")
        connection.call("INCRBY", "n", 41)
        shown = subprocess.run([cluster.binary("tools/cellctl"), "--cluster", str(self.gateway.directory), "incr", "n"], check=True,
                               stdout=subprocess.PIPE).stdout
        self.assertEqual(shown, b"42\n")

    def test_keys_and_values_that_cell_cannot_store(self):
        self.begin()
        connection = self.connect()
        for key in ("", "k" * 227, "k" * 100000):
            for words in (("GET", key), ("SET", key, "v"), ("DEL", key), ("INCR", key), ("TTL", key), ("HSET", key, "f", "v"), ("EXISTS", key),
                          ("SET", key, "v", "EX", 10), ("MSET", key, "v"), ("WATCH", key)):
                self.assertTrue(connection.call(*words).startswith(b"-ERR "), words[0])
        for words in (("KEYS", "k" * 300 + "*"), ("SCAN", 0, "MATCH", "k" * 300 + "*"), ("ZRANGEBYLEX", "cell:keys:" + "k" * 300, "-", "+")):
            self.assertIn(connection.call(*words), (b"*0\r\n", b"*2\r\n$1\r\n0\r\n*0\r\n"), words)
        value = "v" * (1 << 20)
        self.assertEqual(connection.call("SET", "large", value), b"+OK\r\n")
        self.assertEqual(connection.call("STRLEN", "large"), b":1048576\r\n")
        self.assertTrue(connection.call("SET", "large", value + "v").startswith(b"-ERR "))
        self.assertTrue(connection.call("APPEND", "large", "v").startswith(b"-ERR "))
        self.assertEqual(connection.call("SET", "nearly", value[1:]), b"+OK\r\n")
        self.assertEqual(connection.call("APPEND", "nearly", "v"), b":1048576\r\n")
        self.assertTrue(connection.call("HSET", "hash", "f", value).startswith(b"-ERR "))
        self.assertEqual(connection.call("EXISTS", "hash"), b":0\r\n")
        many = [word for i in range(3000) for word in (f"k{i}", "v")]
        self.assertTrue(connection.call("MSET", *many).startswith(b"-ERR "))
        self.assertEqual(connection.call("EXISTS", *many[::2]), b":0\r\n")
        self.assertEqual(connection.call("STRLEN", "large"), b":1048576\r\n")

    def test_users_prove_who_they_are(self):
        secret, users = self.begin_with_users("shop", "default")
        password = {name: (users / name).read_text().split()[-1] for name in ("shop", "default")}
        ctl = cluster.binary("tools/cellctl")
        connection = self.connect()
        self.assertEqual(connection.call("GET", "k"), b"-NOAUTH Authentication required.\r\n")
        self.assertTrue(connection.call("AUTH", "shop", password["default"]).startswith(b"-WRONGPASS"))
        self.assertEqual(connection.call("AUTH", "shop", password["shop"]), b"+OK\r\n")
        self.assertEqual(connection.call("SET", "k", "v"), b"+OK\r\n")
        default = self.connect()
        self.assertEqual(default.call("AUTH", password["default"]), b"+OK\r\n")
        self.assertEqual(default.call("GET", "k"), b"$1\r\nv\r\n")
        # Grants of the cluster hold for those users.
        for arguments in (("grant", "shop", "read", "--prefix", "shop/"), ("grant", "default", "admin"), ("users", "enforce")):
            done = subprocess.run([ctl, "--cluster", str(self.gateway.directory), "--secret-file", str(secret), *arguments],
                                  check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertEqual(done.returncode, 0, done.stdout)
        until = time.monotonic() + 30
        while not (answer := connection.call("SET", "shop/k", "v")).startswith(b"-NOPERM"):
            self.assertLess(time.monotonic(), until, answer)
            time.sleep(0.1)
        self.assertEqual(connection.call("GET", "shop/k")[:1], b"$")
        self.assertTrue(connection.call("GET", "k").startswith(b"-NOPERM"))
        self.assertEqual(default.call("SET", "k", "w"), b"+OK\r\n")

    def test_users_that_cannot_be_read_are_an_error(self):
        self.begin()
        users = self.base / "users"
        users.mkdir()

        def error(*flags, listen="127.0.0.1:0"):
            done = subprocess.run([cluster.binary("tools/cell_gateway"), "--cluster", str(self.gateway.directory), "--listen", listen, *flags],
                                  check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            return done.stderr

        self.assertIn("no secret files", error("--users", str(users)))
        (users / "shop").write_text("hello\n")
        self.assertIn(str(users / "shop"), error("--users", str(users)))
        self.assertIn("cannot read", error("--users", str(self.base / "nowhere")))
        self.assertIn("already in use", error(listen=self.gateway.address))
        self.assertIn("belong together", error("--listen-tls", "127.0.0.1:0"))
        self.assertIn("no certificate", error("--listen-tls", "127.0.0.1:0", "--certificate", str(users / "shop"), "--key", str(users / "shop")))
        done = subprocess.run([cluster.binary("tools/cell_gateway"), "--cluster", str(self.base / "nowhere")], check=False, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 2, done.stderr)

    def test_tls(self):
        certificate, context = self.begin_with_tls()
        connection = self.connect(1, context=context)
        self.assertEqual(connection.call("SET", "k", "v" * 300_000), b"+OK\r\n")
        pipeline = b"".join(Redis.encode("GET", "k") for _ in range(100))
        connection.send(pipeline)
        for _ in range(100):
            self.assertEqual(len(connection.read()), 300_000 + len(b"$300000\r\n\r\n"))
        # Clients that do not get through the handshake harm nobody: neither one who waits for the rest of a record, nor one
        # who does not read.
        plain = self.connect(1)
        plain.send(b"PING\r\n")
        self.assertTrue(plain.refused())
        for rounds in range(10):
            victim = TlsByHand(self.connect(1), context)
            record = victim.record(b"PING\r\n")
            victim.connection.send(record[:-5])
            stranger = self.connect(1)
            if rounds % 2:
                stranger.send(b"\x16\x03\x01\x02\x00")  # The beginning of a handshake.
            stranger.close()
            self.assertEqual(self.connect(1, context=context).call("PING"), b"+PONG\r\n")
            victim.connection.send(record[-5:])
            self.assertEqual(victim.read(7), b"+PONG\r\n")
        done = subprocess.run(["redis-cli", "-h", "127.0.0.1", "-p", self.gateway.addresses[1].rsplit(":", 1)[1], "--tls", "--cacert", str(certificate),
                               "--sni", "localhost", "STRLEN", "k"], check=True, stdout=subprocess.PIPE)
        self.assertEqual(done.stdout, b"300000\n")

    def test_tls_with_certificates_of_clients(self):
        authority_key, authority = self.make_certificate("authority")
        signed_by = ("-CA", str(authority), "-CAkey", str(authority_key))
        key, certificate = self.make_certificate("localhost", *signed_by)
        client_key, client_certificate = self.make_certificate("client", *signed_by)
        stranger_key, stranger_certificate = self.make_certificate("stranger")
        self.begin("--listen-tls", "127.0.0.1:0", "--certificate", str(certificate), "--key", str(key), "--client-authority", str(authority))
        context = ssl.create_default_context(cafile=str(authority))
        context.load_cert_chain(client_certificate, client_key)
        connection = self.connect(1, context=context)
        self.assertEqual(connection.call("PING"), b"+PONG\r\n")
        # The session may be resumed.
        again = Redis.__new__(Redis)
        host, port = self.gateway.addresses[1].rsplit(":", 1)
        again.socket, again.buffer = context.wrap_socket(socket.create_connection((host, int(port)), timeout=30), server_hostname="localhost",
                                                         session=connection.socket.session), b""
        self.assertEqual(again.call("PING"), b"+PONG\r\n")
        self.assertTrue(again.socket.session_reused)
        again.close()
        for files in (None, (stranger_certificate, stranger_key)):
            other = ssl.create_default_context(cafile=str(authority))
            if files:
                other.load_cert_chain(*files)
            with self.assertRaises(OSError):
                self.connect(1, context=other).call("PING")

    def test_clients_that_go_leave_nothing(self):
        self.begin("--threads", "2")
        pipeline = b"".join(Redis.encode("INCR", f"k{i % 10}") for i in range(2000))
        for round_ in range(30):
            connection = Redis(self.gateway.address)
            connection.send(pipeline[:len(pipeline) - round_])  # The last request is not whole.
            if round_ % 2:
                connection.read()
            if round_ % 3 == 0:  # Ends with a reset.
                connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()
        connection = self.connect()
        until = time.monotonic() + 30
        while b"connected_clients:1\r\n" not in (text := connection.call("INFO", "clients")):
            self.assertLess(time.monotonic(), until, text)
            time.sleep(0.05)
        # One that sends no more still gets its replies.
        half = self.connect()
        half.send(pipeline)
        half.socket.shutdown(socket.SHUT_WR)
        for _ in range(2000):
            self.assertEqual(half.read()[:1], b":")
        self.assertTrue(half.ended())

    def test_a_pipeline_of_a_million_takes_little_memory(self):
        self.begin()
        connection = self.connect(timeout=200)
        connection.call("SET", "k", "v" * 100)
        before = self.memory()
        request = Redis.encode("GET", "k") * 10_000
        sender = threading.Thread(target=lambda: [connection.send(request) for _ in range(100)])
        sender.start()
        time.sleep(2)  # Nothing is read, so the gateway must stop reading as well.
        self.assertLess(self.memory() - before, 64 << 20)
        left = 1_000_000 * len(b"$100\r\n" + b"v" * 100 + b"\r\n")
        while left:
            left -= len(connection.socket.recv(min(left, 1 << 20)))
        sender.join()
        self.assertEqual(connection.call("PING"), b"+PONG\r\n")

    def test_large_counts_reserve_no_memory(self):
        self.begin("--clients-max", "50", "--buffer-bytes-max", "32M")
        before = self.memory()
        for data in (b"*1000000000\r\n", b"*60000\r\n$2000000000\r\n", b"*99999999999999999999\r\n"):
            connection = self.connect()
            connection.send(data)
            self.assertTrue(connection.read().startswith(b"-ERR Protocol error"), data)
            self.assertTrue(connection.ended())
        # Many that each begin a large request, and do not end it: some are told, and others go on.
        friend = self.connect()
        held = [self.connect() for _ in range(40)]
        for connection in held:
            with contextlib.suppress(OSError):
                connection.send(b"*2\r\n$2000000\r\n" + b"x" * 1_900_000)
            self.assertEqual(friend.call("PING"), b"+PONG\r\n")
        self.assertLess(self.memory() - before, 100 << 20)
        refused = 0
        for connection in held:
            connection.socket.settimeout(0.05)
            with contextlib.suppress(OSError):
                refused += connection.read() == b"-ERR the gateway's buffers are full (--buffer-bytes-max)\r\n"
        self.assertGreater(refused, 10)
        self.assertEqual(friend.call("SET", "k", "v"), b"+OK\r\n")
        for connection in held:
            connection.close()
        # Too many clients.
        answers = []
        for _ in range(60):
            one = self.connect()
            try:
                answers.append(one.read() if one.refused_at_once() else one.call("PING"))
            except OSError:
                answers.append(b"")
        self.assertIn(b"-ERR max number of clients reached\r\n", answers)
        self.assertIn(b"+PONG\r\n", answers)
        self.assertEqual(friend.call("PING"), b"+PONG\r\n")

    def test_idle_connections_do_not_keep_memory(self):
        self.begin()
        before = self.memory()
        for _ in range(5):
            connection = self.connect()
            connection.send(b"".join(Redis.encode("SET", "same", "x" * (1 << 20)) for _ in range(60)))
            for _ in range(60):
                self.assertEqual(connection.read(), b"+OK\r\n")
            connection.send(Redis.encode("EXISTS", *["x" * 200] * 50_000))
            self.assertEqual(connection.read(), b":0\r\n")
        self.assertLess(self.memory() - before, 80 << 20)

    def test_a_client_that_reads_slowly_stays(self):
        self.begin("--idle-seconds", "2")
        connection = self.connect(timeout=60)
        connection.call("SET", "k", "v" * (1 << 20))
        count = 30
        connection.send(Redis.encode("GET", "k") * count)
        for _ in range(count):
            time.sleep(0.25)  # Longer in all than what ends an idle connection, or one that acknowledges nothing.
            self.assertEqual(len(connection.read()), (1 << 20) + len(b"$1048576\r\n\r\n"))
        time.sleep(4)
        self.assertTrue(connection.ended())  # Now it is idle.

    def test_loses_nothing_when_a_server_is_killed(self):
        self.begin(servers=3, durability="sync")
        connection = self.connect(timeout=120)
        acknowledged = {}
        stop = threading.Event()

        def write():
            i = 0
            while not stop.is_set():
                key = f"k{i % 500}"
                if connection.call("SET", key, i) == b"+OK\r\n":
                    acknowledged[key] = i
                else:
                    acknowledged.pop(key, None)  # It may have been written.
                i += 1

        writer = threading.Thread(target=write)
        writer.start()
        time.sleep(1)
        self.gateway.servers[1].send_signal(signal.SIGKILL)
        time.sleep(4)
        stop.set()
        writer.join()
        for key, value in acknowledged.items():
            self.assertEqual(connection.call("GET", key).split(b"\r\n")[1], str(value).encode(), key)
        self.assertGreater(len(acknowledged), 400)

    def test_ends_cleanly(self):
        self.begin("--threads", "2")
        connection = self.connect()
        connection.call("SET", "large", "v" * (1 << 20))
        connections = [self.connect() for _ in range(10)]
        for one in connections:
            one.send(Redis.encode("INCR", "sum") * 2000)
        reader = self.connect()
        reader.send(Redis.encode("GET", "large") * 10)
        reader.read()
        ended = threading.Thread(target=lambda: self.assertEqual(self.gateway.end(), 0))
        ended.start()
        # Replies are whole: each command that ran is told.
        added = 0
        for one in connections:
            with contextlib.suppress(ConnectionError):
                while one.read()[:1] == b":":
                    added += 1
            self.assertEqual(one.buffer, b"")
        with contextlib.suppress(ConnectionError):
            while True:
                self.assertEqual(len(reader.read()), (1 << 20) + len(b"$1048576\r\n\r\n"))
        self.assertEqual(reader.buffer, b"")
        ended.join()
        self.gateway.start()
        self.assertEqual(int(self.connect().call("GET", "sum").split(b"\r\n")[1]), added)

    def test_a_second_signal_ends_it_at_once(self):
        self.begin()
        self.connect().call("SET", "k", "v")
        with self.frozen_servers():
            waiting = self.connect()
            waiting.send(Redis.encode("SET", "k", "w"))
            time.sleep(0.5)
            self.gateway.process.terminate()
            time.sleep(0.5)
            self.assertIsNone(self.gateway.process.poll())  # The command is in flight.
            self.gateway.process.terminate()
            self.assertEqual(self.gateway.process.wait(3), -signal.SIGTERM)


if __name__ == "__main__":
    unittest.main()
