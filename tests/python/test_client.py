"""The blocking client."""

import datetime
import math
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import cell
from cell import functions, programs
from cell._cluster import cluster, cluster_down


def test_pairs_are_written_read_and_deleted(client):
    assert client.get("key") is None
    assert client.put("key", "value") is False
    assert client.put(b"key", bytearray(b"new")) is True
    assert client.get(memoryview(b"key")) == b"new"
    assert client.get("key", path="server", timeout=5) == client.get("key", path="client") == b"new"
    assert client.has("key") and "key" in client and "other" not in client
    assert client["key"] == b"new"
    assert client.delete("key") is True
    assert client.delete("key") is False
    with pytest.raises(KeyError):
        client["key"]
    with pytest.raises(KeyError):
        del client["key"]
    client["key"] = b""
    assert client["key"] == b""
    del client["key"]
    assert client.get("key") is None


def test_values_of_every_size_come_back(client):
    for size in (0, 1, 1000, 5000, 1 << 20):
        client.put("large", b"v" * size)
        assert client.get("large") == b"v" * size
    with pytest.raises(cell.InvalidArgument):
        client.put("large", b"v" * ((1 << 20) + 1))
    with pytest.raises(cell.InvalidArgument):
        client.put("large", b"v" * (1 << 25))
    assert len(client.get("large")) == 1 << 20


def test_many_keys_at_once(client):
    for i in range(100):
        client.put(f"k{i:03}", str(i))
    assert client.multi_get(["k007", "nothing", b"k099"]) == [b"7", None, b"99"]
    assert client.multi_get([]) == []
    assert client.multi_get(f"k{i:03}" for i in range(3)) == [b"0", b"1", b"2"]


def test_conditions(client):
    written = client.put_if("key", "1", absent=True)
    assert written.applied and not written.existed and written.stamp > 0
    assert client.put_if("key", "2", absent=True) == (False, True, written.stamp)
    assert client.get_with_stamp("key") == (b"1", written.stamp)
    assert client.put_if("key", "2", stamp=written.stamp).applied
    assert not client.put_if("key", "3", stamp=written.stamp).applied
    assert client.put_if("key", "3", expected=b"2").applied
    assert not client.delete_if("key", expected="2").applied
    assert client.delete_if("key", expected="3").applied
    assert not client.put_if("key", "4", present=True).applied
    assert client.get_with_stamp("key") is None
    for wrong in ({}, {"absent": True, "present": True}, {"expected": "x", "stamp": 3}):
        with pytest.raises(ValueError):
            client.put_if("key", "1", **wrong)


def test_pairs_expire(client):
    client.put("soon", "v", ttl=0.05)
    client.put("never", "v")
    client.put("left", "v", ttl=60)
    assert 0 < client.time_left("left") <= 60
    assert client.time_left("never") == math.inf
    assert client.time_left("absent") is None
    client.put("later", "v", expires_at=datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=100))
    assert 90 < client.time_left("later") <= 100
    client.put("later", "v", expires_at=time.time() + 50)
    assert 40 < client.time_left("later") <= 50
    while client.get("soon") is not None:
        pass
    for wrong in ({"ttl": 0}, {"ttl": -1}, {"ttl": math.nan}, {"ttl": 1, "expires_at": time.time() + 5}, {"expires_at": 1}, {"expires_at": 1e30},
                  {"expires_at": math.inf}):
        with pytest.raises(ValueError):
            client.put("wrong", "v", **wrong)
    assert client.get("wrong") is None


