"""Runs the programs of tools/examples, in C++, against a cluster of real processes, several of them at a time."""

import re
import threading
import unittest

from tests import shared_examples
from tests.examples_case import DONE, ERROR, WRONG, ExamplesCase


class SharedExamplesInCpp(shared_examples.SharedExamples):
    """The programs that are in the Python package as well."""


class ExamplesTest(ExamplesCase):
    def test_bank(self):
        self.up()
        bank = lambda: self.example("bank", "--accounts", "200", "--clients", "2", "--seconds", "1")
        right = r"transfers  (\d+)\nrefused    (\d+)\naudits     (\d+)\nthe sum was right in every audit\n"
        for text in self.at_once((bank,), (bank,)):  # One of them creates the accounts.
            self.assertRegex(text, f"^{right}$")
        self.assertEqual(self.done("count", "--prefix", "account/"), b"200\n")
        self.spread()
        for text in self.at_once((bank,), (bank,), (bank,)):
            self.assertGreater(int(re.fullmatch(right, text).group(1)), 0)
        balances = [int(line.split("\t")[1]) for line in self.done("scan", "--prefix", "account/").decode().splitlines()]
        self.assertEqual((len(balances), sum(balances)), (200, 200_000))

        self.refuses("the cluster has 200 accounts: use --accounts 200", "bank", "--accounts", "100")
        self.done("put", "account/00007", str(balances[7] + 1))
        wrong = self.example("bank", "--accounts", "200", "--seconds", "0.1", status=WRONG)
        self.assertRegex(wrong, r"\nthe sum was 200001 in the last audit, and not 200000\n$")
        self.done("put", "account/00007", "much")
        self.refuses('"account/00007": "much" is not a decimal number', "bank", "--accounts", "200", "--seconds", "0.1")

    def test_queue(self):
        self.up()
        self.example("queue", "pop", status=WRONG)
        for i in range(3):
            self.example("queue", "push", *[f"early {i} {j} {'x' * 100}" for j in range(10)])
        self.assertEqual(self.example("queue", "length"), "30\n")
        self.assertEqual(self.done("scan", "--keys-only", "--limit", "1"), b"queue/default/00000000000000000000\n")
        self.spread()
        self.assertTrue(self.example("queue", "pop").startswith("early 0 0 x"))
        early = self.example("queue", "pop", "--count", "1000").splitlines()
        self.assertEqual([line[:9] for line in early], [f"early {i} {j}" for i in range(3) for j in range(10)][1:])

        pushed = {producer: [f"{producer} {i}" for i in range(24)] for producer in ("a", "b", "c")}
        left = threading.Semaphore(0)  # One for each producer that has ended.

        def produce(items):
            for i in range(0, len(items), 3):
                self.example("queue", "push", "--queue", "jobs", *items[i:i + 3])
            left.release()

        ended = threading.Event()

        def wait_for_producers():
            for _ in pushed:
                left.acquire(timeout=120)
            ended.set()

        def consume():
            popped = []
            while True:
                last = ended.is_set()
                ran = self.run_alone("queue", "--cluster", str(self.directory), "pop", "--queue", "jobs", "--count", "2")
                self.assertIn(ran.returncode, (DONE, WRONG), ran)
                self.assertEqual(ran.returncode == DONE, ran.stdout != "", ran)
                popped += ran.stdout.splitlines()
                if last and ran.returncode == WRONG:
                    return popped

        results = self.at_once((wait_for_producers,), (consume,), (consume,), *[(produce, items) for items in pushed.values()])
        popped = results[1:3]
        self.assertEqual(sorted(popped[0] + popped[1]), sorted(item for items in pushed.values() for item in items))
        for items in pushed.values():
            for by_one in popped:  # In the order in which they were pushed.
                mine = [item for item in by_one if item in items]
                self.assertEqual(mine, [item for item in items if item in mine])
        self.assertEqual(self.example("queue", "length", "--queue", "jobs"), "0\n")
        self.done("put", "queue/jobs/last", "damage")
        self.refuses('"queue/jobs/last": "last" is not a decimal number', "queue", "push", "--queue", "jobs", "item")

    def test_graph(self):
        self.up()
        self.refuses("there is no graph: make one by graph load", "graph", "run", "--seconds", "0.1")
        loaded = re.fullmatch(r"200 nodes and (\d+) links were loaded\n", self.example("graph", "load", "--nodes", "200"))
        self.refuses("there is a graph already", "graph", "load")
        self.assertEqual(self.example("graph", "check"), f"200 nodes and {loaded[1]} links, and every count is right\n")
        self.spread()
        run = lambda: self.example("graph", "run", "--clients", "2", "--seconds", "2")
        check = lambda: self.example("graph", "check")
        *runs, checked = self.at_once((run,), (run,), (run,), (check,))
        right = r"\d+ nodes and \d+ links, and every count is right\n"
        self.assertRegex(checked, f"^{right}$")
        names = ("get node", "insert node", "delete node", "update node", "insert link", "delete link", "update link", "count links",
                 "list links", "get links", "operations per second", "aborts per operation")
        for text in runs:
            figures = dict(re.fullmatch(r"(.*?) +([0-9.]+)", line).groups() for line in text.splitlines())
            self.assertEqual(tuple(figures), names)
            self.assertGreater(int(figures["insert link"]) + int(figures["delete link"]), 0)
        self.assertRegex(check(), f"^{right}$")

        self.done("put", "n/5", "a key of something else")
        self.refuses('"n/5" is no key of a graph', "graph", "check")
        self.done("del", "n/5")
        self.done("put", "c/0000000003/1", "77")
        self.done("put", "l/9000000000/0/0000000001", "link")
        wrong = self.example("graph", "check", status=WRONG)
        self.assertRegex(wrong, r'^"c/0000000003/1" is 77, and there are \d+ links\n'
                                r'"l/9000000000/0/0000000001" begins at a node that is not there\n'
                                r'"c/9000000000/0" is 0, and there are 1 links\n$')

    def test_bad_input_is_refused_in_one_line(self):
        self.directory.mkdir()
        for program, commands, refusals in (
                ("bank", (), {("--accounts", "1"): "1 is not a whole number from 2 to 2000", ("--clients", "x"): "x is not a whole number",
                              ("--seconds", "nan"): "nan is not a number", ("run",): 'unexpected argument "run"'}),
                ("graph", ("load", "run", "check"), {("load", "--nodes", "-1"): "-1 is not a whole number", ("chek",): "did you mean check?",
                                                     ("run", "--clients", "65"): "65 is not a whole number from 1 to 64"}),
                ("queue", ("push", "pop", "length"), {("pop", "--count", "0"): "0 is not a whole number", ("pull",): 'there is no command "pull"',
                                                      ("push",): "text is required", ("length", "--queue", "a/b"): '"a/b" is empty, or has'}),
                ("time_series", ("append", "load", "range", "last", "buckets", "list", "retain"),
                 {("append", "a/b", "1"): '"a/b" is empty, or has', ("range", "a", "--from", "-1"): "-1 is not a whole number",
                  ("buckets", "a"): "--width is required", ("buckets", "a", "--width", "0"): "0 is not a whole number from 1",
                  ("append", "a", "1", "--keep", "0"): "0 is not a number", ("lost",): 'there is no command "lost"'}),
                ("inverted_file", ("add", "remove", "load", "search", "prefix", "check"),
                 {("add", "a b", "c"): '"a b" is empty, or has', ("search",): "word is required", ("load", "--clients", "65"): "65 is not a whole number",
                  ("serch", "a"): "did you mean search?"}),
                ("job_queue", ("push", "take", "finish", "extend", "work", "list", "tally"),
                 {("push",): "text is required", ("take", "--for", "0"): "0 is not a number", ("finish",): "lease is required",
                  ("list", "--queue", "a/b"): '"a/b" is empty, or has', ("pull",): 'there is no command "pull"'}),
                ("secondary_index", ("put", "delete", "city", "check"), {("put", "1", "a b", "c"): '"a b" is empty, or has',
                                                                         ("put", "1", "a"): "name is required", ("city",): "city is required",
                                                                         ("list",): 'there is no command "list"'})):
            with self.subTest(program=program):
                for arguments, part in refusals.items():
                    self.refuses(part, program, *arguments)
                good = {"bank": [], "graph": ["check"], "queue": ["length"], "secondary_index": ["check"], "time_series": ["list"],
                        "inverted_file": ["check"], "job_queue": ["list"]}[program]
                if commands:
                    self.refuses("A subcommand is required", program)
                self.refuses("there is no flag --cluter", program, "--cluter", *good)
                self.assert_refusal("no cluster was given: use --cluster DIR", program, self.run_alone(program, *good))
                self.refuses(str(self.directory), program, *good)  # There is no cluster in it.
                help_text = self.run_alone(program, "--help")
                self.assertEqual((help_text.returncode, help_text.stderr), (DONE, ""))
                for word in ("--cluster", "Exit status", *commands):
                    self.assertIn(word, help_text.stdout)

    def test_output_that_cannot_be_written_is_an_error(self):
        self.up()
        with open("/dev/full", "w") as full:
            ran = self.run_alone("queue", "--cluster", str(self.directory), "length", stdout=full)
        self.assertEqual((ran.returncode, ran.stderr), (ERROR, "queue: cannot write to standard output: No space left on device\n"))


if __name__ == "__main__":
    unittest.main()
