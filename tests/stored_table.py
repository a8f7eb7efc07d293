"""Reads the region table as ZooKeeper has it: cell/cluster/table_shards.h says in which form.

It shares no code with the store, so that a test can compare what the two say.
"""

import json


def regions(root, shard_of):
    """Returns the regions of the table with this root. shard_of(FIRST) returns the bytes of a shard."""
    listed = []
    for first, version in json.loads(root)["shards"]:
        shard = _fields(shard_of(first))
        assert shard[1] == [version], (first, version, shard[1])
        region = first
        steps, servers, workers, epochs = (_varints(b"".join(shard[field])) for field in (4, 5, 6, 7))
        for step, server, worker, epoch in zip(steps, servers, workers, epochs):
            region += step
            listed.append({"region": region, "server": shard[2][server].decode(), "worker": worker, "epoch": epoch})
            region += 1
    return listed


def shard(first, version, regions):
    """Returns the bytes of a shard with these regions, which may have a "split_parent", in order of their ids."""
    servers = sorted({region["server"] for region in regions})
    steps, specials, before = [], [], first
    for index, region in enumerate(regions):
        steps.append(region["region"] - before)
        before = region["region"] + 1
        if "split_parent" in region:
            specials.append(_number(1, index) + _number(2, region["split_parent"]))
    lists = [steps, [servers.index(region["server"]) for region in regions], [region["worker"] for region in regions],
             [region["epoch"] for region in regions], [0] * len(regions)]
    return (_number(1, version) + b"".join(_bytes(2, server.encode()) for server in servers)
            + b"".join(_bytes(4 + i, b"".join(map(_encoded, values))) for i, values in enumerate(lists))
            + b"".join(_bytes(9, special) for special in specials))


def shard_name(first):
    return f"{first:08}"


def _encoded(value):
    encoded = b""
    while value > 127:
        encoded += bytes([value & 127 | 128])
        value >>= 7
    return encoded + bytes([value])


def _number(field, value):
    return _encoded(field << 3) + _encoded(value)


def _bytes(field, value):
    return _encoded(field << 3 | 2) + _encoded(len(value)) + value


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _varints(data):
    values, at = [], 0
    while at < len(data):
        value, at = _varint(data, at)
        values.append(value)
    return values


def _fields(data):
    """Returns the values of each field of a Protocol Buffers message: numbers, and bytes."""
    fields, at = {}, 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == 0:
            value, at = _varint(data, at)
        else:
            assert tag & 7 == 2, tag
            size, at = _varint(data, at)
            value = data[at:at + size]
            at += size
        fields.setdefault(tag >> 3, []).append(value)
    return fields
