"""A small client of ZooKeeper, which can write any bytes to znodes of any name (Debian's zkCli.sh cannot)."""

import socket
import struct

_CREATE, _DELETE, _GET, _SET, _AUTH, _CLOSE = 1, 2, 4, 5, 100, -11
_ALL_RIGHTS = 31
EPHEMERAL = 1


class ZnodeError(Exception):
    """An error code of ZooKeeper's."""


class ZnodeClient:
    def __init__(self, address):
        host, port = address.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._number = 0
        self.changes = 0  # ZooKeeper's count of all changes, with sessions that begin and end, as of the last answer.
        try:
            self._send(struct.pack(">iqiq", 0, 0, 3_600_000, 0) + _buffer(bytes(16)) + b"\0")
            self._receive()
        except (ZnodeError, OSError):
            self._socket.close()
            raise

    def authenticate(self, digest):
        """Says that we have these credentials, USER:PASSWORD. ZooKeeper takes any; they count when an ACL names them."""
        self._send(struct.pack(">iii", -4, _AUTH, 0) + _text("digest") + _text(digest))
        self._receive()

    def close(self):
        self._socket.close()

    def create(self, path, data, flags=0):
        rights = struct.pack(">ii", 1, _ALL_RIGHTS) + _buffer(b"world") + _buffer(b"anyone")
        self._ask(_CREATE, _text(path) + _buffer(data) + rights + struct.pack(">i", flags))

    def set(self, path, data):
        self._ask(_SET, _text(path) + _buffer(data) + struct.pack(">i", -1))

    def get(self, path):
        answer = self._ask(_GET, _text(path) + b"\0")
        size = struct.unpack_from(">i", answer)[0]
        return answer[4:4 + size]

    def delete(self, path):
        self._ask(_DELETE, _text(path) + struct.pack(">i", -1))

    def _ask(self, kind, request):
        self._number += 1
        self._send(struct.pack(">ii", self._number, kind) + request)
        answer = self._receive()
        number, self.changes, error = struct.unpack_from(">iqi", answer)
        assert number == self._number, answer
        if error != 0:
            raise ZnodeError(error)
        return answer[16:]

    def _send(self, message):
        self._socket.sendall(_buffer(message))

    def _receive(self):
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            piece = self._socket.recv(count - len(data))
            if not piece:
                raise ZnodeError("ZooKeeper has closed the connection")
            data += piece
        return data


def _buffer(data):
    return struct.pack(">i", len(data)) + data


def _text(text):
    return _buffer(text.encode())
