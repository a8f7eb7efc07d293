"""Measures the figures of docs/results/one-server.md's table in one run, and prints it as Markdown.

The server is pinned to core 0 and the client to core 1. Takes about 20 minutes; leave the machine alone meanwhile.
Small pairs have keys of 8 to 64 bytes and values of 36; the mix has values of 8 to 256.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools import cluster


class Numbers:
    def __init__(self, directory, keys, seconds, rounds):
        self.directory = directory
        self.keys = keys
        self.seconds = seconds
        self.rounds = rounds

    def bench(self, *arguments, directory=None, core="1", start_only=False):
        command = [cluster.binary("tools/cell_bench"), "--prefix", "", "--cluster", str(directory or self.directory), "--keys", str(self.keys),
                   "--json", "-", *arguments]
        if "--seconds" not in arguments:
            command += ["--seconds", str(self.seconds)]
        if core:
            command = ["taskset", "-c", core, *command]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        if start_only:
            return process
        output, _ = process.communicate()
        if process.returncode != 0:
            raise cluster.ClusterError(f"{' '.join(command)} ended with {process.returncode}")
        return json.loads(output)

    def alternate(self, field, *variants):
        """Returns the median of `field` for each variant, run in turns so that drift affects all equally."""
        seen = [[] for _ in variants]
        for _ in range(self.rounds):
            for values, arguments in zip(seen, variants):
                values.append(self.bench(*arguments.split())[field])
        return [statistics.median(values) for values in seen]

    def up(self, directory, pin=True, **options):
        processes = cluster.up(directory, **options)
        if pin:
            for process in processes:
                subprocess.run(["taskset", "-acp", "0", str(process.pid)], stdout=subprocess.DEVNULL, check=True)
        return processes


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def million(value):
    return f"{value / 1e6:.2f} M/s"


class Table:
    """The rows, printed as they come."""

    def __init__(self):
        print("| what | measured | beside | ratio | aim |\n|---|---|---|---|---|", flush=True)

    def row(self, what, value, against="", ratio=None, aim=""):
        print(f"| {what} | {value} | {against} | {'' if ratio is None else f'{ratio:.2f}'} | {aim} |", flush=True)

    def rate(self, what, rate, beside, against, aim=""):
        """A rate beside another one."""
        self.row(what, million(rate), f"{beside} {million(against)}", rate / against, aim)


SHAPE = {"meganode_bytes": 512 << 20, "extents_bytes": 1 << 30}
SMALL = "--value-bytes 36"
PATHS = ("server", "client", "hybrid")


def by_paths(n, arguments, field="ops_per_second"):
    return n.alternate(field, *(f"{arguments} --path {path}" for path in PATHS))


def measure_local(table, n):
    """Returns the best rates of gets of both kinds of pairs, and that of puts, in this process, and LMDB's for small pairs."""
    best = {}
    for pairs, flags, aims in (("mix", "", ("", "2.5", "2.5", "1.3")), ("small pairs", SMALL, ("", "4", "4", "1.6"))):
        lmdb, *rates = n.alternate("ops_per_second", f"--workload lmdb {flags}",
                                   *(f"--workload local --depth {depth} {flags}" for depth in (1, 8, 16)))
        for what, rate, aim in zip(("one at a time", "8 together", "16 together"), rates, aims):
            table.rate(f"`local` get, {pairs}, {what}", rate, "LMDB", lmdb, aim)
        memory = n.bench("--workload", "local", "--depth", "16", "--seconds", "0.2", *flags.split())
        table.row(f"memory, {pairs}, bytes per key", f"{memory['stored_bytes_per_key']:.0f}", f"data {memory['data_bytes_per_key']:.0f}",
                  memory["stored_bytes_per_key"] / memory["data_bytes_per_key"], aims[3])
        best[pairs], best[f"lmdb, {pairs}"] = max(rates), lmdb
    [best["put"]] = n.alternate("ops_per_second", "--workload local --operation put")
    return best


