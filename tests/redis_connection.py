"""A plain client of Redis's protocol, for tests that compare replies byte by byte."""

import select
import socket
import ssl


class Redis:
    """Sends requests and returns replies as they are on the wire."""

    def __init__(self, address, timeout=30, context=None):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=timeout)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def close(self):
        self.socket.close()

    @staticmethod
    def encode(*words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)

    def send(self, data):
        self.socket.sendall(data)

    def _receive(self):
        data = self.socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the connection was closed")
        self.buffer += data

    def _line(self, at):
        while (end := self.buffer.find(b"\r\n", at)) < 0:
            self._receive()
        return self.buffer[at:end], end + 2

    def _end(self, at):
        line, end = self._line(at)
        kind, count = line[:1], line[1:]
        if kind in (b"$", b"=") and int(count) >= 0:
            end += int(count) + 2
            while len(self.buffer) < end:
                self._receive()
        elif kind in (b"*", b"~", b"%"):
            for _ in range(int(count) * (2 if kind == b"%" else 1)):
                end = self._end(end)
        return end

    def read(self):
        """Returns the bytes of the next reply."""
        end = self._end(0)
        reply, self.buffer = self.buffer[:end], self.buffer[end:]
        return reply

    def call(self, *words):
        self.send(self.encode(*words))
        return self.read()

    def refused_at_once(self, seconds=0.2):
        """Returns whether the other side says something before it was asked."""
        return bool(select.select([self.socket], [], [], seconds)[0])

    def refused(self):
        """Returns whether the other side closes the connection, whatever it says before."""
        try:
            while self.socket.recv(1 << 16):
                pass
            return True
        except TimeoutError:
            return False
        except OSError:
            return True

    def ended(self):
        """Returns whether the other side closes the connection, and says nothing more."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


class TlsByHand:
    """A client with TLS that decides itself which bytes are sent when."""

    def __init__(self, connection, context):
        self.connection = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._session = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        while True:
            try:
                self._session.do_handshake()
                break
            except ssl.SSLWantReadError:
                connection.send(self._outgoing.read())
                self._receive()
        connection.send(self._outgoing.read())

    def _receive(self):
        data = self.connection.socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the connection was closed")
        self._incoming.write(data)

    def record(self, data):
        """Returns the bytes that say `data`, and are to be sent."""
        self._session.write(data)
        return self._outgoing.read()

    def read(self, size):
        data = b""
        while len(data) < size:
            try:
                data += self._session.read(size - len(data))
            except ssl.SSLWantReadError:
                self._receive()
        return data
