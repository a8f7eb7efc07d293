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
                          "add a 1.5": "line 2: \"1.5\" is not a decimal number", "put a 'b": "line 2"}.items():
            self.refused(why, "tx", self.script("put k v", line))
        self.assertEqual(self.ctl("has", "k").returncode, 1)
        self.refused("cannot read", "tx", "/no/such/file")
        self.done("put", "text", "abc")
        self.refused("line 1: the value of text", "tx", self.script("add text 1"))
        self.done("put", "n", "9223372036854775807")
        self.refused("too large", "tx", self.script("add n 1"))


if __name__ == "__main__":
    unittest.main()
