"""Starts a Ceph cluster on one host, for clusters that keep their logs in one: a monitor, and one to three OSDs.

It is meant for trying things out and for tests. A cluster that shall survive a machine has its monitors and OSDs on
several (docs/operations/durability.md).
"""

import os
import re
import shutil
import subprocess
import time
import uuid
from pathlib import Path

from tools.cluster_directory import ClusterError

PROGRAMS = ("ceph-mon", "ceph-osd", "ceph", "ceph-authtool", "monmaptool", "rados")

# Small, for a laptop: few and short logs of placement groups, little cache, no benchmark of the disk at the start.
# The logs of RocksDB are short, too. By default they take up to 1 GB, of which an OSD of 1 GB dies.
CONFIGURATION = """[global]
fsid = {fsid}
mon_host = [v2:{host}:{port}]
public_addr = {host}
cluster_addr = {host}
keyring = {directory}/keyring
ms_bind_msgr1 = false
ms_bind_port_min = {first_port}
ms_bind_port_max = {last_port}
run_dir = {directory}
log_file = {directory}/$name.log
pid_file =
crash_dir = {directory}
osd_pool_default_size = {osds}
osd_pool_default_min_size = 1
osd_crush_chooseleaf_type = 0
osd_pool_default_pg_autoscale_mode = off
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
mon_data_avail_crit = 1
mon_data_avail_warn = 1
auth_allow_insecure_global_id_reclaim = false
[mon]
admin_socket = {directory}/$name.asok
mon_data = {directory}/mon
mon_election_timeout = 1
paxos_propose_interval = 0.05
[osd]
admin_socket = {directory}/$name.asok
osd_data = {directory}/osd.$id
keyring = {directory}/osd.$id/keyring
osd_objectstore = {store}
bluestore_block_size = {osd_bytes}
bluestore_block_db_create = false
bluestore_block_wal_create = false
bluestore_cache_autotune = false
bluestore_cache_size = 67108864
memstore_device_bytes = {osd_bytes}
bluestore_rocksdb_options = compression=kNoCompression,max_write_buffer_number=4,recycle_log_file_num=4,write_buffer_size=16777216,max_total_wal_size=67108864
osd_op_num_shards = 2
osd_mclock_skip_benchmark = true
osd_pg_log_trim_min = 100
osd_min_pg_log_entries = 250
osd_max_pg_log_entries = 1000
"""


