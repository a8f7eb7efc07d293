"""The servers of a soak's round, the ZooKeeper and the network between them, and the disk or the Ceph that they share."""

import contextlib
import json
import mmap
import os
import resource
import signal
import struct
import subprocess
import time
from pathlib import Path

from tests import namespaces
from tools import cluster, cluster_settings, zookeeper_server
from tools.ceph_server import Ceph
from tools.free_ports import free_port

DISK_BYTES = 256 << 20
CEPH_OSDS = 3
CEPH_OSD_BYTES = 1 << 30
CTL_SECONDS = 30
DISK_WORDS = 4  # Size of disk.cc's struct.


class Disk:
    """A file system of bounded size in memory, which can be full, and the shared page that controls disk.cc, by server.
    """

    def __init__(self, directory):
        self.directory = directory
        directory.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(directory)], check=False,
                                 stderr=subprocess.DEVNULL)
        self.bounded = mounted.returncode == 0

    def fill(self):
        """Leaves room for a few blocks."""
        for spare in (8, 64, 512):  # Servers write meanwhile, and a disk smaller than its content is refused.
            used = os.statvfs(self.directory)
            if self._resize((used.f_blocks - used.f_bfree + spare) * used.f_frsize):
                return

    def empty(self):
        self._resize(DISK_BYTES)

    def _resize(self, size):
        return self.bounded and subprocess.run(["mount", "-o", f"remount,size={size}", str(self.directory)], check=False,
                                               stderr=subprocess.DEVNULL).returncode == 0

    def keep(self, directory):
        """Copies what is on it, which goes with the namespace otherwise. Servers may write meanwhile."""
        subprocess.run(["cp", "--archive", str(self.directory), str(directory)], check=False, stderr=subprocess.DEVNULL)

    def close(self):
        if self.bounded:
            subprocess.run(["umount", "--lazy", str(self.directory)], check=False)


class Server:
    """A server's process, which is restarted repeatedly."""

    def __init__(self, name, directory, log, command, descriptors):
        self.name, self.directory, self.log, self.command, self.descriptors = name, directory, log, command, descriptors
        self.process = None
        self.stopped = False
        self.ended_by_us = True
        self.ending = self.killed = False  # It was asked to end; it was killed.
        self.log_begins = 0  # Where the log of the running process begins.
        shared = directory.parent.parent / f"{name}.disk"
        shared.write_bytes(bytes(DISK_WORDS * 8))
        with open(shared, "r+b") as file:
            self.disk = mmap.mmap(file.fileno(), DISK_WORDS * 8)
        self.environment = {**os.environ, "LD_PRELOAD": cluster.binary("tests/soak/disk.so"), "SOAK_DISK": str(shared)}

    def start(self, *flags):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (self.descriptors, self.descriptors))

        with open(self.log, "ab") as log:
            self.log_begins = log.tell()
            self.process = subprocess.Popen([*self.command, *flags], env=self.environment, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, preexec_fn=limit if self.descriptors else None)
        self.ended_by_us = self.ending = self.killed = False
        self.stopped = False

    @property
    def running(self):
        return self.process is not None and self.process.poll() is None

    def said(self):
        """Returns what this process has logged."""
        return self.log.read_bytes()[self.log_begins:].decode(errors="replace")

    def serves(self):
        """Returns whether it runs and has started completely."""
        return self.running and not self.ending and "serves with" in self.said()

    def could_not_start(self):
        """Returns whether it ended before it could serve, and said why, as it must if its ZooKeeper or disk does not
        answer."""
        return not self.running and self.process.returncode == 2 and "serves with" not in self.said()

    def kill(self):
        self.ended_by_us = self.killed = True
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.stopped = True
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.stopped = False
        if self.running:
            self.process.send_signal(signal.SIGCONT)

    def set_disk(self, delay_us=0, one_in=0, error=0, hung=0):
        self.disk[:] = struct.pack("q" * DISK_WORDS, delay_us, one_in, error, hung)

    def begin_end(self):
        """Asks it to end."""
        self.ended_by_us = self.ending = True
        self.process.terminate()

    def ended_well(self):
        """Returns whether it has ended properly, given that a disk or ZooKeeper may not answer: with 0, or with 3 and a
        message, or before it served."""
        status = self.process.returncode
        if status == 3:
            return "stops waiting for its disk and ends" in self.said()
        return status == 0 or (status == -signal.SIGTERM and "serves with" not in self.said()) or self.could_not_start()

    def end(self, seconds=20):
        """Asks it to end, and waits. Returns False if it did not end in time, or failed."""
        self.begin_end()
        try:
            return self.process.wait(seconds) == 0
        except subprocess.TimeoutExpired:
            return False


