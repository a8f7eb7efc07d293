"""Starts a cluster on this machine, for //tools:up, //tools:demo and the tests. cluster_down.py stops it."""

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tools import private_directory
from tools.cluster_directory import (ClusterError, address_of, alone_in, is_empty, lock_holder, replace_file, running, servers_of,
                                     service_of, write_processes)
from tools.cluster_settings import CONSTANTS, DEFAULTS, describe, names_of, settings_of
from tools.free_ports import free_port
from tools.log_place import CEPH, log_flags, missing_daemons, own_pool, start_own_ceph, with_conf
from tools.zookeeper_server import start_zookeeper, wait_for_zookeeper

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def parse_bytes(text):
    """Parses '64M' as a number of bytes."""
    match = re.fullmatch(r"(\d+)([KMG]?)B?", text.upper())
    if not match:
        raise ClusterError(f'"{text}" is not a valid size: use for example 64M or 1G')
    return int(match[1]) * UNITS[match[2]]


# Files that say how a cluster is brought up.
SETTINGS = ("up.json", "cluster.json", "durable.json", "address")
REGIONS = "regions.json"

# ZooKeeper's credentials for a cluster: one line USER:PASSWORD, which only this user can read.
DIGEST = "zookeeper-digest"

# The cluster's secret, if `up` has made it.
SECRET = "secret"

# If set, a directory whose cell_server and cellctl are used instead of those that were built along with this one.
PROGRAMS = None


def program(name):
    """Returns the path of a program of the build that clusters run (PROGRAMS)."""
    return str(Path(PROGRAMS) / Path(name).name) if PROGRAMS else binary(name)


def binary(name):
    """Returns the path of a program that was built along with this one."""
    directory = Path(__file__).absolute().parent.parent  # Unresolved: in the runfiles, not in the source tree.
    for path in (directory / name, directory / "bin" / Path(name).name):  # The latter in the Python package (wheel.py).
        if path.exists():
            return str(path)
    raise ClusterError(f"{name} is not built: run this program with ./bazelw run")


def user_path(text):
    """Returns a path as the user meant it: `bazel run` changes the directory. Links are left to whoever uses the path,
    so that private_directory.check sees them."""
    return Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), text).absolute()


def settle(directory, given):
    """Decides how to bring the cluster up, from what exists and what was requested, and whether it begins empty."""
    known = settings_of(directory)
    if known is None:
        if not is_empty(directory):
            raise ClusterError(f"{directory} is not empty and contains no cluster: use a directory that is empty or does not exist")
        return placed({**DEFAULTS, **given}), True
    if known["durability"] == "none" and known["zookeeper"] in (None, "start") and not running(directory) and \
            not any(lock_holder(directory, name) is not None for name in servers_of(directory)):
        if (directory / "log").exists():
            raise ClusterError(f"{directory}/up.json says that the cluster has no logs, but {directory}/log is there: it was damaged, or "
                               f'edited; set "durability" there to what the cluster was made with, async or sync')
        return placed({**known, **given}), True  # Its keys ended with its servers.
    settings = {**known, **given}
    if settings["log_store"] != known["log_store"]:
        settings = placed(settings)
    for key in CONSTANTS:
        if settings[key] != known[key]:
            raise ClusterError(f"the cluster in {directory} has {key} {known[key]}, not {settings[key]}: start it with its own "
                               f"settings, or delete it first, with its keys (./bazelw run //tools:wipe -- --dir {directory})")
    if settings["servers"] < known["servers"]:
        raise ClusterError(f"the cluster in {directory} has servers 0 to {known['servers'] - 1}, which is more than {settings['servers']}: "
                           "drain the servers that should hold nothing (cellctl drain)")
    return settings, False


def placed(settings):
    """Returns the settings with a place of the logs that does not depend on the environment."""
    return {**settings, "log_store": with_conf(settings["log_store"], user_path)}


def environment(directory):
    """Returns the environment for programs that use the cluster: with its secret and its ZooKeeper credentials, if it has any of its own."""
    variables = dict(os.environ)
    if (directory / DIGEST).exists():
        variables.pop("CELL_ZOOKEEPER_DIGEST", None)
        variables["CELL_ZOOKEEPER_DIGEST_FILE"] = str(directory / DIGEST)
    given = (settings_of(directory) or {}).get("secret_file")
    if given or (directory / SECRET).exists():
        variables["CELL_SECRET_FILE"] = given or str(directory / SECRET)
    return variables