class Ceph:
    """A running Ceph cluster of this user. Its files, keys included, are this user's alone."""

    def __init__(self, directory, port, osds=1, pool="cell", store="bluestore", osd_bytes=4 << 30, host="127.0.0.1", prefix=()):
        """Starts the cluster and makes a pool that keeps `osds` copies. Takes some seconds.

        directory: new, and short: sockets are in it. port: the monitor's; the OSDs listen at ports from port + 1 to
        port + 40. host: the address at which all of them listen. prefix: precedes each command, to run it elsewhere.
        Raises ClusterError if anything fails.
        """
        self._set(directory, host, port, osds, pool, prefix)
        self.directory.mkdir(mode=0o700, parents=True)
        self.conf.write_text(CONFIGURATION.format(fsid=uuid.uuid4(), host=host, port=port, first_port=port + 1, last_port=port + 40, osds=osds,
                                                  directory=self.directory, store=store, osd_bytes=osd_bytes))
        try:
            self._make_monitor()
            self._make_osds()
            self.wait_until_active()
        except BaseException:
            self.stop()
            raise

    @classmethod
    def again(cls, directory, pool="cell", prefix=(), running=()):
        """Starts a cluster whose daemons have ended, with what it had. running: daemons that still run."""
        ceph = cls.__new__(cls)
        text = (Path(directory) / "ceph.conf").read_text()
        host, port = re.search(r"mon_host = \[v2:([0-9.]+):(\d+)\]", text).groups()
        daemons = cls.daemons(directory)
        ceph._set(directory, host, int(port), len(daemons) - 1, pool, prefix)
        try:
            for name in daemons:
                if name not in running:
                    ceph.start(name)
            ceph.wait_until_active()
        except BaseException:
            ceph.stop()
            raise
        return ceph

    @staticmethod
    def daemons(directory):
        """Returns the names of a cluster's daemons."""
        osds = re.search(r"osd_pool_default_size = (\d+)", (Path(directory) / "ceph.conf").read_text())[1]
        return ["mon.a", *(f"osd.{i}" for i in range(int(osds)))]

    def _set(self, directory, host, port, osds, pool, prefix):
        self.directory, self.host, self.port = Path(directory), host, port
        self.osds, self.pool, self.prefix = osds, pool, list(prefix)
        self.conf = self.directory / "ceph.conf"
        self.processes = {}
        missing = [program for program in PROGRAMS if shutil.which(program) is None]
        if missing:
            raise ClusterError(f"Ceph is not installed ({', '.join(missing)}): apt-get install ceph-mon ceph-osd")

    def run(self, *command, check=True, seconds=60, stdin=None):
        """Runs one of Ceph's programs for this cluster, and returns what it printed."""
        with open(self.directory / "setup.log", "ab") as log:
            try:
                done = subprocess.run([*self.prefix, *map(str, command)], input=stdin, stdout=subprocess.PIPE, stderr=log, text=True, check=False,
                                      timeout=seconds, env={**os.environ, "CEPH_CONF": str(self.conf)}, umask=0o077)
            except subprocess.TimeoutExpired as error:
                raise ClusterError(f"{command[0]} did not end within {seconds} s; see {self.directory}") from error
        if check and done.returncode != 0:
            raise ClusterError(f"{' '.join(map(str, command[:3]))} failed; see {self.directory}/setup.log")
        return done.stdout

    def ceph(self, *command, **options):
        return self.run("ceph", "--connect-timeout", 20, *command, **options)

    def start(self, name):
        """Starts a daemon that does not run: mon.a, osd.0, ..."""
        kind, number = name.split(".")
        with open(self.directory / f"{name}.out", "ab") as log:
            self.processes[name] = subprocess.Popen([*self.prefix, f"ceph-{kind}", "-c", self.conf, "-f", "-i", number], stdin=subprocess.DEVNULL,
                                                    stdout=log, stderr=log, start_new_session=True, umask=0o077)
            self.processes[name].daemon = name

    def end(self, name, signal=15):
        """Ends a daemon, and waits for it."""
        process = self.processes.pop(name)
        process.send_signal(signal)
        process.wait(30)

    def stop(self, signal=15):
        """Ends all daemons. Their data stays."""
        for process in self.processes.values():
            process.send_signal(signal)
        deadline = time.monotonic() + 10
        for process in self.processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()

    def _make_monitor(self):
        keyring, fsid = self.directory / "keyring", self.conf.read_text().split("fsid = ")[1].split()[0]
        self.run("ceph-authtool", keyring, "--create-keyring", "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        self.run("ceph-authtool", keyring, "--gen-key", "-n", "client.admin", "--cap", "mon", "allow *", "--cap", "osd", "allow *")
        monmap = self.directory / "monmap"
        self.run("monmaptool", "--create", "--fsid", fsid, "--enable-all-features", "--addv", "a", f"[v2:{self.host}:{self.port}]", monmap)
        self.run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monmap, "--keyring", keyring)
        self.start("mon.a")

    def _make_osds(self):
        made = []
        for i in range(self.osds):
            home = self.directory / f"osd.{i}"
            home.mkdir(mode=0o700)
            its = uuid.uuid4()
            self.ceph("osd", "new", its, i)
            self.ceph("auth", "get-or-create", f"osd.{i}", "mon", "allow profile osd", "osd", "allow *", "-o", home / "keyring")
            made.append(subprocess.Popen([*self.prefix, "ceph-osd", "-c", self.conf, "-i", str(i), "--mkfs", "--osd-uuid", str(its)],
                                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, umask=0o077))
        self.ceph("osd", "pool", "create", self.pool, 8, 8, "replicated")
        self.ceph("osd", "pool", "set", self.pool, "size", self.osds, "--yes-i-really-mean-it")
        for i, process in enumerate(made):
            if process.wait(60) != 0:
                raise ClusterError(f"osd.{i} could not be made; see {self.directory}")
            self.start(f"osd.{i}")

    def wait_until_active(self):
        """Waits until the pool takes an object."""
        self.run("rados", "-p", self.pool, "put", "up", "-", stdin="up\n")
        self.run("rados", "-p", self.pool, "rm", "up")
