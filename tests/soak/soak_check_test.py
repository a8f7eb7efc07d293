"""Checks that soak_check distinguishes allowed histories from others."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PUT, DELETE, GET, CONTAINS = range(4)
ABSENT = 0
LEFT_OUT = "1 left out"


class SoakCheck(unittest.TestCase):
    def check(self, *logs, flags=()):
        """Returns its exit status and its output; each log is what one process wrote."""
        with tempfile.TemporaryDirectory() as directory:
            paths = []
            for number, lines in enumerate(logs):
                paths.append(Path(directory) / f"{number}.operations")
                paths[-1].write_text("".join(f"{line}\n" for line in lines))
            result = subprocess.run([PROGRAM, "--keys", "10", *flags, *map(str, paths)], stdout=subprocess.PIPE, text=True, check=False)
        return result.returncode, result.stdout

    def test_reads_what_another_process_put(self):
        self.assertEqual(self.check([f"B 0 3 {PUT} 77 100", "E 0 0 200"], [f"R 3 {GET} 77 250 300", f"R 3 {CONTAINS} 1 250 300"])[0], 0)

    def test_a_stale_read(self):
        status, said = self.check([f"B 0 3 {PUT} 77 100", "E 0 0 200", f"B 1 3 {PUT} 78 300", "E 1 1 400"], [f"R 3 {GET} 77 450 500"])
        self.assertEqual(status, 1)
        self.assertIn("k00003 is not linearizable", said)

    def test_a_value_that_nobody_put(self):
        self.assertEqual(self.check([f"B 0 3 {PUT} 77 100", "E 0 0 200"], [f"R 3 {GET} 79 250 300"])[0], 1)

    def test_a_write_that_failed_did_not_happen(self):
        self.assertEqual(self.check([f"B 0 3 {PUT} 77 100", "F 0", f"R 3 {GET} 77 250 300"])[0], 1)

    def test_a_write_of_unknown_outcome_may_have_happened(self):
        for value in (0, 77):
            self.assertEqual(self.check([f"B 0 3 {PUT} 77 100"], [f"R 3 {GET} {value} 250 300"])[0], 0)
        # But it does not come and go.
        self.assertEqual(self.check([f"B 0 3 {PUT} 77 100"], [f"R 3 {GET} 77 250 300", f"R 3 {GET} 0 350 400"])[0], 1)

    def test_a_line_that_was_cut_off_by_a_kill(self):
        with tempfile.NamedTemporaryFile("w") as log:
            log.write(f"B 0 3 {PUT} 77 100\nE 0 0 200\nR 3 {GET} 9")
            log.flush()
            self.assertEqual(subprocess.run([PROGRAM, "--keys", "10", log.name], stdout=subprocess.DEVNULL, check=False).returncode, 0)

    def test_what_a_client_complains_of(self):
        status, said = self.check(["V get k00001 took 9000 ms with a timeout of 10 ms"])
        self.assertEqual(status, 1)
        self.assertIn("took 9000 ms", said)

    def test_async_loses_what_was_acknowledged_just_before_a_fault_alone(self):
        second = 1_000_000_000
        history = [f"B 0 3 {PUT} 77 {second}", f"E 0 0 {2 * second}", f"R 3 {GET} 0 {9 * second} {10 * second}"]
        self.assertEqual(self.check(history)[0], 1)
        lost = ["--slack-ms", "100", "--lost-ns", str(2 * second + 50_000_000), "--lost-ns", str(3 * second)]
        self.assertEqual(self.check(history, flags=lost)[0], 0)
        lost = ["--slack-ms", "100", "--lost-ns", str(4 * second), "--lost-ns", str(5 * second)]
        self.assertEqual(self.check(history, flags=lost)[0], 1)


    def test_async_with_a_value_that_was_put_twice(self):
        second = 1_000_000_000
        history = [f"B 0 3 {PUT} 1 {second}", f"R 3 {GET} 1 {second} {2 * second}", f"E 0 0 {5 * second}",
                   f"B 1 3 {PUT} 1 {3 * second}", f"E 1 1 {4 * second}", f"R 3 {GET} 1 {9 * second} {10 * second}"]
        self.assertEqual(self.check(history, flags=["--lost-ns", str(8 * second), "--lost-ns", str(9 * second)])[0], 0)


def began(number, begin, reads=None, writes=None):
    """Returns the line of a transaction that commits. Reads and writes are values by key."""
    pairs = [" ".join(f"{key} {value}" for key, value in (of or {}).items()) for of in (reads, writes)]
    return " ".join(f"C {number} {begin} R {pairs[0]} W {pairs[1]}".split())


def done(number, begin, end, stamp=0, reads=None, writes=None, existed=-1):
    """Returns the lines of a transaction that has committed, or of a plain operation."""
    return [began(number, begin, reads, writes), f"E {number} {stamp} {existed} {end}"]


FIRST = done(0, 0, 10, 100, writes={1: 11, 2: 12})


class TransactionsCase(unittest.TestCase):
    def check(self, *logs, flags=()):
        """Returns soak_check's exit status and its output; each log is what one process wrote."""
        with tempfile.TemporaryDirectory() as directory:
            paths = []
            for number, lines in enumerate(logs):
                paths.append(Path(directory) / f"{number}.transactions")
                paths[-1].write_text("".join(f"{line}\n" for line in lines))
            result = subprocess.run([PROGRAM, "--keys", "10", *flags, "--transactions", *map(str, paths)], stdout=subprocess.PIPE, text=True,
                                    check=False)
        return result.returncode, result.stdout

    def right(self, *logs, flags=()):
        status, said = self.check(*logs, flags=flags)
        self.assertEqual(status, 0, said)
        return said

    def wrong(self, why, *logs, flags=()):
        status, said = self.check(*logs, flags=flags)
        self.assertEqual(status, 1, said)
        self.assertIn(why, said)


