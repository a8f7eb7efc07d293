"""Measures clusters whose logs are in Ceph RADOS, for measure_durability.py, beside what the pool does without Cell.

The Ceph is this measurement's own: a monitor and its OSDs on loopback, whose data are in the same directory.
"""

import json
import signal
import statistics
import subprocess
import time

from tools import cluster
from tools.ceph_server import Ceph
from tools.free_ports import free_port
from tools.measure_cluster import Measurement, row

# The sizes of a cluster whose keys are in one region, and of one whose keys are in about eight.
ONE = {"meganode_bytes": 64 << 20, "extents_bytes": 64 << 20, "regions_max": 4}
SOME = {"meganode_bytes": 1 << 20, "extents_bytes": 1 << 20, "regions_max": 32}
# The runs of sync puts: the sizes of their regions, and the number of puts in flight.
SYNC = ((ONE, 64), (SOME, 64), (SOME, 512))
# The default of --sync-wait-percent, and without such a wait. Each has a pool.
WAITS = {25: "cell", 0: "other"}
# Ways to append.
KINDS = {"guarded": (), "unguarded": ("--unguarded",), "guarded, a thread each": ("--blocking",)}


def raw_appends(ceph, logs, size, seconds, *flags):
    return json.loads(subprocess.run([cluster.binary("tools/rados_bench"), "--conf", ceph.conf, "--pool", ceph.pool, "--logs", str(logs), "--bytes",
                                      str(max(1, round(size))), "--seconds", str(seconds), *flags], stdout=subprocess.PIPE, check=True).stdout)


class OnRados(Measurement):
    """Is a cluster with one worker whose logs are in a pool, which is as it was afterwards."""

    def __init__(self, directory, ceph, keys, pool, **options):
        super().__init__(directory, 1, keys, log_store=f"rados:{pool}@{ceph.conf}", **options)

    def __exit__(self, *arguments):
        super().__exit__(*arguments)
        cluster.wipe(self.directory)

    def logs(self):
        """Returns what the worker counts about its logs, and when."""
        return {**self.status()[0]["logs"], "at": time.monotonic()}

    def written_regions(self):
        return sum(region["tier"] == 0 for region in self.status()[0]["regions"])

    def sync_puts(self, depth, seconds):
        """Returns what puts reach, and the groups meanwhile: their number a second, their bytes, and how long each took."""
        bench = self.start("put", "--path", "server", "--depth", str(depth), "--seconds", str(seconds + 1))
        time.sleep(1)
        before = self.logs()
        time.sleep(seconds)
        after = self.logs()
        out, _ = bench.communicate()
        count = {name: after[name] - before[name] for name in ("flushes", "flushed_bytes", "flushing_us", "at")}
        return {"puts": json.loads(out), "rate": count["flushes"] / count["at"], "bytes": count["flushed_bytes"] / count["flushes"],
                "us": count["flushing_us"] / count["flushes"]}


def middle(runs, of):
    return statistics.median(of(run) for run in runs)


def puts_cells(runs):
    """Returns a row's cells for what cell_bench said."""
    return (f"{middle(runs, lambda r: r['ops_per_second']):,.0f}", *(f"{middle(runs, lambda r: r['latency_us'][p]):,.0f}" for p in ("p50", "p99")))


def sync_runs(directory, ceph, keys, sizes, depth, seconds, rounds):
    """Returns the number of regions, and for each wait the results of sync puts, each with those of raw appends right after it. In turns."""
    clusters = {wait: OnRados(directory / f"sync-{wait}", ceph, keys, pool, durability="sync", server_flags=["--sync-wait-percent", str(wait)], **sizes)
                for wait, pool in WAITS.items()}
    runs = {wait: [] for wait in WAITS}
    with clusters[25] as first, clusters[0] as second:
        for one in (first, second):
            one.bench("get", "--seconds", "0.2")
        regions = first.written_regions()
        for _ in range(rounds):
            for wait, one in clusters.items():
                run = one.sync_puts(depth, seconds)
                run["raw"] = {kind: raw_appends(ceph, regions, run["bytes"], seconds, *flags) for kind, flags in KINDS.items() if wait or kind == "guarded"}
                if wait:
                    run["together"] = raw_appends(ceph, 1, run["bytes"] * regions, seconds)
                runs[wait].append(run)
    return regions, runs


