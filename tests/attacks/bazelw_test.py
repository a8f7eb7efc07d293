"""./bazelw names the packages that it installs, and the command, and with --no-install it installs nothing.

It runs here in a directory with a dpkg-query, apt-get, sudo and bazel of the test's, which note how they are called.
"""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from tools import cluster

TOOLS = {
    # Says that all packages are installed but those that $MISSING names.
    "dpkg-query": 'for word in "$@"; do case " $MISSING -W -f " in *" $word "*) ;; *) echo "installed $word" ;; esac; done',
    "apt-get": 'echo "apt-get $*" >>"$CALLS"',
    "sudo": 'echo "sudo $*" >>"$CALLS"; "$@"',
    "bazel": 'echo "bazel $*" >>"$CALLS"',
}
BOTH = "apt-get update -qq && env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends one two\n"
CALLED = ["apt-get update -qq", "apt-get install -y -qq --no-install-recommends one two"]


class Bazelw(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="cell-bazelw-")
        self.addCleanup(self.temporary.cleanup)
        self.directory = Path(self.temporary.name)
        (self.directory / "tools" / "bazel").mkdir(parents=True)
        (self.directory / "tools" / "bazel" / "packages.txt").write_text("# Some.\none  # The first.\ntwo\nthree\n")
        shutil.copy(cluster.binary("bazelw"), self.directory / "bazelw")
        (self.directory / "bin").mkdir()
        for name, text in TOOLS.items():
            (self.directory / "bin" / name).write_text(f"#!/bin/bash\n{text}\n")
            (self.directory / "bin" / name).chmod(0o755)
        for name in ("bash", "dirname", "sed", "grep", "env"):  # Nothing else of this machine's.
            (self.directory / "bin" / name).symlink_to(shutil.which(name))

    def run_bazelw(self, *arguments, missing=""):
        """Returns the exit status, standard error, and what was called."""
        calls = self.directory / "calls"
        calls.write_text("")
        environment = {"PATH": str(self.directory / "bin"), "MISSING": missing, "CALLS": str(calls)}
        ran = subprocess.run([str(self.directory / "bazelw"), *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, timeout=60, check=False)
        return ran.returncode, ran.stderr, calls.read_text().splitlines()

    def test_when_nothing_is_missing_it_runs_bazel_and_says_nothing(self):
        for flags in ([], ["--no-install"]):
            self.assertEqual(self.run_bazelw(*flags, "test", "//..."), (0, "", ["bazel test //..."]))

    def test_what_is_missing_is_named_with_the_command_and_installed(self):
        status, error, calls = self.run_bazelw("build", "//x", missing="one two")
        sudo = "" if os.geteuid() == 0 else "sudo "
        self.assertEqual(status, 0, error)
        self.assertIn("bazelw: these Debian packages are missing: one two\n", error)
        self.assertIn("installing them", error)
        self.assertIn(f"{sudo}apt-get update -qq && {sudo}env", error)
        self.assertEqual([call for call in calls if not call.startswith("sudo")], [*CALLED, "bazel build //x"])

    def test_with_no_install_it_only_says_what_is_missing(self):
        status, error, calls = self.run_bazelw("--no-install", "build", "//x", missing="one two")
        self.assertEqual((status, calls), (1, []))
        self.assertIn("missing: one two\n", error)
        if os.geteuid() == 0:
            self.assertIn(f"bazelw: to install them, run: {BOTH}", error)

    def test_the_flag_counts_only_as_the_first_argument(self):
        status, _, calls = self.run_bazelw("build", "--no-install", missing="")
        self.assertEqual((status, calls), (0, ["bazel build --no-install"]))

    def test_without_root_and_sudo_it_says_what_root_has_to_run(self):
        (self.directory / "bin" / "sudo").unlink()
        text = (self.directory / "bazelw").read_text()
        (self.directory / "bazelw").write_text(text.replace("EUID", "1000"))  # Bash does not let anyone set it.
        status, error, calls = self.run_bazelw("build", "//x", missing="one two")
        self.assertEqual((status, calls), (1, []))
        self.assertIn(f"to install them, as root, run: {BOTH}", error)


if __name__ == "__main__":
    unittest.main()
