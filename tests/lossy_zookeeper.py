"""A proxy in front of ZooKeeper that loses connections in the middle of changes of the region table.

Every `each`-th change of a znode */table is lost: alternately after ZooKeeper has made it, with its answer, or
before ZooKeeper has received it. For its client both are the same CONNECTION_LOSS.
"""

import json
import socket
import struct
import threading

_SET_DATA = 5


class LossyZookeeper:
    def __init__(self, port, each):
        self._port, self._each = port, each
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self.changes = 0
        self.lost_with_answer = 0
        self.lost_before = 0
        self.table = None  # As last changed by a server.
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
            pending = {}  # Per request: the table after the change, and whether its answer is dropped.
            threading.Thread(target=self._requests, args=(client, server, pending), daemon=True).start()
            threading.Thread(target=self._answers, args=(client, server, pending), daemon=True).start()

    def _requests(self, client, server, pending):
        try:
            server.sendall(_frame(client))  # Connect.
            while True:
                frame = _frame(client)
                xid, kind = struct.unpack_from(">ii", frame, 4)
                if kind == _SET_DATA and self._loses(frame, xid, pending):
                    break
                server.sendall(frame)
        except OSError:
            pass
        _end(client)
        _end(server)

    def _loses(self, frame, xid, pending):
        """Returns whether a change is lost before ZooKeeper receives it."""
        path_bytes = struct.unpack_from(">i", frame, 12)[0]
        path = frame[16 : 16 + path_bytes].decode()
        if not path.endswith("/table"):
            return False
        data_at = 16 + path_bytes
        data = frame[data_at + 4 : data_at + 4 + struct.unpack_from(">i", frame, data_at)[0]]
        with self._lock:
            self.changes += 1
            lost = self.changes % self._each == 0
            before = lost and (self.changes // self._each) % 2 == 0
            self.lost_before += before
            pending[xid] = (json.loads(data), lost)
            return before

    def _answers(self, client, server, pending):
        try:
            client.sendall(_frame(server))
            while True:
                frame = _frame(server)
                xid, _, error = struct.unpack_from(">iqi", frame, 4)
                table, lost = pending.pop(xid, (None, False))
                with self._lock:
                    if table is not None and error == 0:
                        self.table = table
                        self.lost_with_answer += lost
                if lost:
                    break
                client.sendall(frame)
        except OSError:
            pass
        _end(client)
        _end(server)


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
