"""Measures the region table in a ZooKeeper of its own, and prints the tables of docs/results/region-table.md.

Members are processes that read the table three times a second. Clients are real ones of a real cluster that read
one-sided, and have their leases from its servers.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools import cluster, cluster_directory, free_ports, zookeeper_server
from tools.measure_cluster import row

BENCH = "tools/region_table_bench"
CLIENTS_A_PROCESS = 50


def run(address, *arguments):
    return json.loads(subprocess.run([cluster.binary(BENCH), "--cluster", address, *map(str, arguments)], check=True, text=True,
                                     stdout=subprocess.PIPE).stdout)


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def java_of(process):
    """Returns the id of the process that is ZooKeeper: its script may have started it as a child."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(children[0]) if children else process.pid


class Members:
    def __init__(self, address, count):
        self._processes = [subprocess.Popen([cluster.binary(BENCH), "--cluster", address, "client"], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, text=True) for _ in range(count)]
        self.open_ms = statistics.median(json.loads(process.stdout.readline())["open_ms"] for process in self._processes)

    def end(self):
        for process in self._processes:
            process.stdin.close()
        results = [json.loads(process.stdout.readline()) for process in self._processes]
        for process in self._processes:
            process.wait()
        return results


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--regions", type=int, nargs="+", default=[1000, 20_000, 100_000])
    parser.add_argument("--members", type=int, default=20)
    parser.add_argument("--clients", type=int, nargs="+", default=[50, 200, 1000])
    parser.add_argument("--connections", type=int, nargs="+", default=[200, 1000], help="Idle connections to ZooKeeper")
    parser.add_argument("--only", choices=["table", "clients", "takeover"])
    parser.add_argument("--seconds", type=float, default=10)
    flags = parser.parse_args()
    os.environ["CELL_ZOOKEEPER_DIGEST"] = "cell:a password of this measurement"
    with tempfile.TemporaryDirectory(prefix="cell-table-") as directory:
        port = free_ports.free_port()
        server = zookeeper_server.start_zookeeper(Path(directory) / "zookeeper", port, settings=["maxClientCnxns=0"])
        try:
            zookeeper_server.wait_for_zookeeper(port, server)
            if flags.only in (None, "table"):
                measure_table(f"127.0.0.1:{port}", java_of(server), flags)
            if flags.only in (None, "clients"):
                measure_clients(f"127.0.0.1:{port}", java_of(server), Path(directory) / "clients", flags)
            if flags.only in (None, "takeover"):
                measure_takeover(f"127.0.0.1:{port}", Path(directory) / "takeover")
        finally:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def measure_table(zookeeper, pid, flags):
    sizes, changes, reads = [], [], []
    for regions in flags.regions:
        name = f"regions-{regions}"
        address = f"zk://{zookeeper}/{name}"
        made = run(address, "make", "--regions", regions, "--servers", max(1, regions // 100))
        sizes.append((f"{regions:,}", f"{made['root_bytes']:,}", made["shards"], f"{made['shard_bytes_max']:,}", f"{made['bytes'] / regions:.1f}",
                      f"{made['seconds']:.2f}"))
        one, many = (run(address, "change", "--seconds", flags.seconds, "--at-once", at_once) for at_once in (1, 64))
        changes.append((f"{regions:,}", f"{one['changes_per_s']:.0f}", f"{many['changes_per_s']:.0f}", f"{many['writes_per_s']:.0f}"))
        for busy in (False, True):
            members = Members(address, flags.members)
            time.sleep(1)
            begin, cpu = time.monotonic(), cpu_seconds(pid)
            rate = run(address, "change", "--seconds", flags.seconds, "--at-once", 64)["changes_per_s"] if busy else 0
            time.sleep(0 if busy else flags.seconds)
            core = 100 * (cpu_seconds(pid) - cpu) / (time.monotonic() - begin)
            ended = members.end()
            assert len({result["version"] for result in ended}) == 1, "the members do not agree"
            refresh_us = statistics.median(result["refresh_us"] for result in ended)
            reads.append((f"{regions:,}", f"{rate:.0f}", f"{members.open_ms:.0f}", f"{refresh_us:.0f}", f"{core:.1f}"))
    print("| regions | root, bytes | shards | largest shard, bytes | bytes a region | seconds to make |\n|---|---|---|---|---|---|")
    for one in sizes:
        row(*one)
    print("\n| regions | changes/s, one at a time | changes/s, 64 at once | writes/s of those |\n|---|---|---|---|")
    for one in changes:
        row(*one)
    print(f"\n| regions | changes/s meanwhile | ms to open | us a reading | ZooKeeper, % of a core, with {flags.members} members |\n|---|---|---|---|---|")
    for one in reads:
        row(*one)


def core_for(pid, seconds):
    """Returns how much of a core the process takes for so long, in percent."""
    begin, cpu = time.monotonic(), cpu_seconds(pid)
    time.sleep(seconds)
    return 100 * (cpu_seconds(pid) - cpu) / (time.monotonic() - begin)


def measure_clients(zookeeper, pid, directory, flags):
    servers = cluster.up(directory, servers=3, workers=2, zookeeper=zookeeper, durability="async", meganode_bytes=2 << 20, extents_bytes=8 << 20,
                         regions_max=16)
    address = cluster_directory.address_of(directory)
    try:
        print("\n| clients that read | processes | questions to servers/s | readings from ZooKeeper | ZooKeeper, % of a core |\n|---|---|---|---|---|")
        row("0", 0, 0, 0, f"{core_for(pid, flags.seconds):.1f}")
        for clients in flags.clients:
            processes = -(-clients // CLIENTS_A_PROCESS)
            threads = clients // processes
            benches = [subprocess.Popen([cluster.binary("tools/cell_bench"), "--cluster", address, "--threads", str(threads), "--path", "client",
                                         "--keys", "1000", "--rate", str(5 * threads), "--seconds", str(flags.seconds + 6), "--json", "-"],
                                        stdout=subprocess.PIPE, text=True) for _ in range(processes)]
            time.sleep(5)  # They open the cluster meanwhile.
            core = core_for(pid, flags.seconds)
            results = [json.loads(bench.communicate()[0]) for bench in benches]
            asked, read = (sum(result[name] for result in results) for name in ("table_questions", "table_readings"))
            row(threads * processes, processes, f"{asked / (flags.seconds + 6):.0f}", read, f"{core:.1f}")
        print("\n| idle connections | ZooKeeper, % of a core |\n|---|---|")
        for connections in flags.connections:
            idle = subprocess.Popen([cluster.binary(BENCH), "--cluster", address, "idle", "--connections", str(connections)],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            idle.stdout.readline()
            row(connections, f"{core_for(pid, flags.seconds):.1f}")
            idle.communicate()
    finally:
        cluster.end(servers)


def regions_of(address):
    """Returns all regions. While one of the servers does not answer, cellctl says so besides."""
    told = subprocess.run([cluster.binary("tools/cellctl"), "--cluster", address, "-o", "json", "regions"], check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return [json.loads(line) for line in told.stdout.splitlines()]


def measure_takeover(zookeeper, directory):
    """Kills one of four servers that has some 100 small regions."""
    servers = cluster.up(directory, servers=4, zookeeper=zookeeper, name="takeover", durability="async", meganode_bytes=1 << 20,
                         extents_bytes=4 << 20, regions_max=400)
    address = cluster_directory.address_of(directory)
    try:
        subprocess.run([cluster.binary("tools/cell_bench"), "--cluster", address, "--keys", "1500000", "--value-bytes", "64", "--seconds", "1"], check=True, stdout=subprocess.DEVNULL)
        before = regions_of(address)
        owned = [region["region"] for region in before if region["server"] == "server-3"]
        servers[3].kill()
        begin = time.monotonic()
        claimed = None
        while True:
            regions = regions_of(address)
            if len(regions) < len(before):
                continue
            left = [region for region in regions if region["region"] in owned and
                    (region["server"] == "server-3" or not region["served"])]
            if claimed is None and all(region["server"] != "server-3" for region in left):
                claimed = time.monotonic() - begin
            if not left:
                break
        print("\n| regions in all | of the server that was killed | all claimed after, s | all served after, s |\n|---|---|---|---|")
        row(len(before), len(owned), f"{claimed:.1f}", f"{time.monotonic() - begin:.1f}")
    finally:
        cluster.end(servers)


if __name__ == "__main__":
    sys.exit(main())
