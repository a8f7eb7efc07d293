"""Measures YCSB's workloads A to F by Cell's binding, beside cell_bench's own gets and beside Redis, as Markdown.

All run in turns, on records of the same size, and the figures are medians. The servers are pinned to core 0 and the clients to
core 1. Leave the machine alone meanwhile: all of it takes about ten minutes. Needs redis-server, and Maven Central the first time.
"""

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from tools import cluster, cluster_down
from tools.free_ports import free_port
from tools.measure_cluster import row
from tools.ycsb import binding

# What binding and YCSB make of a record: its key is usertable/user and up to 19 digits, and its value has 10 fields of 100 bytes
# with their names and sizes (Records.java).
KEY_BYTES, VALUE_BYTES = 33, 1 + 10 * (6 + len("field0") + 100)
MANY = 4  # Threads, where there are several.
CLIENT = ["taskset", "-c", "1"]
# More than a turn can do, after whose time YCSB's client ends. But workload E chooses among the keys that so many operations
# would insert, so it must not have too many.
OPERATIONS = {"e": 300_000}
OPERATIONS_OF_OTHERS = 1_000_000_000
STATUS = re.compile(r"^(\S+ \S+) \d+ sec: (\d+) operations;", re.MULTILINE)


@contextlib.contextmanager
def redis_server():
    port = free_port()
    process = subprocess.Popen(["taskset", "-c", "0", "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"],
                               stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        else:
            raise cluster.ClusterError("redis-server does not answer")
        yield {"redis.host": "127.0.0.1", "redis.port": port}
    finally:
        process.terminate()
        process.wait()


class Measurement:
    def __init__(self, options, place, redis):
        self.options, self.place = options, place
        self.ycsb = binding.Ycsb()
        self.properties = {"cell": {"cell.cluster": place}, "redis": redis, "none": {"basicdb.verbose": "false"}}

    def load(self, database):
        given = {**self.properties[database], "recordcount": self.options.records}
        binding.check(self.ycsb.run(database, "a", True, given, before=CLIENT), self.options.records)

    def turn(self, database, workload, threads=1, **properties):
        """Returns operations per second from the end of the warm-up on."""
        given = {**self.properties[database], "recordcount": self.options.records, "operationcount": OPERATIONS.get(workload, OPERATIONS_OF_OTHERS),
                 "maxexecutiontime": self.options.warm_up + self.options.seconds, "status.interval": 1, **properties}
        outcome = self.ycsb.run(database, workload, False, given, threads=threads, status=True, before=CLIENT)
        binding.check(outcome, None)
        return steady(outcome.text, self.options.warm_up)

    def bench(self, threads, depth, fabric="shm"):
        command = [*CLIENT, cluster.binary("tools/cell_bench"), "--cluster", self.place, "--workload", "ycsb-c", "--keys", self.options.records,
                   "--distribution", "zipfian", "--key-bytes", KEY_BYTES, "--value-bytes", VALUE_BYTES, "--prefix", "bench/", "--threads", threads,
                   "--depth", depth, "--seconds", self.options.seconds, "--fabric", fabric, "--json", "-"]
        done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, check=True, text=True)
        return json.loads(done.stdout)["ops_per_second"]


def steady(text, warm_up):
    """Returns operations per second from what YCSB's client has shown each second, without those in which Java still compiles
    the code."""
    shown = [(datetime.strptime(when, "%Y-%m-%d %H:%M:%S:%f"), int(count)) for when, count in STATUS.findall(text)]
    shown = [one for one in shown if (one[0] - shown[0][0]).total_seconds() > warm_up - 0.5]
    if len(shown) < 2:
        raise binding.BindingError(f"YCSB's client ended before the warm-up did:\n{text[-2000:]}")
    (begin, first), (end, last) = shown[0], shown[-1]
    return (last - first) / (end - begin).total_seconds()


