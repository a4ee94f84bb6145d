"""Lets functions that take mount options as keywords show them in their signature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar

from cowfs.control.options import MountOptions, ReadOptions

F = TypeVar("F", bound=Callable[..., Any])


def shows_options(options: type[ReadOptions], cache_s: float | None = None) -> Callable[[F], F]:
    """Lets the signature of a function that takes `**options` name each of them with its default,
    for `help` and notebooks.

    cache_s: the default of this mode's cache times."""
    defaults = {field.name: field.default for field in fields(MountOptions)}
    defaults |= dict.fromkeys(("attr_cache", "entry_cache", "dir_entry_cache"), cache_s)

    def decorate(function: F) -> F:
        said = signature(function)
        own = [each for each in said.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        named = [Parameter(name, Parameter.KEYWORD_ONLY, default=defaults[name]) for name in options.__annotations__]
        function.__signature__ = Signature([*own, *named], return_annotation=said.return_annotation)  # type: ignore[attr-defined]
        return function

    return decorate
