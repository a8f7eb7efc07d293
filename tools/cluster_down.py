"""Stops a cluster on this machine, for //tools:down and for programs that bring one up."""

import contextlib
import os
import shlex
import signal
import sys
import time
from pathlib import Path

from tools import private_directory
from tools.cluster_directory import ClusterError, alone_in, has_open, lock_holder, running, servers_of, service_of, start_time
from tools.cluster_settings import settings_of


def state_of(pid):
    """Returns a process's state, as ps shows it, or None if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return None


def why_it_runs(pid):
    """Says why a process may not have ended with SIGTERM, as far as that is visible."""
    state = state_of(pid)
    return {"T": "the process is suspended: state T", "t": "a debugger has suspended the process: state t",
            "D": "the process waits for a disk or a device: state D"}.get(state, f"state {state}")


def last_line(path, begin=0, kind=""):
    """Returns the last line of a log file, from byte `begin` on, that contains `kind`, without its time. Returns "" if
    there is none."""
    try:
        if path.stat().st_size < begin:
            begin = 0  # The server has begun a new file.
        lines = [line for line in path.read_bytes()[begin:].decode(errors="replace").splitlines() if kind in line]
    except OSError:
        return ""
    return lines[-1].split("] ", 3)[-1] if lines else ""


def down(directory, kill_after=60, say=lambda text: None):
    """Ends the cluster there: all of its servers on this machine, including those started by hand, and then its
    ZooKeeper.

    A server that is told to end waits while its disk makes progress. Processes that still run after `kill_after`
    seconds are killed.

    say: is called with a description of what is waited for. Returns the number of servers, and a line for each that
    was killed or ended with an error.
    """
    private_directory.check(directory)  # Another user could have listed any process there.
    if settings_of(directory) is None:
        raise ClusterError(f"there is no cluster in {directory}")
    wrong = []
    with alone_in(directory):
        ours = running(directory)
        for name in servers_of(directory):
            pid = lock_holder(directory, name)
            if pid is None:
                continue
            noted = next((p for p in ours if p["pid"] == pid), None)
            if noted is None and (pid == 0 or not has_open(pid, directory / f"{name}.lock")):
                if not ours:
                    raise ClusterError(f"{name} runs in {directory}, but its process is unknown: stop it by hand")
                continue  # It is one of those of an earlier release.
            if noted is None:
                noted = {"pid": pid, "start_time": start_time(pid)}
                ours.append(noted)
            noted["name"] = name
        for helper in (False, True):
            told = [p for p in ours if p.get("helper", False) == helper]
            for p in told:
                p["log"] = directory / f"{p.get('name')}.log"
                p["log_begins"] = p["log"].stat().st_size if p["log"].exists() else 0
                with contextlib.suppress(ProcessLookupError):
                    os.kill(p["pid"], signal.SIGTERM)
            left, begun, said = told, time.monotonic(), False
            while left and time.monotonic() < begun + kill_after:
                time.sleep(0.02)
                left = [p for p in left if start_time(p["pid"]) == p["start_time"]]
                if left and not said and time.monotonic() > begun + 3:
                    said = True
                    say("waiting for " + ", ".join(f"{called(p)} ({why_it_runs(p['pid'])})" for p in left) +
                        f", which may be writing to disk; processes that still run after {kill_after:g} s will be killed (--kill-after)")
            for p in left:
                wrong.append(f"{called(p)} was killed because it had not ended after {kill_after:g} s ({why_it_runs(p['pid'])})")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(p["pid"], signal.SIGKILL)
            for p in told:
                error = last_line(p["log"], p["log_begins"], "[error]")
                if p not in left and error and last_line(p["log"], p["log_begins"]) != f"{p.get('name')} ends":
                    wrong.append(f"{called(p)} ended with an error: {error}")
        (directory / "processes.json").unlink(missing_ok=True)
    return sum(not p.get("helper", False) for p in ours), wrong


def called(process):
    """Returns a recorded process's name for messages."""
    return f"{process.get('name') or service_of(process) or 'a server'} (process {process['pid']})"


def add_kill_after_flag(parser):
    """Adds --kill-after, for programs that end a cluster."""
    def seconds(text):
        number = float(text)
        if not 0 <= number < float("inf"):
            raise ValueError(text)
        return number

    parser.add_argument("--kill-after", metavar="SECONDS", type=seconds, default=60,
                        help="seconds after which servers that were told to end but still run are killed; "
                             "writes that then wait for the disk are lost (default: %(default)s)")


def end_cluster(program, directory, kill_after):
    """Calls `down` for a program that reports to its user. Returns the exit status, and the number of servers."""
    try:
        ended, wrong = down(directory, kill_after, lambda text: print(f"{program}: {text}", file=sys.stderr, flush=True))
    except (ClusterError, OSError) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2, 0
    except KeyboardInterrupt:
        print(f"{program}: interrupted; servers may still run: ./bazelw run //tools:down -- --dir {shlex.quote(str(directory))}", file=sys.stderr)
        return 130, 0
    for line in wrong:
        print(f"{program}: {line}", file=sys.stderr)
    return 1 if wrong else 0, ended
