"""A soak: real servers and clients under faults, round after round; each checks all histories and resources.

A round is a cluster with clients that come and go. Servers are killed and stopped, disks are slow, full or fail, the
network is cut, descriptors run out. With --log-store rados the logs are in a Ceph of the round's own, and instead of the
disks' faults its daemons are killed and stopped. When the round is over the faults are undone, all keys are read and
written, and these must hold:

  - per key the history of all operations of all clients is linearizable (with async durability: nothing is lost that
    was acknowledged before the faults); no operation took longer than its timeout by more than two seconds
  - the history of all transactions, and of gets, puts and deletes of their keys, is strictly serializable (with async
    durability: nothing is lost that must not, and no transaction in part); no key stays held by one
  - what a successful backup has of each key was there at some moment while it was made; a successful restore has all
    of it
  - all keys can be read and written; `cellctl check` finds no errors; each region is held by one server
  - no server ended by itself, and none keeps descriptors, memory or files that it does not need
  - after a clean stop and a start all keys are there

A round's plan is drawn from its seed, so a round that fails can be repeated with the same plan; the timing differs.
Only loopback and namespaces of its own are used, and all processes end with this one. Without the right to make
namespaces, faults that need them (cut networks, full disks) are left out, and the soak says so.
"""

import argparse
import faulthandler
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.soak.accounts import Accounts
from tests.soak.backups import Backups
from tests.soak.clients import Clients
from tests.soak.faults import DURATIONS, Faults, Plan
from tests.soak.servers import Servers
from tools import cluster

INSIDE = "CELL_SOAK_INSIDE"  # Set in the namespaces that the soak has made for itself.
USE_ALL_SECONDS = 120
ASYNC_SLACK_MS = 100  # As in crash_loop.py.
START_SECONDS = 60  # Until all servers serve again, once the faults are over.
GRACE_SECONDS = 400  # Until a round that does not end is aborted.
UNDECIDED = 2  # The exit status of soak_check if it found nothing wrong, but gave up on the transactions.


class Round:
    def __init__(self, plan, directory, verbose):
        self.plan, self.directory = plan, directory
        self.violations = []
        self.undecided = False
        self.history = open(directory / "round.log", "w", encoding="utf-8")
        self.verbose = verbose
        self.tell(plan.describe())

    def tell(self, line):
        print(line, file=self.history, flush=True)
        if self.verbose:
            print(line, flush=True)

    def fail(self, what):
        self.violations.append(what)
        self.tell(f"WRONG: {what}")

    def run(self):
        """Returns the summary line."""
        servers = Servers(self.plan, self.directory)
        clients = Clients(self.plan, servers, self.directory, self.fail)
        backups = Backups(self.plan, servers, self.directory, self.tell, self.fail)
        whole = False
        try:
            faults = Faults(self.plan, servers, clients, backups, self.tell, self.fail)
            while (now := time.monotonic() - faults.begin) < self.plan.seconds:
                clients.step(now)
                backups.under_way()
                self._look(servers, faults)
                faults.step()
                time.sleep(0.02)
            self.tell(f"{now:7.2f} s: the faults are over")
            faults.heal()
            while clients.under_way() or backups.under_way() or not self._all_serve(servers, faults):
                self._look(servers, faults)
                faults.step()
                time.sleep(0.05)
            if not self.violations:
                self._at_rest(servers, clients)
            if not self.violations:
                backups.restore()
            said = self._check(clients, faults)
            self._look(servers)
            whole = not self.violations
        finally:
            if not whole:
                servers.disk.keep(self.directory / "disk-at-the-end")
            backups.close()
            clients.close()
            servers.close()
        return f"{self.plan.describe().split(':')[0]}: {sum(faults.counts.values())} faults, {clients.begun} clients, {len(backups.made)} backups, {said}"

    def _look(self, servers, faults=None):
        """Checks that no server ends by itself. One that cannot start during faults is restarted a second later."""
        for server in servers.servers:
            if server.running or server.ended_by_us:
                continue
            server.ended_by_us = True
            if faults is not None and server.could_not_start():
                self.tell(f"{server.name} could not start: {server.said().strip().splitlines()[-1]}")
                faults.later(1.0, lambda server=server: server.running or server.start())
                continue
            self.fail(f"{server.name} ended by itself with status {server.process.returncode}:\n{server.said()[-3000:]}")

    def _all_serve(self, servers, faults):
        """Returns whether each server has started again. Restarts one that the last fault has kept from starting."""
        missing = [server.name for server in servers.servers if not server.serves()]
        if missing and time.monotonic() - faults.begin > self.plan.seconds + START_SECONDS:
            raise TimeoutError(f"{', '.join(missing)} did not start within {START_SECONDS} s, although there are no more faults")
        return not missing

    def _at_rest(self, servers, clients):
        clients.use_all(USE_ALL_SECONDS)
        Accounts(self.plan, servers, self.fail).check()
        for server in servers.servers:
            if not server.end():
                self.fail(f"{server.name} did not end properly when it was told to: status {server.process.returncode}")
                server.kill()
        for server in servers.servers:
            server.start()
        clients.use_all(USE_ALL_SECONDS)

    def _check(self, clients, faults):
        lossy = [str(ns) for ns in faults.lossy_ns] if self.plan.durability == "async" else []
        result = subprocess.run([cluster.binary("tests/soak/soak_check"), *clients.logs("operations"), "--keys", str(self.plan.keys), "--slack-ms",
                                 str(ASYNC_SLACK_MS), *(flag for ns in lossy for flag in ("--lost-ns", ns)),
                                 "--transactions", *clients.logs("transactions")],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=300)
        *wrong, said = result.stdout.strip().splitlines() or ["soak_check said nothing"]
        for line in wrong:
            self.tell(line)
        self.undecided = result.returncode == UNDECIDED
        if result.returncode not in (0, UNDECIDED):
            self.fail("\n".join([*wrong[:20], said]))
        return said