def sync(directory, ceph, keys, seconds, rounds):
    """Measures sync puts beside raw appends of the same size to as many objects as there are regions."""
    found = []
    for number, (sizes, depth) in enumerate(SYNC):
        found.append((depth, *sync_runs(directory / f"{number}", ceph, keys, sizes, depth, seconds, rounds)))
    print("\n| regions | puts in flight | `--sync-wait-percent` | puts/s | p50 us | p99 us | groups/s | of raw appends | bytes a group | us a group |\n" + "|---" * 10 + "|")
    for depth, regions, waits in found:
        for wait, runs in waits.items():
            row(regions, depth, wait, *puts_cells([run["puts"] for run in runs]), f"{middle(runs, lambda r: r['rate']):,.0f}",
                f"{middle(runs, lambda r: r['rate'] / r['raw']['guarded']['appends_per_second']):.2f}",
                *(f"{middle(runs, lambda r, what=what: r[what]):,.0f}" for what in ("bytes", "us")))
    print("\n| objects | bytes an append | " + " | ".join(f"{kind}: appends/s | p50 us" for kind in KINDS) + " | one object with all of it: appends/s | p50 us |\n"
          + "|---" * (4 + 2 * len(KINDS)) + "|")
    for _, regions, waits in found:
        row(regions, f"{middle(waits[25], lambda r: r['bytes']):,.0f}", *(
            f"{middle(waits[25], lambda r, kind=kind, what=what: {**r['raw'], 'together': r['together']}[kind][what]):,.0f}"
            for kind in (*KINDS, "together") for what in ("appends_per_second", "p50_us")))


def asynchronous(directory, ceph, keys, seconds, rounds):
    """Measures async puts beside those without durability, at a rate that both can sustain and at full speed, in turns."""
    kinds = [(mode, rate) for rate in (40_000, 0) for mode in ("none", "async")]
    found = {}
    for turn in range(rounds):
        for mode, rate in kinds:
            here = directory / f"async-{turn}-{mode}-{rate}"
            with OnRados(here, ceph, keys, "cell", durability=mode, **ONE) if mode == "async" else Measurement(here, 1, keys, **ONE) as m:
                m.bench("get", "--seconds", "0.2")
                depth = "64" if rate else "16"
                run = m.bench("put", "--path", "server", "--depth", depth, "--rate", str(rate), "--seconds", str(seconds))
            found.setdefault((mode, rate), []).append(run)
    print("\n| puts | asked for | puts/s | p50 us | p99 us | beside `none` |\n" + "|---" * 6 + "|")
    for mode, rate in kinds:
        beside = statistics.median(one["ops_per_second"] / none["ops_per_second"] for one, none in zip(found[mode, rate], found["none", rate]))
        row(mode, f"{rate:,}/s" if rate else "all it can", *puts_cells(found[mode, rate]), f"{beside:.2f}")


def measure(directory, osds, rounds, keys=20_000, seconds=2):
    ceph = Ceph(directory / "ceph", free_port(), osds=osds)
    try:
        ceph.ceph("osd", "pool", "create", WAITS[0], 8, 8, "replicated")
        print(f"\nLogs on Ceph RADOS with {osds} OSD{'s' if osds > 1 else ''}:", flush=True)
        sync(directory, ceph, keys, seconds, rounds)
        asynchronous(directory, ceph, keys, seconds, rounds)
    finally:
        ceph.stop(signal.SIGKILL)