def measure_mix(table, n, local):
    processes = n.up(n.directory, **SHAPE)
    try:
        n.bench("--workload", "get", "--path", "server", "--seconds", "0.2")  # Loads the keys.
        raw, client = n.alternate("node_reads_per_second", "--workload raw-read", "--workload search --path client")
        table.rate("client path, node reads", client, "`raw-read`", raw, "0.80")
        server, client, hybrid = by_paths(n, "--workload get")
        table.rate("server path, gets", server, "`local`", local["mix"], "0.60")
        table.rate("client path, gets", client, "server path", server)
        table.rate("hybrid, gets", hybrid, "best pure path", max(server, client), "0.98")
        server, client, hybrid = by_paths(n, "--workload search")
        table.rate("hybrid, searches", hybrid, "best pure path", max(server, client), "0.98")
        server, client, hybrid = by_paths(n, "--workload scan", "entries_per_second")
        table.row("scans of 100, entries, server path", million(server), aim="5 M/s on the better")
        table.rate("scans of 100, entries, client path", client, "server path", server, "1.2")
        table.rate("hybrid, scan entries", hybrid, "best pure path", max(server, client), "0.98")
        [put] = n.alternate("ops_per_second", "--workload put --path server")
        table.rate("puts, server path", put, "`local`", local["put"], "0.7")
        time.sleep(1)
        before = cpu_seconds(processes[0].pid)
        time.sleep(10)
        idle = (cpu_seconds(processes[0].pid) - before) / 10
        table.row("idle server", f"{100 * idle:.2f} % of a core", aim="under 1 %")
    finally:
        cluster.end(processes)


def measure_small(table, n, local):
    processes = n.up(n.directory, **SHAPE)
    try:
        n.bench("--workload", "get", "--path", "server", "--seconds", "0.2", *SMALL.split())
        server, client, hybrid = by_paths(n, f"--workload get {SMALL}")
        table.rate("small pairs, server path, gets", server, "LMDB", local["lmdb, small pairs"], "2.5")
        table.rate("small pairs, client path, gets", client, "server path", server, "1.3")
        table.rate("small pairs, hybrid, gets", hybrid, "best pure path", max(server, client), "0.98")
        server, client, hybrid = by_paths(n, f"--workload scan {SMALL}", "entries_per_second")
        table.rate("small pairs, scans of 100, entries, client path", client, "server path", server, "1.2")
        table.rate("small pairs, hybrid, scan entries", hybrid, "best pure path", max(server, client), "0.98")
        warm = n.bench("--workload", "get", "--path", "client", "--seconds", str(10 * n.seconds), *SMALL.split())
        table.row("small pairs, warm client path, a get", f"{warm['node_reads_per_op']:.2f} node reads, "
                  f"{warm['extent_reads_per_op']:.2f} extent reads, {warm['round_trips_per_op']:.2f} round trips", aim="1, 0, 1")
    finally:
        cluster.end(processes)


def measure_batching(table, n, base):
    rates = {}
    for flags in ((), ("--no-batching",)):
        directory = base / f"batching{len(flags)}"
        processes = n.up(directory, server_flags=flags, **SHAPE)
        try:
            n.bench("--workload", "get", "--path", "server", "--seconds", "0.2", directory=directory)
            rates[flags] = n.bench("--workload", "get", "--path", "server", directory=directory)["ops_per_second"]
        finally:
            cluster.end(processes)
    table.rate("server path, gets, batched walks (one run of each)", rates[()], "one by one", rates["--no-batching",])


def measure_four(table, seconds, base):
    """Four servers and four clients on two cores, unpinned, compared with one and one."""
    small = Numbers(base, 200_000, seconds, 1)
    rates = []
    for count in (1, 4):
        directories = [base / f"{count}-{i}" for i in range(count)]
        processes = []
        try:
            for directory in directories:
                processes += small.up(directory, pin=False, meganode_bytes=64 << 20, extents_bytes=128 << 20)
                small.bench("--workload", "get", "--seconds", "0.2", directory=directory, core="")
            running = [small.bench("--workload", "get", "--path", "server", directory=d, core="", start_only=True) for d in directories]
            rates.append(sum(json.loads(p.communicate()[0])["ops_per_second"] for p in running))
        finally:
            cluster.end(processes)
    table.rate("four servers and four clients, gets (one run of each)", rates[1], "one and one", rates[0], "0.5")


def measure(keys, seconds, rounds):
    with tempfile.TemporaryDirectory(prefix="cell-numbers-") as name:
        base = Path(name)
        n = Numbers(base / "mix", keys, seconds, rounds)
        about = n.bench("--workload", "local", "--seconds", "0.1")
        print(f"{about['machine']}; commit {about['commit']}; {keys} keys; seed {about['seed']}; "
              f"medians of {rounds} runs of {seconds} s, in turns\n")
        table = Table()
        local = measure_local(table, n)
        measure_mix(table, n, local)
        measure_small(table, Numbers(base / "small", keys, seconds, rounds), local)
        measure_batching(table, n, base)
        measure_four(table, seconds, base)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--seconds", type=float, default=1, help="seconds per run")
    parser.add_argument("--rounds", type=int, default=7, help="runs of each measurement, in turns; the median is reported")
    args = parser.parse_args()
    try:
        measure(args.keys, args.seconds, args.rounds)
    except (cluster.ClusterError, OSError, subprocess.CalledProcessError) as error:
        print(f"measure: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
