"""Tests the life of clusters: directories without a cluster, failing starts, dying servers, growth, and //tools:wipe.
"""

import json
import os
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from tools import cluster, cluster_directory, cluster_down, cluster_settings, up

SMALL = {"meganode_bytes": 2 << 20, "extents_bytes": 8 << 20, "regions_max": 64}


def content(directory):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


class BringUp(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="cell-up-")
        self.directory = Path(self.temporary.name) / "cell"
        self.processes = []

    def tearDown(self):
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
        cluster.end(self.processes)
        self.temporary.cleanup()

    def up(self, **options):
        started = cluster.up(self.directory, **{**SMALL, **options})
        self.processes += started
        return started

    def ctl(self, *arguments, **options):
        return subprocess.run([cluster.binary("tools/cellctl"), "--cluster", str(self.directory), *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False, text=True, timeout=60, **options)

    def wipe(self, *arguments, **options):
        return subprocess.run([cluster.binary("tools/wipe"), "--dir", str(self.directory), *arguments], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, text=True, timeout=60, **options)

    def load(self, count=20_000, size=200):
        loaded = self.ctl("load", "-", input="".join(f"key{i:06}\t{'v' * size}\n" for i in range(count)))
        self.assertEqual(loaded.returncode, 0, loaded.stderr)

    def keys(self):
        scan = self.ctl("scan", "--keys-only", "--timeout", "30")
        self.assertEqual(scan.returncode, 0, scan.stderr)
        return len(scan.stdout.splitlines())

    def by_hand(self, name):
        """Starts a server and waits until it serves. Before that, a signal would end it at once."""
        told = self.directory / f"{name}.control"
        told.unlink(missing_ok=True)
        process = cluster.start_server(self.directory, name, [])
        self.processes.append(process)
        deadline = time.monotonic() + 20
        while not told.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return process

    def test_a_directory_that_is_no_clusters_is_left_alone(self):
        (self.directory / "log").mkdir(parents=True)
        for name in ("log/mail", "mysql.sock", "printer.control", "regions.json"):
            (self.directory / name).write_text("mine")
        before = content(self.directory)
        with self.assertRaisesRegex(cluster.ClusterError, "not empty"):
            self.up()
        self.assertEqual(content(self.directory), before)
        self.assertEqual(self.wipe("--confirm", "cell").returncode, 1)
        (self.directory / "cluster.json").write_text('{"format": 2, "servers": "of another program"}')
        with self.assertRaisesRegex(cluster.ClusterError, "does not belong to a Cell cluster"):
            self.up()
        self.assertEqual(content(self.directory), sorted([*before, "cluster.json"]))

    def test_a_first_start_that_fails_leaves_nothing(self):
        for made_before in (False, True):
            if made_before:
                self.directory.mkdir()
            for bad in ({"server_flags": ["--no-such-flag"]}, {"flags_of": {"server-1": ["--listen", "0.0.0.0"]}}):
                with self.subTest(bad=bad, made_before=made_before), self.assertRaisesRegex(cluster.ClusterError, "ended with status 2"):
                    self.up(servers=2, durability="sync", **bad)
                self.assertEqual(self.directory.exists(), made_before)
                self.assertEqual(content(self.directory), [])
        self.up(servers=2, durability="async")
        self.assertEqual(self.ctl("put", "key", "value").returncode, 0)

    def test_a_cluster_that_is_there_comes_up_as_it_was(self):
        self.up(servers=2, durability="sync")
        self.load()
        identity = json.loads((self.directory / "cluster.json").read_text())["uuid"]
        for kill in (False, True):
            if kill:
                for process in self.processes:
                    process.kill()
                    process.wait()
            else:
                self.assertEqual(cluster_down.down(self.directory), (2, []))
            self.processes += cluster.up(self.directory)  # No flags.
            check = self.ctl("check")  # It waits for the recovery.
            self.assertEqual((check.returncode, check.stdout.splitlines()[-1][:12]), (0, "20000 keys i"), check.stderr)
            self.assertEqual(self.keys(), 20_000)
        self.assertEqual(json.loads((self.directory / "cluster.json").read_text())["uuid"], identity)

    def test_a_damaged_up_json_costs_no_keys(self):
        self.up(durability="sync")
        self.load()
        self.assertEqual(cluster_down.down(self.directory), (1, []))
        whole = json.loads((self.directory / "up.json").read_text())
        without = {key: value for key, value in whole.items() if key != "durability"}
        for damaged, says in ((without, "log is there"), ({}, "log is there"), ({**whole, "servers": -5}, "servers is not valid"),
                              ({**whole, "servers": "x"}, "servers is not valid"), ({**whole, "workers": None}, "workers is not valid"),
                              ({**whole, "server_flags": [1]}, "server_flags is not valid"), ([], "is damaged")):
            with self.subTest(damaged=damaged):
                (self.directory / "up.json").write_text(json.dumps(damaged))
                before = content(self.directory)
                with self.assertRaisesRegex(cluster.ClusterError, says):
                    cluster.up(self.directory)
                self.assertEqual(content(self.directory), before)
        (self.directory / "up.json").write_text(json.dumps(whole))
        self.processes += cluster.up(self.directory)
        self.assertEqual(self.keys(), 20_000)

    def test_a_flag_that_is_refused_is_not_kept(self):
        self.up(durability="sync", server_flags=["--inline-max", "64"])
        self.load()
        self.assertEqual(cluster_down.down(self.directory), (1, []))
        before = (self.directory / "up.json").read_text()
        with self.assertRaisesRegex(cluster.ClusterError, "--inline-max 500 is too large"):
            cluster.up(self.directory, server_flags=["--inline-max", "500"])
        self.assertEqual((self.directory / "up.json").read_text(), before)
        self.processes += cluster.up(self.directory)
        self.assertEqual(self.keys(), 20_000)

    def test_a_flag_that_is_refused_changes_nothing(self):
        refused = lambda **options: self.assertRaisesRegex(cluster.ClusterError, "--inline-max 500 is too large", cluster.up, self.directory,
                                                           server_flags=["--inline-max", "500"], **options)
        settings = ("up.json", "cluster.json", "address")
        texts = lambda: {name: (self.directory / name).read_text() for name in settings}
        for durability in ("none", "sync"):
            with self.subTest(durability=durability):
                self.directory = self.directory.with_name(f"cell-{durability}")
                self.up(servers=2, durability=durability, server_flags=["--inline-max", "64"])
                before, files = texts(), content(self.directory)
                refused(servers=3)  # While it runs.
                self.assertEqual((texts(), content(self.directory)), (before, files))
                self.assertEqual(self.ctl("put", "key", "value").returncode, 0)
                cluster_down.down(self.directory)
                before = texts()
                refused()
                self.assertEqual(texts(), before)
                if durability == "none":
                    with self.assertRaisesRegex(cluster.ClusterError, "has no server-9"):
                        cluster.up(self.directory, only="server-9")
                    self.assertEqual(texts(), before)
                self.processes += cluster.up(self.directory)
                self.assertEqual(cluster_settings.settings_of(self.directory)["server_flags"], ["--inline-max", "64"])
                self.assertEqual(self.keys(), 0 if durability == "none" else 1)
                cluster_down.down(self.directory)

    def test_a_flag_that_is_given_leaves_the_others_that_are_kept(self):
        kept = ["--inline-max", "64", "--no-balance"]
        self.assertEqual(up.server_flags(kept, up.parse([])), kept)
        self.assertEqual(up.server_flags(kept, up.parse(["--poll", "busy"])), [*kept, "--poll", "busy"])
        self.assertEqual(up.server_flags(kept, up.parse(["--inline-max", "0", "--no-batching"])),
                         ["--no-balance", "--inline-max", "0", "--no-batching"])

    def test_a_cluster_without_durability_begins_again_by_itself(self):
        servers = self.up(servers=2)
        self.load()
        for process in servers:
            process.kill()
            process.wait()
        for name in ("server-1", "server-0"):  # Starts the servers by hand, in another order than at first.
            self.by_hand(name)
        deadline = time.monotonic() + 20
        while self.ctl("status").returncode != 0 and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertEqual(self.ctl("put", "key", "value").returncode, 0)
        self.assertEqual(self.keys(), 1)
        self.assertIn("the cluster starts again empty", (self.directory / "server-1.log").read_text())

    def test_what_is_missing_is_started_and_the_rest_is_left(self):
        servers = self.up(servers=3, durability="sync")
        self.load()
        for only in (None, "server-1"):
            servers[1].kill()
            servers[1].wait()
            self.assertIsNone(cluster_directory.lock_holder(self.directory, "server-1"))
            started = cluster.up(self.directory, only=only)
            self.processes += started
            self.assertEqual(len(started), 1)
            servers[1] = started[0]
            self.assertTrue(all(process.poll() is None for process in servers))
            self.assertEqual(self.keys(), 20_000)
        with self.assertRaisesRegex(cluster.ClusterError, "already"):
            cluster.up(self.directory)
        with self.assertRaisesRegex(cluster.ClusterError, "server-1 already runs"):
            cluster.up(self.directory, only="server-1")
        with self.assertRaisesRegex(cluster.ClusterError, "has no server-9"):
            cluster.up(self.directory, only="server-9")
        self.assertEqual(cluster_down.down(self.directory), (3, []))

    def test_down_ends_servers_that_were_started_by_hand(self):
        servers = self.up(servers=2, durability="sync")
        servers[1].kill()
        servers[1].wait()
        mine = self.by_hand("server-1")
        self.assertEqual(cluster_down.down(self.directory), (2, []))
        self.assertEqual(mine.wait(10), 0)

    def test_an_embedded_cluster_grows_while_it_runs(self):
        self.up(servers=1, durability="async")
        prompt = subprocess.Popen([cluster.binary("tools/cellctl"), "--cluster", str(self.directory)], stdin=subprocess.PIPE,
                                  # A client from before the growth.
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(prompt.communicate)
        prompt.stdin.write("put key0 value\n")
        prompt.stdin.flush()
        self.load(40_000, size=600)
        self.processes += cluster.up(self.directory, servers=3)
        deadline = time.monotonic() + 30
        held = {}
        while len(held) < 3 and time.monotonic() < deadline:
            held = {json.loads(line)["server"] for line in self.ctl("-o", "json", "regions").stdout.splitlines()}
            time.sleep(0.1)
        self.assertEqual(held, {"server-0", "server-1", "server-2"})
        self.assertEqual(self.keys(), 40_001)
        out, error = prompt.communicate("get key039999\nget key020000\nregions\n", timeout=60)
        self.assertIn("v" * 200, out, error)
        self.assertIn("server-2", out, error)
        with self.assertRaisesRegex(cluster.ClusterError, "has servers 0 to 2"):
            cluster.up(self.directory, servers=2)

    def test_sizes_and_the_memory_that_they_mean(self):
        up = [cluster.binary("tools/up"), "--dir", str(self.directory), "--detach", "--durability", "none"]
        for flags, message in ((("--regions-max", "0"), "--regions-max must be from 1 to 65536"),
                               (("--regions-max", "65537"), "--regions-max must be from 1 to 65536"),
                               (("--meganode-bytes", "2X"), '"2X" is not a valid size'),
                               (("--memory-max", "1G", "--regions-max", "2"), "use only one of them"),
                               (("--memory-max", "319M"), "--memory-max must be at least 320 MB: a server holds at least one region, of 320 MB"),
                               (("--memory-max", "639M", "--workers", "2"), "--memory-max must be at least 640 MB: each of the 2 workers")):
            refused = subprocess.run([*up, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, text=True, timeout=60)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn(message, refused.stderr)
            self.assertFalse(self.directory.exists())
        made = subprocess.run([*up, "--meganode-bytes", "2M", "--extents-bytes", "8M", "--regions-max", "65536"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False, text=True, timeout=60)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn("all its 65536 regions of 10 MB are full, the cluster needs 640.0 GB of memory, but this machine has", made.stderr)
        self.assertEqual(cluster_settings.settings_of(self.directory)["meganode_bytes"], 2 << 20)
        cluster_down.down(self.directory)
        # The sizes of the cluster count, which keeps them.
        subprocess.run([*up, "--memory-max", "35M"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True, text=True, timeout=60)
        self.assertEqual(cluster_settings.settings_of(self.directory)["regions_max"], 3)
        cluster_down.down(self.directory)

    def test_a_region_table_that_is_older_than_the_logs_is_refused(self):
        small = {"durability": "sync", "meganode_bytes": 128 << 10, "extents_bytes": 512 << 10}
        self.up(**small)
        self.load(500)
        table = self.directory / "regions.json"
        older = table.read_bytes()
        self.load(5_000)
        self.assertEqual(self.ctl("checkpoint").returncode, 0)  # The content of the logs' first segments is in
                                                                # checkpoints now.
        cluster_down.down(self.directory)
        newest = table.read_bytes()
        logs = content(self.directory / "log")
        self.assertGreater(json.loads(newest)["next_region"], json.loads(older)["next_region"])
        for content_then, says in ((older, "the region table lists regions 1 to"), (None, "the region table is empty")):
            table.unlink()
            if content_then is not None:
                table.write_bytes(content_then)
            with self.assertRaises(cluster.ClusterError) as refused:
                self.up(**small)
            self.assertIn(says, str(refused.exception))
            self.assertIn("replaced by an older copy", str(refused.exception))
            self.assertEqual(content(self.directory / "log"), logs)
            table.write_bytes(newest)
        self.up(**small)
        self.assertEqual(self.keys(), 5_000)

    def test_up_says_why_the_cluster_does_not_answer(self):
        self.up(durability="sync")
        self.load(100)
        cluster_down.down(self.directory)
        [log] = (self.directory / "log").glob("region-1/*.log")
        whole = log.read_bytes()
        log.write_bytes(whole[:2_000] + b"?" + whole[2_001:])
        with self.assertRaises(cluster.ClusterError) as refused:
            self.up(wait_seconds=3)
        self.assertIn("the cluster does not answer", str(refused.exception))
        self.assertIn(log.name, str(refused.exception))

    def test_a_check_says_what_is_still_being_recovered(self):
        self.up(servers=1, durability="sync")
        self.load(60_000)
        cluster_down.down(self.directory)
        regions = sorted(int(path.name.split("-")[1]) for path in (self.directory / "log").glob("region-*"))
        [log] = (self.directory / "log").glob(f"region-{regions[-1]}/*.log")
        whole = log.read_bytes()
        log.write_bytes(whole[:2_000] + b"?" + whole[2_001:])
        self.up()
        self.assertRegex(self.ctl("status").stdout, rf"server-0 +{regions[-1]} .* its recovery failed: .* is damaged at offset")
        check = self.ctl("--timeout", "1", "check")
        self.assertEqual(check.returncode, 2, check)
        waits, failed = check.stderr.splitlines()
        self.assertEqual(waits, "cellctl: waiting for the recovery of 1 region from the logs")
        self.assertIn(f"the recovery of 1 region from the logs has not ended (the first is region {regions[-1]})", failed)

    def test_foreground_up_outlives_a_server(self):
        up = subprocess.Popen([cluster.binary("tools/up"), "--dir", str(self.directory), "--servers", "2", "--durability", "sync",
                               "--meganode-bytes", "2M", "--extents-bytes", "8M"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(up.communicate)
        while "//tools:down" not in up.stdout.readline():
            self.assertIsNone(up.poll())
        self.assertEqual(self.ctl("put", "key", "value").returncode, 0)
        os.kill(cluster_directory.lock_holder(self.directory, "server-0"), signal.SIGKILL)
        self.assertIn("server-0 has ended (signal 9)", up.stderr.readline())
        self.assertIn("--server server-0", up.stderr.readline())
        self.assertEqual(self.ctl("get", "key").stdout, "value")
        self.assertIsNone(up.poll())
        self.processes += cluster.up(self.directory, only="server-0")
        os.kill(cluster_directory.lock_holder(self.directory, "server-1"), signal.SIGKILL)
        self.assertIn("server-1 has ended (signal 9)", up.stderr.readline())
        self.assertEqual(self.ctl("get", "key").stdout, "value")
        up.send_signal(signal.SIGINT)
        self.assertEqual(up.wait(20), 0)
        self.assertIsNone(cluster_directory.lock_holder(self.directory, "server-0"))

    def test_foreground_up_tells_of_each_end_of_a_server(self):
        up = subprocess.Popen([cluster.binary("tools/up"), "--dir", str(self.directory), "--servers", "2", "--durability", "sync",
                               "--meganode-bytes", "2M", "--extents-bytes", "8M"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(up.communicate)
        while "//tools:down" not in up.stdout.readline():
            self.assertIsNone(up.poll())
        for how in (" (signal 9)", "", ""):
            os.kill(cluster_directory.lock_holder(self.directory, "server-0"), signal.SIGKILL)
            self.assertIn(f"server-0 has ended{how};", up.stderr.readline())
            self.assertIn("--server server-0", up.stderr.readline())
            again = subprocess.run([cluster.binary("tools/up"), "--dir", str(self.directory), "--server", "server-0", "--detach"],
                                   stdout=subprocess.PIPE, text=True, timeout=60, check=True)
            self.assertIn(f"1 started, 2 of 2 are up in {self.directory}\n", again.stdout)
            time.sleep(0.5)  # It checks five times a second for servers that others start.
        up.send_signal(signal.SIGINT)
        self.assertEqual(up.wait(20), 0)

    def test_down_waits_and_says_what_it_kills(self):
        servers = self.up(servers=2, durability="sync")
        servers[1].send_signal(signal.SIGSTOP)
        down = subprocess.run([cluster.binary("tools/down"), "--dir", str(self.directory), "--kill-after", "5"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False, text=True, timeout=60)
        self.assertEqual((down.returncode, down.stdout), (1, "2 server(s) ended\n"))
        waits, killed = down.stderr.splitlines()
        who = f"server-1 (process {servers[1].pid})"
        self.assertIn(f"down: waiting for {who} (the process is suspended: state T)", waits)
        self.assertEqual(killed, f"down: {who} was killed because it had not ended after 5 s (the process is suspended: state T)")
        self.assertEqual((servers[0].wait(10), servers[1].wait(10)), (0, -signal.SIGKILL))

    def test_up_that_is_interrupted_or_cannot_begin(self):
        command = [cluster.binary("tools/up"), "--dir", str(self.directory), "--servers", "8"]
        for ends in (signal.SIGINT, signal.SIGTERM):
            up = subprocess.Popen([*command, "--detach"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            while not (self.directory / "processes.json").exists():
                self.assertIsNone(up.poll())
            up.send_signal(ends)
            _, error = up.communicate(timeout=60)
            self.assertEqual((up.returncode, error),
                             (130, f"up: interrupted; the processes that it had started have ended. In {self.directory}: no cluster\n"))
        run = lambda *arguments: subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, text=True, timeout=60)
        self.assertEqual(run(*command, "--host", "192.0.2.1").stderr,
                         "up: cannot listen at 192.0.2.1: Cannot assign requested address; use an address of this machine\n")
        file = self.directory.with_name("file")
        file.write_text("mine")
        for program in ("up", "down"):
            self.assertEqual(run(cluster.binary(f"tools/{program}"), "--dir", str(file)).stderr, f"{program}: {file} is not a directory\n")
        self.assertEqual(run(cluster.binary("tools/up"), "--dir", "/proc/x").stderr,
                         "up: cannot create the directory /proc/x (No such file or directory): "
                         "give --dir a path at which this user can create one\n")

    def test_a_server_of_a_zookeepers_cluster_makes_its_directory(self):
        directory = self.directory / "run" / "cell"
        process = subprocess.Popen([cluster.binary("cell/cmd/cell_server"), "--cluster", "zk://127.0.0.1:1/none", "--dir", str(directory),
                                    "--name", "server-9", "--insecure"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(process)
        while not (directory / "server-9.lock").exists():
            self.assertIsNone(process.poll())

    def test_the_help_says_how_it_is_run(self):
        for tool in ("up", "down"):
            said = subprocess.run([cluster.binary(f"tools/{tool}"), "--help"], stdout=subprocess.PIPE, check=True, text=True, timeout=60).stdout
            self.assertTrue(said.startswith(f"usage: ./bazelw run //tools:{tool} -- "), said)
            self.assertNotIn(f"{tool}.py", said)

    def test_directories_with_spaces_are_quoted(self):
        self.directory = self.directory.with_name("d i r")
        made = subprocess.run([cluster.binary("tools/up"), "--dir", str(self.directory), "--detach"], stdout=subprocess.PIPE, check=True,
                              text=True, timeout=60)
        cluster_down.down(self.directory)
        self.assertIn(f"export CELL_CLUSTER='{self.directory}'\n", made.stdout)
        self.assertIn(f"--dir '{self.directory}'\n", made.stdout)

    def test_wipe_says_what_it_deletes_and_wants_the_name(self):
        self.up(servers=2, durability="sync")
        self.load()
        self.assertEqual(self.ctl("hash", "create", "users").returncode, 0)
        refused = self.wipe("--confirm", "cell")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("is running: stop it first", refused.stderr)
        cluster_down.down(self.directory)
        self.processes += cluster.up(self.directory, only="server-1")
        (self.directory / "processes.json").unlink()  # As if it had been started by hand.
        self.assertIn("server-1 of the cluster", self.wipe("--confirm", "cell").stderr)
        cluster_down.down(self.directory)
        named = self.wipe()  # Nobody is there to be asked.
        self.assertEqual(named.returncode, 2)
        self.assertIn("regions, with the Pilaf tables users", named.stdout)
        self.assertIn(f"the logs in {self.directory}/log", named.stdout)
        self.assertIn("nothing was deleted: the cluster's name is cell", named.stderr)
        self.assertEqual(self.wipe("--confirm", "cel").returncode, 2)
        lock = self.directory / "server-0.lock"
        lock.chmod(0)
        drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
        denied = subprocess.run([*drop, cluster.binary("tools/wipe"), "--dir", str(self.directory), "--confirm", "cell"],
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, text=True)
        self.assertEqual(denied.stderr, f"wipe: permission denied: {lock} belongs to user {os.geteuid()}; wipe the cluster as that user\n")
        denied = subprocess.run([*drop, cluster.binary("tools/down"), "--dir", str(self.directory)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, text=True)
        self.assertEqual(denied.returncode, 2)
        self.assertEqual(denied.stderr, f"down: {lock} belongs to user {os.geteuid()}: run this as that user\n")
        lock.chmod(0o600)
        (self.directory / "notes").write_text("mine")
        (self.directory / "log" / "notes").write_text("mine, too")
        self.assertEqual(self.wipe("--confirm", "cell").returncode, 0)
        self.assertEqual(content(self.directory), ["log", "log/notes", "notes"])
        self.assertEqual(self.wipe("--confirm", "cell").returncode, 1)

    def test_the_logs_of_another_cluster_are_refused(self):
        self.up(durability="sync")
        self.load(100)
        cluster_down.down(self.directory)
        ours = self.directory
        self.directory = ours.parent / "other"
        with self.assertRaisesRegex(cluster.ClusterError, "has the logs of cluster"):
            self.up(durability="sync", server_flags=["--log-dir", str(ours / "log")])
        self.assertFalse(self.directory.exists())
        self.directory = ours
        self.processes += cluster.up(self.directory)
        self.assertEqual(self.keys(), 100)


if __name__ == "__main__":
    unittest.main()
