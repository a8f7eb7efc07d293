"""Functions that servers apply to a value (`Client.apply`), or evaluate (`Client.evaluate`).

A value is a vector of numbers, little-endian; a counter is a vector of one. An operand that is a number is applied to
all elements of the value, a list element by element.

    client.apply("visits", functions.add(1))                        # 8 bytes; functions.numbers(result) has the new ones
    client.apply("weights", functions.add([0.5, 1.0], "f32"))
    client.evaluate("weights", functions.filter(">", 0.5, "f32"))

Types are "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32" and "f64".
"""

import struct
from typing import NamedTuple, Sequence, Union

Number = Union[int, float]
Operand = Union[Number, Sequence[Number]]


class Function(NamedTuple):
    """A function's name, and its encoded argument. `cellctl functions` lists those that servers have."""

    name: str
    argument: bytes


_FORMATS = {"i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I", "i64": "q", "u64": "Q", "f32": "f", "f64": "d"}
_COMPARISONS = ["==", "!=", "<", "<=", ">", ">="]


def _format(type_: str) -> str:
    if type_ not in _FORMATS:
        raise ValueError(f'there is no type "{type_}": use {", ".join(_FORMATS)}')
    return _FORMATS[type_]


def encode(numbers: Operand, type: str = "i64") -> bytes:
    """Encodes a number, or several, as a value."""
    several = [numbers] if isinstance(numbers, (int, float)) else list(numbers)
    try:
        return struct.pack(f"<{len(several)}{_format(type)}", *several)
    except (struct.error, OverflowError) as error:
        raise ValueError(f"not of type {type}: {error}") from error


def numbers(value: bytes, type: str = "i64") -> list:
    """Decodes a value, or a function's result. Raises ValueError if it is no vector of this type."""
    size = struct.calcsize(f"<{_format(type)}")
    if len(value) % size:
        raise ValueError(f"{len(value)} bytes are no vector of {type}")
    return list(struct.unpack(f"<{len(value) // size}{_format(type)}", value))


def _argument(operand: Operand, type_: str) -> bytes:
    return bytes([list(_FORMATS).index(type_) + 1 if type_ in _FORMATS else 0]) + encode(operand, type_)


def _predicate(comparison: str, operand: Number, type_: str) -> bytes:
    if comparison not in _COMPARISONS:
        raise ValueError(f'there is no comparison "{comparison}": use {", ".join(_COMPARISONS)}')
    return bytes([_COMPARISONS.index(comparison) + 1]) + _argument(operand, type_)


def add(by: Operand, type: str = "i64") -> Function:
    """Adds, and wraps around."""
    return Function("add", _argument(by, type))


def add_checked(by: Operand, type: str = "i64") -> Function:
    """Adds, or raises OutOfRange if any element would overflow."""
    return Function("add-checked", _argument(by, type))


def min(with_: Operand, type: str = "i64") -> Function:
    return Function("min", _argument(with_, type))


def max(with_: Operand, type: str = "i64") -> Function:
    return Function("max", _argument(with_, type))


def bit_and(with_: Operand, type: str = "u64") -> Function:
    return Function("and", _argument(with_, type))


def bit_or(with_: Operand, type: str = "u64") -> Function:
    return Function("or", _argument(with_, type))


def bit_xor(with_: Operand, type: str = "u64") -> Function:
    return Function("xor", _argument(with_, type))


def _bytes(data: Union[str, bytes]) -> bytes:
    return data.encode() if isinstance(data, str) else bytes(memoryview(data))


def append(data: Union[str, bytes]) -> Function:
    """Appends bytes to the value."""
    return Function("append", _bytes(data))


def compare_and_swap(expected: Union[str, bytes], desired: Union[str, bytes]) -> Function:
    """Replaces `expected` by `desired`. The result is one byte, 1 if the value was `expected`."""
    before = _bytes(expected)
    return Function("compare-and-swap", struct.pack("<I", len(before)) + before + _bytes(desired))


def add_decimal(by: int) -> Function:
    """Adds to a number that is stored as text. The result is the new text."""
    return Function("add-decimal", str(by).encode())


def sum(type: str = "i64") -> Function:
    """The sum of all elements. For `evaluate`, as are those below."""
    return Function("sum", _argument([], type))


def least(type: str = "i64") -> Function:
    return Function("least", _argument([], type))


def greatest(type: str = "i64") -> Function:
    return Function("greatest", _argument([], type))


def count(comparison: str, with_: Number, type: str = "i64") -> Function:
    """How many elements compare so with `with_`: "==", "!=", "<", "<=", ">" or ">="."""
    return Function("count", _predicate(comparison, with_, type))


def filter(comparison: str, with_: Number, type: str = "i64") -> Function:
    """The elements that compare so with `with_`."""
    return Function("filter", _predicate(comparison, with_, type))
