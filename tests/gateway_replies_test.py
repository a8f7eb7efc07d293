"""Compares what the gateway answers with what a real redis-server answers, reply for reply and byte by byte: the
examples of Redis's documentation of each command, wrong uses of it, and random commands."""

import random
import shlex
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from tests.gateway_case import Gateway
from tests.redis_connection import Redis
from tools.free_ports import free_port

# Lines of commands, as one types them into redis-cli. Each paragraph begins with an empty store.
EXAMPLES = r"""
APPEND mykey "Hello"
APPEND mykey " World"
GET mykey
EXISTS mykey
APPEND ts "0043"
APPEND ts "0035"
STRLEN ts

SET mykey "10"
DECR mykey
SET mykey "234293482390480948029348230948"
DECR mykey
DECRBY mykey 3
DECRBY other 3
DECRBY other -9223372036854775808
DECRBY other x

SET key1 "Hello"
SET key2 "World"
DEL key1 key2 key3
UNLINK key1
SET key1 "Hello"
UNLINK key1 key1

ECHO "Hello World!"
PING
PING "hello world"
PING a b
ECHO
ECHO a b

SET key1 "Hello"
EXISTS key1
EXISTS nosuchkey
SET key2 "World"
EXISTS key1 key2 nosuchkey key1
EXISTS

SET mykey "Hello"
EXPIRE mykey 10
TTL mykey
SET mykey "Hello World"
TTL mykey
EXPIRE mykey 10 XX
TTL mykey
EXPIRE mykey 10 NX
TTL mykey
EXPIRE mykey 20 GT
EXPIRE mykey 5 GT
TTL mykey
EXPIRE mykey 5 LT
TTL mykey
EXPIRE mykey 5 NX XX
EXPIRE mykey 5 GT LT
EXPIRE mykey 5 MAYBE
EXPIRE mykey x
EXPIRE mykey 9223372036854775807
EXPIRE mykey
EXPIRE nosuchkey 10
EXPIRE mykey -1
EXISTS mykey
PERSIST mykey

SET mykey "Hello"
EXPIREAT mykey 1293840000
EXISTS mykey
SET mykey "Hello"
EXPIREAT mykey 9000000000
PERSIST mykey
PERSIST mykey
PEXPIRE mykey 150000
TTL mykey
PEXPIREAT mykey 9000000000000
PEXPIREAT mykey 1
TTL mykey
PTTL mykey

GET nonexisting
SET mykey "Hello"
GET mykey
GETDEL mykey
GET mykey
GETDEL mykey
GETSET mycounter "0"
INCR mycounter
GETSET mycounter "0"
GET mycounter
GET
GET a b

HSET myhash field1 "foo"
HDEL myhash field1
HDEL myhash field2
EXISTS myhash
HDEL myhash
HDEL nosuchhash a b

HSET myhash field1 "foo"
HEXISTS myhash field1
HEXISTS myhash field2
HEXISTS nosuchhash field2
HGET myhash field1
HGET myhash field2
HGET nosuchhash field2
HSET myhash field1 "Hello"
HSET myhash field2 "World"
HGETALL myhash
HGETALL nosuchhash
HKEYS myhash
HKEYS nosuchhash
HVALS myhash
HVALS nosuchhash
HLEN myhash
HLEN nosuchhash
HMGET myhash field1 field2 nofield
HMGET nosuchhash a b
HMGET myhash
HSTRLEN myhash field1
HSTRLEN myhash nofield
HSETNX myhash field1 "again"
HSETNX myhash field3 "new"
HGET myhash field3
HSET myhash f
HSET myhash f v g
HMSET myhash f
HMSET myhash f v g
HMSET myhash field1 "Hello" field2 "World" field2 "Twice"
HGETALL myhash
TYPE myhash
EXPIRE myhash 100
HSET myhash field1 "kept"
TTL myhash
DEL myhash

HSET myhash field 5
HINCRBY myhash field 1
HINCRBY myhash field -1
HINCRBY myhash field -10
HINCRBY myhash field x
HINCRBY myhash other 9223372036854775807
HINCRBY myhash other 1
HSET myhash text x
HINCRBY myhash text 1
HINCRBY nosuchhash field 3
GET myhash
SET myhash string
HGET myhash field

SET mykey "10"
INCR mykey
GET mykey
INCRBY mykey 5
INCRBY mykey 1.5
INCRBY mykey " 1"
INCRBY mykey +1
INCRBY mykey 01
INCRBY mykey
SET mykey 9223372036854775807
INCR mykey
SET mykey " 1"
INCR mykey
SET mykey ""
INCR mykey

MSET key1 "Hello" key2 "World"
GET key1
GET key2
MGET key1 key2 nonexisting
MGET
MSET key1
MSET key1 a key2
MSETNX key1 "Hello" key2 "there"
MSETNX key2 "new" key3 "world"
MGET key1 key2 key3
MSETNX key8 "new" key9 "world"
MGET key8 key9
MSET key1 1 key1 2
GET key1

PSETEX mykey 100000 "Hello"
TTL mykey
SETEX mykey 10 "Hello"
TTL mykey
GET mykey
SETEX mykey 0 "Hello"
SETEX mykey -1 "Hello"
SETEX mykey x "Hello"
PSETEX mykey 0 "Hello"
SETNX mykey "Hello"
SETNX other "Hello"
TTL other

SET mykey "Hello"
SET anotherkey "will expire in a minute" EX 60
TTL anotherkey
SET anotherkey value KEEPTTL
TTL anotherkey
SET anotherkey value
TTL anotherkey
SET mykey "World" NX
SET mykey "World" XX
SET nokey "World" XX
SET mykey "Other" GET
SET nokey "Other" GET
SET nokey "Other" NX GET
SET nokey2 "Other" NX GET
SET nokey3 "Other" XX GET
SET mykey a NX XX
SET mykey a EX
SET mykey a EX 0
SET mykey a EX -5
SET mykey a EX x
SET mykey a PX 100000
TTL mykey
SET mykey a EX 10 PX 10
SET mykey a EX 10 KEEPTTL
SET mykey a KEEPTTL EX 10
SET mykey a BOGUS
SET mykey a EXAT 9000000000
SET mykey a PXAT 9000000000000
SET mykey a EXAT 1
GET mykey
SET mykey
SET mykey a ex 100 xx
set MYKEY a
gEt MYKEY

SET mykey "Hello world"
STRLEN mykey
STRLEN nonexisting
TYPE mykey
TYPE nonexisting
TTL nonexisting
PTTL nonexisting
DBSIZE
SELECT 0
SELECT 1000
SELECT x

MULTI
INCR foo
INCR bar
EXEC
MULTI
SET a abc
HGET a f
GET a
EXEC
MULTI
INCR a b c
EXEC
MULTI
NOSUCHCOMMAND
SET a 1
EXEC
GET a
SET foo 1
MULTI
INCR foo
DISCARD
GET foo
EXEC
DISCARD
MULTI
MULTI
EXEC
WATCH foo
MULTI
WATCH foo
SET foo 2
EXEC
UNWATCH
WATCH
MULTI
EXEC
MULTI
MSET a 1 b 2
MGET a b c
DEL a c
EXISTS a b
EXPIRE b 100
TTL b
PERSIST b
TTL b
APPEND b x
STRLEN b
GETDEL b
GETDEL b
HSET h f v
HGETALL h
TYPE h
SET s 1 GET
SET s 2 XX GET
SETNX s 3
INCRBY s 5
EXEC

NOSUCHCOMMAND
NOSUCHCOMMAND a "b c" 'd'
GET
CLIENT
CLIENT SETNAME me
CLIENT GETNAME
CLIENT SETNAME "with space"
CLIENT NOSUCH
CONFIG GET save
CONFIG GET
CONFIG NOSUCH
CONFIG GET nosuchparameter
COMMAND NOSUCH
""
SCAN x
SCAN 0 COUNT 0
SCAN 0 COUNT x
SCAN 0 BOGUS
SCAN 0 MATCH
SCAN 0 BOGUS 1
SCAN 0
ZRANGEBYLEX nosuchset - +
ZRANGEBYLEX nosuchset x +
ZLEXCOUNT nosuchset - +
ZREVRANGEBYLEX nosuchset + -
HELLO 4
HELLO x
HELLO 2 BOGUS
AUTH a b c
AUTH password

SET one 1
SET two 2
SET twenty 20
KEYS t*
KEYS t??
KEYS [ot]*
KEYS *
SCAN 0 MATCH tw* COUNT 1000
SCAN 0 TYPE hash COUNT 1000
RESET
"""