def measured(m):
    """Returns what is measured: by its name a function that makes a turn."""
    runs = {}
    for letter in "abcdef":
        for title, database in (("Cell", "cell"), ("Redis", "redis")):
            name = f"YCSB {letter.upper()}, {title}"
            runs[name] = lambda database=database, letter=letter: m.turn(database, letter)
            if name == "YCSB C, Cell":  # Next to each other: the machine may not always be as fast.
                runs["cell_bench, gets"] = lambda: m.bench(1, 1)
                runs["YCSB C, no store"] = lambda: m.turn("none", "c")
    runs["cell_bench, gets, 16 in flight"] = lambda: m.bench(1, 16)
    many = f"{MANY} threads"
    runs[f"YCSB C, Cell, {many}"] = lambda: m.turn("cell", "c", MANY)
    runs[f"cell_bench, gets, {many}"] = lambda: m.bench(MANY, 1)
    runs[f"YCSB C, Cell, {many} with one client"] = lambda: m.turn("cell", "c", MANY, **{"cell.share": "true"})
    runs[f"YCSB C, Redis, {many}"] = lambda: m.turn("redis", "c", MANY)
    runs["YCSB C, Cell, TCP"] = lambda: m.turn("cell", "c", **{"cell.fabric": "tcp"})
    runs["cell_bench, gets, TCP"] = lambda: m.bench(1, 1, "tcp")
    return runs


def ratios():
    """Gives (over, under, aim)."""
    yield "YCSB C, Cell", "cell_bench, gets", "at least 0.6"
    yield "YCSB C, Cell", "YCSB C, no store", ""
    yield f"YCSB C, Cell, {MANY} threads", f"cell_bench, gets, {MANY} threads", "at least 0.6"
    yield "YCSB C, Cell, TCP", "cell_bench, gets, TCP", ""
    yield f"YCSB C, Cell, {MANY} threads with one client", f"YCSB C, Cell, {MANY} threads", ""
    for letter in "ABCDEF":
        yield f"YCSB {letter}, Cell", f"YCSB {letter}, Redis", ""
    yield "YCSB C, Cell, TCP", "YCSB C, Redis", ""


def report(rates):
    medians = {name: statistics.median(values) for name, values in rates.items()}
    row("what", "operations/s", "each turn")
    row("---", "---", "---")
    for name, values in rates.items():
        row(name, f"{medians[name]:,.0f}", " ".join(f"{value:,.0f}" for value in values))
    print()
    row("ratio", "", "of each turn", "aim")
    row("---", "---", "---", "---")
    for over, under, aim in ratios():
        if over in rates and under in rates:
            turns = " ".join(f"{one / other:.2f}" for one, other in zip(rates[over], rates[under]))
            row(f"{over} / {under}", f"{medians[over] / medians[under]:.2f}", turns, aim)


def main():
    parser = argparse.ArgumentParser(prog="measure_ycsb", usage="./bazelw run //tools:measure_ycsb -- [FLAGS]", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="turns of each (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=6, help="of each turn (default: %(default)s)")
    parser.add_argument("--warm-up", type=int, default=4, help="seconds of YCSB's client before them (default: %(default)s)")
    parser.add_argument("--records", type=int, default=100_000, help="records (default: %(default)s)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="measure only this line of the table; can be repeated")
    options = parser.parse_args()
    if not shutil.which("redis-server"):
        print("measure_ycsb: there is no redis-server: apt-get install redis-server", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))  # So that what it has started ends.
    try:
        with tempfile.TemporaryDirectory(prefix="cell-measure-") as base, contextlib.ExitStack() as stack:
            place = Path(base) / "cell"
            cores = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {0})
            servers = cluster.up(place, durability="none", host="127.0.0.1", meganode_bytes=128 << 20, extents_bytes=1 << 30, regions_max=4)
            os.sched_setaffinity(0, cores)
            stack.callback(lambda: [server.wait() for server in servers])
            stack.callback(cluster_down.down, place)
            m = Measurement(options, place, stack.enter_context(redis_server()))
            for database in ("cell", "redis"):
                m.load(database)
            runs = {name: turn for name, turn in measured(m).items() if not options.only or name in options.only}
            rates = {name: [] for name in runs}
            for turns in range(options.rounds):
                for name, turn in runs.items():
                    print(f"turn {turns + 1}: {name}", file=sys.stderr, flush=True)
                    rates[name].append(turn())
            report(rates)
    except (OSError, cluster.ClusterError, subprocess.CalledProcessError) as error:
        print(f"measure_ycsb: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
