"""Compares the speed of this build with that of another one, and keeps the history of such comparisons.

Two clusters are up at once, one of each build, with the server on core 0 and the client on core 1. The builds run in turns,
so that the machine's drift affects both alike; the server whose turn it is not is stopped meanwhile, because an idle server
takes some time of its core. The cluster that comes up first gets other memory than the second, which was worth 3 % where it
was tried (a build against a copy of itself). Both are therefore brought up again for each round, in turns first. The figure
is the median of their ratios. A ratio of 1.02 means that this build is 2 % faster.

  git worktree add ../before COMMIT && (cd ../before && ./bazelw build --config=opt //tools:cell_bench //tools:cellctl //cell/cmd:cell_server)
  mkdir /tmp/before && cp ../before/bazel-bin/tools/{cell_bench,cellctl} ../before/bazel-bin/cell/cmd/cell_server /tmp/before
  ./bazelw run --config=opt //tools:bench_history -- --against /tmp/before --name COMMIT

With --record DIR it appends a row to DIR/history.csv and draws DIR/history.svg. Leave the machine alone meanwhile.
"""

import argparse
import csv
import datetime
import json
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).absolute().parent.parent))
from tools import cluster  # noqa: E402

# Each figure: its name, the benchmark's arguments, and the field of its result.
FIGURES = [
    ("get server", "--workload get --path server", "ops_per_second"),
    ("get client", "--workload get --path client", "ops_per_second"),
    ("put", "--workload put --path server", "ops_per_second"),
    ("scan server", "--workload scan --path server", "entries_per_second"),
    ("scan client", "--workload scan --path client", "entries_per_second"),
]
SHAPE = {"meganode_bytes": 256 << 20, "extents_bytes": 512 << 20}


class Build:
    """A build's programs, and a cluster of one server that runs it."""

    def __init__(self, name, directory, programs):
        self.name = name
        self.directory = directory
        self.bench_path = programs / "cell_bench" if programs else Path(cluster.binary("tools/cell_bench"))
        before = cluster.PROGRAMS
        cluster.PROGRAMS = programs
        try:
            self.processes = cluster.up(directory, **SHAPE)
        finally:
            cluster.PROGRAMS = before
        for process in self.processes:
            subprocess.run(["taskset", "-acp", "0", str(process.pid)], stdout=subprocess.DEVNULL, check=True)

    def signal(self, number):
        for process in self.processes:
            process.send_signal(number)

    def bench(self, arguments, keys, seconds):
        command = ["taskset", "-c", "1", str(self.bench_path), "--cluster", str(self.directory), "--keys", str(keys), "--seconds",
                   str(seconds), "--json", "-", *arguments.split()]
        ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if ran.returncode != 0:
            raise cluster.ClusterError(f"{' '.join(command)} ended with {ran.returncode}")
        return json.loads(ran.stdout)


def round_of(number, args, programs, base):
    """Brings a cluster of each build up and runs all figures. Returns [(this, other)] in the order of FIGURES."""
    names = ["this", "other"] if number % 2 == 0 else ["other", "this"]
    builds = {}
    try:
        for name in names:
            builds[name] = Build(name, Path(base) / f"{name}-{number}", programs if name == "other" else None)
            builds[name].bench("--workload get --path server", args.keys, 0.2)  # Loads the keys.
        rows = []
        for figure, (_, arguments, field) in enumerate(FIGURES):
            seen = {}
            for name in names if figure % 2 == 0 else reversed(names):
                idle = builds["other" if name == "this" else "this"]
                idle.signal(signal.SIGSTOP)
                try:
                    seen[name] = builds[name].bench(arguments, args.keys, args.seconds)[field]
                finally:
                    idle.signal(signal.SIGCONT)
            rows.append((seen["this"], seen["other"]))
        return rows
    finally:
        for build in builds.values():
            cluster.end(build.processes)


def compare(args, programs, base):
    """Returns for each figure (name, median of this, median of the other, median ratio)."""
    rounds = []
    for number in range(args.rounds):
        rounds.append(round_of(number, args, programs, base))
        print(f"round {number + 1} of {args.rounds}: " + ", ".join(f"{a / b:.3f}" for a, b in rounds[-1]), file=sys.stderr, flush=True)
    rows = []
    print(f"{'figure':12} {'this':>12} {args.name[:12]:>12}  ratio")
    for (name, *_), pairs in zip(FIGURES, zip(*rounds)):
        ours, theirs = zip(*pairs)
        rows.append((name, statistics.median(ours), statistics.median(theirs), statistics.median(a / b for a, b in pairs)))
        print(f"{name:12} {rows[-1][1] / 1e6:8.3f} M/s {rows[-1][2] / 1e6:8.3f} M/s  {rows[-1][3]:6.3f}")
    return rows


def commit():
    """Returns the commit that this program was built from, as far as git tells."""
    ran = subprocess.run(["git", "-C", str(cluster.user_path(".")), "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, text=True, check=False)
    return ran.stdout.strip() or "unknown"


def record(directory, name, rows):
    """Appends a row to history.csv and draws all rows: the ratios of each figure, commit by commit."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "history.csv"
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow(["date", "commit", "against", *(figure for figure, *_ in FIGURES)])
        writer.writerow([datetime.date.today().isoformat(), commit(), name, *(f"{ratio:.3f}" for *_, ratio in rows)])
    import matplotlib  # Here, because only --record needs it.

    matplotlib.use("svg")
    from matplotlib import pyplot

    with path.open(newline="") as file:
        history = list(csv.DictReader(file))
    figure, axes = pyplot.subplots(figsize=(8, 4))
    for title, *_ in FIGURES:
        axes.plot([f"{row['commit']}\nagainst {row['against']}" for row in history], [float(row[title]) for row in history],
                  marker="o", label=title)
    axes.axhline(1, color="grey", linewidth=0.5)
    axes.set_ylabel("speed, this commit / the other")
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(directory / "history.svg", metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", required=True, metavar="DIR", help="directory with the other build's cell_bench and cell_server")
    parser.add_argument("--name", default="another build", help="what to call the other build: its commit")
    parser.add_argument("--keys", type=int, default=500_000, help="keys in each store (default: 500000)")
    parser.add_argument("--seconds", type=float, default=1, help="seconds per run (default: 1)")
    parser.add_argument("--rounds", type=int, default=10,
                        help="rounds, each with two new clusters; an even number puts each build first equally often (default: 10)")
    parser.add_argument("--record", metavar="DIR", help="append the ratios to DIR/history.csv and draw DIR/history.svg")
    args = parser.parse_args()
    programs = cluster.user_path(args.against)
    try:
        for program in ("cell_bench", "cell_server"):
            if not (programs / program).is_file():
                raise cluster.ClusterError(f"{programs / program} is not there: copy the other build's program to it")
        with tempfile.TemporaryDirectory(prefix="cell-history-") as base:
            rows = compare(args, programs, base)
        if args.record:
            record(cluster.user_path(args.record), args.name, rows)
    except (cluster.ClusterError, OSError, subprocess.CalledProcessError) as error:
        print(f"bench_history: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
