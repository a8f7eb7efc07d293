"""Repeatedly kills servers with -9 under load, and compares the tree and the tables with what was acknowledged.

With sync nothing that was acknowledged is lost; with async nothing that was acknowledged longer than 100 ms before
the kill. A cycle kills one of three servers, or all of them; then they are started again. With --ceph the logs are in a
pool of a real Ceph with three OSDs, of which a cycle may kill one, too.

From the second cycle on, a bank moves money between regions of the tree and tables by transactions. None is lost that was acknowledged, with
async neither, and no half of one is there. Snapshots that are taken meanwhile have each transfer as a whole.
"""

import argparse
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools import cluster
from tools.ceph_server import Ceph
from tools.free_ports import free_port

OPTIONS = {"servers": 3, "meganode_bytes": 64 << 10, "extents_bytes": 128 << 10, "regions_max": 64}
# How long before the kill writes of async may have been acknowledged and still be lost. At most 10 ms of writes are
# lost (takeover_test shows that in virtual time), but a slow sync makes them older. So the logs are in memory, where a
# sync takes no time and which outlives a killed server. The rest of the bound is for a busy machine. With --ceph it is
# the time from the first to the last of the writes that a kill loses.
BOUND_MS = 100
MEMORY = Path("/dev/shm")
FLAGS = ["--takeover-after", "0.2"]
TABLES = ("slots", "buckets")


def owners(directory):
    return {r["region"]: r["server"] for r in json.loads((directory / "regions.json").read_text())["regions"]}


def bank_command(directory, seconds, seed):
    return [cluster.binary("tests/crash_bank"), "--cluster", str(directory), "--state", str(directory / "bank"), "--seconds", str(seconds),
            "--seed", str(seed), "--tables", *TABLES]


def told(said, what):
    """Returns how many of something the bank has told of."""
    return sum(map(int, re.findall(rf"(\d+) {what}", said)))


def cycle(directory, servers, durability, killed_ns, number, flags, ceph):
    """Runs the writer once, with a kill. Returns the time of the kill, and how many regions others took over meanwhile.
    """
    command = [cluster.binary("tests/crash_writer"), "--cluster", str(directory), "--state", str(directory / "state"), "--seconds", "1",
               "--seed", str(number), "--tables", *TABLES]
    if durability == "async":
        command += ["--bound-ms", str(BOUND_MS), "--killed-ns", str(killed_ns)]
        # A sync of RADOS waits while an OSD is down, and async writes wait for it.
        command += ["--slow-syncs"] if ceph is not None else []
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    first = writer.stdout.readline()  # It has verified.
    bank = None
    if number > 1:  # The tree has several regions by now.
        bank = subprocess.Popen(bank_command(directory, 0.8, number), stdout=subprocess.PIPE, text=True)
    time.sleep(random.random())
    victims = range(3) if random.random() < 0.3 else [random.randrange(3)]
    names = [f"server-{victim}" for victim in victims]
    before = owners(directory)
    osd = f"osd.{random.randrange(3)}" if ceph is not None and random.random() < 0.3 else None
    if osd is not None:
        ceph.end(osd, signal.SIGKILL)
    killed_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)  # Taken before the kill, because this program may be delayed
                                                            # here.
    for victim in victims:
        servers[victim].kill()
    for victim in victims:
        servers[victim].wait()
    if random.random() < 0.5:
        time.sleep(random.random() * 2)  # The others take over meanwhile, or not.
    after = owners(directory)
    taken = sum(owner in names and after.get(region, owner) not in names for region, owner in before.items())
    for victim in victims:
        servers[victim] = cluster.start_server(directory, f"server-{victim}", flags)
    if osd is not None:
        ceph.start(osd)
    rest = writer.communicate(timeout=120)[0]
    banked = bank.communicate(timeout=120)[0] if bank else ""
    if writer.returncode != 0 or (bank and bank.returncode != 0):
        logs = "\n".join((directory / f"server-{s}.log").read_text()[-3000:] for s in range(3))
        raise SystemExit(f"cycle {number} ({durability}):\n{first}{rest}\n{banked}\n{logs}")
    return killed_ns, taken, f"{first.strip()}; the bank {banked.strip()}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--cycles", type=int, help="number of cycles, instead of a time")
    parser.add_argument("--durability", choices=("sync", "async"), help="durability to test (default: both, one after the other)")
    parser.add_argument("--ceph", action="store_true", help="keep the logs in a Ceph that is started for it, with three OSDs")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # Leave no server behind.
    random.seed(args.seed)
    modes = [args.durability] if args.durability else ["sync", "async"]
    for durability in modes:
        with tempfile.TemporaryDirectory(prefix="cell-crash-loop-", dir=MEMORY if MEMORY.is_dir() else None) as temporary:
            directory, flags, ceph, servers = Path(temporary) / "cell", list(FLAGS), None, []
            end, number, killed_ns, taken, transfers = time.monotonic() + 60 * args.minutes / len(modes), 0, -1, 0, 0
            snapshots = 0
            try:
                if args.ceph:
                    ceph = Ceph(Path(temporary) / "ceph", free_port(), osds=3, osd_bytes=1 << 30)
                    flags += ["--log-store", f"rados:cell@{ceph.conf}"]
                servers = cluster.up(directory, durability=durability, server_flags=flags, **OPTIONS)
                for layout in TABLES:
                    subprocess.run([cluster.binary("tools/cellctl"), "--cluster", str(directory), "hash", "create", layout, "--layout", layout], check=True)
                while number < args.cycles if args.cycles else time.monotonic() < end:
                    number += 1
                    killed_ns, more, said = cycle(directory, servers, durability, killed_ns, number, flags, ceph)
                    taken += more
                    transfers += told(said, "transfers acknowledged")
                    snapshots += told(said, "snapshots") > 0
                    if sys.stdout.isatty():
                        print(f"\r{durability}: {number} cycles, {taken} regions taken over; {said}", end="", flush=True)
                if number > 1:  # The last transfers have to be verified, too.
                    verified = subprocess.run(bank_command(directory, 0, number + 1), stdout=subprocess.PIPE, text=True, check=False)
                    if verified.returncode != 0:
                        raise SystemExit(f"after the last cycle ({durability}): {verified.stdout}")
                    transfers += told(verified.stdout, "transfers acknowledged")
                if number > 2 and (transfers == 0 or snapshots < number // 4):
                    raise SystemExit(f"{durability}: the bank has made {transfers} transfers, and read snapshots in {snapshots} of {number} cycles")
            finally:
                cluster.end(servers)
                if ceph is not None:
                    ceph.stop(signal.SIGKILL)
            print(f"\n{durability}: {number} cycles, {taken} regions taken over by others, {transfers} transfers, {snapshots} cycles with snapshots, nothing lost that must not be; the last: {said}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
