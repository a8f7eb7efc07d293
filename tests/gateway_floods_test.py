"""Tests that clients which send or take too much, too little or nonsense harm no others, and cost the gateway little."""

import contextlib
import socket
import time
import unittest

from tests.gateway_case import GatewayCase
from tests.redis_connection import Redis, TlsByHand

MB = 1 << 20
MB_REPLY = MB + len(b"$1048576\r\n\r\n")


class GatewayFloods(GatewayCase):
    def with_large_value(self, *flags):
        self.begin("--threads", "1", *flags)
        connection = self.connect()
        connection.call("SET", "k", "v" * MB)
        return connection

    def test_buffers_are_free_again(self):
        self.begin("--buffer-bytes-max", "32M")
        for _ in range(40):
            connection = self.connect()
            with contextlib.suppress(OSError):
                connection.send(b"*2\r\n$2000000\r\n" + b"x" * 1_900_000)
            connection.close()
        time.sleep(0.5)
        self.assertEqual(self.connect().call("SET", "k", "x" * 1_000_000), b"+OK\r\n")

    def test_those_who_hold_most_pay_for_full_buffers(self):
        friend = self.with_large_value("--buffer-bytes-max", "8M")
        held = [self.connect() for _ in range(6)]
        for connection in held:  # Nobody takes these replies.
            connection.send(Redis.encode("GET", "k") * 30)
        for _ in range(30):
            self.assertEqual(friend.call("SET", "j", "x" * 500_000), b"+OK\r\n")
            time.sleep(0.1)
        shown = friend.call("INFO", "clients")
        self.assertNotIn(b"connected_clients:7\r\n", shown)  # Some of the six are closed.

    def test_one_that_waits_costs_nothing(self):
        self.with_large_value()
        connection = self.connect(timeout=3)
        with contextlib.suppress(OSError):  # Nothing is read.
            connection.send(Redis.encode("GET", "k") * 200_000)
        half = self.connect()
        half.send(Redis.encode("GET", "k") * 30)
        half.socket.shutdown(socket.SHUT_WR)
        before = self.cpu_seconds()
        time.sleep(2)
        self.assertLess(self.cpu_seconds() - before, 0.5)
        with self.frozen_servers():
            other = self.connect()
            other.send(Redis.encode("GET", "other"))
            other.socket.shutdown(socket.SHUT_WR)
            time.sleep(0.5)
            before = self.cpu_seconds()
            time.sleep(2)
            self.assertLess(self.cpu_seconds() - before, 0.5)

    def test_replies_that_are_sent_at_once_leave_no_request(self):
        connection = self.with_large_value()
        for _ in range(100):
            connection.send(Redis.encode("GET", "k") * 5 + Redis.encode("PING"))
            left = 5 * MB_REPLY + len(b"+PONG\r\n")
            while left:
                left -= len(connection.socket.recv(min(left, 4 * MB)))

    def test_reads_no_more_than_it_can_answer(self):
        connection = self.with_large_value()
        before = self.memory()
        connection.send(Redis.encode("GET", "k") * 30)
        time.sleep(1)
        connection.socket.settimeout(2)
        with self.assertRaises(TimeoutError):
            connection.send(Redis.encode("SET", "j", "x" * 100_000) * 1000)
        self.assertLess(self.memory() - before, 100 * MB)

    def test_idle_connections_keep_no_replies(self):
        self.with_large_value()
        before = self.memory()
        for _ in range(25):
            connection = self.connect()
            connection.send(Redis.encode("GET", "k") * 6)
            for _ in range(6):
                connection.read()
        self.assertLess(self.memory() - before, 60 * MB)

    def test_many_that_take_large_values_at_once(self):
        self.with_large_value("--buffer-bytes-max", "64M")
        held = [self.connect() for _ in range(40)]
        for connection in held:
            connection.send(Redis.encode("GET", "k") * 64 + Redis.encode("MGET", *["k"] * 62))
        most = 0
        for _ in range(30):
            most = max(most, self.memory())
            time.sleep(0.1)
        self.assertLess(most, 1500 * MB)  # It was 4 GB.
        for connection in held:
            connection.close()
        self.assertEqual(self.connect().call("PING"), b"+PONG\r\n")

    def test_strangers_are_closed(self):
        _, users = self.begin_with_users("default")
        password = (users / "default").read_text().split()[-1]
        user, stranger, resets = self.connect(), self.connect(), self.connect()
        self.assertEqual(user.call("AUTH", password), b"+OK\r\n")
        self.assertEqual(resets.call("AUTH", password), b"+OK\r\n")
        self.assertTrue(stranger.ended())
        self.assertEqual(resets.call("RESET"), b"+RESET\r\n")  # From now on it is a stranger.
        time.sleep(3)
        self.assertEqual(resets.call("AUTH", "x")[:10], b"-WRONGPASS")
        self.assertTrue(resets.ended())
        self.assertEqual(user.call("PING"), b"+PONG\r\n")

    def test_handshakes_that_do_not_end_are_closed(self):
        _, context = self.begin_with_tls()
        silent = self.connect(1)
        client = self.connect(1, context=context)
        self.assertEqual(client.call("PING"), b"+PONG\r\n")
        self.assertTrue(silent.ended())
        self.assertEqual(client.call("PING"), b"+PONG\r\n")

    def test_an_error_of_one_is_not_that_of_another(self):
        _, context = self.begin_with_tls("--threads", "1")
        for nonsense in (b"PING\r\n", b"\x16\x03\x01\x02\x00"):
            victim = TlsByHand(self.connect(1), context)
            record = victim.record(b"PING\r\n")
            victim.connection.send(record[:-5])
            time.sleep(0.2)
            stranger = self.connect(1)
            stranger.send(nonsense)
            time.sleep(0.2)
            stranger.close()
            time.sleep(0.2)
            victim.connection.send(record[-5:-3])  # No handshake came between, and the record is not whole yet.
            time.sleep(0.2)
            victim.connection.send(record[-3:])
            self.assertEqual(victim.read(7), b"+PONG\r\n")

    def test_tls_clients_that_go(self):
        _, context = self.begin_with_tls()
        self.connect().call("SET", "k", "v" * MB)
        for i in range(20):
            one = self.connect(1, context=context)
            one.send(Redis.encode("GET", "k") * 10)
            time.sleep(0.002 * i)
            one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0" if i % 2 else b"\0\0\0\0\0\0\0\0")
            one.socket.close()
        self.assertEqual(self.connect(1, context=context).call("PING"), b"+PONG\r\n")

    def test_one_that_waits_for_its_reply_is_not_idle(self):
        self.begin("--idle-seconds", "1")
        connection = self.connect()
        connection.call("SET", "k", "v")
        with self.frozen_servers():
            connection.send(Redis.encode("GET", "k"))
            time.sleep(3.5)
        self.assertEqual(connection.read(), b"$1\r\nv\r\n")

    def test_ends_though_replies_are_not_taken(self):
        connection = self.with_large_value()
        connection.send(Redis.encode("GET", "k") * 30)
        time.sleep(1)
        self.gateway.process.terminate()
        self.assertEqual(self.gateway.process.wait(20), 0)

    def test_replies_arrive_after_the_end(self):
        self.with_large_value()
        holds, victim = self.connect(), self.connect()
        victim.send(Redis.encode("GET", "k"))
        time.sleep(0.3)
        holds.send(Redis.encode("GET", "k") * 60)
        time.sleep(0.5)
        self.gateway.process.terminate()
        time.sleep(0.5)
        victim.send(b"PING\r\n")  # Comes too late.
        read = victim.read()
        self.assertEqual(len(read), MB_REPLY)
        self.assertEqual(self.gateway.process.wait(20), 0)


if __name__ == "__main__":
    unittest.main()
