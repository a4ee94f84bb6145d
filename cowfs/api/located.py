"""Adds locators to errors that concern a version, or a volume that has one (`CowfsError.locator`).
A program that catches such an error far away can then find the last good version. The commands in
their hints name its store."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from cowfs.api import hints
from cowfs.api.twins.volume_fields import is_looked_up
from cowfs.base.errors import CowfsError, InvalidStateError

F = TypeVar("F", bound=Callable[..., Any])


def names_locator(method: F) -> F:
    """For methods of volumes and versions."""

    @wraps(method)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return method(self, *arguments, **named)
        except CowfsError as error:
            if not is_looked_up(self):
                raise  # of the look-up itself
            hints.mark(error, getattr(self, "store_url", None))
            with contextlib.suppress(InvalidStateError):  # it was not looked up yet
                if (locator := self.locator) is not None:
                    error.details.setdefault("locator", locator)
            raise

    return cast("F", call)
