"""Brings a Cell cluster up on this machine and waits until it answers."""

import argparse
import os
import signal
import sys
import time

from tools import cluster


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--dir", default="/tmp/cell", help="the cluster's directory; made if it is not there")
    parser.add_argument("--servers", type=int, default=1,
                        help="server processes; keys spread over them as meganodes split")
    parser.add_argument("--zookeeper", nargs="?", const="start", metavar="HOST:PORT",
                        help="let ZooKeeper keep the membership: the one there, or without an address one of its own")
    parser.add_argument("--name", default="cell", help="of the cluster, in ZooKeeper")
    parser.add_argument("--workers", type=int, default=1, help="threads of each server, each with regions of its own")
    parser.add_argument("--node-bytes", type=int, default=1024, choices=(512, 1024, 2048, 4096))
    parser.add_argument("--meganode-bytes", default="64M", help="nodes of each region")
    parser.add_argument("--extents-bytes", default="256M", help="keys and values of each region")
    parser.add_argument("--regions-max", type=int, default=16, help="that each worker may hold, as meganodes split")
    parser.add_argument("--fabric", default="auto", choices=("auto", "shm", "tcp", "verbs"),
                        help="how clients reach the servers; auto: shared memory and, with --host, tcp")
    parser.add_argument("--host", help="an address of this machine where clients on others can connect; 127.0.0.1 if tcp needs one")
    parser.add_argument("--secret-file", help="only clients that have the same secret come in; at least 16 bytes, not for others to read")
    parser.add_argument("--poll", default="adaptive", choices=("adaptive", "busy"))
    parser.add_argument("--durability", default="async", choices=("none", "async", "sync"),
                        help="when a write is on disk: never; within 10 ms of being acknowledged; before")
    parser.add_argument("--begin-anew", action="store_true", help="forget the keys of a cluster that was in DIR before")
    parser.add_argument("--no-batching", action="store_true", help="servers walk each search by itself")
    parser.add_argument("--detach", action="store_true", help="return once it answers; end it with //tools:down")
    args = parser.parse_args()
    if not 1 <= args.servers <= 64 or not 1 <= args.workers <= 64:
        parser.error("--servers and --workers are from 1 to 64")
    if args.fabric == "verbs" and not args.host:
        parser.error("--fabric verbs needs --host, an address of an RDMA device (cell_server --list-devices)")
    directory = cluster.user_path(args.dir)
    flags = ["--poll", args.poll] + (["--no-batching"] if args.no_batching else [])
    secret = ""
    if args.secret_file:
        path = cluster.user_path(args.secret_file)
        os.environ["CELL_SECRET_FILE"] = str(path)  # For the servers, and for what asks whether they answer.
        secret = f"  export CELL_SECRET_FILE={path}\n"
    try:
        processes = cluster.up(directory, args.servers, args.workers, args.node_bytes,
                               cluster.parse_bytes(args.meganode_bytes), cluster.parse_bytes(args.extents_bytes), args.regions_max, flags,
                               zookeeper=args.zookeeper, name=args.name, fabric=args.fabric, host=args.host,
                               durability=args.durability, anew=args.begin_anew)
    except (cluster.ClusterError, OSError) as error:
        print(f"up: {error}", file=sys.stderr)
        return 2
    print(f"{args.servers} server(s) up in {directory}\n"
          f"  export CELL_CLUSTER={cluster.address_of(directory)}\n{secret}"
          f"  ./bazelw run //tools:cellctl -- status\n"
          f"  ./bazelw run //tools:down -- --dir {directory}", flush=True)
    if args.detach:
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        while all(process.poll() is None for process in processes):
            time.sleep(0.2)
    except (KeyboardInterrupt, SystemExit):
        cluster.down(directory)
        return 0
    if not cluster.running(directory):  # Ended from elsewhere, by //tools:down.
        return 0
    print(f"up: a server ended by itself; see the logs in {directory}", file=sys.stderr)
    cluster.down(directory)
    return 2


if __name__ == "__main__":
    sys.exit(main())
