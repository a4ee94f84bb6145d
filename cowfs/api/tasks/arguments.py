"""What is given for a parameter annotated as a volume.

A text: a version is looked up, a volume is opened. A parameter that may be a text as well gets the
text. A volume: an async function whose annotation is async gets the async object, a blocking one
likewise, since the task before it may have returned the other kind.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from functools import cache
from types import UnionType
from typing import Any

from cowfs.api.ro_volume import ROVolume
from cowfs.api.rw_volume import RWVolume
from cowfs.api.twins.one_type import unwrap
from cowfs.api.twins.twin import Twin, as_async
from cowfs.api.volume import Volume


@cache
def _kinds_of(function: Callable[..., Any]) -> dict[str, type]:
    """The class of each parameter that is annotated as a volume."""
    try:
        hints = typing.get_type_hints(function)
    except (
        AttributeError,
        NameError,
        SyntaxError,
        TypeError,
    ):  # an annotation that has no value here: then none of them is looked at
        hints = {}
    found = {name: _kind(hint) for name, hint in hints.items() if name != "return"}
    return {name: kind for name, kind in found.items() if kind is not None}


def _kind(hint: Any) -> type | None:
    parts = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, UnionType) else (hint,)
    if str in parts:
        return None
    return next((part for part in parts if isinstance(part, type) and issubclass(part, RWVolume | ROVolume)), None)


def look_up(
    function: Callable[..., Any], given: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments, with volumes for texts. One or two requests for each text."""
    kinds = _kinds_of(function)
    if not kinds:
        return given, named
    try:
        bound = inspect.signature(function).bind(*given, **named)
    except TypeError:  # the call itself raises it
        return given, named
    for name, kind in kinds.items():
        value, is_async = bound.arguments.get(name), Twin in kind.__mro__
        if isinstance(value, str):
            volume = Volume.open(value) if issubclass(kind, RWVolume) else Volume.version(value)
            bound.arguments[name] = as_async(volume) if is_async else volume
        elif isinstance(value, RWVolume | ROVolume) and is_async == inspect.iscoroutinefunction(function):
            blocking = unwrap(value)
            if (blocking is value) == is_async:
                bound.arguments[name] = as_async(blocking) if is_async else blocking
    return bound.args, bound.kwargs
