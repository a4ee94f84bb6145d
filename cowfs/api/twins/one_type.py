"""The type of a blocking class and of its async twin, which makes them one type: an instance of
either is an instance of both, and a subclass of either is a subclass of both. `match` statements
and `functools.singledispatch` follow from that. A subclass that a program derives from one of them
is a type of its own.

What looks up `type(value)` sees two types; `pairs.list_twins` lists them.
"""

from __future__ import annotations

from abc import ABCMeta

_twins: dict[type, type] = {}
"""Both directions."""


class OneType(ABCMeta):
    def __subclasscheck__(cls, given: type) -> bool:
        return super().__subclasscheck__(given) or (cls in _twins and type.__subclasscheck__(_twins[cls], given))

    def __instancecheck__(cls, given: object) -> bool:
        return super().__instancecheck__(given) or cls.__subclasscheck__(type(given))


def pair(one: OneType, other: OneType) -> None:
    _twins[one], _twins[other] = other, one


def twin_of(kind: type) -> type:
    return _twins[kind]


def unwrap(given: object) -> object:
    """The blocking object inside an async one; anything else is returned unchanged."""
    return getattr(given, "_blocking", given)
