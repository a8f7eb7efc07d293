"""Measures the shm and TCP fabrics, Redis and sockperf, and CPU time per operation on both sides, as Markdown.

Servers are pinned to core 0, clients to core 1. For verbs: ./bazelw run //tests:verbs_suite (docs/operations/several-machines.md).
Needs redis-benchmark, redis-server and sockperf (apt-get install redis-server sockperf). Takes about five minutes.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools import cluster, free_ports

BYTES = 1024
USUAL_VALUE_BYTES = 132  # cell_bench's mean.
# Pairs of 78 bytes on average, in the same tree as the others.
SMALL = ("--prefix", "small-", "--value-bytes", "36")


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pinned(core, *command, **options):
    return subprocess.Popen(["taskset", "-c", str(core), *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **options)


def output_of(process):
    text, _ = process.communicate()
    if process.returncode != 0:
        raise cluster.ClusterError(f"{' '.join(process.args)} ended with {process.returncode}")
    return text


class Cell:
    """A cluster of one server, over one fabric."""

    def __init__(self, directory, fabric, keys, seconds):
        self.directory, self.keys, self.seconds = directory, keys, seconds
        self.server = cluster.up(directory, fabric=fabric, server_flags=["--insecure"])[0]  # Without TLS, as what it is compared with.
        subprocess.run(["taskset", "-acp", "0", str(self.server.pid)], stdout=subprocess.DEVNULL, check=True)
        for pairs in (("--prefix", ""), SMALL):
            output_of(self.start("get", 1, "server", 0.2, pairs))  # Loads the keys.

    def start(self, workload, depth, path, seconds, pairs=("--prefix", "")):
        return pinned(1, cluster.binary("tools/cell_bench"), *pairs, "--cluster", str(self.directory), "--json", "-", "--workload", workload,
                      "--path", path, "--depth", str(depth), "--keys", str(self.keys), "--seconds", str(seconds))

    def run(self, workload, depth, path="client", **options):
        """Returns its result, with both sides' CPU time per operation in microseconds."""
        process = self.start(workload, depth, path, self.seconds + 0.5, **options)
        time.sleep(1)  # Warm-up, and half a second.
        pids = {"server": self.server.pid, "client": process.pid}
        begin, before = time.monotonic(), {side: cpu_seconds(pid) for side, pid in pids.items()}
        time.sleep(self.seconds - 0.5)
        elapsed, after = time.monotonic() - begin, {side: cpu_seconds(pid) for side, pid in pids.items()}
        result = json.loads(output_of(process))
        operations = result["ops_per_second"] * elapsed
        for side in pids:
            result[f"{side}_us"] = 1e6 * (after[side] - before[side]) / operations
        return result

    def close(self):
        cluster.end([self.server])


