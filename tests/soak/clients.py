"""The clients of a soak's round: some that stay, others that come, time out and go; and operators' commands."""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tools import cluster

PROFILES = ("mixed", "hot", "deletes", "reads", "scans")
TIMEOUTS_MS = (10, 50, 200, 2000, 10_000)
# What the clients do that stay: use the keys and tables; run transactions over keys of their own; use these one by one.
STAYING = ("keys", "keys", "transactions", "plain")
COMING = ("keys", "keys", "keys", "transactions", "transactions", "plain")
ALIVE_MAX = 8
# Transactions take many operations each. Their history is checked as a whole, and not by key.
TRANSACTIONS_PER_SECOND = 60
COMMAND_SECONDS = 20
# Few of the plans have enough pairs for several regions of the tree, which transactions need, and small ones are joined.
# The first region is split this often. It has the first half of the keys of transactions.
SPLIT_EVERY_SECONDS = 4.0
# Opens `sys.argv[2]` silent connections to `sys.argv[1]` (a socket's path, or HOST:PORT), and waits to be killed.
SILENT = """
import socket, sys, time
address, count = sys.argv[1], int(sys.argv[2])
host, _, port = address.rpartition(":")
held = []
for _ in range(count):
    one = socket.socket(socket.AF_INET if host else socket.AF_UNIX, socket.SOCK_STREAM if host else socket.SOCK_SEQPACKET)
    one.settimeout(0.2)
    held.append(one)
    try:
        one.connect((host, int(port)) if host else address)
    except OSError:
        break
time.sleep(60)
"""


class Clients:
    def __init__(self, plan, servers, directory, fail):
        self.plan, self.servers, self.directory, self.fail = plan, servers, directory, fail
        self.rng = random.Random(plan.seed + 1)
        self.begun = 0
        self.alive = {}  # Process: (its output, whether we ended it).
        self.commands = []  # (process, until when it may run).
        self.silent = []
        self.next_at, self.split_at = 0.0, 1.0
        self.end_by = time.monotonic() + plan.seconds + 90

    def _run(self, kind, *flags):
        """Starts a client with a log of its own. Its kind is one of those in STAYING."""
        number = self.begun
        self.begun += 1
        prefix, fabric = self.servers.on_client(number)
        output = self.directory / f"client-{number}.out"
        if kind == "keys":
            program, log = "soak_client", f"client-{number}.operations"
            own = ["--keys", str(self.plan.keys), "--rate", str(self.plan.rate), *(flag for table in self.plan.tables for flag in ("--tables", table))]
        else:
            program, log = "soak_transactions", f"client-{number}.transactions"
            own = ["--rate", str(TRANSACTIONS_PER_SECOND), *(["--plain"] if kind == "plain" else [])]
        command = [*prefix, cluster.binary(f"tests/soak/{program}"), "--cluster", self.servers.address, *fabric, "--process", str(number),
                   "--log", str(self.directory / log), "--seed", str(self.plan.seed * 1000 + number), *own, *flags]
        with open(output, "wb") as file:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        self.alive[process] = [output, False]
        return process

    def step(self, now):
        """Starts those that are due, and checks those that have ended."""
        while self.begun < len(STAYING):
            self._run(STAYING[self.begun], "--seconds", str(self.plan.seconds), "--tasks", "16")
        if now >= self.split_at:
            self.split_at = now + SPLIT_EVERY_SECONDS
            self.ctl("split", "1")
        if now >= self.next_at and len(self.alive) < ALIVE_MAX:
            self.next_at = now + self.rng.uniform(0.5, 2.5)
            kind = self.rng.choice(COMING)
            self._run(kind, "--seconds", f"{min(self.rng.uniform(0.5, 6), max(0.5, self.plan.seconds - now)):.2f}",
                      "--tasks", str(self.rng.choice([1, 4, 32])), *(["--profile", self.rng.choice(PROFILES)] if kind == "keys" else []),
                      "--timeout-ms", str(self.rng.choice(TIMEOUTS_MS)), *self.rng.choice([[], [], ["--leave"], ["--leave"], ["--life", "0.5"]]))
        self.reap()

    def reap(self):
        for process, (output, ended_by_us) in list(self.alive.items()):
            if process.poll() is None:
                continue
            del self.alive[process]
            text = output.read_text(errors="replace")
            # A client that never reached the cluster has not failed: it was cut off, or all servers were down.
            if process.returncode == 0 or ended_by_us or (process.returncode == 1 and ("UNAVAILABLE" in text or "DEADLINE" in text)):
                continue
            self.fail(f"{output.name[:-4]} ended with status {process.returncode}: {text[-2000:]}")
        for process, until in list(self.commands):
            if process.poll() is None and time.monotonic() > until:
                process.kill()
            if process.poll() is not None:
                process.wait()
                self.commands.remove((process, until))

    def disturb(self, event, later):
        """Kills or stops one. Returns False if there is none."""
        running = [process for process in self.alive if process.poll() is None]
        if not running:
            return False
        process = running[event.which % len(running)]
        if event.fault == "kill client":
            self.alive[process][1] = True
            process.kill()
        else:
            process.send_signal(signal.SIGSTOP)
            later(lambda: process.poll() is None and process.send_signal(signal.SIGCONT))
        return True

    def ctl(self, *arguments):
        """Runs cellctl in addition to everything else, and ignores its result."""
        prefix, flags = self.servers.on_client(0)
        process = subprocess.Popen([*prefix, cluster.binary("tools/cellctl"), "--cluster", self.servers.address, *flags, *arguments],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.commands.append((process, time.monotonic() + COMMAND_SECONDS))

    def connect_silently(self, server, count):
        """Opens silent connections. Returns a function that closes them."""
        prefix, _ = self.servers.on_client(0)
        process = subprocess.Popen([*prefix, sys.executable, "-c", SILENT, self.servers.socket_of(server), str(count)],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.silent.append(process)

        def close():
            process.kill()
            process.wait()

        return close

    def under_way(self):
        """Returns whether any client or command runs. They end by themselves; those that do not end in time are named
        once."""
        self.reap()
        if (self.alive or self.commands) and time.monotonic() > self.end_by:
            for output, _ in self.alive.values():
                self.fail(f"{output.name[:-4]} does not end")
            return False
        return bool(self.alive or self.commands)

    def use_all(self, seconds):
        """Reads and writes every key, as part of the history, when the faults are over."""
        deadline = time.monotonic() + seconds
        for process in [self._run("keys", "--settled", "--tasks", "8"), self._run("transactions", "--settled")]:
            try:
                process.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.fail(f"not all keys could be read and written within {seconds} s, although there are no more faults")
                self.alive[process][1] = True
                process.kill()
                process.wait()
        self.reap()

    def close(self):
        for process in [*self.alive, *self.silent, *(process for process, _ in self.commands)]:
            process.kill()
            process.wait()

    def logs(self, suffix):
        return [str(path) for path in sorted(Path(self.directory).glob(f"client-*.{suffix}"))]
