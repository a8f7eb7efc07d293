"""Measures the cost of durability and the duration of recovery, and prints the tables of docs/results/durability.md.

Every figure is a ratio within this run, or is given with what it was compared with. Needs about 12 GB of memory.
"""

import argparse
import json
import mmap
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools import cluster, measure_rados
from tools.measure_cluster import Measurement, row

PARTS = ("puts", "protected", "rados", "size", "takeover", "restart")


def disk_rates(directory):
    """Returns syncs of 4 KB per second, one after the other, and megabytes per second by dd, each block of 1 MB synced.
    """
    path = directory / "disk"
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    end, syncs = time.monotonic() + 2, 0
    while time.monotonic() < end:
        os.write(file, b"x" * 4096)
        os.fdatasync(file)
        syncs += 1
    os.close(file)
    dd = subprocess.run(["dd", "if=/dev/zero", f"of={path}", "bs=1M", "count=500", "oflag=dsync"], stderr=subprocess.PIPE, check=True,
                        text=True).stderr
    path.unlink()
    seconds = float(re.search(r"([\d.]+) s,", dd)[1])
    return syncs / 2, 500 * 1.048576 / seconds


def touch_seconds():
    """Returns the time for the first touch of a GB of memory, in pages of 4 KB: recovery uses new memory."""
    with mmap.mmap(-1, 1 << 30) as memory:
        start = time.monotonic()
        for at in range(0, len(memory), 4096):
            memory[at] = 1
        return time.monotonic() - start


def log_bytes(directory):
    return sum(f.stat().st_size for f in (directory / "log").rglob("*") if f.is_file())


def put_rates(directory, keys, seconds, rounds):
    """Measures puts of stored keys, for each mode in turns; medians. At full speed, and at a rate that all can sustain.
    """
    rates = {}
    runs = [("none", 16, 0), ("async", 16, 0), ("none", 64, 0), ("sync", 64, 0)] + [(m, 64, 40_000) for m in ("none", "async", "sync")]
    for turn in range(rounds):
        for mode, depth, rate in runs:
            here = directory / f"put-{turn}-{mode}-{depth}-{rate}"
            with Measurement(here, 1, keys, durability=mode, regions_max=16) as m:
                m.bench("get", "--seconds", "0.2")
                r = m.bench("put", "--path", "server", "--depth", str(depth), "--rate", str(rate), "--seconds", str(seconds))
                rates.setdefault((mode, depth, rate), []).append(r)
            subprocess.run(["rm", "-rf", str(here)], check=True)

    def median(run, of):
        return statistics.median(of(r) for r in rates[run])

    print("\n| puts | in flight | asked for | puts/s | beside `none` | p50 us | p99 us |\n|---|---|---|---|---|---|---|")
    for mode, depth, asked in runs:
        run = (mode, depth, asked)
        rate = median(run, lambda r: r["ops_per_second"])
        beside = rate / median(("none", depth, asked), lambda r: r["ops_per_second"])
        row(mode, f"up to {depth}" if asked else depth, f"{asked:,}/s" if asked else "all it can", f"{rate:,.0f}", f"{beside:.2f}",
            f"{median(run, lambda r: r['latency_us']['p50']):.0f}", f"{median(run, lambda r: r['latency_us']['p99']):.0f}")


