"""Runs cellctl tx against a cluster of real processes."""

import json
import unittest
from pathlib import Path

from tests.cellctl_case import CellctlCase


class CellctlTransactionsTest(CellctlCase):
    def script(self, *lines: str) -> str:
        path = Path(self.temporary.name) / "script"
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    def test_a_script_takes_effect_as_a_whole_or_not_at_all(self):
        self.up()
        self.assertEqual(self.done("tx", self.script("# Two accounts", "put a 10", "put 'b c' \"5 5\"")), b"")
        self.assertEqual(self.done("get", "b c"), b"5 5")
        moved = self.done("tx", self.script("expect a 10", "absent c", "add a -3", "add c 3", "get a", "get none", "scan a d"))
        self.assertEqual(moved, b"a\t7\nnone\na\t7\nb c\t5 5\nc\t3\n")
        stamps = [self.done("get", "--stamp", key) for key in ("a", "c")]
        self.assertEqual(stamps[0], stamps[1])
        refused = self.ctl("tx", self.script("put a 0", "expect c 4"))
        self.assertEqual((refused.returncode, refused.stderr), (1, b"not committed: line 2: c is 3\n"))
        self.assertEqual(self.done("get", "a"), b"7")
        done = json.loads(self.done("-o", "json", "tx", self.script("get a", "del c")))
        self.assertEqual((done["committed"], done["stamp"] > 0, done["read"]), (True, True, [{"key": "a", "value": "7"}]))
        unmet = json.loads(self.ctl("-o", "json", "tx", self.script("absent a")).stdout)
        self.assertEqual(unmet, {"committed": False, "unmet": "line 1: a is 7"})
        status = json.loads(self.done("-o", "json", "status"))
        self.assertIn("transactions", json.dumps(status))

    def test_a_script_that_is_wrong_is_not_run(self):
        self.up()
        for line, why in {"get": "line 2: write: get KEY", "jump a": "line 2: there is no command \"jump\"",
                          "add a 1.5": "line 2: 1.5 is not a whole decimal number of 64 bits", "put a 'b": "line 2: a quotation mark",
                          "scan z a": "line 2: a range cannot begin at \"z\" and end at \"a\", which is below",
                          "put '' v": "line 2: ", "get ''": "line 2: ", "del ''": "line 2: ",
                          "hash": "line 2: there is no command \"hash\"", "hash scan t": "line 2: there is no command \"hash scan\"",
                          "hash get t": "line 2: write: hash get TABLE KEY",
                          "hash put none k v": "line 2: there is no table none", "hash get '' k": "line 2: "}.items():
            self.refused(why, "tx", self.script("put k v", line))
        self.assertEqual(self.ctl("has", "k").returncode, 1)
        self.refused("cannot read", "tx", "/no/such/file")
        # A number is what incr takes for one.
        self.refused("1.5 is not a whole decimal number of 64 bits", "incr", "n", "1.5")
        for text in ("abc", "010"):
            self.done("put", "text", text)
            wrong = f"the value \"{text}\" is not a whole decimal number of 64 bits: put one first"
            self.refused(wrong, "incr", "text")
            self.refused("line 1: " + wrong, "tx", self.script("add text 1"))
        self.done("put", "n", "9223372036854775807")
        self.refused("line 1: 9223372036854775807 and 1 have a sum of more than 64 bits", "tx", self.script("add n 1"))

    def test_a_script_over_the_tree_and_tables_takes_effect_in_both(self):
        self.up()
        for table in ("users", "visits"):
            self.done("hash", "create", table)
        self.done("tx", self.script("put ada tree", "hash put users ada 1", "hash put users bob 2", "hash put visits ada 7"))
        self.assertEqual((self.done("get", "ada"), self.done("hash", "get", "users", "ada"), self.done("hash", "get", "visits", "ada")),
                         (b"tree", b"1", b"7"))
        moved = self.done("tx", self.script("hash expect users ada 1", "hash absent users eve", "hash add visits ada -3", "put ada moved",
                                            "hash del users bob", "get ada", "hash get users ada", "hash get users bob", "hash get visits ada"))
        self.assertEqual(moved, b"ada\tmoved\nada\t1\nbob\nada\t4\n")
        self.assertEqual((self.done("get", "ada"), self.done("hash", "get", "visits", "ada")), (b"moved", b"4"))
        self.assertEqual(self.ctl("hash", "has", "users", "bob").returncode, 1)
        refused = self.ctl("tx", self.script("put ada 0", "hash put visits ada 0", "hash expect users ada 2"))
        self.assertEqual((refused.returncode, refused.stderr), (1, b"not committed: line 3: ada in table users is 1\n"))
        self.refused("line 3: there is no table none", "tx", self.script("put ada 0", "hash put visits ada 0", "hash put none k v"))
        self.assertEqual((self.done("get", "ada"), self.done("hash", "get", "visits", "ada")), (b"moved", b"4"))
        read = json.loads(self.done("-o", "json", "tx", self.script("hash get users ada", "get bob")))["read"]
        self.assertEqual(read, [{"table": "users", "key": "ada", "value": "1"}, {"key": "bob", "value": None}])

    def test_the_help_says_what_is_written(self):
        said = self.done("tx", "--help").decode()
        for part in ("The script, or - for standard input", "absent, get writes the key alone", "Exit status", "MaybeApplied", "hash put TABLE KEY VALUE"):
            self.assertIn(part, said)


if __name__ == "__main__":
    unittest.main()
