"""Operations that blocking clients and those of asyncio share. `_run(method, *arguments)` of the class that inherits
them returns the result, or an awaitable of it."""

import datetime
import math
import os
from typing import Any, Callable

from cell import _cell
from cell.functions import Function

# The numbers of cell_condition (cell.h).
_ALWAYS, _IF_ABSENT, _IF_PRESENT, _IF_VALUE, _IF_STAMP = range(5)


def _condition(**conditions):
    numbers = {"absent": _IF_ABSENT, "present": _IF_PRESENT, "expected": _IF_VALUE, "stamp": _IF_STAMP}
    given = [(numbers[name], value) for name, value in conditions.items() if value is not None and value is not False]
    if len(given) != 1:
        raise ValueError(f"exactly one of these is needed: {', '.join(conditions)}")
    return given[0]


def _function(function):
    if not isinstance(function, tuple) or len(function) != 2 or not isinstance(function[0], str):
        raise TypeError("a function is one of cell.functions, or cell.functions.Function(name, argument)")
    return function


def table_of(table):
    """Returns the table of a transaction's operation, as the extension takes it."""
    if table is None:
        return None
    if not isinstance(table, Keys) or table._table is None:
        raise TypeError("table is what Client.table has returned")
    return table._table


def name_of(name):
    if not isinstance(name, str):
        raise TypeError(f"a table's name is a str, not {type(name).__name__}")
    return name


def seconds_of(timeout):
    """Checks the timeout of a transaction that is run again."""
    if timeout is None:
        return 15.0
    if not timeout > 0:
        raise ValueError("timeout is not above 0")
    return timeout


def _moment(expires_at):
    return expires_at.timestamp() if isinstance(expires_at, datetime.datetime) else expires_at


def _prefix_range(prefix, start, stop):
    """Returns the range of keys that begin with a prefix."""
    if prefix is None:
        return start, stop
    if start is not None or stop is not None:
        raise ValueError("a scan has a prefix, or start and stop")
    first = prefix.encode() if isinstance(prefix, str) else bytes(memoryview(prefix))
    end = first.rstrip(b"\xff")
    return first, end[:-1] + bytes([end[-1] + 1]) if end else None


def _slice(keys):
    if keys.step is not None:
        raise ValueError("a slice of keys has no step: use scan with reverse or limit")
    return keys.start, keys.stop


class Keys:
    """Operations on single keys, of the tree or of a table.

    Keys and values are bytes, or anything with a buffer; a str stands for its UTF-8. Values that are returned are
    bytes. `timeout` is in seconds, `path` is "server", "client" or "hybrid"; None: as the client was opened with.
    """

    _core: _cell.Client
    _table: Any = None
    _run: Callable[..., Any]

    def get(self, key, *, timeout=None, path=None):
        """Returns the value, or None if the key is not there."""
        return self._run(self._core.get, key, self._table, timeout, path)

    def has(self, key, *, timeout=None, path=None):
        """Returns whether the key is there."""
        return self._run(self._core.has, key, self._table, timeout, path)

    def put(self, key, value, *, ttl=None, expires_at=None, timeout=None, path=None):
        """Inserts or replaces. Returns whether the key was there before.

        `ttl`: seconds after which the pair expires, by its server's clock. `expires_at`: the moment, as a datetime (one
        without a time zone is local time) or in seconds since the epoch. None: it does not expire.
        """
        return self._run(self._core.put, key, value, self._table, _ALWAYS, None, ttl, _moment(expires_at), timeout, path)

    def put_if(self, key, value, *, absent=False, present=False, expected=None, stamp=None, ttl=None, expires_at=None, timeout=None, path=None):
        """Puts if one condition holds: the key is absent; it is present; its value is `expected`; its stamp is `stamp`.
        The server decides that and writes at one moment. Returns Written. Tables have no stamps."""
        condition, operand = _condition(absent=absent, present=present, expected=expected, stamp=stamp)
        return self._run(self._core.put, key, value, self._table, condition, operand, ttl, _moment(expires_at), timeout, path)

    def delete(self, key, *, timeout=None, path=None):
        """Deletes. Returns whether the key was there."""
        return self._run(self._core.delete, key, self._table, _ALWAYS, None, timeout, path)

    def delete_if(self, key, *, expected=None, stamp=None, timeout=None, path=None):
        """Deletes if the key's value is `expected`, or its stamp is `stamp`. Returns Written."""
        condition, operand = _condition(expected=expected, stamp=stamp)
        return self._run(self._core.delete, key, self._table, condition, operand, timeout, path)

    def time_left(self, key, *, timeout=None, path=None):
        """Returns the seconds until the pair expires, math.inf if it never does, or None if the key is not there."""
        return self._run(self._core.time_left, key, self._table, timeout, path)

    def apply(self, key, function: Function, *, timeout=None, path=None):
        """Applies a function (`cell.functions`) to the value, at its server, exactly once. Returns Applied."""
        name, argument = _function(function)
        return self._run(self._core.apply, key, name, argument, self._table, timeout, path)

    def evaluate(self, key, function: Function, *, timeout=None, path=None):
        """Returns what a function that only reads finds in the value."""
        name, argument = _function(function)
        return self._run(self._core.evaluate, key, name, argument, self._table, timeout, path)


