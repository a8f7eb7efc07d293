"""A proxy in front of ZooKeeper that loses connections in the middle of changes of the region table.

Every `each`-th change of a region table is lost: alternately after ZooKeeper has made it, with its answer, or before
ZooKeeper has received it. For its client both are the same CONNECTION_LOSS.
"""

import socket
import struct
import threading

# Kinds of requests.
_CREATE, _DELETE, _SET_DATA, _MULTI = 1, 2, 5, 14


class LossyZookeeper:
    def __init__(self, port, each):
        self._port, self._each = port, each
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self.changes = 0
        self.lost_with_answer = 0
        self.lost_before = 0
        self.znodes = {}  # What servers wrote into the table's znodes.
        self._sockets = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._each = 1 << 60
        for one in [self._listener, *self._sockets]:
            _end(one)

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._port))
            self._sockets += [client, server]
            pending = {}  # Per request: what it writes (None: it deletes), and whether its answer is dropped.
            threading.Thread(target=self._requests, args=(client, server, pending), daemon=True).start()
            threading.Thread(target=self._answers, args=(client, server, pending), daemon=True).start()

    def _requests(self, client, server, pending):
        try:
            server.sendall(_frame(client))  # Connect.
            while True:
                frame = _frame(client)
                xid, kind = struct.unpack_from(">ii", frame, 4)
                if kind == _MULTI and self._loses(frame, xid, pending):
                    break
                server.sendall(frame)
        except OSError:
            pass
        _end(client)
        _end(server)

    def _loses(self, frame, xid, pending):
        """Returns whether a change is lost before ZooKeeper receives it."""
        written = _written(frame)
        if not any(path.endswith("/table") for path in written):
            return False
        with self._lock:
            self.changes += 1
            lost = self.changes % self._each == 0
            before = lost and (self.changes // self._each) % 2 == 0
            self.lost_before += before
            pending[xid] = (written, lost)
            return before

    def _answers(self, client, server, pending):
        try:
            client.sendall(_frame(server))
            while True:
                frame = _frame(server)
                xid, _, error = struct.unpack_from(">iqi", frame, 4)
                written, lost = pending.pop(xid, ({}, False))
                # The answer of the first operation says whether they were made: its kind is -1 if not.
                made = written and error == 0 and struct.unpack_from(">i", frame, 20)[0] != -1
                with self._lock:
                    if made:
                        self.znodes.update(written)
                        self.lost_with_answer += lost
                if lost:
                    break
                client.sendall(frame)
        except OSError:
            pass
        _end(client)
        _end(server)


def _buffer(frame, at):
    """Returns bytes that are preceded by their length, and where they end."""
    size = struct.unpack_from(">i", frame, at)[0]
    return frame[at + 4 : at + 4 + size], at + 4 + size


def _written(frame):
    """Returns what a request of several operations writes to each znode; None for one that it deletes."""
    written, at = {}, 12
    while True:
        kind, done = struct.unpack_from(">i?", frame, at)
        at += 9
        if done:
            return written
        path, at = _buffer(frame, at)
        data = None
        if kind != _DELETE:
            data, at = _buffer(frame, at)
        if kind == _CREATE:  # Access rights, each with two texts.
            rights = struct.unpack_from(">i", frame, at)[0]
            at += 4
            for _ in range(rights):
                _, at = _buffer(frame, at + 4)
                _, at = _buffer(frame, at)
        at += 4  # The version, or flags.
        written[path.decode()] = data


def _frame(from_socket):
    """Receives a message preceded by its length."""
    head = _exactly(from_socket, 4)
    return head + _exactly(from_socket, struct.unpack(">i", head)[0])


def _exactly(from_socket, count):
    data = b""
    while len(data) < count:
        piece = from_socket.recv(count - len(data))
        if not piece:
            raise OSError("closed")
        data += piece
    return data


def _end(one):
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    one.close()
