"""Random operations, compared with a dict and a sorted list."""

import bisect

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import cell

KEYS = st.one_of(st.binary(min_size=1, max_size=3), st.sampled_from([b"\x00", b"\xff" * 4, b"a" * 100, b"key"]))
VALUES = st.one_of(st.binary(max_size=20), st.integers(0, 4000).map(lambda size: b"v" * size))


def machine_of(directory):
    class Store(RuleBasedStateMachine):
        def __init__(self):
            super().__init__()
            self.client = cell.connect(directory)
            self.model = {}

        @initialize()
        def clear(self):
            self.client.delete_range(None, None)

        def teardown(self):
            self.client.close()

        @rule(key=KEYS, value=VALUES)
        def put(self, key, value):
            assert self.client.put(key, value) == (key in self.model)
            self.model[key] = value

        @rule(key=KEYS)
        def delete(self, key):
            assert self.client.delete(key) == (self.model.pop(key, None) is not None)

        @rule(key=KEYS, value=VALUES, expected=VALUES)
        def put_if(self, key, value, expected):
            applied = self.client.put_if(key, value, expected=self.model.get(key, expected)).applied
            assert applied == (key in self.model)
            if applied:
                self.model[key] = value

        @rule(key=KEYS, path=st.sampled_from(["server", "client", "hybrid"]))
        def get(self, key, path):
            assert self.client.get(key, path=path) == self.model.get(key)

        @rule(keys=st.lists(KEYS, max_size=8))
        def multi_get(self, keys):
            assert self.client.multi_get(keys) == [self.model.get(key) for key in keys]

        @rule(start=st.none() | KEYS, stop=st.none() | KEYS, reverse=st.booleans(), limit=st.none() | st.integers(0, 5))
        def scan(self, start, stop, reverse, limit):
            assert list(self.client.scan(start, stop, reverse=reverse, limit=limit)) == self.expected(start, stop, reverse, limit)

        @rule(start=KEYS, stop=KEYS)
        def delete_range(self, start, stop):
            start, stop = min(start, stop), max(start, stop)
            gone = [key for key, _ in self.expected(start, stop)]
            assert self.client.delete_range(start, stop) == len(gone)
            for key in gone:
                del self.model[key]

        @rule(reads=st.lists(KEYS, max_size=3), writes=st.dictionaries(KEYS, st.none() | VALUES, max_size=3))
        def transaction(self, reads, writes):
            with self.client.transaction() as transaction:
                assert [transaction.get(key) for key in reads] == [self.model.get(key) for key in reads]
                for key, value in writes.items():
                    transaction.delete(key) if value is None else transaction.put(key, value)
            for key, value in writes.items():
                if value is None:
                    self.model.pop(key, None)
                else:
                    self.model[key] = value

        @invariant()
        def counts(self):
            assert self.client.count() == len(self.model)

        def expected(self, start, stop, reverse=False, limit=None):
            keys = sorted(self.model)
            keys = keys[bisect.bisect_left(keys, start or b"") : len(keys) if stop is None else bisect.bisect_left(keys, stop)]
            keys = keys[::-1] if reverse else keys
            return [(key, self.model[key]) for key in keys[:limit]]

    return Store


def test_a_store_is_a_dict_and_a_sorted_list(directory):
    quick = settings(max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(machine_of(directory), settings=quick)
