"""Volumes that are nested in a result."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import attrs
import pydantic
import pytest

from cowfs.api.tasks.returned import replace_volumes

pytestmark = pytest.mark.quick


class Writer:
    """In place of a volume."""


class Pair(NamedTuple):
    first: Any
    second: int = 0


class Doubled(Pair):
    def __new__(cls, volume: Any) -> Doubled:
        return super().__new__(cls, volume, 2)


@dataclasses.dataclass(frozen=True)
class Frozen:
    volume: Any
    derived: int = dataclasses.field(init=False, default=7)


@dataclasses.dataclass(slots=True)
class Slotted:
    volume: Any


@attrs.frozen
class Attrs:
    volume: Any


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(frozen=True)
    volume: Any
    other: int = 1


def replace(value: Any) -> Any:
    return "version" if isinstance(value, Writer) else value


@pytest.mark.parametrize(
    "wrap",
    [
        lambda v: v,
        lambda v: [1, v],
        lambda v: (v, v),
        lambda v: Pair(v, 3),
        Doubled,
        lambda v: {v},
        lambda v: frozenset([v]),
        lambda v: {"a": v, "b": 2},
        lambda v: collections.OrderedDict(a=v),
        lambda v: collections.defaultdict(list, a=[v]),
        Frozen,
        Slotted,
        Attrs,
        lambda v: Model(volume=v),
        lambda v: [{"deep": (Model(volume=[Frozen(v)]),)}],
    ],
)
def test_a_writer_is_replaced_wherever_it_is_nested(wrap: Any) -> None:
    given = wrap(Writer())
    before = repr(given)
    assert replace_volumes(given, replace) == wrap("version")
    assert repr(given) == before, "the function's own object has changed"
    untouched = wrap("text")
    assert replace_volumes(untouched, replace) is untouched


def test_one_writer_is_asked_for_once() -> None:
    writer, asked = Writer(), []

    def note(value: Any) -> Any:
        if isinstance(value, Writer):
            asked.append(value)
            return "version"
        return value

    assert replace_volumes({"a": writer, "b": [writer, writer]}, note) == {"a": "version", "b": ["version", "version"]}
    assert asked == [writer]


def test_a_list_that_holds_itself_ends() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    assert replace_volumes(ring, replace) is ring