class TransactionsCheck(TransactionsCase):
    def test_transactions_one_after_the_other(self):
        said = self.right(FIRST, done(0, 20, 30, 101, {1: 11, 2: 12}, {1: 21, 2: ABSENT}) + done(1, 40, 50, reads={1: 21, 2: ABSENT, 3: ABSENT}))
        self.assertIn("3 transactions of 2 processes checked", said)

    def test_a_transaction_that_is_lost(self):
        self.wrong("not strictly serializable", FIRST, done(0, 20, 30, reads={1: ABSENT, 2: ABSENT}))
        self.wrong("not strictly serializable", FIRST + done(1, 20, 30, 101, writes={1: 21, 2: 22}) + done(2, 40, 50, reads={1: 11}))

    def test_half_a_transaction(self):
        second = done(0, 20, 60, 101, writes={1: 21, 2: 22})
        self.right(FIRST, second, done(0, 30, 50, reads={1: 21, 2: 22}))
        self.wrong("not strictly serializable", FIRST, second, done(0, 30, 50, reads={1: 21, 2: 12}))
        self.wrong("not strictly serializable", FIRST, second, done(0, 30, 40, reads={2: 22}) + done(1, 50, 55, reads={1: 11}))
        deleting = done(0, 20, 60, 101, writes={1: 21, 2: ABSENT})
        self.wrong("not strictly serializable", FIRST, deleting, done(0, 30, 50, reads={1: 11, 2: ABSENT}))

    def test_a_write_skew(self):
        one, other = done(0, 20, 50, 101, {1: 11, 2: 12}, {1: 21}), done(0, 20, 50, 102, {1: 11, 2: 12}, {2: 22})
        self.wrong("not strictly serializable", FIRST, one, other)
        self.right(FIRST, one, done(0, 20, 50, 102, {1: 21, 2: 12}, {2: 22}))

    def test_a_key_that_appears_in_a_range_that_was_read(self):
        one, other = done(0, 0, 50, 101, {4: ABSENT, 5: ABSENT}, {4: 41}), done(0, 0, 50, 102, {4: ABSENT, 5: ABSENT}, {5: 51})
        self.wrong("not strictly serializable", one, other)

    def test_a_plain_put_that_a_transaction_has_overwritten_without_seeing_it(self):
        put, blind = done(0, 20, 30, writes={1: 21}, existed=1), done(0, 5, 50, 101, writes={1: 31})
        self.wrong("not strictly serializable", FIRST, put, done(0, 40, 50, 101, {1: 11}, {1: 31}))
        self.right(FIRST, put, done(0, 40, 50, 101, {1: 21}, {1: 31}))
        self.assertIn(LEFT_OUT, self.right(FIRST, put, blind))  # Either may have come first.
        stamped = put + ["S 1 21 102"]
        self.right(FIRST, stamped, blind, done(0, 60, 70, reads={1: 21}))
        self.wrong("not strictly serializable", FIRST, stamped, blind, done(0, 60, 70, reads={1: 31}))

    def test_a_plain_put_that_is_lost(self):
        self.wrong("not strictly serializable", FIRST, done(0, 20, 30, writes={1: 21}, existed=1) + done(1, 40, 50, reads={1: 11}))
        self.wrong("not strictly serializable", FIRST, done(0, 20, 30, writes={1: 21}, existed=0))

    def test_a_plain_delete(self):
        delete, absent = done(0, 20, 30, writes={1: ABSENT}, existed=1), done(0, 40, 50, reads={1: ABSENT})
        self.right(FIRST, delete, absent)
        self.wrong("not strictly serializable", FIRST, delete, done(0, 40, 50, reads={1: 11}))
        self.wrong("not strictly serializable", FIRST, done(0, 20, 30, writes={1: ABSENT}, existed=0))
        overlapping = done(0, 25, 60, 101, writes={1: 31})
        self.assertIn(LEFT_OUT, self.right(FIRST, delete, overlapping, absent, done(0, 70, 80, reads={1: 31})))
        later = done(0, 65, 68, 102, writes={1: 41})
        self.wrong("not strictly serializable", FIRST, delete, overlapping, absent, later, done(0, 70, 80, reads={1: ABSENT}))

    def test_a_plain_delete_without_an_answer(self):
        delete = [began(0, 20, writes={1: ABSENT})]
        self.right(FIRST, delete, done(0, 40, 50, reads={1: ABSENT}))
        self.right(FIRST, delete, done(0, 40, 50, reads={1: 11}))
        self.wrong("not strictly serializable", FIRST, delete, done(0, 12, 15, reads={1: ABSENT}))

    def test_what_has_failed_is_not_read(self):
        self.wrong("cannot be read", FIRST, flags=["--transactions", "/no/such/log"])
        self.wrong("has written nothing", [began(0, 0, writes={1: 11, 2: 12}), "F 0"], done(0, 20, 30, reads={1: 11}))
        self.wrong("nobody put", FIRST, done(0, 20, 30, reads={1: 13}))
        self.wrong("of another key", FIRST, done(0, 20, 30, reads={1: 12}))

    def test_a_transaction_of_unknown_outcome(self):
        unknown = [began(0, 20, {1: 11}, {1: 21, 2: 22})]
        for reads in ({1: 11, 2: 12}, {1: 21, 2: 22}):
            self.right(FIRST, unknown, done(0, 40, 50, reads=reads))
        self.assertIn("1 of unknown outcome, 1 left out", self.right(FIRST, unknown))
        # Once its stamp is known, it has a place in the order.
        seen = done(0, 40, 50, reads={1: 21}) + ["S 1 21 101"]
        self.right(FIRST, unknown, seen + done(1, 60, 70, reads={1: 21, 2: 22}))
        self.wrong("not strictly serializable", FIRST, unknown, seen + done(1, 60, 70, reads={2: 12}))

    def test_a_stamp_that_is_not_that_of_its_transaction(self):
        self.right(FIRST + ["S 1 11 100", "S 2 12 100"])
        self.wrong("has stamp 101", FIRST + ["S 1 11 100", "S 2 12 101"])
        self.wrong("without a stamp", done(0, 0, 10, writes={1: 11, 2: 12}))

    def test_a_line_that_was_cut_off_by_a_kill(self):
        with tempfile.NamedTemporaryFile("w") as log:
            log.write("\n".join([*FIRST, "C 1 20 R 1 1"]))
            log.flush()
            result = subprocess.run([PROGRAM, "--keys", "10", "--transactions", log.name], stdout=subprocess.DEVNULL, check=False)
        self.assertEqual(result.returncode, 0)

    def test_what_a_client_complains_of(self):
        self.wrong("took 9000 ms", ["V a commit took 9000 ms with a timeout of 10 ms"])

    def test_a_search_that_gives_up_is_no_success(self):
        reader = done(0, 15, 90, reads={1: ABSENT})
        history = [FIRST, done(0, 20, 30, 101, writes={1: ABSENT}) + done(1, 40, 50, 102, writes={1: 21}), reader]
        self.right(*history)
        status, said = self.check(*history, flags=["--steps-max", "0"])
        self.assertEqual(status, 2)
        self.assertIn("NOT DECIDED", said)


