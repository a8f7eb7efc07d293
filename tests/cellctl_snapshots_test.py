"""Tests what cellctl does at one moment, with real processes: scan --snapshot, and backup."""

import contextlib
import json
import os
import signal
import subprocess
import unittest

from tests.cellctl_case import ERROR, CellctlCase
from tools import cluster

ACCOUNTS, OPENING = 2000, 1000


class CellctlSnapshotsTest(CellctlCase):
    def up(self, *flags, **options):
        """Starts two servers that leave regions where the test has put them."""
        super().up(servers=2, server_flags=["--no-join", "--no-balance", *flags], **options)

    def leaves(self):
        return [region for region in self.lines("regions") if region["tier"] == 0]

    def spread(self):
        """Splits the tree's regions, and gives half of them to the other server."""
        for _ in range(2):
            for region in self.leaves():
                self.ctl("split", str(region["region"]))  # A region that has only one leaf stays as it is.
        for i, region in enumerate(self.leaves()):
            self.ctl("move", str(region["region"]), f"server-{i % 2}")  # It may be there already.
        self.assertGreater(len(self.leaves()), 2)
        self.assertEqual({region["server"] for region in self.leaves()}, {"server-0", "server-1"})

    def snapshots(self, counter="now"):
        return sum(worker["snapshots"][counter] for worker in self.lines("status"))

    @contextlib.contextmanager
    def transfers(self):
        """Moves money between accounts in transactions, from two clients, as long as the context lasts."""
        bank = subprocess.Popen([cluster.binary("tools/examples/bank"), "--cluster", str(self.directory), "--accounts", str(ACCOUNTS),
                                 "--clients", "2", "--seconds", "3600"], stdout=subprocess.DEVNULL)
        try:
            opening = self.done("scan", "--prefix", "account/")
            while self.done("scan", "--prefix", "account/") == opening:
                self.assertIsNone(bank.poll())
            yield
            self.assertIsNone(bank.poll())  # It ends when one of its own audits is wrong.
        finally:
            bank.kill()
            bank.wait()

    def open_accounts(self):
        self.done("load", "-", input="".join(f"account/{i:05}\t{OPENING}\n" for i in range(ACCOUNTS)).encode())

    def check_accounts(self, listed):
        balances = [int(line.split(b"\t")[1]) for line in listed.splitlines()]
        self.assertEqual((len(balances), sum(balances)), (ACCOUNTS, ACCOUNTS * OPENING))

    def test_a_scan_of_a_snapshot_lists_what_a_scan_lists(self):
        self.up()
        self.load_large(100)
        self.done("load", "-", input="".join(f"small{i:05}\t{i}\n" for i in range(5000)).encode())
        self.spread()
        for arguments in ((), ("--reverse",), ("--keys-only",), ("--limit", "7"), ("key000050", "small00100"), ("--prefix", "small01"),
                          ("small04990",), ("--reverse", "--limit", "3", "key", "small"), ("-o", "json", "--prefix", "small0123"), ("none", "nonf")):
            listed = self.done("scan", *arguments)
            self.assertEqual(self.done("scan", "--snapshot", *arguments), listed, arguments)
            self.assertEqual(listed == b"", arguments == ("none", "nonf"))
        for how in ((), ("--snapshot",)):
            self.refused('a range cannot begin at "b" and end at "a", which is below', "scan", *how, "b", "a")
            self.assertEqual(self.done("scan", *how, "a", "a"), b"")
        self.assertGreater(self.snapshots("taken"), 10)
        self.assertEqual(self.snapshots(), 0)  # Each was forgotten when its scan had ended, in all regions.

    def test_a_scan_and_a_backup_have_all_of_each_transaction_or_nothing(self):
        self.up()
        self.open_accounts()
        self.load_large(100)
        self.spread()
        backup = str(self.backup_directory())
        with self.transfers():
            for _ in range(20):
                self.check_accounts(self.done("scan", "--snapshot", "--prefix", "account/"))
            self.done("backup", backup)
        self.assertEqual(self.snapshots(), 0)
        self.done("delete-range", "--yes")
        self.done("restore", backup)
        self.check_accounts(self.done("scan", "--prefix", "account/"))
        self.assertEqual(self.done("count", "--prefix", "key"), b"100\n")

    def paused_scan(self):
        """Begins a scan of a snapshot that waits for its reader. Returns it, and the first line that it has written."""
        scan = subprocess.Popen(self.command("scan", "--snapshot"), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(self.end, scan)
        return scan, scan.stdout.readline()

    def end(self, process):
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()

    def test_a_scan_whose_snapshot_has_no_room_ends_with_an_error(self):
        self.up("--snapshot-bytes", "1M")
        values = self.load_large()
        scan, first = self.paused_scan()
        self.load_large()  # 12 MB that are kept for the snapshot, of which the pipe has only the first few.
        self.assertGreater(self.snapshots("ended_for_room"), 0)
        listed = (first + scan.stdout.read()).splitlines()
        self.assertEqual(scan.wait(timeout=60), ERROR)
        self.assertRegex(scan.stderr.read().decode(), r"^cellctl: SnapshotTooOld: region .*: try again, with larger --snapshot-bytes .* or scan without --snapshot\n$")
        self.assertLess(len(listed), len(values))
        self.assertEqual(listed, [f"{key}\t{value}".encode() for key, value in values.items()][:len(listed)])
        self.assertEqual(self.snapshots(), 0)

    def test_a_scan_that_a_signal_ends_leaves_no_snapshot(self):
        self.up()
        self.load_large()
        self.spread()
        for ends in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
            scan, _ = self.paused_scan()
            self.assertGreater(self.snapshots(), 2)
            if ends != signal.SIGPIPE:
                scan.send_signal(ends)
            else:
                scan.stdout.close()  # As head does.
            self.assertEqual((scan.wait(timeout=60), scan.stderr.read()), (-ends, b""))
            self.assertEqual(self.snapshots(), 0)

    def test_a_backup_whose_snapshot_ends_is_none(self):
        self.up("--snapshot-bytes", "0")  # It ends with the first transfer.
        self.open_accounts()
        self.load_large()
        backup = self.backup_directory()
        with self.transfers():
            for _ in range(50):
                ended = self.ctl("backup", str(backup))
                if ended.returncode != 0:
                    break
                self.done("backup-remove", str(backup))  # It was faster than the next transfer.
            self.assertEqual((ended.returncode, ended.stdout, os.listdir(backup)), (ERROR, b"", []))
            self.assertRegex(ended.stderr.decode(), r"^cellctl: SnapshotTooOld: .*no backup was made.*Try again, .* or use --no-snapshot\n$")
            made = json.loads(self.done("-o", "json", "backup", "--no-snapshot", str(backup)))
        self.assertEqual(made, {"pairs": ACCOUNTS + 600})

    def test_a_size_for_snapshots_that_makes_no_sense_is_refused(self):
        for size in ("-1", "1.5M", "2T", "x"):
            with self.assertRaisesRegex(cluster.ClusterError, f"--snapshot-bytes: {size} is not a size such as 256M"):
                self.up("--snapshot-bytes", size)


if __name__ == "__main__":
    unittest.main()
