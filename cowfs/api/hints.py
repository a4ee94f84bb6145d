"""Hints of errors, and notes, about a store that a user has named (`cowfs.hints`): where it is the
default one, commands need not name it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

from cowfs import hints
from cowfs.api import stores
from cowfs.errors import CowfsError

T = TypeVar("T")

OF_TWO_STORES = frozenset({"pull", "push"})


def about(store_url: str | None, text: str) -> str:
    """The text, with the store in each command that does not name one. None: the default one."""
    return text if store_url is None or is_default(store_url) else hints.complete(text, store_url)


def opening(name: str, store_url: str | None) -> str:
    """How a program opens that volume."""
    if store_url is None or is_default(store_url):
        return f"Volume.open({name!r})"
    return f"Volume.open({name!r}, store={store_url!r})"


@contextmanager
def of_store(store_url: str | None) -> Iterator[None]:
    """Errors of the block are about that store; None: the default one."""
    try:
        yield
    except CowfsError as error:
        error.set_hint(about(store_url, error.hint))
        raise


@contextmanager
def of_one_of_two(store_url: str) -> Iterator[None]:
    """For calls that are about two stores: errors of the block are about this one, and name it even
    where it is the default one, since the user has named the other."""
    try:
        yield
    except CowfsError as error:
        error.set_hint(hints.complete(error.hint, store_url, apart=OF_TWO_STORES))
        raise


def of_their_stores(kind: type[T]) -> type[T]:
    """For a class whose static methods take a store: hints of their errors name it."""
    for name, member in list(vars(kind).items()):
        if isinstance(member, staticmethod) and "store" in inspect.signature(member.__func__).parameters:
            setattr(kind, name, staticmethod(_of_its_store(member.__func__)))
    return kind


def _of_its_store(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        store = named.get("store")
        url = getattr(store, "url", store)
        with of_store(str(url) if url is not None else None):
            return function(*arguments, **named)

    return call


def is_default(url: str) -> bool:
    """Whether commands that name no store are about this one."""
    try:
        return stores.canonical_url(url) == stores.canonical_url()
    except CowfsError:  # one of them is no store: that is what the user is told of
        return False
