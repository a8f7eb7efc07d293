"""Measures what protection costs, and what strangers and greedy clients cost others, and prints tables as Markdown
(docs/results/security.md).

The server is pinned to core 0, everything else to core 1; floods run there with the lowest priority. Takes about ten
minutes; leave the machine alone meanwhile. Needs to open several thousand descriptors (ulimit -Hn).
"""

import argparse
import json
import resource
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

    @staticmethod
    def _openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Server:
    """A cluster of one server on core 0, with some keys."""

    def __init__(self, directory, name, keys, **options):
        self.directory, self.keys = directory / name, keys
        self.process = cluster.up(self.directory, regions_max=4, durability="none", **options)[0]
        subprocess.run(["taskset", "-acp", "0", str(self.process.pid)], stdout=subprocess.DEVNULL, check=True)
        self.pid = self.process.pid
        worker = json.loads((self.directory / "cluster.json").read_text())["servers"][0]["workers"][0]
        self.host, self.port = (worker["tcp"].rsplit(":", 1)[0], int(worker["tcp"].rsplit(":", 1)[1])) if "tcp" in worker else (None, None)
        self.bench("get", seconds=0.2)  # Loads the keys.

    def bench(self, workload, *flags, path="server", depth=1, seconds=2.0):
        process = pinned(1, cluster.binary("tools/cell_bench"), "--prefix", "", "--cluster", self.directory, "--json", "-", "--workload", workload,
                         "--path", path, "--depth", depth, "--keys", self.keys, "--seconds", seconds, *flags, stdout=subprocess.PIPE, text=True)
        before, begin = cpu_ns(self.pid), time.monotonic()
        text, _ = process.communicate()
        if process.returncode != 0:
            raise cluster.ClusterError(f"cell_bench ended with {process.returncode}")
        result = json.loads(text)
        spent = (cpu_ns(self.pid) - before) / (time.monotonic() - begin)  # Also while the client starts and ends.
        result["server_us"] = spent / 1e3 / max(1, result["ops_per_second"])
        return result

    def connect(self):
        return socket.create_connection((self.host, self.port), timeout=30)

    def status(self):
        return json.loads(ctl("--cluster", self.directory, "-o", "json", "status"))

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


def handshakes(server, shake, count):
    """Returns the server's CPU time for each of so many connections."""
    for _ in range(5):
        shake()
    before = cpu_ns(server.pid)
    for _ in range(count):
        shake()
    return (cpu_ns(server.pid) - before) / count


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
    table("Handshakes of connections for calls", "by", "the server's CPU time for each", "so many in a second of one core")
    plain = Server(base, "open", options.keys, fabric="tcp", server_flags=["--insecure"])
    secret = Server(base, "secret", options.keys, fabric="tcp")
    certificate, key = authority.issue("server", "server-0")
    certified = Server(base, "certified", options.keys, fabric="tcp",
                       server_flags=["--tls-authority", str(authority.directory / "authority.pem"), "--tls-certificate", certificate, "--tls-key", key])
    try:
        def in_plain():
            with plain.connect() as connection:
                greet(connection)

        client = tls_client(authority, authority.issue("client", "measure"))

        def by_certificate():
            with client.wrap_socket(certified.connect()) as connection:
                greet(connection)

        ctl("secret", "for", "client/measure", secret.directory / "secret", base / "measure.secret")
        ident, psk = (base / "measure.secret").read_text().split()[2:4]

        def by_secret():
            pipe = raw.Pipe(f"{secret.host}:{secret.port}", "-psk", psk, "-psk_identity", f"client/measure {ident}", "-ciphersuites",
                            "TLS_AES_128_GCM_SHA256")
            greeting = raw.hello(raw.CALLS, raw.CLIENT, "measure")
            pipe.send(greeting)
            pipe.send(raw.proof(greeting, pipe.receive(raw.CHALLENGE_BYTES), raw.CALLS, raw.CLIENT, "measure"))
            if not raw.is_welcome(pipe.receive(raw.WELCOME_BYTES)):
                raise cluster.ClusterError("the server refused the handshake")
            pipe.close()

        for what, server, shake in (("nothing (--insecure)", plain, in_plain), ("a secret (TLS 1.3, PSK with ECDHE)", secret, by_secret),
                                    ("certificates (TLS 1.3, mutual, P-256)", certified, by_certificate)):
            note(f"handshakes by {what}")
            ns = handshakes(server, shake, options.handshakes)
            row(what, f"{ns / 1e3:.0f} us", f"{1e9 / ns:.0f}")
    finally:
        for server in (plain, secret, certified):
            server.close()


