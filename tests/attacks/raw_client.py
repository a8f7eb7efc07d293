"""Speaks Cell's protocol over TCP, byte by byte, as a client that means harm would (cell/layout/wire.h,
cell/io/net/handshake.h, cell/io/fabric/tcp)."""

import hashlib
import hmac
import os
import socket
import struct
import subprocess

VERSION = 16
MAGIC = b"CELLHS01"
HANDSHAKE_VERSION = 2
CALLS, READS = 1, 2  # What a connection is for.
CLIENT, OPERATOR, SERVER = 1, 2, 3
ROLES = {CLIENT: "client", OPERATOR: "operator", SERVER: "server"}
CHALLENGE_BYTES, PROOF_BYTES, WELCOME_BYTES = 48, 32, 48
MESSAGE_BYTES_MAX = 64 << 10
UPLOAD_PART_BYTES_MAX = MESSAGE_BYTES_MAX - 64
UPLOADS_MAX = 4
KINDS = {"get": 2, "put": 3, "delete": 4, "scan": 5, "fetch": 6, "upload": 7, "status": 8, "check": 9, "report": 10, "count": 11,
         "time": 13, "add_route": 16, "migration": 17, "weigh": 18, "remove_route": 19}
OK, PERMISSION_DENIED, RESOURCE_EXHAUSTED = 0, 7, 8


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


def hello(purpose, role, name):
    """Returns the first message of the handshake, without a secret."""
    return (MAGIC + struct.pack("<II", HANDSHAKE_VERSION, purpose) + os.urandom(32) + bytes(8) +
            struct.pack("<BB6x", role, len(name)) + name.encode().ljust(64, b"\0"))


def proof(greeting, challenge, purpose, role, name):
    """Returns the answer to the server's challenge, without a secret."""
    said = f"client {HANDSHAKE_VERSION} {purpose} {ROLES[role]}/{name} ".encode() + greeting[16:48] + challenge[16:48]
    return hmac.new(bytes(32), said, hashlib.sha256).digest()


def is_welcome(answer):
    return len(answer) == WELCOME_BYTES and struct.unpack_from("<8sI", answer) == (MAGIC, 1)


class Pipe:
    """A connection through `openssl s_client`."""

    def __init__(self, address, *flags):
        self.process = subprocess.Popen(
            ["openssl", "s_client", "-connect", address, "-quiet", "-nocommands", "-tls1_3", *flags],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def send(self, data):
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass

    def receive(self, count):
        """Returns `count` bytes, or fewer if the server closes."""
        data = b""
        while len(data) < count:
            part = os.read(self.process.stdout.fileno(), count - len(data))
            if not part:
                break
            data += part
        return data

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class RawClient:
    """One connection for calls. Sends what it is told, in any number, and reads the answers when it is told to."""

    def __init__(self, host, port, role=OPERATOR, name="raw"):
        self.socket = socket.create_connection((host, port), timeout=30)
        self.next_id = 0
        greeting = hello(CALLS, role, name)
        self.socket.sendall(greeting)
        self.socket.sendall(proof(greeting, self._take(CHALLENGE_BYTES), CALLS, role, name))
        if not is_welcome(self._take(WELCOME_BYTES)):
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
