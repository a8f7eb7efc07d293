"""Knows where the logs of a cluster that `up` brings up are, and starts a Ceph for them if it has none."""

import os
import shutil
from pathlib import Path

from tools.ceph_server import Ceph
from tools.cluster_directory import ClusterError, service_of
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


def default_conf():
    """Returns the configuration of the Ceph cluster that is meant if none is named, or None if there is none."""
    default = "/etc/ceph/ceph.conf"
    return os.environ.get("CEPH_CONF") or (default if Path(default).exists() else None)


def with_conf(log_store, path_of):
    """Returns a place with the configuration that its pool has now. Otherwise the cluster would look for its logs in
    another Ceph when the environment has changed."""
    if not log_store or not log_store.startswith("rados:") or "@" in log_store or default_conf() is None:
        return log_store
    pool, query, user = log_store.partition("?user=")
    return f"{pool}@{path_of(default_conf())}{query}{user}"


def own_pool(directory, log_store, new=False):
    """Returns the pool of the Ceph that is the cluster's own, or None if its logs are elsewhere. Only a new cluster gets
    a Ceph: the logs of another one would not be in it."""
    if not log_store or not log_store.startswith("rados:") or "@" in log_store or "?" in log_store:
        return None
    if not (directory / CEPH).exists() and (not new or default_conf() is not None):
        return None
    return log_store[len("rados:"):]


def running_daemons(running):
    return [process["daemon"] for process in running if "daemon" in process]


def missing_daemons(directory, running):
    """Returns which daemons of the cluster's Ceph do not run. running: recorded processes that run."""
    if any(service_of(process) == "Ceph" and "daemon" not in process for process in running):
        return []  # An earlier release has started and recorded them.
    home = directory / CEPH
    return [name for name in (Ceph.daemons(home) if home.exists() else ("mon.a", "osd.0")) if name not in running_daemons(running)]


def start_own_ceph(directory, pool, running=()):
    """Starts what does not run of the cluster's Ceph, or makes one, and returns it."""
    home = directory / CEPH
    if home.exists():
        return Ceph.again(home, pool, running=running_daemons(running))
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
