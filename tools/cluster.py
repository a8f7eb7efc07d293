"""Brings a cluster on this machine up and down: what //tools:up, //tools:down and //tools:demo share.

A cluster is a directory with
    cluster.json    what servers and clients must agree on (cell/cluster/embedded_membership.h)
    regions.json    which server holds which region; the servers write it
    log/            of a durable cluster: the regions' logs and checkpoints, from which it comes back
    processes.json  the processes that `up` started, in that order, so that `down` ends exactly those
    server-N.log    each server's log
    zookeeper/      of a cluster whose membership a ZooKeeper keeps that `up` started (then without cluster.json)
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ZOOKEEPER = "/usr/share/zookeeper/bin/zkServer.sh"

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class ClusterError(Exception):
    """Something the user can mend; the message says how."""


def parse_bytes(text):
    """'64M' as a number of bytes."""
    match = re.fullmatch(r"(\d+)([KMG]?)B?", text.upper())
    if not match:
        raise ClusterError(f'"{text}" is not a size: write for example 64M or 1G')
    return int(match[1]) * UNITS[match[2]]


def binary(name):
    """A program that was built along with this one."""
    path = Path(__file__).absolute().parent.parent / name  # Unresolved: in the runfiles, not in the source tree.
    if path.exists():
        return str(path)
    raise ClusterError(f"{name} is not built: run this by ./bazelw run")


def user_path(text):
    """A path as the user meant it: `bazel run` changes the directory."""
    return Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), text).resolve()


def start_time(pid):
    """When a process began, in clock ticks since boot: with its id this names it for good. None if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rsplit(")", 1)[1].split()
    return None if fields[0] == "Z" else int(fields[19])


def running(directory):
    """The processes of processes.json that still run."""
    try:
        processes = json.loads((directory / "processes.json").read_text())
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise ClusterError(f"{directory}/processes.json is damaged ({error}): end the servers by hand and remove it")
    return [p for p in processes if start_time(p["pid"]) == p["start_time"]]


def describe(servers, workers, node_bytes, meganode_bytes, extents_bytes, regions_max, fabric="auto", host=None, durability="none"):
    """What goes into cluster.json."""
    ports = iter(free_ports(servers * workers, host or "127.0.0.1"))

    def worker(server, index):
        listed = {"regions_max": regions_max}
        if fabric in ("auto", "shm"):
            listed["socket"] = f"server-{server}.{index}.sock"
        if fabric in ("tcp", "verbs") or (fabric == "auto" and host):
            listed["tcp" if fabric == "auto" else fabric] = f"{host or '127.0.0.1'}:{next(ports)}"
        return listed

    return {
        "format": 2,
        "node_bytes": node_bytes,
        "meganode_bytes": meganode_bytes,
        "extents_bytes": extents_bytes,
        "durability": durability,
        "servers": [
            {
                "name": f"server-{s}",
                "workers": [worker(s, w) for w in range(workers)],
            }
            for s in range(servers)
        ],
    }


def comes_back(directory, described):
    """Whether a durable cluster is in the directory, with these constants. ClusterError: with others."""
    for file in ("cluster.json", "durable.json"):
        try:
            there = json.loads((directory / file).read_text())
        except FileNotFoundError:
            continue
        if there.get("durability", "none") == "none" or not (directory / "log").exists():
            return False
        for key in ("node_bytes", "meganode_bytes", "extents_bytes", "durability", "servers"):
            was, now = ([{"name": s["name"], "workers": len(s["workers"])} for s in c[key]] if key == "servers" else c[key]
                        for c in (there, described))
            if was != now:
                raise ClusterError(f"the cluster in {directory} has {key} {was}, not {now}: bring it up as it was, or "
                                   "--begin-anew to forget it and its keys")
        return True
    return False


def free_ports(count, host="127.0.0.1"):
    with contextlib.ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)) for _ in range(count)]
        for probe in sockets:
            probe.bind((host, 0))
        return [probe.getsockname()[1] for probe in sockets]


def free_port():
    return free_ports(1)[0]


