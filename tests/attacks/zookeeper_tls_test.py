"""ZooKeeper through TLS by stunnel, as docs/operations/security.md describes it: with the commands and configurations of
that page, in which only directories, hosts and ports are replaced.

Members --- stunnel ---> wire ---> stunnel ---> plain ---> ZooKeeper. Both `wire` and `plain` are relays that record what
passes: what must not be seen on the wire is looked for at the other one, too, where it has to be.
"""

import base64
import contextlib
import json
import os
import re
import shlex
import signal
import socket
import ssl
import statistics
import struct
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from tests.attacks.recording_relay import RecordingRelay
from tests.attacks.znode_client import ZnodeClient, ZnodeError
from tools import cluster, free_ports, zookeeper_server

PAGE = "docs/operations/security.md"
SECTION = "## On a network that you do not trust"
SMALL = ["--meganode-bytes", str(1 << 20), "--extents-bytes", str(4 << 20), "--regions-max", "64", "--durability", "sync"]
STUNNEL = "/usr/bin/stunnel4"
PATIENCE_S = 60
SESSIONS, READS = 100, 1000  # Measured ones.
PAIRS = 20_000  # More than one region may have.
# What a client of ZooKeeper sends first: protocol version, last transaction, timeout, session and its password.
GREETING = struct.pack(">iiqiqi", 45, 0, 0, 4000, 0, 16) + bytes(16) + b"\0"


def block_of_the_page(mark):
    """Returns the fenced block of the section that has this text."""
    section = Path(cluster.binary(PAGE)).read_text(encoding="utf-8").split(f"\n{SECTION}\n", 1)[1].split("\n## ", 1)[0]
    [found] = [block for block in re.findall(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL) if mark in block]
    return found


def replaced(text, *pairs):
    """Replaces texts of the page, all of which must be there, in this order. Arguments: (old, new)."""
    for old, new in pairs:
        assert old in text, f"{old} is not in {text}"
        text = text.replace(old, str(new))
    return text


def port_of(setting, block):
    return int(re.search(rf"^{setting} = .*:(\d+)$", block, re.MULTILINE)[1])


def listens(port):
    return subprocess.run(["ss", "-Hltn", f"sport = :{port}"], stdout=subprocess.PIPE, check=True).stdout != b""


