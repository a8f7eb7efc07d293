"""Lets adya, a checker of isolation that others have written, judge the simulation's transactions as well.

What our checker (serializability.h) calls right must be valid to adya, and a mutant's history that it calls wrong must be
invalid. Without adya, and without cargo to install it, this is skipped.
"""

import collections
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from tests.simulation import adya

SIM, SIM_WITH_MUTANTS = sys.argv[1:3]
RIGHT = 40  # Histories.
# By mutant: the seed whose history of transactions is wrong, and how many seeds from 1 on are tried if it is not any more.
MUTANTS = {
    "locks-unseen": (23, 300),
}


def run(sim: str, seed: int, history: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Runs a seed with transactions, and writes their history."""
    return subprocess.run([sim, "--with", "transactions", "--seed", str(seed), "--history", history, "--shrink-seconds", "0", *flags],
                          capture_output=True, text=True, errors="replace", check=False)


def has_transactions(seed: int) -> bool:
    plan = subprocess.run([SIM, "--with", "transactions", "--seed", str(seed), "--plan"], capture_output=True, text=True, check=True)
    return json.loads(plan.stdout)["transaction_share"] > 0


class Adya(unittest.TestCase):
    def setUp(self):
        try:
            self.adya = adya.program()
        except adya.Unavailable as why:
            self.skipTest(str(why))
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = Path(directory.name)

    def verdict(self, history: Path) -> str:
        return adya.verdicts(self.adya, [history], Path(f"{history}.order"))[history]

    def judge(self, seed: int) -> str | None:
        """Returns adya's verdict about a seed, which must be right to us. None: the seed has no history that may be judged."""
        if not has_transactions(seed):
            return None
        history = self.directory / f"{seed}.jsonl"
        done = run(SIM, seed, history, "--with", "snapshots")  # They are transactions, too, which only read.
        self.assertEqual(done.returncode, 0, done.stdout)
        return self.verdict(history) if history.stat().st_size > 0 else None

    def test_right_histories_are_valid(self):
        verdicts = {}
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            first = 1
            while len(verdicts) < RIGHT:
                seeds = range(first, first + RIGHT)
                first += RIGHT
                verdicts |= {seed: verdict for seed, verdict in zip(seeds, pool.map(self.judge, seeds)) if verdict is not None}
                self.assertLess(first, 50 * RIGHT, "hardly any seed has a history of transactions")
        print(f"adya's verdicts about {len(verdicts)} histories:", dict(collections.Counter(verdicts.values())))
        self.assertEqual([seed for seed, verdict in verdicts.items() if verdict == "false"], [])
        self.assertGreater(sum(verdict == "true" for verdict in verdicts.values()), len(verdicts) * 3 // 4)

    def test_wrong_histories_are_invalid(self):
        for mutant, (known, seeds) in MUTANTS.items():
            with self.subTest(mutant):
                history = self.directory / mutant
                for seed in [known, *range(1, seeds)]:
                    done = run(SIM_WITH_MUTANTS, seed, history, "--mutant", mutant)
                    if done.returncode == 1 and "\n  transactions: " in done.stdout and history.stat().st_size > 0:
                        break
                else:
                    self.fail(f"no history of the seeds up to {seeds} is wrong")
                if seed != known:
                    print(f"{mutant}: seed {seed} is wrong, and seed {known} is not any more: name this one instead")
                self.assertEqual(self.verdict(history), "false", f"seed {seed}: {done.stdout}")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)  # It says why a test is skipped.
