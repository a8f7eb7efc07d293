"""Runs the programs of tools/examples against a cluster of real processes, several of them at a time."""

import os
import re
import subprocess
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor

from tests.cellctl_case import ERROR, CellctlCase
from tools import cluster

DONE, WRONG = 0, 1
SERVERS = 3


class ExamplesTest(CellctlCase):
    def up(self, **options):
        """Starts servers that leave regions where the test has put them."""
        super().up(servers=SERVERS, server_flags=["--no-join", "--no-balance"], **options)

    def run_alone(self, program, *arguments, **options):
        environment = {name: value for name, value in os.environ.items() if name != "CELL_CLUSTER"}
        return subprocess.run([cluster.binary(f"tools/examples/{program}"), *arguments], stdout=options.pop("stdout", subprocess.PIPE),
                              stderr=subprocess.PIPE, timeout=120, check=False, text=True, env=environment, **options)

    def example(self, program, *arguments, status=DONE):
        """Runs a program on the cluster, and returns what it has written to standard output."""
        ran = self.run_alone(program, "--cluster", str(self.directory), *arguments)
        self.assertEqual(ran.returncode, status, ran)
        return ran.stdout

    def refuses(self, part, program, *arguments):
        ran = self.run_alone(program, "--cluster", str(self.directory), *arguments)
        self.assert_refusal(part, program, ran)

    def assert_refusal(self, part, program, ran):
        self.assertEqual((ran.returncode, ran.stdout), (ERROR, ""), ran)
        self.assertRegex(ran.stderr, f"^{program}: [^\n]*\n$")
        self.assertIn(part, ran.stderr)

    def at_once(self, *calls):
        """Makes calls at the same time, and returns their results."""
        with ThreadPoolExecutor(len(calls)) as pool:
            return [made.result() for made in [pool.submit(*call) for call in calls]]

    def spread(self):
        """Splits the tree's regions and moves them, so that its keys are in several regions and at several servers."""
        leaves = lambda: sorted(region["region"] for region in self.lines("regions") if region["tier"] == 0)
        for _ in range(2):
            for region in leaves():
                self.ctl("split", str(region))  # A region that has only one leaf stays as it is.
        for i, region in enumerate(leaves()):
            self.ctl("move", str(region), f"server-{i % SERVERS}")  # It may be there already.
        regions = [region for region in self.lines("regions") if region["tier"] == 0]
        self.assertGreater(len(regions), 1, regions)
        self.assertGreater(len({region["server"] for region in regions}), 1, regions)

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

    def test_secondary_index(self):
        self.up()
        index = lambda *arguments: self.example("secondary_index", *arguments)
        cities = ("Bern", "Oslo", "Rome", "Wien")
        ids = [f"user{i:02}" for i in range(24)]
        self.assertEqual(index("check"), "0 users, and the index is right\n")
        self.done("load", "-", input="".join(f"user/{i}\tBern Name of {i}\nby-city/Bern/{i}\t\n" for i in ids).encode())
        self.assertEqual(index("city", "Bern"), "".join(f"{i}\tName of {i}\n" for i in ids))
        self.assertEqual(index("city", "Oslo"), "")
        self.spread()

        def move_all(city):
            for i in ids[::2]:
                index("put", i, city, f"Name of {i}")

        def check_often():
            for _ in range(8):
                self.assertEqual(index("check"), "24 users, and the index is right\n")

        self.at_once(*[(move_all, city) for city in cities], (check_often,))
        self.assertEqual(index("check"), "24 users, and the index is right\n")
        listed = [line.split("\t") for city in cities for line in index("city", city).splitlines()]
        self.assertEqual(sorted(listed), [[i, f"Name of {i}"] for i in ids])
        index("put", ids[0], "Bern", "Another Name")
        index("put", ids[0], "Bern", "Last Name")  # In the same city.
        self.assertIn(f"{ids[0]}\tLast Name\n", index("city", "Bern"))
        self.assertEqual(index("delete", ids[0]), "")
        self.assertEqual(self.example("secondary_index", "delete", ids[0], status=WRONG), f"there is no user {ids[0]}\n")
        self.assertEqual(index("check"), "23 users, and the index is right\n")

        index("put", ids[1], "Bern", "Name")
        self.done("del", f"by-city/Bern/{ids[1]}")
        self.done("put", "by-city/Bern/nobody", "")
        self.assertEqual(self.example("secondary_index", "check", status=WRONG),
                         f'"by-city/Bern/{ids[1]}" is missing from the index\n'
                         '"by-city/Bern/nobody" is in the index, and there is no such user\n')
        self.assertIn('the index is wrong: user "nobody" does not live in Bern\n', self.example("secondary_index", "city", "Bern", status=WRONG))
        index("put", ids[1], "Bern", "Name")
        self.done("del", "by-city/Bern/nobody")
        self.assertEqual(index("check"), "23 users, and the index is right\n")

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
                ("secondary_index", ("put", "delete", "city", "check"), {("put", "1", "a b", "c"): '"a b" is empty, or has',
                                                                         ("put", "1", "a"): "name is required", ("city",): "city is required",
                                                                         ("list",): 'there is no command "list"'})):
            with self.subTest(program=program):
                for arguments, part in refusals.items():
                    self.refuses(part, program, *arguments)
                good = {"bank": [], "graph": ["check"], "queue": ["length"], "secondary_index": ["check"]}[program]
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
