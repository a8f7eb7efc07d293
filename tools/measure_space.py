"""Measures what deletes cost and give back, and prints the tables of docs/results/space.md.

Every figure is a ratio within this run, or is given with what it was compared with; builds, and loads with and without
deletes, run in turns, each in a cluster of its own. With --against it also compares puts with an older build, in a directory
with its cell_server, cell_bench and cellctl (bench_history.py says how to make one). Needs about 4 GB of memory and two cores that
nobody else uses: the server is on the first, clients are on the second.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tools import cluster


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def table(title, *heads):
    print(f"\n## {title}\n")
    row(*heads)
    row(*["---"] * len(heads))


class Store:
    """One server on core 0, without logs unless `durability` says otherwise, of this build or of the one in `programs`."""

    def __init__(self, directory, programs=None, **options):
        self.directory = directory
        self.bench_path = programs / "cell_bench" if programs else Path(cluster.binary("tools/cell_bench"))
        before = cluster.PROGRAMS
        cluster.PROGRAMS = programs
        try:
            self.processes = cluster.up(directory, **{"durability": "none", **options})
        finally:
            cluster.PROGRAMS = before
        for process in self.processes:
            subprocess.run(["taskset", "-acp", "0", str(process.pid)], stdout=subprocess.DEVNULL, check=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        cluster.end(self.processes)

    def start(self, workload, *arguments):
        return subprocess.Popen(["taskset", "-c", "1", str(self.bench_path), "--cluster", str(self.directory), "--json", "-",
                                 "--workload", workload, *map(str, arguments)], stdout=subprocess.PIPE, text=True)

    def bench(self, workload, *arguments):
        process = self.start(workload, *arguments)
        out, _ = process.communicate()
        if process.returncode != 0:
            raise cluster.ClusterError(f"cell_bench {workload} ended with {process.returncode}")
        return json.loads(out)

    def ctl(self, *arguments):
        return subprocess.run([cluster.binary("tools/cellctl"), "--cluster", str(self.directory), *arguments], stdout=subprocess.PIPE, check=True,
                              text=True).stdout

    def status(self):
        return json.loads(self.ctl("-o", "json", "status"))

    def space(self):
        """Returns the number of the tree's regions, and the bytes of their nodes and extents in use."""
        regions = [r for r in self.status()["regions"] if "hash" not in r]
        return len(regions), sum(r["nodes_used"] * 1024 + r["extent_bytes_used"] for r in regions)

    def reads_to_the_first(self):
        """Returns how many nodes a client without a cache reads until it has the first pair of the store."""
        run = self.bench("scan", "--no-load", "--path", "client", "--depth", 1, "--scan-length", 1, "--operations", 1, "--keys", 1, "--key-bytes", 14,
                         "--cache-bytes", 0, "--seconds", 1)
        return run["node_reads_per_op"]


def queues(base, operations):
    table(f"Queues: {operations:,} puts, each followed by a delete of the oldest", "keys alive", "regions of", "puts and deletes/s", "errors",
          "regions at the end", "nodes and extents in use", "check")
    small = {"regions_max": 16, "meganode_bytes": 64 << 10, "extents_bytes": 256 << 10}
    for alive, what, shape in ((100, "64 MB, one", {"regions_max": 1}), (20, "64 KB, up to 16", small), (1_000, "64 KB, up to 16", small)):
        with Store(base / f"queue-{alive}", **shape) as store:
            run = store.bench("queue", "--keys", alive, "--operations", operations, "--seconds", 3_600)
            regions, used = store.space()
            row(alive, what, f"{run['ops_per_second']:,.0f}", run["errors"], regions, f"{used:,} bytes", store.ctl("--timeout", "60", "check").splitlines()[-1])


def window(base, keys, turns):
    table(f"A window of {keys:,} keys that has slid {turns} times over its length", "value bytes", "store", "regions", "nodes and extents in use",
          "of the fresh store's", "reads to the first entry")
    for value_bytes in (0, 200):
        fresh = None
        for name, operations in (("fresh", keys), ("after sliding", keys * (turns + 1))):
            with Store(base / f"window-{value_bytes}-{operations}", regions_max=64, meganode_bytes=16 << 20, extents_bytes=64 << 20) as store:
                store.bench("queue", "--keys", keys, "--operations", operations, "--seconds", 3_600, "--value-bytes", value_bytes)
                regions, used = store.space()
                fresh = fresh or used
                row(value_bytes or "8 to 256", name, regions, f"{used / 1e6:,.1f} MB", f"{used / fresh:.2f}", f"{store.reads_to_the_first():.0f}")