def start_zookeeper(directory, port, members=None, my_id=1, host="127.0.0.1", prefix=()):
    """A ZooKeeper server of Debian's. `members`: of an ensemble, by id, (peer port, election port).

    prefix: what goes before its command, to run it elsewhere.
    """
    if not Path(ZOOKEEPER).exists():
        raise ClusterError("there is no ZooKeeper: apt-get install zookeeper")
    directory.mkdir(parents=True, exist_ok=True)
    lines = [f"tickTime=500", "initLimit=10", "syncLimit=5", f"dataDir={directory}", f"clientPort={port}",
             f"clientPortAddress={host}", "admin.enableServer=false", "4lw.commands.whitelist=ruok"]
    for member, (peer, election) in (members or {}).items():
        lines.append(f"server.{member}=127.0.0.1:{peer}:{election}")
    (directory / "myid").write_text(f"{my_id}\n")
    (directory / "zoo.cfg").write_text("\n".join(lines) + "\n")
    with open(directory / "zookeeper.log", "ab") as log:
        return subprocess.Popen([*prefix, ZOOKEEPER, "start-foreground", str(directory / "zoo.cfg")],
                                env={**os.environ, "ZOOCFGDIR": str(directory), "ZOO_LOG_DIR": str(directory)},
                                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


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


def up(directory, servers=1, workers=1, node_bytes=1024, meganode_bytes=64 << 20, extents_bytes=256 << 20,
       regions_max=16, server_flags=(), flags_of=None, wait_seconds=60, zookeeper=None, name="cell", fabric="auto", host=None,
       durability="none", anew=False):
    """Starts a cluster and waits until it answers. Returns the servers' processes.

    A durable one that was in the directory before comes back with its keys, unless `anew`; its constants must be these.

    flags_of: more flags, by the server's name. The first server holds the root of the tree.
    fabric: as cell_server's. host: where tcp and verbs listen (for them 127.0.0.1 by default).
    zookeeper: None, the cluster is the directory alone; "start", with a ZooKeeper of its own; HOST:PORT, one that runs.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if running(directory):
        raise ClusterError(f"a cluster runs in {directory} already: end it with ./bazelw run //tools:down -- --dir {directory}")
    for stale in [*directory.glob("*.sock"), *directory.glob("*.control")]:
        stale.unlink()
    described = describe(servers, workers, node_bytes, meganode_bytes, extents_bytes, regions_max, fabric, host, durability)
    back = not anew and comes_back(directory, described)
    if not back:
        (directory / "regions.json").unlink(missing_ok=True)  # Of a cluster that has ended, and its keys with it.
        (directory / "cluster.json").unlink(missing_ok=True)
        shutil.rmtree(directory / "log", ignore_errors=True)
    flags, helpers, started = [*server_flags, "--fabric", fabric], [], []
    if host:
        flags += ["--control", f"{host}:0"]
    try:
        if zookeeper is None:
            (directory / "cluster.json").write_text(json.dumps(described, indent=1) + "\n")
            address = str(directory)
        else:
            if zookeeper == "start":
                port = free_port()
                helpers.append(start_zookeeper(directory / "zookeeper", port))
                write_processes(directory, helpers)
                wait_for_zookeeper(port, helpers[0])
                zookeeper = f"127.0.0.1:{port}"
            address = f"zk://{zookeeper}/{name}"
            flags += ["--cluster", address, "--workers", str(workers), "--regions-max", str(regions_max), "--node-bytes", str(node_bytes),
                      "--meganode-bytes", str(meganode_bytes), "--extents-bytes", str(extents_bytes), "--durability", durability]
            (directory / "durable.json").write_text(json.dumps(described, indent=1) + "\n")
            if host or fabric in ("tcp", "verbs"):
                flags += ["--listen", host or "127.0.0.1"]
        (directory / "address").write_text(address + "\n")
        for s in range(servers):
            forget = ["--begin-anew"] if s == 0 and zookeeper is not None and not back else []
            started.append(start_server(directory, f"server-{s}", flags + forget + (flags_of or {}).get(f"server-{s}", [])))
            write_processes(directory, helpers + started)
            if s == 0:
                wait_until_it_listens(directory, started[0], wait_seconds)
        wait_until_it_answers(directory, started, wait_seconds)
    except BaseException:
        end(started)
        end(helpers)
        (directory / "processes.json").unlink(missing_ok=True)
        raise
    return started


def start_server(directory, name, flags):
    with open(directory / f"{name}.log", "ab") as log:
        return subprocess.Popen([binary("cell/server/cell_server"), "--dir", str(directory), "--name", name, *flags],
                                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def address_of(directory):
    """How cellctl calls the cluster that `up` started there."""
    try:
        return (directory / "address").read_text().strip()
    except FileNotFoundError:
        return str(directory)


def write_processes(directory, processes):
    listed = [{"pid": p.pid, "start_time": start_time(p.pid), "helper": "cell_server" not in p.args[0]} for p in processes]
    (directory / "processes.json").write_text(json.dumps(listed) + "\n")


def wait_until_it_listens(directory, process, seconds):
    deadline = time.monotonic() + seconds
    while not (directory / "server-0.control").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)


def wait_until_it_answers(directory, processes, seconds):
    deadline = time.monotonic() + seconds
    while True:
        for s, process in enumerate(processes):
            if process.poll() is not None:
                log = (directory / f"server-{s}.log").read_text().strip().splitlines()
                raise ClusterError(f"server-{s} ended with status {process.returncode}: {log[-1] if log else 'no log'}")
        answer = subprocess.run([binary("tools/cellctl"), "--cluster", address_of(directory), "status"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if answer.returncode == 0:
            return
        if time.monotonic() > deadline:
            raise ClusterError(f"the cluster does not answer after {seconds} s: {answer.stderr.strip()}")
        time.sleep(0.05)


def end(processes, seconds=10):
    """Ends child processes: politely, then not."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def down(directory, seconds=10):
    """Ends what `up` started there, and nothing else: servers first. Returns how many processes that were."""
    if not (directory / "address").exists() and not (directory / "cluster.json").exists():
        raise ClusterError(f"no cluster in {directory}")
    ours = running(directory)
    for helper in (False, True):
        left = [p for p in ours if p.get("helper", False) == helper]
        for p in left:
            os.kill(p["pid"], signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while left and time.monotonic() < deadline:
            time.sleep(0.02)
            left = [p for p in left if start_time(p["pid"]) == p["start_time"]]
        for p in left:
            os.kill(p["pid"], signal.SIGKILL)
    (directory / "processes.json").unlink(missing_ok=True)
    return len(ours)
