"""A load spike: latency and the server's share over time, for each way to choose the path.

    ./bazelw run --config=opt //tools:load_spike -- --fabric sim --baseline 320000 --factor 2.5 --seconds 5
    ./bazelw run --config=opt //tools:load_spike -- --fabric shm --seconds 5

Clients send requests at times of their own (open loop), whether earlier ones were answered or not. Latencies count
from when a request was due.

sim: a cluster in virtual time. During the spike the number of clients grows by the factor, or, with --slowdown, the
servers' cores are slower by that factor.

shm: a real server on this machine's first core and a client on its last. During the spike other processes
(--neighbours) take the server's core, too, and the client sends more requests by the factor.
"""

import argparse
import csv
import os
import pathlib
import sys

HERE = pathlib.Path(__file__).absolute().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent)]
import shm_spike  # noqa: E402
from experiment import KEYS, PATHS, WORKSPACE, Runner, plot_spike, shift  # noqa: E402


def simulate(options: argparse.Namespace) -> dict:
    """Returns each rule's run and spike."""
    more = round(options.clients * (options.factor - 1))
    spike = dict(servers=options.servers, cores=options.cores, keys=KEYS, clients=options.clients, spike_clients=more,
                 interval_us=1e6 * options.clients / options.baseline, in_flight=3, slowdown=options.slowdown,
                 warmup_ms=300, spike_from_ms=1e3 * options.around, spike_ms=1e3 * options.seconds,
                 measure_ms=1e3 * (options.seconds + 2 * options.around), bucket_ms=20)
    runner = Runner(str(HERE / "run_model"), options.testbed, options.jobs)
    jobs = {name: runner.start(**spike, **flags) for name, flags in PATHS}
    runs = {name: (job.result(), spike) for name, job in jobs.items()}
    print(runner.told())
    return runs


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fabric", choices=["sim", "shm"], default="sim", help="where to run: sim: in virtual time; shm: on this machine")
    parser.add_argument("--baseline", type=float, help="requests per second before the spike (default: sim 320,000; shm 600,000)")
    parser.add_argument("--factor", type=float, help="factor by which the rate is higher during the spike (default: sim 2.5; shm 1)")
    parser.add_argument("--seconds", type=float, default=5, help="length of the spike in seconds (default: %(default)s)")
    parser.add_argument("--around", type=float, help="seconds to measure before and after the spike (default: sim 0.7; shm 2)")
    parser.add_argument("--out", default="load_spike", help="prefix of the files OUT.csv, .png and .svg (default: %(default)s)")
    sim = parser.add_argument_group("sim")
    sim.add_argument("--slowdown", type=float, default=1, help="factor by which the servers' cores are slower during the spike (default: %(default)s)")
    sim.add_argument("--servers", type=int, default=4)
    sim.add_argument("--cores", type=int, default=2, help="number of cores per server (default: %(default)s)")
    sim.add_argument("--clients", type=int, default=24, help="number of clients before the spike (default: %(default)s)")
    sim.add_argument("--testbed", default="nome", choices=sorted(p.stem for p in (HERE / "testbeds").glob("*.json")))
    sim.add_argument("--jobs", type=int, default=os.cpu_count())
    shm_spike.add_arguments(parser.add_argument_group("shm"))
    options = parser.parse_args()
    real = options.fabric == "shm"
    options.baseline = options.baseline or (600_000 if real else 320_000)
    options.factor = options.factor or (1 if real else 2.5)
    options.around = options.around or (2 if real else 0.7)
    if options.factor < 1 or options.baseline <= 0 or options.seconds <= 0 or options.around <= 0:
        parser.error("the baseline and the times must be above 0, and the factor at least 1")
    try:
        runs = shm_spike.measure(options) if real else simulate(options)
    except shm_spike.Failed as error:
        print(f"load_spike: {error}", file=sys.stderr)
        return 2
    out = pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", WORKSPACE)) / options.out
    out.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{out}.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["rule", "ms", "operations", "p50 us", "p90 us", "server share"])
        for name, (run, _) in runs.items():
            for point in run["timeline"]:
                table.writerow([name, point["ms"], point["operations"], point["p50_us"], point["p90_us"], point["server_share"]])
    what = [f"{options.factor:g} times as many"] * (options.factor > 1)
    if real and options.neighbours:
        what.append(f"{options.neighbours} busy neighbour{'s' * (options.neighbours > 1)} on the server's core")
    title = f"{options.baseline:,.0f} requests a second; for {options.seconds:g} s {' and '.join(what)}"
    figure = plot_spike({name: run for name, (run, _) in runs.items()}, title, next(iter(runs.values()))[1])
    figure.savefig(f"{out}.png", dpi=110)
    figure.savefig(f"{out}.svg")
    print(f"{'rule':8} {'p90 before us':>14} {'p90 during us':>14} {'during/before':>14} {'p50 during us':>14} "
          f"{'share before':>13} {'share during':>13} {'time to shift ms':>17}")
    for name, (run, spike) in runs.items():
        row, shares = shift(run, spike)
        took = row[4] if name in ("thesis", "cell") else float("nan")
        print(f"{name:8} {row[0]:14.1f} {row[1]:14.1f} {row[2]:14.2f} {row[3]:14.1f} {shares[0]:13.2f} {shares[1]:13.2f} {took:17.0f}")
    print(f"written to {out}.csv, .png, .svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
