"""Checks that all resources are released when a round's faults are over and its clients are gone."""

import json
import os
import re
import time
from pathlib import Path

SETTLE_SECONDS = 60
# A worker's own: standard streams, locks, epoll and event descriptors, gRPC's, ZooKeeper's, the directory's.
DESCRIPTORS_OWN = 60
DESCRIPTORS_PER_REGION = 4  # Its memory, its log, its checkpoint, and one being made.
SOCKETS_PER_PEER = 6  # Both ways, calls and reads, and one being made again.
# librados: connections to its daemons, some being made again, and what its threads wait for.
SOCKETS_OF_CEPH = 12
DESCRIPTORS_OF_CEPH = 40
# For a worker in addition to its regions: code, queues, caches, and what malloc keeps of them.
MEMORY_OWN_MB = 256


def descriptors_of(pid):
    """Returns where each descriptor of a process leads."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(os.readlink(entry))
        except OSError:
            pass  # Closed meanwhile.
    return found


def memory_mb(pid, kind):
    """Returns RssAnon or RssShmem of a process."""
    return int(re.search(rf"{kind}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


class Accounts:
    def __init__(self, plan, servers, fail):
        self.plan, self.servers, self.fail = plan, servers, fail

    def check(self):
        """Waits until everything is quiet, and reports what is wrong."""
        try:
            self.servers.wait_for(lambda: self._quiet() is None, SETTLE_SECONDS, "the cluster does not come to rest")
        except TimeoutError as error:
            self.fail(f"{error}: {self._quiet()}")
            return
        statuses = self.servers.statuses()
        for server in self.servers.servers:
            self._process(server, statuses[server.name])
        self._files()

    def _quiet(self):
        """Returns what is not settled yet, or None."""
        statuses = self.servers.statuses()
        missing = [server.name for server in self.servers.servers if server.name not in statuses]
        if missing:
            return f"{', '.join(missing)} do not answer: {self.servers.ctl('status').stderr.strip()}"
        check = self.servers.ctl("check", seconds=60)
        if check.returncode != 0 or "no errors" not in check.stdout:
            return f"cellctl check: {check.stdout[-1000:]}{check.stderr[-1000:]}"
        return self._holders(statuses)

    def _holders(self, statuses):
        """Returns a region that is not held by exactly the server in the table, or None. Also while a region migrates.
        """
        holders = {}
        for name, workers in statuses.items():
            for region in (region for worker in workers for region in worker["regions"]):
                holders.setdefault(region["region"], []).append(name)
        for region, names in holders.items():
            if len(names) != 1:
                return f"region {region} is held by {', '.join(names)}"
        if self.plan.zookeeper:
            return None
        table = {one["region"]: one["server"] for one in json.loads((self.servers.home / "regions.json").read_text())["regions"]}
        for region in table.keys() | holders.keys():
            if [table.get(region)] != holders.get(region):
                return f"region {region}: the table names {table.get(region)}, it is held by {holders.get(region)}"
        self.table = table
        return None

    def _process(self, server, workers):
        held = sum(len(worker["regions"]) for worker in workers)
        ready = sum(worker.get("regions_ready", 0) + 1 for worker in workers)
        descriptors = descriptors_of(server.process.pid)
        sockets = sum(one.startswith("socket:") for one in descriptors)
        most_sockets = DESCRIPTORS_OWN * self.plan.workers + SOCKETS_PER_PEER * self.plan.servers * self.plan.workers**2
        if self.plan.ceph:
            most_sockets += SOCKETS_OF_CEPH
        if sockets > most_sockets:
            self.fail(f"{server.name} has {sockets} sockets, but at most {most_sockets} are expected: {self._kinds(descriptors)}")
        most = most_sockets + DESCRIPTORS_OWN + DESCRIPTORS_PER_REGION * (held + ready)
        if self.plan.ceph:
            most += DESCRIPTORS_OF_CEPH
        if len(descriptors) > most:
            self.fail(f"{server.name} has {len(descriptors)} descriptors, but at most {most} are expected: {self._kinds(descriptors)}")
        anonymous = memory_mb(server.process.pid, "RssAnon")
        if anonymous > MEMORY_OWN_MB * self.plan.workers:
            self.fail(f"{server.name} has {anonymous:.0f} MB of memory besides its regions, but at most {MEMORY_OWN_MB * self.plan.workers} are expected")
        regions_mb = (held + ready) * (self.plan.meganode_bytes + self.plan.extents_bytes) / 2**20
        shared = memory_mb(server.process.pid, "RssShmem")
        if shared > regions_mb + 64:
            self.fail(f"{server.name} has {shared:.0f} MB of shared memory for {held} regions of {regions_mb:.0f} MB")

    @staticmethod
    def _kinds(descriptors):
        kinds = {}
        for one in descriptors:
            kind = re.sub(r"[\d\[\]]+", "N", one)
            kinds[kind] = kinds.get(kind, 0) + 1
        return ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items(), key=lambda item: -item[1])[:8])

    def _files(self):
        """Checks that there is no log of a region that does not exist, and nothing unfinished. Collecting takes a
        moment."""
        left = self._objects_left if self.plan.ceph else self._files_left
        deadline = time.monotonic() + 15
        while (names := left()) and time.monotonic() < deadline:
            time.sleep(0.2)
        if names:
            self.fail(f"this is left of logs: {', '.join(names[:10])}")

    def _files_left(self):
        log = self.servers.home / "log"
        names = [path.name for path in log.rglob("*") if "unfinished" in path.name]
        return names + self._nobodys([path.name for path in log.glob("region-*")])

    def _objects_left(self):
        self.servers.ctl("checkpoint")  # What attempts without an answer have left goes with the next checkpoint.
        rados = ["rados", "-p", self.servers.ceph.pool]
        heads = [name for name in self.servers.ceph.run(*rados, "ls").split() if re.fullmatch(r"region-\d+", name)]
        names = [f"{head}: {key}" for head in heads for key in self.servers.ceph.run(*rados, "listomapkeys", head, check=False).split()]
        return [name for name in names if ": +" in name] + self._nobodys(heads)

    def _nobodys(self, logs):
        """Returns those that are not of a region in the table, as far as that is known."""
        return [] if self.plan.zookeeper else [name for name in logs if int(name.removeprefix("region-")) not in self.table]
