"""Measures a cluster that grows by splits, and prints the tables of docs/results/growth.md.

Every figure is a ratio within this run, or is given with what it was compared with. Needs about 12 GB of memory.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools import cluster, cluster_down


class Measurement:
    def __init__(self, directory, servers, keys, zookeeper=None, **options):
        self.directory, self.keys = directory, keys
        self.processes = cluster.up(directory, servers=servers, zookeeper=zookeeper, **options)
        self.address = str(directory)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        cluster_down.down(self.directory)
        for process in self.processes:
            process.wait()

    def start(self, workload, *arguments, keys=None, prefix=""):
        return subprocess.Popen([cluster.binary("tools/cell_bench"), "--prefix", prefix, "--cluster", self.address, "--json", "-", "--workload", workload,
                                 "--keys", str(keys or self.keys), *arguments], stdout=subprocess.PIPE)

    def bench(self, workload, *arguments, keys=None, prefix=""):
        process = self.start(workload, *arguments, keys=keys, prefix=prefix)
        out, _ = process.communicate()
        if process.returncode != 0:
            raise cluster.ClusterError(f"cell_bench {workload} failed")
        return json.loads(out)

    def status(self):
        out = subprocess.run([cluster.binary("tools/cellctl"), "--cluster", self.address, "-o", "json", "status"],
                             stdout=subprocess.PIPE, check=True).stdout
        return [json.loads(line) for line in out.splitlines()]

    def check(self):
        return subprocess.run([cluster.binary("tools/cellctl"), "--cluster", self.address, "--timeout", "120", "check"],
                              stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()[-1]


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def growth(directory, keys, zookeeper):
    name = "ZooKeeper" if zookeeper else "embedded"
    with Measurement(directory, 4, keys, zookeeper=zookeeper, regions_max=24) as m:
        r = m.bench("get", "--seconds", "0.2")
        servers = m.status()
        counts = [sum(region["keys"] for region in s["regions"] if region["tier"] == 0) for s in servers]
        mean = sum(counts) / len(counts)
        worst = max(abs(c / mean - 1) for c in counts)
        regions = sum(len(s["regions"]) for s in servers)
        row(name, f"{keys:,}", f"{regions}", f"{r['load_keys_per_second']:,.0f}", f"{worst:.1%}", f"{r['load_longest_put_ms']:.1f}",
            f"{max(s['splitter']['meganodes']['longest_cut_us'] for s in servers) / 1e3:.1f}",
            f"{max(s['migrations']['longest_frozen_us'] for s in servers) / 1e3:.1f}",
            f"{max(s['held_writes']['longest_us'] for s in servers) / 1e3:.1f}", m.check())


def load_ratio(directory, keys):
    """Compares one server with meganodes of 64 MB that split, and one with a single meganode that holds everything."""
    rates = {}
    for split in (True, False, True, False):
        size = {"meganode_bytes": 64 << 20, "extents_bytes": 256 << 20} if split else {"meganode_bytes": 1 << 30, "extents_bytes": 3 << 30}
        with Measurement(directory, 1, keys, regions_max=32, **size) as m:
            rates.setdefault(split, []).append(m.bench("get", "--seconds", "0.1"))
    for with_splits, without in zip(rates[True], rates[False]):
        both = [one["load_keys_per_second"] for one in (with_splits, without)]
        row(f"{keys:,}", f"{both[0]:,.0f}", f"{both[1]:,.0f}", f"{both[0] / both[1]:.2f}",
            *(f"{one[name]:.1f}" for name in ("load_p999_ms", "load_longest_put_ms") for one in (with_splits, without)))


def searches(m):
    for path in ("client", "server"):
        m.bench("search", "--seconds", "1", "--path", path)
        r = m.bench("search", "--seconds", "2", "--path", path)
        row(path, f"{r['node_reads_per_op']:.2f}", f"{r['calls_per_op']:.2f}", f"{r['route_hits_per_op']:.3f}", f"{r['cache_hits_per_op']:.2f}")


def gets_during_splits(m):
    """Compares a client that inserts (meganodes split) with one that replaces as many keys (they do not)."""
    for seed, path in enumerate(("server", "client"), 1):
        beside = {}
        for what in ("replaces", "inserts"):
            if what == "inserts":
                before = sum(s["splitter"]["meganodes"]["splits"] for s in m.status())
                other = m.start("insert", "--seconds", "6", "--path", "server", "--rate", "60000", "--seed", str(seed))
            else:
                other = m.start("put", "--seconds", "6", "--path", "server", "--rate", "60000")
            time.sleep(1)
            beside[what] = m.bench("get", "--seconds", "3", "--path", path)
            other.communicate()
        splits = sum(s["splitter"]["meganodes"]["splits"] for s in m.status()) - before
        quiet, busy = beside["replaces"], beside["inserts"]
        row(path, splits, f"{quiet['ops_per_second']:,.0f}", f"{busy['ops_per_second']:,.0f}",
            f"{busy['ops_per_second'] / quiet['ops_per_second']:.2f}", f"{quiet['latency_us']['p99']:.0f}", f"{busy['latency_us']['p99']:.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=10_000_000, help="number of keys in the growing clusters")
    parser.add_argument("--fewer-keys", type=int, default=3_000_000, help="number of keys in the other measurements")
    parser.add_argument("--only", choices=("growth", "loading", "reading"), help="measure only this part")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cell-measure-") as temporary:
        directory = Path(temporary)
        try:
            if args.only in (None, "growth"):
                print("\nGrowth: four servers, meganodes of 64 MB, one client with 64 puts in flight.\n")
                row("membership", "keys", "regions", "keys/s", "worst server off the mean", "longest put ms", "longest cut ms",
                    "longest freeze ms", "longest held write ms", "check")
                row(*["---"] * 10)
                for zookeeper in (None, "start"):
                    growth(directory, args.keys, zookeeper)
            if args.only in (None, "loading"):
                print("\nLoading with and without splits: one server.\n")
                row("keys", "with splits, keys/s", "without, keys/s", "ratio", "p99.9 of a put ms, with", "without", "longest put ms, with", "without")
                row(*["---"] * 8)
                load_ratio(directory, args.fewer_keys)
            if args.only in (None, "reading"):
                with Measurement(directory, 4, args.fewer_keys, regions_max=32, meganode_bytes=16 << 20, extents_bytes=64 << 20) as m:
                    m.bench("get", "--seconds", "0.1")
                    print("\nSearches with warm caches: four servers, meganodes of 16 MB, keys chosen uniformly.\n")
                    row("path", "node reads per search", "RPCs per search", "began at a remembered meganode", "cached nodes per search")
                    row(*["---"] * 5)
                    searches(m)
                    print("\nGets beside a client that replaces and one that inserts 60,000 pairs/s.\n")
                    row("path", "splits meanwhile", "gets/s, no splits", "gets/s, splits", "ratio", "p99 us, no splits", "p99 us, splits")
                    row(*["---"] * 7)
                    gets_during_splits(m)
        except (cluster.ClusterError, OSError, subprocess.CalledProcessError) as error:
            print(f"measure_cluster: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
