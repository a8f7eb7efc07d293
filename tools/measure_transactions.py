"""Measures what transactions and functions cost beside single operations, as Markdown.

Both of a pair of workloads run in turns, and the figures are medians. With one server it is pinned to core 0 and the
client to core 1. Leave the machine alone meanwhile: all of it takes about ten minutes.
"""

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools import cluster
from tools.measure_cluster import Measurement, row

# Each workload that is measured, and the one beside it: workload and flags of each, whether latencies (means) or rates count, and the aim.
#
# A server's durability, and where its keys are: "one": all in one region. "many": in regions of two servers.
PAIRS = [
    ("none", "one", "a commit of one put: latency", "tx-put --depth 1", "put --depth 1", "latency", "at most 1.5"),
    ("none", "one", "a commit of one put: rate", "tx-put --depth 16", "put --depth 16", "rate", "at least 0.6"),
    ("sync", "one", "a commit of one put: latency", "tx-put --depth 1", "put --depth 1", "latency", "at most 1.5"),
    ("sync", "one", "a commit of one put: rate", "tx-put --depth 16", "put --depth 16", "rate", "at least 0.6"),
    ("none", "one", "four keys read by clients: rate", "tx-read --depth 4 --path client", "multi-get --depth 4 --path client", "rate", "at least 0.8"),
    ("none", "one", "four keys read by servers: rate", "tx-read --depth 4 --path server", "multi-get --depth 4 --path server", "rate", "at least 0.8"),
    ("none", "one", "1 to each number of 1 KB: rate", "apply --depth 16 --value-bytes 1024", "rewrite --depth 16 --value-bytes 1024", "rate",
     "at least 3"),
    ("none", "many", "a commit of two puts, mostly in two regions: latency", "tx-two --depth 1", "put --depth 1", "latency", ""),
    ("sync", "many", "a commit of two puts, mostly in two regions: latency", "tx-two --depth 1", "put --depth 1", "latency", ""),
    ("none", "one", "a snapshot, a get of it, and its end: latency", "tx-snapshot --depth 1", "put --depth 1", "latency", ""),
    ("sync", "one", "a snapshot, a get of it, and its end: latency", "tx-snapshot --depth 1", "put --depth 1", "latency", ""),
    ("none", "many", "a snapshot of all regions, a get of it, and its end: latency", "tx-snapshot --depth 1", "put --depth 1", "latency", ""),
    ("none", "many", "four keys read by clients: rate", "tx-read --depth 4 --path client", "multi-get --depth 4 --path client", "rate", "at least 0.8"),
]
MIXES = ("tx-small-bank", "tx-tatp", "tx-new-order")
SHAPES = {
    "one": {"servers": 1, "meganode_bytes": 256 << 20, "extents_bytes": 512 << 20},
    "many": {"servers": 2, "meganode_bytes": 4 << 20, "extents_bytes": 16 << 20, "regions_max": 32},
}


class Transactions:
    """A cluster whose logs, if it has any, are in memory: the disk of a shared machine would be what is measured."""

    def __init__(self, base, durability, place, options):
        self.options = options
        self.pinned = place == "one"
        log = {} if durability == "none" else {"log_store": f"dir:{base / 'log'}"}
        self.measurement = Measurement(base / "cluster", SHAPES[place]["servers"], options.keys, durability=durability, **log,
                                       **{name: value for name, value in SHAPES[place].items() if name != "servers"})

    def __enter__(self):
        self.cores = os.sched_getaffinity(0)
        try:
            for process in self.measurement.processes if self.pinned else []:
                subprocess.run(["taskset", "-acp", "0", str(process.pid)], stdout=subprocess.DEVNULL, check=True)
            if self.pinned:
                os.sched_setaffinity(0, {1})  # For the clients that are started from here on.
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *arguments):
        os.sched_setaffinity(0, self.cores)
        self.measurement.__exit__(*arguments)

    def run(self, line):
        workload, *flags = line.split()
        # Values of other sizes are other keys.
        size = flags[flags.index("--value-bytes") + 1] if "--value-bytes" in flags else "mixed"
        command = ["--seconds", str(self.options.seconds), *flags]
        if self.pinned:
            command += ["--busy-poll"]
        return self.measurement.bench(workload, *command, prefix=f"{size}-")

    def turns(self, *lines):
        """Returns the results of each line's runs."""
        results = [[] for _ in lines]
        for _ in range(self.options.rounds):
            for line, seen in zip(lines, results):
                seen.append(self.run(line))
        return results


