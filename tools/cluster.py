"""Brings a cluster on this machine up and down, for //tools:up, //tools:down and //tools:demo.

A cluster is a directory with
    up.json         how `up` brings it up: its constants, and the servers' flags
    address         the cluster's name for clients
    cluster.json    what servers and clients must agree on (cell/cluster/embedded/embedded_membership.h)
    regions.json    which server holds which region; the servers write it
    log/            of a durable cluster: the regions' logs and checkpoints, from which it is recovered
    processes.json  the processes that `up` started
    NAME.lock       locked by server NAME while it runs, with its process id
    NAME.log        each server's messages
    zookeeper/      if `up` started a ZooKeeper that keeps the membership (then without cluster.json)
"""

import contextlib
import fcntl
import json
import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import time
import uuid
from pathlib import Path

ZOOKEEPER = "/usr/share/zookeeper/bin/zkServer.sh"

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class ClusterError(Exception):
    """An error that the user can correct; the message says how."""


def parse_bytes(text):
    """Parses '64M' as a number of bytes."""
    match = re.fullmatch(r"(\d+)([KMG]?)B?", text.upper())
    if not match:
        raise ClusterError(f'"{text}" is not a valid size: use for example 64M or 1G')
    return int(match[1]) * UNITS[match[2]]


# If set, servers run this program instead of the one that was built along with this one.
SERVER_PROGRAM = None


def binary(name):
    """Returns the path of a program that was built along with this one."""
    path = Path(__file__).absolute().parent.parent / name  # Unresolved: in the runfiles, not in the source tree.
    if path.exists():
        return str(path)
    raise ClusterError(f"{name} is not built: run this program with ./bazelw run")


def user_path(text):
    """Returns a path as the user meant it: `bazel run` changes the directory."""
    return Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), text).resolve()


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


def servers_of(directory):
    """Returns the servers that ever ran there, by their locks."""
    return sorted(path.stem for path in directory.glob("*.lock") if path.name != "regions.lock")


def has_open(pid, path):
    """Returns whether a process has a file open, so that its id has not been reused."""
    try:
        return any(os.path.samefile(fd, path) for fd in Path(f"/proc/{pid}/fd").iterdir() if fd.exists())
    except OSError:
        return False


# How `up` brings a cluster up by default.
DEFAULTS = {
    "servers": 1, "workers": 1, "node_bytes": 1024, "meganode_bytes": 64 << 20, "extents_bytes": 256 << 20, "regions_max": 16,
    "server_flags": [], "flags_of": {}, "secret_file": None, "zookeeper": None, "name": "cell", "fabric": "auto", "host": None, "durability": "none",
}
# Settings that a cluster keeps permanently.
CONSTANTS = ("workers", "node_bytes", "meganode_bytes", "extents_bytes", "durability", "zookeeper", "name")


def settings_of(directory):
    """Returns how the cluster in the directory is brought up, or None if there is no cluster. Raises ClusterError if it
    cannot be read."""
    for file in ("up.json", "cluster.json", "durable.json"):  # Without up.json: made by an earlier release, or by hand.
        try:
            text = (directory / file).read_text()
        except FileNotFoundError:
            continue
        except NotADirectoryError as error:
            raise ClusterError(f"{directory} is not a directory") from error
        try:
            there = json.loads(text)
            if file == "up.json":
                return {**DEFAULTS, **there}
            workers = [server["workers"] for server in there["servers"]]
            settings = {**DEFAULTS, **{key: there[key] for key in ("node_bytes", "meganode_bytes", "extents_bytes")},
                        "servers": len(workers), "workers": len(workers[0]), "regions_max": workers[0][0]["regions_max"],
                        "durability": there.get("durability", "none")}
            if file == "durable.json":
                address = address_of(directory)
                settings["zookeeper"] = "start" if (directory / "zookeeper").exists() else address[len("zk://"):].rsplit("/", 1)[0]
                settings["name"] = address.rsplit("/", 1)[1]
            return settings
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise ClusterError(f"{directory}/{file} does not belong to a Cell cluster, or is damaged ({error!r})") from error
    return None


def is_empty(directory):
    return not directory.exists() or not any(directory.iterdir())


