"""Runs one of the thesis's experiments, or one beyond them, on simulated machines, and writes CSV, JSON and plots.

    ./bazelw run //tools:experiment -- table-6.2

It runs Cell's own server, client, tree and selector code in virtual time. The times of the machines come from a
testbed's file (tools/experiments/testbeds). docs/results/simulated-experiments.md has the results.
"""

import argparse
import concurrent.futures
import csv
import json
import os
import pathlib
import subprocess
import sys
import time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

HERE = pathlib.Path(__file__).absolute().parent  # Unresolved: in the runfiles, beside the program.
WORKSPACE = pathlib.Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", os.getcwd()))
# Keys per worker: enough for its meganode to have the four levels of the thesis's.
KEYS = 12_000
SHARES = [i / 10 for i in range(0, 11)]


class Runner:
    """Runs configurations concurrently, as many as there are cores, and shows the progress."""

    def __init__(self, program: str, testbed: str, jobs: int):
        self.program, self.testbed = program, testbed
        self.pool = concurrent.futures.ThreadPoolExecutor(jobs)
        self.begun = self.done = 0
        self.simulated_ms = 0.0
        self.since = time.monotonic()

    def start(self, **flags) -> concurrent.futures.Future:
        self.begun += 1
        return self.pool.submit(self._run, flags)

    def _run(self, flags: dict) -> dict:
        command = [self.program, "--testbed", str(HERE / "testbeds" / f"{flags.pop('testbed', self.testbed)}.json")]
        for name, value in flags.items():
            name = name.replace("_", "-")
            command += [f"--{name}"] if value is True else [f"--no-{name}"] if value is False else [f"--{name}", str(value)]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            raise SystemExit(f"{' '.join(command)}\nfailed: {run.stderr.strip()}")
        self.done += 1
        self.simulated_ms += flags.get("warmup_ms", 3) + flags.get("measure_ms", 10)
        if sys.stderr.isatty():
            print(f"\r{self.done} of {self.begun} runs", end="", file=sys.stderr)
        return json.loads(run.stdout)

    def told(self) -> str:
        seconds = time.monotonic() - self.since
        return (f"{self.done} runs, {self.simulated_ms / 1e3:.3f} simulated seconds in {seconds:.0f} s "
                f"({self.simulated_ms / 1e3 / seconds:.4f} a second)")


def wait(jobs: dict) -> dict:
    return {key: job.result() for key, job in jobs.items()}


def throughput(run: dict) -> float:
    return run["operations_per_s"] / 1e3


def best_fixed(runs: dict, key: tuple) -> tuple:
    """Returns thousands of operations per second and the server's share for the best fixed ratio."""
    return max((throughput(runs[key + (("fixed", share),)]), share) for share in SHARES)


PATHS = [("server", dict(path="server")), ("client", dict(path="client")),
         ("thesis", dict(path="hybrid", selector="thesis")), ("cell", dict(path="hybrid", selector="cell"))]
FIXED = [(("fixed", share), dict(path="fixed", server_share=share)) for share in SHARES]
INLINE_MAX = 90  # All that nodes of 512 bytes allow; the pairs here have 42.
LONG = dict(warmup_ms=40, measure_ms=30)


class Result:
    """Rows for CSV and JSON, and a figure."""

    def __init__(self, columns: list):
        self.columns, self.rows, self.notes = columns, [], []
        self.figure = None

    def add(self, *values):
        self.rows.append([round(value, 3) if isinstance(value, float) else value for value in values])

    def write(self, folder: pathlib.Path, name: str):
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / f"{name}.csv", "w", newline="") as file:
            csv.writer(file).writerows([self.columns] + self.rows)
        with open(folder / f"{name}.json", "w") as file:
            json.dump({"experiment": name, "notes": self.notes,
                       "rows": [dict(zip(self.columns, row)) for row in self.rows]}, file, indent=1)
        if self.figure is not None:
            self.figure.tight_layout()
            self.figure.savefig(folder / f"{name}.png", dpi=110)
            self.figure.savefig(folder / f"{name}.svg")

    def show(self):
        widths = [max(len(str(row[i])) for row in [self.columns] + self.rows) for i in range(len(self.columns))]
        for row in [self.columns] + self.rows:
            print("  ".join(str(value).rjust(width) for value, width in zip(row, widths)))
        for note in self.notes:
            print(note)


