"""Makes the Python wheel, installs it into a fresh environment, and runs the tests of tests/python there, the programs of
its README, the demo, and checks of its types."""

import re
import shutil
import subprocess
import unittest
from pathlib import Path

from tests.python_environment import PythonEnvironment
from tools import cluster, wheel
from tools.free_ports import free_port

TESTERS = ["pytest==9.2.0", "hypothesis==6.170.17", "mypy==1.18.2"]
SOURCES = Path(cluster.binary("tests/python/conftest.py")).parent


class PythonPackage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.environment = PythonEnvironment(TESTERS)
        cls.addClassCleanup(cls.environment.remove)
        cls.base, cls.wheel, cls.runs = cls.environment.base, cls.environment.wheel, cls.environment.runs
        # Elsewhere, because pytest puts the root of the packages that tests belong to on Python's path, and there is `cell`.
        cls.tests = cls.base / "tests"
        shutil.copytree(SOURCES, cls.tests, ignore=shutil.ignore_patterns("__init__.py", "__pycache__"))

    def test_client(self):
        self.runs("-m", "pytest", "-q", "-p", "no:cacheprovider", f"{self.tests}/test_client.py")

    def test_asyncio(self):
        self.runs("-X", "dev", "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{self.tests}/test_asyncio.py")

    def test_model(self):
        self.runs("-m", "pytest", "-q", "-p", "no:cacheprovider", f"{self.tests}/test_model.py")

    def test_the_types_are_those_of_the_code(self):
        self.runs("-m", "mypy.stubtest", "cell", "--ignore-missing-stub", "--concise", "--allowlist", f"{self.tests}/stubtest_allowlist.txt")
        program = self.base / "typed.py"
        program.write_text("import cell\nclient = cell.connect('x')\nvalue: bytes | None = client.get('k')\n"
                           "pairs: list[tuple[bytes, bytes]] = list(client.scan())\nkeys: list[bytes] = list(client.scan(keys_only=True))\n")
        self.runs("-m", "mypy", "--strict", str(program))
        program.write_text("import cell\nvalue: int = cell.connect('x').get('k')\n")
        with self.assertRaises(AssertionError):
            self.runs("-m", "mypy", "--strict", str(program))

    def test_the_readme(self):
        text = Path(cluster.binary("cell/python/README.md")).read_text()
        programs = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        self.assertEqual(len(programs), 2)
        place = self.base / "readme"
        self.runs("-m", "cell.up", "--dir", str(place), "--servers", "2", "--detach")
        try:
            shown = [self.runs("-c", program.replace("/tmp/cell", str(place))) for program in programs]
        finally:
            self.runs("-m", "cell.down", "--dir", str(place))
        self.assertIn("b'red'\n(b'fruit/apple', b'red')", shown[0].replace("b'fruit/apple' b'red'", "(b'fruit/apple', b'red')"))
        self.assertIn("b'key012' b'12'", shown[1])

    def test_the_tutorial(self):
        text = Path(cluster.binary("docs/tutorial.md")).read_text()
        (program,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        place = self.base / "cell-python"
        (up,) = re.findall(r"^env/bin/python (-m cell\.up --dir .* --durability .*)$", text, re.MULTILINE)
        later = re.findall(r"^env/bin/python (-m cell\.\w+ --dir [^#\n]*)", text[text.index("# starts the server again") - 200 :], re.MULTILINE)
        self.assertEqual(len(later), 3)
        self.runs(*up.replace("/tmp/cell-python", str(place)).split())
        try:
            shown = self.runs("-c", program.replace("/tmp/cell-python", str(place)))
            self.assertIn("packages before m", shown)
            self.assertIn("count is 1\nall there: True\n", shown)
            self.redis_section(text, place)
        finally:
            for command in later:
                self.runs(*command.replace("/tmp/cell-python", str(place)).split())
        self.assertFalse((place / "cluster.json").exists())

    def redis_section(self, text, place):
        (script,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        (again,) = re.findall(r"^env/bin/python (-m cell\.up --dir \S+ --detach)$", text, re.MULTILINE)
        self.runs(*again.replace("/tmp/cell-python", str(place)).split())
        port = free_port()
        gateway = subprocess.Popen([f"{self.base}/env/bin/cell_gateway", "--cluster", str(place), "--listen", f"127.0.0.1:{port}"],
                                   env=self.environment.variables, stdout=subprocess.PIPE)
        try:
            self.assertIn(b"serves clients of Redis", gateway.stdout.readline())
            script = script.replace("/tmp/cell-python", str(place)).replace("6380", str(port))
            shown = subprocess.run(["sh", "-ec", script], env=self.environment.variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True,
                                   text=True, timeout=200).stdout
            self.assertRegex(shown, r"^ *\d+ OK\npackage/libc")
            self.assertIn("OK\nQUEUED\nQUEUED\nOK\n2\n", shown)
            self.assertTrue(shown.endswith("all there\n"), shown)
        finally:
            gateway.terminate()
            self.assertEqual(gateway.wait(60), 0)
            gateway.stdout.close()

    def test_the_demo(self):
        shown = self.runs("-m", "cell.demo")
        self.assertRegex(shown, r"(\d+) of \1 keys are there")

    def test_the_wheel_has_what_it_needs_and_no_rdma_libraries(self):
        listed = self.runs("-m", "zipfile", "-l", str(self.wheel))
        for part in ("cell/bin/cell_server", "cell/bin/cellctl", "cell/bin/cell_gateway", "cell/py.typed", "licenses/", "LICENSE"):
            self.assertIn(part, listed)
        for library in wheel.OF_THE_MACHINE:
            self.assertNotIn(library.split(".so")[0], listed.replace("licenses/libibverbs", ""))
        self.assertIn("manylinux", Path(self.wheel).name)


if __name__ == "__main__":
    unittest.main()
