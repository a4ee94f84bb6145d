"""Converts values of annotated types to JSON and back: mount specifications, control messages and
their answers.

    dataclass           object of its fields          id (`cowfs.base.ids`)     hex digits
    tuple, frozenset    array                         path                 text
    mapping             object                        str, int, float, bool, None: as they are

`from_json` is strict, so that two programs with different types notice it: an unknown field, a
missing one, or a value of another type raises InvalidInputError with the field's name, and its
value unless the field is left out of its type's repr. A field is read by its annotation; no other
code needs to know it.
"""

from __future__ import annotations

import dataclasses
import os
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, TypeVar, cast

from cowfs.base.errors import InvalidInputError
from cowfs.base.ids import ChunkHash, PackId, StoreId, VersionId, WriteId

T = TypeVar("T")

_IDS = (ChunkHash, PackId, StoreId, VersionId, WriteId)


def to_json(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, _IDS):
        return value.hex()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {key: to_json(each) for key, each in value.items()}
    if isinstance(value, frozenset):
        return sorted(to_json(each) for each in value)
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    return value


def from_json(kind: type[T], value: Any, what: str = "the value") -> T:
    return cast(T, _read(kind, value, what))


def matches(value: object, kind: Any) -> bool:
    """Whether a value has an annotated type: no bool for an int, but an int for a float. Elements
    of containers are not checked."""
    origin = typing.get_origin(kind)
    if origin is Literal:
        return value in typing.get_args(kind)
    if _is_union(origin):
        return any(matches(value, one) for one in typing.get_args(kind))
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, int | float if kind is float else origin or kind)


@cache
def field_types(kind: Any) -> Mapping[str, Any]:
    """The types of a dataclass's fields."""
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _read(kind: Any, value: Any, what: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if _is_union(origin):
        return _read_one(arguments, value, what)
    if dataclasses.is_dataclass(kind):
        return _read_object(cast(type, kind), value, what)
    if kind in _IDS and isinstance(value, str):
        return kind.from_hex(value)
    if origin is tuple and isinstance(value, list):
        return tuple(_read(arguments[0], each, f"{what}[{at}]") for at, each in enumerate(value))
    if origin is frozenset and isinstance(value, list):
        return frozenset(_read(arguments[0], each, f"{what}[{at}]") for at, each in enumerate(value))
    if origin is Mapping and isinstance(value, dict):
        return {key: _read(arguments[1], each, f"{what}.{key}") for key, each in value.items()}
    if origin in (tuple, frozenset, Mapping) or kind in _IDS or not matches(value, kind):
        raise InvalidInputError(f"{what} has the wrong type: {value!r}")
    return value


def _read_one(kinds: tuple[Any, ...], value: Any, what: str) -> Any:
    """Reads the value as the only kind besides None, or checks it against several."""
    if value is None and types.NoneType in kinds:
        return None
    others = [kind for kind in kinds if kind is not types.NoneType]
    if len(others) == 1:
        return _read(others[0], value, what)
    if not any(matches(value, kind) for kind in others):
        raise InvalidInputError(f"{what} has the wrong type: {value!r}")
    return value


def _read_object(kind: type, value: Any, what: str) -> Any:
    if not isinstance(value, dict):
        raise InvalidInputError(f"{what} is not an object: {value!r}")
    known = field_types(kind)
    if unknown := value.keys() - known.keys():
        raise InvalidInputError(f"{what} has unknown fields: {', '.join(sorted(unknown))}")
    required = {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    if missing := required - value.keys():
        raise InvalidInputError(f"{what} lacks fields: {', '.join(sorted(missing))}")
    secret = {field.name for field in dataclasses.fields(kind) if not field.repr}
    return kind(**{name: _read_field(known[name], each, name, name in secret) for name, each in value.items()})


def _read_field(kind: Any, value: Any, name: str, is_secret: bool) -> Any:
    try:
        return _read(kind, value, name)
    except InvalidInputError:
        if not is_secret:
            raise
        raise InvalidInputError(f"{name} has the wrong type") from None


def _is_union(origin: Any) -> bool:
    return origin is types.UnionType or origin is typing.Union