def measure_connections(base, options, authority):
    count = options.connections
    table(f"{count} connections of one kind, and a good client beside them", "connections", "kept by the server", "memory for each that is kept",
          "descriptors for each", "a good client's get meanwhile", "memory left after they went")
    certificate, key = authority.issue("server", "server-0")
    flags = ["--tls-authority", str(authority.directory / "authority.pem"), "--tls-certificate", certificate, "--tls-key", key]
    plain = Server(base, "connections", options.keys, fabric="tcp", server_flags=["--insecure"])
    certified = Server(base, "connections-tls", options.keys, fabric="tcp", server_flags=flags)
    local = Server(base, "connections-shm", options.keys, fabric="shm")
    client = tls_client(authority, authority.issue("client", "many"))

    def silent(server):
        return server.connect()

    def sends(data):
        def connect(server):
            connection = server.connect()
            connection.sendall(data)
            return connection
        return connect

    def greeted(server):
        connection = server.connect()
        greet(connection)
        return connection

    def greeted_by_tls(server):
        connection = client.wrap_socket(server.connect())
        greet(connection)
        return connection

    def unix(path, greets=False):
        def connect(server):
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET if path.endswith(".0.sock") else socket.SOCK_STREAM)
            connection.settimeout(30)
            connection.connect(str(server.directory / path))
            if greets:
                connection.sendall(struct.pack("<8sIBB2x64s", b"CELSHM01", 4, raw.CLIENT, 4, b"many"))
                connection.recv(64)  # Its rings would come with it: they are closed at once.
            return connection
        return connect

    half_hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
    try:
        for what, server, connect in (("tcp, silent", plain, silent), ("tcp, greeted", plain, greeted),
                                      ("tcp, hostile: half a greeting", plain, sends(raw.MAGIC + b"\2\0\0\0")),
                                      ("TLS, silent", certified, silent), ("TLS, greeted", certified, greeted_by_tls),
                                      ("TLS, hostile: half a ClientHello", certified, sends(half_hello)),
                                      ("TLS, hostile: garbage", certified, sends(b"\x16" + bytes(100))),
                                      ("shm, silent", local, unix("server-0.0.sock")), ("shm, greeted", local, unix("server-0.0.sock", greets=True)),
                                      ("control plane, silent", local, unix("server-0.control.sock"))):
            note(f"connections: {what}")
            before, fds = memory_bytes(server.pid), descriptors(server.pid)
            held, refused = [], 0
            for _ in range(count):
                try:
                    held.append(connect(server))
                except OSError:
                    refused += 1
            time.sleep(0.3)
            kept = descriptors(server.pid) - fds
            during = memory_bytes(server.pid)
            good = served(server, flags, authority)
            for connection in held:
                connection.close()
            time.sleep(1)
            alive = max(1, min(count - refused, kept))
            row(what, f"{min(count, kept)}" + (f" ({refused} refused)" if refused else ""), f"{max(0, during - before) / alive / 1024:.1f} KB",
                f"{kept / alive:.1f}", good, f"{max(0, memory_bytes(server.pid) - before) / 2**20:.1f} MB")
    finally:
        for server in (plain, certified, local):
            server.close()