def test_functions(client):
    assert functions.numbers(client.apply("n", functions.add(5)).result) == [5]
    applied = client.apply("n", functions.add(-2))
    assert functions.numbers(applied.result) == [3] and applied.existed and applied.changed
    assert functions.numbers(client.get("n")) == [3]
    client.put("v", functions.encode([1.5, -2, 4], "f32"))
    client.apply("v", functions.add([1, 1, 1], "f32"))
    assert functions.numbers(client.get("v"), "f32") == [2.5, -1, 5]
    assert functions.numbers(client.evaluate("v", functions.filter(">", 0, "f32")), "f32") == [2.5, 5]
    assert functions.numbers(client.evaluate("v", functions.greatest("f32")), "f32") == [5]
    assert client.apply("text", functions.append(b"ab")).result is not None
    client.apply("text", functions.append(b"cd"))
    assert client.get("text") == b"abcd"
    assert client.apply("text", functions.compare_and_swap(b"abcd", b"x")).result == b"\x01"
    assert client.apply("decimal", functions.add_decimal(41)).result == b"41"
    with pytest.raises(cell.InvalidArgument):
        client.apply("n", functions.Function("no-such-function", b""))
    with pytest.raises(cell.FailedPrecondition):
        client.apply("text", functions.add(1))
    client.put("most", functions.encode(2**63 - 1))
    with pytest.raises(cell.OutOfRange):
        client.apply("most", functions.add_checked(1))
    for wrong in (lambda: functions.add(1, "i7"), lambda: functions.add(300, "u8"), lambda: functions.count("~", 1), lambda: functions.numbers(b"123")):
        with pytest.raises(ValueError):
            wrong()


def test_scans(client):
    pairs = [(f"s/{i:04}".encode(), str(i).encode()) for i in range(2500)]
    for key, value in pairs:
        client.put(key, value)
    assert list(client.scan(prefix="s/")) == pairs
    assert list(client.scan("s/0010", "s/0013")) == pairs[10:13] == list(client["s/0010":"s/0013"])
    assert list(client.scan("s/2498")) == pairs[2498:] == list(client["s/2498":])
    assert list(client.scan(reverse=True, limit=3)) == pairs[:-4:-1]
    assert list(client.scan(keys_only=True)) == [key for key, _ in pairs] == list(client)
    assert list(client.scan("x")) == list(client.scan("s/5", "s/4")) == list(client.scan(limit=0)) == []
    assert list(client.scan(prefix=b"\xff")) == []
    assert client.count() == 2500 and client.count("s/0010", "s/0020") == 10
    assert client.delete_range("s/0010", "s/0020") == 10
    del client["s/0020":"s/0030"]
    assert client.count() == 2480
    scan = client.scan()
    assert iter(scan) is scan and next(scan) == pairs[0]
    for wrong in (lambda: client["a":"b":2], lambda: client.scan("a", prefix="b"), lambda: client.scan(limit=-1), lambda: client.scan(limit=2**64)):
        with pytest.raises(ValueError):
            wrong()
    for wrong in (lambda: client.scan(limit="all"), lambda: client.scan(5), lambda: client.scan(timeout="soon"), lambda: client.get("key", path=5)):
        with pytest.raises(TypeError):
            wrong()


def test_tables(client):
    users = client.table("users")
    users.delete("ada")
    users.delete("count")
    assert users.put("ada", "1") is False
    assert users["ada"] == b"1" and "ada" in users and users.get("nobody") is None
    assert users.put_if("ada", "2", expected="1").applied
    assert functions.numbers(users.apply("count", functions.add(7)).result) == [7]
    with client.transaction() as transaction:
        transaction.put("tree", transaction.get("ada", table=users))
        transaction.delete("ada", table=users)
    assert client["tree"] == b"2" and "ada" not in users
    with pytest.raises(cell.NotFound):
        client.table("nothing")


def test_snapshots(client):
    for i in range(10):
        client.put(f"key{i}", "old")
    with client.snapshot() as snapshot:
        client.put("key3", "new")
        client.delete_range("key5", None)
        assert snapshot.get("key3") == b"old" and snapshot.get("key9") == b"old"
        assert len(list(snapshot.scan())) == 10 and len(list(snapshot.scan(prefix="key", keys_only=True, limit=4))) == 4
        assert client.count() == 5
    with pytest.raises(cell.SnapshotTooOld):
        snapshot.get("key3")
    with client.snapshot("key0", "key2") as snapshot:
        with pytest.raises(cell.OutOfRange):
            snapshot.get("key3")


@pytest.fixture
def lost_answer(monkeypatch):
    """Loses the answer to the first commit, which takes effect."""
    lost = []

    def commit(self, real, arguments):
        real(self, **arguments)
        if not lost:
            lost.append(self.id)
            error = cell.MaybeApplied("the answer was lost")
            error.transaction_id = self.id
            raise error
        return self.stamp

    real = cell.Transaction.commit
    monkeypatch.setattr(cell.Transaction, "commit", lambda self, **arguments: commit(self, real, arguments))
    return lost


