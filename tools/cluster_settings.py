"""Knows how a cluster is brought up: the defaults, the settings that it keeps, and the addresses of its workers."""

import json
import uuid

from tools.cluster_directory import ClusterError, address_of, lock_holder, not_yours
from tools.free_ports import free_ports


# How `up` brings a cluster up by default.
DEFAULTS = {
    "servers": 1, "workers": 1, "node_bytes": 1024, "meganode_bytes": 64 << 20, "extents_bytes": 256 << 20, "regions_max": 16,
    "server_flags": [], "flags_of": {}, "secret_file": None, "zookeeper": None, "name": "cell", "fabric": "auto", "host": None, "durability": "none",
    "log_store": None,
}
# Settings that a cluster keeps permanently.
CONSTANTS = ("workers", "node_bytes", "meganode_bytes", "extents_bytes", "durability", "log_store", "zookeeper", "name")


def is_setting(key, value):
    """Returns whether this can be the value of a setting: of the type of its default, and no number below 1."""
    default = DEFAULTS[key]
    if default is None:
        return value is None or isinstance(value, str)
    if isinstance(default, int):
        return isinstance(value, int) and not isinstance(value, bool) and value > 0
    if isinstance(default, list):
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    return isinstance(value, type(default))


def settings_of(directory):
    """Returns how the cluster in the directory is brought up, or None if there is no cluster. Raises ClusterError if it
    cannot be read."""
    for file in ("up.json", "cluster.json", "durable.json"):  # Without up.json: made by an earlier release, or by hand.
        try:
            text = (directory / file).read_text()
        except FileNotFoundError:
            continue
        except NotADirectoryError as error:
            raise ClusterError(f"{directory} is not a directory") from error
        except PermissionError as error:
            raise not_yours(error) from error
        try:
            there = json.loads(text)
            if file == "up.json":
                wrong = [key for key in DEFAULTS if not is_setting(key, there.get(key, DEFAULTS[key]))]
                if wrong:
                    raise ValueError(f"its {wrong[0]} is not valid")
                return {**DEFAULTS, **there}
            workers = [server["workers"] for server in there["servers"]]
            settings = {**DEFAULTS, **{key: there[key] for key in ("node_bytes", "meganode_bytes", "extents_bytes")},
                        "servers": len(workers), "workers": len(workers[0]), "regions_max": workers[0][0]["regions_max"],
                        "durability": there.get("durability", "none")}
            if file == "durable.json":
                address = address_of(directory)
                settings["zookeeper"] = "start" if (directory / "zookeeper").exists() else address[len("zk://"):].rsplit("/", 1)[0]
                settings["name"] = address.rsplit("/", 1)[1]
            return settings
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise ClusterError(f"{directory}/{file} does not belong to a Cell cluster, or is damaged ({error!r})") from error
    return None


def regions_within(memory, settings):
    """Returns the number of regions that each worker may hold if all regions of a server take at most `memory` bytes. Raises ClusterError if the
    memory is too small for one region per worker."""
    workers, region = settings["workers"], settings["meganode_bytes"] + settings["extents_bytes"]
    if memory < workers * region:
        of = f"each of the {workers} workers" if workers > 1 else "a server"
        mb = lambda size: f"{-(-size // 2**20)} MB" if size % 2**20 == 0 else f"{-(-size // 2**10)} KB"
        raise ClusterError(f"--memory-max must be at least {mb(workers * region)}: {of} holds at least one region, of {mb(region)} "
                           "(--meganode-bytes, --extents-bytes)")
    return memory // (workers * region)


def describe(directory, settings):
    """Returns the content of cluster.json. Listed servers stay as they are, because others know their addresses."""
    try:
        listed = json.loads((directory / "cluster.json").read_text())
    except FileNotFoundError:
        listed = {"format": 2, "uuid": str(uuid.uuid4()), "servers": []}
    fabric, host = settings["fabric"], settings["host"]
    ports = iter(free_ports(settings["servers"] * settings["workers"], host or "127.0.0.1"))

    def worker(name, index):
        made = {"regions_max": settings["regions_max"]}
        if fabric in ("auto", "shm"):
            made["socket"] = f"{name}.{index}.sock"
        if fabric in ("tcp", "verbs") or (fabric == "auto" and host):
            made["tcp" if fabric == "auto" else fabric] = f"{host or '127.0.0.1'}:{next(ports)}"
        return made

    def kinds(workers):
        """Returns everything about a worker except the ports."""
        return [{key: value if key in ("socket", "regions_max") else value.rsplit(":", 1)[0] for key, value in w.items()} for w in workers]

    before = {server["name"]: server["workers"] for server in listed["servers"]}
    servers = []
    for name in names_of(settings):
        workers = [worker(name, index) for index in range(settings["workers"])]
        keeps = name in before and (lock_holder(directory, name) is not None or kinds(before[name]) == kinds(workers))
        servers.append({"name": name, "workers": before[name] if keeps else workers})
    others = [server for server in listed["servers"] if server["name"] not in names_of(settings)]
    return {**listed, **{key: settings[key] for key in ("node_bytes", "meganode_bytes", "extents_bytes", "durability")},
            "servers": servers + others}


def names_of(settings):
    return [f"server-{s}" for s in range(settings["servers"])]
