"""Cell: a sorted map from keys to values in other machines' memory.

    import cell

    with cell.connect("/tmp/cell") as client:
        client.put("fruit/apple", b"red")
        client["fruit/plum"] = "blue"
        for key, value in client.scan(prefix="fruit/"):
            print(key, value)

        with client.transaction() as transaction:
            transaction.put("a", transaction.get("fruit/apple"))

`cell.asyncio` has the same for asyncio. `python -m cell.demo` shows a cluster at work.

Threads: a client may be used by several threads, whose operations take turns; the wait for a turn does not count for a
timeout. For more at once, open one for each thread, or use `cell.asyncio`. After a fork only the parent can use its
clients; a child opens its own.

An operation that a signal interrupts (Ctrl-C) raises what the signal's handler raises. If it was a write, that may have
taken effect, or may still. `connect` and `Client.table` are not interrupted: they end by their timeout.
"""

import functools
import json
import os
import random
import threading
import time

from cell import _cell, _operations, functions
from cell.errors import (Aborted, Cancelled, DataLoss, DeadlineExceeded, Error, FailedPrecondition, Internal, InvalidArgument, MaybeApplied,
                         NotFound, OutOfRange, PermissionDenied, ResourceExhausted, SnapshotTooOld, Unavailable)
from cell.results import Applied, Stamped, Written

__version__ = "0.1"
__all__ = ["connect", "Client", "Table", "Scan", "Snapshot", "Transaction", "functions", "Stamped", "Written", "Applied",
           "Error", "Aborted", "Cancelled", "DataLoss", "DeadlineExceeded", "FailedPrecondition", "Internal", "InvalidArgument",
           "MaybeApplied", "NotFound", "OutOfRange", "PermissionDenied", "ResourceExhausted", "SnapshotTooOld", "Unavailable"]


def connect(cluster, *, timeout=None, path=None, fabric=None, secret_file=None, tls_authority=None, tls_certificate=None, tls_key=None,
            zookeeper_digest=None, cache_bytes=None, busy_poll=None, **others):
    """Connects to a cluster: its directory, or "zk://HOST:PORT[,HOST:PORT...]/NAME".

    `timeout`: of operations, in seconds; None: 15. `path`: "server", "client" or "hybrid" (the default): who walks the
    tree. `fabric`: "shm", "tcp", "verbs" or "auto". Others are the fields of ClientOptions (client.h) by their names.

    Raises NotFound if there is no such cluster, and Unavailable if it does not answer.
    """
    return Client(cluster, timeout=timeout, path=path, fabric=fabric, secret_file=secret_file, tls_authority=tls_authority,
                  tls_certificate=tls_certificate, tls_key=tls_key, zookeeper_digest=zookeeper_digest, cache_bytes=cache_bytes, busy_poll=busy_poll, **others)


class _Blocking:
    @staticmethod
    def _run(method, *arguments):
        return method(*arguments, None)


class _Mapping:
    """A map's operators. Those for writes say nothing about what was there before."""

    def __contains__(self, key):
        return self.has(key)

    def __setitem__(self, key, value):
        self.put(key, value)

    def __delitem__(self, key):
        if not self.delete(key):
            raise KeyError(key)

    def __getitem__(self, key):
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value


class Client(_Mapping, _Blocking, _operations.Tree):
    """A client of a cluster, over the tree. Use `connect` to make one."""

    def __init__(self, cluster, **options):
        self._core = _cell.Client(_operations.options_of(cluster, options))

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        """Closes the client. What was opened from it raises Cancelled from then on."""
        self._core.close()

    @property
    def closed(self):
        return self._core.closed

    def __getitem__(self, key):
        """Returns the value of a key, or raises KeyError. For a slice, returns its `scan`."""
        return self.scan(*_operations._slice(key)) if isinstance(key, slice) else super().__getitem__(key)

    def __delitem__(self, key):
        """Deletes a key, or raises KeyError. For a slice, deletes its keys."""
        if isinstance(key, slice):
            self.delete_range(*_operations._slice(key))
        else:
            super().__delitem__(key)

    def __iter__(self):
        """Iterates over all keys."""
        return iter(self.scan(keys_only=True))

    def scan(self, start=None, stop=None, *, prefix=None, reverse=False, keys_only=False, limit=None, timeout=None, path=None):
        """Returns an iterator of (key, value), or of keys alone, in order. It is no snapshot: a pair that was there
        throughout is seen, one that changes meanwhile may be. `timeout` is for each batch that is read."""
        start, stop = _operations._prefix_range(prefix, start, stop)
        return Scan(self._core.scan(start, stop, reverse, keys_only, limit, timeout, path), keys_only, limit)

    def table(self, name):
        """Opens a table, a hash map. Raises NotFound if no table has this name (`cellctl hash create` makes one)."""
        return Table(self, self._run(self._core.open_table, _operations.name_of(name)))

    def snapshot(self, start=None, stop=None, *, keep=None, timeout=None):
        """Takes a snapshot: what the tree, or a range of it, has at this moment. Servers keep it for `keep` seconds
        (None: ten minutes), or until `forget`, which the end of a `with` block calls. They keep few at a time (16 for each
        region), and raise ResourceExhausted then."""
        return Snapshot(self._run(self._core.take_snapshot, start, stop, keep, timeout))

    def transaction(self, *, timeout=None):
        """Begins a transaction. As a context manager it commits at the end of its block, unless that raises; it raises
        Aborted if others have changed what it has read. `timeout` is of the commit. See `transactional`."""
        return Transaction(self._core.begin(), timeout)

    def run(self, body, *, timeout=None):
        """Calls `body(transaction)` and commits. While that is Aborted, begins again, after a pause that grows, for
        `timeout` seconds (None: 15). Returns what `body` has returned. `body` must do nothing but read and write by its
        transaction, since it may run several times. If the answer to a commit is lost, asks for the outcome, for as
        long again. Raises MaybeApplied if there is no answer to that either."""
        for left, pause in _pauses(_operations.seconds_of(timeout)):
            time.sleep(pause)
            ran = False
            try:
                with self.transaction(timeout=left) as transaction:
                    result = body(transaction)
                    ran = True
                return result
            except Aborted as error:
                last = error
            except MaybeApplied as error:
                if not ran or error.transaction_id is None or error.transaction_id != transaction.id:
                    raise
                if _is_known(self.outcome, error, left):
                    return result
                last = Aborted("the transaction did not commit, because its answer was lost")
        raise last

    def transactional(self, body=None, *, timeout=None):
        """Makes a function whose first parameter is a transaction into one that runs in a transaction, as by `run`.

            @client.transactional
            def transfer(transaction, source, target, amount): ...

            transfer("alice", "bob", 5)
        """
        if body is None:
            return functools.partial(self.transactional, timeout=timeout)

        @functools.wraps(body)
        def run(*arguments, **named):
            return self.run(lambda transaction: body(transaction, *arguments, **named), timeout=timeout)

        return run

    def finish_transactions(self):
        """Waits, for at most a second, until all servers know of the transactions that have committed. For a program
        that ends. Returns whether that was enough."""
        return self._core.finish_transactions()

    def metrics(self):
        """Returns the client's counters, and its latencies."""
        return json.loads(self._core.metrics())