def against(base, programs, name, rounds, seconds):
    """Compares with a build that never merges, while stores grow by splits only."""
    table(f"Puts, gets and scans of those of {name}", "what", "this/s", f"{name}/s", "ratio, median", "lowest", "highest")
    figures = [("inserts, regions split", "insert", ["--no-load"]), ("puts of stored keys", "put", []), ("gets, server path", "get", ["--path", "server"]),
               ("gets, client path", "get", ["--path", "client"]), ("scans of 100, client path", "scan", ["--path", "client"])]
    shape = {"regions_max": 64, "meganode_bytes": 16 << 20, "extents_bytes": 64 << 20}
    for what, workload, more in figures:
        pairs = []
        for turn in range(rounds):
            seen = {}
            for which in ("this", "other") if turn % 2 == 0 else ("other", "this"):
                with Store(base / f"{workload}-{turn}-{which}", programs if which == "other" else None, **shape) as store:
                    seen[which] = store.bench(workload, "--keys", 200_000, "--seconds", seconds, *more)["ops_per_second"]
            pairs.append((seen["this"], seen["other"]))
        ratios = [a / b for a, b in pairs]
        ours, theirs = zip(*pairs)
        row(what, f"{statistics.median(ours):,.0f}", f"{statistics.median(theirs):,.0f}", f"{statistics.median(ratios):.3f}", f"{min(ratios):.3f}",
            f"{max(ratios):.3f}")


def scans(base, rounds, seconds, rate):
    """Compares scans beside a queue, whose leaves are merged all the time, with scans beside as many writes that merge nothing."""
    table(f"Scans of 100 beside {2 * rate:,} writes a second", "path", "beside puts, entries/s", "beside a queue, entries/s", "ratio, median", "lowest", "highest")
    beside = {"puts": ["put", "--keys", 20_000, "--rate", 2 * rate, "--prefix", "other-"], "queue": ["queue", "--keys", 20_000, "--rate", rate, "--prefix", "other-"]}
    for path in ("server", "client"):
        pairs = []
        for turn in range(rounds):
            seen = {}
            for which in ("puts", "queue") if turn % 2 == 0 else ("queue", "puts"):
                with Store(base / f"scan-{path}-{turn}-{which}", regions_max=64) as store:
                    store.bench("get", "--keys", 200_000, "--seconds", 0.1)
                    store.bench(*beside[which], "--seconds", 0.1)
                    workload, *more = beside[which]
                    other = store.start(workload, *more, "--seed", 2 + turn, "--seconds", seconds + 2)
                    seen[which] = store.bench("scan", "--no-load", "--keys", 200_000, "--path", path, "--seconds", seconds)["entries_per_second"]
                    other.communicate()
            pairs.append((seen["puts"], seen["queue"]))
        ratios = [b / a for a, b in pairs]
        quiet, merging = zip(*pairs)
        row(path, f"{statistics.median(quiet):,.0f}", f"{statistics.median(merging):,.0f}", f"{statistics.median(ratios):.3f}", f"{min(ratios):.3f}",
            f"{max(ratios):.3f}")


def ycsb(base, rounds, seconds):
    table("YCSB D and E, with a delete of the oldest key for each insert", "workload", "as it is, operations/s", "with deletes", "ratio, median", "lowest", "highest",
          "regions, as it is", "with deletes")
    for workload in ("ycsb-d", "ycsb-e"):
        pairs, regions = [], {}
        for turn in range(rounds):
            seen = {}
            for which in ("", "-deletes") if turn % 2 == 0 else ("-deletes", ""):
                with Store(base / f"{workload}{which}-{turn}", regions_max=64, meganode_bytes=4 << 20, extents_bytes=16 << 20) as store:
                    seen[which] = store.bench(workload + which, "--keys", 100_000, "--distribution", "zipfian", "--seconds", seconds)["ops_per_second"]
                    regions[which] = store.space()[0]
            pairs.append((seen[""], seen["-deletes"]))
        ratios = [b / a for a, b in pairs]
        plain, deletes = zip(*pairs)
        row(workload, f"{statistics.median(plain):,.0f}", f"{statistics.median(deletes):,.0f}", f"{statistics.median(ratios):.3f}", f"{min(ratios):.3f}",
            f"{max(ratios):.3f}", regions[""], regions["-deletes"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("queues", "window", "against", "scans", "ycsb"), help="measure only this part")
    parser.add_argument("--operations", type=int, default=20_000_000, help="puts of each queue")
    parser.add_argument("--keys", type=int, default=1_000_000, help="keys of the window")
    parser.add_argument("--turns", type=int, default=10, help="how often the window slides over its length")
    parser.add_argument("--rounds", type=int, default=5, help="number of runs of which a ratio is the median")
    parser.add_argument("--seconds", type=float, default=3, help="seconds of each run")
    parser.add_argument("--rate", type=int, default=20_000, help="puts a second beside scans, and as many deletes")
    parser.add_argument("--against", type=Path, help="directory with an older cell_server and cell_bench")
    parser.add_argument("--name", default="the other build", help="what to call it, for example its commit")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cell-measure-") as temporary:
        base = Path(temporary)
        try:
            if args.only in (None, "queues"):
                queues(base, args.operations)
            if args.only in (None, "window"):
                window(base, args.keys, args.turns)
            if args.against is not None and args.only in (None, "against"):
                against(base, cluster.user_path(args.against), args.name, args.rounds, args.seconds)
            if args.only in (None, "scans"):
                scans(base, args.rounds, args.seconds, args.rate)
            if args.only in (None, "ycsb"):
                ycsb(base, args.rounds, args.seconds)
        except (cluster.ClusterError, OSError, subprocess.CalledProcessError) as error:
            print(f"measure_space: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
