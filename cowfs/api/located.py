"""Errors that are about a version, or a volume that has one, name its locator
(`CowfsError.locator`), so that a program that catches one far away knows where the last good
version is. The commands in their hints name its store.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from cowfs.api import hints
from cowfs.errors import CowfsError, InvalidStateError

F = TypeVar("F", bound=Callable[..., Any])


def names_locator(method: F) -> F:
    """For methods of objects with a `locator`."""

    @wraps(method)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return method(self, *arguments, **named)
        except CowfsError as error:
            error.set_hint(hints.about(getattr(self, "store_url", None), error.hint))
            with contextlib.suppress(InvalidStateError):  # nobody has looked it up
                if (locator := self.locator) is not None:
                    error.details.setdefault("locator", locator)
            raise

    return cast("F", call)