def test_an_answer_that_is_lost_is_asked_for(client, lost_answer):
    runs = []

    def body(transaction):
        runs.append(1)
        transaction.put("sum", str(int(transaction.get("sum") or 0) + 1))
        return "done"

    assert client.run(body) == "done"
    assert lost_answer and len(runs) == 1 and client["sum"] == b"1"


def test_transactions(client, directory):
    with client.transaction() as transaction:
        transaction.put("a", "1")
        transaction.put("b", "2", ttl=100)
        assert transaction.get("a") == b"1" and transaction.scan() == [(b"a", b"1"), (b"b", b"2")]
    assert transaction.stamp > 0 and client.outcome(transaction.id) == transaction.stamp
    assert client["a"] == b"1"
    with pytest.raises(ZeroDivisionError), client.transaction() as transaction:
        transaction.put("a", "lost")
        1 / 0
    assert client["a"] == b"1"
    with cell.connect(directory) as other:
        with pytest.raises(cell.Aborted), client.transaction() as transaction:
            transaction.get("a")
            other.put("a", "changed")
            transaction.put("b", "because of a")
        assert client["b"] == b"2"
        with pytest.raises(cell.InvalidArgument), client.transaction() as transaction:
            transaction.put("", "an empty key")
        attempts = []

        @client.transactional
        def bump(transaction, key, by=1):
            attempts.append(key)
            now = int(transaction.get(key) or 0)
            if len(attempts) < 3:
                other.put(key, str(now + 10))
            transaction.put(key, str(now + by))
            return now + by

        assert bump("n", by=5) == 25 and client["n"] == b"25" and len(attempts) == 3
    assert client.run(lambda transaction: transaction.get("n")) == b"25"
    with pytest.raises(cell.Aborted):
        client.run(lambda transaction: (_ for _ in ()).throw(cell.Aborted("always")), timeout=0.05)
    assert client.finish_transactions()
    with client.transaction() as transaction:
        transaction.put("n", "given up")
        transaction.abort()
    assert client["n"] == b"25" and transaction.stamp is None and transaction.id is None
    with client.transaction() as transaction:
        assert transaction.scan(limit=0) == [] and transaction.get("n") == b"25"
    assert transaction.id is None  # It has written nothing.


def test_wrong_use_is_an_error(client, directory):
    for wrong in (5, None, 1.5, object(), ["key"]):
        with pytest.raises(TypeError):
            client.get(wrong)
        with pytest.raises(TypeError):
            client.put("key", wrong)
    with pytest.raises(cell.InvalidArgument):
        client.get("")
    with pytest.raises(ValueError):
        client.get("k" * 5000)
    for timeout in (0, -1, math.nan):
        with pytest.raises(ValueError):
            client.get("key", timeout=timeout)
    with pytest.raises(ValueError, match="sideways"):
        client.get("key", path="sideways")
    for use in (lambda: client.scan(prefix=5), lambda: client.multi_get("abc"), lambda: functions.append(5)):
        with pytest.raises(TypeError):
            use()
    with pytest.raises(ValueError):
        functions.add(1e300, "f32")
    with pytest.raises(UnicodeEncodeError):
        client.get("\udc80")
    for use in (lambda: client.table(5), lambda: client.apply("n", "add"), lambda: client.apply("n", None), lambda: client.multi_get(bytearray(b"ab")),
                lambda: client.get(memoryview(b"abcd")[::2]), lambda: client.transaction().get("key", table=5), lambda: cell.connect(directory, no_such_option=1)):
        with pytest.raises(TypeError):
            use()
    for use in (lambda: client.table("users\0x"), lambda: client.apply("n", functions.Function("add\0", b"")), lambda: cell.connect(f"{directory}\0x"),
                lambda: client.run(lambda transaction: None, timeout=0)):
        with pytest.raises(ValueError):
            use()
    for options in ({"fabric": "pigeon"}, {"timeout": 0}, {"path": "sideways"}, {"cache_bytes": -1}):
        with pytest.raises(ValueError):
            cell.connect(directory, **options)
    with pytest.raises(cell.NotFound, match="/no/such/cluster.*python -m cell.up"):
        cell.connect("/no/such/cluster")
    assert isinstance(client.metrics()["operations"], int) and client.key_bytes_max > 100


