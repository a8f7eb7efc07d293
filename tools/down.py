"""Stops the cluster in a directory: all its servers on this machine, however they were started, and no other process.
"""

import argparse
import sys

from tools import cluster, cluster_directory, cluster_down


def main():
    parser = argparse.ArgumentParser(prog="down", usage="./bazelw run //tools:down -- [FLAGS]", description=__doc__)
    parser.add_argument("--dir", default=cluster_directory.default_directory(), help="directory of the cluster (default: %(default)s)")
    cluster_down.add_kill_after_flag(parser)
    args = parser.parse_args()
    status, ended = cluster_down.end_cluster("down", cluster.user_path(args.dir), args.kill_after)
    if status < 2:
        print(f"{ended} server(s) ended" if ended else "no server was running")
    return status


if __name__ == "__main__":
    sys.exit(main())
