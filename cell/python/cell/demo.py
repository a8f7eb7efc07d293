"""Shows a cluster at work: python -m cell.demo.

Three servers on this machine, in a temporary directory, get an index of packages. Then come range queries, a
transaction, a snapshot, and the end of a server with kill -9, whose keys the others take over.
"""

import argparse
import asyncio
import pkgutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import cell
import cell.asyncio
from cell._cluster import cluster


def package_index():
    """Returns the packages of this machine, by name, with their descriptions: Debian's if there are any, and else
    Python's modules."""
    try:
        listed = subprocess.run(["dpkg-query", "-W", "-f", "${Package}\t${Version} ${binary:Summary}\n"], stdout=subprocess.PIPE, check=True, text=True).stdout
        return "Debian packages", dict(line.split("\t", 1) for line in sorted(set(listed.splitlines())))
    except (OSError, subprocess.CalledProcessError):
        return "Python modules", {module.name: str(getattr(module.module_finder, "path", "")) for module in pkgutil.iter_modules()}


class Step:
    """Says what is done, and how long it took."""

    def __init__(self, text):
        self.text = text

    def __enter__(self):
        print(self.text, flush=True)
        self.began = time.monotonic()
        return self

    def __exit__(self, kind, *exception):
        if kind is None:
            print(f"  ({(time.monotonic() - self.began) * 1e3:.1f} ms)\n", flush=True)


def show(pairs):
    for key, value in pairs:
        print(f"  {key.decode():24} {value.decode()[:60]}")


async def load(directory, index):
    """Stores all pairs, 128 at a time."""
    client = await cell.asyncio.connect(directory)
    pairs = iter(index.items())

    async def some():
        for name, text in pairs:
            await client.put(name, text)

    await asyncio.gather(*(some() for _ in range(128)))
    await client.close()


def run(directory):
    what, index = package_index()
    with Step(f"Storing {len(index)} {what} ..."):
        asyncio.run(load(directory, index))
    with cell.connect(directory) as client:
        first = sorted(index)[len(index) // 2]
        prefix = first[:4]
        with Step(f'client.scan(prefix="{prefix}", limit=5)'):
            show(client.scan(prefix=prefix, limit=5))
        with Step('client.scan(reverse=True, limit=3)'):
            show(client.scan(reverse=True, limit=3))
        with Step('client.count("a", "m")'):
            print(f'  {client.count("a", "m")} keys')
        with Step("A snapshot, a transaction that moves a pair, and what both show"), client.snapshot() as snapshot:
            with client.transaction() as transaction:
                transaction.put("moved/" + first, transaction.get(first))
                transaction.delete(first)
            print(f"  now: {client.get(first)}, and {client.get('moved/' + first)}\n  in the snapshot: {snapshot.get(first)}")
        return client.count()


def main():
    parser = argparse.ArgumentParser(prog="python -m cell.demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", type=int, default=3, help="number of servers (default: %(default)s)")
    arguments = parser.parse_args()
    if not 2 <= arguments.servers <= 16:
        parser.error("--servers must be from 2 to 16")
    with tempfile.TemporaryDirectory(prefix="cell-demo-") as base:
        directory = Path(base) / "cluster"
        with Step(f"Starting {arguments.servers} servers ..."):
            servers = cluster.up(directory, servers=arguments.servers, durability="sync", meganode_bytes=1 << 20, extents_bytes=8 << 20)
        try:
            keys = run(directory)
            with cell.connect(directory) as client, Step("kill -9 of a server, and a count of all keys"):
                servers[0].kill()
                print(f"  {client.count()} of {keys} keys are there")
        finally:
            cluster.end(servers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
