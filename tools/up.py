"""Starts a Cell cluster on this machine and waits until it answers.

An empty or missing directory gets a new cluster. An existing cluster is started as it was, without further flags,
and with its keys if it is durable. If it is running, those of its servers that have ended are started again.
"""

import argparse
import os
import shlex
import signal
import sys
import time

from tools import cluster, cluster_directory, cluster_down, cluster_settings, log_place

REGIONS_MAX = 65536  # Per worker, like cell_server's.
INLINE_MAX = 986  # For the largest nodes. The servers check it for the nodes of their cluster.


def parse(arguments=None):
    parser = argparse.ArgumentParser(prog="up", usage="./bazelw run //tools:up -- [FLAGS]", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)

    def add(flag, text, default=None, **options):
        parser.add_argument(flag, help=text if default is None else f"{text} (new clusters: {default})", **options)

    parser.add_argument("--dir", default=cluster_directory.default_directory(),
                        help="directory of the cluster, which is created for this user alone if it does not exist (default: %(default)s)")
    parser.add_argument("--server", metavar="NAME", help="start only this server of the cluster again")
    add("--servers", "number of server processes; keys spread over them as meganodes split, and a cluster can get more servers later", 1, type=int)
    add("--zookeeper", "keep the membership in the ZooKeeper at this address, or, without an address, in one that is started for the cluster. A new cluster's "
        "znodes are protected by credentials, those of CELL_ZOOKEEPER_DIGEST_FILE or new ones, which are kept in the directory",
        nargs="?", const="start", metavar="HOST:PORT")
    add("--name", "name of the cluster in ZooKeeper", "cell")
    add("--workers", "number of worker threads per server, each with its own regions", 1, type=int)
    add("--node-bytes", "size of a tree node in bytes", 1024, type=int, choices=(512, 1024, 2048, 4096))
    add("--inline-max", "store pairs of at most this many bytes, key and value together, in the tree's leaves; 0: none; at most 218 with nodes of 1 KB, 90 with 512 B. "
        "The cluster keeps the setting until another is given, and a running server keeps its own (new clusters: 128)",
        type=int, metavar="BYTES")
    add("--meganode-bytes", "bytes for the nodes of each region", "64M")
    add("--extents-bytes", "bytes for the keys and values of each region", "256M")
    add("--regions-max", "maximum number of regions that each worker holds", 16, type=int)
    add("--memory-max", "memory for the regions of each server, such as 4G; sets --regions-max to as many as fit")
    add("--fabric", "how clients reach the servers; auto: shared memory and, with --host, tcp", "auto", choices=("auto", "shm", "tcp", "verbs"))
    add("--host", "address of this machine where clients on other machines can connect; if tcp needs an address and none is given, 127.0.0.1")
    add("--secret-file", "file with the cluster's secret (cellctl secret new), not readable by others; only clients that prove that they have a secret "
        "of it can connect by tcp and verbs. Without the flag, a cluster that is reached so gets a secret of its own, in the directory. By shared memory only processes of this user can connect, with or without one")
    add("--poll", "how servers wait for requests; adaptive: idle servers sleep; busy: they never sleep", "adaptive", choices=("adaptive", "busy"))
    add("--durability", "when a write is on disk; none: never; async: within 10 ms of being acknowledged; sync: before it is acknowledged", "async",
        choices=("none", "async", "sync"))
    add("--log-store", "where the logs are: dir:PATH; rados:POOL@CEPH.CONF, a pool of Ceph RADOS; or rados:POOL, a pool of the Ceph cluster of CEPH_CONF or "
        "/etc/ceph/ceph.conf, or, if there is neither, of one that is started for the cluster, on loopback (new clusters: dir:DIR/log)", metavar="PLACE")
    add("--log-key", "file with the keys by which logs and checkpoints are encrypted (cellctl data-key new)", metavar="FILE")
    parser.add_argument("--log-plain-ok", action="store_true",
                        help="with --log-key, read logs that are not encrypted, too: once, when encryption is turned on. Then run cellctl checkpoint")
    parser.add_argument("--insecure", action="store_true",
                        help="start also if strangers can use what the servers listen at: --host without --secret-file, or a ZooKeeper without credentials. "
                        "The cluster keeps the setting; a warning in the servers' logs says what is open")
    parser.add_argument("--zero-freed", action="store_true",
                        help="overwrite what is freed in the servers' memory. The cluster keeps the setting")
    parser.add_argument("--no-batching", action="store_true", help="process each search separately")
    parser.add_argument("--detach", action="store_true", help="return as soon as the cluster answers; stop it with //tools:down")
    cluster_down.add_kill_after_flag(parser)
    args = parser.parse_args(arguments)
    for flag, value in (("--servers", args.servers), ("--workers", args.workers)):
        if value is not None and not 1 <= value <= 64:
            parser.error(f"{flag} must be from 1 to 64")
    if args.inline_max is not None and not 0 <= args.inline_max <= INLINE_MAX:
        parser.error(f"--inline-max must be from 0 to {INLINE_MAX}, not {args.inline_max}")
    if args.regions_max is not None and not 1 <= args.regions_max <= REGIONS_MAX:
        parser.error(f"--regions-max must be from 1 to {REGIONS_MAX}")
    if args.memory_max is not None and args.regions_max is not None:
        parser.error("--memory-max sets --regions-max: use only one of them")
    if args.fabric == "verbs" and not args.host:
        parser.error("--fabric verbs needs --host, an address of an RDMA device (cell_server --list-devices)")
    if args.log_store and args.durability == "none":
        parser.error("--log-store is a place for logs, but with --durability none there are no logs: use only one of them")
    if args.server and args.servers:
        parser.error("--server starts one existing server, --servers sets how many servers the cluster has: use only one of them")
    return args


