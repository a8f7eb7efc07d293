"""Checks that what the documents show works. Builds every C and C++ program in them outside this tree, with the project's
warnings, and runs it. Runs the commands of the walks through a cluster as they stand."""

import os
import re
import shlex
import subprocess
import tempfile
import unittest
from pathlib import Path

from tools import cluster, install

ROOT = Path(cluster.binary("README.md")).parent
PATTERNS = ["README.md", "CONTRIBUTING.md", "docs/**/*.md", "pilaf/README.md", "cell/c/README.md", "cell/tree/README.md", "cell/functions/README.md"]
DOCUMENTS = [str(path.relative_to(ROOT)) for pattern in PATTERNS for path in sorted(ROOT.glob(pattern))]
# Sections whose commands can be run on one machine as they stand, each in a directory of its own.
WALKS = [("README.md", "A cluster of your own"), ("docs/operations/bring-up.md", "One machine")]
WARNINGS = ["-Wall", "-Wextra", "-Werror"]  # .bazelrc's.
TOOL = re.compile(r"\./bazelw run (?:--config=opt )?//tools:(\w+)(?: -- ?)?")


def blocks(document, language):
    """Yields (line, text) of each fenced block in this language."""
    text = Path(cluster.binary(document)).read_text()
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if match[1] == language:
            yield text.count("\n", 0, match.start()) + 1, match[2]


def smaller(arguments, flags):
    for flag, value in flags.items():
        if flag in arguments:
            arguments[arguments.index(flag) + 1] = value
        else:
            arguments += [flag, value]


class Docs(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="cell-docs-")
        self.base = Path(self.temporary.name)

    def tearDown(self):
        self.temporary.cleanup()

    def test_every_program_is_built_and_run_outside_this_tree(self):
        prefix = self.base / "usr"
        install.install(prefix)
        environment = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
        compilers = {"cpp": ("g++", "cell", ".cc"), "c": ("gcc", "cell-c", ".c")}
        programs = [(document, language, line, text) for document in DOCUMENTS for language in compilers for line, text in blocks(document, language)]
        self.assertEqual({language for _, language, _, _ in programs}, set(compilers))
        servers = cluster.up(self.base / "cell", meganode_bytes=2 << 20, extents_bytes=8 << 20)
        self.addCleanup(cluster.end, servers)
        for i, (document, language, line, text) in enumerate(programs):
            with self.subTest(document=document, line=line):
                compiler, package, suffix = compilers[language]
                flags = subprocess.run(["pkg-config", "--cflags", "--libs", package], env=environment, stdout=subprocess.PIPE, check=True, text=True)
                source = self.base / f"program{i}{suffix}"
                source.write_text(text)
                built = subprocess.run([compiler, *WARNINGS, str(source), "-o", str(source.with_suffix("")), *flags.stdout.split()],
                                       stderr=subprocess.PIPE, text=True, check=False)
                self.assertEqual(built.returncode, 0, built.stderr)
                program = [str(source.with_suffix(""))]
                ran = subprocess.run([*program, str(self.base / "cell")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60,
                                     text=True, check=False)
                self.assertEqual(ran.returncode, 0, ran.stderr)
                for wanted in re.findall(r"^// Prints: (.*)$", text, re.MULTILINE):
                    self.assertIn(wanted, ran.stdout.splitlines())
                # Without a cluster, or with one whose server is dead, the program reports an error in one line.
                for bad in (self.base / "nowhere", self.dead()):
                    failed = subprocess.run([*program, str(bad)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, text=True,
                                            check=False)
                    self.assertEqual(failed.returncode, 1, failed)
                    self.assertGreater(len(failed.stderr.strip()), 20)

    def dead(self):
        directory = self.base / "dead"
        if not directory.exists():
            for process in cluster.up(directory, meganode_bytes=2 << 20, extents_bytes=8 << 20):
                process.kill()
                process.wait()
        return directory

    def test_the_commands_work_as_they_stand(self):
        for document, section in WALKS:
            text = Path(cluster.binary(document)).read_text()
            part = text.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
            commands = re.search(r"^```\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)[1]
            directory = self.base / section.replace(" ", "-").lower()
            environment = dict(os.environ)
            for line in commands.replace("/tmp/cell", str(directory)).splitlines():
                with self.subTest(document=document, command=line):
                    words = shlex.split(line, comments=True)
                    if words[0] == "export":
                        environment.update([words[1].split("=", 1)])
                        continue
                    tool = TOOL.match(line)
                    self.assertIsNotNone(tool, "not a command that this test can run")
                    arguments = shlex.split(line[tool.end():], comments=True)
                    if tool[1] == "cell_bench":
                        smaller(arguments, {"--seconds": "0.2", "--keys": "20000"})
                    if tool[1] == "up":
                        smaller(arguments, {"--meganode-bytes": "8M", "--extents-bytes": "32M"})
                    ran = subprocess.run([cluster.binary(f"tools/{tool[1]}"), *arguments], env=environment, stdin=subprocess.DEVNULL,
                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100, check=False)
                    self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertFalse((directory / "processes.json").exists(), "the walk leaves servers behind")


if __name__ == "__main__":
    unittest.main()
