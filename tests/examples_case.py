"""Runs the programs of tools/examples against a cluster of real processes, several of them at a time."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

from tests.cellctl_case import ERROR, CellctlCase
from tools import cluster

DONE, WRONG = 0, 1
SERVERS = 3


def without_cluster():
    """Returns the environment, in which no cluster is named."""
    return {name: value for name, value in os.environ.items() if name != "CELL_CLUSTER"}


class ExamplesCase(CellctlCase):
    def up(self, **options):
        """Starts servers that leave regions where the test has put them."""
        super().up(servers=SERVERS, server_flags=["--no-join", "--no-balance"], **options)

    def program(self, name):
        """Returns the beginning of a command that runs a program."""
        return [cluster.binary(f"tools/examples/{name}")]

    def run_alone(self, program, *arguments, **options):
        options = {"stdout": subprocess.PIPE, "timeout": 120, "text": True, "env": without_cluster(), **options}
        return subprocess.run([*self.program(program), *arguments], stderr=subprocess.PIPE, check=False, **options)

    def example(self, program, *arguments, status=DONE, **options):
        """Runs a program on the cluster, and returns what it has written to standard output."""
        ran = self.run_alone(program, "--cluster", str(self.directory), *arguments, **options)
        self.assertEqual(ran.returncode, status, ran)
        return ran.stdout

    def started(self, program, *arguments):
        """Starts a program on the cluster. It is ended with the test."""
        process = subprocess.Popen([*self.program(program), "--cluster", str(self.directory), *arguments], stdout=subprocess.PIPE, text=True,
                                   env=without_cluster())
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.kill()  # Does nothing if it has ended.
        process.stdout.close()
        process.wait()

    def refuses(self, part, program, *arguments):
        ran = self.run_alone(program, "--cluster", str(self.directory), *arguments)
        self.assert_refusal(part, program, ran)

    def assert_refusal(self, part, program, ran):
        self.assertEqual((ran.returncode, ran.stdout), (ERROR, ""), ran)
        self.assertRegex(ran.stderr, f"^{program}: [^\n]*\n$")
        self.assertIn(part, ran.stderr)

    def at_once(self, *calls):
        """Makes calls at the same time, and returns their results."""
        with ThreadPoolExecutor(len(calls)) as pool:
            return [made.result() for made in [pool.submit(*call) for call in calls]]

    def spread(self):
        """Splits the tree's regions and moves them, so that its keys are in several regions and at several servers."""
        leaves = lambda: sorted(region["region"] for region in self.lines("regions") if region["tier"] == 0)
        for _ in range(2):
            for region in leaves():
                self.ctl("split", str(region))  # A region that has only one leaf stays as it is.
        for i, region in enumerate(leaves()):
            self.ctl("move", str(region), f"server-{i % SERVERS}")  # It may be there already.
        regions = [region for region in self.lines("regions") if region["tier"] == 0]
        self.assertGreater(len(regions), 1, regions)
        self.assertGreater(len({region["server"] for region in regions}), 1, regions)
