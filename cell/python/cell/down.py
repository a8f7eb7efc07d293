"""Stops the cluster in a directory: python -m cell.down --help."""

from cell._cluster.down import main

if __name__ == "__main__":
    raise SystemExit(main())