def settle(directory, given):
    """Decides how to bring the cluster up, from what exists and what was requested, and whether it is a new one."""
    known = settings_of(directory)
    if known is None:
        if not is_empty(directory):
            raise ClusterError(f"{directory} is not empty and contains no cluster: use a directory that is empty or does not exist")
        return {**DEFAULTS, **given}, True
    if known["durability"] == "none" and known["zookeeper"] in (None, "start") and not running(directory) and \
            not any(lock_holder(directory, name) is not None for name in servers_of(directory)):
        wipe(directory)  # Its keys ended with its servers.
        return {**known, **given}, True
    settings = {**known, **given}
    for key in CONSTANTS:
        if settings[key] != known[key]:
            raise ClusterError(f"the cluster in {directory} has {key} {known[key]}, not {settings[key]}: start it with its own "
                               f"settings, or delete it first, with its keys (./bazelw run //tools:wipe -- --dir {directory})")
    if settings["servers"] < known["servers"]:
        raise ClusterError(f"the cluster in {directory} has servers 0 to {known['servers'] - 1}, which is more than {settings['servers']}: "
                           "drain the servers that should hold nothing (cellctl drain)")
    return settings, False


def wipe(directory):
    """Deletes a cluster that has ended."""
    plan = subprocess.run([binary("tools/wipe"), "--dir", str(directory), "--dry-run"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False)
    name = re.match(r"(?:Cluster (.*?)(?: \([0-9a-f-]*\))?:\n)?", plan.stdout)[1] or ""
    done = subprocess.run([binary("tools/wipe"), "--dir", str(directory), "--confirm", name], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, check=False)
    if plan.returncode != 0 or done.returncode != 0:
        raise ClusterError((plan.stderr or done.stderr).strip())


def wipe_znodes(address, seconds=15):
    """Deletes what a cluster that did not come up has left in ZooKeeper. A session of a server may have to expire
    first."""
    deadline = time.monotonic() + seconds
    while subprocess.run([binary("tools/wipe"), "--cluster", address, "--confirm", address.rsplit("/", 1)[1]], stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL, check=False).returncode == 2 and time.monotonic() < deadline:
        time.sleep(0.2)


def exists_in_zookeeper(address):
    asked = subprocess.run([binary("tools/cellctl"), "--cluster", address, "status"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                           text=True, check=False)
    return "no cluster" not in asked.stderr


def replace_file(path, text):
    new = path.with_name(path.name + ".new")
    new.write_text(text)
    new.rename(path)


def describe(directory, settings):
    """Returns the content of cluster.json. Listed servers stay as they are, because others know their addresses."""
    try:
        listed = json.loads((directory / "cluster.json").read_text())
    except FileNotFoundError:
        listed = {"format": 2, "uuid": str(uuid.uuid4()), "servers": []}
    fabric, host = settings["fabric"], settings["host"]
    ports = iter(free_ports(settings["servers"] * settings["workers"], host or "127.0.0.1"))

    def worker(name, index):
        made = {"regions_max": settings["regions_max"]}
        if fabric in ("auto", "shm"):
            made["socket"] = f"{name}.{index}.sock"
        if fabric in ("tcp", "verbs") or (fabric == "auto" and host):
            made["tcp" if fabric == "auto" else fabric] = f"{host or '127.0.0.1'}:{next(ports)}"
        return made

    def kinds(workers):
        """Returns everything about a worker except the ports."""
        return [{key: value if key in ("socket", "regions_max") else value.rsplit(":", 1)[0] for key, value in w.items()} for w in workers]

    before = {server["name"]: server["workers"] for server in listed["servers"]}
    servers = []
    for name in names_of(settings):
        workers = [worker(name, index) for index in range(settings["workers"])]
        keeps = name in before and (lock_holder(directory, name) is not None or kinds(before[name]) == kinds(workers))
        servers.append({"name": name, "workers": before[name] if keeps else workers})
    others = [server for server in listed["servers"] if server["name"] not in names_of(settings)]
    return {**listed, **{key: settings[key] for key in ("node_bytes", "meganode_bytes", "extents_bytes", "durability")},
            "servers": servers + others}


def names_of(settings):
    return [f"server-{s}" for s in range(settings["servers"])]


def free_ports(count, host="127.0.0.1"):
    with contextlib.ExitStack() as probes:
        sockets = [probes.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)) for _ in range(count)]
        for probe in sockets:
            try:
                probe.bind((host, 0))
            except OSError as error:
                raise ClusterError(f"cannot listen at {host}: {error.strerror}; use an address of this machine") from error
        return [probe.getsockname()[1] for probe in sockets]


