#!/usr/bin/env python3
"""Writes compile_commands.json at the top of the tree, for editors, clangd and clang-tidy: how Bazel compiles each C++ file
of this project. Run it again when a BUILD file has changed."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
# Where the headers are that Bazel has links to in its own tree, as WORKSPACE says.
OUTSIDE = {"external/system/": "/usr/include/", "external/jdk/": "/usr/lib/jvm/default-java/"}
# Of each source one action: not the one for fuzzers, which names the same file again.
QUERY = 'mnemonic("CppCompile", deps(//cell/... + //pilaf/... + //selector/... + //tools/... + //tests/...))'


def commands():
    """Returns an entry for each source file of the tree, in the order of their names."""
    ran = subprocess.run([str(TREE / "bazelw"), "aquery", "--output=jsonproto", "--ui_event_filters=-info", "--noshow_progress",
                          QUERY], cwd=TREE, stdout=subprocess.PIPE, check=False, text=True)
    if ran.returncode != 0:
        sys.exit("compile_commands: bazel aquery failed")
    found = {}
    for action in json.loads(ran.stdout).get("actions", []):
        arguments = action["arguments"]
        if "-c" not in arguments:
            continue
        source = arguments[arguments.index("-c") + 1]
        if source.startswith(("external/", "bazel-out/")) or source in found:
            continue
        for link, place in OUTSIDE.items():
            arguments = [place + a[len(link):] if a.startswith(link) else a for a in arguments]
        found[source] = {"directory": str(TREE), "file": source, "arguments": arguments}
    return [found[source] for source in sorted(found)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    entries = commands()
    path = TREE / "compile_commands.json"
    path.write_text(json.dumps(entries, indent=1) + "\n")
    print(f"{path}: {len(entries)} files")


if __name__ == "__main__":
    main()
