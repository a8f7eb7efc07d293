"""Uses the gateway by what people use with Redis: redis-cli and redis-benchmark, and libraries of Python, Go and Java. A
small program for each library (tests/redis) takes the same walk through the commands, and prints what tests/redis/walk.txt
says.

The libraries are fetched by pip, Go and Maven as this machine has them set up, and stay in the user's caches. If they cannot
be fetched, their tests are skipped, unless CELL_REQUIRE_VM is set, as in CI."""

import os
import pwd
import shutil
import subprocess
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.gateway_case import Gateway
from tools import cluster

REDIS_PY = "redis==8.1.0"
SOURCES = Path(cluster.binary("tests/redis/walk.txt")).parent
PLACES = ("/usr/bin", "/bin", "/usr/local/go/bin")
# Bazel clears the environment; the caches and settings of pip, Go and Maven are in the user's own directory.
ENVIRONMENT = {"PATH": ":".join(PLACES), "HOME": pwd.getpwuid(os.getuid()).pw_dir, "LC_ALL": "C.UTF-8"}
WORKERS, INCREMENTS = 8, 125


def unavailable(why):
    """Skips a test, or fails where nothing may be skipped."""
    if os.environ.get("CELL_REQUIRE_VM"):
        raise RuntimeError(why)
    raise unittest.SkipTest(why)


def program(name):
    found = shutil.which(name, path=ENVIRONMENT["PATH"])
    return found or unavailable(f"{name} is not installed")


