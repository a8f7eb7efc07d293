"""The programs that come with the package: cell_server, cellctl, cell_bench, and wipe, which deletes a cluster."""

import os
import sys
from pathlib import Path

DIRECTORY = Path(__file__).absolute().parent / "bin"


def path(name: str) -> str:
    """Returns the path of a program."""
    found = DIRECTORY / name
    if not found.exists():
        raise FileNotFoundError(f"this installation of cell has no program {name}")
    return str(found)


def run() -> None:
    """Becomes the program that this process is called as."""
    name = Path(sys.argv[0]).name
    os.execv(path(name), [name, *sys.argv[1:]])