def protected(directory, keys, seconds, rounds):
    """Measures what encrypted logs and --zero-freed cost: puts of stored keys and the replay after a restart, each beside the same without, in turns.
    """
    key = directory / "key"
    subprocess.run([cluster.binary("tools/cellctl"), "data-key", "new", str(key)], check=True)
    encrypted, zero = ["--log-key", str(key)], ["--zero-freed"]
    runs = {f"{mode}{name}": (mode, depth, flags) for mode, depth, kinds in (
        ("async", 16, (("", []), (", encrypted", encrypted))), ("sync", 64, (("", []), (", encrypted", encrypted))),
        ("none", 16, (("", []), (", --zero-freed", zero)))) for name, flags in kinds}
    rates, replays = {}, {}
    for turn in range(rounds):
        for name, (mode, depth, flags) in runs.items():
            here = directory / f"protected-{turn}"
            options = {"durability": mode, "regions_max": 16, "server_flags": flags}
            with Measurement(here, 1, keys, **options) as m:
                m.bench("get", "--seconds", "0.2")
                rates.setdefault(name, []).append(m.bench("put", "--path", "server", "--depth", str(depth), "--seconds", str(seconds)))
                data = sum(r["data_bytes"] for worker in m.status() for r in worker["regions"])
            if mode == "async":
                with Measurement(here, 1, keys, **options):
                    while any(r.get("recovering") or r["epoch"] == 1 for r in json.loads((here / "regions.json").read_text())["regions"]):
                        time.sleep(0.005)
                    replays.setdefault(name, []).append(data / 1e6 / sum(seconds for _, seconds, _ in recovered(here)))
            subprocess.run(["rm", "-rf", str(here)], check=True)

    def ratio(name, of):
        """Returns the median of the ratios of runs that followed each other."""
        plain = name.partition(",")[0]
        return statistics.median(of(there) / of(beside) for there, beside in zip(rates[name], rates[plain]))

    print("\n| puts | in flight | puts/s | beside without | p50 us | beside without | replay, MB/s of data a thread |\n|---|---|---|---|---|---|---|")
    for name, (_, depth, _) in runs.items():
        row(name, depth, f"{statistics.median(r['ops_per_second'] for r in rates[name]):,.0f}", f"{ratio(name, lambda r: r['ops_per_second']):.2f}",
            f"{statistics.median(r['latency_us']['p50'] for r in rates[name]):.0f}", f"{ratio(name, lambda r: r['latency_us']['p50']):.2f}",
            f"{statistics.median(replays[name]):.0f}" if name in replays else "-")


def log_size(directory, keys):
    """Returns the bytes of log for each key that is put once, in addition to key and value."""
    here = directory / "size"
    with Measurement(here, 1, keys, durability="async", regions_max=16, server_flags=["--checkpoint-mb", "100000"]) as m:
        m.bench("get", "--seconds", "0.2")
        regions = [r for worker in m.status() for r in worker["regions"]]
        data = sum(r["data_bytes"] for r in regions)
        time.sleep(0.5)
        log = log_bytes(here)
    print(f"\n{keys:,} keys loaded into one region: {data / keys:.0f} bytes of key and value, {log / keys:.0f} bytes of log each "
          f"({log / data:.2f} times)" if len(regions) == 1 else f"\n{keys:,} keys in {len(regions)} regions, {log / data:.2f} bytes of log a byte")


def recovered(directory):
    """Returns from all servers' logs: (keys, replay seconds, seconds from the claim until served)."""
    found = []
    for log in directory.glob("server-*.log"):
        for line in log.read_text().splitlines():
            match = re.search(r"is recovered: (\d+) keys, .*replayed in ([\d.]+) s, served after ([\d.]+) s", line)
            if match:
                found.append((int(match[1]), float(match[2]), float(match[3])))
    return found


# The pieces of a takeover of which a server tells for each region, and what they are.
PIECES = {"queued": "waiting for one of the replaying threads", "fence": "fencing the log", "read": "reading files", "check": "checking the checkpoint's records: CRC, order",
          "build": "the rest of the replay: log records, the tree, memory touched for the first time", "segment": "the first segment of the new owner",
          "leases": "waiting for clients' leases after the replay", "table": "the region table says that it is served"}


def pieces(directory):
    """Prints for each piece of the recoveries the longest, the sum over all regions, and that of the region that came last."""
    found = []
    for log in directory.glob("server-*.log"):
        for served, line in re.findall(r"is recovered: .*served after ([\d.]+) s: (queued .*)", log.read_text()):
            found.append((float(served), {name: float(seconds) for name, seconds in re.findall(r"(\w+) ([\d.]+)", line)}))
    print("\n| piece | longest, s | sum of all regions, s | region that was served last, s |\n|---|---|---|---|")
    for name, what in PIECES.items():
        row(what, f"{max(one[name] for _, one in found):.2f}", f"{sum(one[name] for _, one in found):.2f}", f"{max(found, key=lambda f: f[0])[1][name]:.2f}")