class Tree(Keys):
    """Operations on the tree, whose keys are sorted. Ranges begin with `start` (included; None: the first key) and end
    before `stop` (None: the end)."""

    def get_with_stamp(self, key, *, timeout=None, path=None):
        """Returns Stamped, or None if the key is not there."""
        return self._run(self._core.get_with_stamp, key, timeout, path)

    def multi_get(self, keys, *, timeout=None, path=None):
        """Returns the values of many keys, in their order, None for those that are not there. They are read at once,
        but not as of one moment."""
        if isinstance(keys, (str, bytes, bytearray, memoryview)):
            raise TypeError("multi_get takes several keys: a list, for example")
        return self._run(self._core.multi_get, list(keys), timeout, path)

    def count(self, start=None, stop=None, *, timeout=None):
        """Returns how many keys a range has."""
        return self._run(self._core.count, start, stop, timeout)

    def delete_range(self, start, stop, *, timeout=None):
        """Deletes the keys of a range, each at some moment of the call. Returns how many. None, None: all keys."""
        return self._run(self._core.delete_range, start, stop, timeout)

    def outcome(self, transaction_id, *, timeout=None):
        """Returns what became of a transaction whose commit has raised MaybeApplied: its stamp, or None if it did not
        commit, and never will. Can be asked within a minute, also by another client."""
        return self._run(self._core.outcome, transaction_id, timeout)

    @property
    def key_bytes_max(self):
        """The longest key that the tree can hold."""
        return self._core.key_bytes_max()


class SnapshotReads:
    """What snapshots of both clients have."""

    _core: Any
    _run: Callable[..., Any]

    def get(self, key, *, timeout=None, path=None):
        """Returns the value, or None if the key was not there."""
        return self._run(self._core.get, key, timeout, path)

    def forget(self):
        """Tells the servers that it is not needed any more. Returns whether all know."""
        return self._run(self._core.forget)


class TransactionParts:
    """What transactions of both clients have."""

    _core: Any
    _run: Callable[..., Any]
    _ended = False  # By commit or abort.
    stamp = None  # Once it has committed: its stamp.

    @property
    def id(self):
        """For `Client.outcome`, once commit was called. None if it has written nothing."""
        encoded = self._core.id()
        return encoded if any(encoded) else None

    def get(self, key, *, table=None, timeout=None, path=None):
        """Returns the value, or None. What this transaction has written is seen."""
        return self._run(self._core.get, key, table_of(table), timeout, path)

    def put(self, key, value, *, table=None, ttl=None, expires_at=None):
        """Notes a write, for the commit. It is not awaited."""
        self._core.put(key, value, table_of(table), ttl, _moment(expires_at))

    def delete(self, key, *, table=None):
        """Notes a delete, for the commit. It is not awaited."""
        self._core.delete(key, table_of(table))

    def abort(self):
        """Gives the transaction up: the end of its block does not commit it."""
        self._ended = True


def options_of(cluster, given):
    """Returns the options of the C API: names and texts."""
    options = {"cluster": os.fsdecode(cluster)}
    for name, value in given.items():
        if value is None:
            continue
        if name == "timeout":
            if not value > 0:
                raise ValueError("timeout is not above 0")
            name, value = "timeout_us", 2**63 - 1 if value > 1e12 else max(1, math.ceil(value * 1e6))
        elif name == "path" and value not in ("server", "client", "hybrid"):
            raise ValueError(f'there is no path "{value}": use server, client or hybrid')
        elif isinstance(value, bool):
            value = int(value)
        options[name] = value
    return options
