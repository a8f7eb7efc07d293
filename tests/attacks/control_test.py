"""Attacks the control plane of a running server: as another user of the machine over its Unix socket, and over TCP with
all certificates but an operator's. Strangers read nothing and drop nothing, and keep no operator out.
"""

import datetime
import json
import os
import resource
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from tools import cluster, cluster_directory

SMALL = {"meganode_bytes": 1 << 20, "extents_bytes": 4 << 20, "regions_max": 64}
NOBODY = 65534
ERROR = 2
IDLE_CONNECTIONS = 2000
MEMORY_KB = 64 << 10  # What they may cost.


def as_nobody(command, **options):
    """Runs a command as another user."""
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=60, user=NOBODY, group=NOBODY,
                          extra_groups=[], **options)


def openssl(*arguments, **options):
    subprocess.run(["openssl", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True, timeout=60, **options)


class Authority:
    """Signs certificates with `openssl`."""

    def __init__(self, directory, name):
        self.directory, self.name = directory, name
        self.certificate = directory / f"{name}.pem"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", f"/CN={name}",
                "-keyout", str(directory / f"{name}.key"), "-out", str(self.certificate))

    def issue(self, name, names, expired=False, authority=None):
        """Returns flags with a certificate that has these names, such as URI:cell://operator/alice. authority: whom it
        trusts, if not this one."""
        path = self.directory / f"{self.name}-{name}"
        key, request, certificate = (path.with_name(path.name + end) for end in (".key", ".csr", ".pem"))
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request))
        end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=-1 if expired else 1)
        stamp = lambda time: time.strftime("%Y%m%d%H%M%SZ")
        config = self.directory / "ca.cnf"
        (self.directory / "index.txt").write_text("")
        config.write_text(f"[ca]\ndefault_ca=one\n[one]\ndatabase={self.directory}/index.txt\nnew_certs_dir={self.directory}\nrand_serial=yes\n"
                          f"default_md=sha256\npolicy=any\nunique_subject=no\n[any]\ncommonName=supplied\n"
                          + (f"[names]\nsubjectAltName={names}\n" if names else "[names]\nbasicConstraints=CA:FALSE\n"))
        openssl("ca", "-batch", "-config", str(config), "-cert", str(self.certificate), "-keyfile", str(self.directory / f"{self.name}.key"),
                "-in", str(request), "-out", str(certificate), "-extensions", "names", "-notext",
                "-startdate", stamp(end - datetime.timedelta(days=1)), "-enddate", stamp(end))
        key.chmod(0o600)
        return {"authority": str((authority or self).certificate), "certificate": str(certificate), "key": str(key)}


def flags_of(files):
    return [part for name, path in files.items() for part in (f"--tls-{name}", path)]


