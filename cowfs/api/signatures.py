"""Lets functions that take options as keywords show them in their signature."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar, get_type_hints

from cowfs.control.options import MountOptions

F = TypeVar("F", bound=Callable[..., Any])


def shows_options(
    options: type, defaults: Mapping[str, object] | None = None, *, of: type = MountOptions
) -> Callable[[F], F]:
    """Lets the signature of a function that takes `**options` name each of them with its type and
    its default, for `help` and notebooks.

    options: a TypedDict. of: the dataclass that has the defaults; defaults: other ones."""
    known = {field.name: field.default for field in fields(of)} | dict(defaults or {})

    def decorate(function: F) -> F:
        said = signature(function)
        own = [each for each in said.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
        named = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=known[name], annotation=kind)
            for name, kind in get_type_hints(options).items()
        ]
        function.__signature__ = Signature([*own, *named], return_annotation=said.return_annotation)  # type: ignore[attr-defined]
        return function

    return decorate
