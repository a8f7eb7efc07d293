"""Uses a gateway by redis-py, step by step, and prints a line for each (walk.txt has what is expected).

    walk.py HOST PORT PREFIX sync|asyncio 2|3

Both of redis-py's clients take the same walk: a method returns its result or, with asyncio, an awaitable of it."""

import asyncio
import inspect
import sys
from concurrent.futures import ThreadPoolExecutor

import redis
import redis.asyncio

WORKERS = 8
INCREMENTS = 125  # Of each worker.
CONNECTIONS = 4
TIMEOUT = 60  # Seconds.


async def result(value):
    return await value if inspect.isawaitable(value) else value


async def listed(values):
    return [value async for value in values] if hasattr(values, "__aiter__") else list(values)


async def closed(client):
    await result(client.aclose() if isinstance(client, redis.asyncio.Redis) else client.close())


async def error_of(call, *arguments):
    try:
        await result(call(*arguments))
    except redis.ResponseError as error:
        return str(error)  # Without the code "ERR", if it has that.
    return "no error"


def shown(value):
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "OK" if value else "false"
    return value.decode() if isinstance(value, bytes) else str(value)


class Walk:
    def __init__(self, new_client, prefix):
        self.new_client = new_client
        self.client = new_client()
        self.prefix = prefix

    def key(self, name):
        return f"{self.prefix}{name}"

    def say(self, step, *values):
        print(f"{step}:", *map(shown, values), flush=True)

    async def time_left(self, key):
        left = await result(self.client.ttl(key))
        return {-1: "none", -2: "missing"}.get(left, "about 100 s" if 40 < left <= 100 else f"{left} s")

    async def connect(self, protocol):
        pong = await result(self.client.ping())
        info = await result(self.client.client_info())
        self.say("connect", "PONG" if pong else "no pong", f"by RESP{info['resp']}")
        assert info["resp"] == str(protocol)

    async def strings(self):
        c, color, other, key = self.client, self.key("color"), self.key("other"), self.key
        self.say("set and get", await result(c.set(color, "red")), await result(c.get(color)))
        self.say("get of a missing key", await result(c.get(key("missing"))))
        self.say("set NX", await result(c.set(other, "red", nx=True)), await result(c.set(other, "green", nx=True)), await result(c.get(other)))
        self.say("set XX", await result(c.set(key("missing"), "x", xx=True)), await result(c.set(other, "blue", xx=True)), await result(c.get(other)))
        self.say("set EX", await result(c.set(other, "blue", ex=100)), await self.time_left(other))
        self.say("set KEEPTTL and GET", await result(c.set(other, "pink", keepttl=True, get=True)), await self.time_left(other))
        self.say("mset and mget", await result(c.mset({key("m1"): "a", key("m2"): "b"})), *await result(c.mget(key("m1"), key("m2"), key("missing"))))
        self.say("incr, incrby, decr", await result(c.incr(key("n"))), await result(c.incrby(key("n"), 10)), await result(c.decr(key("n"))))
        self.say("exists, del, unlink", await result(c.exists(key("n"), key("m1"), key("m2"), key("missing"))), await result(c.delete(key("m1"))),
                 await result(c.unlink(key("m2"), key("m1"))), await result(c.exists(key("n"), key("m2"))))
        expires, left = await result(c.expire(other, 100)), await self.time_left(other)
        self.say("expire, ttl, persist", str(bool(expires)).lower(), left, str(bool(await result(c.persist(other)))).lower(),
                 await self.time_left(other), await self.time_left(key("missing")))
        await result(c.pexpire(other, 1))
        while await result(c.exists(other)):
            await asyncio.sleep(0.01)
        self.say("pexpire and expiry", await result(c.get(other)))
        self.say("append and strlen", await result(c.append(key("text"), "hello")), await result(c.append(key("text"), " world")),
                 await result(c.strlen(key("text"))), await result(c.get(key("text"))))

    async def hashes(self):
        c, fruit = self.client, self.key("fruit")
        self.say("hset", await result(c.hset(fruit, mapping={"apple": "red", "plum": "blue", "rose": "white"})), await result(c.hset(fruit, "rose", "pink")))
        self.say("hget", await result(c.hget(fruit, "apple")), await result(c.hget(fruit, "pear")))
        pairs = await result(c.hgetall(fruit))
        self.say("hgetall", *sorted(f"{shown(field)}={shown(value)}" for field, value in pairs.items()))
        self.say("hmget", *await result(c.hmget(fruit, "apple", "pear", "plum")))
        self.say("hdel and hincrby", await result(c.hdel(fruit, "plum", "rose", "pear")), await result(c.hincrby(fruit, "n", 5)),
                 await result(c.hincrby(fruit, "n", -2)))
        self.say("type", *[await result(c.type(self.key(name))) for name in ("color", "fruit", "missing")])

    async def many(self):
        pipe = self.client.pipeline(transaction=False)
        for i in range(500):
            pipe.set(self.key(f"scan:{i:03}"), i)
        await result(pipe.execute())
        found = await listed(self.client.scan_iter(match=self.key("scan:*"), count=37))
        self.say("scan", f"{len(found)} keys, {len(set(found))} different ones")
        for i in range(500):
            pipe.incr(self.key("turn"))
            pipe.get(self.key(f"scan:{i:03}"))
        replies = await result(pipe.execute())
        wanted = [reply for i in range(500) for reply in (i + 1, str(i).encode())]
        self.say("pipeline", f"{len(replies)} replies {'in order' if replies == wanted else replies}")

    async def transactions(self):
        c, color, seen = self.client, self.key("color"), self.key("seen")
        pipe = c.pipeline(transaction=True)
        pipe.set(seen, 0)
        pipe.incr(seen)
        pipe.get(color)
        self.say("multi and exec", *await result(pipe.execute()))
        for changed in (False, True):
            await result(pipe.watch(seen))
            if changed:
                other = self.new_client()
                await result(other.set(seen, "theirs"))
                await closed(other)
            pipe.multi()
            pipe.set(seen, "mine")
            if changed:
                try:
                    replies = await result(pipe.execute())
                except redis.WatchError:
                    replies = None
                self.say("exec after another connection has changed the watched key", replies, await result(c.get(seen)))
            else:
                self.say("exec without changes to the watched key", *await result(pipe.execute()))
        await result(pipe.watch(seen))
        pipe.multi()
        pipe.set(color, "black")
        await result(pipe.reset())
        self.say("discard", await result(c.get(color)))
        pipe.set(color, "black")
        pipe.execute_command("NOSUCH")
        try:
            await result(pipe.execute())
        except redis.ResponseError:  # redis-py raises the error of the command, not that of EXEC.
            pass
        self.say("exec after a command that was refused", "EXECABORT" if await result(c.get(color)) == b"red" else "it ran")

    async def transaction_function(self):
        """Adds to a number in a function of transaction(), which runs it again until no other has changed the number.
        Another changes it in the first two runs."""
        number, runs = self.key("number"), 0
        other = self.new_client()
        await result(other.set(number, 10))

        def add(pipe):
            nonlocal runs
            runs += 1
            value = int(pipe.get(number))
            if runs < 3:
                other.incr(number)
            pipe.multi()
            pipe.set(number, value * 2)

        async def add_by_asyncio(pipe):
            nonlocal runs
            runs += 1
            value = int(await pipe.get(number))
            if runs < 3:
                await other.incr(number)
            pipe.multi()
            pipe.set(number, value * 2)

        is_async = isinstance(self.client, redis.asyncio.Redis)
        replies = await result(self.client.transaction(add_by_asyncio if is_async else add, number))
        value = int(await result(self.client.get(number)))
        await closed(other)
        assert replies == [True] and runs >= 3 and value == 24, (replies, runs, value)

    async def ranges(self):
        c, key = self.client, self.key
        await result(c.mset({key(f"lex:{letter}"): letter for letter in "abcd"}))
        found = await result(c.zrangebylex("cell:keys", "[" + key("lex:b"), "(" + key("lex:d")))
        self.say("zrangebylex of cell:keys", *[name.decode().removeprefix(self.prefix) for name in found])
        self.say("zrangebylex with a prefix and LIMIT", *await result(c.zrangebylex("cell:keys:" + key("lex:"), "-", "+", start=1, num=2)))
        self.say("zrevrangebylex", *await result(c.zrevrangebylex("cell:keys:" + key("lex:"), "+", "(b")))

    async def errors(self):
        c, key = self.client, self.key
        self.say("unknown command", "ERR " + (await error_of(c.execute_command, "NOSUCH", "it")).strip())
        self.say("wrong type", await error_of(c.incr, key("fruit")))
        self.say("not a number", "ERR " + await error_of(c.incr, key("color")))

    async def bytes_of_values(self):
        c, key = self.client, self.key
        for step, value in (("binary", bytes(range(256))), ("large value", (b"0123456789\r\n\0$" * 40_000)[:500_000])):
            await result(c.set(key("bytes"), value))
            read = await result(c.get(key("bytes")))
            self.say(step, f"{len(read) if read == value else 0} of {len(value)} bytes")

    async def counter(self, client):
        """Increments one counter by several workers, who share the connections of a pool."""
        count = self.key("count")

        async def increment():
            for _ in range(INCREMENTS):
                await client.incr(count)

        def increment_in_thread():
            for _ in range(INCREMENTS):
                client.incr(count)

        if isinstance(client, redis.asyncio.Redis):
            await asyncio.gather(*[increment() for _ in range(WORKERS)])
        else:
            with ThreadPoolExecutor(WORKERS) as threads:
                for done in [threads.submit(increment_in_thread) for _ in range(WORKERS)]:
                    done.result()
        self.say("counter", await result(client.get(count)))


async def main():
    host, port, prefix, way, protocol = sys.argv[1:]
    package = redis.asyncio if way == "asyncio" else redis
    # The machine may be busy, and a command that was sent again would count twice.
    options = {"host": host, "port": int(port), "socket_timeout": TIMEOUT, "retry": None}
    if protocol != "3":  # 3 is the default.
        options["protocol"] = int(protocol)
    walk = Walk(lambda: package.Redis(**options), prefix)
    await walk.connect(int(protocol))
    await walk.strings()
    await walk.hashes()
    await walk.many()
    await walk.transactions()
    await walk.transaction_function()
    await walk.ranges()
    await walk.errors()
    await walk.bytes_of_values()
    pool = package.BlockingConnectionPool(max_connections=CONNECTIONS, timeout=TIMEOUT, **options)
    sharing = package.Redis.from_pool(pool)
    await walk.counter(sharing)
    await closed(sharing)
    await closed(walk.client)


asyncio.run(main())
