"""Measures what protection costs, and what strangers and greedy clients cost others, and prints tables as Markdown
(docs/results/security.md).

The server is pinned to core 0, everything else to core 1. Floods run there only when nothing else wants to
(SCHED_IDLE): what a flood costs others is then what the server does for it. As root, all of it has precedence over other
work on the machine. Still, leave the machine alone meanwhile. Takes about 40 minutes, and several thousand descriptors
(ulimit -Hn).
"""

import argparse
import contextlib
import json
import os
import resource
import signal
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.attacks import raw_client as raw
from tools import cluster

KEYS = 100_000


def pinned(core, *command, idle=False, **options):
    priority = ["chrt", "--idle", "0"] if idle else []
    return subprocess.Popen(["taskset", "-c", str(core), *priority, *map(str, command)], **options)


def ctl(*arguments):
    return subprocess.run([cluster.binary("tools/cellctl"), *map(str, arguments)], stdout=subprocess.PIPE, check=True, text=True, timeout=120).stdout


@contextlib.contextmanager
def precedence():
    """Gives this session, with what it starts, precedence over others (sched(7), autogroups), if this user may."""
    try:
        before = Path("/proc/self/autogroup").read_text().rsplit(maxsplit=1)[1]
    except OSError:
        before = None
    if before is None or not weigh("self", -20):
        note("This user may not have precedence over others: whatever else runs on this machine shows in the latencies.")
        before = None
    try:
        yield
    finally:
        if before is not None:
            weigh("self", before)


def weigh(pid, nice):
    """Sets the weight of a process's session. Returns whether that was possible."""
    try:
        Path(f"/proc/{pid}/autogroup").write_text(str(nice))
    except OSError:
        return False
    return True


def cpu_ns(pid):
    """Returns how long all threads of a process have run."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


def memory_bytes(pid):
    """Returns the private memory of a process, and its share of shared memory."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    raise ValueError("smaps_rollup has no Pss")


def descriptors(pid):
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def note(text):
    print(text, file=sys.stderr, flush=True)


class Authority:
    """Makes certificates that one authority has signed."""

    def __init__(self, directory):
        self.directory = directory
        directory.mkdir()
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", directory / "authority.key",
                      "-out", directory / "authority.pem", "-subj", "/CN=authority", "-days", "2")

    def issue(self, role, name):
        stem = self.directory / name
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{stem}.key", "-out", f"{stem}.csr",
                      "-subj", f"/CN={name}", "-addext", f"subjectAltName=URI:cell://{role}/{name}")
        self._openssl("x509", "-req", "-in", f"{stem}.csr", "-CA", self.directory / "authority.pem", "-CAkey", self.directory / "authority.key",
                      "-CAcreateserial", "-out", f"{stem}.pem", "-days", "2", "-copy_extensions", "copy")
        for file in self.directory.glob("*.key"):
            file.chmod(0o600)
        return f"{stem}.pem", f"{stem}.key"

    def flags(self, role, name):
        """Returns the flags of a program that is to have this identity."""
        certificate, key = self.issue(role, name)
        return ["--tls-authority", str(self.directory / "authority.pem"), "--tls-certificate", certificate, "--tls-key", key]

    @staticmethod
    def _openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Server:
    """A cluster of one server with some keys. On core 0; or, with idle=True, on core 1 when nothing else there wants to."""

    def __init__(self, directory, name, keys, idle=False, durability="none", **options):
        self.directory, self.keys = directory / name, keys
        self.process = cluster.up(self.directory, regions_max=4, durability=durability, **options)[0]
        self.pid = self.process.pid
        weigh(self.pid, 19 if idle else -20)  # It has a session of its own.
        subprocess.run(["taskset", "-acp", "1" if idle else "0", str(self.pid)], stdout=subprocess.DEVNULL, check=True)
        if idle:
            subprocess.run(["chrt", "--all-tasks", "--idle", "--pid", "0", str(self.pid)], check=True)
        worker = json.loads((self.directory / "cluster.json").read_text())["servers"][0]["workers"][0]
        self.host, self.port = (worker["tcp"].rsplit(":", 1)[0], int(worker["tcp"].rsplit(":", 1)[1])) if "tcp" in worker else (None, None)
        self.address = f"tcp://{self.host}:{self.port}" if self.host else str(self.directory / "server-0.0.sock")
        self.bench("get", seconds=0.2)  # Loads the keys.

    def bench(self, workload, *flags, path="server", depth=1, seconds=2.0):
        process = pinned(1, cluster.binary("tools/cell_bench"), "--prefix", "", "--cluster", self.directory, "--json", "-", "--workload", workload,
                         "--path", path, "--depth", depth, "--keys", self.keys, "--seconds", seconds, *flags, stdout=subprocess.PIPE, text=True)
        before, begin = cpu_ns(self.pid), time.monotonic()
        try:
            text, _ = process.communicate()
        except BaseException:  # Such as an interrupt.
            process.kill()
            process.communicate()
            raise
        if process.returncode != 0:
            raise cluster.ClusterError(f"cell_bench ended with {process.returncode}")
        result = json.loads(text)
        spent = (cpu_ns(self.pid) - before) / (time.monotonic() - begin)  # Also while the client starts and ends.
        result["server_us"] = spent / 1e3 / max(1, result["ops_per_second"])
        return result

    def connect(self):
        return socket.create_connection((self.host, self.port), timeout=30)

    def close(self):
        cluster.end([self.process])


