"""Measures Pilaf tables, as Markdown: gets and puts by value size, latency, retries, CPU time, and Redis and memcached.

One server, pinned to core 0; one client, on core 1. Needs redis-server and memcached (apt-get install redis-server
memcached). Takes about ten minutes.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools import cluster

KEY_BYTES = 16
SIZES = (16, 64, 256, 1024, 4096)
TABLES = {"slots": ["--layout", "slots"], "buckets": ["--layout", "buckets"]}


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pinned(core, *command, **options):
    return subprocess.Popen(["taskset", "-c", str(core), *map(str, command)], text=True, **options)


class Cell:
    """A cluster of one server. Each value size has tables of its own."""

    def __init__(self, directory, seconds, **options):
        self.directory, self.seconds = directory, seconds
        self.server = cluster.up(directory, extents_bytes=1 << 30, regions_max=64, **options)[0]
        subprocess.run(["taskset", "-acp", "0", str(self.server.pid)], stdout=subprocess.DEVNULL, check=True)

    def bench(self, layout, workload, path, keys=200_000, value_bytes=32, depth=16, more=()):
        """Returns its result, with the server's CPU time per operation in microseconds."""
        command = [cluster.binary("tools/cell_bench"), "--prefix", "", "--cluster", self.directory, "--json", "-", "--workload", workload, "--path", path,
                   "--depth", depth, "--keys", keys, "--key-bytes", KEY_BYTES, "--value-bytes", value_bytes]
        if layout != "tree":
            command += ["--tier", "pilaf", "--table", f"{layout}-{value_bytes}-{keys}", *TABLES.get(layout, ["--layout", "buckets", "--bucket-bytes", layout])]
        load = pinned(1, *command, "--seconds", 0.1, stdout=subprocess.PIPE)
        loaded = load.communicate()[0]
        process = pinned(1, *command, "--no-load", "--seconds", self.seconds + 0.5, *more, stdout=subprocess.PIPE)
        time.sleep(0.8)  # The warm-up, and a bit more.
        begin, before = time.monotonic(), cpu_seconds(self.server.pid)
        time.sleep(self.seconds - 0.1)
        elapsed, after = time.monotonic() - begin, cpu_seconds(self.server.pid)
        text = process.communicate()[0]
        if load.returncode or process.returncode:
            raise cluster.ClusterError(f"cell_bench failed: {loaded} {text}")
        result = json.loads(text)
        result["server_us"] = 1e6 * (after - before) / (result["ops_per_second"] * elapsed)
        return result

    def close(self):
        cluster.end([self.server])


