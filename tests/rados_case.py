"""Starts a Ceph, one monitor and three OSDs on loopback, and small clusters beside it."""

import contextlib
import os
import signal
import subprocess
import tempfile
import unittest
from pathlib import Path

from tools import cluster, cluster_directory, cluster_down
from tools.ceph_server import Ceph
from tools.free_ports import free_port

SMALL = {"meganode_bytes": 1 << 20, "extents_bytes": 2 << 20, "regions_max": 64, "durability": "sync"}


class RadosCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="cell-rados-")
        cls.ceph = Ceph(Path(cls.temporary.name) / "ceph", free_port(), osds=3)

    @classmethod
    def tearDownClass(cls):
        cls.ceph.stop(signal.SIGKILL)
        cls.temporary.cleanup()

    def setUp(self):
        self.directory = Path(tempfile.mkdtemp(prefix="cluster-", dir=self.temporary.name))
        self.place = f"rados:cell@{self.ceph.conf}"
        self.servers = []

    def tearDown(self):
        if os.environ.get("CELL_SHOW_LOGS"):
            for log in sorted(self.directory.glob("server-*.log")):
                print(log.read_text())
        for process in self.servers:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        cluster.end(self.servers)
        if (self.directory / "processes.json").exists():
            cluster_down.down(self.directory)
        if cluster.settings_of(self.directory) is not None:
            cluster.wipe(self.directory)
        self.assertEqual(self.objects(), [])  # Nothing is left of any log.

    def objects(self):
        return self.ceph.run("rados", "-p", "cell", "ls").split()

    def up(self, servers=3, **options):
        self.options = {**SMALL, "servers": servers, "log_store": self.place, **options}
        self.servers = cluster.up(self.directory, **self.options)

    def ctl(self, *arguments, **options):
        return subprocess.run([cluster.binary("tools/cellctl"), "--cluster", cluster_directory.address_of(self.directory), *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False, text=True, timeout=120, env=cluster.environment(self.directory), **options)

    def done(self, *arguments, **options):
        result = self.ctl(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    @contextlib.contextmanager
    def full_pool(self):
        try:
            for ratio, value in (("nearfull", 0.0001), ("backfillfull", 0.0002), ("full", 0.0003)):
                self.ceph.ceph("osd", f"set-{ratio}-ratio", value)
            yield
        finally:
            for ratio, value in (("full", 0.95), ("backfillfull", 0.9), ("nearfull", 0.85)):
                self.ceph.ceph("osd", f"set-{ratio}-ratio", value)
            self.ceph.wait_until_active()

    def wrong_configurations(self):
        """Returns texts behind a pool's name, and what is said about each."""
        keyring, monitor = (Path(self.temporary.name) / f"no-{what}.conf" for what in ("keyring", "monitor"))
        right = self.ceph.conf.read_text()
        keyring.write_text(right.replace(f"keyring = {self.ceph.directory}/keyring", "keyring = /nowhere/keyring"))
        monitor.write_text(right.replace(f"v2:127.0.0.1:{self.ceph.port}", f"v2:127.0.0.1:{free_port()}"))
        pipe, commas = Path(self.temporary.name) / "pipe", Path(self.temporary.name) / "a,b.conf"
        if not pipe.exists():
            os.mkfifo(pipe)
        commas.write_text(right)
        return ((f"@{pipe}", f"{pipe} is not a file"), (f"@{commas}", "must not contain spaces"),
                ("@/nowhere/ceph.conf", "cannot read the Ceph configuration /nowhere/ceph.conf"), (f"@{keyring}", "does not let this client in"),
                (f"@{monitor}", "the monitors of the Ceph cluster"))

    def rados(self, *arguments, **options):
        return self.ceph.run("rados", "-p", "cell", *arguments, **options)