def median(results, *path):
    values = []
    for result in results:
        for name in path:
            result = result[name]
        values.append(result)
    return statistics.median(values)


def measure_pairs(options):
    print("\nWhat a transaction or a function costs.\n")
    row("durability", "regions", "what", "measured", "beside", "ratio", "aim")
    row(*["---"] * 7)
    for durability, place in dict.fromkeys((pair[0], pair[1]) for pair in PAIRS):
        with tempfile.TemporaryDirectory(prefix="cell-tx-", dir=options.memory) as base, Transactions(Path(base), durability, place, options) as cell:
            for _, _, what, line, beside, kind, aim in (pair for pair in PAIRS if pair[:2] == (durability, place)):
                cell.run(beside)  # Loads the keys.
                results = cell.turns(line, beside)
                if kind == "latency":
                    # One after the other. The percentiles of the two would not compare: a transaction's are of all that its program does.
                    ours, theirs = (1e6 / median(one, "ops_per_second") for one in results)
                    figures = [f"{ours:.1f} us", f"{theirs:.1f} us"]
                else:
                    ours, theirs = (median(one, "ops_per_second") for one in results)
                    figures = [f"{ours / 1e3:,.1f} k/s", f"{theirs / 1e3:,.1f} k/s"]
                row(durability, place, what, *figures, f"{ours / theirs:.2f}", aim)


def measure_mixes(options):
    print("\nMixes, 16 transactions in flight, two servers, many regions.\n")
    row("durability", "mix", "keys", "transactions/s", "p50 us", "p99 us", "aborted tries per transaction", "calls per transaction")
    row(*["---"] * 8)
    for durability in ("none", "sync"):
        with tempfile.TemporaryDirectory(prefix="cell-tx-", dir=options.memory) as base, Transactions(Path(base), durability, "many", options) as cell:
            for mix in MIXES:
                for distribution in ("uniform", "zipfian") if mix != "tx-new-order" else ("uniform",):
                    line = f"{mix} --depth 16 --distribution {distribution}"
                    cell.run(line)
                    [results] = cell.turns(line)
                    row(durability, mix, distribution, f"{median(results, 'ops_per_second'):,.0f}", f"{median(results, 'latency_us', 'p50'):.0f}",
                        f"{median(results, 'latency_us', 'p99'):.0f}", f"{median(results, 'aborts_per_op'):.4f}", f"{median(results, 'calls_per_op'):.1f}")


@contextlib.contextmanager
def kept_snapshot(address):
    """Takes a snapshot, which is kept until the end: nobody reads what its scan prints."""
    with subprocess.Popen([cluster.binary("tools/cellctl"), "--cluster", address, "scan", "--snapshot"], stdout=subprocess.PIPE) as scan:
        try:
            scan.stdout.read(1)
            yield
        finally:
            scan.terminate()


def measure_kept(options):
    print("\nPuts of 100,000 keys, 16 in flight, while a snapshot is kept.\n")
    row("durability", "regions", "puts beside a snapshot", "puts without one", "ratio")
    row(*["---"] * 5)
    for durability in ("none", "sync"):
        with tempfile.TemporaryDirectory(prefix="cell-tx-", dir=options.memory) as base, Transactions(Path(base), durability, "one", options) as cell:
            line = "put --depth 16"
            cell.run(line)
            beside, without = [], []
            for _ in range(options.rounds):
                with kept_snapshot(cell.measurement.address):
                    beside.append(cell.run(line))
                without.append(cell.run(line))
            ours, theirs = median(beside, "ops_per_second"), median(without, "ops_per_second")
            row(durability, "one", f"{ours / 1e3:,.1f} k/s", f"{theirs / 1e3:,.1f} k/s", f"{ours / theirs:.2f}")


