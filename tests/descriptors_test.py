"""Floods a server so that its descriptors run out: its logs still work, and connected clients are still served."""

import contextlib
import resource
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from tools import cluster

LINES = 2_000


def open_descriptors(pid):
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


class Descriptors(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="cell-descriptors-")
        self.directory = Path(self.temporary.name)
        self.servers = cluster.up(self.directory, servers=1, durability="sync", meganode_bytes=2 << 20, extents_bytes=4 << 20)

    def tearDown(self):
        cluster.end(self.servers)
        self.temporary.cleanup()

    def ctl(self, *arguments, **options):
        command = [cluster.binary("tools/cellctl"), "--cluster", str(self.directory), *arguments]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)

    def flood(self, kind, address, count, held):
        for _ in range(count):
            stranger = held.enter_context(socket.socket(*kind))
            stranger.setblocking(False)
            with contextlib.suppress(OSError):  # In progress, or the queue is full.
                stranger.connect(address)

    def test_logs_go_on_while_connections_take_all_descriptors(self):
        server = self.servers[0].pid
        self.assertEqual(resource.prlimit(server, resource.RLIMIT_NOFILE), (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        loader = self.ctl("load", "-")
        for i in range(LINES):
            loader.stdin.write(f"before{i:05}\tvalue\n")
        loader.stdin.flush()
        deadline = time.monotonic() + 30
        found = 1
        while found != 0:  # Then it is connected.
            self.assertLess(time.monotonic(), deadline)
            with self.ctl("has", "before00000") as has:
                found = has.wait(30)
        limit = open_descriptors(server) + 40
        resource.prlimit(server, resource.RLIMIT_NOFILE, (limit, limit))
        with contextlib.ExitStack() as held:
            # The listeners of the fabric and of the control plane keep some back.
            self.flood((socket.AF_UNIX, socket.SOCK_SEQPACKET), str(self.directory / "server-0.0.sock"), 100, held)
            made_room = "closed a connection that had sent no handshake, to make room for others"
            deadline = time.monotonic() + 30
            while made_room not in (self.directory / "server-0.log").read_text():
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
            # Those of the other listener come when the first has its share, which it takes slowly.
            self.flood((socket.AF_UNIX, socket.SOCK_STREAM), str(self.directory / "server-0.control.sock"), 200, held)
            time.sleep(0.5)
            taken = open_descriptors(server)
            self.assertLess(taken, limit)
            # Nothing else takes the rest, as something in the process may.
            resource.prlimit(server, resource.RLIMIT_NOFILE, (taken, limit))
            # Use only `communicate`, so that a loader that has ended says why.
            _, error = loader.communicate("".join(f"during{i:05}\tvalue\n" for i in range(LINES)), timeout=60)
            self.assertEqual(loader.returncode, 0, error)
        resource.prlimit(server, resource.RLIMIT_NOFILE, (limit, limit))  # A quarter of fewer would be kept back from clients.
        log = (self.directory / "server-0.log").read_text()
        self.assertNotIn("has failed", log)
        deadline = time.monotonic() + 30
        value = error = ""
        while value != "value":  # The server may not have closed the flood's connections yet, and refuse a client.
            self.assertLess(time.monotonic(), deadline, error)
            with self.ctl("get", f"during{LINES - 1:05}") as got:
                value, error = got.communicate(timeout=60)


if __name__ == "__main__":
    unittest.main()
