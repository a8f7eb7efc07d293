"""Runs a C program that uses every function of the C API (c_api.c), with a cluster: plainly, and under valgrind. Checks
what the shared library exports."""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from tools import cluster

PROGRAM = "tests/c_api"


def declared():
    """Returns the functions of the header."""
    header = Path(cluster.binary("cell/c/cell.h")).read_text()
    return set(re.findall(r"^CELL_API [^;(]*?\b(cell_\w+)\(", header, re.MULTILINE))


class CApi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="cell-c-")
        cls.cluster = Path(cls.temporary.name) / "cluster"
        cls.servers = cluster.up(cls.cluster, servers=2, durability="none", meganode_bytes=1 << 20, extents_bytes=8 << 20)
        subprocess.run([cluster.binary("tools/cellctl"), "--cluster", str(cls.cluster), "hash", "create", "users"], check=True)

    @classmethod
    def tearDownClass(cls):
        cluster.end(cls.servers)
        cls.temporary.cleanup()

    def runs(self, *before):
        done = subprocess.run([*before, cluster.binary(PROGRAM), str(self.cluster)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, check=False, text=True)
        self.assertEqual((done.returncode, done.stdout.splitlines()[-1:]), (0, ["all is right"]), done.stdout)

    def test_every_function_does_what_it_says(self):
        self.runs()

    def test_valgrind_finds_no_error_and_no_leak(self):
        if shutil.which("valgrind") is None:
            self.skipTest("there is no valgrind")
        if b"__asan_init" in Path(cluster.binary("cell/c/libcell.so.1")).read_bytes():
            self.skipTest("the library is built with a sanitizer, which valgrind cannot run")
        self.runs("valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite", "--child-silent-after-fork=yes")

    def test_the_header_is_plain_c_and_cpp(self):
        header = cluster.binary("cell/c/cell.h")
        for compiler in (["gcc", "-std=c99", "-xc"], ["g++", "-std=c++11", "-xc++"]):
            done = subprocess.run([*compiler, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", header], stderr=subprocess.PIPE, check=False, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_program_uses_every_function(self):
        self.assertEqual(declared() - set(re.findall(r"\b(cell_\w+)\(", Path(cluster.binary("tests/c_api.c")).read_text())), set())

    def test_the_library_exports_the_names_of_its_header_alone(self):
        listed = subprocess.run(["nm", "-D", "--defined-only", cluster.binary("cell/c/libcell.so.1")], stdout=subprocess.PIPE, check=True, text=True)
        exported = {line.split()[-1] for line in listed.stdout.splitlines()} - {"CELL_1"}
        self.assertEqual(exported, {f"{name}@@CELL_1" for name in declared()})


if __name__ == "__main__":
    unittest.main()
