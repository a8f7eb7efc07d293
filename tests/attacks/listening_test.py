"""Nothing of a cluster listens that docs/operations/security.md does not name: its table, compared with what `ss` shows."""

import json
import os
import re
import subprocess
import tempfile
import unittest
import unittest.mock
from pathlib import Path

from tools import cluster, cluster_directory

SMALL = {"meganode_bytes": 2 << 20, "extents_bytes": 8 << 20, "regions_max": 8}
PAGE = "docs/operations/security.md"


def listening(pids):
    """Returns (kind, address) of all sockets at which these processes listen: kind tcp, udp, u_seq, u_str."""
    shown = subprocess.run(["ss", "-H", "-l", "-n", "-p", "-t", "-u", "-x"], stdout=subprocess.PIPE, text=True, check=True)
    found = []
    for line in shown.stdout.splitlines():
        owners = {int(pid) for pid in re.findall(r"pid=(\d+)", line)}
        if owners & pids:
            words = line.split()
            found.append((words[0], words[4]))
    return found


def rows_of_the_page():
    """Returns the first column of the table below "What listens"."""
    text = Path(PAGE).read_text(encoding="utf-8").split("## What listens", 1)[1]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", text, re.MULTILINE)
    return {what.strip(): where.strip() for what, where in rows if what.strip() not in ("what", "---")}


class Listening(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="cell-listening-")
        self.addCleanup(self.temporary.cleanup)
        self.directory = Path(self.temporary.name) / "cell"
        self.rows = rows_of_the_page()

    def up(self, **options):
        servers = cluster.up(self.directory, servers=2, workers=2, **{**SMALL, **options})
        self.addCleanup(cluster.end, servers)
        listed = [process["pid"] for process in json.loads((self.directory / "processes.json").read_text())]
        self.helpers = set(listed) - {server.pid for server in servers}
        return {server.pid for server in servers}

    def end_helpers(self):
        subprocess.run([cluster.binary("tools/down"), "--dir", str(self.directory)], stdout=subprocess.DEVNULL, check=True, timeout=90)

    def sockets(self):
        """Returns the Unix sockets of a cluster of two servers with two workers each, by the page."""
        self.assertEqual(self.rows["shared memory"].split(" ")[0], "`DIR/NAME.WORKER.sock`")
        self.assertEqual(self.rows["control plane"].split(" ")[0], "`DIR/NAME.control.sock`")
        return {f"{self.directory}/server-{s}.{end}.sock" for s in range(2) for end in ("0", "1", "control")}

    def test_the_table_has_these_rows_and_no_others(self):
        self.assertEqual(list(self.rows), ["shared memory", "control plane", "control plane, with `--control`",
                                           "data, with `--listen` or `up --fabric tcp`", "ZooKeeper of `up --zookeeper`",
                                           "Ceph of `up --log-store rados:POOL`"])

    def test_up_listens_on_unix_sockets_in_its_directory_alone(self):
        found = listening(self.up())
        self.assertEqual({address for _, address in found}, self.sockets())
        self.assertTrue(all(kind.startswith("u_") for kind, _ in found), found)

    def test_with_tcp_there_is_one_port_for_each_worker_on_loopback(self):
        found = listening(self.up(fabric="tcp"))
        workers = [worker["tcp"] for server in json.loads((self.directory / "cluster.json").read_text())["servers"] for worker in server["workers"]]
        self.assertEqual({address for kind, address in found if kind == "tcp"}, set(workers))
        self.assertTrue(all(address.startswith("127.0.0.1:") for address in workers))
        self.assertEqual({address for kind, address in found if kind != "tcp"}, {name for name in self.sockets() if "control" in name})
        self.assertTrue((self.directory / "secret").exists())

    def test_with_zookeeper_its_port_is_on_loopback(self):
        servers = self.up(zookeeper="start")
        self.addCleanup(self.end_helpers)
        port = cluster_directory.address_of(self.directory)[len("zk://127.0.0.1:"):].split("/")[0]
        self.assertEqual({address for _, address in listening(servers)}, self.sockets())
        theirs = listening(self.helpers)
        self.assertTrue(theirs)
        for _, address in theirs:
            self.assertIn(address, (f"127.0.0.1:{port}", f"[::ffff:127.0.0.1]:{port}"))
        self.assertTrue((self.directory / "zookeeper-digest").exists())

    def test_with_ceph_its_ports_are_on_loopback(self):
        with unittest.mock.patch.dict("os.environ"):
            os.environ.pop("CEPH_CONF", None)
            servers = self.up(log_store="rados:cell", durability="sync")
        self.addCleanup(self.end_helpers)
        self.assertEqual({address for _, address in listening(servers)}, self.sockets())
        theirs = listening(self.helpers)
        ports = {address for kind, address in theirs if kind == "tcp"}
        self.assertEqual(len(ports), 5)
        self.assertTrue(all(address.startswith("127.0.0.1:") for address in ports), ports)
        for address in {address for kind, address in theirs if kind != "tcp"}:
            self.assertTrue(address.startswith(f"{self.directory}/ceph/"), address)
        self.assertEqual((self.directory / "ceph").stat().st_mode & 0o777, 0o700)
        self.assertEqual((self.directory / "ceph" / "keyring").stat().st_mode & 0o777, 0o600)


if __name__ == "__main__":
    unittest.main()