def served(server, flags, authority):
    credentials = []
    if "connections-tls" in str(server.directory):
        certificate, key = authority.issue("operator", "good")
        credentials = ["--tls-authority", flags[1], "--tls-certificate", certificate, "--tls-key", key]
    begin = time.monotonic()
    done = subprocess.run([cluster.binary("tools/cellctl"), "--cluster", str(server.directory), *credentials, "put", "good", "value"],
                          stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    return f"{time.monotonic() - begin:.2f} s" if done.returncode == 0 else f"refused: {done.stderr.strip()}"


FLOOD = """
import sys, time
sys.path[:0] = {path!r}
from tests.attacks import raw_client as raw
kind, host, port, root, connections = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
requests = {{
    "checks": [raw.text("check", "1")], "scans": [raw.scan(root)], "counts": [raw.count(root)], "statuses": [raw.text("status")],
    "fetches": [raw.message("fetch", __import__("struct").pack("<QIHH", root, 32768, 0, 0))],
    "uploads": [raw.upload(number, part * 65000, bytes(65000)) for number in (1, 2, 3, 4) for part in range(16)],
    "gets": [raw.get(root, b"none")]}}
def flood():
    if kind == "connections":
        while True:
            with raw.RawClient(host, port, raw.CLIENT, "greedy"):
                pass
    clients = [raw.RawClient(host, port, raw.OPERATOR if kind == "checks" else raw.CLIENT, "greedy") for _ in range(connections)]
    depth = max(1, 64 // connections)
    at = 0
    for client in clients:
        for _ in range(depth):
            client.send(requests[kind][at % len(requests[kind])])
            at += 1
    print("ready", flush=True)
    while True:
        for client in clients:
            client.answer()
            client.send(requests[kind][at % len(requests[kind])])
            at += 1
if kind == "connections":
    print("ready", flush=True)
flood()
"""


class Flood:
    """One greedy client in a process of its own, with 64 requests under way."""

    def __init__(self, server, kind, connections=1):
        root = raw.root_of(server.status()["regions"][0]["region"])
        self.process = pinned(1, sys.executable, "-c", FLOOD.format(path=sys.path), kind, server.host, server.port, root, connections,
                              idle=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise cluster.ClusterError(f"the flood of {kind} ended: {self.process.stderr.read()}")

    def close(self):
        alive = self.process.poll() is None
        self.process.kill()
        self.process.communicate()
        if not alive:
            raise cluster.ClusterError("the flood ended before it was stopped")


def measure_floods(base, options):
    table("A good client's gets beside one greedy client", "flood", "p99 with it", "p99 alone", "ratio", "p50 with it", "p50 alone", "aim for p99")
    server = Server(base, "flooded", options.keys, fabric="tcp", server_flags=["--insecure"])
    try:
        floods = [(kind, 1) for kind in ("checks", "scans", "counts", "statuses", "fetches", "uploads", "gets", "connections")]
        for kind, connections in floods + [("scans", 16), ("gets", 16)]:
            what = kind if connections == 1 else f"{kind} on {connections} connections"
            note(f"floods: {what}")
            seen = {"with": [], "alone": []}
            for _ in range(options.rounds):
                seen["alone"].append(server.bench("get", seconds=options.seconds)["latency_us"])
                flood = Flood(server, kind, connections)
                try:
                    seen["with"].append(server.bench("get", seconds=options.seconds)["latency_us"])
                finally:
                    flood.close()
            median = {(which, quantile): statistics.median(run[quantile] for run in runs) for which, runs in seen.items() for quantile in ("p50", "p99")}
            row(what, f"{median['with', 'p99']:.0f} us", f"{median['alone', 'p99']:.0f} us", f"{median['with', 'p99'] / median['alone', 'p99']:.1f}",
                f"{median['with', 'p50']:.0f} us", f"{median['alone', 'p50']:.0f} us", "at most 3")
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


MEASURES = {"tls": measure_tls, "handshakes": measure_handshakes, "connections": measure_connections, "floods": measure_floods, "grants": measure_grants}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MEASURES, action="append", help="measure only this; may be given several times")
    parser.add_argument("--keys", type=int, default=KEYS, help="keys in the tree (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=2, help="duration of each run (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each kind, in turns; the median counts (default: %(default)s)")
    parser.add_argument("--connections", type=int, default=2000, help="connections of each kind (default: %(default)s)")
    parser.add_argument("--handshakes", type=int, default=300, help="handshakes of each kind (default: %(default)s)")
    options = parser.parse_args(arguments)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = options.connections + 1000
    if hard != resource.RLIM_INFINITY and hard < wanted:
        parser.error(f"this shell may open {hard} descriptors, but {wanted} are needed: raise the limit, or give fewer --connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    chosen = options.only or list(MEASURES)
    with tempfile.TemporaryDirectory(prefix="cell-security-") as directory:
        base = Path(directory)
        authority = Authority(base / "authority")
        for name in chosen:
            measure = MEASURES[name]
            if measure in (measure_handshakes, measure_connections):
                measure(base, options, authority)
            else:
                measure(base, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