class Servers:
    """A cluster according to a round's plan (faults.Plan). Closing it ends all processes."""

    def __init__(self, plan, directory):
        self.plan, self.directory = plan, directory
        self.closing = contextlib.ExitStack()
        try:
            self._start()
        except BaseException:
            self.closing.close()
            raise

    def _start(self):
        plan = self.plan
        self.disk = Disk(self.directory / "disk")
        self.closing.callback(self.disk.close)
        self.home = self.directory / "disk" / "cluster"
        self.home.mkdir()
        self.network = None
        names = [f"server-{i}" for i in range(plan.servers)]
        prefixes = {name: [] for name in names}
        if plan.zookeeper:
            self.network = namespaces.Network()
            self.closing.callback(self.network.close)
            hosts = ["zookeeper", *(["ceph"] if plan.ceph else []), *names, *(f"client-{i}" for i in range(plan.client_hosts))]
            addresses = {host: self.network.add(host) for host in hosts}
            self.zookeeper = zookeeper_server.start_zookeeper(self.directory / "zookeeper", 2181, host=addresses["zookeeper"],
                                                              prefix=self.network.on("zookeeper"))
            self.closing.callback(cluster.end, [self.zookeeper])
            asks = f"exec 3<>/dev/tcp/{addresses['zookeeper']}/2181 && printf ruok >&3 && head -c 4 <&3"
            ask = [*self.network.on("client-0"), "timeout", "2", "bash", "-c", asks]
            self.wait_for(lambda: subprocess.run(ask, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout == b"imok", 60,
                          "ZooKeeper does not answer")
            self.address = f"zk://{addresses['zookeeper']}:2181/soak"
            prefixes = {name: self.network.on(name) for name in names}
        else:
            self.address = str(self.home)
            settings = {"servers": plan.servers, "workers": plan.workers, "node_bytes": plan.node_bytes, "meganode_bytes": plan.meganode_bytes,
                        "extents_bytes": plan.extents_bytes, "regions_max": plan.regions_max, "durability": plan.durability,
                        "fabric": plan.fabric, "host": "127.0.0.1" if plan.fabric == "auto" else None}
            described = cluster_settings.describe(self.home, settings)
            self.tcp = {one["name"]: one["workers"][0].get("tcp") for one in described["servers"]}
            (self.home / "cluster.json").write_text(json.dumps(described))
        logs = ["--log-store", self._start_ceph()] if plan.ceph else ["--log-dir", str(self.home / "log")]
        self.servers = []
        for name in names:
            command = [*prefixes[name], cluster.binary("cell/cmd/cell_server"), "--dir", str(self.home), "--name", name,
                       "--fabric", plan.fabric, "--takeover-after", "0.3", "--checkpoint-mb", str(plan.checkpoint_mb), *logs]
            if plan.zookeeper:
                command += ["--cluster", self.address, "--workers", str(plan.workers), "--listen", f"{addresses[name]}:7000", "--insecure",
                            "--durability", plan.durability, "--regions-max", str(plan.regions_max), "--node-bytes", str(plan.node_bytes),
                            "--meganode-bytes", str(plan.meganode_bytes), "--extents-bytes", str(plan.extents_bytes)]
            self.servers.append(Server(name, self.home, self.directory / f"{name}.log", command, plan.descriptors))
        self.closing.callback(self._end_all)
        for server in self.servers:
            server.start()
            if server is self.servers[0]:
                self.wait_for(lambda: server.name in self.statuses() or self._failed_start(server), 60, "the first server does not answer")
        self.wait_for(lambda: len(self.statuses()) == plan.servers, 60, "not all servers answer")
        for layout in plan.tables:
            self.wait_for(lambda: self.ctl("hash", "create", layout, "--layout", layout).returncode == 0, 30, "no table can be made")

    def _start_ceph(self):
        """Starts a Ceph, and returns the place of logs in it."""
        on = {} if self.network is None else {"host": self.network.addresses["ceph"], "prefix": self.network.on("ceph")}
        self.ceph = Ceph(self.directory / "ceph", free_port(), osds=CEPH_OSDS, osd_bytes=CEPH_OSD_BYTES, **on)
        self.closing.callback(self.ceph.stop, signal.SIGKILL)
        return f"rados:{self.ceph.pool}@{self.ceph.conf}"

    def _failed_start(self, server):
        if server.running:
            return False
        raise RuntimeError(f"{server.name} ended with {server.process.returncode}: {server.log.read_text()[-500:]}")

    def _end_all(self):
        for server in self.servers:
            if server.running:
                server.kill()

    def close(self):
        self.closing.close()

    def on_client(self, host):
        """Returns the prefix of a client's command, and its flags."""
        if self.network is None:
            return [], ["--fabric", self.plan.fabric]
        return self.network.on(f"client-{host % self.plan.client_hosts}"), ["--fabric", "tcp"]

    def socket_of(self, server):
        """Returns where strangers can connect: HOST:PORT, or a Unix socket's path."""
        if self.network is not None:
            return f"{self.network.addresses[server.name]}:7000"
        return str(self.home / f"{server.name}.0.sock") if self.plan.fabric != "tcp" else self.tcp[server.name]

    def ctl(self, *arguments, seconds=CTL_SECONDS):
        """Runs cellctl. A command that does not end in time has status 99."""
        prefix, flags = self.on_client(0)
        command = [*prefix, cluster.binary("tools/cellctl"), "--cluster", self.address, *flags, *arguments]
        try:
            return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=seconds)
        except subprocess.TimeoutExpired:
            return subprocess.CompletedProcess(command, 99, "", f"did not end within {seconds} s")

    def statuses(self):
        """Returns each server whose workers all answer, by name, with what `cellctl -o json status` reports for each
        worker."""
        result = self.ctl("-o", "json", "status")
        statuses = {}
        for line in result.stdout.splitlines():
            with contextlib.suppress(ValueError):
                status = json.loads(line)
                if "regions" in status:
                    statuses.setdefault(status["server"], []).append(status)
        return {name: workers for name, workers in statuses.items() if len(workers) == self.plan.workers}

    def wait_for(self, condition, seconds, what):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} ({seconds} s)")
            time.sleep(0.1)
