#!/usr/bin/env python3
"""Runs clang-tidy, by .clang-tidy, over the C++ files of the tree. Exits with 1 if it finds anything. Without names all
files are checked. --rotate checks one part of them, a different one at each commit."""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tools import compile_commands  # noqa: E402

TREE = Path(__file__).resolve().parent.parent
CLANG_TIDY = "clang-tidy-14"
PARTS = 24  # About a dozen files each, which take two minutes on two cores.
# g++'s options that clang does not have.
GCC_ONLY = re.compile(r"-f(no-)?canonical-system-headers|-Wunused-but-set-parameter|-Wno-free-nonheap-object|-Wno-restrict|-fstack-protector")


def for_clang(arguments):
    """Returns clang's arguments for a file that g++ compiles."""
    return [a for a in arguments[1:] if not GCC_ONLY.fullmatch(a)]


def tidy(entry):
    """Returns what clang-tidy says of one file; empty if nothing."""
    ran = subprocess.run([CLANG_TIDY, "--quiet", entry["file"], "--", *for_clang(entry["arguments"]), "-Wno-unknown-warning-option"],
                         cwd=TREE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    return (ran.stdout or ran.stderr) if ran.returncode != 0 else ""


def commits():
    """Returns the number of commits up to this one."""
    return int(subprocess.run(["git", "rev-list", "--count", "HEAD"], cwd=TREE, stdout=subprocess.PIPE, check=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="files to check, relative to the top of the tree (default: all)")
    parser.add_argument("--rotate", action="store_true", help=f"check one of {PARTS} parts, a different one at each commit")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no more files after this number of seconds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of files to check at the same time")
    flags = parser.parse_args()
    begun = time.monotonic()
    entries = compile_commands.commands()
    (TREE / "compile_commands.json").write_text(json.dumps(entries, indent=1) + "\n")
    if flags.files:
        entries = [entry for entry in entries if entry["file"] in flags.files]
    if flags.rotate:
        entries = entries[commits() % PARTS::PARTS]
    if not entries:
        sys.exit("tidy: none of these files is compiled")
    left = 0

    def run(entry):
        return None if time.monotonic() - begun > flags.seconds else tidy(entry)

    found = 0
    with ThreadPoolExecutor(flags.jobs) as pool:
        for text in pool.map(run, entries):
            left += text is None
            if text:
                found += 1
                print(text, flush=True)
    print(f"tidy: {len(entries) - left} files, {found} with findings{f'; no time for {left}' if left else ''}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
