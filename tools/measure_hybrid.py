"""Measures hybrid, the default path, against the better of the two pure paths, cell by cell, as Markdown.

A cell is a fabric, a workload, a number of operations in flight, and where a busy neighbour runs: a process that does
nothing but compute, on the server's core or on the client's. The three paths run in turns, and the figures are medians.

The server is pinned to core 0, the client to core 1. Leave the machine alone meanwhile: all of it takes two hours.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tools import cluster

FABRICS = ["shm", "tcp"]
WORKLOADS = ["get", "put", "scan", "ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-e", "ycsb-f"]
DEPTHS = [1, 16, 64]
NEIGHBOURS = ["none", "server", "client"]
PATHS = ["server", "client", "hybrid"]
SERVER_CORE, CLIENT_CORE = 0, 1
SHAPE = {"meganode_bytes": 256 << 20, "extents_bytes": 512 << 20}


class Neighbour:
    """A process that computes on the core of `where` while it is entered."""

    def __init__(self, where):
        self.core = {"server": SERVER_CORE, "client": CLIENT_CORE}.get(where)
        self.process = None

    def __enter__(self):
        if self.core is not None:
            self.process = subprocess.Popen(["taskset", "-c", str(self.core), sys.executable, "-c", "while True: pass"])

    def __exit__(self, *_):
        if self.process is not None:
            self.process.kill()
            self.process.wait()


class Cell:
    """A cluster of one server, over one fabric."""

    def __init__(self, directory, fabric, args):
        self.directory, self.args = directory, args
        self.processes = cluster.up(directory, fabric=fabric, **SHAPE)
        for process in self.processes:
            subprocess.run(["taskset", "-acp", str(SERVER_CORE), str(process.pid)], stdout=subprocess.DEVNULL, check=True)
        self.run("get", 16, "server", 0.2)  # Loads the keys.

    def run(self, workload, depth, path, seconds):
        """Returns cell_bench's result."""
        command = ["taskset", "-c", str(CLIENT_CORE), cluster.binary("tools/cell_bench"), "--cluster", str(self.directory), "--json", "-",
                   "--workload", workload, "--depth", str(depth), "--path", path, "--keys", str(self.args.keys), "--seconds", str(seconds)]
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if ran.returncode != 0:
            raise cluster.ClusterError(f"{' '.join(command)} ended with {ran.returncode}")
        return json.loads(ran.stdout)

    def turns(self, workload, depth):
        """Returns for each path its results, of one run a turn. The paths take turns in being first."""
        results = {path: [] for path in PATHS}
        for turn in range(self.args.turns):
            for i in range(len(PATHS)):
                path = PATHS[(turn + i) % len(PATHS)]
                results[path].append(self.run(workload, depth, path, self.args.seconds))
        return results

    def close(self):
        cluster.end(self.processes)


def row(fabric, workload, depth, neighbour, results):
    """Returns the cell's line, and hybrid's part of the better pure path."""
    rates = {path: statistics.median(run["ops_per_second"] for run in runs) for path, runs in results.items()}
    ratio = rates["hybrid"] / max(rates["server"], rates["client"])
    share = statistics.median(run["server_share"] for run in results["hybrid"])
    figures = " | ".join(f"{rates[path] / 1e3:,.1f}" for path in PATHS)
    return f"| {fabric} | {workload} | {depth} | {neighbour} | {figures} | {share:.3f} | {ratio:.2f} |", ratio


def measure(args):
    print("| fabric | workload | in flight | neighbour on the core of | server path, K/s | client path, K/s | hybrid, K/s | "
          "share by calls | hybrid / better path |\n|---|---|---|---|---|---|---|---|---|", flush=True)
    ratios = []
    with tempfile.TemporaryDirectory(prefix="cell-hybrid-") as base:
        for fabric in args.fabrics:
            cell = Cell(Path(base) / fabric, fabric, args)
            try:
                for neighbour, workload, depth in itertools.product(args.neighbours, args.workloads, args.depths):
                    with Neighbour(neighbour):
                        results = cell.turns(workload, depth)
                    line, ratio = row(fabric, workload, depth, neighbour, results)
                    print(line, flush=True)
                    ratios.append(ratio)
            finally:
                cell.close()
    print(f"\n{len(ratios)} cells: median {statistics.median(ratios):.2f}, lowest {min(ratios):.2f}, "
          f"at least 0.98 in {sum(ratio >= 0.98 for ratio in ratios)}")


def main():
    parser = argparse.ArgumentParser(prog="measure_hybrid", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=500_000, help="keys in the store (default: 500,000)")
    parser.add_argument("--seconds", type=float, default=1, help="seconds per run, after half a second of warm-up (default: 1)")
    parser.add_argument("--turns", type=int, default=7, help="runs of each path per cell (default: 7)")
    for name, choices, kind in (("fabrics", FABRICS, str), ("workloads", WORKLOADS, str), ("depths", DEPTHS, int), ("neighbours", NEIGHBOURS, str)):
        parser.add_argument(f"--{name}", nargs="+", type=kind, choices=choices if kind is str else None, default=choices,
                            help=f"default: {' '.join(str(choice) for choice in choices)}")
    args = parser.parse_args()
    if args.turns < 1 or args.seconds < 0.1 or min(args.depths) < 1:
        parser.error("--turns and --depths must be at least 1, and --seconds at least 0.1")
    try:
        measure(args)
    except (cluster.ClusterError, OSError, subprocess.CalledProcessError) as error:
        print(f"measure_hybrid: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
