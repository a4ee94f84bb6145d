"""Replaces volumes in the result of a function, wherever they are nested: in lists, tuples, named
tuples, sets, values of dicts, dataclasses, attrs classes and pydantic models, and in subclasses of
these. A container in which nothing changes stays the same object; another one becomes a copy.
Volumes in other objects are not found.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

PLAIN = (str, bytes, int, float, type(None))
Replace = Callable[[Any], Any]
"""Returns a volume's replacement, and anything else unchanged."""


def replace_volumes(value: Any, replace: Replace) -> Any:
    return _Replacing(replace).of(value)


class _Replacing:
    def __init__(self, replace: Replace) -> None:
        self._replace = replace
        self._seen: dict[int, tuple[Any, Any]] = {}
        """By id: a value, which is kept so that no other one gets its id, and its replacement."""

    def of(self, value: Any) -> Any:
        if isinstance(value, PLAIN):
            return value
        if id(value) in self._seen:
            return self._seen[id(value)][1]
        self._seen[id(value)] = value, value  # a container that holds itself stays as it is in there
        result = self._replace(value)
        if result is value:
            result = self._rebuild(value)
        self._seen[id(value)] = value, result
        return result

    def _rebuild(self, value: Any) -> Any:
        if isinstance(value, dict):
            return self._change(value, value.items(), _set_item)
        if isinstance(value, list):
            return self._change(value, enumerate(value), _set_item)
        if isinstance(value, tuple):
            return self._remake(value, partial(tuple.__new__, type(value)))  # its own may take other arguments
        if isinstance(value, set | frozenset):
            return self._remake(value, type(value))
        if (names := _fields(value)) is not None:
            present = [(name, getattr(value, name)) for name in names if hasattr(value, name)]
            return self._change(value, present, _set_field)
        return value

    def _change(self, value: Any, parts: Iterable[tuple[Any, Any]], put: Callable[[Any, Any, Any], None]) -> Any:
        result = value
        for key, part in list(parts):
            new = self.of(part)
            if new is not part:
                result = copy.copy(value) if result is value else result
                put(result, key, new)
        return result

    def _remake(self, value: Iterable[Any], make: Callable[[Iterable[Any]], Any]) -> Any:
        parts = list(value)
        new = [self.of(part) for part in parts]
        return make(new) if any(one is not other for one, other in zip(new, parts, strict=True)) else value


def _fields(value: Any) -> Iterable[str] | None:
    """The fields of a record; None: it is none."""
    kind = type(value)
    if dataclasses.is_dataclass(kind):
        return [each.name for each in dataclasses.fields(kind)]
    if isinstance(attributes := getattr(kind, "__attrs_attrs__", None), tuple):
        return [each.name for each in attributes]
    if isinstance(fields := getattr(kind, "model_fields", None), dict):  # pydantic
        return list(fields)
    return None


def _set_item(container: Any, key: Any, value: Any) -> None:
    container[key] = value


def _set_field(record: Any, name: str, value: Any) -> None:
    """Of frozen records, too: the copy is nobody else's yet."""
    object.__setattr__(record, name, value)