def table(title, *columns):
    print(f"\n**{title}**\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)


def row(*cells):
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def measure_tls(base, options):
    table("TLS 1.3 beside plain TCP", "operation", "with TLS", "without", "ratio", "aim")
    plain = Server(base, "plain", options.keys, fabric="tcp", server_flags=["--insecure"])
    secure = Server(base, "secure", options.keys, fabric="tcp")
    try:
        for what, workload, depth, path, aim in (
                ("raw reads of 1 KB, 16 at a time", "raw-read", 16, "client", "0.6"), ("raw reads of 1 KB, one at a time", "raw-read", 1, "client", ""),
                ("gets by servers, 16 at a time", "get", 16, "server", ""), ("gets by servers, one at a time", "get", 1, "server", ""),
                ("puts, 16 at a time", "put", 16, "server", ""), ("scans of 100 by servers", "scan", 4, "server", "")):
            note(f"TLS: {what}")
            field = "node_reads_per_second" if workload == "raw-read" else "ops_per_second"
            rates = {secure: [], plain: []}
            for _ in range(options.rounds):
                for server, seen in rates.items():
                    seen.append(server.bench(workload, path=path, depth=depth, seconds=options.seconds)[field])
            with_tls, without = (statistics.median(rates[server]) for server in (secure, plain))
            row(what, f"{with_tls / 1e3:.1f} k/s", f"{without / 1e3:.1f} k/s", f"{with_tls / without:.2f}", aim)
    finally:
        plain.close()
        secure.close()


def tls_client(authority, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.load_verify_locations(authority.directory / "authority.pem")
    context.load_cert_chain(*certificate)
    return context


def greet(connection, role=raw.CLIENT, name="measure"):
    """Shakes hands, without a secret of its own or behind TLS."""
    greeting = raw.hello(raw.CALLS, role, name)
    connection.sendall(greeting)
    challenge = receive(connection, raw.CHALLENGE_BYTES)
    connection.sendall(raw.proof(greeting, challenge, raw.CALLS, role, name))
    if not raw.is_welcome(receive(connection, raw.WELCOME_BYTES)):
        raise cluster.ClusterError("the server refused the handshake")


def receive(connection, count):
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionError("the server has closed the connection")
        data += part
    return data


def measure_handshakes(base, options, authority):
    table("Handshakes of a client that connects and leaves, 16 at a time", "by", "connections/s", "the server's CPU time for each",
          "connections that one core could serve in a second")
    by_certificate = authority.flags("server", "server-0"), authority.flags("client", "greedy")
    secret = base / "greedy.secret"
    for what, fabric, of_server, of_client in (
            ("shm", "shm", [], []), ("tcp, nothing (--insecure)", "tcp", ["--insecure"], []),
            ("tcp, a secret (TLS 1.3, PSK with ECDHE)", "tcp", [], ["--secret-file", secret]),
            ("tcp, certificates (TLS 1.3, mutual, P-256)", "tcp", *by_certificate)):
        note(f"handshakes: {what}")
        server = Server(base, f"handshakes-{len(what)}", options.keys, fabric=fabric, server_flags=of_server)
        try:
            if secret in of_client:
                ctl("secret", "for", "client/greedy", server.directory / "secret", secret)
            rates, ns = [], []
            for _ in range(options.rounds):
                flood = Flood(server, "connections", connections=16, outstanding=1, idle=False, flags=of_client)
                before = cpu_ns(server.pid)
                try:
                    time.sleep(options.seconds)
                finally:
                    did = flood.close()
                if did["ended"] == 0:
                    raise cluster.ClusterError("no connection was made")
                # A client has two connections by TCP, one for calls and one for reads, with a handshake each.
                made = did["ended"] * (2 if fabric == "tcp" else 1)
                rates.append(made / did["seconds"])
                ns.append((cpu_ns(server.pid) - before) / made)
            ns = statistics.median(ns)
            row(what, f"{statistics.median(rates):,.0f}", f"{ns / 1e3:.0f} us", f"{1e9 / ns:,.0f}")
        finally:
            server.close()


class Stranger:
    """Makes connections of one kind."""

    def __init__(self, to, first=b"", then=None, tls=None):
        """`to` returns a socket's family, type and address. `first` is sent at once; then `then` is called with the socket."""
        self.to, self.first, self.then, self.tls = to, first, then, tls

    def connect(self):
        family, kind, address = self.to()
        connection = socket.socket(family, kind)
        try:
            connection.settimeout(30)
            connection.connect(address)
            if self.tls:
                connection = self.tls.wrap_socket(connection)
            if self.first:
                connection.sendall(self.first)
            if self.then:
                self.then(connection)
        except OSError:
            connection.close()
            raise
        return connection


def measure_connections(base, options, authority):
    table(f"{options.connections:,} connections of one kind, and a good client beside them", "connections", "kept by the server",
          "memory for each that is kept", "descriptors for each", "a good client's command meanwhile", "memory left after they went",
          "and after the same once more")
    certified = authority.flags("server", "server-0")
    client, operator = (tls_client(authority, authority.issue(role, f"many-{role}")) for role in ("client", "operator"))
    operator.set_alpn_protocols(["h2"])  # Of gRPC.
    good = authority.flags("operator", "good")
    servers = []
    try:
        for name, flags in (("tcp", ["--insecure"]), ("tls", certified), ("shm", []), ("control", [*certified, "--control", "127.0.0.1:0"])):
            servers.append(Server(base, f"connections-{name}", options.keys, fabric="tcp" if name in ("tcp", "tls") else "shm", server_flags=flags))
        plain, secure, local, controlled = servers

        def by_tcp(server):
            return lambda: (socket.AF_INET, socket.SOCK_STREAM, (server.host, server.port))

        def by_shm():
            return socket.AF_UNIX, socket.SOCK_SEQPACKET, str(local.directory / "server-0.0.sock")

        def by_unix_control():
            return socket.AF_UNIX, socket.SOCK_STREAM, str(local.directory / "server-0.control.sock")

        def by_tcp_control():
            address = (controlled.directory / "server-0.control").read_text().split(",")[0]  # The other one is that of the socket.
            return socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(address.rsplit(":", 1)[1]))

        def too_long(connection):
            greet(connection)
            connection.sendall(struct.pack("<IIQ", 2**32 - 1, 4096, 0))

        nonsense = os.urandom(4096)
        half_hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
        shm_hello = struct.pack("<8sIBB2x64s", b"CELSHM01", 4, raw.CLIENT, 4, b"many")
        http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # And empty settings.

        def answered(connection):
            connection.recv(64)

        put, regions = ["put", "good", "value"], ["regions"]
        for what, server, credentials, command, stranger in (
                ("tcp, silent", plain, [], put, Stranger(by_tcp(plain))),
                ("tcp, half a greeting", plain, [], put, Stranger(by_tcp(plain), raw.MAGIC + b"\2\0\0\0")),
                ("tcp, nonsense", plain, [], put, Stranger(by_tcp(plain), nonsense)),
                ("tcp, greeted", plain, [], put, Stranger(by_tcp(plain), then=greet)),
                ("tcp, greeted, then a message of 4 GB", plain, [], put, Stranger(by_tcp(plain), then=too_long)),
                ("tcp with TLS, silent", secure, good, put, Stranger(by_tcp(secure))),
                ("tcp with TLS, half a ClientHello", secure, good, put, Stranger(by_tcp(secure), half_hello)),
                ("tcp with TLS, a record of 64 KB", secure, good, put, Stranger(by_tcp(secure), b"\x16\x03\x01\xff\xff")),
                ("tcp with TLS, nonsense", secure, good, put, Stranger(by_tcp(secure), nonsense)),
                ("tcp with TLS, greeted", secure, good, put, Stranger(by_tcp(secure), then=greet, tls=client)),
                ("shm, silent", local, [], put, Stranger(by_shm)),
                ("shm, nonsense", local, [], put, Stranger(by_shm, nonsense)),
                ("shm, greeted", local, [], put, Stranger(by_shm, shm_hello, then=answered)),
                ("control plane, silent", local, [], regions, Stranger(by_unix_control)),
                ("control plane, nonsense", local, [], regions, Stranger(by_unix_control, nonsense)),
                ("control plane, greeted", local, [], regions, Stranger(by_unix_control, http2, then=answered)),
                ("control plane with TLS, silent", controlled, good, regions, Stranger(by_tcp_control)),
                ("control plane with TLS, half a ClientHello", controlled, good, regions, Stranger(by_tcp_control, half_hello)),
                ("control plane with TLS, greeted", controlled, good, regions, Stranger(by_tcp_control, http2, then=answered, tls=operator))):
            note(f"connections: {what}")
            row(what, *many_connections(server, stranger, options.connections, [*credentials, *command]))
    finally:
        for server in servers:
            server.close()


def many_connections(server, stranger, count, command):
    """Makes connections of one kind, twice. Returns the cells that say what became of them."""
    before, descriptors_before = memory_bytes(server.pid), descriptors(server.pid)
    left = []
    for _ in range(2):
        held, refused = [], 0
        for _ in range(count):
            try:
                held.append(stranger.connect())
            except OSError:
                refused += 1
        time.sleep(0.3)
        taken = max(0, descriptors(server.pid) - descriptors_before)
        during = memory_bytes(server.pid)
        answer = served(server, command)
        alive = min(len(held), sum(is_open(connection) for connection in held))
        for connection in held:
            connection.close()
        deadline = time.monotonic() + 10
        while descriptors(server.pid) > descriptors_before and time.monotonic() < deadline:
            time.sleep(0.1)
        left.append(memory_bytes(server.pid) - before)
        if len(left) == 1:
            first = (f"{alive:,}" + (f" ({refused:,} refused)" if refused else ""),
                     f"{max(0, during - before) / alive / 1024:.1f} KB" if alive else "",
                     f"{taken / alive:.1f}" if alive else "", answer)
    return *first, *(f"{max(0, size) / 2**20:.1f} MB" for size in left)


def is_open(connection):
    """Returns whether the other end has not closed the connection."""
    try:
        connection.setblocking(False)
        while connection.recv(4096):
            pass
    except (BlockingIOError, ssl.SSLWantReadError):
        return True
    except OSError:
        pass
    return False


def served(server, command):
    begin = time.monotonic()
    done = subprocess.run([cluster.binary("tools/cellctl"), "--cluster", str(server.directory), *command],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    return f"{time.monotonic() - begin:.2f} s" if done.returncode == 0 else f"refused: {done.stderr.strip()}"


class Flood:
    """A greedy client in a process of its own. Unless idle=False, it runs only when nothing else on its core wants to."""

    def __init__(self, server, kind, connections=1, outstanding=64, idle=True, flags=()):
        self.what = f"the flood of {kind}"
        # The first region has the number 1, and its extents follow its header and its meganode (cell/layout/region.h).
        self.process = pinned(1, cluster.binary("tests/attacks/flood"), "--kind", kind, "--address", server.address, "--region", "1",
                              "--extents-offset", 4096 + cluster.DEFAULTS["meganode_bytes"], "--role", "operator" if kind == "checks" else "client",
                              "--connections", connections, "--outstanding", outstanding, *flags, idle=idle, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            _, error = self.process.communicate()
            raise cluster.ClusterError(f"{self.what} did not begin: {error.strip()}")

    def close(self):
        """Ends it. Returns what it has counted."""
        self.process.terminate()
        try:
            text, error = self.process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        if self.process.returncode != 0:
            raise cluster.ClusterError(f"{self.what} ended with {self.process.returncode}: {error.strip()}")
        return json.loads(text)


def beside(flooded, bench, kind, **options):
    """Runs a benchmark while a server is flooded. Returns its result, and what the flood has counted."""
    flood = Flood(flooded, kind, **options)
    try:
        result = bench()
    finally:
        did = flood.close()
    return result, did


# The floods, each as (name, kind of requests, number of connections, calls under way on each connection, server).
FLOODS = (("checks", "checks", 1, 64, "usual"), ("scans", "scans", 1, 64, "usual"), ("counts", "counts", 1, 64, "usual"),
          ("statuses", "statuses", 1, 64, "usual"), ("fetches", "fetches", 1, 64, "usual"), ("uploads", "uploads", 1, 64, "usual"),
          ("gets", "gets", 1, 64, "usual"), ("puts", "puts", 1, 64, "usual"), ("puts that wait for the disk", "puts", 1, 64, "durable"),
          ("connections that come and go, 16 at a time", "connections", 16, 1, "usual"),
          ("1,000 silent connections", "silent", 1000, 1, "usual"), ("64 connections with nonsense", "nonsense", 64, 1, "usual"))


def measure_floods(base, options):
    table("A good client's gets, one at a time with pauses of 0.5 ms, beside one greedy client", "fabric", "flood", "p99 with it", "p99 alone",
          "p99 while it floods another server", "ratio to alone", "ratio to another server flooded", "p50 with it", "p50 alone",
          "the flood's calls/s", "aim for p99")
    for fabric in ("tcp", "shm"):
        common = {"fabric": fabric, "server_flags": ["--insecure"] if fabric == "tcp" else []}
        servers = []
        try:
            for name in ("usual", "durable"):
                for other in (False, True):  # The other server is on the good client's core, where it gets what is left.
                    servers.append(Server(base, f"flooded-{fabric}-{name}-{other}", options.keys, idle=other,
                                          durability="none" if name == "usual" else "sync", **common))
            pairs = {"usual": servers[:2], "durable": servers[2:]}
            for what, kind, connections, outstanding, which in FLOODS:
                if options.flood and kind not in options.flood:
                    continue
                note(f"floods: {fabric}, {what}")
                server, other = pairs[which]
                measure_flood(fabric, what, server, other, options, kind=kind, connections=min(connections, options.connections), outstanding=outstanding)
        finally:
            for server in servers:
                server.close()


def measure_flood(fabric, what, server, other, options, **flood):
    def gets():  # With pauses, so that the flood gets on, which shares this client's core.
        return server.bench("get", "--pause-us", 500, seconds=options.seconds)["latency_us"]

    alone, elsewhere, there, calls, refused = [], [], [], [], []
    for _ in range(options.rounds):
        alone.append(gets())
        elsewhere.append(beside(other, gets, **flood)[0])
        result, did = beside(server, gets, **flood)
        there.append(result)
        calls.append((did["done"] or did["ended"]) / did["seconds"])
        refused.append(did["refused"] / max(1, did["done"]))

    def median(runs, quantile="p99"):
        return f"{statistics.median(run[quantile] for run in runs):.0f} us"

    def ratio(runs, quantile="p99"):
        return f"{statistics.median(with_it[quantile] / without[quantile] for with_it, without in zip(there, runs)):.2f}"

    share = statistics.median(refused)
    row(fabric, what, median(there), median(alone), median(elsewhere), ratio(alone), ratio(elsewhere),
        median(there, "p50"), median(alone, "p50"), f"{statistics.median(calls):,.0f}" + (f", {share:.0%} refused" if share > 0.005 else ""), "at most 3")


def measure_shares(base, options):
    table("One greedy user with several connections, and 8 requests under way on each", "fabric", "it sends", "its connections", "its requests/s",
          "another user", "requests/s", "of those beside one connection", "p50", "p99")
    for fabric in ("tcp", "shm"):
        server = Server(base, f"shared-{fabric}", options.keys, fabric=fabric, server_flags=["--insecure"] if fabric == "tcp" else [])
        try:
            for kind, other, arguments, depth, idle in (
                    # The server is what limits scans, and both users' clients need some of their core.
                    ("scans", "scans of 4,096, 4 at a time", ["scan", "--scan-length", 4096], 4, False),
                    ("gets", "gets, one at a time with pauses of 0.5 ms", ["get", "--pause-us", 500], 1, True)):
                note(f"shares: {fabric}, {kind}")
                counts = (1, 16, 64)
                seen = {count: [] for count in counts}
                for _ in range(options.rounds):
                    for count in counts:
                        seen[count].append(beside(server, lambda: server.bench(*arguments, depth=depth, seconds=options.seconds), kind, connections=count,
                                                  outstanding=8, idle=idle))
                for count in counts:
                    rates, firsts = ([result["ops_per_second"] for result, _ in seen[i]] for i in (count, 1))
                    quantiles = (statistics.median(result["latency_us"][quantile] for result, _ in seen[count]) for quantile in ("p50", "p99"))
                    row(fabric, kind, count, f"{statistics.median(did['done'] / did['seconds'] for _, did in seen[count]):,.0f}", other,
                        f"{statistics.median(rates):,.0f}", f"{statistics.median(many / one for many, one in zip(rates, firsts)):.2f}",
                        *(f"{value:,.0f} us" for value in quantiles))
        finally:
            server.close()


def measure_grants(base, options):
    table("Checking grants", "gets by the server, over TLS", "enforced", "open", "ratio", "aim")
    server = Server(base, "granted", options.keys, fabric="tcp")
    try:
        secret = base / "granted.secret"
        ctl("secret", "for", "client/alice", server.directory / "secret", secret)
        ctl("--cluster", server.directory, "grant", "alice", "scan,write", "--prefix", "")
        for i in range(20):
            ctl("--cluster", server.directory, "grant", "alice", "read", "--prefix", f"{i:02}")
        rates, server_us = {"enforce": [], "open": []}, {"enforce": [], "open": []}
        for _ in range(options.rounds):
            for setting, seen in rates.items():
                ctl("--cluster", server.directory, "users", setting)
                time.sleep(1.2)
                result = server.bench("get", "--secret-file", secret, depth=16, seconds=options.seconds)
                seen.append(result["ops_per_second"])
                server_us[setting].append(result["server_us"])
        enforced, free = (statistics.median(rates[setting]) for setting in ("enforce", "open"))
        row("operations, 16 at a time", f"{enforced / 1e3:.1f} k/s", f"{free / 1e3:.1f} k/s", f"{enforced / free:.3f}", "0.98")
        enforced, free = (statistics.median(server_us[setting]) for setting in ("enforce", "open"))
        row("the server's CPU time for each", f"{enforced:.2f} us", f"{free:.2f} us", f"{enforced / free:.3f}", "1.02")
    finally:
        server.close()


MEASURES = {"tls": measure_tls, "handshakes": measure_handshakes, "connections": measure_connections, "floods": measure_floods, "shares": measure_shares,
            "grants": measure_grants}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MEASURES, action="append", help="measure only this; may be given several times")
    parser.add_argument("--flood", choices=sorted({kind for _, kind, *_ in FLOODS}), action="append",
                        help="of the floods, measure only this kind; may be given several times")
    parser.add_argument("--keys", type=int, default=KEYS, help="keys in the tree (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=2, help="duration of each run (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each kind, in turns; the median counts (default: %(default)s)")
    parser.add_argument("--connections", type=int, default=2000, help="connections of each kind (default: %(default)s)")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # And end what was started.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = options.connections + 1000
    if hard != resource.RLIM_INFINITY and hard < wanted:
        parser.error(f"this shell may open {hard} descriptors, but {wanted} are needed: raise the limit, or give fewer --connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    chosen = options.only or list(MEASURES)
    try:
        with tempfile.TemporaryDirectory(prefix="cell-security-") as directory, precedence():
            base = Path(directory)
            authority = Authority(base / "authority")
            about = json.loads(subprocess.run([cluster.binary("tools/cell_bench"), "--workload", "local", "--seconds", "0.1", "--keys", "1000", "--json", "-"],
                                              stdout=subprocess.PIPE, check=True, text=True).stdout)
            print(f"{about['machine']}; commit {about['commit']}; {options.keys:,} keys; medians of {options.rounds} runs of {options.seconds:g} s, in turns")
            for name in chosen:
                measure = MEASURES[name]
                if measure in (measure_handshakes, measure_connections):
                    measure(base, options, authority)
                else:
                    measure(base, options)
    except (cluster.ClusterError, OSError, subprocess.SubprocessError) as error:
        print(f"measure_security: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