def make_digest(directory):
    """Makes credentials for ZooKeeper, unless the user has given some."""
    if os.environ.get("CELL_ZOOKEEPER_DIGEST") or os.environ.get("CELL_ZOOKEEPER_DIGEST_FILE") or (directory / DIGEST).exists():
        return
    with open(os.open(directory / DIGEST, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(f"cell:{secrets.token_urlsafe(24)}\n")


def make_secret(directory, settings, flags):
    """Makes the secret of a cluster that others could reach by tcp or verbs, unless the user has given one."""
    reachable = settings["host"] or settings["fabric"] in ("tcp", "verbs")
    given = settings["secret_file"] or os.environ.get("CELL_SECRET_FILE") or (directory / SECRET).exists()
    if reachable and not given and "--insecure" not in flags:
        subprocess.run([binary("tools/cellctl"), "secret", "new", str(directory / SECRET)], check=True, timeout=30)


def wipe(directory, *flags):
    """Deletes a cluster that has ended."""
    plan = subprocess.run([binary("tools/wipe"), "--dir", str(directory), "--dry-run", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False)
    name = re.match(r"(?:Cluster (.*?)(?: \([0-9a-f-]*\))?:\n)?", plan.stdout)[1] or ""
    done = subprocess.run([binary("tools/wipe"), "--dir", str(directory), "--confirm", name, *flags], stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True, check=False)
    if plan.returncode != 0 or done.returncode != 0:
        raise ClusterError((plan.stderr or done.stderr).strip())


def rules_of(directory):
    """Returns the text of a region table without regions that has the grants and the rules of eviction for keys of the
    cluster in a directory, or None if there are none."""
    path = directory / REGIONS
    if not path.exists():
        return None
    try:
        table = json.loads(path.read_text())
        rules = {name: table[name] for name in ("grants", "evictions") if name in table}
        if "grants" in rules:
            rules["grants"]["given"] = [grant for grant in rules["grants"]["given"] if "table" not in grant]
    except (ValueError, TypeError, KeyError) as error:
        raise ClusterError(f"{path} is damaged ({error!r}), so it is not known who may do what; to begin without grants, delete the cluster first "
                           f"(./bazelw run //tools:wipe -- --dir {directory})") from error
    return json.dumps({"version": 1, "next_region": 1, "ids": {"epoch": 1, "removed_epoch": 0}, "root": 0, "regions": [], "draining": [], "made": [], **rules}) + "\n" if rules else None


def wipe_znodes(directory, address, seconds=15):
    """Deletes what a cluster that did not come up has left in ZooKeeper. A session of a server may have to expire
    first."""
    deadline = time.monotonic() + seconds
    while subprocess.run([binary("tools/wipe"), "--cluster", address, "--confirm", address.rsplit("/", 1)[1]], stdout=subprocess.DEVNULL,
                         stderr=subprocess.DEVNULL, check=False, env=environment(directory)).returncode == 2 and time.monotonic() < deadline:
        time.sleep(0.2)


def exists_in_zookeeper(directory, address):
    asked = subprocess.run([binary("tools/cellctl"), "--cluster", address, "status"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                           text=True, check=False, env=environment(directory))
    return "no cluster" not in asked.stderr


def up(directory, only=None, wait_seconds=60, **given):
    """Starts a cluster, or its missing servers, and waits until it answers. Returns the processes of the servers
    started.

    An empty or missing directory gets a new cluster; if that does not come up, nothing of it stays. An existing
    cluster is brought up as it was before, with its keys if it is durable; if that fails, its settings stay as they
    were. Any other directory is left alone.

    given: settings that differ from the former ones, or from the defaults (DEFAULTS). The constants of an existing
    cluster cannot change; it can get more servers.
      server_flags, flags_of: flags of all servers, and by the server's name
      fabric: as cell_server's. host: where tcp and verbs listen (by default 127.0.0.1)
      zookeeper: None: only the directory; "start": with a ZooKeeper of its own; HOST:PORT: one that runs
      log_store: None: DIR/log; otherwise cell_server's --log-store, or rados:POOL with a Ceph of its own (log_place.py)
    only: the name of the one server to start.
    """
    made_here = private_directory.make(directory)
    new = False
    try:
        with alone_in(directory):
            if only is not None and settings_of(directory) is None:
                raise ClusterError(f"there is no cluster in {directory}, so {only} cannot be started")
            settings, new = settle(directory, {key: value for key, value in given.items() if value is not None})
            private_directory.check_content(directory)
            if private_directory.close_to_others(directory):
                print(f"note: other users could read {directory}; now it is yours alone (mode 700)", file=sys.stderr)
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
    pool = own_pool(directory, settings["log_store"], new)
    flags = [*settings["server_flags"], "--fabric", fabric]
    helpers, started, made_in_zookeeper = [], [], None
    before = running(directory)
    kept = {name: (directory / name).read_text() for name in SETTINGS if (directory / name).exists()}
    listed_before = {path.name for path in directory.iterdir()}
    if new and kept:
        rules = rules_of(directory)
        wipe(directory)
        if rules is not None:
            kept[REGIONS] = rules
    try:
        replace_file(directory / "up.json", json.dumps(settings, indent=1) + "\n")
        if new and REGIONS in kept and zookeeper is None:
            replace_file(directory / REGIONS, kept[REGIONS])
        if new:
            make_secret(directory, settings, flags)
        if zookeeper is None:
            replace_file(directory / "cluster.json", json.dumps(describe(directory, settings), indent=1) + "\n")
            address = str(directory)
        else:
            if zookeeper == "start" and any(service_of(p) == "ZooKeeper" for p in before):
                zookeeper = address_of(directory)[len("zk://"):].rsplit("/", 1)[0]  # It runs.
            elif zookeeper == "start":
                port = free_port()
                with interrupts_held():
                    helpers.append(start_zookeeper(directory / "zookeeper", port))
                write_processes(directory, helpers, before)
                wait_for_zookeeper(port, helpers[0])
                zookeeper = f"127.0.0.1:{port}"
            address = f"zk://{zookeeper}/{settings['name']}"
            if new and "--insecure" not in flags:
                make_digest(directory)
            if new and settings["zookeeper"] != "start" and not exists_in_zookeeper(directory, address):
                made_in_zookeeper = address
            for flag in ("workers", "regions_max", "node_bytes", "meganode_bytes", "extents_bytes", "durability"):
                flags += ["--" + flag.replace("_", "-"), str(settings[flag])]
            flags += ["--cluster", address]
            if host or fabric in ("tcp", "verbs"):
                flags += ["--listen", host or "127.0.0.1"]
        if pool is not None and missing_daemons(directory, before):
            print(f"starting Ceph in {directory / CEPH}, which takes some seconds", file=sys.stderr, flush=True)
            helpers += start_own_ceph(directory, pool, before).processes.values()
            write_processes(directory, helpers, before)
        flags += log_flags(directory, settings["log_store"])
        replace_file(directory / "address", address + "\n")
        for name in names:
            for stale in [directory / f"{name}.control", *directory.glob(f"{name}.*.sock")]:
                stale.unlink(missing_ok=True)
            with interrupts_held():
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
            wipe_znodes(directory, made_in_zookeeper)
        end(helpers)
        (directory / "processes.json").unlink(missing_ok=True)
        if new:
            replace_file(directory / "address", f"{directory}\n")  # A cluster in ZooKeeper that existed before stays.
            try:
                wipe(directory)
            except ClusterError:  # The place of its logs cannot be reached, or has another cluster's: there are none of it.
                wipe(directory, "--keep-logs")
            put_back(directory, kept)
        else:
            take_back(directory, names, listed_before, kept)
            if before:
                write_processes(directory, [], before)
        raise
    return started


def put_back(directory, kept):
    for name, text in kept.items():
        replace_file(directory / name, text)


def take_back(directory, names, listed_before, kept):
    """Undoes what `start` has changed in the directory of a cluster that stays, because what was given did not work."""
    joined = [name for name in names if f"{name}.lock" not in listed_before and (directory / f"{name}.control").exists()]
    if joined:  # Such a server may hold regions, so it stays listed.
        kept = {name: text for name, text in kept.items() if name == "address"}
    put_back(directory, kept)
    for name in names:
        if name in joined:
            continue
        for path in [*directory.glob(f"{name}.log*"), directory / f"{name}.lock", directory / f"{name}.audit", *directory.glob(f"{name}.*.sock")]:
            if path.name not in listed_before:
                path.unlink(missing_ok=True)


@contextlib.contextmanager
def interrupts_held():
    """Holds Ctrl-C and SIGTERM back for a moment. Otherwise one that comes while a process is being started leaves a
    process that nobody ends."""
    kinds = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {kind: signal.getsignal(kind) for kind in kinds}
    before = {kind: handler for kind, handler in before.items() if callable(handler)}
    came = []
    for kind in before:
        signal.signal(kind, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)
        if came:
            signal.raise_signal(came[0])


def start_server(directory, name, flags):
    """Starts a server, whose messages go to NAME.log: by itself, so that it limits their size, and by its standard
    streams until it serves."""
    to_file = ["--log-file", str(directory / f"{name}.log")] if PROGRAMS is None else []  # Earlier releases have no such flag.
    with private_directory.open_to_append(directory / f"{name}.log") as log:
        process = subprocess.Popen([program("cell/cmd/cell_server"), "--dir", str(directory), "--name", name, *to_file, *flags],
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=environment(directory))
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


def check_they_run(directory, names, processes):
    for name, process in zip(names, processes):
        if process.poll() is not None:
            log = (directory / f"{name}.log").read_text(errors="replace").strip()
            error = log.rfind("\ncell_server: ") + 1  # It may have several lines.
            last = log[error:] if log.startswith("cell_server: ", error) else log.rsplit("\n", 1)[-1]
            raise ClusterError(f"{name} ended with status {process.returncode}: {last or 'no log'}")


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
        answer = subprocess.run([program("tools/cellctl"), "--cluster", address_of(directory), "status"], stdout=subprocess.DEVNULL,
                                stderr=subprocess.PIPE, text=True, check=False, env=environment(directory))
        if answer.returncode == 0:
            return
        if "raise --regions-max" in answer.stderr:
            raise ClusterError(answer.stderr.strip().removeprefix("cellctl: "))
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