@contextlib.contextmanager
def redis(base):
    """Runs a Redis that keeps nothing on disk, on core 0. Yields the path of its socket."""
    path = base / "redis.sock"
    command = ["taskset", "-c", "0", "redis-server", "--port", "0", "--unixsocket", str(path), "--save", "", "--appendonly", "no", "--dir", str(base)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            until = time.monotonic() + 10
            while not path.exists():
                if process.poll() is not None or time.monotonic() > until:
                    raise cluster.ClusterError("redis-server did not start")
                time.sleep(0.05)
            yield path
        finally:
            process.terminate()


def redis_rate(path, options, connections, in_pipeline):
    """Returns how many INCRs Redis executes in a second, of as many keys as there are in Cell."""
    count = int(options.seconds * (150_000 if in_pipeline == 1 else 1_000_000))
    command = ["taskset", "-c", "1", "redis-benchmark", "-s", str(path), "-t", "incr", "-r", str(options.keys), "-n", str(count), "-c", str(connections),
               "-P", str(in_pipeline), "--csv"]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return float(next(line for line in said.splitlines() if line.startswith('"INCR')).split(",")[1].strip('"'))


def measure_redis(options):
    if shutil.which("redis-server") is None or shutil.which("redis-benchmark") is None:
        print("\nCounters beside Redis: not measured, because redis-server and redis-benchmark are not installed (packages redis-server and redis-tools).")
        return
    print("\n1 added to each of 100,000 counters, without logs, 16 in flight. Redis by a Unix socket.\n")
    row("Redis", "Apply", "INCR", "ratio", "aim")
    row(*["---"] * 5)
    with tempfile.TemporaryDirectory(prefix="cell-tx-", dir=options.memory) as base, Transactions(Path(base), "none", "one", options) as cell:
        with redis(Path(base)) as path:
            line = "apply --depth 16 --value-bytes 8"
            cell.run(line)
            for name, connections, in_pipeline in (("16 connections", 16, 1), ("one connection with a pipeline of 16", 1, 16)):
                ours, theirs = [], []
                for _ in range(options.rounds):
                    ours.append(cell.run(line)["ops_per_second"])
                    theirs.append(redis_rate(path, options, connections, in_pipeline))
                ours, theirs = statistics.median(ours), statistics.median(theirs)
                row(name, f"{ours / 1e3:,.1f} k/s", f"{theirs / 1e3:,.1f} k/s", f"{ours / theirs:.2f}", "at least 5")


MEASURES = {"pairs": measure_pairs, "kept": measure_kept, "redis": measure_redis, "mixes": measure_mixes}


def main():
    parser = argparse.ArgumentParser(prog="measure_transactions", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MEASURES, help="measure only this")
    parser.add_argument("--keys", type=int, default=100_000, help="keys in the store (default: 100,000)")
    parser.add_argument("--seconds", type=float, default=1.5, help="seconds of each run, after half a second of warm-up (default: 1.5)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each workload (default: 5)")
    parser.add_argument("--memory", type=Path, default=Path("/dev/shm"), help="folder in memory for logs (default: /dev/shm)")
    options = parser.parse_args()
    if options.rounds < 1 or options.seconds < 0.1 or options.keys < 1:
        parser.error("--rounds and --keys must be at least 1, and --seconds at least 0.1")
    try:
        for name, measure in MEASURES.items():
            if options.only in (None, name):
                measure(options)
    except (cluster.ClusterError, OSError, subprocess.CalledProcessError) as error:
        print(f"measure_transactions: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