class RedisClients(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="cell-redis-")
        cls.base = Path(cls.temporary.name)
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.gateway = Gateway(cls.base / "cluster")
        cls.addClassCleanup(cls.gateway.stop)
        cls.host, cls.port = cls.gateway.address.rsplit(":", 1)

    def run_in(self, directory, command, environment=None, **options):
        return subprocess.run([str(word) for word in command], cwd=directory, env={**ENVIRONMENT, **(environment or {})}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=400, check=False, **options)

    def done(self, directory, *command, environment=None, **options):
        """Runs a command that must succeed. Returns what it prints."""
        result = self.run_in(directory, command, environment, **options)
        self.assertEqual(result.returncode, 0, f"{command}\n{result.stdout.decode(errors='replace')}")
        return result.stdout

    def fetch(self, directory, *command, environment=None):
        """Runs a command that fetches packages."""
        result = self.run_in(directory, command, environment)
        if result.returncode != 0:
            unavailable(f"{Path(command[0]).name} cannot fetch packages: {result.stdout.decode(errors='replace')[:2000]}")

    def sources(self, *names):
        """Copies sources to a directory where they can be compiled."""
        directory = Path(tempfile.mkdtemp(prefix="sources-", dir=self.base))
        for name in names:
            shutil.copyfile(SOURCES / name, directory / name)
        return directory

    def walk(self, name, *command, protocol=3, after=()):
        """Runs a program, and compares its lines with those of walk.txt. `name` distinguishes its keys."""
        printed = self.done(self.base, *command, self.host, self.port, f"{name}:", *after).decode()
        wanted = (SOURCES / "walk.txt").read_text().replace("by RESP3", f"by RESP{protocol}")
        self.assertEqual(printed.splitlines(), wanted.splitlines())

    def cli(self, *arguments, **options):
        return self.done(self.base, program("redis-cli"), "-e", "-h", self.host, "-p", self.port, *arguments, **options)

    def test_redis_cli(self):
        text = (SOURCES / "redis_cli.txt").read_text()
        commands = "".join(f"{line[2:]}\n" for line in text.splitlines() if line.startswith("> "))
        replies = "".join(f"{line}\n" for line in text.splitlines() if not line.startswith("> "))
        printed = self.done(self.base, program("redis-cli"), "-3", "--no-raw", "-h", self.host, "-p", self.port, input=commands.encode())
        self.assertEqual(printed.decode().replace("\n\n", "\n"), replies)

    def test_redis_cli_with_a_watched_key(self):
        for change, reply in ((False, b"OK\n"), (True, b"\n")):
            self.cli("SET", "cli-watch", "old")
            with subprocess.Popen([program("redis-cli"), "-h", self.host, "-p", self.port], env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  bufsize=0) as watcher:
                watcher.stdin.write(b"WATCH cli-watch\n")
                self.assertEqual(watcher.stdout.readline(), b"OK\n")
                if change:
                    self.cli("SET", "cli-watch", "theirs")
                printed, _ = watcher.communicate(b"MULTI\nSET cli-watch mine\nEXEC\n", timeout=60)
            self.assertEqual(printed, b"OK\nQUEUED\n" + reply)
            self.assertEqual(self.cli("GET", "cli-watch"), b"theirs\n" if change else b"mine\n")

    def test_redis_cli_with_many_keys(self):
        """Sends 1,000 commands at once (--pipe), and looks over their keys (--scan)."""
        lines = [f"SET cli-scan:{i:03} {i}\r\nINCR cli-turn\r\n" for i in range(500)]
        self.assertIn(b"errors: 0, replies: 1000", self.cli("--pipe", input="".join(lines).encode()))
        found = self.cli("--scan", "--pattern", "cli-scan:*").split()
        self.assertEqual(sorted(found), [f"cli-scan:{i:03}".encode() for i in range(500)])
        self.assertEqual(self.cli("GET", "cli-turn"), b"500\n")

    def test_redis_cli_with_bytes(self):
        for value in (bytes(range(256)), os.urandom(500_000)):
            self.assertEqual(self.cli("-x", "SET", "cli-bytes", input=value), b"OK\n")
            self.assertEqual(self.cli("GET", "cli-bytes"), value + b"\n")

    def test_redis_cli_several_at_once(self):
        with ThreadPoolExecutor(WORKERS) as threads:
            printed = list(threads.map(lambda _: self.cli("-r", INCREMENTS, "INCR", "cli-count"), range(WORKERS)))
        counts = [int(line) for text in printed for line in text.split()]
        self.assertEqual(sorted(counts), list(range(1, WORKERS * INCREMENTS + 1)))

    def test_redis_benchmark(self):
        requests = 10_000
        for protocol in ([], ["-3"]):
            self.cli("DEL", "counter:__rand_int__")
            printed = self.done(self.base, program("redis-benchmark"), "-h", self.host, "-p", self.port, "-q", "-P", "16", "-n", requests, "-t",
                                "ping,set,get,incr,mset", *protocol).decode()
            self.assertNotRegex(printed, "(?i)error")
            for test in ("PING_INLINE", "PING_MBULK", "SET", "GET", "INCR", r"MSET \(10 keys\)"):
                self.assertRegex(printed, rf"{test}: [\d.]+ requests per second")
            self.assertEqual(self.cli("GET", "counter:__rand_int__"), f"{requests}\n".encode())

    def test_redis_py(self):
        environment = self.base / "env"
        subprocess.run([program("python3"), "-m", "venv", str(environment)], check=True, timeout=200)
        python = environment / "bin" / "python"
        self.fetch(self.base, python, "-m", "pip", "install", "-q", "--disable-pip-version-check", REDIS_PY)
        for way in ("sync", "asyncio"):
            for protocol in (3, 2):
                with self.subTest(way=way, protocol=protocol):
                    self.walk(f"py-{way}-{protocol}", python, "-W", "error", SOURCES / "walk.py", protocol=protocol, after=[way, protocol])

    def test_go_redis(self):
        go = program("go")
        directory = self.sources("go.mod", "go.sum", "walk.go")
        environment = {"GOTOOLCHAIN": "local", "GOFLAGS": "-buildvcs=false"}
        self.fetch(directory, go, "mod", "download", "github.com/redis/go-redis/v9", environment=environment)
        self.done(directory, go, "build", "-o", "walk", ".", environment=environment)
        self.walk("go", directory / "walk")

    def java(self, main):
        directory = self.sources("pom.xml", "Steps.java", f"{main}.java")
        program("javac")
        self.fetch(directory, program("mvn"), "-B", "-q", "dependency:copy-dependencies", "-DoutputDirectory=jars")
        self.done(directory, program("javac"), "-Xlint:all", "-Werror", "-cp", "jars/*", "-d", ".", "Steps.java", f"{main}.java")
        self.walk(main, program("java"), "-cp", f"{directory}:{directory}/jars/*", main)

    def test_jedis(self):
        self.java("JedisWalk")

    def test_lettuce(self):
        self.java("LettuceWalk")


if __name__ == "__main__":
    unittest.main()