def server_flags(kept, args):
    """Returns the servers' flags: those that the cluster has kept, except for what is given now."""
    flags, given = [flag for flag in kept if flag != "--log-plain-ok"], []
    for name, value in (("--poll", args.poll), ("--inline-max", args.inline_max),
                        ("--log-key", str(cluster.user_path(args.log_key)) if args.log_key else None)):
        if value is not None:
            given += [name, str(value)]
            while name in flags:
                at = flags.index(name)
                del flags[at:at + 2]
    for name, value in (("--no-batching", args.no_batching), ("--zero-freed", args.zero_freed), ("--insecure", args.insecure), ("--log-plain-ok", args.log_plain_ok)):
        if value and name not in flags:
            given.append(name)
    return flags + given


def bring_up(directory, args):
    known = cluster_settings.settings_of(directory)
    flags = server_flags((known or {}).get("server_flags", []), args)
    sizes = {key: cluster.parse_bytes(text) for key, text in (("meganode_bytes", args.meganode_bytes), ("extents_bytes", args.extents_bytes)) if text}
    regions_max = args.regions_max
    if args.memory_max is not None:
        wanted = {**cluster_settings.DEFAULTS, **(known or {}), **sizes, **({"workers": args.workers} if args.workers else {})}
        regions_max = min(cluster_settings.regions_within(cluster.parse_bytes(args.memory_max), wanted), REGIONS_MAX)
    given = {
        "servers": args.servers, "workers": args.workers, "node_bytes": args.node_bytes, "regions_max": regions_max, **sizes,
        "fabric": args.fabric, "host": args.host, "zookeeper": args.zookeeper, "name": args.name,
        "durability": args.durability or (None if known else "async"), "server_flags": flags,
        "log_store": log_place.parse(args.log_store, cluster.user_path) if args.log_store else None,
        "secret_file": str(cluster.user_path(args.secret_file)) if args.secret_file else None,
    }
    secret = given["secret_file"] or (known or {}).get("secret_file")
    if secret:
        os.environ["CELL_SECRET_FILE"] = secret  # For the servers, and for the program that checks whether they answer.
    started = cluster.up(directory, only=args.server, **given)
    if not secret and (directory / cluster.SECRET).exists():
        secret = str(directory / cluster.SECRET)
    sys.stderr.write(memory_note(cluster_settings.settings_of(directory), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")))
    running = [name for name in cluster_directory.servers_of(directory) if cluster_directory.lock_holder(directory, name) is not None]
    total = cluster_settings.settings_of(directory)["servers"]
    what = f"{total} server(s) up" if len(started) == total else f"{len(started)} started, {len(running)} of {total} are up"
    print(f"{what} in {directory}\n"
          f"  export CELL_CLUSTER={shlex.quote(cluster_directory.address_of(directory))}\n"
          + (f"  export CELL_SECRET_FILE={shlex.quote(secret)}\n" if secret else "")
          + (f"  export CELL_ZOOKEEPER_DIGEST_FILE={shlex.quote(str(directory / cluster.DIGEST))}\n" if (directory / cluster.DIGEST).exists() else "") +
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
            f"of memory, but this machine has {machine_bytes / 2**30:.1f} GB (--memory-max, --regions-max, --meganode-bytes, --extents-bytes)\n")


def watch(directory, processes, kill_after):
    """Waits until all servers there have ended. One that ends leaves the others as they are."""
    names = {process.pid: process.args[process.args.index("--name") + 1] for process in processes}
    others = {}  # Servers that others started here, by process: name and start time.
    while True:
        for name in cluster_directory.servers_of(directory):
            pid = cluster_directory.lock_holder(directory, name)
            if pid and pid not in names and pid not in others:
                others[pid] = name, cluster_directory.start_time(pid)
        for pid in [pid for pid, (_, began) in others.items() if cluster_directory.start_time(pid) != began]:
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
        if all(p.get("helper") for p in cluster_directory.running(directory)):
            print(f"up: all servers have ended; see the logs in {directory}", file=sys.stderr)
            cluster_down.end_cluster("up", directory, kill_after)
            return 2
        time.sleep(0.2)


def tell_of_end(directory, name, how):
    print(f"up: {name} has ended{how}; see {directory / name}.log. The other servers continue. To start it again:\n"
          f"  ./bazelw run //tools:up -- --dir {shlex.quote(str(directory))} --server {name} --detach", file=sys.stderr, flush=True)


def main():
    os.umask(0o077)
    args = parse()
    directory = cluster.user_path(args.dir)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # Like Ctrl-C.
    try:
        started = bring_up(directory, args)
    except (cluster.ClusterError, OSError) as error:
        print(f"up: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, SystemExit):
        print(f"up: interrupted; the processes that it had started have ended. In {directory}: "
              f"{'no cluster' if not directory.exists() or cluster_settings.settings_of(directory) is None else 'the cluster as it was before'}", file=sys.stderr)
        return 130
    if args.detach:
        return 0
    try:
        return watch(directory, started, args.kill_after)
    except (KeyboardInterrupt, SystemExit):
        return cluster_down.end_cluster("up", directory, args.kill_after)[0]


if __name__ == "__main__":
    sys.exit(main())
