"""Names the store in the commands of hints and notes (`cowfs.base.hints`). A store is shown as the
user may name it; the default store needs no name."""

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


def about(store_url: str | None, text: object) -> str:
    """The text, or a `Command`, as it is shown to the user of that store. None: the default
    store."""
    return hints.insert_store(str(text), option(store_url))


def option(store_url: str | None) -> str:
    """What commands about that store pass to --store; "" for the default one."""
    return "" if store_url is None or is_default(store_url) else _show(store_url)


def opening(name: str, store_url: str | None) -> str:
    """How a program opens that volume."""
    if store_url is None or is_default(store_url):
        return f"Volume.open({name!r})"
    return f"Volume.open({name!r}, store={store_url!r})"


def mark(error: CowfsError, store_url: str | None) -> None:
    """Marks the error as one of that store; None: it is not known here."""
    if store_url is not None:
        error.set_store(option(store_url))


@contextmanager
def of_store(named: stores.Named) -> Iterator[None]:
    """Marks errors of the block."""
    try:
        yield
    except CowfsError as error:
        mark(error, named.url if isinstance(named, Storage) else named)
        raise


@contextmanager
def of_one_of_two(store_url: str) -> Iterator[None]:
    """For calls that concern two stores: marks errors of the block as errors of this one. They name
    it even if it is the default store, since the user has named the other."""
    try:
        yield
    except CowfsError as error:
        error.set_store(_show(store_url))
        raise


def _show(store_url: str) -> str:
    """The store's name, if it has one on this machine."""
    return store_names.name_of(store_url) or store_url


def name_its_store(kind: type[T]) -> type[T]:
    """For a class with a `url` of a store: marks the errors that its public methods raise."""
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
                mark(error, self.url)
            raise

    return call


def is_default(url: str) -> bool:
    """Whether commands that name no store are about this one."""
    try:
        return stores.canonical_url(url) == stores.canonical_url()
    except CowfsError:  # one of them is no store, which is the error that the user sees
        return False
