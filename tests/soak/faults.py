"""Draws a round of the soak from its seed: the cluster, its clients, and which fault comes when and for how long."""

import errno
import random
import signal
import time
from dataclasses import dataclass, field

# The mean duration of each fault in seconds. Control commands and the ends of clients take no time.
DURATIONS = {
    "kill": 1.5,  # SIGKILL to a server, which is restarted after that time; others may take over meanwhile.
    "kill all": 1.0,
    "stop": 2.0,  # SIGSTOP, SIGCONT.
    "stop client": 2.0,
    "cut": 2.5,  # A host, of a server, a client or the ZooKeeper, is off the network.
    "cut between": 2.5,  # Two servers do not reach each other.
    "cut one way": 2.5,  # One server does not reach another, which reaches it.
    "slow disk": 2.0,  # Each call of a server's disk takes up to 100 ms.
    "disk error": 0.7,  # Calls of a server's disk fail with EIO or ENOSPC.
    "full disk": 1.5,  # For all servers; then it has room again.
    "hung disk": 2.5,  # Calls of a server's disk do not return.
    "end": 1.5,  # SIGTERM to a server, which is restarted when it has ended.
    "connections": 3.0,  # Silent ones to a server, up to more than its descriptors.
    "checkpoint": 0,
    "rebalance": 0,
    "split": 0,
    "move": 0,
    "drain": 2.0,
    "kill client": 0,
    "kill osd": 1.5,  # SIGKILL to one of Ceph's OSDs, which is started again after that time.
    "stop osd": 2.0,
    "stop osds": 3.0,  # All of them: every write to a log waits.
    "stop monitor": 3.0,
    "backup": 0,  # Backs up the tree; restored and compared when the round is over.
}
DISK_FAULTS = {"slow disk", "disk error", "full disk", "hung disk"}  # They need logs in a directory.
CEPH_FAULTS = {"kill osd", "stop osd", "stop osds", "stop monitor"}
NETWORK_FAULTS = {"cut", "cut between", "cut one way"}
SILENT_CONNECTIONS = 400
END_SECONDS = 40  # Time for a server that was asked to end, whatever its disk does.


@dataclass(order=True)
class Event:
    at: float  # Seconds after the begin.
    fault: str
    seconds: float
    which: int  # The first choice, of a server, host, region: modulo how many there are.
    other: int