def wait_until_it_answers(address, seconds=30):
    until = time.monotonic() + seconds
    while True:
        try:
            with Redis(address) as connection:
                connection.call("PING")
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def paragraphs():
    for text in EXAMPLES.strip().split("\n\n"):
        yield [shlex.split(line) for line in text.splitlines()]


class GatewayReplies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory(prefix="cell-replies-")
        cls.gateway = Gateway(Path(cls.temporary.name) / "cluster")
        port = free_port()
        cls.redis_address = f"127.0.0.1:{port}"
        cls.redis = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", cls.temporary.name],
                                     stdout=subprocess.DEVNULL)
        wait_until_it_answers(cls.redis_address)

    @classmethod
    def tearDownClass(cls):
        cls.redis.terminate()
        cls.redis.wait(20)
        cls.gateway.stop()
        cls.temporary.cleanup()

    def both(self):
        return Redis(self.gateway.address), Redis(self.redis_address)

    def clear(self, ours, theirs):
        keys = ours.call("KEYS", "*").split(b"\r\n")[2::2]
        if keys:
            ours.call("DEL", *keys)
        theirs.call("FLUSHALL")

    def compare(self, ours, theirs, words):
        got, expected = ours.call(*words), theirs.call(*words)
        if words[0].upper() in ("KEYS", "SCAN"):  # In any order.
            got, expected = sorted(got.split(b"\r\n")), sorted(expected.split(b"\r\n"))
        self.assertEqual(got, expected, words)

    def test_the_examples_of_the_documentation(self):
        for version in (2, 3):
            for commands in paragraphs():
                ours, theirs = self.both()
                with ours, theirs, self.subTest(version=version, first=commands[0]):
                    self.clear(ours, theirs)
                    if version == 3:
                        ours.call("HELLO", 3)
                        theirs.call("HELLO", 3)
                    for words in commands:
                        self.compare(ours, theirs, words)

    def test_protocol_errors(self):
        for data in (b"*1\r\nx\r\n", b"*x\r\n", b"*1\r\n$x\r\n", b"*3000000000\r\n", b"*1\r\n$-5\r\n", b'GET "a\r\n', b"a" * 70000,
                     b"*1\r\n$4\r\nPING\r\n*1\r\n:1\r\n", b"PING\r\nPING x\r\n\r\n*0\r\nQUIT\r\n"):
            answers = []
            for connection in self.both():
                with connection, self.subTest(data=data[:50]):
                    connection.send(data)
                    answer = b""
                    try:
                        while part := connection.socket.recv(1 << 16):
                            answer += part
                    except ConnectionResetError:
                        pass
                    answers.append(answer)
            self.assertEqual(answers[0], answers[1], data[:50])

    def test_random_commands(self):
        rng = random.Random(1)
        keys = ["a", "b", "c", "h"]
        fields = ["f", "g", "i"]

        def command():
            key, value, field = rng.choice(keys), rng.choice(["1", "x", "", "-5", "a longer text"]), rng.choice(fields)
            return rng.choice([
                ["GET", key], ["SET", key, value], ["SET", key, value, rng.choice(["NX", "XX", "GET", "KEEPTTL"])], ["DEL", key, rng.choice(keys)],
                ["INCRBY", key, str(rng.randint(-9, 9))], ["APPEND", key, value], ["STRLEN", key], ["EXPIRE", key, "1000"], ["TTL", key],
                ["PERSIST", key], ["MGET", *keys], ["MSET", key, value, rng.choice(keys), "2"], ["MSETNX", key, value, "c", "2"], ["GETDEL", key],
                ["EXISTS", *keys], ["TYPE", key], ["SETNX", key, value], ["GETSET", key, value], ["HSET", key, field, value, rng.choice(fields), "2"],
                ["HGET", key, field], ["HGETALL", key], ["HDEL", key, field], ["HMGET", key, *fields], ["HLEN", key], ["HINCRBY", key, field, "3"],
                ["HKEYS", key], ["HVALS", key], ["HSETNX", key, field, value], ["DBSIZE"], ["KEYS", "*"]])

        ours, theirs = self.both()
        with ours, theirs:
            self.clear(ours, theirs)
            for _ in range(3000):
                self.compare(ours, theirs, command())
            # The same within transactions, and in pipelines.
            for _ in range(60):
                commands = [words for words in (command() for _ in range(20)) if words[0] not in ("DBSIZE", "KEYS")]
                pipeline = [["MULTI"], *commands, ["EXEC"], *commands]
                for connection in (ours, theirs):
                    connection.send(b"".join(connection.encode(*words) for words in pipeline))
                for words in pipeline:
                    self.assertEqual(ours.read(), theirs.read(), words)


if __name__ == "__main__":
    unittest.main()
