#!/usr/bin/env python3
"""Checks what no compiler does: the formatting of all C++ files, that every file and page which a comment or a document
names is in the tree, that links in documents lead somewhere, and that Doxygen makes pages of the public headers without a
warning. Exits with 1 and a line for each finding."""

import argparse
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
CLANG_FORMAT = "clang-format-14"  # Other releases format otherwise.
FILES_AT_ONCE = 40
# Fuzzers' inputs, and measurements as they were recorded.
NOT_OURS = ("tests/corpus/", "docs/experiments/")
TEXT = (".h", ".cc", ".py", ".md", ".sh", ".bzl", ".proto", ".sed")
SUFFIXES = r"(?:h|cc|py|md|sh|bzl|proto)"
# A path from the top of the tree, and a file's bare name in a comment.
PATH = re.compile(rf"(?<![\w/.$-])((?:cell|pilaf|selector|tools|tests|docs)/[\w./-]*\.{SUFFIXES})\b")
NAME = re.compile(rf"(?<![\w/.$*{{}}-])([a-z][a-z0-9_]*\.{SUFFIXES})\b(?!/)")
GENERATED = re.compile(r"\.(pb|grpc\.pb)\.(h|cc)$")
# Names of files that are not of this tree: what examples make, and other projects' files.
FOREIGN = {"packages.py", "program.cc", "range.cc", "rdma_cma.h", "stdio.h", "transfer.cc", "verbs.h"}
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def tracked():
    """Returns the paths of all files that git knows, from the top of the tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=TREE, stdout=subprocess.PIPE, check=True, text=True).stdout
    return [name for name in listed.split("\0") if name and not name.startswith(NOT_OURS) and (TREE / name).is_file()]


def unformatted(files, fix):
    """Returns a finding for each C++ file that clang-format would change; with `fix`, lets it."""
    sources = [name for name in files if name.endswith((".h", ".cc"))]

    def run(part):
        return subprocess.run([CLANG_FORMAT, "-i" if fix else "--dry-run", *([] if fix else ["--Werror"]), *part], cwd=TREE,
                              stderr=subprocess.PIPE, text=True, check=False).stderr

    with ThreadPoolExecutor(2) as pool:
        parts = [sources[i:i + FILES_AT_ONCE] for i in range(0, len(sources), FILES_AT_ONCE)]
        text = "".join(pool.map(run, parts))
    found = sorted({line.split(":", 1)[0] for line in text.splitlines() if "-Wclang-format-violations" in line})
    return [f"{name}: not formatted: tools/check_tree.py --fix" for name in found]


def comments(name, text):
    """Returns (line number, text) of what people read in a file: its comments, or all of a document."""
    for number, line in enumerate(text.splitlines(), 1):
        if name.endswith(".md"):
            yield number, line
        elif name.endswith((".h", ".cc", ".proto")):
            if "//" in line and "#include" not in line:
                yield number, line.split("//", 1)[1]
        elif "#" in line:
            yield number, line.split("#", 1)[1]


def uncited(files):
    """Returns a finding for each name of a file that is not in the tree."""
    known = set(files)
    names = {Path(name).name for name in files}
    found = []
    for name in files:
        if not name.endswith(TEXT):
            continue
        for number, line in comments(name, (TREE / name).read_text()):
            for path in PATH.findall(line):
                if path not in known and "NAME" not in path and not GENERATED.search(path):
                    found.append(f"{name}:{number}: {path} is not in the tree")
            for cited in NAME.findall(re.sub(r"https?://\S+", "", line)):
                if cited not in names and cited not in FOREIGN and not GENERATED.search(cited):
                    found.append(f"{name}:{number}: no file of the tree is called {cited}")
    return found


def dead_links(files):
    """Returns a finding for each relative link of a document that leads nowhere."""
    found = []
    for name in files:
        if not name.endswith(".md"):
            continue
        for number, line in enumerate((TREE / name).read_text().splitlines(), 1):
            for target, _ in LINK.findall(line):
                if "://" not in target and not (TREE / name).parent.joinpath(target).exists():
                    found.append(f"{name}:{number}: the link {target} leads nowhere")
    return found


def undocumented():
    """Returns Doxygen's warnings about the public headers (docs/Doxyfile)."""
    ran = subprocess.run(["doxygen", "docs/Doxyfile"], cwd=TREE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                         check=False)
    return [line.replace(f"{TREE}/", "") for line in ran.stderr.splitlines() if line.strip()]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", action="store_true", help="format the files in place")
    flags = parser.parse_args()
    files = tracked()
    try:
        found = unformatted(files, flags.fix)
        found += undocumented()
    except FileNotFoundError as missing:
        sys.exit(f"check_tree: {missing.filename} is not installed: ./bazelw installs what tools/bazel/packages.txt lists")
    found += uncited(files) + dead_links(files)
    for line in found:
        print(line)
    print(f"check_tree: {len(files)} files, {len(found)} findings")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