def axes(result: Result, title: str, x: str, y: str):
    result.figure, ax = plt.subplots(figsize=(7, 4.4))
    ax.set(title=title, xlabel=x, ylabel=y)
    ax.grid(alpha=0.3)
    return ax


def deviation(simulated: float, thesis: float) -> str:
    return f"{100 * (simulated / thesis - 1):+.0f} %"


# ---- The experiments.


def fig_6_3(runner: Runner) -> Result:
    """Throughput and latency of the three paths: one server, one core, one meganode, no caches."""
    result = Result(["clients", "path", "thousand searches/s", "p50 us", "p90 us", "server share"])
    jobs = {(n, name): runner.start(clients=n, cache=False, keys=KEYS, **flags, **LONG)
            for n in range(1, 13) for name, flags in PATHS}
    ax = axes(result, "One server, one core: searches of one meganode (Fig. 6.3)", "thousand searches a second",
              "median latency, us")
    runs = wait(jobs)
    for name, _ in PATHS:
        points = [(throughput(runs[n, name]), runs[n, name]["p50_us"]) for n in range(1, 13)]
        ax.plot(*zip(*points), marker="o", label=name)
        for n in range(1, 13):
            run = runs[n, name]
            result.add(n, name, throughput(run), run["p50_us"], run["p90_us"], run["server_share"])
    ax.legend()
    for name, thesis in (("server", 100), ("client", 250), ("thesis", 400), ("cell", 400)):
        peak = max(throughput(runs[n, name]) for n in range(1, 13))
        result.notes.append(f"peak of {name}: {peak:.0f} K/s; thesis about {thesis} K/s, {deviation(peak, thesis)}")
    return result


# Thousands of searches a second: server-only, Cell, fixed ratio.
TABLE_6_2 = {1: (468, 1121, 1062), 2: (947, 1626, 1392), 3: (1350, 1907, 1731), 4: (1832, 2269, 2178),
             5: (2184, 2668, 2258), 6: (2523, 2832, 2676), 7: (2947, 2810, 2494), 8: (2720, 2757, 2468)}
# Clients with three operations in flight for each number of cores: the thesis had 13 to 17 at six to eight of them.
CLIENTS_6_2 = (14, 20, 28)


def cores(runner: Runner, servers: int, clients: tuple, thesis: dict, title: str) -> Result:
    columns = ["cores", "server", "client", "best fixed", "its share", "thesis rule", "cell", "cell share",
               "cell / best of others"]
    result = Result(columns + (["thesis: server", "thesis: Cell", "server", "Cell's rule of then"] if thesis else []))
    jobs = {(c, n, name): runner.start(servers=servers, cores=c, clients=n, keys=KEYS, **flags, **LONG)
            for c in range(1, 9) for n in clients for name, flags in PATHS + FIXED}
    runs = wait(jobs)
    lines = {name: [] for name in ("server", "best fixed", "thesis rule", "cell")}
    for c in range(1, 9):
        def peak(name):
            return max(throughput(runs[c, n, name]) for n in clients)

        # Each path gets the number of clients that is best for it, as in the thesis. The worse one is determined with
        # equal numbers of clients.
        fixed, share = max(best_fixed(runs, (c, n)) for n in clients)
        ratio = min(throughput(runs[c, n, "cell"]) / max(throughput(runs[c, n, "server"]),
                                                        throughput(runs[c, n, "client"]), best_fixed(runs, (c, n))[0])
                    for n in clients)
        at = max(clients, key=lambda n: throughput(runs[c, n, "cell"]))
        row = [c, peak("server"), peak("client"), fixed, share, peak("thesis"), peak("cell"),
               runs[c, at, "cell"]["server_share"], ratio]
        if thesis:
            row += [thesis[c][0], thesis[c][1], deviation(peak("server"), thesis[c][0]),
                    deviation(peak("thesis"), thesis[c][1])]
        result.add(*row)
        for name, value in zip(lines, (peak("server"), fixed, peak("thesis"), peak("cell"))):
            lines[name].append(value)
    ax = axes(result, title, "cores of a server", "thousand searches a second")
    for name, values in lines.items():
        ax.plot(range(1, 9), values, marker="o", label=name)
    if thesis:
        ax.plot(range(1, 9), [thesis[c][0] for c in range(1, 9)], ":", label="thesis, server-only")
        ax.plot(range(1, 9), [thesis[c][1] for c in range(1, 9)], "--", label="thesis, Cell")
    ax.legend()
    result.notes.append(f"of each the best of {', '.join(map(str, clients))} clients; the last ratio is the worst of them")
    return result


