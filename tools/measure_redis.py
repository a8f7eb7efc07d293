"""Measures the gateway for clients of Redis beside a redis-server, by redis-benchmark, as Markdown.

Both run in turns, and the figures are medians. Redis's server, or the gateway, is pinned to core 0 and redis-benchmark to core 1;
Cell's server may run on both. Leave the machine alone meanwhile: all of it takes about three minutes. Needs redis-server.
"""

import argparse
import contextlib
import csv
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools import cluster
from tools.free_ports import free_port
from tools.measure_cluster import row

KEYS = 100_000


@contextlib.contextmanager
def pinned_server(port, *command):
    process = subprocess.Popen(["taskset", "-c", "0", *map(str, command)], stdout=subprocess.DEVNULL)
    try:
        while subprocess.run(["redis-cli", "-p", str(port), "ping"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode != 0:
            if process.poll() is not None:
                raise cluster.ClusterError(f"{command[0]} does not start")
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


def rates(port, commands, pipeline, requests):
    """Returns requests per second by command, from one run of redis-benchmark."""
    done = subprocess.run(["taskset", "-c", "1", "redis-benchmark", "-p", str(port), "-t", ",".join(commands), "-n", str(requests), "-r", str(KEYS),
                           "-P", str(pipeline), "-c", "50", "--csv"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True)
    lines = csv.DictReader(done.stdout.splitlines())
    return {line["test"].split(" ")[0].lower(): float(line["rps"]) for line in lines}


def main():
    parser = argparse.ArgumentParser(prog="measure_redis", usage="./bazelw run //tools:measure_redis -- [FLAGS]", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=300_000, help="of each turn without a pipeline; four times as many with one (default: %(default)s)")
    options = parser.parse_args()
    if not shutil.which("redis-server"):
        print("measure_redis: there is no redis-server: apt-get install redis-server", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="cell-measure-") as base, contextlib.ExitStack() as stack:
        base = Path(base)
        servers = cluster.up(base / "cell", servers=1, durability="none", meganode_bytes=64 << 20, extents_bytes=128 << 20)
        stack.callback(cluster.end, servers)
        ports = free_port(), free_port()
        places = {
            "Redis": stack.enter_context(pinned_server(ports[0], "redis-server", "--port", ports[0], "--save", "", "--appendonly", "no")),
            "gateway": stack.enter_context(pinned_server(ports[1], cluster.binary("tools/cell_gateway"), "--cluster", base / "cell",
                                                         "--listen", f"127.0.0.1:{ports[1]}")),
        }
        measured = {}
        for port in places.values():
            rates(port, ["set"], 16, 4 * KEYS)  # Each key is there, with few exceptions.
        for _ in range(options.rounds):
            for pipeline in (16, 1):
                for name, port in places.items():
                    requests = options.requests * (4 if pipeline > 1 else 1)
                    for command, rate in rates(port, ["set", "get", "incr"], pipeline, requests).items():
                        measured.setdefault((command.upper(), pipeline, name), []).append(rate)
    medians = {what: statistics.median(values) for what, values in measured.items()}
    row("command", "pipeline", "server", "requests per second", "each turn")
    row("---", "---", "---", "---", "---")
    for (command, pipeline, name), values in measured.items():
        row(command, pipeline, name, f"{medians[command, pipeline, name]:,.0f}", " ".join(f"{value:,.0f}" for value in values))
    print()
    row("gateway / Redis", "pipeline", "ratio", "aim")
    row("---", "---", "---", "---")
    for command, pipeline, name in measured:
        if name == "gateway":
            aim = {"INCR": ""}.get(command, "1.5" if pipeline > 1 else "1.0")
            row(command, pipeline, f"{medians[command, pipeline, 'gateway'] / medians[command, pipeline, 'Redis']:.2f}", aim)
    return 0


if __name__ == "__main__":
    sys.exit(main())
