"""Tests what cellctl writes by what a key has: puts and deletes with conditions, and functions."""

import json
import unittest

from tests.cellctl_case import CellctlCase


class Cellctl(CellctlCase):
    def test_a_condition_decides_whether_a_key_is_written(self):
        self.up()

        def refused(why, *arguments):
            result = self.ctl(*arguments)
            self.assertEqual((result.returncode, result.stdout), (1, b""))
            self.assertEqual(result.stderr, f"nothing was written: {why}\n".encode())
        refused("there is no such key", "put", "key", "1", "--if-present")
        refused("there is no such key", "del", "key", "--if-value", "1")
        self.assertEqual(self.ctl("get", "key", "--stamp").returncode, 1)
        self.done("put", "key", "1", "--if-absent")
        first = self.done("get", "key", "--stamp").decode().strip()
        self.assertGreater(int(first), 0)
        refused(f"the key is there, with stamp {first}", "put", "key", "2", "--if-absent")
        refused(f"the key is there, with stamp {first}", "put", "key", "2", "--if-stamp", str(int(first) + 1))
        self.done("put", "key", "2", "--if-stamp", first, "--ttl", "1d")
        found = json.loads(self.done("-o", "json", "get", "key", "--stamp"))
        self.assertEqual((found["key"], found["value"], found["stamp"] > int(first)), ("key", "2", True))
        again = json.loads(self.done("-o", "json", "put", "key", "3", "--if-value", "2"))
        self.assertEqual((again["applied"], again["replaced"], again["stamp"] > found["stamp"]), (True, True, True))
        refused(f"the key is there, with stamp {again['stamp']}", "del", "key", "--if-value", "2")
        self.done("del", "key", "--if-stamp", str(again["stamp"]))
        self.assertEqual(self.ctl("has", "key").returncode, 1)
        self.refused("put: --if-absent and --if-present exclude each other", "put", "key", "1", "--if-absent", "--if-present")
        self.refused("--if-value and --if-stamp exclude each other", "del", "key", "--if-stamp", "1", "--if-value", "1")
        self.refused("del: --if-absent: a key that is not there cannot be deleted", "del", "key", "--if-absent")
        for wrong in ("-1", "18446744073709551616"):
            self.refused("not a whole number", "put", "key", "1", "--if-stamp", wrong)
        long = self.ctl("put", "key", "1", "--if-value", "v" * 4097)
        self.assertEqual((long.returncode, b"maximum of 4096 bytes" in long.stderr), (2, True), long)
        self.done("hash", "create", "users")
        self.done("hash", "put", "users", "ada", "1", "--if-absent")
        refused("the key is there", "hash", "put", "users", "ada", "2", "--if-absent")
        self.done("hash", "put", "users", "ada", "2", "--if-value", "1")
        self.assertNotEqual(self.ctl("hash", "put", "users", "ada", "2", "--if-stamp", "1").returncode, 0)
        self.done("hash", "del", "users", "ada", "--if-present")
        self.assertEqual(self.ctl("hash", "has", "users", "ada").returncode, 1)

    def test_functions_change_values_at_their_servers(self):
        self.up()
        self.assertEqual(self.done("incr", "visits"), b"1\n")
        self.assertEqual(self.done("incr", "visits", "41"), b"42\n")
        self.assertEqual(self.done("incr", "visits", "--", "-50"), b"-8\n")
        self.assertEqual(self.done("incr", "visits", "010"), b"2\n")  # Not octal.
        self.refused("not a whole decimal number", "incr", "visits", "99999999999999999999")
        self.refused("not a whole decimal number", "incr", "visits", "0x10")
        self.assertEqual(self.done("get", "visits"), b"2")
        self.assertEqual(self.done("apply", "numbers", "add", "1,2,300", "--type", "u16"), b"")
        self.assertEqual(self.done("apply", "numbers", "max", "2", "--type", "u16"), b"")
        self.assertEqual(self.done("evaluate", "numbers", "filter", "2", "--where", "ge", "--type", "u16"), b"2,2,300\n")
        self.assertEqual(self.done("evaluate", "numbers", "sum", "--type", "u16"), b"304\n")
        self.assertEqual(self.done("evaluate", "numbers", "count", "2", "--where", "gt", "--type", "u16"), b"1\n")
        self.assertEqual(self.done("apply", "one", "add", "1.5", "--type", "f64"), b"1.5\n")
        self.assertEqual(self.done("apply", "log", "append", "a line"), b"6\n")
        self.assertEqual(self.done("apply", "log", "append", "!"), b"7\n")
        self.assertEqual(self.done("get", "log"), b"a line!")
        first = json.loads(self.done("-o", "json", "apply", "one", "add", "1", "--type", "f64"))
        self.assertEqual((first["changed"], first["existed"], first["result"], first["stamp"] > 0), (True, True, [2.5], True))
        found = json.loads(self.done("-o", "json", "evaluate", "numbers", "greatest", "--type", "u16"))
        self.assertEqual(found, {"found": True, "result": [300]})
        for function in (("sum",), ("least",), ("count", "2", "--where", "gt"), ("filter", "2", "--where", "gt")):
            absent = self.ctl("evaluate", "none", *function, "--type", "u16")
            self.assertEqual((absent.returncode, absent.stdout, absent.stderr), (1, b"", b""))
        absent = self.ctl("-o", "json", "evaluate", "none", "sum", "--type", "u16")
        self.assertEqual((absent.returncode, json.loads(absent.stdout)), (1, {"found": False}))
        self.done("put", "empty", "")
        for number in ("nan", "inf"):
            odd = json.loads(self.done("-o", "json", "apply", number, "add", number, "--type", "f64"))
            self.assertEqual(odd["result"], [number])

        self.refused("cellctl functions lists", "apply", "log", "no-such")
        self.refused("only reads values", "apply", "numbers", "sum", "--type", "u16")
        self.refused("changes values", "evaluate", "numbers", "add", "1", "--type", "u16")
        self.refused("300 is no", "apply", "numbers", "add", "300", "--type", "u8")
        self.refused("--type: i8, u8, ", "evaluate", "numbers", "filter", "1", "--where", "gt")
        self.refused("sum is a function of elements, so it needs their --type: i8, u8, ", "evaluate", "numbers", "sum")
        self.refused("count compares elements, so it needs --where: eq, ", "evaluate", "numbers", "count", "1", "--type", "u16")
        self.refused("there is no element to return", "evaluate", "empty", "least", "--type", "u16")
        self.refused("7 bytes", "apply", "log", "add", "1", "--type", "i64")
        self.refused("not a whole decimal number", "incr", "log")
        self.assertEqual(self.done("get", "log"), b"a line!")
        self.done("hash", "create", "counters")
        self.assertEqual(self.done("incr", "a", "--table", "counters"), b"1\n")
        self.assertEqual(self.done("apply", "a", "add-decimal", "2", "--table", "counters"), b"3\n")
        self.assertEqual(self.ctl("evaluate", "b", "sum", "--type", "u8", "--table", "counters").returncode, 1)
        listed = self.done("functions").decode().splitlines()
        names = [line.split()[0] for line in listed]
        self.assertEqual(names, sorted(names))
        self.assertLessEqual({"add", "append", "compare-and-swap", "filter"}, set(names))
        self.assertTrue(all(len(line.split()) > 2 for line in listed), listed)


if __name__ == "__main__":
    unittest.main()
