"""Canonical JSON: one value, one sequence of bytes, and nothing else is accepted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cowfs.errors import CorruptError, InvalidInputError
from cowfs.format import canonical

pytestmark = pytest.mark.quick

texts = st.text(st.characters(exclude_categories=["Cs"]))
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(canonical.MIN_INTEGER, canonical.MAX_INTEGER) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)
objects = st.dictionaries(texts, values, max_size=6)


def deep(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"a": found}
    return found


@given(objects)
def test_round_trip(value: dict[str, Any]) -> None:
    data = canonical.encode(value)
    assert canonical.decode(data, what="x") == value
    assert json.loads(data) == value
    assert canonical.encode(dict(reversed(value.items()))) == data


@given(st.binary())
@example(b"[" * 100_000)
@example(b'{"a":' * 100_000)
@example(b'{"a":' + b"9" * 10_000 + b"}")
@example(b"\xef\xbb\xbf{}")
@example(b"{}")
def test_arbitrary_bytes_are_refused_or_reproduced(data: bytes) -> None:
    try:
        found = canonical.decode(data, what="x")
    except CorruptError as error:
        assert "x" in error.message
    else:
        assert canonical.encode(found) == data


@given(objects, st.data())
def test_altered_encodings_are_refused_or_mean_themselves(value: dict[str, Any], data: st.DataObject) -> None:
    encoded = bytearray(canonical.encode(value))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] = data.draw(st.integers(0, 255))
    test_arbitrary_bytes_are_refused_or_reproduced.hypothesis.inner_test(bytes(encoded))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":1}',
        b'{"b":1,"a":1}',
        b'{"a": 1}',
        b'{"a":1}\n',
        b'{"a":1.0}',
        b'{"a":1e2}',
        b'{"a":-0}',
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":01}',
        b'{"a":18446744073709551616}',
        b'{"a":"\\u0041"}',
        b'{"a":"\\/"}',
        b'{"a":"\\ud800"}',
        b'{"a":"\xff"}',
        b'{"a":"\\u001F"}',
        b"[]",
        b"null",
        b"",
    ],
)
def test_other_writings_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptError, match="the object"):
        canonical.decode(data, what="the object")


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1.5},
        {"a": float("nan")},
        {"a": 1 << 64},
        {"a": -(1 << 63) - 1},
        {"a": "\ud800"},
        {"a": b"x"},
        {1: "a"},
        {"a": {"b"}},
        deep(canonical.MAX_DEPTH + 1),
    ],
)
def test_what_it_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInputError):
        canonical.encode(value)


def test_depth_up_to_the_limit() -> None:
    value = deep(canonical.MAX_DEPTH - 1)
    assert canonical.decode(canonical.encode(value), what="x") == value


def test_keys_sort_by_code_point() -> None:
    assert (
        canonical.encode({"\U00010000": 1, "\uffff": 2, "a": 3, "Z": 4})
        == '{"Z":4,"a":3,"\uffff":2,"\U00010000":1}'.encode()
    )
