"""Runs YCSB's workloads by its own client against a cluster, with its check of what is read, and tests the binding by itself."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from tools import cluster, cluster_down
from tools.ycsb import binding

RECORDS, OPERATIONS = 2000, 3000


class Ycsb(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="cell-ycsb-")
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.base = Path(cls.temporary.name)
        try:
            cls.ycsb = binding.Ycsb(cls.base / "cache")
        except binding.MavenError as error:
            if os.environ.get("CELL_REQUIRE_VM"):
                raise
            raise unittest.SkipTest(f"YCSB's client cannot be fetched from Maven Central: {str(error)[-300:]}")
        cls.place = cls.base / "cluster"
        # Small regions, so that scans and updates meet splits and go over several regions and servers.
        servers = cluster.up(cls.place, servers=2, meganode_bytes=1 << 20, extents_bytes=64 << 20, regions_max=32)
        cls.addClassCleanup(lambda: [server.wait() for server in servers])
        cls.addClassCleanup(cluster_down.down, cls.place)

    def run_workload(self, letter, threads=2, **properties):
        """Loads the workload, and runs it. Returns the outcomes of both."""
        outcomes = []
        for load in (True, False):
            given = {"cell.cluster": self.place, "recordcount": RECORDS, "operationcount": OPERATIONS, "table": f"workload{letter}", **properties}
            outcome = self.ycsb.run("cell", letter, load, given, threads=threads)
            with self.subTest(workload=letter, load=load):
                binding.check(outcome, RECORDS if load else OPERATIONS)
                outcomes.append(outcome)
        return outcomes

    def returned(self, outcome, operation):
        return outcome.returns.get((operation, "OK"), 0)

    def test_workloads_a_to_d_and_f_read_what_was_written(self):
        # YCSB compares what it reads with what its records have at all times.
        for letter in "abcdf":
            loaded, ran = self.run_workload(letter, dataintegrity="true")
            self.assertEqual(self.returned(loaded, "INSERT"), RECORDS)
            self.assertEqual(self.returned(ran, "VERIFY"), self.returned(ran, "READ"))
            self.assertGreater(self.returned(ran, "READ"), OPERATIONS / 4)
            written = {"a": "UPDATE", "b": "UPDATE", "d": "INSERT", "f": "READ-MODIFY-WRITE"}.get(letter)
            if written:
                self.assertGreater(ran.counts[written], OPERATIONS / 50)

    def test_workload_e_scans(self):
        # BindingTest checks what scans return: YCSB does not look at it.
        _, ran = self.run_workload("e")
        self.assertGreater(self.returned(ran, "SCAN"), 0.9 * OPERATIONS)
        self.assertGreater(self.returned(ran, "INSERT"), 0)

    def test_clients_can_be_shared(self):
        self.run_workload("a", threads=4, dataintegrity="true", **{"cell.share": "true"})

    def test_single_fields(self):
        self.run_workload("f", dataintegrity="true", readallfields="false", fieldcount=3, fieldlength=40)

    def test_records_that_are_too_large_are_bad_requests(self):
        # YCSB's client stops loading at the first one.
        outcome = self.ycsb.run("cell", "a", True, {"cell.cluster": self.place, "recordcount": 3, "fieldlength": 200_000, "table": "large"})
        self.assertEqual(outcome.wrong(), {"INSERT BAD_REQUEST": 1})
        self.assertIn("larger than the maximum", outcome.text)
        with self.assertRaisesRegex(binding.BindingError, "INSERT BAD_REQUEST: 1"):
            binding.check(outcome, 3)

    def test_a_cluster_that_is_not_there(self):
        outcome = self.ycsb.run("cell", "a", True, {"cell.cluster": self.base / "none"})
        self.assertEqual(outcome.operations, 0)
        self.assertIn(str(self.base / "none"), outcome.text)
        with self.assertRaisesRegex(binding.BindingError, "0 operations were done, and not 1,000"):
            binding.check(outcome, 1000)

    def test_a_library_that_is_not_there(self):
        command = self.ycsb.java("-Djava.library.path=/nowhere", "site.ycsb.Client", "-db", binding.DATABASES["cell"], "-load", "-threads", 2,
                                 "-P", binding.workload_file("a"), "-p", f"cell.cluster={self.place}")
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True, timeout=60)
        self.assertIn("libcell_ycsb.so is not in a directory of -Djava.library.path", done.stdout)
        self.assertEqual(binding.parse(done.stdout).operations, 0)

    def test_the_binding(self):
        source = Path(cluster.binary("tests/ycsb/BindingTest.java"))
        classes = self.ycsb.compile(self.base / "cache", [source], self.ycsb.classes)
        command = self.ycsb.java("-Xcheck:jni", "cell.ycsb.BindingTest", self.place, classes=[classes])
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(len(re.findall("^passed: ", done.stdout, re.MULTILINE)), source.read_text().count("tests.put("))
        self.assertNotIn("WARNING in native method", done.stdout)  # Of -Xcheck:jni.
        self.assertNotIn("FATAL ERROR", done.stdout)

    def test_the_command(self):
        def runs(*arguments):
            command = [sys.executable, "-m", "tools.ycsb.ycsb", *map(str, arguments), "--cache", str(self.base / "cache")]
            root = Path(cluster.binary("tools/ycsb/ycsb.py")).parent.parent.parent
            return subprocess.run(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, text=True, timeout=300)

        done = runs("c", "e", "--records", 500, "--operations", 700, "--threads", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(re.findall(r"^\[OVERALL\], Throughput", done.stdout, re.MULTILINE)), 4)
        mine = self.base / "mine"
        mine.write_text(Path(binding.workload_file("a")).read_text() + "recordcount=300\noperationcount=400\n")
        done = runs(mine, "--cluster", self.place, "--phase", "load")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("[INSERT], Return=OK, 300\n", done.stdout)
        for arguments, message in ((("z",), "z is no workload"), (("a", "--cluster", self.base / "none"), "0 operations were done"),
                                   (("a", "--cluster", self.place, "-p", "fieldlength=200000"), "INSERT BAD_REQUEST: 1"),
                                   (("a", "--redis", "127.0.0.1:1", "--phase", "load"), "INSERT ERROR: 1")):
            done = runs(*arguments)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(message, done.stderr)


if __name__ == "__main__":
    unittest.main()
