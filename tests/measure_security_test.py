"""Runs tools/measure_security with tiny sizes: every table has its rows. No figure is judged here."""

import re
import subprocess
import unittest

from tools import cluster


class MeasureSecurity(unittest.TestCase):
    def test_every_table_has_its_rows(self):
        done = subprocess.run([cluster.binary("tools/measure_security"), "--keys", "2000", "--seconds", "0.1", "--rounds", "1", "--connections", "20"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=800)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {}
        for line in done.stdout.splitlines():
            if line.startswith("**"):
                title = line.strip("*")
                rows[title] = -2  # The head, and the line below it.
            elif line.startswith("|"):
                rows[title] += 1
        self.assertEqual(sorted(rows.values()), [2, 4, 6, 12, 19, 24], done.stdout)
        self.assertNotIn("refused:", done.stdout)  # The good client is always served.
        floods = [line for line in done.stdout.splitlines() if re.match(r"\| (tcp|shm) \| (scans|gets|puts) \| .*us", line)]
        self.assertEqual(len(floods), 2 * 3 + 2 * 2 * 3, done.stdout)
        for line in floods:
            self.assertNotRegex(line, r"\| 0 \|", "a flood has sent nothing")


if __name__ == "__main__":
    unittest.main()
