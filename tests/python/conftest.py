"""A cluster for the tests of the Python package, by the installed package itself."""

import subprocess

import pytest

import cell
from cell import programs
from cell._cluster import cluster


@pytest.fixture(scope="session")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("cluster") / "cell"
    servers = cluster.up(path, servers=2, durability="none", meganode_bytes=1 << 20, extents_bytes=8 << 20)
    try:
        subprocess.run([programs.path("cellctl"), "--cluster", str(path), "hash", "create", "users"], check=True)
        yield path
    finally:
        cluster.end(servers)


@pytest.fixture
def client(directory):
    with cell.connect(directory) as opened:
        opened.delete_range(None, None)
        yield opened