def fig_6_4(runner: Runner) -> Result:
    """Cores 1 to 8 of one server, whose meganodes' roots clients know."""
    result = cores(runner, 1, (5, 8, 12), {}, "One server (Fig. 6.4)")
    by_cores = {row[0]: row for row in result.rows}
    for c, then in ((1, 436), (4, 778)):  # From the prose of 6.2.3.
        now = by_cores[c][5]
        result.notes.append(f"{c} cores: {now:.0f} K/s by the thesis's rule; thesis {then} K/s, {deviation(now, then)}")
    return result


def table_6_2(runner: Runner) -> Result:
    """Cores 1 to 8 of each of four servers, with caches."""
    return cores(runner, 4, CLIENTS_6_2, TABLE_6_2, "Four servers (Table 6.2)")


# Thousands of searches a second: messages only, hybrid. The last line is from the prose: 19.1 times one server, 78 %
# more.
TABLE_6_1 = {1: (260, 492), 2: (526, 888), 4: (986, 1626), 8: (1848, 3025), 16: (3129, 5572), 24: (5279, 9397)}


def table_6_1(runner: Runner) -> Result:
    """1 to 24 servers of two cores, five clients of three operations in flight for each of them."""
    result = Result(["servers", "server", "thesis rule", "cell", "cell / server", "speed-up of cell", "thesis: server",
                     "thesis: Cell", "server", "Cell's rule of then"])
    jobs = {(s, name): runner.start(servers=s, cores=2, clients=5 * s, keys=KEYS, warmup_ms=100, measure_ms=30, **flags)
            for s in TABLE_6_1 for name, flags in PATHS if name != "client"}
    runs = wait(jobs)
    one = throughput(runs[1, "cell"])
    for s, (server, hybrid) in TABLE_6_1.items():
        got = {name: throughput(runs[s, name]) for name in ("server", "thesis", "cell")}
        result.add(s, got["server"], got["thesis"], got["cell"], got["cell"] / got["server"], got["cell"] / one, server,
                   hybrid, deviation(got["server"], server), deviation(got["thesis"], hybrid))
    ax = axes(result, "Servers of two cores (Table 6.1)", "servers", "thousand searches a second")
    for name in ("server", "thesis", "cell"):
        ax.plot(list(TABLE_6_1), [throughput(runs[s, name]) for s in TABLE_6_1], marker="o", label=name)
    ax.plot(list(TABLE_6_1), [v[0] for v in TABLE_6_1.values()], ":", label="thesis, server-only")
    ax.plot(list(TABLE_6_1), [v[1] for v in TABLE_6_1.values()], "--", label="thesis, Cell")
    ax.legend()
    return result


