#!/usr/bin/env python3
"""Runs tests with clang's coverage instrumentation, and prints how many lines of each folder's code they run.

  tools/coverage.py                      all tests but the longest: about an hour on two cores, the first time
  tools/coverage.py //cell/tree/...      these tests
  tools/coverage.py --html DIRECTORY     writes pages that show each line, too

Tests and headers of tests are not counted, and neither is what processes ran that were killed."""

import argparse
import collections
import json
import subprocess
import sys
import tempfile
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
# The longest tests run the same code as shorter ones, again and again.
TESTS = ["//cell/...", "//pilaf/...", "//selector/...", "//tools/...", "//tests/...", "-//tests/simulation:mutants_test"]
COUNTED = ("cell/", "pilaf/", "selector/")
PROFDATA, COV = "llvm-profdata-14", "llvm-cov-14"


def bazel(*arguments, **options):
    return subprocess.run([TREE / "bazelw", *arguments], cwd=TREE, text=True, check=False, **options)


def counted(name):
    """Returns whether a file, named from the top of the tree, is code that tests should run."""
    base = name.rsplit("/", 1)[-1]
    test = "test" in base.rsplit(".", 1)[0].split("_") or "/sim/" in name or base in ("fabric_conformance.h", "fabric_harness.h", "waiter.h", "scenario.h")
    return name.startswith(COUNTED) and not test and not name.endswith((".pb.h", ".pb.cc"))


def programs():
    """Returns the built programs that have counters."""
    listed = bazel("query", "--noshow_progress", 'kind("cc_(test|binary) rule", //cell/... + //pilaf/... + //selector/... + //tools/... + //tests/...)',
                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    where = Path(bazel("info", "--config=coverage", "bazel-bin", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout.strip())
    paths = [where / label.removeprefix("//").replace(":", "/") for label in listed.split()]
    return [path for path in paths if path.is_file()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="*", help="tests to run, as Bazel names them")
    parser.add_argument("--html", type=Path, metavar="DIRECTORY", help="where to write pages that show each line")
    flags = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cell-coverage-") as directory:
        ran = bazel("test", "--config=coverage", "--keep_going", f"--test_env=LLVM_PROFILE_FILE={directory}/%4m.profraw",
                    f"--sandbox_writable_path={directory}", "--nocache_test_results", "--", *(flags.tests or TESTS))
        profile = Path(directory, "all.profdata")
        raw = [str(path) for path in Path(directory).glob("*.profraw")]
        if not raw:
            sys.exit("coverage: no test has run")
        subprocess.run([PROFDATA, "merge", "--sparse", "--failure-mode=all", "-o", str(profile), *raw], check=True)
        first, *more = map(str, programs())
        objects = [first, *(f"--object={path}" for path in more), f"--instr-profile={profile}"]
        exported = subprocess.run([COV, "export", "--summary-only", *objects], stdout=subprocess.PIPE, check=True).stdout
        if flags.html:
            subprocess.run([COV, "show", "--format=html", f"--output-dir={flags.html}", *objects], check=True)
    folders = collections.defaultdict(lambda: [0, 0])
    for file in json.loads(exported)["data"][0]["files"]:
        name = file["filename"].split("/execroot/cell/")[-1].removeprefix("/proc/self/cwd/")
        if counted(name):
            lines = file["summary"]["lines"]
            for folder in (str(Path(name).parent), "all"):
                folders[folder][0] += lines["covered"]
                folders[folder][1] += lines["count"]
    for folder, (covered, count) in sorted(folders.items(), key=lambda one: (one[0] == "all", one[0])):
        print(f"{folder:28} {covered:6} of {count:6} lines  {100 * covered / count:5.1f} %")
    if ran.returncode != 0:
        print("coverage: some tests have failed (above)", file=sys.stderr)
    sys.exit(ran.returncode)


if __name__ == "__main__":
    main()