class Control(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="cell-attacks-")
        self.directory = Path(self.temporary.name) / "cell"
        self.servers = []

    def tearDown(self):
        cluster.end(self.servers)
        self.temporary.cleanup()

    def up(self, *flags):
        self.servers = cluster.up(self.directory, server_flags=list(flags), **SMALL)
        self.assertEqual(self.ctl("hash", "create", "users").returncode, 0)
        self.assertEqual(self.ctl("hash", "put", "users", "alice", "42").returncode, 0)

    def command(self, *arguments):
        return [cluster.binary("tools/cellctl"), "--cluster", str(self.directory), *arguments]

    def ctl(self, *arguments):
        return subprocess.run(self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=90)

    def audit(self):
        return [json.loads(line) for line in (self.directory / "server-0.audit").read_text().splitlines()]

    def tls(self):
        """Brings a cluster up whose control plane is at a TCP port with mutual TLS, and at its Unix socket."""
        self.certificates = Path(self.temporary.name) / "certificates"
        self.certificates.mkdir()
        self.authority = Authority(self.certificates, "authority")
        self.operator = self.authority.issue("operator", "URI:cell://operator/alice")
        self.up("--control", "127.0.0.1:0", *flags_of(self.authority.issue("server", "URI:cell://server/server-0")))
        address = (self.directory / "server-0.control").read_text()
        self.assertTrue(address.startswith("tls://127.0.0.1:"), address)
        self.port = int(address.split(",")[0].rsplit(":", 1)[1])

    def unharmed(self):
        """The table is there, and the operator is served."""
        self.assertEqual(self.ctl("hash", "get", "users", "alice").stdout, "42")
        listed = self.ctl("regions")
        self.assertEqual(listed.returncode, 0, listed.stderr)

    def memory_kb(self):
        status = Path(f"/proc/{self.servers[0].pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0])

    @unittest.skipIf(os.geteuid() != 0, "only root can act as another user")
    def test_another_user_of_the_machine_gets_nothing(self):
        self.up()
        # All modes let everyone in: only the look at the peer's user is left.
        Path(self.temporary.name).chmod(0o755)
        self.directory.chmod(0o777)
        for path in self.directory.rglob("*"):
            path.chmod(0o777 if path.is_dir() or path.is_socket() else 0o666)
        tool = Path(self.temporary.name) / "cellctl"
        shutil.copy(cluster.binary("tools/cellctl"), tool)
        tool.chmod(0o755)
        for command in (["hash", "drop", "users"], ["regions"], ["drain", "server-0"], ["allocate", "server-0"], ["log-level", "server-0", "trace"],
                        ["evict", "lru-sampled"], ["checkpoint"], ["rebalance"], ["split", "1"], ["move", "1", "server-0"]):
            with self.subTest(command=command):
                tried = as_nobody([str(tool), "--cluster", str(self.directory), "--timeout", "3", *command])
                self.assertEqual(tried.returncode, ERROR, tried)
        # What it sends is not even read.
        code = ("import socket, sys; s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect(sys.argv[1])\n"
                "try: print(len(s.recv(100)))\nexcept ConnectionError: print(0)\n")
        raw = as_nobody(["python3", "-c", code, str(self.directory / "server-0.control.sock")])
        self.assertEqual(raw.stdout, "0\n", raw.stderr)
        self.unharmed()
        kept_out = [line for line in self.audit() if line["event"] == "kept_out"]
        self.assertTrue(kept_out)
        self.assertEqual({(line["who"], line["from"]) for line in kept_out}, {(f"uid/{NOBODY}", "unix")})
        self.assertEqual({line["who"] for line in self.audit() if line["event"] != "kept_out"}, {f"uid/{os.geteuid()}"})

    @unittest.skipIf(os.geteuid() != 0, "only root can act as another user")
    def test_the_files_are_the_users_alone(self):
        before = os.umask(0)
        try:
            self.up()
        finally:
            os.umask(before)
        for name in ("server-0.control.sock", "server-0.audit"):
            self.assertEqual((self.directory / name).stat().st_mode & 0o777, 0o600, name)

    def test_no_certificate_but_an_operators_is_good_for_anything(self):
        self.tls()
        stranger = Authority(self.certificates, "stranger")
        dropped = ("hash", "drop", "users")
        cases = [
            ("a server", self.authority.issue("other", "URI:cell://server/server-1"), "server/server-1 may not use the control plane"),
            ("a client", self.authority.issue("client", "URI:cell://client/shop"), "client/shop may not use the control plane"),
            ("without a URI", self.authority.issue("plain", "DNS:localhost"), "does not say whose it is"),
            ("two identities", self.authority.issue("two", "URI:cell://operator/alice,URI:cell://client/a"), "does not say whose it is"),
            ("expired", self.authority.issue("old", "URI:cell://operator/alice", expired=True), "has expired"),
            ("another authority", stranger.issue("operator", "URI:cell://operator/alice", authority=self.authority), "cannot be reached"),
            ("one that trusts another authority", {**self.operator, "authority": str(stranger.certificate)}, "cannot be reached"),
        ]
        for what, files, error in cases:
            with self.subTest(what=what):
                for command in (dropped, ("regions",)):
                    tried = self.ctl("--timeout", "5", *flags_of(files), *command)
                    self.assertEqual(tried.returncode, ERROR, tried)
                    self.assertIn(error, tried.stderr)
        refused = [line for line in self.audit() if line["event"] == "refused"]
        self.assertEqual({line["who"] for line in refused}, {"server/server-1", "client/shop"})
        self.assertTrue(all(line["code"] == "PERMISSION_DENIED" and line["from"].startswith("127.0.0.1:") for line in refused), refused)
        self.unharmed()
        done = self.ctl(*flags_of(self.operator), *dropped)
        self.assertEqual(done.returncode, 0, done.stderr)
        begin, end = self.audit()[-2:]
        self.assertEqual([(line["event"], line["who"], line["rpc"], line["arguments"]) for line in (begin, end)],
                         [("begin", "operator/alice", "DropTable", 'table: "users"'), ("end", "operator/alice", "DropTable", 'table: "users"')])
        self.assertEqual((begin["id"], end["code"]), (end["id"], "OK"))

    def test_a_client_administers_what_it_has_a_grant_for(self):
        self.tls()
        shop = flags_of(self.authority.issue("shop", "URI:cell://client/shop"))
        for scope in (("--prefix", "shop/"), ("--table", "users")):
            self.assertEqual(self.ctl("grant", "shop", "admin", *scope).returncode, 0)
        self.assertEqual(self.ctl("users", "enforce").returncode, 0)
        for command in (("grant", "bob", "read", "--prefix", "shop/a/"), ("revoke", "bob", "read", "--prefix", "shop/a/"),
                        ("evict", "ttl", "--prefix", "shop/")):
            done = self.ctl(*shop, *command)
            self.assertEqual(done.returncode, 0, (command, done.stderr))
        for command in (("grant", "bob", "read", "--prefix", "sho"), ("grant", "bob", "read"), ("evict", "ttl", "--prefix", ""),
                        ("users", "open"), ("hash", "create", "more"), ("regions",)):
            done = self.ctl(*shop, *command)
            self.assertEqual(done.returncode, 2, command)
            self.assertIn("may not use the control plane for this", done.stderr)
        self.unharmed()
        done = self.ctl(*shop, "hash", "drop", "users")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_tools_without_a_certificate_get_nothing_from_the_port(self):
        self.tls()
        run = lambda command: subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=60)
        call = f"//127.0.0.1:{self.port}/cell.control.Control/Status"
        post = ["-s", "-m", "10", "-H", "content-type: application/grpc", "--data-binary", "@-"]
        if shutil.which("curl"):
            for curl in (["curl", "--http2-prior-knowledge", "http:" + call], ["curl", "-k", "--http2", "https:" + call]):
                answer = run([*curl, *post])
                self.assertNotEqual(answer.returncode, 0, answer)
                self.assertEqual(answer.stdout, b"")
        # TLS 1.3 tells a client only after its handshake that its certificate was missing.
        for version in ("-tls1_3", "-tls1_2", "-tls1_1"):
            answer = run(["openssl", "s_client", "-connect", f"127.0.0.1:{self.port}", "-alpn", "h2", version, "-ign_eof"])
            self.assertNotEqual(answer.returncode, 0, answer.stdout)
        with socket.create_connection(("127.0.0.1", self.port)) as plain:
            plain.settimeout(20)
            plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9))
            try:
                said = plain.recv(4096)
            except ConnectionError:
                said = b""
            self.assertNotIn(b"grpc", said)
        # cellctl without a certificate uses the Unix socket, but a stranger has no such socket.
        (self.directory / "server-0.control").write_text(f"127.0.0.1:{self.port}")
        self.assertEqual(self.ctl("--timeout", "5", "regions").returncode, ERROR)
        (self.directory / "server-0.control").write_text(f"tls://127.0.0.1:{self.port}")
        self.assertIn("asks operators for a certificate: give --tls-authority", self.ctl("regions").stderr)
        (self.directory / "server-0.control").write_text("unix://another-machine/run/cell/server-0.control.sock")
        self.assertIn("is a Unix socket of another machine", self.ctl("regions").stderr)
        self.assertEqual(self.ctl("hash", "get", "users", "alice").stdout, "42")

    def test_idle_connections_keep_no_operator_out(self):
        self.tls()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        before = self.memory_kb()
        for kind, address in ((socket.AF_INET, ("127.0.0.1", self.port)), (socket.AF_UNIX, str(self.directory / "server-0.control.sock"))):
            held = []
            try:
                for _ in range(IDLE_CONNECTIONS):
                    idle = socket.socket(kind, socket.SOCK_STREAM)
                    held.append(idle)
                    idle.settimeout(30)
                    idle.connect(address)
                self.unharmed()
                over_tls = self.ctl("--timeout", "10", *flags_of(self.operator), "regions")
                self.assertEqual(over_tls.returncode, 0, over_tls.stderr)
                self.assertLess(len(list(Path(f"/proc/{self.servers[0].pid}/fd").iterdir())), 400)
                self.assertLess(self.memory_kb() - before, MEMORY_KB)
            finally:
                for idle in held:
                    idle.close()
        self.assertLess((self.directory / "server-0.log").stat().st_size, 100_000)

    def test_without_room_for_the_audit_log_nothing_is_changed(self):
        self.servers = cluster.up(self.directory, server_flags=["--audit-log", "/dev/full"], **SMALL)
        refused = self.ctl("hash", "create", "users")
        self.assertEqual(refused.returncode, ERROR)
        self.assertIn("nothing was changed", refused.stderr)
        self.assertIn("No space left on device", refused.stderr)
        self.assertEqual(self.ctl("hash", "list").stdout.splitlines()[1:], [])
        listed = self.ctl("regions")
        self.assertEqual(listed.returncode, 0, listed.stderr)

    def test_a_server_that_would_be_open_does_not_start(self):
        server = [cluster.binary("cell/cmd/cell_server"), "--dir", str(self.directory), "--name", "server-0"]
        run = lambda *flags: subprocess.run([*server, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
        zookeeper = ["--cluster", "zk://127.0.0.1:1/none"]
        for flags, lines in (
                ([*zookeeper], ["the ZooKeeper of zk://127.0.0.1:1/none"]),
                ([*zookeeper, "--listen", "192.0.2.1:7000", "--control", "192.0.2.1:7100"],
                 ["the control plane at 192.0.2.1:7100", "192.0.2.1:7000", "the ZooKeeper of"])):
            refused = run(*flags)
            self.assertEqual(refused.returncode, ERROR)
            self.assertEqual(len(refused.stderr.splitlines()), 1, refused.stderr)
            self.assertEqual(refused.stderr.count("give --"), len(lines), refused.stderr)
            for part in lines:
                self.assertIn(part, refused.stderr)
            self.assertFalse(self.directory.exists())
        partly = run(*zookeeper, "--insecure", "--control", "127.0.0.1:0", "--tls-key", "/dev/null")
        self.assertEqual((partly.returncode, partly.stderr),
                         (ERROR, "cell_server: mutual TLS needs all three of --tls-certificate, --tls-key and --tls-authority\n"))
        with self.assertRaisesRegex(cluster.ClusterError, "the control plane at 127.0.0.1:"):
            self.up("--control", "127.0.0.1:0")
        self.up("--control", "127.0.0.1:0", "--insecure")
        warnings = [line for line in (self.directory / "server-0.log").read_text().splitlines() if "--insecure: " in line]
        self.assertEqual(len(warnings), 1)
        self.assertIn("can drain this server and drop tables", warnings[0])

    def test_zookeepers_password_is_in_no_command_line(self):
        self.servers = cluster.up(self.directory, zookeeper="start", **SMALL)
        digest = self.directory / cluster.DIGEST
        self.assertEqual(digest.stat().st_mode & 0o777, 0o600)
        password = digest.read_text().strip().split(":", 1)[1]
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                self.assertNotIn(password.encode(), process.read_bytes())
            except OSError:
                continue
        address = cluster_directory.address_of(self.directory)
        stranger = subprocess.run([cluster.binary("tools/cellctl"), "--cluster", address, "status"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, check=False, timeout=60)
        self.assertEqual(stranger.returncode, ERROR)
        self.assertIn("not authenticated", stranger.stderr)
        self.assertEqual(self.ctl("put", "key", "value").returncode, 0)  # The directory has the credentials.
        for ended in cluster_directory.running(self.directory):
            if ended["helper"]:
                self.addCleanup(os.kill, ended["pid"], 15)


if __name__ == "__main__":
    unittest.main()
