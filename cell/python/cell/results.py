"""What operations return, besides bytes, numbers and lists."""

from typing import NamedTuple


class Stamped(NamedTuple):
    """A value, and the stamp that names this version of the pair."""

    value: bytes
    stamp: int


class Written(NamedTuple):
    """The result of a write with a condition."""

    applied: bool  # The condition held, and the write took effect.
    existed: bool  # The key was there before.
    stamp: int  # The stamp of the pair that the key has now; 0 if it has no pair.


class Applied(NamedTuple):
    """The result of `apply`."""

    result: bytes  # What the function has returned.
    changed: bool  # It has put a new value.
    existed: bool  # The key was there before.
    stamp: int  # The stamp of the pair that the key has now; 0 if it has no pair.