def takeover(directory, keys):
    here = directory / "takeover"
    options = {"durability": "async", "regions_max": 24, "meganode_bytes": 128 << 20, "extents_bytes": 512 << 20,
               "server_flags": ["--no-balance"]}
    with Measurement(here, 4, keys, **options) as m:
        m.bench("get", "--seconds", "0.2")
        ctl = [cluster.binary("tools/cellctl"), "--cluster", m.address]
        subprocess.run([*ctl, "--timeout", "300", "checkpoint"], check=True, stdout=subprocess.DEVNULL)
        table = json.loads((here / "regions.json").read_text())
        held = [r for r in table["regions"] if r["server"] == "server-0"]
        data = sum(r["data_bytes"] for worker in m.status() for r in worker["regions"])
        m.processes[0].kill()
        start = time.monotonic()
        first = None
        while True:  # Watches the region table, as clients see it.
            regions = json.loads((here / "regions.json").read_text())["regions"]
            if first is None and any(r.get("recovering") for r in regions):
                first = time.monotonic()
            if all(r["server"] != "server-0" and not r.get("recovering") for r in regions):
                break
            time.sleep(0.005)
        end = time.monotonic()
        replays = recovered(here)
        pieces(here)
    busy = sum(seconds for _, seconds, _ in replays)
    print(f"\n{data / 1e6:,.0f} MB of keys and values in {len(held)} regions of one server, taken over by three: claimed {first - start:.2f} s "
          f"after kill -9, all served {end - first:.2f} s after that (of which 0.55 s is the wait for clients' leases); longest replay "
          f"{max(seconds for _, seconds, _ in replays):.2f} s, {data / 1e6 / busy:,.0f} MB/s of data a replaying thread")


def restart(directory, keys):
    here = directory / "restart"
    options = {"durability": "async", "regions_max": 32}
    with Measurement(here, 1, keys, **options) as m:
        m.bench("get", "--seconds", "0.2")
        data = sum(r["data_bytes"] for worker in m.status() for r in worker["regions"])
        size = log_bytes(here)
    start = time.monotonic()
    with Measurement(here, 1, keys, **options) as m:
        while any(r.get("recovering") or r["epoch"] == 1 for r in json.loads((here / "regions.json").read_text())["regions"]):
            time.sleep(0.005)
        end = time.monotonic()
        replays = recovered(here)
    print(f"\nA server with {keys:,} keys ({data / 1e6:,.0f} MB; {size / 1e6:,.0f} MB of checkpoints and logs) in {len(replays)} regions, "
          f"started again: all served after {end - start:.2f} s; longest replay {max(s for _, s, _ in replays):.2f} s, "
          f"{data / 1e6 / sum(s for _, s, _ in replays):,.0f} MB/s of data a replaying thread")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--dir", help="directory on the disk to measure (default: a temporary directory)")
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--seconds", type=float, default=4, help="seconds per measurement of puts")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--osds", type=int, default=1, choices=(1, 2, 3), help="OSDs of the Ceph of `rados`, all on this machine")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cell-durability-", dir=args.dir) as temporary:
        directory = Path(temporary)
        parts = [args.only] if args.only else PARTS
        syncs, megabytes = disk_rates(directory)
        print(f"The disk: {syncs:,.0f} syncs of 4 KB a second, one after the other; {megabytes:,.0f} MB/s by `dd bs=1M oflag=dsync`. "
              f"Memory: {touch_seconds():.2f} s for the first touch of a GB")
        if "puts" in parts:
            put_rates(directory, args.keys, args.seconds, args.rounds)
        if "protected" in parts:
            protected(directory, args.keys, args.seconds, args.rounds)
        if "rados" in parts:
            measure_rados.measure(directory, args.osds, args.rounds)
        if "size" in parts:
            log_size(directory, 200_000)
        if "takeover" in parts:
            takeover(directory, 6_000_000)
        if "restart" in parts:
            restart(directory, 5_000_000)
    return 0


if __name__ == "__main__":
    sys.exit(main())