def own_namespaces():
    """Runs this program again in namespaces of its own: all processes end with it, and its mounts are private. Returns
    if that is not possible."""
    if os.environ.get(INSIDE):
        return
    unshare = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--mount", "--pid", "--fork", "--kill-child=KILL",
               "--mount-proc"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], check=False, stderr=subprocess.DEVNULL).returncode != 0:
        print("no namespaces can be made here: no network is cut, and no disk is full", flush=True)
        return
    os.execvpe("unshare", [*unshare, sys.executable, *sys.argv], {**os.environ, INSIDE: "1"})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60, help="minutes to run (default: 60)")
    parser.add_argument("--rounds", type=int, help="number of rounds, instead of --minutes")
    parser.add_argument("--seconds", type=float, default=60, help="seconds of faults per round (default: 60)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first round; each further round uses the next seed (default: 1)")
    parser.add_argument("--fault", action="append", choices=sorted(DURATIONS), help="inject only this fault; may be repeated (default: chosen at random)")
    parser.add_argument("--log-store", choices=("dir", "rados"), default="dir", help="where the logs are: a directory, or a Ceph with three OSDs (default: dir)")
    parser.add_argument("--failures", type=int, default=1, help="stop after this number of failed rounds (default: 1)")
    parser.add_argument("--keep", help="directory for the files of a failed round (default: a new one in the temporary directory)")
    parser.add_argument("--plan", action="store_true", help="print the plan of the seed, and exit")
    parser.add_argument("--verbose", action="store_true", help="print each fault when it is injected")
    args = parser.parse_args()
    own_namespaces()
    inside = bool(os.environ.get(INSIDE))
    faulthandler.enable()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    begin, seed, wrong, undecided = time.monotonic(), args.seed, 0, 0
    while wrong < args.failures and (seed - args.seed < args.rounds if args.rounds else time.monotonic() - begin < args.minutes * 60):
        plan = Plan.draw(seed, args.seconds, namespaces=inside, bounded_disk=inside, faults=args.fault, ceph=args.log_store == "rados")
        if args.plan:
            print(plan.describe(), *plan.events, sep="\n  ")
            return 0
        directory = Path(tempfile.mkdtemp(prefix=f"cell-soak-{seed}-"))
        round_ = Round(plan, directory, args.verbose)
        signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("the round does not end")))
        signal.alarm(int(args.seconds) + GRACE_SECONDS)
        summary = "it did not come to its end"
        try:
            summary = round_.run()
        except (OSError, RuntimeError, TimeoutError, subprocess.SubprocessError) as error:
            round_.fail(f"{type(error).__name__}: {error}")
        finally:
            signal.alarm(0)
        if round_.violations:
            wrong += 1
            kept = Path(args.keep or tempfile.gettempdir()) / f"cell-soak-{seed}-wrong-{os.getpid()}-{int(time.time())}"
            shutil.move(directory, kept)
            repeat = " ".join(["./bazelw run //tests:soak -- --rounds 1", f"--seed {seed} --seconds {args.seconds:g}",
                               *([] if args.log_store == "dir" else [f"--log-store {args.log_store}"]), *(f"--fault '{fault}'" for fault in args.fault or [])])
            print(f"{plan.describe()}\n" + "\n".join(f"WRONG: {violation[:4000]}" for violation in round_.violations[:10]) +
                  f"\n{summary}\nwhat it left: {kept}\nthe same plan again: {repeat}", flush=True)
        else:
            undecided += round_.undecided
            print(f"{summary}; {'not decided' if round_.undecided else 'right'}", flush=True)
            shutil.rmtree(directory, ignore_errors=True)
        seed += 1
    print(f"{seed - args.seed} rounds in {(time.monotonic() - begin) / 60:.1f} min, {wrong} wrong, {undecided} not decided", flush=True)
    if 0 < undecided == seed - args.seed:
        print("no round was decided: it had too many operations for its check", flush=True)
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
