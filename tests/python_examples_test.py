"""Runs the examples of the Python package, from the installed wheel, and together with those in C++."""

import os
import random
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from tests import shared_examples
from tests.examples_case import DONE, ERROR, ExamplesCase, without_cluster
from tests.python_environment import PythonEnvironment

PROGRAMS = ("inverted_file", "job_queue", "secondary_index", "time_series")
ENVIRONMENT = None  # Made once, since it takes longer than the tests.


def setUpModule():
    global ENVIRONMENT
    ENVIRONMENT = PythonEnvironment()
    unittest.addModuleCleanup(ENVIRONMENT.remove)


class InPython(ExamplesCase):
    def program(self, name):
        return [ENVIRONMENT.python, "-I", "-m", f"cell.examples.{name}"]  # -I: without this directory, where there is `cell`.


class SharedExamplesInPython(InPython, shared_examples.SharedExamples):
    """The programs in Python alone."""


class SharedExamplesInBoth(shared_examples.SharedExamples):
    """Each command in one of the languages, which is drawn."""

    def setUp(self):
        super().setUp()
        seed = int(os.environ.get("CELL_SEED") or random.randrange(2**32))
        print(f"{self.id()}: CELL_SEED={seed} draws the languages in the same order", flush=True)
        self.draw = random.Random(seed)

    def program(self, name):
        if self.draw.random() < 0.5:
            return super().program(name)
        return InPython.program(self, name)


class PythonExamplesTest(InPython):
    def in_cpp(self, program, *arguments):
        ran = subprocess.run([*ExamplesCase.program(self, program), "--cluster", str(self.directory), *arguments], stdout=subprocess.PIPE,
                             env=without_cluster(), text=True, timeout=120, check=False)
        self.assertEqual(ran.returncode, DONE, ran)
        return ran.stdout

    def test_each_language_reads_what_the_other_has_written(self):
        self.up()
        for name, write in (("one", self.example), ("two", self.in_cpp)):
            for i in range(3):
                write("time_series", "append", name, f"{i}.5", "--time", str(i * 10))
            write("secondary_index", "put", name, "Bern", f"Name of {name}")
            write("inverted_file", "add", name, f"text of {name}: Caf\u00e9 Z\u00fcrich")
            write("job_queue", "push", f"job of {name}")
        for arguments in (("time_series", "list"), ("time_series", "range", "one"), ("time_series", "last", "two"), ("time_series", "buckets", "one", "--width", "20"),
                          ("secondary_index", "city", "Bern"), ("secondary_index", "check"), ("inverted_file", "search", "text", "caf\u00e9"),
                          ("inverted_file", "prefix", "z\u00fcr"), ("inverted_file", "check"), ("job_queue", "list")):
            shown = self.example(*arguments)
            self.assertEqual(shown, self.in_cpp(*arguments))
            self.assertGreater(len(shown.splitlines()), 0)
        # A job that is taken in one language is finished in the other.
        self.in_cpp("job_queue", "finish", self.example("job_queue", "take").split("\t")[0])
        self.example("job_queue", "finish", self.in_cpp("job_queue", "take").split("\t")[0])
        self.assertEqual(self.example("job_queue", "list"), "")

    def test_a_copy_of_a_program_runs_alone(self):
        """A stranger who has the wheel may copy a program and change it."""
        self.up()
        package = Path(ENVIRONMENT.runs("-c", "import cell.examples; print(cell.examples.__path__[0])").strip())
        copied = ENVIRONMENT.base / "my_series.py"
        shutil.copyfile(package / "time_series.py", copied)
        ENVIRONMENT.runs(str(copied), "--cluster", str(self.directory), "append", "cpu", "0.5", "--time", "7")
        self.assertEqual(self.in_cpp("time_series", "range", "cpu"), "7\t0.5\n")

    def test_bad_input_is_refused_in_one_line(self):
        self.directory.mkdir()
        for program, commands, refusals in (
                ("time_series", ("append", "load", "range", "last", "buckets", "list", "retain"),
                 {("append", "a/b", "1"): '"a/b" is empty, or has', ("range", "a", "--from", "-1"): "--from", ("buckets", "a"): "--width",
                  ("buckets", "a", "--width", "0"): "0 is not a whole number from 1", ("append", "a", "1", "--keep", "nan"): "nan is not a number",
                  ("lost",): "invalid choice: 'lost'"}),
                ("inverted_file", ("add", "remove", "load", "search", "prefix", "check"),
                 {("add", "a b", "c"): '"a b" is empty, or has', ("search",): "word", ("load", "--clients", "65"): "65 is not a whole number"}),
                ("job_queue", ("push", "take", "finish", "extend", "work", "list", "tally"),
                 {("push",): "text", ("take", "--for", "0"): "0 is not a number", ("--queue", "", "list"): '"" is empty, or has',
                  ("work", "--work-ms", "1.5"): "1.5 is not a whole number"}),
                ("secondary_index", ("put", "delete", "city", "check"), {("put", "1", "a b", "c"): '"a b" is empty, or has', ("put", "1", "a"): "name"})):
            with self.subTest(program=program):
                for arguments, part in refusals.items():
                    self.refuses(part, program, *arguments)
                good = {"time_series": "list", "job_queue": "list"}.get(program, "check")
                self.refuses("COMMAND", program)
                self.refuses("--cluter", program, "--cluter", good)
                self.assert_refusal("no cluster was given: use --cluster DIR", program, self.run_alone(program, good))
                self.refuses(str(self.directory), program, good)  # There is no cluster in it.
                shown = self.run_alone(program, "--help")
                self.assertEqual((shown.returncode, shown.stderr), (DONE, ""))
                for word in ("--cluster", "Exit status", "Keys: " if program == "time_series" else "Keys:\n", *commands):
                    self.assertIn(word, shown.stdout)

    def test_output_that_cannot_be_written_is_an_error(self):
        self.up()
        self.example("time_series", "append", "cpu", "1")
        with open("/dev/full", "w") as full:
            ran = self.run_alone("time_series", "--cluster", str(self.directory), "last", "cpu", stdout=full)
        self.assertEqual((ran.returncode, ran.stderr), (ERROR, "time_series: cannot write to standard output: No space left on device\n"))
        # More than the buffers of the output hold.
        points = "".join(f"{at}\t1\n" for at in range(2000))
        self.assertEqual(self.run_alone("time_series", "--cluster", str(self.directory), "load", "many", input=points).returncode, DONE)
        with open("/dev/full", "w") as full:
            ran = self.run_alone("time_series", "--cluster", str(self.directory), "range", "many", stdout=full)
        self.assertEqual((ran.returncode, ran.stderr), (ERROR, "time_series: cannot write to standard output: No space left on device\n"))

    def test_the_wheel_has_these_programs(self):
        listed = ENVIRONMENT.runs("-m", "zipfile", "-l", str(ENVIRONMENT.wheel))
        self.assertEqual(set(re.findall(r"cell/examples/(\w+)\.py", listed)), {"__init__", "example", *PROGRAMS})


if __name__ == "__main__":
    unittest.main()
