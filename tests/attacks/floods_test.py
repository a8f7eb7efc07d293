"""Floods a server with requests of one client, as fast as it takes them, and checks what it holds and refuses, and that
other clients are served meanwhile. Nothing here depends on how long anything takes."""

import json
import os
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

import raw_client as raw
from tools import cluster

KEYS = 50_000
UPLOADS_BYTES_MAX = 256 << 20  # Of one worker.
CHECKS_OF_A_PEER_MAX = 4


class Floods(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="cell-floods-")
        self.directory = Path(self.temporary.name) / "cell"
        self.processes = cluster.up(self.directory, fabric="tcp", servers=1, regions_max=2, meganode_bytes=16 << 20,
                                    extents_bytes=64 << 20, durability="none", server_flags=["--insecure"])
        (worker,) = json.loads((self.directory / "cluster.json").read_text())["servers"][0]["workers"]
        self.host, port = worker["tcp"].rsplit(":", 1)
        self.port = int(port)
        lines = "".join(f"key{i:06}\t{'v' * 100}\n" for i in range(KEYS))
        self.done("load", "-", input=lines.encode())
        self.root = raw.root_of(self.status()["regions"][0]["region"])

    def tearDown(self):
        cluster.end(self.processes)
        self.temporary.cleanup()

    def done(self, *arguments, **options):
        command = [cluster.binary("tools/cellctl"), "--cluster", str(self.directory), "--timeout", "60", *arguments]
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=90, check=False, **options)
        self.assertEqual(run.returncode, 0, run.stderr)
        return run.stdout

    def status(self):
        return json.loads(self.done("-o", "json", "status"))

    def client(self):
        client = raw.RawClient(self.host, self.port)
        self.addCleanup(client.close)
        return client

    def others_are_served(self):
        self.done("put", "other", "value")
        self.assertEqual(self.done("get", "other"), b"value")
        self.assertEqual(self.done("scan", "key000010", "key000020", "--keys-only").count(b"\n"), 10)
        self.done("del", "other")

    def test_checks(self):
        flood = self.client()
        before = self.status()["checks"]["refused"]
        flood.send(*[raw.text("check", "1")] * 400, reply_bytes=4096)
        self.others_are_served()
        codes = {}
        for _ in range(400):
            _, code, said = flood.answer()
            codes[code] = codes.get(code, 0) + 1
            if code == 0:
                self.assertEqual(json.loads(said)["errors"], [])
        self.assertEqual(set(codes), {0, raw.RESOURCE_EXHAUSTED})
        self.assertGreaterEqual(codes[0], CHECKS_OF_A_PEER_MAX)
        after = self.status()["checks"]
        self.assertEqual(after["now"], 0)
        self.assertEqual(after["refused"] - before, codes[raw.RESOURCE_EXHAUSTED])
        self.assertIn(b"no errors", self.done("check"))

    def test_a_check_that_nobody_waits_for_ends(self):
        flood = self.client()
        flood.send(*[raw.text("check", "1")] * 4)
        flood.close()
        self.others_are_served()
        self.eventually(lambda: self.status()["checks"]["now"] == 0)

    def test_uploads_that_are_never_put(self):
        peers = [self.client() for _ in range(70)]
        piece = os.urandom(raw.UPLOAD_PART_BYTES_MAX)
        for client in peers:
            for number in range(1, raw.UPLOADS_MAX + 1):
                for part in range(16):
                    client.call(raw.upload(number, part * len(piece), piece), reply_bytes=256)
            self.assertLessEqual(self.held_by_uploads(peers[0]), UPLOADS_BYTES_MAX)
        value = os.urandom(1 << 20)
        self.done("put", "large", "-", input=value)
        self.assertEqual(self.done("get", "large"), value)
        for client in peers:
            client.close()
        self.eventually(lambda: self.status()["uploads"]["bytes"] == 0)

    def held_by_uploads(self, client):
        return json.loads(client.call(raw.text("status"))[2])["uploads"]["bytes"]

    def test_scans_and_counts(self):
        for request in (raw.scan(self.root), raw.count(self.root)):
            flood = self.client()
            flood.send(*[request] * 2000, reply_bytes=2048)
            self.others_are_served()
            codes = [flood.answer()[1] for _ in range(2000)]
            self.assertEqual(set(codes) - {raw.RESOURCE_EXHAUSTED}, {0})
            flood.close()
        self.eventually(lambda: self.status()["long_requests"]["now"] == 0)
        self.assertGreater(self.status()["long_requests"]["waited"], 0)

    def test_statuses_and_reports(self):
        flood = self.client()
        report = json.dumps({f"key{i}": i for i in range(250)})
        flood.send(*[raw.text("status"), raw.text("report", report)] * 200, reply_bytes=raw.MESSAGE_BYTES_MAX)
        self.others_are_served()
        codes = [flood.answer()[1] for _ in range(400)]
        self.assertEqual(set(codes) - {raw.RESOURCE_EXHAUSTED}, {0})
        _, code, said = flood.call(raw.text("report", "x" * 5000))
        self.assertEqual(code, 3, said)  # InvalidArgument: too long.

    def eventually(self, holds):
        deadline = time.monotonic() + 60
        while not holds():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.05)


if __name__ == "__main__":
    unittest.main()