def scale(runner: Runner) -> Result:
    """1 to 48 servers of two cores, with at most 48 clients: 15 operations in flight for each server, as the thesis has
    (five processes of three threads), and 30, which keep it busier."""
    result = Result(["servers", "clients", "in flight of each", "server", "thesis rule", "cell", "speed-up of cell",
                     "of linear"])
    counts = (1, 2, 4, 8, 16, 24, 48)
    clients = {s: min(5 * s, 48) for s in counts}
    depth = {(s, each): -(-each * s // clients[s]) for s in counts for each in (15, 30)}
    jobs = {(s, each, name): runner.start(servers=s, cores=2, clients=clients[s], in_flight=depth[s, each], keys=KEYS,
                                          warmup_ms=100, measure_ms=30, **flags)
            for s, each in depth for name, flags in PATHS if name != "client"}
    runs = wait(jobs)
    ax = axes(result, "Servers of two cores, few connections", "servers", "thousand searches a second")
    for each in (15, 30):
        one = throughput(runs[1, each, "cell"])
        for s in counts:
            cell = throughput(runs[s, each, "cell"])
            result.add(s, clients[s], depth[s, each], throughput(runs[s, each, "server"]),
                       throughput(runs[s, each, "thesis"]), cell, cell / one, cell / one / s)
        ax.plot(counts, [throughput(runs[s, each, "cell"]) for s in counts], marker="o",
                label=f"cell, {each} in flight for each server")
    ax.plot(counts, [throughput(runs[1, 30, "cell"]) * s for s in counts], ":", label="linear")
    ax.legend()
    return result


def thousand(runner: Runner) -> Result:
    """1 to 1,000 servers of one core on NICs of today, ten clients for each of them, which know all routes."""
    result = Result(["servers", "clients", "server share", "p50 us", "p90 us", "thousand searches/s", "of linear"])
    counts = (1, 10, 100, 1000)
    # Each client has a connection to every server it uses. With 1,000 servers, a core simulates less than a
    # millisecond.
    jobs = {s: runner.start(testbed="today", servers=s, cores=1, clients=10 * s, in_flight=3, keys=2500, warm=True,
                            node_cache=False, begin_within_ms=0.2, warmup_ms=0.4 if s >= 100 else 5,
                            measure_ms=0.4 if s >= 100 else 5, path="hybrid", selector="cell")
            for s in reversed(counts)}
    runs = wait(jobs)
    one = throughput(runs[1])
    for s in counts:
        run = runs[s]
        result.add(s, 10 * s, run["server_share"], run["p50_us"], run["p90_us"], throughput(run), throughput(run) / one / s)
    ax = axes(result, "Ten clients for each server, NICs of today", "servers", "thousand searches a second")
    ax.plot(counts, [throughput(runs[s]) for s in counts], marker="o", label="cell")
    ax.plot(counts, [one * s for s in counts], ":", label="linear")
    ax.set(xscale="log", yscale="log")
    ax.legend()
    return result


def fig_6_11(runner: Runner) -> Result:
    """Mixes of gets and puts on four servers of two cores."""
    result = Result(["gets %", "server", "thesis rule", "cell", "best fixed", "cell / best of others"])
    jobs = {(g, name): runner.start(servers=4, cores=2, clients=20, keys=KEYS, get_share=g / 100, read="get", **flags, **LONG)
            for g in (0, 10, 50, 100) for name, flags in PATHS + FIXED}
    runs = wait(jobs)
    for g in (0, 10, 50, 100):
        got = {name: throughput(runs[g, name]) for name, _ in PATHS}
        fixed, _ = best_fixed(runs, (g,))
        result.add(g, got["server"], got["thesis"], got["cell"], fixed, got["cell"] / max(got["server"], got["client"], fixed))
    ax = axes(result, "Gets and puts, four servers of two cores (Fig. 6.11)", "gets, %", "thousand operations a second")
    width = 0.2
    for i, name in enumerate(("server", "thesis", "cell")):
        ax.bar([x + (i - 1) * width for x in range(4)], [throughput(runs[g, name]) for g in (0, 10, 50, 100)], width, label=name)
    ax.set_xticks(range(4), ["0", "10", "50", "100"])
    ax.legend()
    top = throughput(runs[100, "thesis"])
    result.notes.append(f"gets only: {top:.0f} K/s; thesis 1536 K/s, {deviation(top, 1536)}")
    return result


def fig_2_5(runner: Runner) -> Result:
    """Reads and empty calls of up to 188 clients, each connected to four servers of one core."""
    result = Result(["clients", "reads K/s", "reads p50 us", "calls K/s", "calls p50 us"])
    counts = (1, 2, 4, 8, 16, 32, 64, 96, 128, 160, 188)
    jobs = {(n, path): runner.start(servers=1, clients=n, in_flight=1, keys=KEYS, path=path) for n in counts
            for path in ("raw-read", "raw-call")}
    runs = wait(jobs)
    ax = axes(result, "One server's NIC by connections (Fig. 2.5)", "clients", "thousand operations a second")
    for path in ("raw-read", "raw-call"):
        ax.plot(counts, [throughput(runs[n, path]) for n in counts], marker="o", label=path)
    ax.legend()
    for n in counts:
        read, call = runs[n, "raw-read"], runs[n, "raw-call"]
        result.add(n, throughput(read), read["p50_us"], throughput(call), call["p50_us"])
    result.notes.append("one server's share of the four; the loss of speed beyond 100 connections is the model's guess: "
                        "the figure is not in the text that we have")
    return result


def fig_6_8(runner: Runner) -> Result:
    """Five seconds of 2.5 times the load on four servers of two cores: latency over time."""
    spike = dict(servers=4, cores=2, keys=KEYS, clients=24, spike_clients=36, interval_us=75, in_flight=3,
                 warmup_ms=300, spike_from_ms=700, spike_ms=5000, measure_ms=6500, bucket_ms=5)
    result = Result(["rule", "p90 before us", "p90 during us", "during / before", "p50 during us", "time to shift ms"])
    jobs = {name: runner.start(**spike, **flags) for name, flags in PATHS}
    runs = wait(jobs)
    for name, _ in PATHS:
        row, _ = shift(runs[name], spike)
        result.add(name, *row)
    result.figure = plot_spike(runs, "2.5 times the load for five seconds, four servers of two cores (Fig. 6.8)", spike)
    result.notes.append("thesis: the shift took 200 ms; aims here: p90 during at most twice that before, shift below 50 ms")
    return result


def plot_spike(runs: dict, title: str, spike: dict):
    """Plots latencies of each rule over time, and the server's share for those that choose."""
    figure, (ax, below) = plt.subplots(2, 1, figsize=(7.5, 6.4), sharex=True)
    ax.set(title=title, ylabel="latency, us", yscale="log")
    below.set(xlabel="seconds", ylabel="server share")
    for name, run in runs.items():
        seconds = [point["ms"] / 1e3 for point in run["timeline"]]
        line, = ax.plot(seconds, [point["p50_us"] for point in run["timeline"]], label=f"{name}, median")
        ax.plot(seconds, [point["p90_us"] for point in run["timeline"]], ":", color=line.get_color(), label=f"{name}, p90")
        if name in ("thesis", "cell"):
            below.plot(seconds, [point["server_share"] for point in run["timeline"]], label=name, color=line.get_color())
    ax.legend(fontsize=7, ncol=4, loc="lower center", bbox_to_anchor=(0.5, -0.16))
    below.legend()
    for one in (ax, below):
        one.axvspan(spike["spike_from_ms"] / 1e3, (spike["spike_from_ms"] + spike["spike_ms"]) / 1e3, color="0.93", zorder=0)
        one.grid(alpha=0.3)
    figure.tight_layout()
    return figure


def shift(run: dict, spike: dict) -> tuple:
    """Returns the figures of a run with a spike, and the server's share before and during it. The time to shift ends
    when the share is within a tenth of its mean in the second half of the spike."""
    timeline = run["timeline"]
    begin, end = spike["spike_from_ms"], spike["spike_from_ms"] + spike["spike_ms"]
    before = [p for p in timeline if p["ms"] + spike["bucket_ms"] <= begin and p["operations"]]
    during = [p for p in timeline if begin <= p["ms"] and p["ms"] + spike["bucket_ms"] <= end and p["operations"]]

    def mean(points, what):
        return sum(p[what] for p in points) / max(1, len(points))

    settled = mean(during[len(during) // 2:], "server_share")
    took = next((p["ms"] - begin + spike["bucket_ms"] for p in during if abs(p["server_share"] - settled) <= 0.1), float("nan"))
    row = (mean(before, "p90_us"), mean(during, "p90_us"), mean(during, "p90_us") / max(0.001, mean(before, "p90_us")),
           mean(during, "p50_us"), took)
    return row, (mean(before, "server_share"), settled)


def beyond(runner: Runner) -> Result:
    """Skew, scans of 100, gets, a NIC of today; each against the best fixed ratio."""
    result = Result(["workload", "server", "client", "best fixed", "its share", "thesis rule", "cell", "cell share",
                     "cell / best of others"])
    cases = {
        "uniform": dict(), "Zipf 0.99": dict(zipf=0.99), "scans of 100": dict(read="scan"), "gets": dict(read="get"),
        "few clients": dict(clients=4), "many clients": dict(clients=60), "one at a time": dict(clients=28, in_flight=1),
        "100 Gb/s": dict(testbed="today"), "100 Gb/s, many clients": dict(testbed="today", clients=100),
    }
    jobs = {}
    for case, flags in cases.items():
        for name, path in PATHS + FIXED:
            jobs[case, name] = runner.start(**{**dict(servers=4, cores=2, clients=20, keys=KEYS), **flags, **path, **LONG})
    runs = wait(jobs)
    for case in cases:
        got = {name: throughput(runs[case, name]) for name, _ in PATHS}
        fixed, share = best_fixed(runs, (case,))
        result.add(case, got["server"], got["client"], fixed, share, got["thesis"], got["cell"],
                   runs[case, "cell"]["server_share"], got["cell"] / max(got["server"], got["client"], fixed))
    ax = axes(result, "Beside the best fixed ratio, four servers of two cores", "", "operations, of the best of the others'")
    ax.bar(range(len(cases)), [row[-1] for row in result.rows])
    ax.axhline(1, color="black", linewidth=0.8)
    ax.set_xticks(range(len(cases)), list(cases), rotation=30, ha="right")
    return result


def layouts(runner: Runner) -> Result:
    """The layout and caches of the thesis, and those that are the default now, on Nome's NIC and on one of today."""
    result = Result(["NIC", "workload", "layout", "server", "client", "cell", "cell share", "reads/op", "new / thesis's"])
    kinds = {"searches": dict(), "gets": dict(read="get"), "scans of 100": dict(read="scan"), "puts": dict(get_share=0, read="get")}
    as_in = {"thesis": dict(inline_max=0, cache_level_min=4), "now": dict(inline_max=INLINE_MAX, cache_level_min=1)}
    paths = {"server": dict(path="server"), "client": dict(path="client"), "cell": dict(path="hybrid", selector="cell")}
    jobs = {(nic, kind, layout, path): runner.start(servers=4, cores=2, clients=20, keys=KEYS, testbed=nic, **kinds[kind], **as_in[layout],
                                                    **paths[path], **LONG)
            for nic in ("nome", "today") for kind in kinds for layout in as_in for path in paths}
    runs = wait(jobs)
    ax = axes(result, "The default layout and caches beside the thesis's, four servers of two cores", "", "operations, now / as in the thesis")
    for nic in ("nome", "today"):
        gains = []
        for kind in kinds:
            for layout in as_in:
                got = {path: throughput(runs[nic, kind, layout, path]) for path in paths}
                client = runs[nic, kind, layout, "client"]
                gain = got["cell"] / throughput(runs[nic, kind, "thesis", "cell"])
                result.add(nic, kind, layout, got["server"], got["client"], got["cell"], runs[nic, kind, layout, "cell"]["server_share"],
                           client["reads_per_s"] / client["operations_per_s"], gain)
            gains.append(gain)
        ax.plot(list(kinds), gains, marker="o", label=nic)
    ax.axhline(1, color="black", linewidth=0.8)
    ax.legend()
    return result


EXPERIMENTS = {"fig-2.5": fig_2_5, "fig-6.3": fig_6_3, "fig-6.4": fig_6_4, "table-6.1": table_6_1, "table-6.2": table_6_2,
               "scale": scale, "thousand": thousand, "fig-6.8": fig_6_8, "fig-6.11": fig_6_11, "beyond": beyond,
               "layouts": layouts}


def main() -> int:
    told = "\n".join(f"  {name:10} {run.__doc__}" for name, run in EXPERIMENTS.items())
    parser = argparse.ArgumentParser(description=__doc__, epilog=f"experiments:\n{told}\n  all        All of them.",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[*EXPERIMENTS, "all"], metavar="NAME", help="experiment to run")
    parser.add_argument("--out", default="docs/experiments", help="directory for the files (default: %(default)s)")
    parser.add_argument("--testbed", default="nome", choices=sorted(p.stem for p in (HERE / "testbeds").glob("*.json")))
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of runs at the same time (default: %(default)s)")
    parser.add_argument("--program", default=str(HERE / "run_model"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    for name in EXPERIMENTS if options.name == "all" else [options.name]:
        runner = Runner(options.program, options.testbed, options.jobs)
        result = EXPERIMENTS[name](runner)
        if sys.stderr.isatty():
            print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
        result.notes.append(runner.told())
        folder = WORKSPACE / options.out
        result.write(folder, name if options.testbed == "nome" else f"{name}-{options.testbed}")
        print(f"{name}: {EXPERIMENTS[name].__doc__}")
        result.show()
        print(f"written to {folder}/{name}.csv, .json, .png, .svg\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
