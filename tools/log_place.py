"""Knows where the logs of a cluster that `up` brings up are, and starts a Ceph for them if it has none."""

import os
import shutil
from pathlib import Path

from tools.ceph_server import Ceph
from tools.cluster_directory import ClusterError
from tools.free_ports import free_port

CEPH = "ceph"  # In the cluster's directory.


def parse(text, path_of):
    """Returns what cell_server's --log-store takes, with absolute paths. path_of: makes a path absolute."""
    kind, _, rest = text.partition(":")
    place, query, user = rest.partition("?user=") if kind == "rados" else (rest, "", "")
    pool, at, conf = place.partition("@")
    if kind == "dir" and rest:
        return f"dir:{path_of(rest)}"
    if kind == "rados" and pool and (conf or not at):
        return f"rados:{pool}@{path_of(conf)}{query}{user}" if at else text
    raise ClusterError(f'"{text}" is not a place for logs: dir:PATH, rados:POOL, or rados:POOL@PATH-OF-CEPH.CONF, with ?user=NAME behind it '
                       "for Ceph's user client.NAME")


def own_pool(directory, log_store):
    """Returns the pool of the Ceph that is the cluster's own, or None if its logs are elsewhere."""
    if not log_store or not log_store.startswith("rados:") or "@" in log_store or "?" in log_store:
        return None
    if not (directory / CEPH).exists() and ("CEPH_CONF" in os.environ or Path("/etc/ceph/ceph.conf").exists()):
        return None
    return log_store[len("rados:"):]


def start_own_ceph(directory, pool):
    """Starts the cluster's Ceph, or makes one, and returns it."""
    home = directory / CEPH
    if home.exists():
        return Ceph.again(home, pool)
    try:
        return Ceph(home, free_port(), pool=pool)
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise


def log_flags(directory, log_store):
    """Returns the servers' flags."""
    if not log_store:
        return []
    own = own_pool(directory, log_store)
    return ["--log-store", log_store if own is None else f"{log_store}@{directory / CEPH / 'ceph.conf'}"]