@contextlib.contextmanager
def beside(store, directory):
    """Runs Redis or memcached on core 0, at a Unix socket."""
    socket = directory / f"{store}.sock"
    command = {"redis": ["redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--dir", directory],
               "memcached": ["memcached", "-s", socket, "-m", "1024", "-t", "1", "-u", "nobody" if os.getuid() == 0 else os.environ.get("USER", "")]}[store]
    if store == "memcached":
        directory.chmod(0o777)
    server = pinned(0, *command, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while not socket.exists():
            if time.monotonic() > deadline:
                raise cluster.ClusterError(f"{store} does not answer")
            time.sleep(0.05)
        yield socket
    finally:
        cluster.end([server])
        socket.unlink(missing_ok=True)


def kilo(rate):
    return f"{rate / 1e3:,.0f} K"


def sizes(base, seconds):
    """Measures Figs. 6.1 and 6.2, and CPU time."""
    print("## Gets and puts by value size\n\nThousand operations a second, 16 in flight; in brackets the server's CPU time of each, in microseconds.\n\n"
          "| value bytes | table | gets, by reads | gets, by messages (Pilaf-VO) | gets, hybrid | puts | tree: gets, server path | client path |\n"
          "|---|---|---|---|---|---|---|---|")
    latencies = []
    cell = Cell(base / "sizes", seconds)
    try:
        for value_bytes in SIZES:
            keys = 200_000 if value_bytes <= 1024 else 50_000
            tree = [cell.bench("tree", "get", path, keys, value_bytes) for path in ("server", "client")] if value_bytes == 64 else None
            for layout in TABLES:
                runs = [cell.bench(layout, "get", path, keys, value_bytes) for path in ("client", "server", "hybrid")]
                runs.append(cell.bench(layout, "put", "server", keys, value_bytes))
                shown = runs + (tree or [])
                print(f"| {value_bytes} | {layout} | " + " | ".join(f"{kilo(run['ops_per_second'])} ({run['server_us']:.2f})" for run in shown) +
                      (" |" if tree else " | | |"), flush=True)
                one = [cell.bench(layout, workload, path, keys, value_bytes, depth=1)
                       for workload, path in (("get", "client"), ("get", "server"), ("put", "server"))]
                latencies.append((value_bytes, layout, one))
    finally:
        cell.close()
    print("\n## Latency\n\nMicroseconds, one operation at a time: median, and the 99th percentile.\n\n"
          "| value bytes | table | get, by reads | get, by messages | put |\n|---|---|---|---|---|")
    for value_bytes, layout, runs in latencies:
        print(f"| {value_bytes} | {layout} | " + " | ".join(f"{run['latency_us']['p50']:.1f}, {run['latency_us']['p99']:.1f}" for run in runs) + " |")


def retries(base, seconds):
    """Measures Fig. 6.6."""
    print("\n## Retries\n\nHalf gets by reads, half puts, uniform, 16 in flight: of a thousand lookups, how many had to read again, and why.\n\n"
          "| keys | table | operations/s | reads a lookup | torn | pair replaced | may have been moved |\n|---|---|---|---|---|---|---|")
    cell = Cell(base / "retries", seconds)
    try:
        for keys in (10, 100, 1_000, 10_000, 100_000):
            for layout in TABLES:
                run = cell.bench(layout, "get-50", "client", keys, 64)
                per = lambda name: f"{1e3 * run['lookup_retries'][name] / max(1, run['lookups']):.3f}"
                print(f"| {keys:,} | {layout} | {kilo(run['ops_per_second'])} | {run['reads_per_lookup']:.2f} | {per('torn')} | "
                      f"{per('replaced')} | {per('moved')} |", flush=True)
    finally:
        cell.close()


def mixes(base, seconds):
    """Measures Figs. 6.9 and 6.10."""
    print("\n## Beside Redis and memcached\n\nZipf 0.99 over 200,000 keys of 16 bytes, values of 64, 16 requests in flight. Redis and memcached (one thread) by one "
          "connection over a Unix socket.\n\n"
          "| mix | store | operations/s | p50 us | p90 us | p99 us | p99.9 us |\n|---|---|---|---|---|---|---|")
    zipf = ["--distribution", "zipfian"]
    cell = Cell(base / "mixes", seconds)
    try:
        for gets in (90, 50):
            rows = []
            for layout in TABLES:
                for path, name in (("client", "gets by reads"), ("server", "Pilaf-VO"), ("hybrid", "hybrid")):
                    rows.append((f"Pilaf, {layout}, {name}", cell.bench(layout, f"get-{gets}", path, 200_000, 64, more=zipf)))
            for store in ("redis", "memcached"):
                with beside(store, base) as socket:
                    text = subprocess.run(["taskset", "-c", "1", cluster.binary("tools/beside_bench"), "--store", store, "--socket", socket, "--keys", "200000",
                                           "--value-bytes", "64", "--gets", str(gets), "--seconds", str(seconds), "--zipfian"], check=True, capture_output=True).stdout
                    rows.append((store, json.loads(text)))
            for name, run in rows:
                quantiles = " | ".join(f"{run['latency_us'][q]:.1f}" for q in ("p50", "p90", "p99", "p999"))
                print(f"| {gets}/{100 - gets} | {name} | {kilo(run['ops_per_second'])} | {quantiles} |", flush=True)
    finally:
        cell.close()


def busy(base, seconds):
    """Measures where the choice for each get pays."""
    print("\n## A server that has no time\n\nGets of 64 bytes, 16 in flight: alone; while a busy process shares the server's core; and while another client, on the first one's core, "
          "has the server scan the tree, 16 scans of 100 entries in flight. Thousand a second, p50 and p99 in microseconds, share of gets by messages.\n\n"
          "| table | gets | alone | busy neighbour | scans |\n|---|---|---|---|---|")
    cell = Cell(base / "busy", seconds)
    scans = [cluster.binary("tools/cell_bench"), "--prefix", "", "--cluster", cell.directory, "--workload", "scan", "--path", "server", "--seconds", "3600"]
    others = (None, (0, sys.executable, "-c", "while True: pass"), (1, *scans))
    try:
        cell.bench("tree", "scan", "server", 100_000)  # Loads the keys.
        for layout in TABLES:
            for path, name in (("client", "by reads"), ("server", "by messages"), ("hybrid", "hybrid")):
                cells = []
                cell.bench(layout, "get", path, 200_000, 64)  # Loads the keys.
                for command in others:
                    other = pinned(*command, stdout=subprocess.DEVNULL) if command else None
                    try:
                        run = cell.bench(layout, "get", path, 200_000, 64)
                    finally:
                        if other:
                            cluster.end([other])
                    cells.append(f"{kilo(run['ops_per_second'])}, {run['latency_us']['p50']:.1f}, {run['latency_us']['p99']:.1f}, {100 * run['server_share']:.0f} %")
                print(f"| {layout} | {name} | " + " | ".join(cells) + " |", flush=True)
    finally:
        cell.close()


def layouts(base, seconds):
    """Compares the layouts and bucket sizes."""
    print("\n## Layouts\n\nGets by reads, 700,000 keys with values of 32 bytes (slots 1/3 full): thousand a second with 16 in flight, and the median of one at a time in microseconds.\n\n"
          "| fabric | slots | buckets of 512 | 1024 | 2048 |\n|---|---|---|---|---|")
    cell = Cell(base / "layouts", seconds, host="127.0.0.1")
    try:
        for fabric in ("shm", "tcp"):
            cells = []
            for layout in ("slots", "512", "1024", "2048"):
                many, one = (cell.bench(layout, "get", "client", 700_000, 32, depth=depth, more=["--fabric", fabric]) for depth in (16, 1))
                cells.append(f"{kilo(many['ops_per_second'])}, {one['latency_us']['p50']:.1f}")
            print(f"| {fabric} | " + " | ".join(cells) + " |", flush=True)
    finally:
        cell.close()


def growth(base, keys):
    """Measures the cost of growth."""
    print(f"\n## Growth\n\n{keys:,} keys with values of 32 bytes put into a table of one part, 64 at once, while it splits.\n\n"
          "| durability | table | puts/s | splits | longest copy ms | writes held for the log, ms | until the table is told, ms | longest put ms | p99.9 ms |\n"
          "|---|---|---|---|---|---|---|---|---|")
    for durability in ("none", "async", "sync"):
        for layout, flags in TABLES.items():
            directory = base / f"growth-{durability}-{layout}"
            server = cluster.up(directory, regions_max=64, durability=durability)[0]
            subprocess.run(["taskset", "-acp", "0", str(server.pid)], stdout=subprocess.DEVNULL, check=True)
            try:
                text = subprocess.run(["taskset", "-c", "1", cluster.binary("tools/cell_bench"), "--prefix", "", "--cluster", directory, "--json", "-", "--workload", "get",
                                       "--tier", "pilaf", "--keys", str(keys), "--key-bytes", "16", "--value-bytes", "32", "--seconds", "0.1", *flags],
                                      check=True, capture_output=True).stdout
                result = json.loads(text)
                status = subprocess.run([cluster.binary("tools/cellctl"), "--cluster", directory, "-o", "json", "status"], check=True, capture_output=True).stdout
                parts = json.loads(status.splitlines()[0])["splitter"]["parts"]
                print(f"| {durability} | {layout} | {kilo(result['load_keys_per_second'])} | {parts['splits']} | {parts['longest_copy_us'] / 1e3:.0f} | "
                      f"{parts['longest_frozen_us'] / 1e3:.2f} | {parts['longest_untold_us'] / 1e3:.2f} | {result['load_longest_put_ms']:.1f} | "
                      f"{result['load_p999_ms']:.2f} |", flush=True)
            finally:
                cluster.end([server])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--only", choices=("sizes", "retries", "mixes", "busy", "layouts", "growth"), help="measure only this table (default: all tables)")
    parser.add_argument("--seconds", type=float, default=1.5, help="seconds per run")
    parser.add_argument("--keys", type=int, default=4_000_000, help="number of keys of the growth measurement")
    args = parser.parse_args()
    missing = [program for program in ("redis-server", "memcached", "taskset") if shutil.which(program) is None]
    if missing and args.only in (None, "mixes"):
        parser.error(f"not installed: {', '.join(missing)}. apt-get install redis-server memcached")
    try:
        with tempfile.TemporaryDirectory(prefix="cell-pilaf-") as name:
            base = Path(name)
            for what in (sizes, retries, mixes, busy, layouts):
                if args.only in (None, what.__name__):
                    what(base, args.seconds)
            if args.only in (None, "growth"):
                growth(base, args.keys)
    except (cluster.ClusterError, OSError, subprocess.CalledProcessError) as error:
        print(f"measure_pilaf: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
