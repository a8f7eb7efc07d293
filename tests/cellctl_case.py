"""Starts small clusters for tests of cellctl, and runs cellctl on them."""

import json
import os
import pty
import select
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from tools import cluster

SMALL = {"meganode_bytes": 1 << 20, "extents_bytes": 4 << 20, "regions_max": 64}
ERROR = 2


class CellctlCase(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="cell-ctl-")
        self.directory = Path(self.temporary.name) / "cluster"
        self.servers = []

    def tearDown(self):
        for process in self.servers:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
        cluster.end(self.servers)
        self.temporary.cleanup()

    def up(self, **options):
        self.servers = cluster.up(self.directory, **{**SMALL, **options})

    def up_empty(self, **options):
        cluster.end(self.servers)
        self.directory = self.directory.with_name(self.directory.name + "x")
        self.up(**options)

    def command(self, *arguments):
        return [cluster.binary("tools/cellctl"), "--cluster", str(self.directory), *arguments]

    def ctl(self, *arguments, **options):
        return subprocess.run(self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=90, check=False, **options)

    def done(self, *arguments, **options):
        result = self.ctl(*arguments, **options)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def refused(self, part, *arguments, **options):
        result = self.ctl(*arguments, **options)
        self.assertEqual(result.returncode, ERROR, result)
        lines = result.stderr.decode().strip().splitlines()
        self.assertTrue(lines and all(line.startswith("cellctl: ") for line in lines), lines)
        self.assertIn(part, lines[-1])
        return lines

    def terminal(self, *arguments, typed=b"", prompt=b"cell> ", until=None):
        """Runs cellctl on a terminal. Returns everything that it writes there, and its exit status."""
        master, slave = pty.openpty()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("LC_") and k != "LANG"}
        environment.update(TERM="vt100", HOME=self.temporary.name)
        process = subprocess.Popen(self.command(*arguments), stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True)
        os.close(slave)
        shown, deadline = b"", time.monotonic() + 30
        sent = not typed
        while time.monotonic() < deadline:
            if not sent and prompt in shown:
                os.write(master, typed)
                sent = True
            if until is not None and until(shown):
                break
            if not select.select([master], [], [], 0.05)[0]:
                if process.poll() is not None:
                    break
                continue
            try:
                shown += os.read(master, 1 << 16)
            except OSError:
                break
        if process.poll() is None and until is not None:
            process.terminate()
        process.wait(30)
        os.close(master)
        return shown, process.returncode

    def lines(self, *arguments):
        return [json.loads(line) for line in self.ctl("-o", "json", *arguments).stdout.splitlines()]

    def load_large(self, count=600, size=20_000):
        values = {f"key{i:06}": f"{i}:".ljust(size, "v") for i in range(count)}
        self.done("load", "-", input="".join(f"{k}\t{v}\n" for k, v in values.items()).encode())
        return values

    def backup_directory(self):
        return Path(self.temporary.name) / "backup"
