"""The client for asyncio."""

import asyncio
import gc
import os
import select
import signal

import pytest

import cell
import cell.asyncio
from cell import functions
from cell._cluster import cluster


def run(directory, body, **options):
    async def main():
        async with await cell.asyncio.connect(directory, **options) as client:
            await client.delete_range(None, None)
            return await asyncio.wait_for(body(client), 60)

    return asyncio.run(main())


def test_operations(directory):
    async def body(client):
        assert await client.put("key", "1") is False
        assert await client.get("key") == b"1" and await client.get("none") is None and await client.has("key")
        assert (await client.put_if("key", "2", expected="1")).applied
        stamped = await client.get_with_stamp("key")
        assert stamped.value == b"2" and (await client.delete_if("key", stamp=stamped.stamp)).applied
        assert functions.numbers((await client.apply("n", functions.add(7))).result) == [7]
        assert functions.numbers(await client.evaluate("n", functions.sum())) == [7]
        assert await client.time_left("n") == float("inf")
        assert await client.delete("n") is True and await client.count() == 0
        await asyncio.gather(*(client.put(f"k{i:04}", str(i)) for i in range(3000)))
        assert await client.multi_get(["k0001", "none"]) == [b"1", None]
        assert [key async for key in client.scan(keys_only=True)] == [f"k{i:04}".encode() for i in range(3000)]
        assert [pair async for pair in client.scan("k0010", "k0012")] == [(b"k0010", b"10"), (b"k0011", b"11")]
        users = await client.table("users")
        await users.put("ada", "v")
        assert await users.get("ada") == b"v"
        async with await client.snapshot() as snapshot:
            await client.delete_range(None, None)
            assert await snapshot.get("k0001") == b"1" and len([0 async for _ in snapshot.scan()]) == 3000
        assert isinstance(client.metrics()["operations"], int)

    run(directory, body)


def test_an_answer_that_is_lost_is_asked_for(directory, monkeypatch):
    real, runs = cell.asyncio.Transaction.commit, []

    async def commit(self, **arguments):
        await real(self, **arguments)
        error = cell.MaybeApplied("the answer was lost")
        error.transaction_id = self.id
        raise error

    monkeypatch.setattr(cell.asyncio.Transaction, "commit", commit)

    async def body(client):
        async def add(transaction):
            runs.append(1)
            transaction.put("sum", str(int(await transaction.get("sum") or 0) + 1))
            return "done"

        assert await client.run(add) == "done"
        assert len(runs) == 1 and await client.get("sum") == b"1"

    run(directory, body)


def test_transactions(directory):
    async def body(client):
        @client.transactional
        async def bump(transaction, key):
            now = int(await transaction.get(key) or 0)
            await asyncio.sleep(0)
            transaction.put(key, str(now + 1))

        await asyncio.gather(*(bump("n") for _ in range(10)))
        assert await client.get("n") == b"10"
        with pytest.raises(ZeroDivisionError):
            async with client.transaction() as transaction:
                transaction.put("n", "lost")
                1 / 0
        async with client.transaction() as transaction:
            assert await transaction.scan() == [(b"n", b"10")]
            transaction.delete("n")
        assert await client.outcome(transaction.id) == transaction.stamp and await client.get("n") is None
        async with client.transaction() as transaction:
            transaction.put("n", "given up")
            transaction.abort()
        assert await client.get("n") is None and await client.finish_transactions()

    run(directory, body)


def test_errors_come_to_who_awaits(directory):
    async def body(client):
        with pytest.raises(cell.InvalidArgument):
            await client.get("")
        with pytest.raises(TypeError):
            await client.get(5)
        with pytest.raises(cell.NotFound):
            await client.table("nothing")
        results = await asyncio.gather(client.get("key"), client.get(""), client.put("key", b"v" * (1 << 22)), return_exceptions=True)
        assert results[0] is None and all(isinstance(error, cell.InvalidArgument) for error in results[1:])

    run(directory, body)
    with pytest.raises(cell.NotFound):
        asyncio.run(cell.asyncio.connect("/no/such/cluster"))


def test_other_coroutines_go_on(directory):
    async def body(client):
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.ensure_future(tick())
        for i in range(200):
            await client.put(f"k{i}", "v")
        ticking.cancel()
        assert ticks > 200

    run(directory, body)


def test_cancelled_operations_are_forgotten(directory):
    async def body(client):
        await client.put("key", "v")
        for _ in range(50):
            waiting = [client.get("key") for _ in range(20)]
            for future in waiting[::2]:
                future.cancel()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert results[1::2] == [b"v"] * 10 and all(isinstance(result, asyncio.CancelledError) for result in results[::2])

    run(directory, body)


