"""Tests cellctl as users see it: text that is written and read back, the prompt, and reports of problems."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import termios
import threading
import time
import unittest
from pathlib import Path

from tests.cellctl_case import ERROR, CellctlCase
from tools import cluster, cluster_down


class Cellctl(CellctlCase):
    # Standard output, and paths.

    def test_output_that_cannot_be_written_is_an_error(self):
        self.up()
        self.done("put", "large", "-", input=b"v" * 100_000)
        self.done("put", "small", "1")
        self.done("hash", "create", "users")
        self.done("hash", "put", "users", "large", "v" * 100_000)
        local = ("--workload", "local", "--operation", "get", "--keys", "1000", "--seconds", "0.1")
        programs = [("cellctl", [cluster.binary("tools/cellctl"), "--cluster", str(self.directory), *arguments]) for arguments in (
            ("get", "large"), ("get", "small"), ("-o", "json", "get", "large"), ("hash", "get", "users", "large"), ("scan",),
            ("-o", "json", "scan"), ("status",), ("-o", "json", "status"), ("regions",), ("-o", "json", "regions"), ("check",),
            ("hash", "list"), ("top", "--count", "1", "--interval", "0.1"))]
        programs += [("cell_bench", [cluster.binary("tools/cell_bench"), *local, *more]) for more in ((), ("--json", "-"))]
        for name, command in programs:
            for why in ("No space left on device", "Bad file descriptor"):
                shell = 'exec "$@" > /dev/full' if why.startswith("No space") else 'exec "$@" >&-'
                with self.subTest(command=command[1:], why=why):
                    ended = subprocess.run(["sh", "-c", shell, "sh", *command], stderr=subprocess.PIPE, timeout=60, check=False)
                    self.assertEqual((ended.returncode, ended.stderr.decode()), (ERROR, f"{name}: cannot write to standard output: {why}\n"))
        full = subprocess.run([cluster.binary("tools/cell_bench"), *local, "--json", "/dev/full"], stderr=subprocess.PIPE, timeout=60, check=False)
        self.assertEqual((full.returncode, full.stderr), (ERROR, b"cell_bench: cannot write /dev/full\n"))

    def test_paths_are_where_bazel_run_was_called(self):
        self.up()
        self.done("put", "key", "value")
        elsewhere = Path(self.temporary.name) / "elsewhere"
        elsewhere.mkdir()
        environment = {**os.environ, "BUILD_WORKING_DIRECTORY": self.temporary.name}
        run = lambda program, *arguments: subprocess.run([cluster.binary(f"tools/{program}"), *arguments], cwd=elsewhere, env=environment,
                                                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
        done = run("cellctl", "--cluster", self.directory.name, "backup", "saved")
        self.assertEqual(done.returncode, 0, done.stderr)
        environment["CELL_CLUSTER"] = self.directory.name
        (Path(self.temporary.name) / "lines").write_text("other\t1\n")
        self.assertEqual(run("cellctl", "load", "lines").returncode, 0)
        self.assertEqual(run("cell_bench", "--workload", "local", "--operation", "get", "--keys", "1000", "--seconds", "0.1", "--json",
                             "out.json").returncode, 0)
        self.assertTrue((Path(self.temporary.name) / "saved" / "backup").exists())
        self.assertIn("ops_per_second", (Path(self.temporary.name) / "out.json").read_text())
        self.assertEqual(os.listdir(elsewhere), [])

    # Text.

    def test_what_scan_writes_load_reads(self):
        self.up()
        pairs = {b"plain": b"text", b"lines": b"a\nb\tc\rd\\n", "gr\u00fc\u00df".encode(): b"", b"tab\tkey\n": b"\\", b"\x00\xff": bytes(range(256)),
                 b"{\"key\": 1}": b"{\"value\"}", b"screen": b"\x1b[2J\x1b]0;title\x07 \xc2\x9b2J"}
        for key, value in pairs.items():
            if b"\0" not in key:
                self.done("put", key, "-", input=value)
        as_json = [{"key": {"hex": k.hex()}, "value": {"hex": v.hex()}} for k, v in pairs.items() if b"\0" in k]
        self.assertIn(b"1 records", self.done("load", "-", input=json.dumps(as_json[0]).encode()))
        text, lines = self.done("scan"), self.done("-o", "json", "scan")
        for written in (text, lines):
            self.assertEqual(len(written.splitlines()), len(pairs))
            self.assertFalse(any(c < 32 and c not in (9, 10) or c == 127 for c in written), written)
            self.assertNotIn("\x9b", written.decode())
            self.up_empty()
            self.assertIn(f"{len(pairs)} records".encode(), self.done("load", "-", input=written))
            self.assertEqual(self.done("scan"), text)
            for key, value in pairs.items():
                if b"\0" not in key:
                    self.assertEqual(self.done("get", key), value)
        shown, status = self.terminal("get", "screen")
        self.assertEqual((shown, status), (rb"\x1b[2J\x1b]0;title\x07 \xc2\x9b2J" + b"\r\n", 0))

    def test_a_pair_with_a_ttl_expires(self):
        self.up()
        saved = str(Path(self.temporary.name) / "saved")
        self.done("put", "session", "value", "--ttl", "1.5s")
        self.done("put", "day", "value", "--ttl", "1d")
        self.done("put", "forever", "value")
        self.assertRegex(self.done("ttl", "session"), rb"^(1\.[0-4]|0\.)[0-9]+ s\n$")
        self.assertRegex(self.done("ttl", "day"), rb"^863[0-9][0-9]\.[0-9]+ s\n$")
        self.assertEqual(self.done("ttl", "forever"), b"it does not expire\n")
        self.assertEqual(self.ctl("ttl", "nothing").returncode, 1)
        self.assertTrue(json.loads(self.done("-o", "json", "ttl", "day"))["expires"])
        self.done("hash", "create", "users")
        self.done("hash", "put", "users", "short", "value", "--ttl", "1ms")
        self.done("hash", "put", "users", "long", "value", "--ttl", "1d")
        self.assertRegex(self.done("hash", "ttl", "users", "long"), rb"^863[0-9][0-9]\.[0-9]+ s\n$")
        made = self.ctl("backup", saved)
        self.assertEqual(made.stderr, b"cellctl: only the tree is backed up, not the cluster's 1 Pilaf table\n")
        self.assertEqual((made.returncode, made.stdout), (0, f"3 pairs are backed up in {saved}\n".encode()))
        for ttl, why in (("0s", "at least 0.001 ms"), ("-1s", "at least 0.001 ms"), ("300000d", "2262"), ("inf s", "--ttl"), ("nan s", "--ttl"),
                         ("5", "--ttl: 5 is not a number and its unit, ms, s, m, h or d"), ("5 weeks", "--ttl"), ("s", "--ttl: s is not a number and its unit, ms, s, m, h or d"), ("", "--ttl")):
            result = self.ctl("put", "other", "value", "--ttl=" + ttl)
            self.assertEqual((result.returncode == 0, why in result.stderr.decode()), (False, True), (ttl, result))
        deadline = time.monotonic() + 30
        while self.ctl("get", "session").returncode == 0:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.1)
        self.assertEqual(self.done("scan", "--keys-only"), b"day\nforever\n")
        self.assertEqual(self.done("count"), b"2\n")
        self.assertEqual(self.ctl("hash", "ttl", "users", "short").returncode, 1)
        self.assertEqual(self.ctl("hash", "get", "users", "short").returncode, 1)
        self.assertEqual(self.done("hash", "get", "users", "long"), b"value")
        self.up_empty()
        self.assertEqual(self.done("restore", saved), f"2 pairs were restored from {saved}\n1 others had expired\n".encode())
        self.assertRegex(self.done("ttl", "day"), rb"^86[23][0-9][0-9]\.[0-9]+ s\n$")
        self.assertEqual(self.done("ttl", "forever"), b"it does not expire\n")

    def test_a_range_without_an_end_is_deleted_only_if_that_is_meant(self):
        self.up()
        for key in ("a", "b", "c", "d"):
            self.done("put", key, "value")
        self.refused("which is below", "delete-range", "b", "a")
        self.refused("which is below", "count", "b", "a")
        for form in (["b"], [], ["--prefix", ""]):
            self.refused("nothing was deleted", "delete-range", *form, stdin=subprocess.DEVNULL)
        self.assertEqual(self.done("count"), b"4\n")
        self.assertEqual(self.done("delete-range", "a", "b"), b"1 pairs deleted\n")
        self.assertEqual(self.done("delete-range", "d", "--yes"), b"1 pairs deleted\n")
        for typed, left in ((b"y\n", b"2\n"), (b"yes\n", b"0\n")):
            shown, _ = self.terminal("delete-range", typed=typed, prompt=b"Type yes to delete all keys of the tree: ")
            self.assertEqual(self.done("count"), left, shown)

    def test_an_interrupt_stops_a_deletion_and_says_how_far_it_came(self):
        self.up()
        self.done("load", "-", input="".join(f"key{i:06}\tvalue\n" for i in range(20_000)).encode())
        process = subprocess.Popen(self.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)

        def type_line(line):
            process.stdin.write(line)
            process.stdin.flush()

        type_line(b"count\n")  # It is connected then.
        self.assertEqual(process.stdout.readline(), b"20000\n")
        self.servers[0].send_signal(signal.SIGSTOP)
        type_line(b"delete-range --yes\n")
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and not self.catches(process.pid, signal.SIGINT):
            pass  # It has not begun yet.
        process.send_signal(signal.SIGINT)
        self.servers[0].send_signal(signal.SIGCONT)
        stopped = re.fullmatch(r"cellctl: interrupted: (\d+) pairs below key\d+ were deleted; run the command again for the rest\n",
                               process.stderr.readline().decode())
        self.assertTrue(stopped)
        type_line(b"count\n")
        left = int(process.stdout.readline())
        self.assertEqual(left + int(stopped.group(1)), 20_000)
        self.assertGreater(left, 0)
        type_line(b"delete-range --yes\n")
        self.assertEqual(process.stdout.readline(), f"{left} pairs deleted\n".encode())
        process.communicate(timeout=30)

    @staticmethod
    def catches(pid, number):
        """Whether a process has a handler for a signal."""
        status = Path(f"/proc/{pid}/status").read_text()
        return int(re.search(r"SigCgt:\s*(\w+)", status).group(1), 16) >> (number - 1) & 1 == 1

    def test_load_says_what_is_wrong(self):
        self.up()
        file = Path(self.temporary.name) / "lines"
        self.refused("is a directory", "load", self.temporary.name)
        self.refused("No such file", "load", str(file))
        for line, part in (("a\\q\tb", "line 3: invalid escape"), ("no tab", "line 3: it is neither"),
                           ('{"key": "a"}', 'line 3: it is not {"key"'), ("key\t" + "x" * 5_000_000, "line 3: it is longer than")):
            file.write_text("one\t1\n\n" + line + "\n")
            self.assertIn("1 records were loaded", self.refused(part, "load", str(file))[0])
        file.write_text("C:\\new\tD:\\table")
        self.done("load", "--raw", str(file))
        self.assertEqual(self.done("get", "C:\\new"), b"D:\\table")
        self.refused("--limit: -1 is not", "scan", "--limit", "-1")
        self.assertEqual(self.done("scan", "--limit", "0"), b"")

    def test_words_that_are_not_known(self):
        self.up()
        self.refused('there is no command "delete": did you mean del?', "delete", "a", "key")
        self.refused('del: unexpected argument "b"', "del", "a", "b")
        self.refused("did you mean --cluster?", "--clustre", "/tmp", "get", "key")
        self.refused("key is required", "get")
        self.refused("is longer than 226 bytes, the maximum for this cluster's nodes", "get", "k" * 227)
        none = subprocess.run([cluster.binary("tools/cellctl"), "--cluster", "/no/such", "status"], stderr=subprocess.PIPE, check=False)
        self.assertIn(b"./bazelw run //tools:up -- --dir '/no/such'", none.stderr)
        self.refused("--path: hybird not in", "--path", "hybird", "get", "a")
        for form in (["hash", "create", "t"], ["hash", "put", "t", "k", "v"], ["hash", "put", "--table", "t", "k", "w"]):
            self.done(*form)
        self.assertEqual(self.done("hash", "get", "t", "k"), b"w")
        self.assertEqual(self.done("hash", "get", "--table", "t", "k"), b"w")
        self.refused("is longer than 4096 bytes, the maximum for Pilaf tables", "hash", "get", "t", "k" * 4097)
        self.assertIn(b"buckets", self.done("hash", "stats", "t"))
        self.done("hash", "drop", "--table", "t")
        self.refused("the layout slots has no buckets", "hash", "create", "u", "--layout", "slots", "--bucket-bytes", "512")
        self.refused("server-0 is not draining", "drain", "server-0", "--cancel")

    def test_another_users_cluster(self):
        self.up()
        os.chmod(self.directory / "cluster.json", 0)
        # Root can read any file, so this capability is removed.
        drop = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
        refused = subprocess.run([*drop, *self.command("get", "key")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=30, check=False)
        self.assertEqual(refused.returncode, ERROR)
        self.assertIn(b"cellctl: permission denied", refused.stderr)

    def test_a_bench_says_what_it_missed_and_cleans_up(self):
        self.up()
        self.done("put", "mine", "1")
        bench = [cluster.binary("tools/cell_bench"), "--cluster", str(self.directory), "--keys", "2000", "--depth", "4", "--json", "-"]
        run = lambda *more: subprocess.run([*bench, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)
        begun = time.monotonic()
        missed = run("--rate", "50000000", "--seconds", "0.5", "--cleanup", "--distribution", "zipfian", "--value-bytes", "1K")
        self.assertLess(time.monotonic() - begun, 20)  # It would take minutes to do all that was due.
        self.assertEqual(missed.returncode, 0, missed.stderr)
        result = json.loads(missed.stdout)
        self.assertIn(b"the rate of 50000000 was not kept", missed.stderr)
        self.assertFalse(result["kept_rate"])
        self.assertGreater(result["not_begun"], 1_000_000)
        self.assertGreaterEqual(result["deleted"], 2000)
        self.assertEqual({name: result[name] for name in ("rate", "distribution", "seconds", "fabric", "selector", "prefix")},
                         {"rate": 5e7, "distribution": "zipfian", "seconds": 0.5, "fabric": "auto", "selector": "cell", "prefix": "bench-"})
        self.assertEqual(self.done("scan"), b"mine\t1\n")
        kept = run("--rate", "100", "--seconds", "0.5", "--prefix", "other/")
        self.assertEqual((kept.returncode, kept.stderr), (0, b""))
        self.assertTrue(json.loads(kept.stdout)["kept_rate"])
        self.assertEqual(len(self.done("scan", "--prefix", "other/", "--keys-only").splitlines()), 2000)
        for flags, part in ((["--json", "/no/such/file"], "cannot write"), (["--cleanup", "--prefix", ""], "--cleanup deletes"),
                            (["--key-bytes", "9"], "--key-bytes must be at least 14"), (["--sekonds", "1"], "did you mean --seconds?")):
            begun = time.monotonic()
            refused = subprocess.run(bench[:-2] + flags, stderr=subprocess.PIPE, stdout=subprocess.PIPE, timeout=60, check=False)
            self.assertEqual(refused.returncode, ERROR)
            self.assertIn(f"cell_bench: {part}" if "mean" not in part else part, refused.stderr.decode())

    def test_a_bench_refuses_flags_that_it_would_not_obey(self):
        bench = [cluster.binary("tools/cell_bench"), "--cluster", "/no/such/cluster", "--keys", "100", "--seconds", "0.1"]
        for flags, message in ((["--inline-max", ""], '--inline-max: "" is not a whole number from 0 to 986'),
                               (["--inline-max", "-1"], "--inline-max: -1 is not a whole number from 0 to 986"),
                               (["--inline-max", "1" + 20 * "0"], "--inline-max: 100000000000000000000 is not a whole number from 0 to 986"),
                               (["--cache-level-min", "0"], "--cache-level-min: 0 is not a whole number from 1 to 24"),
                               (["--cache-level-min", "-3"], "--cache-level-min: -3 is not a whole number from 1 to 24"),
                               (["--inline-max", "64"], "--inline-max is not for the workload get: it is for the workload local"),
                               (["--operation", "scan"], "--operation is not for the workload get: it is for the workloads local and lmdb"),
                               (["--workload", "local", "--inline-max", "219"],
                                "--inline-max 219 is too large: nodes of 1024 bytes hold pairs of up to 218 bytes, key and value together"),
                               (["--workload", "local", "--key-bytes", "7"], "--key-bytes must be at least 8: 8 to distinguish keys, and the 0 of --prefix"),
                               (["--workload", "lmdb", "--operation", "put"], "--operation put: lmdb measures only reads")):
            refused = subprocess.run([*bench, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False, text=True)
            self.assertEqual((refused.returncode, refused.stderr), (ERROR, f"cell_bench: {message}\n"))
        small = subprocess.run([*bench, "--workload", "local", "--node-bytes", "512"], stdout=subprocess.PIPE, timeout=60, check=False)
        self.assertEqual(small.returncode, 0)  # The default of --inline-max is what these nodes can hold.

    def test_a_server_refuses_flags_before_it_begins(self):
        directory = Path(self.temporary.name) / "none"
        server = [cluster.binary("cell/cmd/cell_server"), "--dir", str(directory), "--cluster", "zk://127.0.0.1:1/none", "--insecure"]
        for flags, message in ((["--inline-max", "-1"], "--inline-max: -1 is not a whole number from 0 to 986"),
                               (["--node-bytes", "512", "--inline-max", "91"],
                                "--inline-max 91 is too large: nodes of 512 bytes hold pairs of up to 90 bytes, key and value together"),
                               (["--node-bytes", "100"], "--node-bytes: 100 not in {512,1024,2048,4096}"),
                               (["--meganode-bytes", "1000"], "meganode_bytes must be a multiple of node_bytes (1024), from 4 nodes to 32 GB, not 1000")):
            refused = subprocess.run([*server, *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False, text=True)
            self.assertEqual((refused.returncode, refused.stderr), (ERROR, f"cell_server: {message}\n"))
            self.assertFalse(directory.exists())

    def test_the_prompt(self):
        self.up()
        result = self.ctl(input="put 'a key' \"it's\"\nget 'a key'\nget nothing\nhas 'a key'\nget 'open\ndelete x\nhelp get\na\0\x1bb\n  exit\nget no\n".encode())
        self.assertIn(b"it's\nthere is no such key\nthere is one\n", result.stdout)
        self.assertIn(b"Write KEY's value", result.stdout)
        self.assertEqual(result.stderr.decode().splitlines(),
                         ["cellctl: a quotation mark (') is not closed", 'cellctl: there is no command "delete": did you mean del?',
                          r'cellctl: there is no command "a\x00\x1bb"'])
        # On a terminal, in a locale without UTF-8.
        shown, _ = self.terminal(typed="put gr\u00fc\u00df \u20ac\rget gr\u00fc\u00df\rhash cre\t tab\rhash drop t\t\rexit\r".encode())
        self.assertIn("\u20ac\r\n", shown.decode())
        self.assertEqual(self.done("get", "gr\u00fc\u00df"), "\u20ac".encode())
        # "hash create tab" and "hash drop tab" were completed.
        self.assertEqual(self.done("hash", "list").splitlines()[1:], [], shown)

    def wait_for(self, condition, seconds=30):
        deadline = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), deadline)

    def test_an_interrupt_at_the_prompt_abandons_the_line(self):
        self.up()
        master, slave = pty.openpty()
        process = subprocess.Popen(self.command(), stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "TERM": "vt100", "HOME": self.temporary.name},
                                   start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        self.addCleanup(process.kill)
        os.close(slave)
        shown = b""

        def read_until(condition, seconds=30):
            """Reads until the condition is true, or the terminal is closed. Returns whether it is true."""
            nonlocal shown
            deadline = time.monotonic() + seconds
            while not condition() and time.monotonic() < deadline:
                if select.select([master], [], [], 0.5)[0]:
                    try:
                        shown += os.read(master, 1 << 16)
                    except OSError:
                        break
            return condition()

        def types(text, *parts):
            """Types, and waits for these parts and then a prompt. At an interrupt the kernel discards output, and on a busy machine
            sometimes that which answers the interrupt as well: then Enter shows the prompt again."""
            begin = len(shown)
            os.write(master, text)
            for last in (False, True):
                if read_until(lambda: all(part in shown[begin:] for part in parts) and shown[begin:].endswith(b"\r\ncell> "), 30 if last else 5):
                    return
                os.write(master, b"\r")
            self.fail(shown)

        self.assertTrue(read_until(lambda: shown.endswith(b"\r\ncell> ")), shown)
        os.write(master, b"put key abandoned")
        self.assertTrue(read_until(lambda: b"abandoned" in shown), shown)
        types(b"\x03")
        types(b"put key value\r", b"put key value")
        self.wait_for(lambda: self.done("get", "key") == b"value")
        # Characters typed right behind an interrupt belong to the next line.
        types(b"put key abandoned\x03put key whole\r", b"put key whole")
        self.wait_for(lambda: self.done("get", "key") == b"whole")
        types(b"\x12key\x03")  # In the middle of a search of the history.
        # The prompt's exit status is that of the last line. This one asks no server, whose answer may come too late here.
        types(b"help put\r", b"Usage:")
        for _ in range(3):
            # Signals that come together count once: the second is sent when the first has been answered.
            types(b"\x03")
            os.write(master, b"\x03")
            read_until(lambda: False, 5)  # Or until the terminal is closed.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
                break
        self.assertEqual(process.poll(), 0, shown)
        self.assertIn(b"press Ctrl-C again", shown)
        os.close(master)

    # The state of servers, and what is wrong.

    def test_status_regions_and_top_name_every_server(self):
        self.up(servers=3, durability="sync")
        status = self.done("status").decode()
        self.assertRegex(status, r"(?m)^server-2 +serving .* 0/64 +0 +0  -$")  # It holds nothing.
        self.assertRegex(self.done("regions").decode(), "server-2 +holds no regions")
        text = "".join(f"key{i:06}\t{'v' * 100}\n" for i in range(30_000))
        self.done("load", "-", input=text.encode())
        self.servers[1].kill()
        self.servers[1].wait()
        self.assertEqual(self.done("--timeout", "20", "scan").decode(), text)
        regions = self.lines("regions")
        self.assertGreater(len(regions), 2)
        self.assertEqual(len({r["region"] for r in regions}), len(regions))
        self.assertTrue(all(r["served"] for r in regions), regions)
        self.assertNotIn("server-1", {r["server"] for r in regions})
        shown = self.ctl("regions")
        self.assertEqual(shown.returncode, ERROR)
        self.assertRegex(shown.stdout.decode(), "server-1 +does not answer")
        shown = self.ctl("status")
        self.assertEqual(shown.returncode, ERROR)
        self.assertRegex(shown.stdout.decode(), "(?m)^server-1 +no answer .*it has ended")
        self.assertEqual([s["server"] for s in self.lines("status") if "error" in s], ["server-1"])
        top = self.done("top", "--count", "1", "--interval", "0.1").decode()
        self.assertIn("server-1: it has ended", top)
        self.assertIn(" 2/3 ", top)
        self.assertIn(" reads/op  trips/op ", top)

    def test_a_store_that_fills_up_says_so_before_it_is_full(self):
        self.up(servers=1, meganode_bytes=512 << 10, extents_bytes=1 << 20, regions_max=1)
        self.assertNotIn("nearly full", self.done("status").decode())
        stored, fill = 0, 0
        while fill < 0.82:
            self.done("load", "-", input="".join(f"key{stored + i:06}\t{'v' * 60}\n" for i in range(50)).encode())
            stored += 50
            fill = self.lines("regions")[0]["fill"]
        deadline = time.monotonic() + 30
        while "nearly full" not in (status := self.done("status").decode()) and time.monotonic() < deadline:
            time.sleep(0.1)
        self.assertRegex(status, r"1 region is nearly full and could not be split: region 1 is 8\d % full")
        self.assertRegex(status, r"8\d % full, and could not be split: .*--regions-max")
        self.assertIn("could not be split", (self.directory / "server-0.log").read_text())
        # With fewer keys it is as before.
        self.done("delete-range", "--yes")
        self.assertNotIn("nearly full", self.done("status").decode())

    def test_a_server_that_may_hold_fewer_regions_than_it_has_says_so(self):
        small = {"servers": 1, "meganode_bytes": 64 << 10, "extents_bytes": 256 << 10, "durability": "sync"}
        text = "".join(f"key{i:06}\t{'v' * 60}\n" for i in range(3_000))
        self.up(**small)
        self.done("load", "-", input=text.encode())
        held = len(self.lines("regions"))
        self.assertGreater(held, 4)
        cluster.end(self.servers)
        with self.assertRaisesRegex(cluster.ClusterError, "maximum number of regions, so .* of its regions cannot be recovered: raise --regions-max"):
            self.up(**small, regions_max=4)
        self.up(**small)
        self.assertEqual(self.done("--timeout", "20", "scan").decode(), text)

    def test_a_full_store_evicts_what_the_rules_allow(self):
        self.up(servers=1, meganode_bytes=256 << 10, extents_bytes=1 << 20, regions_max=3, durability="async")
        self.assertEqual(self.done("evict"), b"there are no rules: nothing is evicted\n")
        self.refused("not in {none,ttl,lru-sampled,default}", "evict", "lru")
        self.refused("too long", "evict", "ttl", "--prefix", "p" * 65)
        self.done("load", "-", input="".join(f"pinned{i:04}\tvalue\n" for i in range(100)).encode())
        many = "".join(f"cache/{i * 7919 % 20_000:05}\t{'v' * 60}\n" for i in range(20_000)).encode()
        full = self.ctl("load", "-", input=many)
        self.assertEqual(full.returncode, ERROR)
        self.assertIn("the meganode is full and was not split", full.stderr.decode())
        self.assertEqual(self.done("evict", "lru-sampled", "--prefix", "cache/"), b"rule          keys that begin with\nlru-sampled   cache/\n")
        self.done("evict", "none", "--prefix", "cache/0")
        self.assertEqual(self.lines("evict")[0][1], {"prefix": "cache/0", "rule": "none"})
        self.done("evict", "default", "--prefix", "cache/")
        self.assertEqual(self.done("evict", "default", "--prefix", "cache/0"), b"there are no rules: nothing is evicted\n")
        self.done("evict", "lru-sampled", "--prefix", "cache/")
        self.done("load", "-", input=many)
        self.done("load", "-", input=many)
        kept = int(self.done("count", "--prefix", "cache/"))
        self.assertLess(kept, 15_000)
        self.assertGreater(kept, 2_000)
        self.assertEqual(self.done("count", "--prefix", "pinned"), b"100\n")
        # A value that would take most of a region is refused, and no pair is evicted for it.
        large = b"x" * 600_000
        self.done("put", "cache/large", "-", input=large)
        evicted = self.lines("status")[0]["evicted"]
        self.refused("no room", "put", "cache/large2", "-", input=large)
        self.assertEqual(self.lines("status")[0]["evicted"], evicted)
        self.assertIn("no errors", self.done("check").decode())
        self.assertGreater(self.lines("status")[0]["evicted"], 10_000)
        self.assertRegex(self.done("status").decode(), r"nearly full and could not be split: .* \(the server has evicted [0-9]+ pairs so far\)")
        self.assertIn("splits/s, joins/s, gone/s, evicted/s", self.done("top", "--count", "1", "--interval", "0.1").decode())
        self.assertEqual(self.lines("top", "--count", "1", "--interval", "0.1")[0]["evicted_per_second"], 0)
        # Rules are in the region table, and outlive the servers.
        cluster_down.down(self.directory)
        self.servers = cluster.up(self.directory)
        self.assertEqual(self.done("evict"), b"rule          keys that begin with\nlru-sampled   cache/\n")
        self.done("evict", "none", "--prefix", "cache/")
        self.assertEqual(self.ctl("load", "-", input=many).returncode, ERROR)

    def test_a_full_table_evicts_what_its_rule_allows(self):
        self.up(servers=1, meganode_bytes=64 << 10, extents_bytes=256 << 10, regions_max=2, durability="async")
        self.done("hash", "create", "t")
        self.refused('no table "u"', "evict", "ttl", "--table", "u")
        self.refused("--prefix", "evict", "ttl", "--table", "t", "--prefix", "p")
        many = "".join(f"{i:05}\t{'v' * 60}\n" for i in range(5_000)).encode()
        self.assertEqual(self.ctl("load", "-", "--table", "t", input=many).returncode, ERROR)
        self.assertEqual(self.done("evict", "lru-sampled", "--table", "t"), b"rule          table\nlru-sampled   t\n")
        self.assertEqual(self.lines("evict")[0][0], {"table": "t", "rule": "lru-sampled"})
        self.done("load", "-", "--table", "t", input=many)
        self.assertGreater(self.lines("status")[0]["evicted"], 1_000)
        self.assertEqual(self.done("hash", "get", "t", "04999"), b"v" * 60)
        self.assertIn("no errors", self.done("check").decode())
        self.done("hash", "drop", "t")
        self.assertEqual(self.done("evict"), b"there are no rules: nothing is evicted\n")

    def test_what_needs_no_tree_works_without_its_root(self):
        self.up(servers=2, durability="none", server_flags=["--no-balance"])
        self.done("hash", "create", "t")
        self.done("load", "-", "--table", "t", input=b"".join(b"key%d\tvalue\n" % i for i in range(8)))
        regions = self.lines("regions")
        root = next(r for r in regions if not r["table"])
        dead = int(root["server"][7:])
        lost = {r["region"] for r in regions if r["server"] == root["server"]}
        self.assertEqual(len(lost), 2)  # The root, and a part of the table.
        other = f"server-{1 - dead}"
        self.servers[dead].kill()
        self.servers[dead].wait()
        shown = self.ctl("status")
        self.assertEqual(shown.returncode, ERROR, shown)
        self.assertRegex(shown.stdout.decode(), f"(?m)^server-{dead} +no answer .*it has ended.*; 2 of its regions are not served$")
        self.assertRegex(shown.stdout.decode(), f"(?m)^{other} +serving")
        for region in lost:
            self.assertRegex(shown.stdout.decode(), f"(?m)^server-{dead} +{region} .*not served: its server does not answer$")
        silent = next(s for s in self.lines("status") if "error" in s)
        self.assertEqual((silent["server"], {r["region"] for r in silent["regions_not_served"]}), (f"server-{dead}", lost))
        self.assertEqual({r["region"] for r in self.lines("regions") if not r["served"]}, lost)
        self.assertIn(f"server-{dead}: it has ended", self.done("top", "--count", "1", "--interval", "0.1").decode())
        self.assertIn(b"2", self.done("hash", "list").splitlines()[1])
        self.assertIn(b"not there", self.done("hash", "stats", "t"))
        got = [self.ctl("--timeout", "2", "hash", "get", "t", f"key{i}") for i in range(8)]
        self.assertEqual({g.returncode for g in got}, {0, ERROR})
        self.refused("1 regions are left, and none can be migrated away", "drain", other)
        self.done("drain", other, "--cancel")
        self.done("log-level", other, "debug")
        # The prompt opens, too, though the tree is not available.
        prompt = self.ctl("--timeout", "2", input=b"status\nget key\n")
        self.assertIn(b"no answer", prompt.stdout)
        self.assertIn(f"region {root['region']} on server-{dead}", prompt.stderr.decode().splitlines()[-1])

    def test_a_drain_that_is_cancelled_or_cannot_end(self):
        self.up(servers=2, durability="none", regions_max=16)
        self.done("load", "-", input="".join(f"key{i:06}\t{'v' * 100}\n" for i in range(30_000)).encode())
        before, now = None, self.lines("regions")
        while now != before or any(r["busy"] for r in now):  # Wait until no table change of server-1 can be under way.
            time.sleep(0.3)
            before, now = now, self.lines("regions")
        draining_now = lambda: json.loads((self.directory / "regions.json").read_text()).get("draining")
        self.servers[1].send_signal(signal.SIGSTOP)  # It takes nothing, so nothing moves.
        draining = subprocess.Popen(self.command("drain", "server-0"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while not draining_now():
            time.sleep(0.02)
        self.done("drain", "server-0", "--cancel")
        begun = time.monotonic()
        _, error = draining.communicate(timeout=30)
        self.assertEqual(draining.returncode, ERROR)
        self.assertRegex(error.decode(), "^cellctl: the drain was cancelled by another command; [0-9]+ regions are left\n$")
        self.assertLess(time.monotonic() - begun, 5)
        self.refused("none can be migrated away", "drain", "server-0")
        self.servers[1].send_signal(signal.SIGCONT)
        shown, status = self.terminal("drain", "server-0")
        self.assertEqual(status, 0, shown)
        self.assertEqual({r["server"] for r in self.lines("regions")}, {"server-1"})
        self.servers[0].send_signal(signal.SIGSTOP)
        self.refused("the other servers have room for only 0", "drain", "server-1")
        stopped = lambda *command: self.refused("within 1 s; is it stopped or overloaded?", "--timeout", "1", *command)[-1]
        self.assertRegex(stopped("log-level", "server-0", "debug"), r"^cellctl: server-0 \(control plane at .*\) did not answer within")
        self.assertRegex(stopped("drain", "server-0"), r"^cellctl: server-0 \(control plane at .*\) did not finish within")

    def test_a_region_is_moved_while_the_balancer_moves_others(self):
        self.up(servers=2, workers=2)
        pairs = "".join(f"key{i:06}\t{'v' * 200}\n" for i in range(40_000)).encode()  # They fill about 20 regions.
        load = subprocess.Popen(self.command("load", "-"), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        feed = threading.Thread(target=load.communicate, args=(pairs,))
        feed.start()
        self.addCleanup(load.wait)
        self.addCleanup(feed.join)
        for i in range(20):
            self.done("move", "1", f"server-{i % 2}")
            rows = [line.split()[1] for line in self.done("status").decode().split("\n\n")[1].splitlines()[1:]]
            self.assertEqual(len(rows), len(set(rows)), rows)
        self.refused("the cluster has no region 9999", "move", "9999", "server-0")
        self.refused('no server named "nobody"', "move", "1", "nobody")

    def test_progress_on_a_terminal(self):
        self.up()
        file = Path(self.temporary.name) / "lines"
        file.write_text("".join(f"key{i:06}\t{'v' * 50}\n" for i in range(60_000)))
        shown, status = self.terminal("load", str(file))
        self.assertEqual(status, 0, shown)
        self.assertRegex(shown, rb"\rloading \[#* *\] +\d+% \d+ records")
        shown, status = self.terminal("backup", str(self.backup_directory()))
        self.assertEqual(status, 0, shown)
        self.assertRegex(shown, rb"\r(backing up|checking) \[#* *\] +\d+% \d+ pairs")
        self.up_empty()
        shown, status = self.terminal("restore", str(self.backup_directory()))
        self.assertEqual(status, 0, shown)
        self.assertRegex(shown, rb"\rrestoring \[#* *\] +\d+% \d+ pairs")


if __name__ == "__main__":
    unittest.main()
