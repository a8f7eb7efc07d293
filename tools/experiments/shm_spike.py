"""Runs the spike of load_spike.py on this machine: a server, a client, and neighbours that take the server's core."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from tools import cluster, cluster_down

Failed = cluster.ClusterError
BUCKET_MS = 20
PATHS = [("server", ["--path", "server"]), ("client", ["--path", "client"]),
         ("thesis", ["--path", "hybrid", "--selector", "thesis"]), ("cell", ["--path", "hybrid"])]
# Waits to be woken, so that it begins at once.
NEIGHBOUR = "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nwhile True: pass"


def add_arguments(group):
    group.add_argument("--neighbours", type=int, default=1, help="number of busy processes on the server's core during the spike (default: %(default)s)")
    group.add_argument("--workload", default="search", help="workload of cell_bench (default: %(default)s)")
    group.add_argument("--keys", type=int, default=500_000, help="number of keys that are loaded first (default: %(default)s)")
    group.add_argument("--depth", type=int, default=64, help="maximum number of requests in flight (default: %(default)s)")
    group.add_argument("--bench", default="", help="more flags for cell_bench, as one argument")


def bench(directory, core, options, *arguments):
    command = ["taskset", "-c", str(core), cluster.binary("tools/cell_bench"), "--prefix", "", "--cluster", str(directory), "--keys",
                   str(options.keys), "--workload", options.workload, "--busy-poll", "--json", "-", *options.bench.split(), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def told(process):
    output, errors = process.communicate()
    if process.returncode != 0:
        raise Failed(f"cell_bench ended with {process.returncode}: {errors.strip()}")
    return json.loads(output)


class Neighbours:
    """Processes that only use CPU time, between wake() and rest()."""

    def __init__(self, count, core):
        self.processes = [subprocess.Popen(["taskset", "-c", str(core), sys.executable, "-c", NEIGHBOUR]) for _ in range(count)]
        for process in self.processes:
            while pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
                time.sleep(0.01)

    def send(self, what):
        for process in self.processes:
            process.send_signal(what)

    def wake(self):
        self.send(signal.SIGCONT)

    def rest(self):
        self.send(signal.SIGSTOP)

    def end(self):
        self.send(signal.SIGKILL)
        for process in self.processes:
            process.wait()


def one(directory, cores, options, path):
    """Returns a rule's run and its spike, for experiment.shift."""
    seconds = options.seconds + 2 * options.around
    neighbours = Neighbours(options.neighbours, cores[0])
    try:
        process = bench(directory, cores[-1], options, "--seconds", str(seconds), "--rate", str(options.baseline), "--depth",
                        str(options.depth), "--spike-from", str(options.around), "--spike-seconds", str(options.seconds),
                        "--spike-factor", str(options.factor), "--timeline-ms", str(BUCKET_MS), *path)
        time.sleep(0.55 + options.around)  # It warms up for half a second.
        woken_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        neighbours.wake()
        time.sleep(options.seconds)
        neighbours.rest()
        run = told(process)
    finally:
        neighbours.end()
    spike_from_ms = (woken_ns - run["began_ns"]) / 1e6 if options.neighbours else 1e3 * options.around
    return run, dict(spike_from_ms=spike_from_ms, spike_ms=1e3 * options.seconds, bucket_ms=BUCKET_MS)


def measure(options):
    """Returns each rule's run and spike."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise Failed("the server and the client need a core each, but this machine has only one")
    if not 0 <= options.neighbours <= 64:
        raise Failed("--neighbours must be from 0 to 64")
    with tempfile.TemporaryDirectory(prefix="cell-spike-") as name:
        directory = pathlib.Path(name) / "cluster"
        try:
            for process in cluster.up(directory, meganode_bytes=512 << 20, extents_bytes=1 << 30, fabric="shm"):
                subprocess.run(["taskset", "-acp", str(cores[0]), str(process.pid)], stdout=subprocess.DEVNULL, check=True)
            told(bench(directory, cores[-1], options, "--seconds", "0.2"))  # Loads the keys.
            runs = {}
            for rule, path in PATHS:
                runs[rule] = one(directory, cores, options, path)
                if sys.stderr.isatty():
                    print(f"\r{len(runs)} of {len(PATHS)} runs", end="", file=sys.stderr)
            return runs
        finally:
            cluster_down.down(directory)
