"""Starts a small cluster with a gateway, for tests."""

import contextlib
import os
import re
import select
import signal
import ssl
import subprocess
import tempfile
import unittest
from pathlib import Path

from tests.redis_connection import Redis
from tools import cluster

SMALL = {"servers": 2, "meganode_bytes": 1 << 20, "extents_bytes": 8 << 20, "regions_max": 64}


class Gateway:
    """A cluster in a directory, and a gateway to it."""

    def __init__(self, directory, *flags, **options):
        self.directory = directory
        self.servers = cluster.up(directory, **{**SMALL, **options})
        self.process = None
        self.addresses = []
        try:
            self.start(*flags)
        except BaseException:
            self.stop()
            raise

    def start(self, *flags):
        self.process = subprocess.Popen([cluster.binary("tools/cell_gateway"), "--cluster", str(self.directory), "--listen", "127.0.0.1:0", *flags],
                                        stdout=subprocess.PIPE, bufsize=0)
        lines = 2 if "--listen-tls" in flags else 1
        self.addresses = []
        for _ in range(lines):
            if not select.select([self.process.stdout], [], [], 60)[0]:
                raise TimeoutError("the gateway did not say where it listens")
            line = self.process.stdout.readline().decode()
            match = re.search(r" at (\S+)$", line)
            if match is None:
                raise RuntimeError(f"the gateway said {line!r}")
            self.addresses.append(match.group(1))

    @property
    def address(self):
        return self.addresses[0]

    def end(self):
        """Ends the gateway as a user would, and returns its exit status."""
        self.process.terminate()
        status = self.process.wait(60)
        self.process.stdout.close()
        self.process = None
        return status

    def stop(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait(60)
            self.process.stdout.close()
        cluster.end(self.servers)


class GatewayCase(unittest.TestCase):
    """Tests with a cluster and a gateway each."""

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="cell-gateway-")
        self.base = Path(self.temporary.name)
        self.gateway = None

    def tearDown(self):
        if self.gateway is not None:
            self.gateway.stop()
        self.temporary.cleanup()

    def begin(self, *flags, **options):
        self.gateway = Gateway(self.base / "cluster", *flags, **options)

    def make_certificate(self, name, *flags):
        key, certificate = self.base / f"{name}.key", self.base / f"{name}.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate), "-days", "2",
                        "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}", *flags], check=True, stderr=subprocess.DEVNULL)
        return key, certificate

    def begin_with_tls(self, *flags):
        """Starts a gateway whose second address is for TLS. Returns the certificate's file, and a client's context."""
        key, certificate = self.make_certificate("localhost")
        self.begin("--listen-tls", "127.0.0.1:0", "--certificate", str(certificate), "--key", str(key), *flags)
        return certificate, ssl.create_default_context(cafile=str(certificate))

    def begin_with_users(self, *names):
        """Starts a gateway for which clients have to authenticate. Returns the cluster's secret file, and the directory of
        the users'."""
        secret, users = self.base / "cluster.secret", self.base / "users"
        users.mkdir()
        ctl = cluster.binary("tools/cellctl")
        subprocess.run([ctl, "secret", "new", str(secret)], check=True, stdout=subprocess.DEVNULL)
        for name in names:
            subprocess.run([ctl, "secret", "for", f"client/{name}", str(secret), str(users / name)], check=True, stdout=subprocess.DEVNULL)
        self.begin("--users", str(users), "--fabric", "tcp", fabric="tcp", secret_file=str(secret))
        return secret, users

    def connect(self, index=0, **options):
        connection = Redis(self.gateway.addresses[index], **options)
        self.addCleanup(connection.close)
        return connection

    @contextlib.contextmanager
    def frozen_servers(self):
        for server in self.gateway.servers:
            server.send_signal(signal.SIGSTOP)
            os.waitpid(server.pid, os.WUNTRACED)  # Until it has stopped.
        try:
            yield
        finally:
            for server in self.gateway.servers:
                server.send_signal(signal.SIGCONT)

    def memory(self):
        """Returns the gateway's resident memory in bytes."""
        status = Path(f"/proc/{self.gateway.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) << 10

    def cpu_seconds(self):
        """Returns how long the gateway has computed."""
        fields = Path(f"/proc/{self.gateway.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / 100