@dataclass
class Plan:
    seed: int
    seconds: float
    zookeeper: bool
    bounded_disk: bool
    servers: int = 3
    workers: int = 1  # Per server.
    client_hosts: int = 2
    durability: str = "sync"
    fabric: str = "tcp"
    node_bytes: int = 1024
    meganode_bytes: int = 256 << 10
    extents_bytes: int = 4 << 20
    regions_max: int = 24
    checkpoint_mb: int = 2
    ceph: bool = False  # The logs are in one.
    descriptors: int = 0  # Per server; 0: the system's default.
    keys: int = 300
    rate: float = 300
    tables: tuple = ("slots", "buckets")
    faults: list = field(default_factory=list)
    events: list = field(default_factory=list)

    @staticmethod
    def draw(seed, seconds, namespaces, bounded_disk, faults=None, ceph=False):
        rng = random.Random(seed)
        zookeeper = rng.random() < 0.5 if seed > 2 else seed == 1  # The first two seeds are one of each.
        plan = Plan(seed, seconds, zookeeper and namespaces, bounded_disk, ceph=ceph)
        plan.durability = rng.choice(["sync", "sync", "async"])
        plan.fabric = "tcp" if plan.zookeeper else rng.choice(["shm", "tcp", "auto"])
        plan.node_bytes = rng.choice([512, 1024, 4096])
        plan.meganode_bytes = rng.choice([128, 256, 1024]) << 10
        plan.extents_bytes = rng.choice([4, 8, 16]) << 20
        plan.regions_max = rng.choice([6, 16, 48])  # 300 keys take 6 MB, so the first may be too few.
        plan.checkpoint_mb = rng.choice([1, 4])
        plan.descriptors = rng.choice([0, 256])
        plan.keys = rng.choice([100, 300, 900])
        plan.workers = rng.choice([1, 1, 2])
        possible = [name for name in DURATIONS if plan.zookeeper or name not in NETWORK_FAULTS]
        possible = [name for name in possible if name not in (DISK_FAULTS if ceph else CEPH_FAULTS)]
        if not bounded_disk and not ceph:
            possible.remove("full disk")
        plan.faults = faults or rng.sample(possible, rng.randint(max(2, len(possible) // 2), len(possible)))
        at = 2.0
        while at < seconds:
            fault = rng.choice(plan.faults)
            lasts = rng.expovariate(1 / DURATIONS[fault]) if DURATIONS[fault] else 0
            plan.events.append(Event(at, fault, min(lasts, 8.0, seconds - at), rng.randrange(1 << 16), rng.randrange(1 << 16)))
            at += rng.expovariate(1 / 1.0)
        return plan

    def describe(self):
        return (f"seed {self.seed}: {'ZooKeeper' if self.zookeeper else 'embedded'}, {'logs in Ceph, ' if self.ceph else ''}{self.durability}, {self.fabric}, {self.servers} servers of "
                f"{self.workers} worker(s), {self.keys} keys, nodes of {self.node_bytes}, regions of {self.meganode_bytes >> 10} + "
                f"{self.extents_bytes >> 10} KB, at most {self.regions_max}, checkpoints at {self.checkpoint_mb} MB, {self.descriptors or 'any number of'} descriptors; "
                f"{len(self.events)} faults: {', '.join(sorted(self.faults))}")


class Faults:
    """Executes a plan's events on real servers, and undoes each when its time is over."""

    def __init__(self, plan, servers, clients, backups, tell, fail):
        self.plan, self.servers, self.clients, self.backups, self.tell, self.fail = plan, servers, clients, backups, tell, fail
        self.left = sorted(plan.events)
        self.undo = []  # (when, what), of faults in progress.
        self.lossy_ns = []  # From when to when an acknowledged write may be lost by async.
        self.counts = {}
        self.begin = time.monotonic()

    def step(self):
        """Does what is due. Returns the seconds until the next event, or None if there is none left."""
        now = time.monotonic() - self.begin
        for entry in sorted(self.undo, key=lambda one: one[0]):
            if entry[0] <= now:
                self.undo.remove(entry)
                entry[1]()
        while self.left and self.left[0].at <= now:
            event = self.left.pop(0)
            if self._inject(event, now):
                self.counts[event.fault] = self.counts.get(event.fault, 0) + 1
        times = [event.at for event in self.left[:1]] + [when for when, _ in self.undo]
        return max(0.0, min(times) - now) if times else None

    def later(self, seconds, what):
        self.undo.append((time.monotonic() - self.begin + seconds, what))

    def heal(self):
        """Undoes what is still in progress, and starts what was killed."""
        self.left = []
        under_way, self.undo = self.undo, []
        for _, what in under_way:
            what()
        self.servers.disk.empty()
        self._heal_ceph()
        for server in self.servers.servers:
            server.set_disk()
            if server.stopped:
                server.go_on()
            if not server.running and not server.ending:
                server.start()

    def _may_lose(self):
        self.lossy_ns += [time.monotonic_ns(), 0]
        return len(self.lossy_ns) - 1

    def _lost(self, window):
        self.lossy_ns[window] = time.monotonic_ns() + 500_000_000  # Answers that were on their way.

    def _inject(self, event, now):
        """Returns False if the fault is not possible now."""
        servers = self.servers.servers
        running = [server for server in servers if server.running and not server.stopped and not server.ending]
        if not running:
            return False
        server = running[event.which % len(running)]
        until = now + event.seconds
        self.tell(f"{now:7.2f} s: {event.fault} for {event.seconds:.2f} s, {server.name}")

        def later(what):
            self.undo.append((until, what))

        if event.fault in ("kill", "kill all"):
            window = self._may_lose()
            for victim in [server] if event.fault == "kill" else [one for one in servers if one.running]:
                victim.kill()
                later(lambda victim=victim: victim.running or victim.start())
            self._lost(window)
        elif event.fault == "stop":
            window = self._may_lose()  # Others may have taken over; unflushed writes are lost.
            server.stop()
            later(lambda: (server.go_on(), self._lost(window)))
        elif event.fault == "cut":
            window = self._may_lose()
            hosts = [host for host in self.servers.network.hosts]
            host = hosts[event.which % len(hosts)]
            self.servers.network.cut(host)
            later(lambda: (self.servers.network.mend(host), self._lost(window)))
        elif event.fault in ("cut between", "cut one way"):
            others = [one.name for one in servers if one is not server] + (["ceph"] if self.plan.ceph else [])
            if not others:
                return False
            other = others[event.other % len(others)]
            window = self._may_lose() if other == "ceph" else None  # Its log may fail, if other such faults follow.
            self.servers.network.cut_between(server.name, other, both=event.fault == "cut between")
            later(lambda: (self.servers.network.mend_between(server.name, other), window is not None and self._lost(window)))
        elif event.fault == "slow disk":
            server.set_disk(delay_us=1000 + event.other % 100_000)
            later(server.set_disk)
        elif event.fault == "disk error":
            window = self._may_lose()
            server.set_disk(one_in=1 + event.other % 20, error=errno.EIO if event.other % 2 else errno.ENOSPC)
            later(lambda: (server.set_disk(), self._lost(window)))
        elif event.fault == "full disk":
            window = self._may_lose()
            self.servers.disk.fill()
            later(lambda: (self.servers.disk.empty(), self._lost(window)))
        elif event.fault == "hung disk":
            window = self._may_lose()  # Others may have taken over, or it was asked to end.
            server.set_disk(hung=1)
            later(lambda: (server.set_disk(), self._lost(window)))
        elif event.fault in CEPH_FAULTS:
            return self._disturb_ceph(event, later)
        elif event.fault == "end":
            self._end(server, until)
        elif event.fault == "backup":
            self.backups.begin()
        elif event.fault == "connections":
            later(self.clients.connect_silently(server, event.other % SILENT_CONNECTIONS))
        elif event.fault in ("checkpoint", "rebalance", "split", "move", "drain"):
            self._control(event, server, later)
        elif event.fault in ("kill client", "stop client"):
            return self.clients.disturb(event, later)
        return True

    def _disturb_ceph(self, event, later):
        """Kills or stops daemons of Ceph. Returns False if there are none, or they do not run now."""
        if not self.plan.ceph:
            return False
        ceph = self.servers.ceph
        osds = [name for name in ceph.processes if name.startswith("osd.")]
        if not osds:
            return False
        names = {"stop osds": osds, "stop monitor": ["mon.a"]}.get(event.fault, [osds[event.which % len(osds)]])
        window = self._may_lose()
        if event.fault == "kill osd":
            ceph.end(names[0], signal.SIGKILL)
            later(lambda: (names[0] in ceph.processes or ceph.start(names[0]), self._lost(window)))
            return True
        stopped = [ceph.processes[name] for name in names]
        for process in stopped:
            process.send_signal(signal.SIGSTOP)
        later(lambda: ([process.send_signal(signal.SIGCONT) for process in stopped if process.poll() is None], self._lost(window)))
        return True

    def _heal_ceph(self):
        if not self.plan.ceph:
            return
        for process in self.servers.ceph.processes.values():
            process.send_signal(signal.SIGCONT)
        for number in range(self.servers.ceph.osds):
            if f"osd.{number}" not in self.servers.ceph.processes:
                self.servers.ceph.start(f"osd.{number}")

    def _end(self, server, until):
        """Asks a server to end, which it must do in time, and restarts it from `until` on."""
        server.begin_end()
        process, begun = server.process, time.monotonic()

        def look():
            if server.process is not process:
                return  # It was killed and restarted.
            if server.running and time.monotonic() - begun < END_SECONDS:
                self.later(0.1, look)
                return
            if server.running:
                self.fail(f"{server.name} did not end within {END_SECONDS} s")
                server.kill()
            elif not server.ended_well() and not server.killed:
                self.fail(f"{server.name} did not end properly when it was told to: status {process.returncode}")
            server.start()

        self.undo.append((until, look))

    def _control(self, event, server, later):
        """Runs an operator's command and ignores its result: it may be refused, or its server may be gone."""
        if event.fault == "drain":
            self.clients.ctl("drain", server.name)
            later(lambda: self.clients.ctl("drain", server.name, "--cancel"))
        elif event.fault in ("split", "move"):
            region = str(1 + event.other % 16)
            self.clients.ctl(event.fault, region, *([server.name] if event.fault == "move" else []))
        else:
            self.clients.ctl(event.fault)
