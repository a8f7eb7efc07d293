"""Measures gets from Python beside those of a C program, and of redis-py with a Redis server, as Markdown.

All run in turns, on the same keys, and the figures are medians. The server is pinned to core 0 and the client to core 1. Leave
the machine alone meanwhile: all of it takes about three minutes. Needs redis-server, and PyPI for redis-py.
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

from tools import cluster, wheel
from tools.measure_cluster import row

REDIS_PY = "redis==8.1.0"
KEYS = 10_000

# Each prints gets per second. Arguments: where the server is, keys, seconds, operations in flight.
BLOCKING = """
import random, sys, time, cell
client, keys, seconds = cell.connect(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
names = [f"key{i:06}" for i in range(keys)]
random.shuffle(names)
gets, began = 0, time.perf_counter()
while time.perf_counter() < began + seconds:
    at = gets % keys
    for name in names[at:at + 200]:
        assert client.get(name) is not None
        gets += 1
print(gets / (time.perf_counter() - began))
"""
ASYNCIO = """
import asyncio, random, sys, time, cell.asyncio
keys, seconds, in_flight = int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
async def main():
    async with await cell.asyncio.connect(sys.argv[1]) as client:
        names, gets, began = [f"key{i:06}" for i in range(keys)], 0, time.perf_counter()
        random.shuffle(names)
        async def work(at):
            nonlocal gets
            while time.perf_counter() < began + seconds:
                at = (at + 7919) % (keys - 20)
                for name in names[at:at + 20]:
                    assert await client.get(name) is not None
                gets += 20
        await asyncio.gather(*(work(i * 101) for i in range(in_flight)))
        print(gets / (time.perf_counter() - began))
asyncio.run(main())
"""
REDIS_BLOCKING = BLOCKING.replace("cell.connect(sys.argv[1])", "redis.Redis(unix_socket_path=sys.argv[1])").replace(", cell", ", redis")
REDIS_ASYNCIO = (ASYNCIO.replace("cell.asyncio", "redis.asyncio", 1)
                 .replace("await cell.asyncio.connect(sys.argv[1])", "redis.asyncio.Redis(unix_socket_path=sys.argv[1], max_connections=in_flight)"))


def pinned(core, *command, **options):
    return subprocess.Popen(["taskset", "-c", str(core), *map(str, command)], **options)


@contextlib.contextmanager
def redis_server(directory):
    socket = directory / "redis.sock"
    process = pinned(0, "redis-server", "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", stdout=subprocess.DEVNULL)
    try:
        while subprocess.run(["redis-cli", "-s", socket, "ping"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode != 0:
            if process.poll() is not None:
                raise cluster.ClusterError("redis-server does not start")
            time.sleep(0.05)
        lines = "".join(f"SET key{i:06} value{i:06}\n" for i in range(KEYS))
        subprocess.run(["redis-cli", "-s", socket], input=lines, stdout=subprocess.DEVNULL, check=True, text=True)
        yield socket
    finally:
        process.terminate()
        process.wait()


def main():
    parser = argparse.ArgumentParser(prog="measure_python", usage="./bazelw run //tools:measure_python -- [FLAGS]", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=2, help="of each turn (default: %(default)s)")
    options = parser.parse_args()
    if not shutil.which("redis-server"):
        print("measure_python: there is no redis-server: apt-get install redis-server", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="cell-measure-") as base, contextlib.ExitStack() as stack:
        base = Path(base)
        subprocess.run([wheel.PYTHON, "-m", "venv", str(base / "env")], check=True)
        python = base / "env" / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "-q", REDIS_PY, wheel.make(base / "dist")], check=True)
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {0})
        servers = cluster.up(base / "cell", servers=1, durability="none", meganode_bytes=16 << 20, extents_bytes=32 << 20)
        os.sched_setaffinity(0, cores)
        stack.callback(cluster.end, servers)
        pairs = "".join(f"key{i:06}\tvalue{i:06}\n" for i in range(KEYS))
        subprocess.run([cluster.binary("tools/cellctl"), "--cluster", str(base / "cell"), "load", "-"], input=pairs, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=True, text=True)
        socket = stack.enter_context(redis_server(base))

        def rate(*command):
            process = pinned(1, *command, stdout=subprocess.PIPE, text=True)
            out, _ = process.communicate()
            if process.returncode != 0:
                raise cluster.ClusterError(f"{command[0]} failed")
            return float(out)

        def turn(program, place, in_flight):
            arguments = [place, KEYS, options.seconds, in_flight]
            return rate(cluster.binary("tools/c_gets"), *arguments) if program is None else rate(python, "-I", "-c", program, *arguments)

        cell_place = base / "cell"
        measured = {
            "C, one after the other": (None, cell_place, 1),
            "C, 128 in flight": (None, cell_place, 128),
            "Python, blocking": (BLOCKING, cell_place, 1),
            "Python, asyncio, 1 in flight": (ASYNCIO, cell_place, 1),
            "Python, asyncio, 16 in flight": (ASYNCIO, cell_place, 16),
            "Python, asyncio, 128 in flight": (ASYNCIO, cell_place, 128),
            "redis-py, blocking": (REDIS_BLOCKING, socket, 1),
            "redis-py, asyncio, 128 in flight": (REDIS_ASYNCIO, socket, 128),
        }
        rates = {name: [] for name in measured}
        for _ in range(options.rounds):
            for name, what in measured.items():
                rates[name].append(turn(*what))
        medians = {name: statistics.median(values) for name, values in rates.items()}
        row("gets", "per second", "each turn")
        row("---", "---", "---")
        for name, values in rates.items():
            row(name, f"{medians[name]:,.0f}", " ".join(f"{value:,.0f}" for value in values))
        print()
        row("ratio", "", "aim")
        row("---", "---", "---")
        for over, under, aim in (("Python, blocking", "C, one after the other", "at least 0.5"),
                                 ("Python, asyncio, 128 in flight", "redis-py, asyncio, 128 in flight", "10"),
                                 ("Python, blocking", "redis-py, blocking", "")):
            row(f"{over} / {under}", f"{medians[over] / medians[under]:.2f}", aim)
    return 0


if __name__ == "__main__":
    sys.exit(main())
