"""Tests of the examples that exist in C++ and in Python. examples_test.py runs them in C++, and python_examples_test.py in
Python, and with each command in a language that is drawn."""

import random
import re
import signal
import subprocess
import threading
import time

from tests.examples_case import DONE, WRONG, ExamplesCase

MINUTE_US = 60_000_000
START_US = 1_700_000_000_000_000 // MINUTE_US * MINUTE_US


def words_of(name, text):
    """Returns the words of a document, all of whose letters are of ASCII."""
    return set(re.findall(r"[a-z0-9]+", f"{name} {text}".lower()))


class SharedExamples(ExamplesCase):
    def series(self, *arguments, **options):
        return self.example("time_series", *arguments, **options)

    def load_points(self, name, points):
        text = "".join(f"{at}\t{value}\n" for at, value in points)
        self.assertEqual(self.series("load", name, input=text), f"{len(points)} points were loaded\n")

    def assert_listed(self, points, text):
        self.assertEqual([(int(at), float(value)) for at, value in (line.split("\t") for line in text.splitlines())], points)

    def test_time_series(self):
        self.up()
        self.assertEqual(self.series("list"), "")
        draw = random.Random(1)
        points = sorted({START_US + draw.randrange(60 * MINUTE_US): draw.randrange(-4000, 4000) / 16 for _ in range(400)}.items())
        self.load_points("cpu", draw.sample(points, len(points)))
        for name in ("cpu-2", "cpv", "c"):  # Neighbours of the series.
            self.load_points(name, [(START_US, 1), (START_US + 1, 2)])
        self.spread()
        self.assertEqual(self.series("list"), "c\ncpu-2\ncpu\ncpv\n")  # Of the prefixes: - comes before /.
        self.assert_listed(points, self.series("range", "cpu"))
        self.assert_listed(points[:-8:-1], self.series("last", "cpu", "--count", "7"))
        start, end = points[100][0], points[200][0]
        self.assert_listed(points[100:200], self.series("range", "cpu", "--from", str(start), "--to", str(end)))
        self.assert_listed([(START_US + 1, 2), (START_US, 1)], self.series("last", "c"))
        self.assertEqual(self.series("range", "nothing") + self.series("last", "nothing") + self.series("buckets", "nothing", "--width", "1"), "")

        buckets = {}
        for at, value in points:
            buckets.setdefault(at - at % MINUTE_US, []).append(value)
        figures = [[float(field) for field in line.split("\t")] for line in self.series("buckets", "cpu", "--width", str(MINUTE_US)).splitlines()]
        self.assertEqual(figures, [[at, len(some), min(some), sum(some) / len(some), max(some)] for at, some in sorted(buckets.items())])

        # A point of the same time replaces the earlier one. Times are sorted as numbers, however many digits they have.
        for at, value in ((5, "1"), (5, "-0.5"), (40, "2e3"), (300, ".25"), (2_000_000_000, "7")):
            self.series("append", "short", "--time", str(at), "--", value)
        self.assertEqual(self.series("range", "short"), "5\t-0.5\n40\t2000\n300\t0.25\n2000000000\t7\n")
        self.series("append", "now", "1")
        self.assertLess(abs(int(self.series("last", "now").split("\t")[0]) / 1e6 - time.time()), 600)

        self.assertEqual(self.series("retain", "cpu", "--before", str(end)), "200 points were deleted\n")
        self.assert_listed(points[200:], self.series("range", "cpu"))
        self.assertEqual(self.series("range", "cpu-2"), f"{START_US}\t1\n{START_US + 1}\t2\n")
        self.assertEqual(self.series("retain", "--older-than", "1000000"), "210 points were deleted\n")  # All but the one of now.
        self.assertEqual(self.series("list"), "now\n")

        self.series("append", "brief", "1", "--keep", "1")
        self.series("append", "brief", "2", "--keep", "1000")
        deadline = time.monotonic() + 30
        while len(self.series("range", "brief").splitlines()) > 1 and time.monotonic() < deadline:
            pass
        self.assertRegex(self.series("range", "brief"), r"^\d+\t2\n$")
        self.refuses("expir", "time_series", "append", "brief", "1", "--time", "1000", "--keep", "1")

        self.refuses('"much" is not a number', "time_series", "append", "cpu", "much")
        self.refuses("--to is not above --from", "time_series", "range", "cpu", "--from", "5", "--to", "5")
        self.refuses("give either --before or --older-than", "time_series", "retain", "cpu")
        for line in ("5", "5\tmuch", "5\t1\t2", "-5\t1", "5\tnan", "5\t1e999", "10000000000000000\t1", "\t1"):
            ran = self.run_alone("time_series", "--cluster", str(self.directory), "load", "bad", input=f"1\t1\n{line}\n")
            self.assert_refusal("line 2: ", "time_series", ran)
        self.done("put", "series/bad/0000000000000007", "much")
        self.refuses('"series/bad/0000000000000007": "much" is not a number', "time_series", "range", "bad")
        self.done("put", "series/bad/x", "1")
        self.refuses('"series/bad/x": "x" is not a decimal number', "time_series", "last", "bad")

    def test_retention_while_writers_append(self):
        self.up()
        names, rounds, per_round = ("a", "b"), 12, 200
        self.load_points("a", [(START_US + i, i) for i in range(per_round)])
        self.spread()
        appended = {name: threading.Semaphore(0) for name in names}

        def append(name):
            for i in range(rounds):
                self.load_points(name, [(START_US + i * per_round + j, j) for j in range(per_round)])
                appended[name].release()

        def retain():
            """Follows the writers by two rounds, so the range that is deleted ends close to where they write."""
            for i in range(rounds):
                for name in names:
                    self.assertTrue(appended[name].acquire(timeout=120))
                if i >= 2:
                    self.series("retain", "--before", str(START_US + (i - 1) * per_round))

        self.at_once(*[(append, name) for name in names], (retain,))
        for name in names:
            times = [int(line.split("\t")[0]) for line in self.series("range", name).splitlines()]
            self.assertEqual(times, list(range(START_US + (rounds - 2) * per_round, START_US + rounds * per_round)))

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

    def load_documents(self, documents):
        text = "".join(f"{name}\t{text}\n" for name, text in documents.items())
        self.assertEqual(self.example("inverted_file", "load", input=text), f"{len(documents)} documents were loaded\n")

    def assert_finds(self, documents, *words):
        """Compares a search with a look at all documents."""
        wanted = {name: text for name, text in documents.items() if set(words) <= words_of(name, text)}
        self.assertEqual(self.example("inverted_file", "search", *words), "".join(f"{name}\t{wanted[name]}\n" for name in sorted(wanted)))
        return wanted

    def assert_index_is_right(self, documents):
        entries = sum(len(words_of(name, text)) for name, text in documents.items())
        self.assertEqual(self.example("inverted_file", "check"), f"{len(documents)} documents with {entries} entries, and all are right\n")

    def test_inverted_file(self):
        self.up()
        file = lambda *arguments, **options: self.example("inverted_file", *arguments, **options)
        listed = subprocess.run(["dpkg-query", "-W", "-f", "${Package}\t${binary:Summary}\n"], stdout=subprocess.PIPE, check=True).stdout
        documents = dict(line.split("\t", 1) for line in listed.decode("ascii", "replace").replace("\ufffd", "?").splitlines()[:250])
        self.load_documents(documents)
        self.spread()
        self.assert_index_is_right(documents)
        words = sorted(set().union(*(words_of(name, text) for name, text in documents.items())))
        frequent = sorted(words, key=lambda word: sum(word in words_of(*document) for document in documents.items()))[-6:]
        draw = random.Random(2)
        found = 0
        for wanted in [["library"], ["shared", "library"], ["absent", "library"], *(draw.sample(frequent, 3) for _ in range(3)),
                       *(draw.sample(words, 1) + draw.sample(frequent, 1) for _ in range(3))]:
            found += len(self.assert_finds(documents, *wanted))
        self.assertGreater(found, 0)
        name = next(iter(documents))
        self.assertIn(f"{name}\t", file("search", name.upper()))
        for prefix in ("lib", "p", frequent[-1], "zzzz"):
            has = sorted(name for name, text in documents.items() if any(word.startswith(prefix) for word in words_of(name, text)))
            self.assertEqual(file("prefix", prefix), "".join(f"{name}\t{documents[name]}\n" for name in has))

        # An update moves the entries of words that come and go. What is removed is not found.
        documents[name] = "Entirely new"
        file("add", name, "Entirely new")
        file("add", "caf\u00e9-1.0", "Bytes outside of ASCII: Z\u00fcrich " + "x" * 100)
        self.assertIn("Entirely new", file("search", "entirely", name))
        self.assertEqual(file("search", "z\u00fcrich", "caf\u00e9", "x" * 64), file("search", "x" * 99))
        self.assertEqual(file("remove", "caf\u00e9-1.0"), "")
        self.assertEqual(file("remove", "absent", status=WRONG), 'there is no document "absent"\n')
        self.assert_finds(documents, "entirely")
        self.assert_index_is_right(documents)

        self.done("del", f"inverted/word/entirely/{name}")
        self.done("load", "-", input=f"inverted/word/wrong/nobody\t\ninverted/word/wrong/{name}\t\n".encode())
        wrong = "".join(f'"inverted/word/wrong/{of}" is there, and no document has this word\n' for of in (name, "nobody"))
        self.assertEqual(file("check", status=WRONG), f'"inverted/word/entirely/{name}" is missing\n{wrong}')
        self.assertEqual(file("search", "wrong"), "")  # Each document that is found is read.
        self.refuses("no letter and no digit", "inverted_file", "search", "-", "+")
        self.refuses('"a b" is not the beginning of one word', "inverted_file", "prefix", "a b")
        self.refuses('document "much": the transaction has', "inverted_file", "add", "much", " ".join(map(str, range(3000))))
        self.refuses("no-such-file", "inverted_file", "load", "no-such-file")
        ran = self.run_alone("inverted_file", "--cluster", str(self.directory), "load", input="a\tb\nc d\te\n")
        self.assert_refusal("line 2: ", "inverted_file", ran)

    def test_a_search_skips_what_cannot_match(self):
        self.up()
        documents = {f"d{i:03}": "frequent" for i in range(500)}
        documents["d250"] = "frequent and rare"
        self.load_documents(documents)
        ran = self.run_alone("inverted_file", "--cluster", str(self.directory), "search", "frequent", "rare", "--stats")
        self.assertEqual((ran.stdout, ran.stderr), ("d250\tfrequent and rare\n", "129 entries in 3 scans\n"))
        self.assertEqual(len(self.example("inverted_file", "search", "frequent", "--limit", "70").splitlines()), 70)

    def test_concurrent_updates_of_documents(self):
        self.up()
        vocabulary = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen"]
        names = [f"n{i}" for i in range(6)]
        self.load_documents({name: " ".join(vocabulary) for name in names})
        self.spread()

        def update(seed):
            draw = random.Random(seed)
            for _ in range(12):
                name = draw.choice(names)
                if draw.random() < 0.2:
                    self.assertIn(self.run_alone("inverted_file", "--cluster", str(self.directory), "remove", name).returncode, (DONE, WRONG))
                else:
                    self.example("inverted_file", "add", name, " ".join(["always", *draw.sample(vocabulary, 4)]))

        def check_often():
            for _ in range(8):
                self.assertRegex(self.example("inverted_file", "check"), "and all are right\n$")
                for line in self.example("inverted_file", "search", "ant", "bee").splitlines():
                    self.assertLessEqual({"ant", "bee"}, words_of(*line.split("\t")))

        self.at_once(*[(update, seed) for seed in range(3)], (check_often,))
        left = dict(line.split("\t") for line in self.done("scan", "--prefix", "inverted/doc/").decode().splitlines())
        documents = {key.removeprefix("inverted/doc/"): text for key, text in left.items()}
        self.assert_index_is_right(documents)
        for words in (["ant"], ["ant", "bee"], ["always", "cat", "dog"]):
            self.assert_finds(documents, *words)

    def jobs(self, *arguments, **options):
        return self.example("job_queue", *arguments, **options)

    def take(self, *arguments):
        """Takes a job. Returns its lease, the attempt, and its text."""
        lease, attempt, text = self.jobs("take", *arguments).rstrip("\n").split("\t")
        return lease, int(attempt), text

    def took(self, worker):
        """Waits until a worker has taken a job. Returns the job's text, or None if the queue had none."""
        for line in worker.stdout:
            if line.startswith("took\t"):
                return line.rstrip("\n").split("\t")[3]
        return None

    def tally(self):
        return {text: int(number) for text, number in (line.split("\t") for line in self.jobs("tally").splitlines())}

    def test_job_queue(self):
        self.up()
        self.assertEqual(self.jobs("take", status=WRONG), "")
        self.jobs("push", "first job", "second")
        self.jobs("--queue", "other", "push", "later", "--delay", "1000")
        self.assertEqual(self.jobs("--queue", "other", "take", status=WRONG), "")
        self.assertRegex(self.jobs("--queue", "other", "list"), r"^\d{16}/[0-9a-f]{16}\t0\tlater\n$")
        untaken = self.jobs("--queue", "other", "list").split("\t")[0]
        for command in ("finish", "extend"):
            self.assertIn("is over", self.jobs("--queue", "other", command, untaken, status=WRONG))
        self.assertIn(untaken, self.jobs("--queue", "other", "list"))
        one, two = self.take("--for", "1000"), self.take("--for", "1000")
        self.assertEqual(sorted([one[1:], two[1:]]), [(1, "first job"), (1, "second")])
        self.jobs("take", status=WRONG)  # Both are hidden.
        self.assertEqual(len(self.jobs("list").splitlines()), 2)
        self.assertEqual(self.jobs("finish", one[0]), "")
        lost = 'the lease "{}" is over: another worker has the job, or it is finished\n'
        self.assertEqual(self.jobs("finish", one[0], status=WRONG), lost.format(one[0]))
        longer = self.jobs("extend", two[0], "--for", "2000").rstrip()
        self.assertGreater(longer, two[0])
        self.assertEqual(self.jobs("extend", two[0], status=WRONG), lost.format(two[0]))
        self.assertGreater(self.jobs("extend", longer, "--for", "0.001").rstrip(), longer)  # Leases never become shorter.
        self.assertEqual(len(self.jobs("list").splitlines()), 1)

        # A job that is not finished in time comes back, and the first worker cannot finish it any more.
        self.jobs("--queue", "slow", "push", "job")
        slow = self.jobs("--queue", "slow", "take", "--for", "0.001").split("\t")
        deadline, again = time.monotonic() + 30, ""
        while again == "" and time.monotonic() < deadline:
            again = self.run_alone("job_queue", "--cluster", str(self.directory), "--queue", "slow", "take").stdout
        self.assertEqual(again.split("\t")[1:], ["2", "job\n"])
        self.assertEqual(self.jobs("--queue", "slow", "finish", slow[0], status=WRONG), lost.format(slow[0]))
        self.assertEqual(self.jobs("--queue", "slow", "list"), again)
        self.jobs("--queue", "slow", "finish", again.split("\t")[0])
        self.assertEqual(self.jobs("--queue", "slow", "list"), "")

        for name in ("x", "5", "5/", "/x", "99999999999999999/x", "-5/x"):
            self.refuses("is not the name of a lease: TIME/ID", "job_queue", "finish", "--", name)
        self.done("put", "jobs/default/0000000000000001/x", "damage")
        self.refuses('"jobs/default/0000000000000001/x": "damage" is not a decimal number', "job_queue", "take")

    def test_a_slow_worker_changes_nothing(self):
        self.up()
        self.jobs("push", "job")
        slow = self.started("job_queue", "work", "--for", "0.2", "--work-ms", "3000")
        self.assertEqual(self.took(slow), "job")
        slow.send_signal(signal.SIGSTOP)
        self.assertIn("\t2\tjob\n", self.jobs("work"))  # It waits for the job, since the queue is not empty.
        slow.send_signal(signal.SIGCONT)
        shown, _ = slow.communicate(timeout=60)
        self.assertEqual((slow.returncode, shown.split("\t")[0]), (DONE, "lost"))
        self.assertEqual(self.tally(), {"job": 1})

    def test_no_job_of_a_killed_worker_is_lost(self):
        self.up()
        jobs = [f"job{i:03} {'x' * 90}" for i in range(160)]
        self.jobs("push", *jobs[:30])
        self.spread()
        draw = random.Random(3)

        def push():
            for i in range(30, len(jobs), 10):
                self.jobs("push", *jobs[i:i + 10])

        taken = []

        def kill_while_they_work():
            for _ in range(3):
                victim = self.started("job_queue", "work", "--for", "0.5", "--work-ms", "100000")
                taken.append(self.took(victim))
                self.assertIsNotNone(taken[-1])
                self.end(victim)

        def kill_at_any_moment():
            for _ in range(4):
                victim = self.started("job_queue", "work", "--for", "0.5", "--work-ms", "2")
                self.took(victim)
                time.sleep(draw.uniform(0, 0.03))  # It takes and finishes jobs meanwhile.
                self.end(victim)

        def work(attempts):
            for line in self.jobs("work", "--for", "5", "--work-ms", "20").splitlines():
                if line.startswith("took"):
                    _, _, attempt, text = line.split("\t")
                    attempts[text] = int(attempt)

        # The first victims finish no job. Then some push, some work, and some are killed, all at the same time.
        kill_while_they_work()
        attempts = {}
        self.at_once((push,), (kill_at_any_moment,), (work, attempts))
        self.at_once((work, attempts), (work, attempts), (work, attempts))
        self.assertEqual(self.jobs("list"), "")
        self.assertEqual(self.tally(), dict.fromkeys(jobs, 1))
        for text in taken:
            if text in attempts:  # Otherwise one of the other victims has finished it.
                self.assertGreater(attempts[text], 1)
