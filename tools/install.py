"""Installs Cell for programs that are built elsewhere: its client library in C++ and in C, with cell.pc and cell-c.pc
for pkg-config, and its programs."""

import argparse
import re
import shlex
import shutil
import sys
from pathlib import Path

from tools import cluster

PROGRAMS = {"cell_server": "cell/cmd/cell_server", "cellctl": "tools/cellctl", "cell_bench": "tools/cell_bench", "cell_wipe": "tools/wipe",
            "cell_gateway": "tools/cell_gateway"}
SHARED = "libcell.so.1"
PUBLIC = ["cell/c/cell.h", "cell/client/client.h", "cell/client/client_metrics.h", "cell/client/functions.h", "cell/client/snapshot.h",
          "cell/client/transaction.h"]


def headers():
    """Returns the public headers, and those of ours that they include."""
    found, todo = {}, list(PUBLIC)
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = Path(cluster.binary(name))
            todo += re.findall(r'^#include "((?:cell|pilaf|selector)/[^"]+)"', found[name].read_text(), re.MULTILINE)
    return found


def copy(source, target, mode):
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)  # It may be running.
    shutil.copyfile(source, target)
    target.chmod(mode)


def install(prefix):
    for name, path in headers().items():
        copy(path, prefix / "include" / name, 0o644)
    copy(cluster.binary("cell/client/libcell.a"), prefix / "lib" / "libcell.a", 0o644)
    copy(cluster.binary(f"cell/c/{SHARED}"), prefix / "lib" / SHARED, 0o755)
    link = prefix / "lib" / "libcell.so"
    link.unlink(missing_ok=True)
    link.symlink_to(SHARED)
    for name, path in PROGRAMS.items():
        copy(cluster.binary(path), prefix / "bin" / name, 0o755)
    flags = Path(cluster.binary("cell/client/cell.flags")).read_text().strip()
    directory = prefix / "lib" / "pkgconfig"
    directory.mkdir(parents=True, exist_ok=True)
    begin = f"prefix={prefix}\n\nDescription: The client of Cell, a sorted key-value store in other machines' memory\nVersion: 0\n"
    # By its name, because -lcell is the shared library, which has the C API alone.
    (directory / "cell.pc").write_text(f"{begin}Name: cell\nCflags: -std=c++20 \"-I${{prefix}}/include\"\nLibs: \"${{prefix}}/lib/libcell.a\" {flags}\n")
    (directory / "cell-c.pc").write_text(f"{begin}Name: cell-c\nCflags: \"-I${{prefix}}/include\"\nLibs: \"-L${{prefix}}/lib\" \"-Wl,-rpath,${{prefix}}/lib\" -lcell\n")


def main():
    parser = argparse.ArgumentParser(prog="install", usage="./bazelw run //tools:install -- PREFIX", description=__doc__)
    parser.add_argument("prefix", help="directory such as /usr/local, in which include/, lib/ and bin/ are created")
    prefix = cluster.user_path(parser.parse_args().prefix)
    try:
        install(prefix)
    except (cluster.ClusterError, OSError) as error:
        print(f"install: {error}", file=sys.stderr)
        return 2
    print(f"Cell was installed in {prefix}. To build a program with it:\n"
          f"  export PKG_CONFIG_PATH={shlex.quote(str(prefix))}/lib/pkgconfig\n"
          f"  g++ program.cc $(pkg-config --cflags --libs cell)\n"
          f"  gcc program.c $(pkg-config --cflags --libs cell-c)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
