"""A load spike on a simulated cluster: latency and the server's share over time, for each way to choose the path.

    ./bazelw run //tools:load_spike -- --baseline 320000 --factor 2.5 --seconds 5

Clients send requests at times of their own (open loop), whether earlier ones were answered or not, and latencies count
from when a request was due. For some seconds there are as many more clients as the factor says, or, with --slowdown,
the servers' cores are so many times slower: a busy neighbour.
"""

import argparse
import csv
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).absolute().parent))
from experiment import HERE, KEYS, PATHS, WORKSPACE, Runner, plot_spike, shift  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fabric", choices=["sim"], default="sim", help="what runs the spike: sim, in virtual time")
    parser.add_argument("--baseline", type=float, default=320_000, help="requests a second (default: %(default)s)")
    parser.add_argument("--factor", type=float, default=2.5, help="of the baseline, during the spike (default: %(default)s)")
    parser.add_argument("--slowdown", type=float, default=1, help="of the servers' cores during it (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=5, help="of the spike (default: %(default)s)")
    parser.add_argument("--around", type=float, default=0.7, help="seconds before and after it (default: %(default)s)")
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--cores", type=int, default=2, help="of a server (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=24, help="before the spike (default: %(default)s)")
    parser.add_argument("--testbed", default="nome", choices=sorted(p.stem for p in (HERE / "testbeds").glob("*.json")))
    parser.add_argument("--out", default="load_spike", help="files are OUT.csv, .png, .svg (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if options.factor < 1 or options.baseline <= 0 or options.seconds <= 0 or options.around <= 0:
        parser.error("the baseline and times are above 0, and the factor is at least 1")
    more = round(options.clients * (options.factor - 1))
    spike = dict(servers=options.servers, cores=options.cores, keys=KEYS, clients=options.clients, spike_clients=more,
                 interval_us=1e6 * options.clients / options.baseline, in_flight=3, slowdown=options.slowdown,
                 warmup_ms=300, spike_from_ms=1e3 * options.around, spike_ms=1e3 * options.seconds,
                 measure_ms=1e3 * (options.seconds + 2 * options.around), bucket_ms=20)
    runner = Runner(str(HERE / "run_model"), options.testbed, options.jobs)
    jobs = {name: runner.start(**spike, **flags) for name, flags in PATHS}
    runs = {name: job.result() for name, job in jobs.items()}
    out = pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", WORKSPACE)) / options.out
    out.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{out}.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["rule", "ms", "operations", "p50 us", "p90 us", "server share"])
        for name, run in runs.items():
            for point in run["timeline"]:
                table.writerow([name, point["ms"], point["operations"], point["p50_us"], point["p90_us"], point["server_share"]])
    figure = plot_spike(runs, f"{options.baseline:,.0f} requests a second, {options.factor:g} times as many for {options.seconds:g} s")
    figure.savefig(f"{out}.png", dpi=110)
    figure.savefig(f"{out}.svg")
    print(f"{'rule':8} {'p90 before us':>14} {'p90 during us':>14} {'during/before':>14} {'time to shift ms':>17}")
    for name, run in runs.items():
        (before, during, ratio, _, took), _ = shift(run, spike)
        print(f"{name:8} {before:14.1f} {during:14.1f} {ratio:14.2f} {took if name in ('thesis', 'cell') else float('nan'):17.0f}")
    print(f"{runner.told()}; written to {out}.csv, .png, .svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