class AsyncTransactionsCheck(TransactionsCase):
    LOST = ["--slack-ms", "0", "--lost-ns", "25", "--lost-ns", "35"]

    def test_loses_what_was_acknowledged_just_before_a_fault_alone(self):
        second, old = done(0, 20, 30, 101, {1: 11}, {1: 21}), done(0, 40, 50, reads={1: 11})
        self.right(FIRST, second, old, flags=self.LOST)
        self.wrong("no fault may have lost", FIRST, done(0, 20, 24, 101, {1: 11}, {1: 21}), old, flags=self.LOST)
        self.wrong("no fault may have lost", FIRST, done(0, 40, 50, reads={1: ABSENT}), flags=self.LOST)
        self.right(FIRST, done(0, 20, 30, writes={1: ABSENT}, existed=1), done(0, 40, 50, reads={1: ABSENT}), flags=self.LOST)

    def test_a_plain_write_excuses_nothing_that_came_later(self):
        for value in (ABSENT, 11):
            plain = done(0, 0, 5, writes={1: value}, existed=0)
            self.wrong("no fault may have lost", plain, done(0, 6, 8, 100, writes={1: 21}), done(0, 40, 50, reads={1: value}), flags=self.LOST)

    def test_loses_no_half_of_a_transaction(self):
        second = done(0, 20, 30, 101, writes={1: 21, 2: 22, 3: ABSENT})
        self.right(FIRST, second, done(0, 40, 50, reads={1: 21, 2: 22, 3: ABSENT}), flags=self.LOST)
        self.wrong("although the same transaction wrote it", FIRST, second, done(0, 40, 50, reads={1: 21, 2: 12}), flags=self.LOST)
        newer = done(0, 36, 38, 102, writes={2: 32})
        self.right(FIRST, second, newer, done(0, 40, 50, reads={1: 21, 2: 32}), flags=self.LOST)
        third = done(1, 12, 14, 50, writes={3: 33})
        self.wrong("although the same transaction wrote it", FIRST + third, second, done(0, 40, 50, reads={1: 21, 3: 33}), flags=self.LOST)
        # Nor of one whose outcome nobody has learned.
        unknown = [second[0], "S 1 21 101"]
        self.wrong("although the same transaction wrote it", FIRST, unknown, done(0, 40, 50, reads={1: 21, 2: 12}), flags=self.LOST)

    def test_reads_nothing_before_it_was_put(self):
        self.wrong("before transaction", done(0, 20, 30, 101, writes={1: 21}), done(0, 10, 15, reads={1: 21}), flags=self.LOST)
        self.wrong("cannot be read", FIRST, flags=["--transactions", "/no/such/log"])
        self.wrong("has written nothing", [began(0, 0, writes={1: 11}), "F 0"], done(0, 20, 30, reads={1: 11}), flags=self.LOST)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
