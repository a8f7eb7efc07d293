"""Makes the Python wheel, and installs it into a fresh environment."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from tools import wheel


class PythonEnvironment:
    """A directory, `base`, with a virtual environment that has the wheel and some packages from PyPI."""

    def __init__(self, packages=()):
        self._temporary = tempfile.TemporaryDirectory(prefix="cell-python-")
        self.base = Path(self._temporary.name)
        self.python = f"{self.base}/env/bin/python"
        self.variables = {"PATH": f"{self.base}/env/bin:/usr/bin:/bin", "HOME": str(self.base)}
        subprocess.run([wheel.PYTHON, "-m", "venv", str(self.base / "env")], check=True)
        # The makers of the wheel are fetched as well.
        fetched = self._run("-m", "pip", "download", "-q", "--no-deps", "-d", str(self.base / "fetched"), *wheel.MAKERS)
        if fetched.returncode == 0 and packages:
            fetched = self._run("-m", "pip", "install", "-q", *packages)
        if fetched.returncode != 0:
            self.remove()
            if os.environ.get("CELL_REQUIRE_VM"):
                raise RuntimeError(fetched.stdout)
            raise unittest.SkipTest("the tests' packages cannot be fetched from PyPI: " + fetched.stdout[-300:])
        self.wheel = wheel.make(self.base / "dist")
        self.runs("-m", "pip", "install", "-q", "--no-deps", "--no-index", str(self.wheel))

    def remove(self):
        self._temporary.cleanup()

    def _run(self, *arguments, **options):
        return subprocess.run([self.python, *arguments], env=self.variables, cwd=self.base, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                              text=True, timeout=400, **options)

    def runs(self, *arguments, **options):
        """Runs the environment's Python in `base`. Returns what it has written."""
        done = self._run(*arguments, **options)
        if done.returncode != 0:
            raise AssertionError(f"{' '.join(map(str, arguments))}: status {done.returncode}\n{done.stdout}")
        return done.stdout