def free_port():
    return free_ports(1)[0]


def start_zookeeper(directory, port, members=None, my_id=1, host="127.0.0.1", prefix=()):
    """Starts a ZooKeeper server of Debian's.

    members: those of an ensemble, by id, as (peer port, election port). prefix: precedes its command, to run it
    elsewhere.
    """
    if not Path(ZOOKEEPER).exists():
        raise ClusterError("ZooKeeper is not installed: apt-get install zookeeper")
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


@contextlib.contextmanager
def alone_in(directory):
    """Excludes other `up`s and `down`s meanwhile."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ClusterError(f"another up or down is running in {directory}") from error
        yield
    finally:
        os.close(fd)


def up(directory, only=None, wait_seconds=60, **given):
    """Starts a cluster, or its missing servers, and waits until it answers. Returns the processes of the servers
    started.

    An empty or missing directory gets a new cluster; if that does not come up, nothing of it stays. An existing
    cluster is brought up as it was before, with its keys if it is durable. Any other directory is left alone.

    given: settings that differ from the former ones, or from the defaults (DEFAULTS). The constants of an existing
    cluster cannot change; it can get more servers.
      server_flags, flags_of: flags of all servers, and by the server's name
      fabric: as cell_server's. host: where tcp and verbs listen (by default 127.0.0.1)
      zookeeper: None: only the directory; "start": with a ZooKeeper of its own; HOST:PORT: one that runs
    only: the name of the one server to start.
    """
    if directory.exists() and not directory.is_dir():
        raise ClusterError(f"{directory} is not a directory")
    made_here = not directory.exists()
    directory.mkdir(parents=True, exist_ok=True)
    new = False
    try:
        with alone_in(directory):
            if only is not None and settings_of(directory) is None:
                raise ClusterError(f"there is no cluster in {directory}, so {only} cannot be started")
            settings, new = settle(directory, {key: value for key, value in given.items() if value is not None})
            return start(directory, settings, new, only, wait_seconds)
    except BaseException:
        if made_here and is_empty(directory):
            directory.rmdir()
        raise


def start(directory, settings, new, only, wait_seconds):
    alive = {name for name in names_of(settings) if lock_holder(directory, name) is not None}
    if only is not None and only not in names_of(settings):
        raise ClusterError(f"the cluster in {directory} has no {only}: it has {', '.join(names_of(settings))}; --servers adds more")
    if only in alive or (only is None and len(alive) == settings["servers"]):
        raise ClusterError(f"{only or f'a cluster of {len(alive)} server(s)'} already runs in {directory}: stop it with "
                           f"./bazelw run //tools:down -- --dir {directory}")
    names = [only] if only else [name for name in names_of(settings) if name not in alive]
    zookeeper, fabric, host = settings["zookeeper"], settings["fabric"], settings["host"]
    flags = [*settings["server_flags"], "--fabric", fabric] + (["--control", f"{host}:0"] if host else [])
    helpers, started, made_in_zookeeper = [], [], None
    before = running(directory)
    try:
        replace_file(directory / "up.json", json.dumps(settings, indent=1) + "\n")
        if zookeeper is None:
            replace_file(directory / "cluster.json", json.dumps(describe(directory, settings), indent=1) + "\n")
            address = str(directory)
        else:
            if zookeeper == "start" and any(p.get("helper") for p in before):
                zookeeper = address_of(directory)[len("zk://"):].rsplit("/", 1)[0]  # It runs.
            elif zookeeper == "start":
                port = free_port()
                helpers.append(start_zookeeper(directory / "zookeeper", port))
                write_processes(directory, helpers, before)
                wait_for_zookeeper(port, helpers[0])
                zookeeper = f"127.0.0.1:{port}"
            address = f"zk://{zookeeper}/{settings['name']}"
            if new and settings["zookeeper"] != "start" and not exists_in_zookeeper(address):
                made_in_zookeeper = address
            for flag in ("workers", "regions_max", "node_bytes", "meganode_bytes", "extents_bytes", "durability"):
                flags += ["--" + flag.replace("_", "-"), str(settings[flag])]
            flags += ["--cluster", address]
            if host or fabric in ("tcp", "verbs"):
                flags += ["--listen", host or "127.0.0.1"]
        replace_file(directory / "address", address + "\n")
        for name in names:
            for stale in [directory / f"{name}.control", *directory.glob(f"{name}.*.sock")]:
                stale.unlink(missing_ok=True)
            started.append(start_server(directory, name, flags + settings["flags_of"].get(name, [])))
            write_processes(directory, helpers + started, before)
            if new and len(started) == 1:
                # The first creates the tree's root.
                wait_until_they_listen(directory, names[:1], started, wait_seconds)
        wait_until_they_listen(directory, names, started, wait_seconds)
        if all(lock_holder(directory, name) is not None for name in names_of(settings)):
            wait_until_it_answers(directory, names, started, wait_seconds)
    except BaseException:
        end(started)
        if made_in_zookeeper is not None:
            wipe_znodes(made_in_zookeeper)
        end(helpers)
        (directory / "processes.json").unlink(missing_ok=True)
        if new:
            replace_file(directory / "address", f"{directory}\n")  # A cluster in ZooKeeper that existed before stays.
            wipe(directory)
        elif before:
            write_processes(directory, [], before)
        raise
    return started


def start_server(directory, name, flags):
    with open(directory / f"{name}.log", "ab") as log:
        process = subprocess.Popen([SERVER_PROGRAM or binary("cell/cmd/cell_server"), "--dir", str(directory), "--name", name, *flags],
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        process.log_begins = log.tell()
        return process


def complaints(directory, names, processes):
    """Returns the last error or warning of each of these servers since it was started, for an error message."""
    found = ""
    for name, process in zip(names, processes):
        text = (directory / f"{name}.log").read_bytes()[process.log_begins:].decode(errors="replace")
        lines = [line for line in text.splitlines() if "[error]" in line or "[warning]" in line]
        found += f"\n  {name}: {lines[-1].split('] ', 3)[-1]}" if lines else ""
    return found


def address_of(directory):
    """Returns the name that cellctl uses for the cluster that `up` started there."""
    try:
        return (directory / "address").read_text().strip()
    except FileNotFoundError:
        return str(directory)


def write_processes(directory, processes, before=()):
    """Records what runs: `processes` that were started now, and entries that were recorded before."""
    listed = [{"pid": p.pid, "start_time": start_time(p.pid), "helper": "cell_server" not in p.args[0]} for p in processes]
    (directory / "processes.json").write_text(json.dumps([*before, *listed]) + "\n")


def check_they_run(directory, names, processes):
    for name, process in zip(names, processes):
        if process.poll() is not None:
            log = (directory / f"{name}.log").read_text(errors="replace").strip().splitlines()
            raise ClusterError(f"{name} ended with status {process.returncode}: {log[-1] if log else 'no log'}")


def wait_until_they_listen(directory, names, processes, seconds):
    deadline = time.monotonic() + seconds
    while not all((directory / f"{name}.control").exists() for name in names):
        check_they_run(directory, names, processes)
        if time.monotonic() > deadline:
            raise ClusterError(f"the servers have not started after {seconds} s; see the logs in {directory}{complaints(directory, names, processes)}")
        time.sleep(0.01)


def wait_until_it_answers(directory, names, processes, seconds):
    deadline = time.monotonic() + seconds
    while True:
        check_they_run(directory, names, processes)
        answer = subprocess.run([binary("tools/cellctl"), "--cluster", address_of(directory), "status"],
                                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if answer.returncode == 0:
            return
        if time.monotonic() > deadline:
            raise ClusterError(f"the cluster does not answer after {seconds} s: {answer.stderr.strip()}{complaints(directory, names, processes)}")
        time.sleep(0.05)


def end(processes, seconds=10):
    """Ends child processes, first with SIGTERM, then with SIGKILL."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


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
    return f"{process.get('name', 'ZooKeeper' if process.get('helper') else 'a server')} (process {process['pid']})"


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