def test_a_closed_client_is_an_error(directory):
    client = cell.connect(directory)
    client.put("key", "v")
    scan, transaction, snapshot, table = client.scan(), client.transaction(), client.snapshot(), client.table("users")
    client.close()
    client.close()
    assert client.closed
    for use in (lambda: client.get("key"), lambda: client.put("key", "v"), lambda: next(scan), lambda: transaction.get("key"), transaction.commit,
                lambda: snapshot.get("key"), lambda: table.get("key"), lambda: transaction.put("key", "v"),
                lambda: client.count(), lambda: client.table("users"), client.snapshot, snapshot.forget):
        with pytest.raises(cell.Cancelled):
            use()
    for use in (client.finish_transactions, client.metrics, client.transaction, client.scan, lambda: client.key_bytes_max):
        with pytest.raises(cell.Cancelled):
            use()


def test_what_is_left_can_go_in_any_order(directory):
    for _ in range(3):
        client = cell.connect(directory)
        client.put("key", "v")
        parts = [client.scan(), client.transaction(), client.snapshot(keep=1), client.table("users"), client]
        next(parts[0])
        del client
        while parts:
            parts.pop(0)


def test_threads_share_a_client(client):
    failures = []

    def work(name):
        try:
            for i in range(300):
                client.put(f"{name}/{i:03}", str(i))
                assert client.get(f"{name}/{i:03}") == str(i).encode()
            assert client.count(f"{name}/", f"{name}0") == 300
            assert len(list(client.scan(prefix=f"{name}/"))) == 300
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_threads_share_a_scan(client):
    for i in range(3000):
        client.put(f"k{i:04}", "v")
    scan, seen = client.scan(keys_only=True), []

    def work():
        for key in scan:
            seen.append(key)
            time.sleep(0)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [f"k{i:04}".encode() for i in range(3000)]


@pytest.mark.parametrize("kind", ["blocking", "asyncio"])
def test_threads_that_are_left_do_not_disturb_the_end_of_a_process(directory, kind):
    program = f"""
import asyncio, cell.asyncio, threading, time
client = cell.connect({str(directory)!r})
def blocking():
    while True:
        client.get("key")
def awaiting():
    async def main():
        client = await cell.asyncio.connect({str(directory)!r})
        while True:
            await asyncio.gather(*(client.get("key") for _ in range(200)))
    asyncio.run(main())
for _ in range(4):
    threading.Thread(target={"blocking" if kind == "blocking" else "awaiting"}, daemon=True).start()
until = time.time() + 0.25
while time.time() < until:
    pass
"""
    for _ in range(10):
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, "")


def test_a_child_opens_its_own_client(client, directory):
    client.put("key", "parent")
    scan = client.scan()
    child = os.fork()
    if child == 0:
        try:
            for use in (lambda: client.get("key"), lambda: next(scan)):
                try:
                    use()
                    os._exit(2)
                except cell.Cancelled:
                    pass
            client.close()
            with cell.connect(directory) as own:
                os._exit(0 if own.get("key") == b"parent" else 3)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.get("key") == b"parent"


class Frozen:
    """Servers that do not answer for a while."""

    def __init__(self, path):
        self.servers = cluster.up(path, servers=1, durability="none", meganode_bytes=1 << 20, extents_bytes=8 << 20)

    def __enter__(self):
        for server in self.servers:
            server.send_signal(signal.SIGSTOP)
            while cluster_down.state_of(server.pid) != "T":
                pass

    def __exit__(self, *exception):
        for server in self.servers:
            server.send_signal(signal.SIGCONT)

    def end(self):
        cluster.end(self.servers)


@pytest.fixture
def frozen(tmp_path):
    made = Frozen(tmp_path / "cell")
    yield made, tmp_path / "cell"
    made.end()


