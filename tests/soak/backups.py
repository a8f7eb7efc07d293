"""Makes backups during faults. One that reports success must be right: it is restored and compared with the history."""

import json
import random
import subprocess
import time

from tests.soak.servers import Server
from tools import cluster, cluster_settings

BACKUP_SECONDS = 60
RESTORED_MAX = 2  # Per round.
TRIES_MAX = 8
TRIES_DISTURBED = 2


class Backups:
    def __init__(self, plan, servers, directory, tell, fail):
        self.plan, self.servers, self.directory, self.tell, self.fail = plan, servers, directory, tell, fail
        self.rng = random.Random(plan.seed + 2)
        self.begun = 0
        self.running = []  # (process, its directory, when it began).
        self.made = []  # (directory, from when, to when), for those that succeeded.

    def begin(self):
        directory = self.directory / f"backup-{self.begun}"
        self.begun += 1
        prefix, flags = self.servers.on_client(0)
        command = [*prefix, cluster.binary("tools/cellctl"), "--cluster", self.servers.address, *flags, "backup", str(directory)]
        begun_ns = time.monotonic_ns()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.running.append((process, directory, begun_ns))

    def under_way(self):
        """Returns whether any is in progress. Ends one that takes too long."""
        for process, directory, begun_ns in list(self.running):
            if process.poll() is None and time.monotonic_ns() - begun_ns > BACKUP_SECONDS * 1_000_000_000:
                process.kill()
                process.wait()
            if process.poll() is None:
                continue
            self.running.remove((process, directory, begun_ns))
            self.tell(f"{directory.name} ended with status {process.returncode}")
            if process.returncode == 0:
                self.made.append((directory, begun_ns, time.monotonic_ns()))
        return bool(self.running)

    def restore(self):
        """Restores some successful backups. Their content becomes part of the history, as reads at the time of the
        backup."""
        for number, (directory, from_ns, to_ns) in enumerate(self.rng.sample(self.made, min(RESTORED_MAX, len(self.made)))):
            server = self._server(number)
            try:
                server.start()
                self.servers.wait_for(server.serves, BACKUP_SECONDS, "the server to restore into does not start")
                if self._restore(server, directory):
                    self._dump(server, directory, from_ns, to_ns)
            finally:
                server.kill()

    def _server(self, number):
        """Returns a cluster of one server, whose disk is slow enough for a kill in the middle of a restore."""
        home = self.directory / f"restored-{number}" / "disk" / "cluster"
        home.mkdir(parents=True)
        settings = {"servers": 1, "workers": 1, "node_bytes": self.plan.node_bytes, "meganode_bytes": self.plan.meganode_bytes,
                    "extents_bytes": self.plan.extents_bytes, "regions_max": 48, "durability": "sync", "fabric": "shm", "host": None}
        (home / "cluster.json").write_text(json.dumps(cluster_settings.describe(home, settings)))
        command = [cluster.binary("cell/cmd/cell_server"), "--dir", str(home), "--name", "server-0", "--fabric", "shm", "--log-dir",
                   str(home / "log")]
        server = Server("server-0", home, self.directory / f"restored-{number}.log", command, descriptors=0)
        server.set_disk(delay_us=self.rng.randrange(5000))
        return server

    def _restore(self, server, directory):
        """Repeats a restore until it reports success. The server is killed in the middle of the first ones."""
        said = ""
        for attempt in range(TRIES_MAX):
            command = [cluster.binary("tools/cellctl"), "--cluster", str(server.directory), "restore", *(["--merge"] if attempt else []),
                       str(directory)]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if attempt < TRIES_DISTURBED:
                time.sleep(self.rng.expovariate(1 / 0.3))
                server.kill()
                server.start()
            try:
                said, _ = process.communicate(timeout=BACKUP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                said = "it does not end"
            if process.returncode == 0:
                return True
        self.fail(f"{directory.name} was written, but cannot be restored: {said[-1000:]}")
        return False

    def _dump(self, server, directory, from_ns, to_ns):
        server.kill()  # All of it is on disk.
        server.start()
        command = [cluster.binary("tests/soak/soak_client"), "--cluster", str(server.directory), "--fabric", "shm", "--process", "0", "--log",
                   str(self.directory / f"client-of-{directory.name}.operations"), "--keys", str(self.plan.keys), "--dump-from", str(from_ns),
                   "--dump-to", str(to_ns), *(flag for table in self.plan.tables for flag in ("--tables", table))]
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=BACKUP_SECONDS)
        self.tell(f"{directory.name} was restored and read: {result.stdout.strip()}")
        if result.returncode != 0:
            self.fail(f"{directory.name} was restored, but cannot be read: {result.stdout[-1000:]}")

    def close(self):
        for process, _, _ in self.running:
            process.kill()
            process.wait()
