"""A test case that starts ZooKeepers and clusters which use them."""

import os
import signal
import subprocess
import tempfile
import unittest
import unittest.mock
from pathlib import Path

from tests.attacks.znode_client import ZnodeClient
from tools import cluster, cluster_directory, free_ports, zookeeper_server

SMALL = {"meganode_bytes": 2 << 20, "extents_bytes": 8 << 20, "regions_max": 64}


class ZooKeeperCase(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="cell-zk-")
        self.directory = Path(self.temporary.name)
        self.servers, self.zookeepers = [], []
        given = unittest.mock.patch.dict(os.environ, {"CELL_ZOOKEEPER_DIGEST": "cell:a password of these tests"})
        given.start()
        self.addCleanup(given.stop)

    def tearDown(self):
        for process in self.zookeepers:
            os.killpg(process.pid, signal.SIGCONT)
        cluster.end(self.servers)
        for process in self.zookeepers:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # The script that starts it, and Java.
            except ProcessLookupError:
                pass
            process.wait()
        self.temporary.cleanup()

    def ensemble(self, count):
        ports = [free_ports.free_port() for _ in range(3 * count)]
        members = {i + 1: (ports[3 * i + 1], ports[3 * i + 2]) for i in range(count)} if count > 1 else None
        for i in range(count):
            self.zookeepers.append(zookeeper_server.start_zookeeper(self.directory / f"zookeeper-{i}", ports[3 * i], members, i + 1))
        for i in range(count):
            zookeeper_server.wait_for_zookeeper(ports[3 * i], self.zookeepers[i])
        return ",".join(f"127.0.0.1:{ports[3 * i]}" for i in range(count))

    def up(self, zookeeper, servers=3, **options):
        self.servers = cluster.up(self.directory / "cell", servers=servers, zookeeper=zookeeper, **{**SMALL, **options})
        self.address = cluster_directory.address_of(self.directory / "cell")

    def ctl(self, *arguments, address=None, **options):
        return subprocess.run([cluster.binary("tools/cellctl"), "--cluster", address or self.address, *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, text=True, timeout=60, **options)

    def bench(self, *arguments):
        return subprocess.Popen([cluster.binary("tools/cell_bench"), "--cluster", self.address, "--json", "-", *arguments],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wipe(self, *flags):
        return subprocess.run([cluster.binary("tools/wipe"), "--cluster", self.address, *flags], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, text=True, timeout=60)

    def znodes(self, zookeeper):
        znodes = ZnodeClient(zookeeper)
        self.addCleanup(znodes.close)
        znodes.authenticate(os.environ["CELL_ZOOKEEPER_DIGEST"])
        return znodes
