"""Cell for asyncio. `await connect(...)`, then the operations of `cell.Client`, each of which is awaited.

    client = await cell.asyncio.connect("/tmp/cell")
    await client.put("key", "value")
    values = await asyncio.gather(*(client.get(key) for key in keys))
    async for key, value in client.scan("a", "b"):
        ...
    async with client.transaction() as transaction:
        ...
    await client.close()

A client belongs to the loop that was running when it was opened, and to its thread. Operations begin at once, before
they are awaited, and return futures: use `asyncio.gather` for several, not `create_task`. What is cancelled is not waited
for any more; if it was a write, that may have taken effect, or may still. Close a client before its loop ends.
"""

import asyncio
import functools
import json
import os
import warnings
import weakref

from cell import _cell, _operations, _pauses
from cell.errors import Aborted, Error, MaybeApplied, Unavailable, make

__all__ = ["connect", "Client", "Table", "Scan", "Snapshot", "Transaction"]


async def connect(cluster, *, timeout=None, path=None, fabric=None, secret_file=None, tls_authority=None, tls_certificate=None, tls_key=None,
                  zookeeper_digest=None, cache_bytes=None, busy_poll=None, **others):
    """Connects to a cluster, as `cell.connect` does."""
    options = _operations.options_of(cluster, dict(timeout=timeout, path=path, fabric=fabric, secret_file=secret_file, tls_authority=tls_authority,
                                                   tls_certificate=tls_certificate, tls_key=tls_key, zookeeper_digest=zookeeper_digest,
                                                   cache_bytes=cache_bytes, busy_poll=busy_poll, **others))
    loop = asyncio.get_running_loop()
    core = await loop.run_in_executor(None, _cell.Client, options)
    return Client(core, loop)


class _Driver:
    """Turns a client by its event loop: when its descriptor is readable, when a time has come, and soon after
    operations have begun."""

    def __init__(self, client, core, loop):
        self.core, self.loop = core, loop
        self._client = weakref.ref(client)
        self._busy, self._kept = 0, None  # Operations in flight, which keep the client.
        self._pid = os.getpid()
        self._fd = core.wait_fd()
        if self._fd < 0:
            raise Unavailable("there is no descriptor left for the client")
        self._soon = self._timer = None
        loop.add_reader(self._fd, self._turn)
        self._turn()

    def run(self, method, *arguments):
        future = self.loop.create_future()
        method(*arguments, future)
        self._busy += 1
        if self._kept is None:
            self._kept = self._client()
        if self._soon is None:
            self._soon = self.loop.call_soon(self._turn)
        return future

    def _turn(self):
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        seconds, results, others = self.core.turn()
        if results or others:
            self.tell(results, others)
        if self._fd < 0:  # It is closed: what was refused is told now.
            return
        if seconds == 0:
            self._soon = self.loop.call_soon(self._turn)
            return
        due = self.loop.time() + seconds
        # A timer that comes too early does no harm, and setting one costs more than a turn.
        if self._timer is None or self._timer.when() > due or self._timer.when() <= self.loop.time():
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_at(due, self._on_time)

    def tell(self, results, others):
        """Tells futures what has come of their operations."""
        pairs = iter(results)
        for future, result in zip(pairs, pairs):
            if not future.done():  # Otherwise it was cancelled.
                future.set_result(result)
        for future, error, result, made in others:
            if future.done():
                continue
            if error is not None:
                future.set_exception(make(error, result))
            else:
                future.set_result(result if made is None else made(*result))
        self._busy -= len(results) // 2 + len(others)
        if self._busy == 0:
            self._kept = None

    def _on_time(self):
        self._timer = None
        self._turn()

    def stop(self):
        if self._fd >= 0 and self._pid == os.getpid() and not self.loop.is_closed():  # A child shares its parent's selector.
            self.loop.remove_reader(self._fd)
        self._fd = -1
        for handle in (self._soon, self._timer):
            if handle is not None:
                handle.cancel()
        self._soon = self._timer = None


