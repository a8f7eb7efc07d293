"""Speaks Cell's protocol over TCP, byte by byte, as a client that means harm would (cell/layout/wire.h,
cell/io/net/handshake.h, cell/io/fabric/tcp)."""

import hashlib
import hmac
import os
import socket
import struct

VERSION = 8
HANDSHAKE_MAGIC = 0x313053484C4C4543
MESSAGE_BYTES_MAX = 64 << 10
UPLOAD_PART_BYTES_MAX = MESSAGE_BYTES_MAX - 64
UPLOADS_MAX = 4
KINDS = {"get": 2, "put": 3, "delete": 4, "scan": 5, "fetch": 6, "upload": 7, "status": 8, "check": 9, "report": 10, "count": 11}
RESOURCE_EXHAUSTED = 8


def root_of(region):
    return region << 40 | 4096


def message(kind, body):
    return struct.pack("<HHI", KINDS[kind], VERSION, 8 + len(body)) + body


def text(kind, said=""):
    return message(kind, said.encode())


def get(root, key, copy=0):
    return message("get", struct.pack("<QQHHHH", root, 0, len(key), copy, 0, 0) + key)


def scan(root, key=b"", limit=4096, keys_only=False):
    return message("scan", struct.pack("<QIIHHBBBB", root, limit, MESSAGE_BYTES_MAX, len(key), 0, 0, keys_only, 0, 0) + key)


def count(root, key=b""):
    return message("count", struct.pack("<QHHI", root, len(key), 0, 0) + key)


def upload(number, offset, piece):
    return message("upload", struct.pack("<IHH", offset, number, 0) + piece)


class RawClient:
    """One connection for calls. Sends what it is told, in any number, and reads the answers when it is told to."""

    def __init__(self, host, port, secret=b""):
        self.socket = socket.create_connection((host, port), timeout=30)
        self.next_id = 0
        nonce = os.urandom(32)
        self.socket.sendall(struct.pack("<QII", HANDSHAKE_MAGIC, 1, 1) + nonce)
        challenge = self._take(80)
        proved = b"client 1 1 " + nonce + challenge[16:48]
        self.socket.sendall(hmac.new(secret, proved, hashlib.sha256).digest())
        if struct.unpack_from("<QI", self._take(16)) != (HANDSHAKE_MAGIC, 1):
            raise ConnectionError("the server refused the handshake")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def _take(self, count):
        taken = b""
        while len(taken) < count:
            part = self.socket.recv(count - len(taken))
            if not part:
                raise ConnectionError("the server has closed the connection")
            taken += part
        return taken

    def send(self, *messages, reply_bytes=MESSAGE_BYTES_MAX):
        frames = b""
        for one in messages:
            frames += struct.pack("<IIQ", len(one), reply_bytes, self.next_id) + one
            self.next_id += 1
        self.socket.sendall(frames)

    def answer(self):
        """Returns the number of the answered call, counted from 0, its status code, and what follows the header."""
        size, _, number = struct.unpack("<IIQ", self._take(16))
        reply = self._take(size)
        return number, struct.unpack_from("<H", reply, 2)[0], reply[16:]

    def call(self, one, reply_bytes=MESSAGE_BYTES_MAX):
        self.send(one, reply_bytes=reply_bytes)
        return self.answer()