def addresses_of(pids):
    """Returns the addresses of all TCP and UDP sockets at which these processes listen."""
    shown = subprocess.run(["ss", "-Hlntup"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return {line.split()[4] for line in shown.splitlines() if {int(pid) for pid in re.findall(r"pid=(\d+)", line)} & pids}


def group_of(leader):
    """Returns the ids of the processes of a process group."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # It has ended.
            if os.getpgid(int(path.name)) == leader:
                found.add(int(path.name))
    return found


def passes(port):
    """Returns whether ZooKeeper begins a session with who connects to this port."""
    try:
        ZnodeClient(f"127.0.0.1:{port}").close()
    except (ZnodeError, OSError):
        return False
    return True


def milliseconds(port):
    """Returns the medians of what it takes to begin a session, and to read a znode."""
    sessions, reads = [], []
    for _ in range(SESSIONS):
        begin = time.perf_counter()
        client = ZnodeClient(f"127.0.0.1:{port}")
        sessions.append(time.perf_counter() - begin)
        for _ in range(READS // SESSIONS):
            begin = time.perf_counter()
            client.get("/zookeeper")
            reads.append(time.perf_counter() - begin)
        client.close()
    return statistics.median(sessions) * 1e3, statistics.median(reads) * 1e3


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_kb(pid):
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0])


class Tunnel:
    """A stunnel with a configuration of the page."""

    def __init__(self, directory, name, text, port):
        self._file, self.port = directory / f"{name}.conf", port
        self._file.write_text(text)
        self.log = directory / f"{name}.log"
        self.process = None
        self.start()

    def start(self, prefix=()):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen([*prefix, STUNNEL, str(self._file)], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        deadline = time.monotonic() + PATIENCE_S
        while not listens(self.port):
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def connections(self):
        """Returns the local ports of its open connections."""
        shown = subprocess.run(["ss", "-Htnp", "state", "established"], stdout=subprocess.PIPE, text=True, check=True).stdout
        return {line.split()[2].rsplit(":", 1)[1] for line in shown.splitlines() if f"pid={self.process.pid}," in line}


class Impostor:
    """A TLS server with a certificate of its own choice, which keeps what it is sent."""

    def __init__(self, certificate):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.with_suffix(".pem"), certificate.with_suffix(".key"))
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.told = b""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        connection, _ = self._listener.accept()
        try:
            with self._context.wrap_socket(connection, server_side=True) as tls:
                tls.settimeout(PATIENCE_S)
                self.told = tls.recv(1 << 16)
        except OSError:
            pass

    def end(self):
        """Waits until it has been told something, or the connection has ended."""
        self._thread.join(PATIENCE_S)
        self._listener.close()
        return self.told


class ZooKeeperByTls(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="cell-tls-")
        self.addCleanup(temporary.cleanup)
        self.directory = Path(temporary.name)
        self.servers = {}
        self.certificates = self.certify("certificates")

        self.zookeeper_port, tls_port = free_ports.free_ports(2)
        settings = replaced(block_of_the_page("dataDir="), ("/var/lib/zookeeper", self.directory / "zookeeper"),
                            ("clientPort=2181", f"clientPort={self.zookeeper_port}"))
        self.zookeeper = zookeeper_server.run_zookeeper(self.directory / "zookeeper", [settings])
        self.addCleanup(self.end_zookeeper)
        self.wait_until("ZooKeeper", lambda: passes(self.zookeeper_port))

        self.plain = self.relay(self.zookeeper_port)
        self.gate = self.tunnel("zookeeper", replaced(
            block_of_the_page("stunnel/zookeeper.conf on ZooKeeper's machine"), ("/etc/cell", self.certificates),
            ("accept = 10.0.0.9:2281", f"accept = 127.0.0.1:{tls_port}"),
            ("connect = 127.0.0.1:2181", f"connect = 127.0.0.1:{self.plain.port}")), tls_port)
        self.wire = self.relay(tls_port)

    def tearDown(self):
        cluster.end(self.servers.values())

    def end_zookeeper(self):
        os.killpg(self.zookeeper.pid, signal.SIGKILL)
        self.zookeeper.wait()

    def relay(self, port):
        relay = RecordingRelay(port)
        self.addCleanup(relay.close)
        return relay

    def certify(self, name):
        """Makes an authority, certificates and passwords in a new directory, by the commands of the page."""
        directory = self.directory / name
        directory.mkdir()
        self.run_commands(directory, block_of_the_page("certify()") + "certify server-1 URI:cell://server/server-1\n")
        return directory

    def certify_again(self, name, names, days=90):
        """Replaces a certificate of the authority that is there."""
        block = block_of_the_page("certify()")
        function = block[block.index("certify()"):block.index("\n}\n") + 3]
        self.run_commands(self.certificates, replaced(function, ("-days 90", f"-days {days}")) + f"umask 077\ncertify {name} {names}\n")

    def run_commands(self, directory, commands):
        path = Path(cluster.binary("tools/cellctl")).parent
        done = subprocess.run(["bash", "-e", "-c", commands], cwd=directory, env={**os.environ, "PATH": f"{path}:{os.environ['PATH']}"},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)

    def tunnel(self, name, text, port):
        tunnel = Tunnel(self.directory, name, text, port)
        self.addCleanup(tunnel.kill)
        return tunnel

    def member_tunnel(self, name, to_port=None, certificate=None):
        """Starts the tunnel of a member, with the configuration of the page."""
        [port] = free_ports.free_ports(1)
        return self.tunnel(name, replaced(
            block_of_the_page("client = yes"), ("/etc/cell/server-0", f"/etc/cell/{certificate or name}"), ("/etc/cell", self.certificates),
            ("accept = 127.0.0.1:281\n", f"accept = 127.0.0.1:{port}\n"),
            ("connect = zookeeper.example:2281", f"connect = 127.0.0.1:{to_port or self.wire.port}")), port)

    def command_of_the_page(self, program, path, tunnel):
        command = block_of_the_page(f"{program} --cluster zk:").replace("\\\n", " ")
        words = shlex.split(replaced(command, ("zk://127.0.0.1:281/", f"zk://127.0.0.1:{tunnel.port}/"),
                                     ("/etc/cell", self.certificates)))
        return [cluster.binary(path), *words[1:]]

    def server(self, name, tunnel):
        words = self.command_of_the_page("cell_server", "cell/cmd/cell_server", tunnel)
        text = replaced("\n".join(words), ("server-0", name), ("/run/cell", self.directory / name), ("10.0.0.1:7000", "127.0.0.1"),
                        ("/mnt/cell-logs", self.directory / "logs"))
        with open(self.directory / f"{name}.out", "ab") as log:
            self.servers[name] = subprocess.Popen([*text.split("\n"), *SMALL], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def up(self):
        """Starts two servers and the tunnels of both and of a client."""
        self.tunnels = {name: self.member_tunnel(name) for name in ("server-0", "server-1", "shop")}
        for count, name in enumerate(("server-0", "server-1"), 1):
            self.server(name, self.tunnels[name])
            self.wait_for(count)

    def ctl(self, *arguments, **options):
        """The client of the page, through the tunnel and by TCP."""
        words = self.command_of_the_page("cellctl", "tools/cellctl", self.tunnels["shop"])
        self.assertEqual(words[-3:], ["put", "greeting", "hello"])
        return subprocess.run([*words[:-3], "--fabric", "tcp", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=100, check=False, **options)

    def operate(self, *arguments):
        """The operator on the machine of a server, who uses its tunnel and the control plane's Unix socket."""
        return subprocess.run([cluster.binary("tools/cellctl"), "--cluster", f"zk://127.0.0.1:{self.tunnels['server-1'].port}/cell",
                               "--zookeeper-digest-file", self.certificates / "digest", *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=100, check=False)

    def done(self, *arguments, **options):
        ran = self.ctl(*arguments, **options)
        self.assertEqual(ran.returncode, 0, ran.stderr + self.logs())
        return ran.stdout

    def log(self, name):
        return (self.directory / f"{name}.out").read_text()

    def logs(self):
        return "".join(f"\n{name}: {self.log(name)[-2000:]}" for name in self.servers)

    def status(self):
        return [json.loads(line) for line in self.ctl("-o", "json", "status").stdout.splitlines()]

    def wait_until(self, what, holds):
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            self.assertTrue(all(server.poll() is None for server in self.servers.values()), f"a server has ended{self.logs()}")
            self.assertLess(time.monotonic(), deadline, f"{what}: it does not come about{self.logs()}")
            time.sleep(0.1)

    def wait_for(self, count):
        self.wait_until(f"{count} servers", lambda: sum("error" not in one for one in self.status()) == count)

    def regions(self):
        return [json.loads(line) for line in self.operate("-o", "json", "regions").stdout.splitlines()]

    def load(self):
        """Loads pairs until regions have been split and are on both servers. Returns them as `scan` prints them."""
        lines = "".join(f"shelf/{i:06}\t{'v' * 200}\n" for i in range(PAIRS))
        self.done("load", "-", input=lines)
        self.wait_until("regions on both servers", lambda: {one["server"] for one in self.regions() if one["tier"] == 0} == {"server-0", "server-1"})
        return lines

    def test_servers_and_clients_work_through_it_and_the_wire_shows_nothing(self):
        self.up()
        self.assertEqual(self.done("put", "greeting", "hello"), "")
        self.assertEqual(self.done("get", "greeting"), "hello")
        pairs = self.load()
        table = self.operate("hash", "create", "prices")
        grant = self.operate("grant", "shop", "read,scan,write", "--prefix", "shelf/")
        self.assertEqual((table.returncode, grant.returncode), (0, 0), table.stderr + grant.stderr)

        begin = time.monotonic()
        self.servers["server-0"].kill()
        self.servers.pop("server-0").wait()
        self.assertEqual(self.done("--timeout", "60", "scan", "--prefix", "shelf/"), pairs)
        self.wait_until("a takeover", lambda: {one["server"] for one in self.regions() if one["served"]} == {"server-1"})
        self.assertLess(time.monotonic() - begin, 30)  # 8 s on a quiet machine.
        self.server("server-0", self.tunnels["server-0"])
        self.wait_for(2)
        self.assertEqual(self.done("get", "greeting"), "hello")

        password = (self.certificates / "digest").read_bytes().strip().split(b":", 1)[1]
        secrets = {"the password": password, "a client's password": (self.certificates / "reader-digest").read_bytes().strip().split(b":", 1)[1],
                   "a znode": b"/cell/table", "the regions": b'"shards"', "a server": b"server-1", "a user": b'"shop"',
                   "a grant's prefix": base64.b64encode(b"shelf/"), "a table": b"prices", "a server's address": b"tcp://127.0.0.1:"}
        for what, text in secrets.items():
            with self.subTest(what):
                self.assertTrue(self.plain.has_seen(text), "it has not been sent at all")
                self.assertFalse(self.wire.has_seen(text), "it can be read on the wire")

    def greeted(self, context=None):
        """Returns what ZooKeeper answers a client that comes to the port on the network."""
        try:
            with socket.create_connection(("127.0.0.1", self.gate.port), timeout=PATIENCE_S) as connection:
                with (context.wrap_socket(connection) if context else connection) as stream:
                    stream.sendall(GREETING)
                    return stream.recv(4096)
        except (ssl.SSLError, ConnectionError):
            return b""

    def context(self, certificate=None, version=ssl.TLSVersion.TLSv1_3):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = version
        if certificate is not None:
            context.load_cert_chain(certificate.with_suffix(".pem"), certificate.with_suffix(".key"))
        return context

    def test_who_has_no_certificate_gets_nothing(self):
        others = self.certify("others")
        self.certify_again("late", "URI:cell://client/late", days=0)
        time.sleep(1.1)  # That one ends when it begins; times have seconds.
        self.assertNotEqual(self.greeted(self.context(self.certificates / "shop")), b"")
        come_before = self.plain.connections
        strangers = {"plain": None, "no certificate": self.context(), "another authority's": self.context(others / "shop"),
                     "one that has ended": self.context(self.certificates / "late"),
                     "an earlier TLS": self.context(self.certificates / "shop", ssl.TLSVersion.TLSv1_2)}
        for what, context in strangers.items():
            with self.subTest(what):
                self.assertEqual(self.greeted(context), b"")
        self.assertFalse(passes(self.gate.port))
        self.assertEqual(self.plain.connections, come_before, "a stranger has reached ZooKeeper")
        self.assertNotEqual(self.greeted(self.context(self.certificates / "shop")), b"")

    def test_no_session_outlives_a_look_at_the_certificate(self):
        context, session = self.context(self.certificates / "shop"), None
        for _ in range(2):
            with socket.create_connection(("127.0.0.1", self.gate.port), timeout=PATIENCE_S) as connection:
                with context.wrap_socket(connection, session=session) as tls:
                    tls.sendall(GREETING)
                    self.assertNotEqual(tls.recv(4096), b"")
                    self.assertFalse(tls.session_reused)
                    session = tls.session

    def test_nothing_else_listens_on_the_network(self):
        found = addresses_of(group_of(self.zookeeper.pid))
        self.assertEqual(len(found), 1, found)
        self.assertRegex(found.pop(), r"^(\[::ffff:)?127\.0\.0\.1\]?:\d+$")
        self.assertEqual(addresses_of({self.gate.process.pid}), {f"127.0.0.1:{self.gate.port}"})
        client = block_of_the_page("client = yes")
        self.assertLess(port_of("accept", client), 1024, "any user can listen at other ports, and be told the password")
        self.assertEqual(addresses_of({self.member_tunnel("shop").process.pid}) & {"0.0.0.0", "*"}, set())

    def test_who_poses_as_zookeeper_is_told_nothing(self):
        others = self.certify("others")
        for what, certificate, told in (("ZooKeeper's own", self.certificates / "zookeeper", True), ("another authority's", others / "zookeeper", False),
                                        ("a client's", self.certificates / "shop", False), ("a server's", self.certificates / "server-1", False)):
            with self.subTest(what):
                impostor = Impostor(certificate)
                tunnel = self.member_tunnel(certificate.parent.name + certificate.name, impostor.port, certificate="server-0")
                with socket.create_connection(("127.0.0.1", tunnel.port), timeout=PATIENCE_S) as connection:
                    connection.sendall(GREETING)
                    self.assertEqual(impostor.end() != b"", told)

    def test_a_member_without_its_tunnel(self):
        self.up()
        pairs = self.load()
        # Back at once: the session goes on.
        self.tunnels["server-0"].kill()
        self.tunnels["server-0"].start()
        self.wait_until("a new connection", self.tunnels["server-0"].connections)
        self.assertEqual(self.done("put", "greeting", "hello"), "")
        self.assertEqual(self.done("scan", "--prefix", "shelf/"), pairs)
        self.assertNotIn("session with ZooKeeper has expired", self.log("server-0"))
        self.assertNotIn("is recovered", self.log("server-1"))

        # Gone for long: others take the regions over, and no acknowledged write is lost.
        self.tunnels["server-0"].kill()
        written, number = {}, 0
        deadline = time.monotonic() + PATIENCE_S
        while number < 10 or {one["server"] for one in self.regions() if one["served"]} != {"server-1"}:
            self.assertLess(time.monotonic(), deadline, self.logs())
            key = f"shelf/{number * 1777 % PAIRS:06}"  # Each once.
            number += 1
            if self.ctl("--timeout", "1", "put", key, f"written {number}").returncode == 0:
                written[key] = f"written {number}"
        self.assertIn("cannot renew its session", self.log("server-0"))
        self.tunnels["server-0"].start()
        self.wait_until("its return", lambda: "has renewed its session" in self.log("server-0"))
        self.wait_for(2)
        self.assertGreater(len(written), 2)
        for key, value in written.items():
            self.assertEqual(self.done("get", key), value)
        self.assertEqual(len(self.done("scan", "--keys-only", "--prefix", "shelf/").splitlines()), PAIRS)
        self.wait_until("regions on it", self.move_one_back)

    def move_one_back(self):
        here = [one for one in self.regions() if one["tier"] == 0 and one["served"]]
        return any(one["server"] == "server-0" for one in here) or self.operate("move", str(here[0]["region"]), "server-0").returncode == 0

    def serial(self):
        """Returns the number of the certificate of ZooKeeper's tunnel, or None while it opens its port again."""
        context = self.context(self.certificates / "shop")
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(self.certificates / "authority.pem")
        try:
            with socket.create_connection(("127.0.0.1", self.gate.port), timeout=PATIENCE_S) as connection:
                with context.wrap_socket(connection) as tls:
                    return tls.getpeercert()["serialNumber"]
        except ConnectionError:
            return None

    def test_certificates_are_renewed_by_a_signal(self):
        self.up()
        self.certify_again("late", "URI:cell://client/late", days=0)
        late = self.member_tunnel("late")
        self.wait_until("the certificate's end", lambda: not passes(late.port))
        self.certify_again("late", "URI:cell://client/late")
        self.assertFalse(passes(late.port), "the signal is not needed")
        late.process.send_signal(signal.SIGHUP)
        self.wait_until("the new certificate", lambda: passes(late.port))

        # So it is with ZooKeeper's. If a file is missing, the earlier ones stay.
        tunnels = [self.tunnels["server-0"], self.tunnels["server-1"]]
        before, connections = self.serial(), [tunnel.connections() for tunnel in tunnels]
        self.certify_again("zookeeper", "DNS:zookeeper.example")
        key = self.certificates / "zookeeper.key"
        self.assertEqual(self.serial(), before, "the signal is not needed")
        key.rename(key.with_suffix(".away"))
        self.gate.process.send_signal(signal.SIGHUP)
        self.wait_until("a word in the log", lambda: "Failed to reload the configuration file" in self.gate.log.read_text())
        self.wait_until("the earlier certificate", lambda: self.serial() == before)
        key.with_suffix(".away").rename(key)
        self.gate.process.send_signal(signal.SIGHUP)
        self.wait_until("the new certificate", lambda: self.serial() not in (before, None))

        # Open connections are the same.
        for tunnel in (*tunnels, self.tunnels["shop"]):
            tunnel.process.send_signal(signal.SIGHUP)
        self.assertEqual(self.done("put", "greeting", "hello"), "")
        self.assertEqual(self.done("get", "greeting"), "hello")
        self.assertTrue(all(connections), connections)
        self.assertEqual([tunnel.connections() for tunnel in tunnels], connections)

    def test_what_it_costs(self):
        """Prints the figures of the page. With --test_arg=ZooKeeperByTls.test_what_it_costs --test_output=all"""
        tunnel = self.member_tunnel("shop")
        cpu_before = cpu_seconds(self.gate.process.pid)
        straight, tunnelled = [milliseconds(port) for port in (self.zookeeper_port, tunnel.port)]
        cpu_ms = (cpu_seconds(self.gate.process.pid) - cpu_before) / SESSIONS * 1e3
        before = memory_kb(self.gate.process.pid)
        for _ in range(SESSIONS):
            self.addCleanup(ZnodeClient(f"127.0.0.1:{tunnel.port}").close)
        each = (memory_kb(self.gate.process.pid) - before) / SESSIONS
        print(f"\nreading a znode: {straight[1]:.2f} ms, through the tunnel {tunnelled[1]:.2f} ms; beginning a session: {straight[0]:.2f} ms, "
              f"through the tunnel {tunnelled[0]:.2f} ms; {cpu_ms:.1f} ms of CPU for a session "
              f"with {READS // SESSIONS} reads at ZooKeeper's stunnel, and {each:.0f} KB for a connection")
        self.assertLess(tunnelled[1], 500)  # A quarter of the time for which a server relies on its lease.

    def test_more_connections_than_zookeeper_grants_one_address(self):
        tunnel = self.member_tunnel("shop")
        for _ in range(70):
            self.addCleanup(ZnodeClient(f"127.0.0.1:{tunnel.port}").close)

    def test_silent_strangers_keep_nobody_out_for_long(self):
        self.gate.kill()
        self.gate.start(prefix=("prlimit", "--nofile=256:256"))  # It serves half as many connections.
        tunnel = self.member_tunnel("shop")
        member = ZnodeClient(f"127.0.0.1:{tunnel.port}")
        self.addCleanup(member.close)
        for _ in range(200):
            self.addCleanup(socket.create_connection(("127.0.0.1", self.gate.port), timeout=PATIENCE_S).close)
        self.wait_until("a word in the log", lambda: "too many clients" in self.gate.log.read_text())
        member.create("/shelf", b"")  # Who is connected is served.
        self.wait_until("a place", lambda: passes(tunnel.port))


if __name__ == "__main__":
    unittest.main()
