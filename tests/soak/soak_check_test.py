"""Checks that soak_check distinguishes allowed histories from others."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PUT, DELETE, GET, CONTAINS = range(4)


class SoakCheck(unittest.TestCase):
    def check(self, *logs, flags=()):
        """Returns its exit status and its output; each log is what one process wrote."""
        with tempfile.TemporaryDirectory() as directory:
            paths = []
            for number, lines in enumerate(logs):
                paths.append(Path(directory) / f"{number}.operations")
                paths[-1].write_text("".join(f"{line}\n" for line in lines))
            result = subprocess.run([PROGRAM, "--keys", "10", *flags, *map(str, paths)], stdout=subprocess.PIPE, text=True, check=False)
        return result.returncode, result.stdout

    def test_reads_what_another_process_put(self):
        self.assertEqual(self.check([f"B 0 3 {PUT} 77 100", "E 0 0 200"], [f"R 3 {GET} 77 250 300", f"R 3 {CONTAINS} 1 250 300"])[0], 0)

    def test_a_stale_read(self):
        status, said = self.check([f"B 0 3 {PUT} 77 100", "E 0 0 200", f"B 1 3 {PUT} 78 300", "E 1 1 400"], [f"R 3 {GET} 77 450 500"])
        self.assertEqual(status, 1)
        self.assertIn("k00003 is not linearizable", said)

    def test_a_value_that_nobody_put(self):
        self.assertEqual(self.check([f"B 0 3 {PUT} 77 100", "E 0 0 200"], [f"R 3 {GET} 79 250 300"])[0], 1)

    def test_a_write_that_failed_did_not_happen(self):
        self.assertEqual(self.check([f"B 0 3 {PUT} 77 100", "F 0", f"R 3 {GET} 77 250 300"])[0], 1)

    def test_a_write_of_unknown_outcome_may_have_happened(self):
        for value in (0, 77):
            self.assertEqual(self.check([f"B 0 3 {PUT} 77 100"], [f"R 3 {GET} {value} 250 300"])[0], 0)
        # But it does not come and go.
        self.assertEqual(self.check([f"B 0 3 {PUT} 77 100"], [f"R 3 {GET} 77 250 300", f"R 3 {GET} 0 350 400"])[0], 1)

    def test_a_line_that_was_cut_off_by_a_kill(self):
        with tempfile.NamedTemporaryFile("w") as log:
            log.write(f"B 0 3 {PUT} 77 100\nE 0 0 200\nR 3 {GET} 9")
            log.flush()
            self.assertEqual(subprocess.run([PROGRAM, "--keys", "10", log.name], stdout=subprocess.DEVNULL, check=False).returncode, 0)

    def test_what_a_client_complains_of(self):
        status, said = self.check(["V get k00001 took 9000 ms with a timeout of 10 ms"])
        self.assertEqual(status, 1)
        self.assertIn("took 9000 ms", said)

    def test_async_loses_what_was_acknowledged_just_before_a_fault_alone(self):
        second = 1_000_000_000
        history = [f"B 0 3 {PUT} 77 {second}", f"E 0 0 {2 * second}", f"R 3 {GET} 0 {9 * second} {10 * second}"]
        self.assertEqual(self.check(history)[0], 1)
        lost = ["--slack-ms", "100", "--lost-ns", str(2 * second + 50_000_000), "--lost-ns", str(3 * second)]
        self.assertEqual(self.check(history, flags=lost)[0], 0)
        lost = ["--slack-ms", "100", "--lost-ns", str(4 * second), "--lost-ns", str(5 * second)]
        self.assertEqual(self.check(history, flags=lost)[0], 1)


    def test_async_with_a_value_that_was_put_twice(self):
        second = 1_000_000_000
        history = [f"B 0 3 {PUT} 1 {second}", f"R 3 {GET} 1 {second} {2 * second}", f"E 0 0 {5 * second}",
                   f"B 1 3 {PUT} 1 {3 * second}", f"E 1 1 {4 * second}", f"R 3 {GET} 1 {9 * second} {10 * second}"]
        self.assertEqual(self.check(history, flags=["--lost-ns", str(8 * second), "--lost-ns", str(9 * second)])[0], 0)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
