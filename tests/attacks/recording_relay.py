"""A TCP relay on loopback that passes on what comes, and keeps a copy: what somebody on the wire would see."""

import socket
import threading

_PIECE_BYTES = 1 << 16


class RecordingRelay:
    def __init__(self, to_port):
        self._to_port = to_port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._seen = []  # The bytes of each connection, one element for each direction.
        self._sockets = []
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def seen(self):
        """Returns the bytes of all connections, each direction of each by itself."""
        with self._lock:
            return [bytes(one) for one in self._seen]

    def has_seen(self, text):
        return any(text in one for one in self.seen())

    def close(self):
        with self._lock:
            sockets = [self._listener, *self._sockets]
        for one in sockets:
            _end(one)

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._to_port))
            except OSError:
                _end(client)
                continue
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self.connections += 1
                self._sockets += [client, server]
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source, target):
        record = bytearray()
        with self._lock:
            self._seen.append(record)
        try:
            while piece := source.recv(_PIECE_BYTES):
                with self._lock:
                    record += piece
                target.sendall(piece)
        except OSError:
            pass
        _end(source)
        _end(target)


def _end(one):
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    one.close()