class Redis:
    """A server with as many keys as Cell's, of which each GET takes a random one."""

    def __init__(self, directory, keys):
        directory.mkdir()
        self.keys = keys
        self.value_bytes = None  # Of the values that are stored.
        self.port = free_ports.free_port()
        self.server = pinned(0, "redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory))
        deadline = time.monotonic() + 10
        while subprocess.run(["redis-cli", "-p", str(self.port), "ping"], capture_output=True, check=False).stdout != b"PONG\n":
            if time.monotonic() > deadline:
                raise cluster.ClusterError("redis-server does not answer")
            time.sleep(0.05)

    def gets(self, connections, pipeline, value_bytes=BYTES):
        """Returns GETs of values of this size per second."""
        if self.value_bytes != value_bytes:
            self.benchmark("set", 50, 64, 10 * self.keys, value_bytes)  # Keys are drawn: nearly all of them.
            self.value_bytes = value_bytes
        return self.benchmark("get", connections, pipeline, {1: 50_000, 16: 200_000}.get(connections * pipeline, 1_000_000), value_bytes)

    def benchmark(self, what, connections, pipeline, requests, value_bytes):
        command = ["redis-benchmark", "-p", str(self.port), "-t", what, "-d", str(value_bytes), "-c", str(connections), "-P", str(pipeline),
                   "-r", str(self.keys), "-n", str(requests), "--csv"]
        line = next(line for line in output_of(pinned(1, *command)).splitlines() if line.startswith(f'"{what.upper()}"'))
        return float(line.split(",")[1].strip('"'))

    def close(self):
        cluster.end([self.server])


def sockperf_round_trip():
    """Returns the time of one round trip of BYTES over TCP, both sides blocking, in microseconds."""
    port = str(free_ports.free_port())
    server = pinned(0, "sockperf", "server", "--tcp", "-i", "127.0.0.1", "-p", port)
    try:
        time.sleep(0.5)
        text = output_of(pinned(1, "sockperf", "ping-pong", "--tcp", "-i", "127.0.0.1", "-p", port, "-m", str(BYTES), "-t", "3", "--full-rtt"))
    finally:
        cluster.end([server])
    return float(re.search(r"avg-rtt=([0-9.]+)", text).group(1))


def measure(keys, seconds, rounds):
    with tempfile.TemporaryDirectory(prefix="cell-fabrics-") as name:
        base = Path(name)
        cells = {fabric: Cell(base / fabric, fabric, keys, seconds) for fabric in ("shm", "tcp")}
        redis = Redis(base / "redis", keys)
        try:
            print("| fabric | workload | in flight | operations/s | p50 us | p99 us | client CPU us | server CPU us |\n"
                  "|---|---|---|---|---|---|---|---|", flush=True)
            rates = {}
            for fabric, cell in cells.items():
                for workload, path in (("raw-read", "client"), ("raw-call", "client"), ("get", "server"), ("get", "client")):
                    for depth in (1, 16):
                        runs = [cell.run(workload, depth, path) for _ in range(rounds)]
                        median = lambda field: statistics.median(field(run) for run in runs)
                        rate = rates[fabric, workload, path, depth] = median(lambda run: run["ops_per_second"])
                        what = workload if workload.startswith("raw") else f"{workload}, {path} path"
                        print(f"| {fabric} | {what} | {depth} | {rate:,.0f} | {median(lambda r: r['latency_us']['p50']):.1f} | "
                              f"{median(lambda r: r['latency_us']['p99']):.1f} | {median(lambda r: r['client_us']):.2f} | "
                              f"{median(lambda r: r['server_us']):.2f} |", flush=True)
            print("\n| TCP on loopback: reads and GETs of 1 KB, calls of no payload | Cell | beside | ratio |\n|---|---|---|---|", flush=True)
            for what, workload, depth, other, shape in (
                    ("one at a time", "raw-read", 1, "Redis GET, 1 connection", (1, 1)),
                    ("one at a time", "raw-call", 1, "Redis GET, 1 connection", (1, 1)),
                    ("16 in flight", "raw-read", 16, "Redis GET, 16 pipelined", (1, 16)),
                    ("16 in flight", "raw-call", 16, "Redis GET, 16 pipelined", (1, 16)),
                    ("16 in flight", "raw-read", 16, "Redis GET, 16 connections", (16, 1))):
                against = statistics.median(redis.gets(*shape) for _ in range(rounds))
                ours = rates["tcp", workload, "client", depth]
                print(f"| {workload}, {what} | {ours:,.0f}/s | {other}: {against:,.0f}/s | {ours / against:.2f} |", flush=True)
            ours = statistics.median(cells["tcp"].run("get", 320, "server")["ops_per_second"] for _ in range(rounds))
            against = statistics.median(redis.gets(20, 16, USUAL_VALUE_BYTES) for _ in range(rounds))
            print(f"| get by calls, 320 in flight | {ours:,.0f}/s | Redis GET, 20 connections, 16 pipelined: {against:,.0f}/s | {ours / against:.2f} |",
                  flush=True)
            for workload in ("get", "scan"):
                for depth in (1, 16):
                    by = {path: statistics.median(cells["tcp"].run(workload, depth, path, pairs=SMALL)["ops_per_second"] for _ in range(rounds))
                          for path in ("client", "server")}
                    print(f"| {workload} of small pairs by reads, {depth} in flight | {by['client']:,.0f}/s | by calls: {by['server']:,.0f}/s | "
                          f"{by['client'] / by['server']:.2f} |", flush=True)
                    if (workload, depth) == ("get", 1):
                        raw = rates["tcp", "raw-read", "client", 1]
                        print(f"| the same | {by['client']:,.0f}/s | raw-read: {raw:,.0f}/s | {by['client'] / raw:.2f} |", flush=True)
            trip = statistics.median(sockperf_round_trip() for _ in range(rounds))
            ours = 1e6 / rates["tcp", "raw-read", "client", 1]
            print(f"| raw-read, one at a time | {ours:.1f} us | sockperf ping-pong: {trip:.1f} us | {ours / trip:.2f} |", flush=True)
        finally:
            redis.close()
            for cell in cells.values():
                cell.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=1.5, help="seconds per run")
    parser.add_argument("--rounds", type=int, default=3, help="number of runs; the median is reported")
    args = parser.parse_args()
    missing = [program for program in ("redis-server", "redis-benchmark", "sockperf", "taskset") if shutil.which(program) is None]
    if missing:
        parser.error(f"not installed: {', '.join(missing)}. apt-get install redis-server sockperf")
    try:
        measure(args.keys, args.seconds, args.rounds)
    except (cluster.ClusterError, OSError) as error:
        print(f"measure_fabrics: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
