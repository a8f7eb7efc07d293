"""Starts a Cell cluster on this machine: python -m cell.up --help."""

from cell._cluster.up import main

if __name__ == "__main__":
    raise SystemExit(main())
