"""Ends the cluster in a directory: all of its servers on this machine, however they were started, and no other process."""

import argparse
import sys

from tools import cluster


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--dir", default="/tmp/cell", help="the cluster's directory")
    args = parser.parse_args()
    directory = cluster.user_path(args.dir)
    try:
        ended = cluster.down(directory)
    except (cluster.ClusterError, OSError) as error:
        print(f"down: {error}", file=sys.stderr)
        return 2
    print(f"{ended} server(s) ended" if ended else "no server was running")
    return 0


if __name__ == "__main__":
    sys.exit(main())
