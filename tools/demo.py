"""Cell in a minute: three server processes on this machine with its package index, range queries, a benchmark.

Everything runs over shared memory in a temporary directory and is taken down at the end.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools import cluster

FIELD = b"Package: "


def package_index():
    """Returns (records, source): the machine's package records, sorted by name (the last one of each name)."""
    source = "apt-cache dumpavail"
    text = b""
    if shutil.which("apt-cache"):
        text = subprocess.run(["apt-cache", "dumpavail"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout
    if text.count(FIELD) < 1000:  # There are no package lists on this machine: use the installed packages.
        source = "/var/lib/dpkg/status"
        text = Path(source).read_bytes()
    records = {}
    for paragraph in text.split(b"\n\n"):
        for line in paragraph.split(b"\n"):
            if line.startswith(FIELD):
                # A record is one line of the input to `cellctl load`, with its line ends written as \n.
                records[line[len(FIELD):].strip()] = paragraph.strip().replace(b"\\", b"\\\\").replace(b"\n", b"\\n")
    return dict(sorted(records.items())), source


class Demo:
    def __init__(self, directory, records, seconds):
        self.directory = directory
        self.records = records
        self.seconds = seconds
        self.failures = []

    def cellctl(self, *arguments, path="hybrid", **options):
        command = [cluster.binary("tools/cellctl"), "--cluster", str(self.directory), "--path", path, *arguments]
        return subprocess.run(command, stdout=subprocess.PIPE, check=True, **options).stdout

    def load(self):
        file = self.directory / "packages.tsv"
        with open(file, "wb") as out:
            for name, record in self.records.items():
                out.write(name + b"\t" + record + b"\n")
        print(self.cellctl("load", str(file)).decode().strip(), flush=True)

    def query(self, what, arguments, wanted, paths=("server", "client", "hybrid")):
        """Makes the query on each path and compares the results with the input."""
        for path in paths:
            start = time.monotonic()
            lines = self.cellctl("scan", *arguments, path=path).splitlines()
            milliseconds = 1e3 * (time.monotonic() - start)
            right = lines == [name + b"\t" + self.records[name] for name in wanted]
            print(f"  {what:<34} {path:<7} {len(lines):>6} records  {milliseconds:7.1f} ms  {'right' if right else 'WRONG'}",
                  flush=True)
            if not right:
                self.failures.append(f"{what} over {path}")

    def queries(self):
        names = list(self.records)
        self.query("everything from libboost to libc", ["libboost", "libc"], [n for n in names if b"libboost" <= n < b"libc"])
        self.query("prefix python3-", ["--prefix", "python3-"], [n for n in names if n.startswith(b"python3-")])
        middle = names[len(names) // 2]
        self.query(f"a page of ten from {middle.decode()[:14]}", [middle.decode(), "--limit", "10"],
                   [n for n in names if n >= middle][:10])
        self.query("all of it", [], names)

    def takeover(self, processes):
        """Kills the server that holds the root, and requests all keys at once."""
        table = json.loads((self.directory / "regions.json").read_text())
        root = next(r["server"] for r in table["regions"] if r["region"] == table["root"])
        held = sum(r["server"] == root for r in table["regions"])
        processes[int(root[7:])].kill()
        start = time.monotonic()
        print(f"\nkill -9 of {root}, which held the root and {held - 1} other regions. All records, right after the kill:", flush=True)
        self.query("all of it", [], list(self.records), paths=("hybrid",))
        print(f"  answered {time.monotonic() - start:.1f} s after the kill by the other servers, which recovered the regions from the logs; "
              "and again:", flush=True)
        self.query("all of it", [], list(self.records))

    def bench(self):
        rows = []
        for workload in ("get", "scan"):
            for path in ("server", "client", "hybrid"):
                result = json.loads(subprocess.run(
                    [cluster.binary("tools/cell_bench"), "--cluster", str(self.directory), "--workload", workload, "--path", path,
                     "--keys", "100000", "--seconds", str(self.seconds), "--json", "-"],
                    stdout=subprocess.PIPE, check=True).stdout)
                rows.append((workload, path, result))
        print(f"\n  {'workload':<10} {'path':<7} {'ops/s':>10} {'entries/s':>11} {'p50 us':>8} {'p99 us':>8} {'server':>7} {'reads/op':>9}")
        for workload, path, r in rows:
            print(f"  {workload:<10} {path:<7} {r['ops_per_second']:>10,.0f} {r['entries_per_second']:>11,.0f} "
                  f"{r['latency_us']['p50']:>8.1f} {r['latency_us']['p99']:>8.1f} {r['server_share']:>7.0%} "
                  f"{r['node_reads_per_op']:>9.2f}")


def main():
    parser = argparse.ArgumentParser(prog="demo", usage="./bazelw run //tools:demo -- [FLAGS]", description=__doc__,
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2, help="seconds per benchmark")
    parser.add_argument("--meganode-bytes", default="1M", help="bytes for the nodes of each meganode; small, so that they split")
    parser.add_argument("--extents-bytes", default="8M", help="bytes for the keys and values of each meganode")
    args = parser.parse_args()
    os.umask(0o077)
    directory = Path(tempfile.mkdtemp(prefix="cell-demo-"))
    processes = []
    try:
        records, source = package_index()
        size = sum(len(k) + len(v) for k, v in records.items())
        print(f"{len(records)} package records ({size / 1e6:.1f} MB) from {source}")
        processes = cluster.up(directory, servers=3, regions_max=32, meganode_bytes=cluster.parse_bytes(args.meganode_bytes),
                               extents_bytes=cluster.parse_bytes(args.extents_bytes), durability="sync")
        print(f"three servers are up (processes {', '.join(str(p.pid) for p in processes)}); loading the records")
        demo = Demo(directory, records, args.seconds)
        demo.load()
        time.sleep(0.5)
        print("\nThe meganodes have split in the meantime and were spread over the servers:\n" + demo.cellctl("status").decode().rstrip())
        print("\nRange queries, each compared with the input:")
        demo.queries()
        demo.takeover(processes)
        print("\nA short benchmark: one client thread, 16 operations in flight; 100,000 more keys; scans of 100 entries.",
              flush=True)
        demo.bench()
        print("\n" + demo.cellctl("--timeout", "60", "check").decode().strip().splitlines()[-1])
        if demo.failures:
            raise cluster.ClusterError("wrong answers: " + ", ".join(demo.failures))
    except (cluster.ClusterError, OSError, subprocess.CalledProcessError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    finally:
        cluster.end(processes)
        shutil.rmtree(directory, ignore_errors=True)
    print("the servers have ended, and the cluster was deleted")
    return 0


if __name__ == "__main__":
    sys.exit(main())
