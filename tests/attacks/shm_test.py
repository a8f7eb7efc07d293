"""Another user of the machine at the socket for shared memory. The files' modes are opened on purpose, so that only the
question to the kernel, who connects, protects the server."""

import grp
import os
import socket
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from tests.attacks import stranger
from tools import cluster, free_ports, zookeeper_server

MAGIC, VERSION = b"CELSHM01", 4
CLIENT, SERVER = 1, 3
SMALL = ["--meganode-bytes", "2M", "--extents-bytes", "8M", "--regions-max", "4", "--durability", "none"]


def greet(path, role):
    """Greets as a client of shared memory. Returns the server's answer, and how many descriptors came with it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(20)
        connection.connect(path)
        name = b"server-1"
        connection.sendall(MAGIC + struct.pack("<IBB2x", VERSION, role, len(name)) + name.ljust(64, b"\0"))
        answer, descriptors, _, _ = socket.recv_fds(connection, 4096, 8)
        for descriptor in descriptors:
            os.close(descriptor)
        return answer, len(descriptors)


class Shm(unittest.TestCase):
    def setUp(self):
        stranger.skip_unless_root(self)
        self.base = stranger.open_parent("cell-shm-attack-")
        self.addCleanup(subprocess.run, ["rm", "-rf", str(self.base)], check=True)

    def serve(self, *flags):
        """Starts a server whose membership is in ZooKeeper, and opens its socket to everyone. Returns the socket."""
        port = free_ports.free_port()
        zookeeper = zookeeper_server.start_zookeeper(self.base / "zookeeper", port)
        self.addCleanup(cluster.end, [zookeeper])
        zookeeper_server.wait_for_zookeeper(port, zookeeper)
        directory = Path(tempfile.mkdtemp(prefix="server-", dir=self.base))
        log = open(directory / "log", "wb")  # pylint: disable=consider-using-with
        self.addCleanup(log.close)
        server = subprocess.Popen([cluster.binary("cell/cmd/cell_server"), "--dir", str(directory), "--name", "server-0", "--cluster",
                                   f"zk://127.0.0.1:{port}/cell", "--insecure", *SMALL, *flags], stdout=log, stderr=log)
        self.addCleanup(cluster.end, [server])
        path = directory / "server-0.0.sock"
        limit = time.monotonic() + 60
        while not path.exists() and server.poll() is None and time.monotonic() < limit:
            time.sleep(0.05)
        self.modes = oct(directory.stat().st_mode & 0o777), oct(path.stat().st_mode & 0o777), path.stat().st_gid
        directory.chmod(0o711)
        path.chmod(0o666)
        self.assertEqual(greet(str(path), SERVER)[1], 1)  # Root is served: the rings come with the answer.
        return str(path)

    def test_another_user_is_sent_away(self):
        path = self.serve()
        self.assertEqual(self.modes[:2], ("0o700", "0o600"))
        for role in (CLIENT, SERVER):
            answer = stranger.run(lambda role=role: greet(path, role))
            self.assertEqual(answer.value, (b"", 0), answer.error)

    def test_a_member_of_the_group_is_served(self):
        path = self.serve("--shm-group", grp.getgrgid(stranger.STRANGER).gr_name)
        self.assertEqual(self.modes, ("0o710", "0o660", stranger.STRANGER))
        answer = stranger.run(lambda: greet(path, CLIENT))
        self.assertEqual((answer.value[0][:8], answer.value[1]), (MAGIC, 1), answer.error)


if __name__ == "__main__":
    unittest.main()
