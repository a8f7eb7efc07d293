"""Brings a cluster on this machine up and down: what //tools:up, //tools:down and //tools:demo share.

A cluster is a directory with
    cluster.json    what servers and clients must agree on (cell/cluster/embedded_membership.h)
    regions.json    which server holds which region; the servers write it
    processes.json  the processes that `up` started, so that `down` ends exactly those
    server-N.log    each server's log
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

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


def describe(servers, workers, node_bytes, meganode_bytes, extents_bytes, regions_max):
    """What goes into cluster.json."""
    return {
        "format": 2,
        "node_bytes": node_bytes,
        "meganode_bytes": meganode_bytes,
        "extents_bytes": extents_bytes,
        "servers": [
            {
                "name": f"server-{s}",
                "workers": [{"socket": f"server-{s}.{w}.sock", "regions_max": regions_max} for w in range(workers)],
            }
            for s in range(servers)
        ],
    }


def up(directory, servers=1, workers=1, node_bytes=1024, meganode_bytes=64 << 20, extents_bytes=256 << 20,
       regions_max=16, server_flags=(), wait_seconds=60):
    """Starts a cluster and waits until it answers. Returns the servers' processes."""
    directory.mkdir(parents=True, exist_ok=True)
    if running(directory):
        raise ClusterError(f"a cluster runs in {directory} already: end it with ./bazelw run //tools:down -- --dir {directory}")
    (directory / "regions.json").unlink(missing_ok=True)  # Of a cluster that has ended, and its keys with it.
    (directory / "cluster.json").write_text(
        json.dumps(describe(servers, workers, node_bytes, meganode_bytes, extents_bytes, regions_max), indent=1) + "\n")
    started = []
    try:
        for s in range(servers):
            with open(directory / f"server-{s}.log", "ab") as log:
                process = subprocess.Popen(
                    [binary("cell/server/cell_server"), "--dir", str(directory), "--name", f"server-{s}", *server_flags],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
            started.append(process)
            write_processes(directory, started)
        wait_until_it_answers(directory, started, wait_seconds)
    except BaseException:
        end(started)
        (directory / "processes.json").unlink(missing_ok=True)
        raise
    return started


def write_processes(directory, processes):
    listed = [{"pid": p.pid, "start_time": start_time(p.pid)} for p in processes]
    (directory / "processes.json").write_text(json.dumps(listed) + "\n")


def wait_until_it_answers(directory, processes, seconds):
    deadline = time.monotonic() + seconds
    while True:
        for s, process in enumerate(processes):
            if process.poll() is not None:
                log = (directory / f"server-{s}.log").read_text().strip().splitlines()
                raise ClusterError(f"server-{s} ended with status {process.returncode}: {log[-1] if log else 'no log'}")
        answer = subprocess.run([binary("tools/cellctl"), "--cluster", str(directory), "status"],
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
    """Ends what `up` started there, and nothing else. Returns how many processes that were."""
    if not (directory / "cluster.json").exists():
        raise ClusterError(f"no cluster in {directory}")
    ours = running(directory)
    for p in ours:
        os.kill(p["pid"], signal.SIGTERM)
    deadline = time.monotonic() + seconds
    left = ours
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = [p for p in left if start_time(p["pid"]) == p["start_time"]]
    for p in left:
        os.kill(p["pid"], signal.SIGKILL)
    (directory / "processes.json").unlink(missing_ok=True)
    return len(ours)