class Client(_operations.Tree):
    """A client of a cluster, over the tree. Use `connect` to make one. As an asynchronous context manager, it is closed
    at the end."""

    def __init__(self, core, loop):
        self._core = core
        self._driver = _Driver(self, core, loop)
        self._run = self._driver.run

    def __del__(self):
        if hasattr(self, "_driver") and not self.closed:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self)
            self._driver.stop()
            self._core.close()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        await self.close()

    async def close(self):
        """Closes the client. Operations in flight raise Cancelled, or MaybeApplied if they were writes that were sent."""
        self._driver.stop()
        _, results, others = self._core.close()
        self._driver.tell(results, others)

    @property
    def closed(self):
        return self._core.closed

    def scan(self, start=None, stop=None, *, prefix=None, reverse=False, keys_only=False, limit=None, timeout=None, path=None):
        """Returns an asynchronous iterator of (key, value), or of keys alone (`cell.Client.scan`)."""
        start, stop = _operations._prefix_range(prefix, start, stop)
        return Scan(self, self._core.scan(start, stop, reverse, keys_only, limit, timeout, path), keys_only, limit)

    async def table(self, name):
        """Opens a table. Raises NotFound if no table has this name."""
        return Table(self, await self._run(self._core.open_table, _operations.name_of(name)))

    async def snapshot(self, start=None, stop=None, *, keep=None, timeout=None):
        """Takes a snapshot (`cell.Client.snapshot`)."""
        return Snapshot(self, await self._run(self._core.take_snapshot, start, stop, keep, timeout))

    def transaction(self, *, timeout=None):
        """Begins a transaction (`cell.Client.transaction`), an asynchronous context manager."""
        return Transaction(self, self._core.begin(), timeout)

    async def run(self, body, *, timeout=None):
        """Awaits `body(transaction)`, and commits, as `cell.Client.run` does."""
        for left, pause in _pauses(_operations.seconds_of(timeout)):
            await asyncio.sleep(pause)
            ran = False
            try:
                async with self.transaction(timeout=left) as transaction:
                    result = await body(transaction)
                    ran = True
                return result
            except Aborted as error:
                last = error
            except MaybeApplied as error:
                if not ran or error.transaction_id is None or error.transaction_id != transaction.id:
                    raise
                try:
                    known = await self.outcome(error.transaction_id, timeout=left)
                except Error:
                    raise error from None
                if known is not None:
                    return result
                last = Aborted("the transaction did not commit, because its answer was lost")
        raise last

    def transactional(self, body=None, *, timeout=None):
        """Makes a coroutine function whose first parameter is a transaction into one that runs in a transaction."""
        if body is None:
            return functools.partial(self.transactional, timeout=timeout)

        @functools.wraps(body)
        async def run(*arguments, **named):
            return await self.run(lambda transaction: body(transaction, *arguments, **named), timeout=timeout)

        return run

    async def finish_transactions(self):
        """Waits, for at most a second, until all servers know of the transactions that have committed. For a program
        that ends: other coroutines wait, too. Returns whether that was enough."""
        return self._core.finish_transactions()

    def metrics(self):
        """Returns the client's counters, and its latencies."""
        return json.loads(self._core.metrics())


class Table(_operations.Keys):
    """A hash map beside the tree. Its keys are not sorted."""

    def __init__(self, client, handle):
        self._client, self._core, self._table, self._run = client, client._core, handle, client._run


class Scan:
    """An asynchronous iterator over a range. Coroutines may share it: each pair goes to one of them. If one is cancelled
    while it waits, nothing is lost. After an error it is at its end."""

    def __init__(self, client, core, keys_only, limit):
        self._client, self._core, self._keys_only = client, core, keys_only
        self._batch, self._at, self._ended = [], 0, limit == 0
        self._fetching = None  # The future of the next batch.

    def __aiter__(self):
        return self

    async def __anext__(self):
        while self._at == len(self._batch):
            if self._ended:
                raise StopAsyncIteration
            if self._fetching is None:
                self._fetching = self._client._run(self._core.next, self._keys_only)
            fetching = self._fetching
            try:
                batch = await asyncio.shield(fetching)
            except Error:
                self._fetching, self._ended = None, True
                raise
            if self._fetching is fetching:  # Others may have waited for it, too.
                self._fetching = None
                self._batch, self._at, self._ended = batch, 0, not batch
        self._at += 1
        return self._batch[self._at - 1]


class Snapshot(_operations.SnapshotReads):
    """What the tree, or a range of it, had at one moment (`cell.Snapshot`)."""

    def __init__(self, client, core):
        self._client, self._core, self._run = client, core, client._run

    async def __aenter__(self):
        return self

    async def __aexit__(self, kind, *exception):
        try:
            await self.forget()
        except Error:
            if kind is None:
                raise

    def scan(self, start=None, stop=None, *, prefix=None, reverse=False, keys_only=False, limit=None, timeout=None, path=None):
        """Returns an asynchronous iterator of (key, value), or of keys alone."""
        start, stop = _operations._prefix_range(prefix, start, stop)
        return Scan(self._client, self._core.scan(start, stop, reverse, keys_only, limit, timeout, path), keys_only, limit)


class Transaction(_operations.TransactionParts):
    """Reads and writes that take effect at one moment, or not at all (`cell.Transaction`)."""

    def __init__(self, client, core, timeout):
        self._client, self._core, self._timeout, self._run = client, core, timeout, client._run

    async def __aenter__(self):
        return self

    async def __aexit__(self, kind, *exception):
        if kind is None and not self._ended:
            await self.commit()

    def scan(self, start=None, stop=None, *, prefix=None, reverse=False, limit=None, timeout=None, path=None):
        """Returns the pairs of a range as a list."""
        start, stop = _operations._prefix_range(prefix, start, stop)
        if limit == 0:
            nothing = self._client._driver.loop.create_future()
            nothing.set_result([])
            return nothing
        return self._run(self._core.scan, start, stop, reverse, limit, timeout, path)

    async def commit(self, *, timeout=None):
        """Commits, and returns the stamp. Raises Aborted if others have changed what was read: begin another one.
        After MaybeApplied, `Client.outcome(error.transaction_id)` tells."""
        self._ended = True
        try:
            self.stamp = await self._run(self._core.commit, self._timeout if timeout is None else timeout)
        except MaybeApplied as error:
            error.transaction_id = self.id
            raise
        return self.stamp
