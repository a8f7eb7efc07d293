"""A stranger cannot write lines that look like a server's own into its log, or commands to the terminal that shows it.

He announces a server whose address is such a text. The cluster's servers try to hand it a part of a table, and log why
that failed.
"""

import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from tests.attacks.znode_client import ZnodeClient
from tools import cluster, cluster_directory, free_ports, zookeeper_server

SMALL = {"meganode_bytes": 2 << 20, "extents_bytes": 8 << 20, "regions_max": 64}
FORGED = "[2030-01-01 00:00:00.000] [error] all keys are lost"
# Ends of lines, the control sequence introducer of eight bits, and a mark that turns the direction of text round.
ATTACKS = ["\u0085", "\u2028", "\u2029", "\u009b2J", "\u202e"]


class LogLines(unittest.TestCase):
    def test_a_stranger_forges_no_line(self):
        temporary = tempfile.TemporaryDirectory(prefix="cell-lines-")
        self.addCleanup(temporary.cleanup)
        directory = Path(temporary.name)
        port = free_ports.free_port()
        zookeeper = zookeeper_server.start_zookeeper(directory / "zookeeper", port)
        self.addCleanup(zookeeper.wait)
        self.addCleanup(os.killpg, zookeeper.pid, signal.SIGKILL)
        zookeeper_server.wait_for_zookeeper(port, zookeeper)
        servers = cluster.up(directory / "cell", servers=1, zookeeper=f"127.0.0.1:{port}", durability="none", server_flags=["--insecure"], **SMALL)
        self.addCleanup(cluster.end, servers)
        znodes = ZnodeClient(f"127.0.0.1:{port}")
        self.addCleanup(znodes.close)
        for number, attack in enumerate(ATTACKS):
            announced = {"address": f"nowhere{attack}{FORGED}", "regions_max": 1000}
            znodes.create(f"/cell/workers/ghost-{number}.0", json.dumps(announced, ensure_ascii=False).encode())
        time.sleep(0.5)  # Until the server has seen them.
        subprocess.run([cluster.binary("tools/cellctl"), "--cluster", cluster_directory.address_of(directory / "cell"), "hash", "create", "table",
                        "--parts", "12"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
        log = (directory / "cell" / "server-0.log").read_text()
        self.assertIn("all keys are lost", log, "nothing came of it")
        for line in log.splitlines():  # Python ends lines at all of these.
            self.assertRegex(line, r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\] \[(info|warning)\] ")
        for attack in ATTACKS:
            self.assertNotIn(attack[0], log)


if __name__ == "__main__":
    unittest.main()
