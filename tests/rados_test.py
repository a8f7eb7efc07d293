"""Tests clusters whose logs are in a pool of Ceph RADOS, with a real Ceph: one monitor and three OSDs on loopback.

Servers, OSDs and the monitor are killed, stopped and started again; the pool is full for a while; objects are damaged by
hand; and what is wrong with a pool is said in seconds.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
import unittest
import unittest.mock
from pathlib import Path

from tests.rados_case import SMALL, RadosCase
from tools import cluster, cluster_directory, cluster_down

KEYS = 15_000

# How somebody may damage the log of a region: the object that is damaged, what the command `rados` does to it, and what
# the server says.
DAMAGES = (
    ("head", "rm {head}", "its log was not found"),
    ("head", "setxattr {head} epoch newest", "object {head}: it is damaged: its attribute"),
    ("head", "rmxattr {head} epoch", "object {head}: it is damaged: its attribute"),
    ("head", "setomapval {head} {part} many", 'the object {head} of the log store is damaged: its entry "{part}"'),
    ("head", "setomapval {head} {part} '4294967295 {nonce}'", 'the object {head} of the log store is damaged: its entry "{part}"'),
    ("head", "setomapval {head} {part} '65536 {nonce}'", "{first} of the log store is damaged: it has"),
    ("head", "setomapval {head} something else", 'the object {head} of the log store is damaged: its entry "something"'),
    ("first", "rm {first}", "{first} is missing"),
    ("last", "rm {last}", "{last} is missing"),
    ("first", "truncate {first} 1000", "{head}/{part}", "is damaged at offset"),
    ("last", "truncate {last} 10", "{head}/", "is damaged at offset"),
    ("first", "put {first} {garbage} --offset 1000", "{head}/{part}", "is damaged at offset"),
    ("last", "put {last} {garbage}", "{head}/", "is damaged at offset"),
    ("last", "setxattr {last} epoch newest", "{last} of the log store is damaged: its epoch"),
)


class Rados(RadosCase):
    def up_again(self):
        cluster_down.down(self.directory)
        for process in self.servers:
            process.wait(30)
        self.servers = cluster.up(self.directory, **self.options)

    def start_again(self, server):
        flags = ["--log-store", self.place, "--takeover-after", "0.5"]
        self.servers[server] = cluster.start_server(self.directory, f"server-{server}", flags)
        cluster_directory.write_processes(self.directory, self.servers)

    def load(self, prefix="key", keys=KEYS):
        lines = sorted(f"{prefix}{i * 7919 % 1000003:07}\t{i} {'v' * 100}" for i in range(keys))
        self.done("load", "-", input="\n".join(lines) + "\n")
        return "\n".join(lines) + "\n"

    def test_the_stores_promises(self):
        """The tests of every object store and every log store, on RADOS."""
        self.ceph.ceph("osd", "pool", "create", "unit", 8, 8, "replicated")
        environment = {**os.environ, "CELL_TEST_CEPH_CONF": str(self.ceph.conf), "CELL_TEST_CEPH_POOL": "unit"}
        ran = subprocess.run([cluster.binary("cell/io/object/rados_object_store_test"), "--gtest_color=no"], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, check=False, env=environment, timeout=120)
        self.assertEqual(ran.returncode, 0, ran.stdout[-3000:])
        self.assertNotIn("SKIPPED", ran.stdout)
        self.assertGreaterEqual(int(re.search(r"\[  PASSED  \] (\d+) tests", ran.stdout)[1]), 20)

    def test_servers_osds_and_the_monitor_die(self):
        self.up(server_flags=["--takeover-after", "0.5"])
        loaded = self.load()
        # A server dies, and its machine's OSD with it.
        root = int(self.done("regions").split("\n")[1].split()[0].removeprefix("server-"))
        self.servers[root].kill()
        self.servers[root].wait()
        self.ceph.end("osd.0", signal.SIGKILL)
        self.assertEqual(self.done("scan", "--timeout", "60"), loaded)
        self.done("put", "a", "after the takeover", "--timeout", "60")
        loaded = "a\tafter the takeover\n" + loaded
        self.start_again(root)
        self.ceph.start("osd.0")
        # The monitor stands still. The OSDs need it only when one of them is gone.
        self.ceph.processes["mon.a"].send_signal(signal.SIGSTOP)
        self.done("put", "b", "without the monitor", "--timeout", "60")
        self.ceph.processes["mon.a"].send_signal(signal.SIGCONT)
        loaded = loaded.replace("\nkey", "\nb\twithout the monitor\nkey", 1)
        self.assertEqual(self.done("scan", "--timeout", "60"), loaded)
        self.assertIn("no errors", self.done("check"))
        # All of it ends, and comes back from the pool.
        for process in self.servers:
            process.kill()
            process.wait()
        self.up_again()
        self.assertEqual(self.done("scan", "--timeout", "60"), loaded)
        self.assertIn("no errors", self.done("check"))

    def test_a_stopped_owner_adds_nothing(self):
        """A server stands still, the other takes over, and it goes on: what it still had to write is refused."""
        self.up(servers=2, zookeeper="start", server_flags=["--takeover-after", "0.5"])
        loaded = self.load(keys=3000)
        root = int(self.done("regions").split("\n")[1].split()[0].removeprefix("server-"))
        self.servers[root].send_signal(signal.SIGSTOP)
        self.done("put", "a", "by the other", "--timeout", "60")
        self.servers[root].send_signal(signal.SIGCONT)
        self.done("put", "a", "by the other, again", "--timeout", "60")
        self.assertEqual(self.done("scan", "--timeout", "60"), "a\tby the other, again\n" + loaded)
        self.assertIn("no errors", self.done("check"))

    def test_checkpoints_trim_the_log(self):
        self.up(servers=1)
        for i in range(3):
            loaded = self.load(keys=3000)
            self.done("checkpoint")
        names = self.objects()
        self.assertTrue([name for name in names if ".checkpoint." in name], names)
        regions = {name.split("/")[0] for name in names if name.startswith("region-")}
        self.assertLessEqual(len(names), 4 * len(regions) + 1, names)  # A head, a checkpoint, a segment; the claim.
        self.servers[0].kill()
        self.servers[0].wait()
        self.up_again()
        self.assertEqual(self.done("scan", "--timeout", "60"), loaded)

    def test_a_full_pool(self):
        """Writes fail while the pool is full, reads go on, and nothing that was acknowledged is lost."""
        self.up(servers=1)
        loaded = self.load(keys=2000)
        with self.full_pool():
            deadline = time.monotonic() + 60
            refused = self.ctl("put", "refused", "x", "--timeout", "3")
            while refused.returncode == 0 and time.monotonic() < deadline:  # The OSDs notice it after some seconds.
                refused = self.ctl("put", "refused", "x", "--timeout", "3")
            self.assertNotEqual(refused.returncode, 0)
            key, value = loaded.splitlines()[0].split("\t")
            self.assertEqual(self.done("get", key), value)
            self.assertIn("the pool is full", (self.directory / "server-0.log").read_text())
        self.done("put", "later", "y", "--timeout", "60")
        left = [line for line in self.done("scan").splitlines(keepends=True) if not line.startswith("refused\t")]
        self.assertEqual("".join(left), loaded + "later\ty\n")
        self.ctl("del", "refused")

    def refused(self, place, **options):
        began = time.monotonic()
        with self.assertRaises(cluster.ClusterError) as raised:
            cluster.up(self.directory, **{**SMALL, "servers": 1, "log_store": place, **options})
        self.assertLess(time.monotonic() - began, 120)  # Nothing hangs. Librados gives up after 15 s, on a busy machine later.
        self.assertFalse((self.directory / "up.json").exists())  # Nothing is left.
        return str(raised.exception)

    def test_what_is_wrong_is_said(self):
        self.assertIn("has no pool other (ceph osd pool create other)", self.refused(f"rados:other@{self.ceph.conf}"))
        for configuration, said in self.wrong_configurations():
            self.assertIn(said, self.refused(f"rados:cell{configuration}"))

    def test_the_configuration_of_a_new_cluster_stays_its_own(self):
        """It came from the environment, which is another one when the cluster comes up again."""
        with unittest.mock.patch.dict(os.environ, CEPH_CONF=str(self.ceph.conf)):
            self.place = "rados:cell"
            self.up(servers=1)
            self.done("put", "a", "1")
            self.assertEqual(cluster.settings_of(self.directory)["log_store"], f"rados:cell@{self.ceph.conf}")
            cluster_down.down(self.directory)
            self.up(servers=1)  # The same place, once more.
        cluster_down.down(self.directory)
        self.servers[0].wait(30)
        self.servers = cluster.up(self.directory)
        self.assertEqual(self.done("get", "a"), "1")
        self.assertFalse((self.directory / "ceph").exists())

    def test_what_has_ended_of_a_ceph_of_its_own_is_started(self):
        """So are its servers, and what runs goes on."""
        without = {name: value for name, value in os.environ.items() if name != "CEPH_CONF"}
        with unittest.mock.patch.dict(os.environ, without, clear=True):
            if Path("/etc/ceph/ceph.conf").exists():
                self.skipTest("this machine has a Ceph, so none is started")
            self.place = "rados:cell"
            self.up(servers=1)
            self.done("put", "a", "1")
            daemons = {p["daemon"]: p["pid"] for p in cluster_directory.running(self.directory) if "daemon" in p}
            self.assertEqual(sorted(daemons), ["mon.a", "osd.0"])
            for ends in ((), ("mon.a",), ("osd.0",)):
                self.servers[0].kill()
                self.servers[0].wait()
                for name in ends:
                    os.kill(daemons[name], signal.SIGKILL)
                    os.waitpid(daemons[name], 0)
                self.servers = cluster.up(self.directory)
                self.assertEqual(self.done("get", "a", "--timeout", "60"), "1")
                now = {p["daemon"]: p["pid"] for p in cluster_directory.running(self.directory) if "daemon" in p}
                self.assertEqual({name for name in daemons if now[name] != daemons[name]}, set(ends))
                daemons = now
            # A Ceph that is lost is not replaced by an empty one.
            cluster_down.down(self.directory)
            (self.directory / "ceph").rename(self.directory / "elsewhere")
            with self.assertRaisesRegex(cluster.ClusterError, "cannot read the Ceph configuration"):
                cluster.up(self.directory)
            self.assertFalse((self.directory / "ceph").exists())
            (self.directory / "elsewhere").rename(self.directory / "ceph")
            self.servers = cluster.up(self.directory)
            self.assertEqual(self.done("get", "a", "--timeout", "60"), "1")

    def test_a_user_with_the_right_to_this_pool_alone(self):
        """The user that durability.md describes; and one that may only read."""
        for user, may in (("cell", "rw"), ("reader", "r")):
            keyring = Path(self.temporary.name) / f"{user}.keyring"
            self.ceph.ceph("auth", "get-or-create", f"client.{user}", "mon", "allow r", "osd", f"allow {may} pool=cell", "-o", keyring)
            conf = Path(self.temporary.name) / f"{user}.conf"
            conf.write_text(self.ceph.conf.read_text().replace(f"keyring = {self.ceph.directory}/keyring", f"keyring = {keyring}"))
        self.place = f"rados:cell@{self.temporary.name}/cell.conf?user=cell"
        self.up(servers=1)
        loaded = self.load(keys=2000)
        self.done("checkpoint")
        self.up_again()
        self.assertEqual(self.done("scan", "--timeout", "60"), loaded)
        cluster_down.down(self.directory)
        cluster.wipe(self.directory)
        self.assertIn("does this client have the capability", self.refused(f"rados:cell@{self.temporary.name}/reader.conf?user=reader"))

    def test_a_pool_belongs_to_one_cluster(self):
        self.up(servers=1)
        self.done("put", "a", "1")
        first = self.directory
        self.directory = Path(tempfile.mkdtemp(prefix="cluster-", dir=self.temporary.name))
        try:
            self.assertRegex(self.refused(self.place), r"the pool cell has the logs of cluster [0-9a-f-]+, but this is cluster")
        finally:
            self.directory = first
        self.assertEqual(self.done("get", "a"), "1")

    def test_all_osds_are_silent_for_a_while(self):
        """Writes wait for them, reads do not, and no acknowledged write is lost."""
        self.up(server_flags=["--takeover-after", "0.5"])
        loaded = self.load(keys=2000)
        key, value = loaded.splitlines()[0].split("\t")
        self.done("hash", "create", "slots", "--layout", "slots")
        writer = self.write(16)
        time.sleep(3)
        osds = [process for name, process in self.ceph.processes.items() if name.startswith("osd.")]
        for process in osds:
            process.send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        try:
            self.assertEqual(self.done("get", key, "--timeout", "3"), value)
            self.assertNotEqual(self.ctl("put", "waits", "x", "--timeout", "3").returncode, 0)
            self.assertEqual(self.done("get", key, "--timeout", "3"), value)
            # A server gives an operation up after 15 s, and on a busy machine the OSDs take some time to go on.
            time.sleep(max(0, begin + 7 - time.monotonic()))
        finally:
            for process in osds:
                process.send_signal(signal.SIGCONT)
        self.done("put", "a", "afterwards", "--timeout", "30")
        said = writer.communicate(timeout=60)[0]
        self.assertEqual(writer.returncode, 0, said)
        self.assertGreater(int(re.search(r"(\d+) writes acknowledged", said)[1]), 100)
        self.assertEqual([process.poll() for process in self.servers], [None] * 3)
        for process in self.servers:
            process.kill()
            process.wait()
        self.up_again()
        again = self.write(0.1)
        said = again.communicate(timeout=60)[0]
        self.assertEqual(again.returncode, 0, said)
        self.assertIn("verified; 0 keys lost their last write", said)
        self.assertEqual(self.done("get", "a"), "afterwards")

    def write(self, seconds):
        """Starts a writer, which first checks that everything is there that former ones had acknowledged."""
        command = [cluster.binary("tests/crash_writer"), "--cluster", cluster_directory.address_of(self.directory), "--state",
                   str(self.directory.with_suffix(".written")), "--seconds", str(seconds), "--tables", "slots"]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=cluster.environment(self.directory))

    def regions_at_rest(self):
        """Waits until no region is being split. Returns the tier of each."""
        before, regions = None, []
        deadline = time.monotonic() + 30
        while regions != before or any(region["busy"] for region in regions):
            self.assertLess(time.monotonic(), deadline, regions)
            time.sleep(0.4)
            before, regions = regions, [json.loads(line) for line in self.done("-o", "json", "regions").splitlines()]
        return {region["region"]: region["tier"] for region in regions}

    def copy_of(self, name):
        """Returns the commands that restore an object, which may be the head of a log."""
        directory = Path(tempfile.mkdtemp(prefix="copy-", dir=self.temporary.name))
        self.rados("get", name, directory / "bytes")
        commands = [("rm", name), ("put", name, directory / "bytes"), ("setxattr", name, "epoch", self.rados("getxattr", name, "epoch").strip())]
        for number, key in enumerate(self.rados("listomapkeys", name).split()):
            self.rados("getomapval", name, key, directory / f"{number}")
            commands.append(("setomapval", name, key, "--input-file", directory / f"{number}"))
        return commands

    def test_damage_stops_its_region_alone(self):
        """Somebody has used the command `rados` on objects of some regions. Then they are put back."""
        self.up(servers=1, meganode_bytes=64 << 10, extents_bytes=128 << 10)
        loaded = self.load(keys=4000)
        self.up_again()  # Now each region has two segments.
        self.done("put", "a", "1")
        loaded = "a\t1\n" + loaded
        regions = self.regions_at_rest()
        victims = [region for region, tier in sorted(regions.items()) if tier == 0][1:]  # The first may be the root.
        cluster_down.down(self.directory)
        self.servers[0].wait(30)
        garbage = Path(self.temporary.name) / "garbage"
        garbage.write_bytes(os.urandom(3000))
        objects, expected, undo = self.objects(), {}, []
        for target, command, *said in DAMAGES:
            region = victims.pop(0)
            names = {"head": f"region-{region}", "garbage": garbage}
            names["first"], names["last"] = sorted(name for name in objects if name.startswith(f"{names['head']}/") and ".log." in name)
            names["part"], names["nonce"], _ = names["first"].split("/")[1].rsplit(".", 2)
            undo += self.copy_of(names[target])
            self.rados(*(word.format(**names) for word in shlex.split(command)))
            expected[region] = [text.format(**names) for text in said]
        before = (self.directory / "server-0.log").stat().st_size
        self.start_again(0)  # `up` would end it, because it does not serve all regions.
        deadline = time.monotonic() + 30
        while True:
            log = (self.directory / "server-0.log").read_bytes()[before:].decode()
            recovered = {int(region) for region in re.findall(r"region (\d+) is recovered", log)}
            lines = {region: re.findall(rf"\[error\] (?:.*)region {region} cannot be recovered: (.*)", log) for region in expected}
            if recovered == regions.keys() - expected.keys() and all(lines.values()):
                break
            self.assertLess(time.monotonic(), deadline, f"recovered {sorted(recovered)} of {sorted(regions)}; {lines}\n{log}")
            time.sleep(0.2)
        for region, texts in expected.items():
            for text in texts:
                self.assertIn(text, lines[region][0])
        self.assertEqual(self.done("get", "a"), "1")  # Of a region that is whole.
        cluster_down.down(self.directory)
        self.servers[0].wait(30)
        for command in undo:
            self.rados(*command, check=command[0] != "rm")
        self.servers = cluster.up(self.directory, **self.options)
        self.assertEqual(self.done("scan", "--timeout", "60"), loaded)
        self.assertIn("no errors", self.done("check"))
        cluster_down.down(self.directory)
        self.servers[0].wait(30)
        self.rados("setomapval", next(name for name in self.objects() if re.fullmatch(r"region-\d+", name)), "something", "else")
        # wipe, which tearDown calls, removes it all.


if __name__ == "__main__":
    unittest.main()
