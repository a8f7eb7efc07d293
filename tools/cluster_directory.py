"""Knows what is in the directory of a cluster: its address, its processes, and the locks of its servers.

A cluster is a directory with
    up.json         how `up` brings it up: its constants, and the servers' flags
    address         the cluster's name for clients
    cluster.json    what servers and clients must agree on (cell/cluster/embedded/embedded_membership.h)
    regions.json    which server holds which region; the servers write it
    log/            of a durable cluster: the regions' logs and checkpoints, from which it is recovered
    processes.json  the processes that `up` started
    NAME.lock       locked by server NAME while it runs, with its process id
    NAME.log        each server's messages; NAME.log.1 and so on are older ones
    NAME.audit      what operators had each server do
    NAME.control.sock  the socket of its control plane
    zookeeper-digest   ZooKeeper's credentials, if `up` has made them
    secret          the cluster's secret, if `up` has made it
    zookeeper/      if `up` started a ZooKeeper that keeps the membership (then without cluster.json)
    cluster-uuid    if the logs are in Ceph: the cluster's UUID
    ceph/           if `up` started a Ceph that keeps the logs (then without log/)
"""

import contextlib
import fcntl
import json
import os
import struct
from pathlib import Path


class ClusterError(Exception):
    """An error that the user can correct; the message says how."""


def start_time(pid):
    """Returns when a process began, in clock ticks since boot, or None if it is gone. The id and this time identify it.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rsplit(")", 1)[1].split()
    return None if fields[0] == "Z" else int(fields[19])


def running(directory):
    """Returns the processes of processes.json that still run."""
    try:
        processes = json.loads((directory / "processes.json").read_text())
    except FileNotFoundError:
        return []
    except ValueError as error:
        raise ClusterError(f"{directory}/processes.json is damaged ({error}): stop the servers by hand and remove the file")
    return [p for p in processes if start_time(p["pid"]) == p["start_time"]]


def lock_holder(directory, name):
    """Returns the id of the process that runs server NAME; 0 if the id is not known, None if the server does not run.
    """
    try:
        with open(directory / f"{name}.lock") as lock:
            asked = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
            kind = struct.unpack("hhqqi4x", fcntl.fcntl(lock, fcntl.F_OFD_GETLK, asked))[0]
            text = lock.read().strip()
            return None if kind == fcntl.F_UNLCK else int(text) if text.isdigit() else 0
    except FileNotFoundError:
        return None
    except PermissionError as error:
        raise not_yours(error) from error


def not_yours(error):
    """Returns the ClusterError for a file that this user may not open."""
    return ClusterError(f"{error.filename} belongs to user {Path(error.filename).parent.stat().st_uid}: run this as that user")


def servers_of(directory):
    """Returns the servers that ever ran there, by their locks."""
    return sorted(path.stem for path in directory.glob("*.lock") if path.name != "regions.lock")


def has_open(pid, path):
    """Returns whether a process has a file open, so that its id has not been reused."""
    try:
        return any(os.path.samefile(fd, path) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.exists())
    except OSError:
        return False


def default_directory():
    """Returns the directory of a cluster for which none is given. Not in XDG_RUNTIME_DIR: that is in memory, ends with
    the session, and with it a durable cluster's keys, and another session (sudo, cron) looks elsewhere."""
    return f"/tmp/cell-{os.getuid()}"


def is_empty(directory):
    return not directory.exists() or not any(directory.iterdir())


def replace_file(path, text):
    """Replaces a file by one of this user alone. Follows no link."""
    new = path.with_name(path.name + ".new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(text)
    new.rename(path)


@contextlib.contextmanager
def alone_in(directory):
    """Excludes other `up`s and `down`s meanwhile."""
    try:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except PermissionError as error:
        raise ClusterError(f"{directory} belongs to user {os.stat(directory).st_uid}: run this as that user") from error
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ClusterError(f"another up or down is running in {directory}") from error
        yield
    finally:
        os.close(fd)


def address_of(directory):
    """Returns the name that cellctl uses for the cluster that `up` started there."""
    try:
        return (directory / "address").read_text().strip()
    except FileNotFoundError:
        return str(directory)


def write_processes(directory, processes, before=()):
    """Records what runs: `processes` that were started now, and entries that were recorded before."""
    def entry(process):
        program = process.args[0]
        service = None if "cell_server" in program else "Ceph" if program.startswith("ceph-") else "ZooKeeper"
        daemon = {"daemon": process.daemon} if service == "Ceph" else {}
        return {"pid": process.pid, "start_time": start_time(process.pid), "helper": service is not None, **({"service": service} if service else {}), **daemon}

    listed = [entry(process) for process in processes]
    replace_file(directory / "processes.json", json.dumps([*before, *listed]) + "\n")


def service_of(process):
    """Returns what a recorded process is if it is no server: "ZooKeeper", "Ceph", or None."""
    return process.get("service", "ZooKeeper") if process.get("helper") else None
