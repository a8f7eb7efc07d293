"""Brings a Cell cluster up on this machine and waits until it answers.

An empty or missing directory gets a new cluster. An existing cluster is brought up as it was, without further flags,
and with its keys if it is durable. If it is running, its servers that have ended are started again.
"""

import argparse
import os
import shlex
import signal
import sys
import time

from tools import cluster

REGIONS_MAX = 65536  # Per worker, like cell_server's.


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def add(flag, text, default=None, **options):
        parser.add_argument(flag, help=text if default is None else f"{text} (new clusters: {default})", **options)

    parser.add_argument("--dir", default="/tmp/cell", help="the cluster's directory; made if it is not there (default: %(default)s)")
    parser.add_argument("--server", metavar="NAME", help="start this server of the cluster again, and no other")
    add("--servers", "server processes; keys spread over them as meganodes split. A cluster can get more later", 1, type=int)
    add("--zookeeper", "let ZooKeeper keep the membership: the one there, or without an address one of its own", nargs="?", const="start",
        metavar="HOST:PORT")
    add("--name", "of the cluster, in ZooKeeper", "cell")
    add("--workers", "threads of each server, each with regions of its own", 1, type=int)
    add("--node-bytes", "of each node of the tree", 1024, type=int, choices=(512, 1024, 2048, 4096))
    add("--meganode-bytes", "nodes of each region", "64M")
    add("--extents-bytes", "keys and values of each region", "256M")
    add("--regions-max", "that each worker may hold, as meganodes split", 16, type=int)
    add("--fabric", "how clients reach the servers; auto: shared memory and, with --host, tcp", "auto", choices=("auto", "shm", "tcp", "verbs"))
    add("--host", "an address of this machine where clients on others can connect; 127.0.0.1 if tcp needs one")
    add("--secret-file", "only clients that have the same secret come in; at least 16 bytes, not for others to read. Shared memory does not ask "
        "for it: with a secret, only processes of this user reach the servers by it; without one, the umask decides")
    add("--poll", "adaptive: servers that have nothing to do sleep; busy: they never do", "adaptive", choices=("adaptive", "busy"))
    add("--durability", "when a write is on disk: never; within 10 ms of being acknowledged; before", "async",
        choices=("none", "async", "sync"))
    parser.add_argument("--no-batching", action="store_true", help="servers walk each search by itself")
    parser.add_argument("--detach", action="store_true", help="return once it answers; end it with //tools:down")
    cluster.add_kill_after_flag(parser)
    args = parser.parse_args(arguments)
    for flag, value in (("--servers", args.servers), ("--workers", args.workers)):
        if value is not None and not 1 <= value <= 64:
            parser.error(f"{flag} is from 1 to 64")
    if args.regions_max is not None and not 1 <= args.regions_max <= REGIONS_MAX:
        parser.error(f"--regions-max is from 1 to {REGIONS_MAX}")
    if args.fabric == "verbs" and not args.host:
        parser.error("--fabric verbs needs --host, an address of an RDMA device (cell_server --list-devices)")
    if args.server and args.servers:
        parser.error("--server starts one that the cluster has; --servers is how many it is to have")
    return args


