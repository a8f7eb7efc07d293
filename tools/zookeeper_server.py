"""Starts a ZooKeeper server, for clusters that keep their membership in one."""

import os
import socket
import subprocess
import time
from pathlib import Path

from tools.cluster_directory import ClusterError

ZOOKEEPER = "/usr/share/zookeeper/bin/zkServer.sh"


def start_zookeeper(directory, port, members=None, my_id=1, host="127.0.0.1", prefix=(), settings=()):
    """Starts a ZooKeeper server of Debian's.

    members: those of an ensemble, by id, as (peer port, election port). prefix: precedes its command, to run it
    elsewhere. settings: more lines for its zoo.cfg.
    """
    lines = [f"tickTime=500", "initLimit=10", "syncLimit=5", f"dataDir={directory}", f"clientPort={port}",
             f"clientPortAddress={host}", "admin.enableServer=false", "4lw.commands.whitelist=ruok", *settings]
    for member, (peer, election) in (members or {}).items():
        lines.append(f"server.{member}=127.0.0.1:{peer}:{election}")
    return run_zookeeper(directory, lines, my_id, prefix)


def run_zookeeper(directory, settings, my_id=1, prefix=()):
    """Starts a ZooKeeper server of Debian's with these lines as its zoo.cfg."""
    if not Path(ZOOKEEPER).exists():
        raise ClusterError("ZooKeeper is not installed: apt-get install zookeeper")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    (directory / "myid").write_text(f"{my_id}\n")
    (directory / "zoo.cfg").write_text("\n".join(settings) + "\n")
    # Without JMXDISABLE Java listens at another port, on all addresses.
    with open(directory / "zookeeper.log", "ab") as log:
        return subprocess.Popen([*prefix, ZOOKEEPER, "start-foreground", str(directory / "zoo.cfg")],
                                env={**os.environ, "ZOOCFGDIR": str(directory), "ZOO_LOG_DIR": str(directory), "JMXDISABLE": "true"},
                                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, umask=0o077)


def wait_for_zookeeper(port, process=None, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and (process is None or process.poll() is None):
        try:
            with socket.create_connection(("127.0.0.1", port), 1) as connection:
                connection.sendall(b"ruok")
                if connection.recv(16) == b"imok":
                    return
        except OSError:
            pass
        time.sleep(0.05)
    raise ClusterError(f"ZooKeeper does not answer at 127.0.0.1:{port}")