def test_a_signal_interrupts_an_operation(frozen):
    servers, path = frozen
    with cell.connect(path) as client:
        client.put("key", "v")
        seen = []

        def on_alarm(*_):
            if not seen:
                seen.append(client.metrics()["operations"])  # A handler may use the client.
            raise InterruptedError("by the test")

        before = signal.signal(signal.SIGALRM, on_alarm)
        try:
            with servers:
                signal.setitimer(signal.ITIMER_REAL, 0.2)
                with pytest.raises(InterruptedError):
                    client.put("key", "w", timeout=60)
            assert len(seen) == 1
            # The same while another thread has the client, and in the middle of a scan.
            with servers:
                waiting = threading.Thread(target=lambda: client.get("key", timeout=30, path="server"))
                waiting.start()
                time.sleep(0.1)
                signal.setitimer(signal.ITIMER_REAL, 0.2)
                with pytest.raises(InterruptedError):
                    client.get("key", timeout=60)
                assert waiting.is_alive()
            waiting.join()
            scan = client.scan(path="server")
            with servers:
                signal.setitimer(signal.ITIMER_REAL, 0.2)
                with pytest.raises(InterruptedError):
                    next(scan)
            with pytest.raises(StopIteration):
                next(scan)
            # While another thread has the turn, for what needs one only for a moment.
            for use in (client.scan, client.transaction, client.metrics):
                with servers:
                    waiting = threading.Thread(target=lambda: client.get("key", timeout=30, path="server"))
                    waiting.start()
                    time.sleep(0.1)
                    signal.setitimer(signal.ITIMER_REAL, 0.2)
                    with pytest.raises(InterruptedError):
                        use()
                    assert waiting.is_alive()
                waiting.join()
        finally:
            signal.signal(signal.SIGALRM, before)
        assert client.get("key") in (b"v", b"w")


def test_a_deadline_ends_an_operation(frozen):
    servers, path = frozen
    with cell.connect(path) as client:
        client.put("key", "v")
        with servers:
            with pytest.raises(TimeoutError):
                client.get("key", timeout=0.1, path="server")
            with pytest.raises((cell.MaybeApplied, cell.DeadlineExceeded)):
                client.put("key", "w", timeout=0.1)
        assert client.get("key") in (b"v", b"w")


def test_other_threads_go_on_meanwhile(frozen):
    servers, path = frozen
    with cell.connect(path) as client:
        client.put("key", "v")
        with servers:
            waiting = threading.Thread(target=lambda: pytest.raises(cell.Error, client.get, "key", timeout=1, path="server"))
            waiting.start()
            turns = 0
            while waiting.is_alive():
                turns += 1
            waiting.join()
        assert turns > 1000, "the GIL was held"


def test_a_cluster_that_is_gone_is_an_error(frozen):
    servers, path = frozen
    with cell.connect(path, timeout=0.5) as client:
        client.put("key", "v")
        servers.end()
        with pytest.raises((cell.Unavailable, cell.DeadlineExceeded)):
            client.get("key")
        with pytest.raises((cell.Unavailable, cell.DeadlineExceeded, cell.MaybeApplied)):
            client.put("key", "v")
    with pytest.raises((cell.Unavailable, cell.NotFound, cell.DeadlineExceeded)):
        cell.connect(path, timeout=0.5)


def test_nothing_leaks(client):
    def use(rounds):
        for i in range(rounds):
            client.put("key", b"v" * 2000)
            client.get("key")
            client.multi_get(["key", "other"])
            list(client.scan(limit=2))
            with client.transaction() as transaction:
                transaction.get("key")
            for wrong in (lambda: client.get(""), lambda: client.put("key", b"v" * (1 << 21)), lambda: client.get(5)):
                with pytest.raises((cell.InvalidArgument, TypeError)):
                    wrong()

    def resident():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    use(200)
    growth = []
    for _ in range(6):
        before = resident()
        use(150)
        growth.append(resident() - before)
    assert min(growth) < 150 * 500, growth  # Every operation would leave more than 100 bytes.


def test_programs(directory, tmp_path):
    done = subprocess.run([programs.path("cellctl"), "--cluster", str(directory), "status"], stdout=subprocess.PIPE, check=True, text=True)
    assert "server-0" in done.stdout
    place = tmp_path / "own"
    for command in (["cell.up", "--dir", str(place), "--detach"], ["cell.down", "--dir", str(place)]):
        subprocess.run([sys.executable, "-m", *command], check=True, timeout=120)
    done = subprocess.run([sys.executable, "-m", "cell.wipe", "--dir", str(place), "--dry-run"], stdout=subprocess.PIPE, check=False, text=True, timeout=60)
    assert str(place) in done.stdout