def test_a_closed_client_ends_what_is_in_flight(directory):
    async def main():
        client = await cell.asyncio.connect(directory)
        await client.put("key", "v")
        in_flight = [client.get("key", path="server") for _ in range(10)] + [client.put("key", "w")]
        await client.close()
        results = await asyncio.gather(*in_flight, return_exceptions=True)
        assert all(isinstance(result, (cell.Cancelled, cell.MaybeApplied)) for result in results), results
        with pytest.raises(cell.Cancelled):
            await client.get("key")
        await client.close()
        assert client.closed

    asyncio.run(main())


def test_a_loop_that_ends_early_does_no_harm(directory):
    kept = []

    async def main():
        client = await cell.asyncio.connect(directory)
        kept.append([client.put("key", "v") for _ in range(10)])
        kept.append(client)

    asyncio.run(main())
    kept.clear()


def test_a_server_that_stops_delays_nobody_else(tmp_path):
    servers = cluster.up(tmp_path / "cell", servers=1, durability="none", meganode_bytes=1 << 20, extents_bytes=8 << 20)
    try:

        async def main():
            async with await cell.asyncio.connect(tmp_path / "cell") as client:
                await client.put("key", "v")
                servers[0].send_signal(signal.SIGSTOP)
                os.waitpid(servers[0].pid, os.WUNTRACED)  # Until it has stopped.
                late = asyncio.ensure_future(client.get("key", path="server", timeout=1))
                turns = 0
                while not late.done():
                    await asyncio.sleep(0.001)
                    turns += 1
                with pytest.raises(cell.DeadlineExceeded):
                    await late
                servers[0].send_signal(signal.SIGCONT)
                assert turns > 50
                assert await client.get("key") == b"v"

        asyncio.run(main())
    finally:
        servers[0].send_signal(signal.SIGCONT)
        cluster.end(servers)


def test_a_cancelled_step_of_a_scan_loses_nothing(directory):
    async def body(client):
        await asyncio.gather(*(client.put(f"k{i:04}", "v") for i in range(1000)))
        scan, seen, cancelled = client.scan(keys_only=True), [], 0
        while True:
            step = asyncio.ensure_future(scan.__anext__())
            await asyncio.sleep(0)
            if len(seen) % 7 == 0 and cancelled < 200:
                cancelled += step.cancel()
            try:
                seen.append(await step)
            except asyncio.CancelledError:
                continue
            except StopAsyncIteration:
                break
        assert seen == [f"k{i:04}".encode() for i in range(1000)]
        shared = client.scan(keys_only=True)

        async def some():
            return [key async for key in shared]

        parts = await asyncio.gather(*(some() for _ in range(5)))
        assert sorted(key for part in parts for key in part) == seen

    run(directory, body)


def test_an_interrupt_ends_the_loop(directory):
    async def main():
        async with await cell.asyncio.connect(directory) as client:

            async def work():
                while True:
                    await client.get("key")

            asyncio.get_running_loop().call_later(0.1, os.kill, os.getpid(), signal.SIGINT)
            await asyncio.wait_for(asyncio.gather(*(work() for _ in range(100))), 30)

    for _ in range(5):
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(main())


def test_an_unclosed_client_is_told(directory):
    async def main():
        client = await cell.asyncio.connect(directory)
        await client.put("key", "v")
        with pytest.warns(ResourceWarning, match="was not closed"):
            del client
            gc.collect()

    asyncio.run(main())


def test_an_operation_keeps_its_client(directory):
    async def main():
        await (await cell.asyncio.connect(directory)).put("key", "v")
        client = await cell.asyncio.connect(directory)
        in_flight = client.get("key")
        del client
        gc.collect()
        assert await in_flight == b"v"

    with pytest.warns(ResourceWarning):
        asyncio.run(main())
        gc.collect()


def test_a_child_does_not_disturb_its_parent(directory):
    async def body(client):
        await client.put("key", "v")
        child = os.fork()
        if child == 0:
            client._driver.stop()
            client._core.close()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        # Raises FileNotFoundError if the child has removed the descriptor from the epoll that both have.
        asyncio.get_running_loop()._selector._selector.modify(client._driver._fd, select.EPOLLIN)
        for _ in range(100):
            assert await client.get("key") == b"v"

    run(directory, body)


def test_both_clients_have_the_same_operations():
    for kind in ("Client", "Table", "Snapshot", "Transaction", "Scan"):
        blocking, awaited = ({name for name in dir(getattr(module, kind)) if not name.startswith("_")} for module in (cell, cell.asyncio))
        assert blocking == awaited


def test_an_idle_client_sleeps(directory):
    async def body(client):
        await client.put("key", "v")
        await asyncio.sleep(0.2)

        class Counting:
            turns = 0

            def __init__(self, core):
                self.core = core

            def turn(self):
                self.turns += 1
                return self.core.turn()

        counting = client._driver.core = Counting(client._driver.core)
        await asyncio.sleep(2)
        client._driver.core = counting.core
        assert 1 <= counting.turns < 50

    run(directory, body)
