"""Compares the figures in documents that no clock is part of with what their commands print today."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from tools import cluster

# The simulated experiments that take a few seconds. `./bazelw run //tools:experiment -- all` runs all of them, and
# `git diff docs/experiments` then shows what has changed.
EXPERIMENTS = ["fig-2.5", "fig-6.3", "fig-6.11"]


def run(program, *arguments):
    return subprocess.run([cluster.binary(program), *arguments], stdout=subprocess.PIPE, check=True, text=True).stdout


class Figures(unittest.TestCase):
    maxDiff = None

    def test_reads_of_a_lookup_in_pilaf_tables(self):
        document = Path(cluster.binary("docs/results/pilaf.md")).read_text()
        printed = [line for line in run("tools/pilaf_fills").splitlines() if line.startswith("|")]
        self.assertGreater(len(printed), 10)
        for line in printed:
            self.assertIn(line, document.splitlines(), "./bazelw run --config=opt //tools:pilaf_fills")

    def test_simulated_experiments(self):
        out = tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"])
        for name in EXPERIMENTS:
            run("tools/experiments/experiment", name, "--out", out)
            recorded = Path(cluster.binary(f"docs/experiments/{name}.csv")).read_text()
            self.assertEqual(Path(out, f"{name}.csv").read_text(), recorded, f"./bazelw run //tools:experiment -- {name}")


if __name__ == "__main__":
    unittest.main()
