"""Measures the figures of docs/results/one-server.md's table in one run, and prints it as Markdown.

The server is pinned to core 0 and the client to core 1. Takes about five minutes; leave the machine alone meanwhile.
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


def measure(keys, seconds, rounds):
    rows = []
    add = lambda what, value, against="", ratio=None, wanted="": rows.append(
        (what, value, against, "" if ratio is None else f"{ratio:.2f}", wanted))
    with tempfile.TemporaryDirectory(prefix="cell-numbers-") as name:
        base = Path(name)
        n = Numbers(base / "one", keys, seconds, rounds)
        shape = {"meganode_bytes": 512 << 20, "extents_bytes": 1 << 30}

        lmdb, one, eight, sixteen = n.alternate("ops_per_second", "--workload lmdb", "--workload local --depth 1",
                                                "--workload local --depth 8", "--workload local --depth 16")
        add("`local` get, one at a time", million(one), f"LMDB {million(lmdb)}", one / lmdb, "1.4")
        add("`local` get, 8 together", million(eight), f"LMDB {million(lmdb)}", eight / lmdb, "2")
        add("`local` get, 16 together", million(sixteen), f"LMDB {million(lmdb)}", sixteen / lmdb, "2")
        memory = n.bench("--workload", "local", "--depth", "16", "--seconds", "0.2")
        add("memory, bytes per key", f"{memory['stored_bytes_per_key']:.0f}", f"data {memory['data_bytes_per_key']:.0f}",
            memory["stored_bytes_per_key"] / memory["data_bytes_per_key"])

        processes = n.up(n.directory, **shape)
        try:
            n.bench("--workload", "get", "--path", "server", "--seconds", "0.2")  # Loads the keys.
            raw, client = n.alternate("node_reads_per_second", "--workload raw-read", "--workload search --path client")
            add("client path, node reads", million(client), f"`raw-read` {million(raw)}", client / raw, "0.80")
            best_local = max(one, eight, sixteen)
            server, client, hybrid = n.alternate("ops_per_second", *(f"--workload get --path {p}" for p in ("server", "client", "hybrid")))
            add("server path, gets", million(server), f"`local` {million(best_local)}", server / best_local, "0.60")
            add("client path, gets", million(client))
            add("hybrid, gets", million(hybrid), f"best pure path {million(max(server, client))}", hybrid / max(server, client), "0.95")
            server, client, hybrid = n.alternate("ops_per_second", *(f"--workload search --path {p}" for p in ("server", "client", "hybrid")))
            add("hybrid, searches", million(hybrid), f"best pure path {million(max(server, client))}", hybrid / max(server, client), "0.95")
            server, client, hybrid = n.alternate("entries_per_second", *(f"--workload scan --path {p}" for p in ("server", "client", "hybrid")))
            add("scans of 100, entries, server path", million(server), "", None, "5 M/s on the better")
            add("scans of 100, entries, client path", million(client))
            add("hybrid, scan entries", million(hybrid), f"best pure path {million(max(server, client))}", hybrid / max(server, client), "0.95")
            [put] = n.alternate("ops_per_second", "--workload put --path server")
            add("puts, server path", million(put))
            time.sleep(1)
            before = cpu_seconds(processes[0].pid)
            time.sleep(10)
            idle = (cpu_seconds(processes[0].pid) - before) / 10
            add("idle server", f"{100 * idle:.2f} % of a core", "", None, "under 1 %")
        finally:
            cluster.end(processes)

        batched, single = None, None
        for flags in ((), ("--no-batching",)):
            directory = base / f"batching{len(flags)}"
            processes = n.up(directory, server_flags=flags, **shape)
            try:
                n.bench("--workload", "get", "--path", "server", "--seconds", "0.2", directory=directory)
                result = n.bench("--workload", "get", "--path", "server", directory=directory)["ops_per_second"]
                batched, single = (result, single) if not flags else (batched, result)
            finally:
                cluster.end(processes)
        add("server path, gets, batched walks", million(batched), f"one by one {million(single)}", batched / single)

        # Four servers and four clients on two cores, unpinned, compared with one and one.
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
        add("four servers and four clients, gets", million(rates[1]), f"one and one {million(rates[0])}", rates[1] / rates[0], "0.5")
    return rows, memory


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--seconds", type=float, default=2, help="seconds per run")
    parser.add_argument("--rounds", type=int, default=2, help="runs of each measurement, in turns; the median is reported")
    args = parser.parse_args()
    try:
        rows, memory = measure(args.keys, args.seconds, args.rounds)
    except (cluster.ClusterError, OSError, subprocess.CalledProcessError) as error:
        print(f"measure: {error}", file=sys.stderr)
        return 2
    print(f"{memory['machine']}; commit {memory['commit']}; {args.keys} keys; seed {memory['seed']}\n")
    print("| what | measured | beside | ratio | aim |\n|---|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
