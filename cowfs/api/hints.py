"""Adds the store that a user has named to the hints of errors and to notes (`cowfs.base.hints`).
Commands for the default store need not name it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any, TypeVar

from cowfs.api import stores
from cowfs.api.storage.definition import Storage
from cowfs.base import hints
from cowfs.base.errors import CowfsError
from cowfs.store import store_names

T = TypeVar("T")

OF_TWO_STORES = frozenset({"pull", "push"})


def about(store_url: str | None, text: str) -> str:
    """The text, with the store added to each command that does not name one. None: the default
    store."""
    return text if store_url is None or is_default(store_url) else hints.complete(text, _show(store_url))


def opening(name: str, store_url: str | None) -> str:
    """How a program opens that volume."""
    if store_url is None or is_default(store_url):
        return f"Volume.open({name!r})"
    return f"Volume.open({name!r}, store={store_url!r})"


@contextmanager
def of_store(named: stores.Named) -> Iterator[None]:
    """Marks errors of the block as errors of that store; None: the default one."""
    try:
        yield
    except CowfsError as error:
        error.set_hint(about(named.url if isinstance(named, Storage) else named, error.hint))
        raise


@contextmanager
def of_one_of_two(store_url: str) -> Iterator[None]:
    """For calls that concern two stores: marks errors of the block as errors of this one. They name
    it even if it is the default store, since the user has named the other."""
    try:
        yield
    except CowfsError as error:
        error.set_hint(hints.complete(error.hint, _show(store_url), apart=OF_TWO_STORES))
        raise


def _show(store_url: str) -> str:
    """The store's name, if it has one on this machine."""
    return store_names.name_of(store_url) or store_url


def name_its_store(kind: type[T]) -> type[T]:
    """For a class with a `url` of a store: hints of errors that its public methods raise name the
    store."""
    for name, member in list(vars(kind).items()):
        if inspect.isfunction(member) and not name.startswith("_"):
            setattr(kind, name, _of_own_store(member))
    return kind


def _of_own_store(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return method(self, *arguments, **named)
        except CowfsError as error:
            with suppress(CowfsError):  # it has no URL: that is what the error says
                error.set_hint(about(self.url, error.hint))
            raise

    return call


def is_default(url: str) -> bool:
    """Whether commands that name no store are about this one."""
    try:
        return stores.canonical_url(url) == stores.canonical_url()
    except CowfsError:  # one of them is no store, which is the error that the user sees
        return False
