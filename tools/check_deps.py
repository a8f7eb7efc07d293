#!/usr/bin/env python3
"""Checks that the deps of each C++ target are the targets whose headers its files include: each header is the target's own
or a direct dep's, and no dep is without use. Exits with 1 and a line for each finding."""

import argparse
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

TREE = Path(__file__).resolve().parent.parent
QUERY = 'kind("(cc_library|cc_binary|cc_test|fuzzer|alias) rule", //...)'
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)
# The beginnings of what a library of the system lets its users include.
SYSTEM = {
    "@jdk//:jni": ("jni.h",),
    "@system//:absl_hash": ("absl/container/", "absl/hash/"),
    "@system//:absl_status": ("absl/status/", "absl/strings/"),
    "@system//:cli11": ("CLI/",),
    "@system//:crypto": ("openssl/",),
    "@system//:edit": ("histedit.h",),
    "@system//:fmt": ("fmt/",),
    "@system//:grpc": ("grpcpp/", "google/protobuf/"),
    "@system//:gtest_main": ("gtest/", "gmock/"),
    "@system//:isal": ("isa-l/",),
    "@system//:json": ("nlohmann/",),
    "@system//:lmdb": ("lmdb.h",),
    "@system//:python": ("pybind11/",),
    "@system//:spdlog": ("spdlog/",),
    "@system//:ssl": ("openssl/",),
    "@system//:verbs": ("infiniband/", "rdma/"),
    "@system//:rados": ("rados/",),
    "@system//:zookeeper": ("zookeeper/",),
}
# Libraries of the system that a dep on this target brings along. Nearly every file uses them.
BROUGHT_ALONG = {"//cell/base:base": ("@system//:absl_status", "@system//:fmt")}
# Deps that define what other targets' headers declare.
LINKED_ALONE = {
    "//cell/client/tree:scan": "the members of Scan, which client.h declares",
    "//cell/functions:own": "AddOwnFunctions, which own_functions.h declares",
}


class Target:
    """Is a C++ target as Bazel sees it, after macros."""

    def __init__(self, rule, aliases):
        self.name = rule.get("name")
        lists = {entry.get("name"): [label.get("value") for label in entry.findall("label")] for entry in rule.findall("list")}
        self.files = lists.get("srcs", []) + lists.get("hdrs", [])
        self.deps = [aliases.get(dep, dep) for dep in lists.get("deps", [])]
        self.own = {path_of(label) for label in self.files}
        self.headers = {path_of(label) for label in lists.get("hdrs", [])}


def path_of(label):
    """Returns the path of a file from the top of the tree."""
    return label.removeprefix("//").replace(":", "/").removeprefix("/")


def provides(header, name):
    """Returns whether a header, or a beginning of headers, gives what an #include names."""
    return name == header or header.endswith("/") and name.startswith(header)


def stand_for_deps(known):
    """Gives each target that has no files the headers of its deps, so that a dep on it stands for those on them."""
    for target in known.values():
        if not target.files:
            target.headers = {header for dep in target.deps if dep in known for header in known[dep].headers}


def targets():
    """Returns all C++ targets by their names."""
    ran = subprocess.run([str(TREE / "bazelw"), "query", QUERY, "--output=xml", "--noshow_progress"], cwd=TREE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if ran.returncode != 0:
        sys.exit(f"check_deps: bazel query failed:\n{ran.stderr.decode()}")
    rules = ElementTree.fromstring(ran.stdout).findall("rule")
    aliases = {rule.get("name"): rule.find("label[@name='actual']").get("value") for rule in rules if rule.get("class") == "alias"}
    known = {rule.get("name"): Target(rule, aliases) for rule in rules if rule.get("class") != "alias"}
    stand_for_deps(known)
    return known


def included(target):
    """Returns (including file, what it includes) for each #include in the files of a target."""
    for label in target.files:
        path = TREE / path_of(label)
        if path.is_file():  # What Bazel generates includes nothing of the tree.
            for name in INCLUDE.findall(path.read_text()):
                yield path_of(label), name


def provided(target, known):
    """Returns (dep, header) and (dep, beginning of headers) for what a target's direct deps let it include."""
    for dep in target.deps:
        if dep in known:
            yield from ((dep, header) for header in known[dep].headers)
        yield from ((dep, beginning) for beginning in SYSTEM.get(dep, ()))


def findings(known):
    """Returns a line for each dep that is missing or without use."""
    providers = [(target.name, header) for target in known.values() for header in target.headers]
    providers += [(library, beginning) for library, beginnings in SYSTEM.items() for beginning in beginnings]
    found = []
    for target in sorted(known.values(), key=lambda target: target.name):
        direct = list(provided(target, known))
        brought = {library for dep in target.deps for library in BROUGHT_ALONG.get(dep, ())}
        generated = any(not (TREE / path).is_file() for path in target.own)
        unused = set() if generated or not target.files else {dep for dep in target.deps if dep not in LINKED_ALONE}
        for path, name in included(target):
            if name in target.own:
                continue
            by = {dep for dep, header in direct if provides(header, name)}
            unused -= by
            if by:
                continue
            elsewhere = {library for library, header in providers if provides(header, name)}
            if elsewhere and not elsewhere & brought:
                found.append(f"{target.name}: {path} includes {name}: add {' or '.join(sorted(elsewhere))} to deps")
            elif not elsewhere and (TREE / name).is_file():
                found.append(f"{target.name}: {path} includes {name}, which no library has in its hdrs")
        found += [f"{target.name}: no file of it includes a header of {dep}" for dep in sorted(unused)]
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    known = targets()
    found = findings(known)
    for line in found:
        print(line)
    print(f"check_deps: {len(known)} targets, {len(found)} findings")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