def bring_up(directory, args):
    known = cluster.settings_of(directory)
    flags = (["--poll", args.poll] if args.poll else []) + (["--no-batching"] if args.no_batching else [])
    given = {
        "servers": args.servers, "workers": args.workers, "node_bytes": args.node_bytes, "regions_max": args.regions_max,
        "fabric": args.fabric, "host": args.host, "zookeeper": args.zookeeper, "name": args.name,
        "durability": args.durability or (None if known else "async"), "server_flags": flags or None,
        "meganode_bytes": cluster.parse_bytes(args.meganode_bytes) if args.meganode_bytes else None,
        "extents_bytes": cluster.parse_bytes(args.extents_bytes) if args.extents_bytes else None,
        "secret_file": str(cluster.user_path(args.secret_file)) if args.secret_file else None,
    }
    secret = given["secret_file"] or (known or {}).get("secret_file")
    if secret:
        os.environ["CELL_SECRET_FILE"] = secret  # For the servers, and for the program that checks whether they answer.
    started = cluster.up(directory, only=args.server, **given)
    sys.stderr.write(memory_note(cluster.settings_of(directory), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    running = [name for name in cluster.servers_of(directory) if cluster.lock_holder(directory, name) is not None]
    total = cluster.settings_of(directory)["servers"]
    what = f"{total} server(s) up" if len(started) == total else f"{len(started)} started, {len(running)} of {total} are up"
    print(f"{what} in {directory}\n"
          f"  export CELL_CLUSTER={shlex.quote(cluster.address_of(directory))}\n"
          + (f"  export CELL_SECRET_FILE={shlex.quote(secret)}\n" if secret else "") +
          f"  ./bazelw run //tools:cellctl -- status\n"
          f"  ./bazelw run //tools:down -- --dir {shlex.quote(str(directory))}", flush=True)
    return started


def memory_note(settings, machine_bytes):
    """Returns a note if a full cluster needs more memory than the machine has, or ""."""
    regions = settings["servers"] * settings["workers"] * settings["regions_max"]
    region_bytes = settings["meganode_bytes"] + settings["extents_bytes"]
    if regions * region_bytes <= machine_bytes:
        return ""
    return (f"note: when all its {regions} regions of {region_bytes / 2**20:.0f} MB are full, the cluster needs {regions * region_bytes / 2**30:.1f} GB "
            f"of memory, and this machine has {machine_bytes / 2**30:.1f} GB (--regions-max, --meganode-bytes, --extents-bytes)\n")


def watch(directory, processes, kill_after):
    """Waits until all servers there have ended. One that ends leaves the others as they are."""
    names = {process.pid: process.args[process.args.index("--name") + 1] for process in processes}
    others = {}  # Servers that others started here, by process: name and start time.
    while True:
        for name in cluster.servers_of(directory):
            pid = cluster.lock_holder(directory, name)
            if pid and pid not in names and pid not in others:
                others[pid] = name, cluster.start_time(pid)
        for pid in [pid for pid, (_, began) in others.items() if cluster.start_time(pid) != began]:
            name, _ = others.pop(pid)
            if (directory / "processes.json").exists():
                tell_of_end(directory, name, "")
        for process in [p for p in processes if p.poll() is not None]:
            processes.remove(process)
            if not (directory / "processes.json").exists():
                continue  # Ended by //tools:down.
            how = f"signal {-process.returncode}" if process.returncode < 0 else f"status {process.returncode}"
            tell_of_end(directory, names.pop(process.pid), f" ({how})")
        if not (directory / "processes.json").exists():
            return 0
        if all(p.get("helper") for p in cluster.running(directory)):
            print(f"up: all servers have ended; see the logs in {directory}", file=sys.stderr)
            cluster.end_cluster("up", directory, kill_after)
            return 2
        time.sleep(0.2)


def tell_of_end(directory, name, how):
    print(f"up: {name} has ended{how}; see {directory / name}.log. The others go on. To start it again:\n"
          f"  ./bazelw run //tools:up -- --dir {shlex.quote(str(directory))} --server {name} --detach", file=sys.stderr, flush=True)


def main():
    args = parse()
    directory = cluster.user_path(args.dir)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # Like Ctrl-C.
    try:
        started = bring_up(directory, args)
    except (cluster.ClusterError, OSError) as error:
        print(f"up: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, SystemExit):
        print(f"up: interrupted; what it had started has ended. In {directory}: "
              f"{'no cluster' if not directory.exists() or cluster.settings_of(directory) is None else 'the cluster that was there'}", file=sys.stderr)
        return 130
    if args.detach:
        return 0
    try:
        return watch(directory, started, args.kill_after)
    except (KeyboardInterrupt, SystemExit):
        return cluster.end_cluster("up", directory, args.kill_after)[0]


if __name__ == "__main__":
    sys.exit(main())
