"""Runs YCSB's client with Cell's binding: workloads a to f, or files of properties, one after the other. Each is loaded and
then run, against a running cluster, or one that is brought up for it.

It prints what YCSB prints, and ends with status 1 if an operation was not OK. YCSB's client and what it needs are fetched from
Maven Central the first time.
"""

import argparse
import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path

from tools import cluster, cluster_down
from tools.ycsb import binding


def parse(arguments=None):
    parser = argparse.ArgumentParser(prog="ycsb", usage="./bazelw run //tools:ycsb -- [FLAGS] WORKLOAD...", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="+", metavar="WORKLOAD", help="a letter from a to f, or the path of a file of YCSB's properties")
    parser.add_argument("--cluster", default=os.environ.get("CELL_CLUSTER"), metavar="PLACE",
                        help="the cluster's directory, or zk://HOST:PORT/NAME (default: CELL_CLUSTER, or a cluster of its own, of one server without logs)")
    parser.add_argument("--redis", metavar="HOST:PORT", help="run against this Redis server instead")
    parser.add_argument("--records", type=int, metavar="N", help="records that are loaded (default: the workload's)")
    parser.add_argument("--operations", type=int, metavar="N", help="operations that are run (default: the workload's)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="client threads (default: %(default)s)")
    parser.add_argument("--phase", choices=("load", "run", "both"), default="both", help="whether to load, to run, or both (default: %(default)s)")
    parser.add_argument("-p", dest="properties", action="append", default=[], metavar="NAME=VALUE",
                        help="a property of YCSB or the binding, such as fieldlength=1000, cell.path=client or cell.share=true; can be repeated")
    parser.add_argument("--status", action="store_true", help="show the progress each ten seconds")
    parser.add_argument("--cache", type=Path, metavar="DIR", help=f"where fetched and compiled files are kept (default: {binding.default_cache()})")
    options = parser.parse_args(arguments)
    for name in ("records", "operations", "threads"):
        value = getattr(options, name)
        if value is not None and value < 1:
            parser.error(f"--{name} must be at least 1")
    for text in options.properties:
        if "=" not in text or text.startswith("="):
            parser.error(f"-p {text}: use -p NAME=VALUE")
    if options.redis and ":" not in options.redis:
        parser.error(f"--redis {options.redis}: use HOST:PORT")
    return options


def properties_of(options, place):
    """Returns the properties that the flags set. `place`: of the cluster, or None for Redis."""
    properties = dict(text.split("=", 1) for text in options.properties)
    if place is None:
        properties["redis.host"], properties["redis.port"] = options.redis.rsplit(":", 1)
    else:
        properties["cell.cluster"] = place
    for name, value in (("recordcount", options.records), ("operationcount", options.operations)):
        if value is not None:
            properties[name] = value
    return properties


def read_properties(path):
    """Returns the properties of a file, as far as this program uses them: one in each line."""
    lines = (line.strip() for line in Path(path).read_text().splitlines())
    return dict((part.strip() for part in line.split("=", 1)) for line in lines if "=" in line and not line.startswith(("#", "!")))


def expected(workload, properties, load):
    """Returns how many operations are to be done, or None if that is not known."""
    known = {**read_properties(binding.workload_file(workload)), **properties}
    if "maxexecutiontime" in known or "insertcount" in known:
        return None
    name, flag = ("recordcount", "--records") if load else ("operationcount", "--operations")
    if not str(known.get(name, "")).isdecimal():
        raise ValueError(f"workload {workload} has no {name} that is a number: use {flag} N")
    return int(known[name])


def run_all(options, place):
    ycsb = binding.Ycsb(cluster.user_path(options.cache) if options.cache else None)
    properties = properties_of(options, place)
    phases = [load for load in (True, False) if options.phase in ("both", "load" if load else "run")]
    wanted = {(workload, load): expected(workload, properties, load) for workload in options.workloads for load in phases}
    for workload in options.workloads:
        for load in phases:
            print(f"== {'load' if load else 'run'} {workload}", file=sys.stderr, flush=True)
            outcome = ycsb.run("redis" if place is None else "cell", workload, load, properties, options.threads, options.status, show=True)
            binding.check(outcome, wanted[workload, load])


@contextlib.contextmanager
def cluster_of(options):
    """Gives the place of the cluster, or None for Redis."""
    if options.redis:
        yield None
    elif options.cluster:
        yield options.cluster if options.cluster.startswith("zk://") else str(cluster.user_path(options.cluster))
    else:
        with tempfile.TemporaryDirectory(prefix="cell-ycsb-") as base:
            directory = Path(base) / "cluster"
            print("bringing up a cluster of one server", file=sys.stderr, flush=True)
            servers = cluster.up(directory)
            try:
                yield str(directory)
            finally:
                cluster_down.down(directory)
                for server in servers:
                    server.wait()


def main():
    os.umask(0o077)
    options = parse()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))  # So that what it has started ends.
    try:
        for workload in options.workloads:
            binding.workload_file(workload)
        with cluster_of(options) as place:
            run_all(options, place)
    except (OSError, ValueError, KeyError, cluster.ClusterError) as error:
        print(f"ycsb: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("ycsb: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
