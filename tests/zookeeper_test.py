"""Tests Cell with real ZooKeepers: an ensemble of three, one of them killed under load; a stopped ZooKeeper; strangers.
"""

import json
import os
import signal
import subprocess
import time
import unittest

from tests.lossy_zookeeper import LossyZookeeper
from tests import stored_table
from tests.attacks.znode_client import ZnodeClient, ZnodeError
from tests.zookeeper_case import ZooKeeperCase
from tools import cluster, cluster_directory


class ZooKeeper(ZooKeeperCase):
    def test_one_of_three_is_killed_under_load(self):
        self.up(self.ensemble(3))
        load = self.bench("--workload", "ycsb-a", "--keys", "300000", "--seconds", "3")
        time.sleep(2)
        os.killpg(self.zookeepers[0].pid, signal.SIGKILL)
        out, error = load.communicate(timeout=100)
        self.assertEqual(load.returncode, 0, error)
        self.assertEqual(json.loads(out)["errors"], 0)
        self.assertEqual(self.ctl("put", "still", "written").returncode, 0)
        # The directory stands for the cluster.
        self.assertEqual(self.ctl("get", "still", address=str(self.directory / "cell")).stdout, "written")
        status = [json.loads(line) for line in self.ctl("-o", "json", "status").stdout.splitlines()]
        self.assertEqual(len(status), 3)
        self.assertTrue(all(len(server["regions"]) >= 2 for server in status), "regions over all servers")
        check = self.ctl("check")
        self.assertEqual(check.returncode, 0, check.stderr)
        counts = {path: len(self.ctl("-o", "json", "--path", path, "scan", "--keys-only").stdout.splitlines()) for path in ("server", "client")}
        self.assertEqual(counts, {"server": 300001, "client": 300001})

    def test_a_change_whose_answer_is_lost_is_made_once(self):
        proxy = LossyZookeeper(int(self.ensemble(1).split(":")[1]), each=3)
        self.addCleanup(proxy.close)
        self.up(f"127.0.0.1:{proxy.port}", servers=2)
        load = self.bench("--workload", "get", "--keys", "200000", "--seconds", "0.1")
        out, error = load.communicate(timeout=100)
        self.assertEqual(load.returncode, 0, error)
        created = self.ctl("hash", "create", "table", "--parts", "4")
        self.assertEqual(created.returncode, 0, created.stderr)
        lines = "".join(f"key{i}\t{'v' * 90}\n" for i in range(120_000))  # More than fit into four parts.
        loaded = self.ctl("load", "-", "--table", "table", input=lines)
        self.assertEqual(loaded.returncode, 0, loaded.stderr)
        # A part that was just split still has the pairs of its other half until it is cleaned, and one that is just moved may be missing.
        deadline = time.monotonic() + 30
        stats = {"keys": 0}
        while (stats["keys"] != 120_000 or stats["parts_missing"] > 0) and time.monotonic() < deadline:
            stats = json.loads(self.ctl("-o", "json", "hash", "stats", "--table", "table").stdout)
        self.assertEqual((stats["keys"], stats["parts_missing"]), (120_000, 0))
        self.assertGreater(stats["parts"], 4)
        self.assertEqual(json.loads(out)["errors"], 0)
        self.assertGreaterEqual(proxy.lost_with_answer, 3)
        self.assertGreaterEqual(proxy.lost_before, 3)
        check = self.ctl("check")
        self.assertEqual(check.returncode, 0, check.stderr)
        # If a change were made twice, the table would have a region that nobody holds, or one that was migrated twice.
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            held = {str(region["region"]): region["server"] for region in map(json.loads, self.ctl("-o", "json", "regions").stdout.splitlines())
                    if region["served"]}
            with_shards = stored_table.regions(proxy.znodes["/cell/table"],
                                               lambda first: proxy.znodes[f"/cell/table/{stored_table.shard_name(first)}"])
            listed = {str(region["region"]): region["server"] for region in with_shards}
            if held == listed:
                break
            time.sleep(0.2)
        self.assertEqual(held, listed)
        self.assertGreater(len(held), 8)

    def test_without_zookeeper_no_write_is_acknowledged_and_reads_go_on(self):
        self.up(self.ensemble(1), servers=2)
        prompt = subprocess.Popen([cluster.binary("tools/cellctl"), "--cluster", self.address], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)
        self.addCleanup(prompt.communicate)

        def say(line):
            """Returns the prompt's answer, without its log lines. The error of an unknown command marks the end."""
            prompt.stdin.write(line + "\nno-such-command\n")
            prompt.stdin.flush()
            text = ""
            while "no-such-command" not in text:
                told = prompt.stdout.readline()
                text += "" if "[cell] [warning]" in told else told
                self.assertIsNone(prompt.poll())
            return text.split("cellctl: there is no command")[0].strip()

        self.assertEqual(say("put key before"), "")
        os.killpg(self.zookeepers[0].pid, signal.SIGSTOP)
        deadline = time.monotonic() + 30
        refused, values = "", {"before"}
        while "cannot renew its session" not in refused and time.monotonic() < deadline:
            refused = say("put key meanwhile")
            if "nothing was written" not in refused:  # The session has not ended yet.
                values = {"meanwhile"} if refused == "" else values | {"meanwhile"}
            time.sleep(0.1)
        self.assertIn("cannot renew its session", refused)
        self.assertIn("cannot renew its session", (self.directory / "cell" / "server-0.log").read_text())
        self.assertIn(say("get key"), values)
        os.killpg(self.zookeepers[0].pid, signal.SIGCONT)
        deadline = time.monotonic() + 30
        answer = refused
        while answer != "" and time.monotonic() < deadline:
            answer = say("put key after")
            time.sleep(0.1)
        self.assertEqual(answer, "")
        self.assertEqual(say("get key"), "after")

    def server(self, name, *flags, directory=None):
        """Starts a server by hand, as in docs/operations/zookeeper.md."""
        directory = self.directory / (directory or name)
        directory.mkdir(exist_ok=True)
        with open(directory / "log.txt", "ab") as log:
            process = subprocess.Popen([cluster.binary("cell/cmd/cell_server"), "--cluster", self.address, "--dir", str(directory), "--name", name,
                                        "--meganode-bytes", str(2 << 20), "--extents-bytes", str(8 << 20), "--regions-max", "64", *flags],
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.servers.append(process)
        return process

    def wait_for(self, servers):
        deadline = time.monotonic() + 30
        there = []
        while len(there) != servers and time.monotonic() < deadline:
            there = self.ctl("-o", "json", "status").stdout.splitlines()
            time.sleep(0.05)
        self.assertEqual(len(there), servers)

    def test_the_default_timeout_outlasts_a_takeover(self):
        self.up(self.ensemble(1), durability="sync")
        lines = "".join(f"key{i:06}\t{'v' * 200}\n" for i in range(60_000))
        self.assertEqual(self.ctl("load", "-", input=lines).returncode, 0)
        client = subprocess.Popen([cluster.binary("tools/cellctl"), "--cluster", self.address], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # No --timeout.
        self.addCleanup(client.communicate)
        client.stdin.write("get key000000\n")
        client.stdin.flush()
        self.assertEqual(client.stdout.read(200), "v" * 200)  # It is connected.
        for process in self.servers[:2]:  # One of them holds the root.
            process.kill()
            process.wait()
        out, error = client.communicate("".join(f"get key{i:06}\n" for i in range(0, 60_000, 6_000)), timeout=100)
        self.assertEqual(out.replace("\n", ""), "v" * 2000, error)

    def test_znodes_that_make_no_sense_end_nobody(self):
        zookeeper = self.ensemble(1)
        del os.environ["CELL_ZOOKEEPER_DIGEST"]  # So that ZooKeeper's own client can write what it likes.
        self.up(zookeeper, servers=2, durability="async", server_flags=["--insecure"])
        self.assertEqual(self.ctl("put", "key", "value").returncode, 0)

        def znode(*command):
            return subprocess.run(["/usr/share/zookeeper/bin/zkCli.sh", "-server", zookeeper, *command], check=True, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60).stdout

        def read(path):
            text = znode("get", path)
            return json.dumps(json.loads(text[text.index("{"):text.rindex("}") + 1]))

        def ask_nobody_ends(*arguments):
            answer = self.ctl(*arguments)
            self.assertIn(answer.returncode, (0, 1, 2), answer)  # No signal.
            self.assertTrue(all(server.poll() is None for server in self.servers))
            return answer

        worker, table = read("/cell/workers/server-0.0"), read("/cell/table")
        znode("create", "/cell/workers/nobodys", "junk")
        znode("create", "/cell/workers/ghost.0", "[7]")
        for junk in ('{"address": 7, "regions_max": 1}', "[" * 5000):
            znode("set", "/cell/workers/server-0.0", junk)
            ask_nobody_ends("--timeout", "1", "get", "key")
            ask_nobody_ends("--timeout", "1", "status")
        znode("set", "/cell/workers/server-0.0", worker)
        for junk in ("junk", '{"regions": 7}', table.replace('"version": ', '"version": -')):
            znode("set", "/cell/table", junk)
            answer = ask_nobody_ends("--timeout", "1", "put", "key", "other")
            self.assertEqual(answer.returncode, 2)
            self.assertIn("/cell/table", answer.stderr)
        znode("set", "/cell/table", table)
        self.assertEqual(self.ctl("get", "key").stdout, "value")
        self.assertEqual(self.ctl("put", "key", "other").returncode, 0)
        self.assertEqual(ask_nobody_ends("get", "key").stdout, "other")

    def test_a_full_region_table(self):
        zookeeper = self.ensemble(1)
        self.up(zookeeper, servers=1)
        self.assertEqual(self.ctl("put", "key", "value").returncode, 0)
        self.assertEqual(self.ctl("status").stderr, "")
        znodes = self.znodes(zookeeper)
        root = json.loads(znodes.get("/cell/table"))
        znodes.set("/cell/table", json.dumps({**root, "version": root["version"] + 1, "regions_max": 1}).encode())
        lines = "".join(f"key{i:06}\t{'v' * 500}\n" for i in range(30_000))  # More than fit into one region.
        loaded = self.ctl("load", "-", input=lines)
        self.assertNotEqual(loaded.returncode, 0)
        status = self.ctl("status")
        self.assertIn("warning: the region table is nearly full (1 of 1 regions)", status.stderr)
        self.assertIn("the region table is full (1 of 1 regions)", (self.directory / "cell" / "server-0.log").read_text())
        self.assertEqual(self.ctl("get", "key").stdout, "value")
        root = json.loads(znodes.get("/cell/table"))
        del root["regions_max"]
        znodes.set("/cell/table", json.dumps({**root, "version": root["version"] + 1}).encode())
        deadline = time.monotonic() + 30
        while loaded.returncode != 0 and time.monotonic() < deadline:
            loaded = self.ctl("load", "-", input=lines)
        self.assertEqual(loaded.returncode, 0, loaded.stderr)

    def test_versions_of_a_table_mean_nothing_in_one_that_was_made_again(self):
        zookeeper = self.ensemble(1)
        self.up(zookeeper, servers=1, durability="sync")
        self.assertEqual(self.ctl("put", "key", "value").returncode, 0)
        znodes = self.znodes(zookeeper)
        root = znodes.get("/cell/table")
        [[first, version]] = json.loads(root)["shards"]
        path = f"/cell/table/{stored_table.shard_name(first)}"
        [region] = stored_table.regions(root, lambda _: znodes.get(path))
        znodes.delete(path)
        znodes.delete("/cell/table")
        znodes.create("/cell/table", root)
        znodes.create(path, stored_table.shard(first, version, [{**region, "server": "another", "epoch": region["epoch"] + 1}]))
        znodes.set("/cell/table", root)  # Now it is complete.
        log = self.directory / "cell" / "server-0.log"
        deadline = time.monotonic() + 30
        while "is no longer served here" not in log.read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertIn("is no longer served here", log.read_text())

    def test_a_table_that_was_written_from_an_older_copy_is_not_used(self):
        zookeeper = self.ensemble(1)
        self.up(zookeeper, servers=2, durability="sync")
        self.assertEqual(self.ctl("put", "key", "value").returncode, 0)
        znodes = self.znodes(zookeeper)

        def copy():
            root = znodes.get("/cell/table")
            return {**{path: znodes.get(path) for path in (f"/cell/table/{stored_table.shard_name(first)}" for first, _ in json.loads(root)["shards"])},
                    "/cell/table": root}

        def write(znodes_of_a_table):
            for path, data in znodes_of_a_table.items():
                znodes.set(path, data)

        older = copy()
        [region] = [json.loads(line) for line in self.ctl("-o", "json", "regions").stdout.splitlines()]
        owner, other = region["server"], "server-1" if region["server"] == "server-0" else "server-0"
        for server in (other, owner, other):
            moved = self.ctl("move", str(region["region"]), server)
            self.assertEqual(moved.returncode, 0, moved.stderr)
        newest = copy()
        versions = [json.loads(table["/cell/table"])["version"] for table in (older, newest)]
        write(older)
        logs = [self.directory / "cell" / f"server-{i}.log" for i in range(2)]
        said = f"it has version {versions[0]}, but had version {versions[1]} before"
        deadline = time.monotonic() + 30
        while not all(said in log.read_text() for log in logs) and time.monotonic() < deadline:
            time.sleep(0.1)
        for log in logs:
            self.assertIn(said, log.read_text())
        write(newest)
        self.assertEqual(self.ctl("get", "key").stdout, "value")
        moved = self.ctl("move", str(region["region"]), owner)
        self.assertEqual(moved.returncode, 0, moved.stderr)
        self.assertEqual(self.ctl("get", "key").stdout, "value")

    def test_a_cluster_of_the_release_before_is_converted(self):
        zookeeper = self.ensemble(1)
        self.up(zookeeper, servers=2, durability="sync")
        lines = "".join(f"key{i:06}\t{'v' * 500}\n" for i in range(12_000))
        self.assertEqual(self.ctl("load", "-", input=lines).returncode, 0)
        cluster.end(self.servers)
        znodes = self.znodes(zookeeper)
        table = json.loads(znodes.get("/cell/table"))
        paths = {first: f"/cell/table/{stored_table.shard_name(first)}" for first, _ in table["shards"]}
        table["regions"] = stored_table.regions(json.dumps(table), lambda first: znodes.get(paths[first]))
        self.assertGreater(len(table["regions"]), 1)
        del table["shards"]
        constants = json.loads(znodes.get("/cell"))
        znodes.set("/cell", json.dumps({**constants, "format": 2}).encode())
        znodes.set("/cell/table", json.dumps(table).encode())
        for path in paths.values():
            znodes.delete(path)

        self.assertIn("the cluster has format 2, but this program reads format 3: stop all its servers, and start them with this "
                      "release", self.ctl("get", "key000001").stderr)
        znodes.create("/cell/workers/server-9.0", b"{}")
        with self.assertRaises(cluster_directory.ClusterError):
            cluster.up(self.directory / "cell")
        # The first server that is refused ends the other.
        logs = "".join((self.directory / "cell" / f"server-{i}.log").read_text() for i in range(2))
        self.assertIn("is of an earlier release, and has running servers: stop them first", logs)
        znodes.delete("/cell/workers/server-9.0")
        self.servers = cluster.up(self.directory / "cell")
        self.assertEqual(len(self.ctl("scan", "--keys-only").stdout.splitlines()), 12_000)
        self.assertEqual(json.loads(znodes.get("/cell")), constants)
        self.assertIn("shards", json.loads(znodes.get("/cell/table")))

    def test_a_region_that_cannot_move_says_why(self):
        self.address = f"zk://{self.ensemble(1)}/cell"
        for name in ("one", "two"):  # Each with logs of its own.
            self.server(name, "--log-dir", str(self.directory / f"log-{name}"))
            self.wait_for(1 if name == "one" else 2)
        lines = "".join(f"key{i:06}\t{'v' * 200}\n" for i in range(40_000))
        self.assertEqual(self.ctl("load", "-", input=lines).returncode, 0)
        deadline = time.monotonic() + 20
        refused = ""
        while "--log-store" not in refused and time.monotonic() < deadline:
            regions = [json.loads(line) for line in self.ctl("-o", "json", "regions").stdout.splitlines()]
            refused = self.ctl("move", str(next(r["region"] for r in regions if r["tier"] == 0)), "two").stderr
        self.assertIn("two.0 did not accept region", refused)
        self.assertIn("all servers must use the same --log-store", refused)
        time.sleep(3)  # Balancing is retried several times meanwhile.
        told = (self.directory / "one" / "log.txt").read_text() + (self.directory / "two" / "log.txt").read_text()
        self.assertLessEqual(told.count("was not migrated here from"), 1, told)
        self.assertLessEqual(told.count("could not be migrated to"), 1, told)

    def test_a_cluster_is_wiped_when_all_servers_have_ended(self):
        self.address = f"zk://{self.ensemble(1)}/cell"
        logs = str(self.directory / "logs")
        flags = ("--log-dir", logs, "--durability", "sync")
        one, two = self.server("one", *flags), self.server("two", *flags)
        self.wait_for(2)
        self.assertEqual(self.ctl("put", "key", "value").returncode, 0)
        self.assertIn("is a member", self.wipe("--confirm", "cell").stderr)
        cluster.end([one])
        self.assertIn("two is a member", self.wipe("--confirm", "cell", "--log-dir", logs).stderr)
        # A server that a supervisor restarts from its configuration brings the cluster back, and deletes nothing.
        cluster.end([two])
        one = self.server("one", *flags)
        self.wait_for(1)
        self.assertEqual(self.ctl("get", "key").stdout, "value")

        one.send_signal(signal.SIGSTOP)  # Until its session has expired; it may come back.
        deadline = time.monotonic() + 30
        done = self.wipe("--confirm", "cell", "--log-dir", logs)
        while done.returncode != 0 and time.monotonic() < deadline:
            self.assertIn("is a member", done.stderr)
            time.sleep(0.2)
            done = self.wipe("--confirm", "cell", "--log-dir", logs)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the region table: 1 regions", done.stdout)
        self.assertEqual(self.wipe("--confirm", "cell").returncode, 1)
        two = self.server("two", *flags)  # Another cluster of that name.
        self.wait_for(1)
        self.assertEqual(self.ctl("put", "key", "another").returncode, 0)
        one.send_signal(signal.SIGCONT)
        told = self.directory / "one" / "log.txt"
        while "a new one has its name" not in told.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        self.assertIn("a new one has its name", told.read_text())
        self.assertEqual(self.ctl("get", "key").stdout, "another")
        self.wait_for(1)

    def test_a_first_start_that_fails_leaves_nothing_in_zookeeper(self):
        zookeeper = self.ensemble(1)
        with self.assertRaisesRegex(cluster.ClusterError, "ended with status 2"):
            self.up(zookeeper, servers=2, durability="sync", node_bytes=512, flags_of={"server-1": ["--node-bytes", "4096"]})
        self.assertFalse((self.directory / "cell").exists())
        self.up(zookeeper, servers=1, durability="sync")
        self.assertEqual(self.ctl("put", "key", "value").returncode, 0)
        # A server that fails to join an existing cluster leaves it unchanged.
        with self.assertRaisesRegex(cluster.ClusterError, "ended with status 2"):
            cluster.up(self.directory / "joins", zookeeper=zookeeper, node_bytes=512)
        self.assertFalse((self.directory / "joins").exists())
        self.assertEqual(self.ctl("get", "key").stdout, "value")

    def test_strangers_are_refused(self):
        os.environ["CELL_ZOOKEEPER_DIGEST"] = "cell:secret"
        self.up(self.ensemble(1), servers=1)
        self.assertEqual(self.ctl("put", "key", "value").returncode, 0)
        flags = ["--cluster", self.address, "--dir", str(self.directory / "cell")]
        other = subprocess.run([cluster.binary("cell/cmd/cell_server"), *flags, "--name", "other", "--node-bytes", "512"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        self.assertEqual(other.returncode, 2)
        self.assertIn("was started with different constants from those of the cluster cell: --node-bytes 512 (the cluster has 1024), ", other.stderr)
        del os.environ["CELL_ZOOKEEPER_DIGEST"]
        self.assertIn("not authenticated", self.ctl("get", "key").stderr)
        self.readers_only_read()
        os.environ["CELL_ZOOKEEPER_DIGEST"] = "cell:secret"
        nowhere = self.ctl("get", "key", address=self.address + "-not-there")
        self.assertEqual(nowhere.returncode, 2)
        self.assertIn("no cluster cell-not-there", nowhere.stderr)
        self.assertIn("is not zk://", self.ctl("get", "key", address="zk://x").stderr)

    def readers_only_read(self):
        servers, reader = self.directory / "servers-digest", self.directory / "reader-digest"
        servers.write_text("cell:secret\n")
        servers.chmod(0o600)
        subprocess.run([cluster.binary("tools/cellctl"), "secret", "reader", servers, reader], check=True)
        self.assertEqual(reader.stat().st_mode & 0o777, 0o600)
        self.assertEqual(self.ctl("--zookeeper-digest-file", reader, "get", "key").stdout, "value")
        self.assertEqual(self.ctl("--zookeeper-digest-file", reader, "put", "key", "value 2").returncode, 0)  # A server writes it.
        znodes = ZnodeClient(self.address.removeprefix("zk://").split("/")[0])
        self.addCleanup(znodes.close)
        with self.assertRaises(ZnodeError):
            znodes.get("/cell/table")
        znodes.authenticate(reader.read_text().strip())
        table = znodes.get("/cell/table")
        self.assertIn(b"shards", table)
        for change in (lambda: znodes.set("/cell/table", table), lambda: znodes.create("/cell/workers/server-9.0", b"{}"),
                       lambda: znodes.delete("/cell/table"), lambda: znodes.set("/cell", b"{}")):
            with self.assertRaisesRegex(ZnodeError, "-102"):
                change()


if __name__ == "__main__":
    unittest.main()
