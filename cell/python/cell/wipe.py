"""Deletes a cluster that has ended, with its keys: python -m cell.wipe --help."""

import os
import sys

from cell.programs import path

if __name__ == "__main__":
    os.execv(path("wipe"), ["wipe", *sys.argv[1:]])