def _is_known(outcome, lost, timeout):
    """Returns whether a transaction has committed whose answer was lost, and raises `lost` if nobody tells."""
    try:
        return outcome(lost.transaction_id, timeout=timeout) is not None
    except Error:
        raise lost from None


def _pauses(timeout):
    """Yields, before each attempt, the time that is left and how long to pause, until the time is over."""
    until = time.monotonic() + timeout
    yield timeout, 0
    pause = 0.0005
    while (left := until - time.monotonic()) > 0:
        yield left, random.uniform(0, min(pause, left))
        pause = min(pause * 2, 0.1)


class Table(_Mapping, _Blocking, _operations.Keys):
    """A hash map beside the tree. Its keys are not sorted."""

    def __init__(self, client, handle):
        self._core, self._table = client._core, handle


class Scan:
    """An iterator over a range. Threads may share it: each pair goes to one of them. After an error it is at its end."""

    def __init__(self, core, keys_only, limit):
        self._core, self._keys_only = core, keys_only
        self._batch, self._at, self._ended = [], 0, limit == 0
        # A signal's handler may use the scan while its thread is in it; a child has not the threads that hold the lock.
        self._lock, self._pid = threading.RLock(), os.getpid()

    def __iter__(self):
        return self

    def __next__(self):
        if self._pid != os.getpid():
            raise Cancelled("the client belongs to the parent process")
        with self._lock:
            if self._at == len(self._batch):
                self._fetch()
            self._at += 1
            return self._batch[self._at - 1]

    def _fetch(self):
        if self._ended:
            raise StopIteration
        self._ended = True  # If a signal's handler raises, what was read is lost, and the scan does not go on behind it.
        batch = self._core.next(self._keys_only, None)
        if not batch:
            raise StopIteration
        self._batch, self._at, self._ended = batch, 0, False


class Snapshot(_Blocking, _operations.SnapshotReads):
    """What the tree, or a range of it, had at one moment. Reads raise SnapshotTooOld once servers do not have it any
    more, and OutOfRange for keys outside of its range."""

    def __init__(self, core):
        self._core = core

    def __enter__(self):
        return self

    def __exit__(self, kind, *exception):
        try:
            self.forget()
        except Error:
            if kind is None:
                raise

    def scan(self, start=None, stop=None, *, prefix=None, reverse=False, keys_only=False, limit=None, timeout=None, path=None):
        """Returns an iterator of (key, value), or of keys alone. None: from, or to, the end of the snapshot's range."""
        start, stop = _operations._prefix_range(prefix, start, stop)
        return Scan(self._core.scan(start, stop, reverse, keys_only, limit, timeout, path), keys_only, limit)


class Transaction(_Blocking, _operations.TransactionParts):
    """Reads and writes that take effect at one moment, or not at all (strictly serializable). `table` is one of
    `Client.table`, or None for the tree."""

    def __init__(self, core, timeout):
        self._core, self._timeout = core, timeout

    def __enter__(self):
        return self

    def __exit__(self, kind, *exception):
        if kind is None and not self._ended:
            self.commit()

    def scan(self, start=None, stop=None, *, prefix=None, reverse=False, limit=None, timeout=None, path=None):
        """Returns the pairs of a range as a list."""
        start, stop = _operations._prefix_range(prefix, start, stop)
        return [] if limit == 0 else self._run(self._core.scan, start, stop, reverse, limit, timeout, path)

    def commit(self, *, timeout=None):
        """Commits, and returns the stamp. Raises Aborted if others have changed what was read: begin another one.
        After MaybeApplied, `Client.outcome(error.transaction_id)` tells."""
        self._ended = True
        try:
            self.stamp = self._run(self._core.commit, self._timeout if timeout is None else timeout)
        except MaybeApplied as error:
            error.transaction_id = self.id
            raise
        return self.stamp
