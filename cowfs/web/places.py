"""The stores that the server shows: its own, and the read-only ones that have a name on this
machine (`cowfs store add --read-only`, or an administrator's file).

Versions do not change, so a few that were used last stay open. Threads: any.

What is shown is read `briefly`: a person waits, and can ask again. Changes and downloads under way
wait for a store that does not answer as commands do (docs/durability.md).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import ParamSpec, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request

from cowfs.base import interruptible
from cowfs.blocking import ROVolume, Store
from cowfs.storage import NamedStore, list_stores
from cowfs.web.addresses import NEWEST, OWN_STORE, check_name, check_store

P = ParamSpec("P")
T = TypeVar("T")
OPEN_VERSIONS = 8


class Places:
    """read_only: nothing of the server's own store is changed either."""

    def __init__(self, store: Store, *, read_only: bool) -> None:
        self.own = store
        self._read_only = read_only
        self._versions: OrderedDict[tuple[str, str, str], ROVolume] = OrderedDict()
        self._mutex = Lock()

    def list_named(self) -> list[NamedStore]:
        """The read-only stores with a name."""
        return [each for each in list_stores() if each.read_only]

    def store(self, place: str) -> Store:
        """404: there is no such store, or it may be written to and so belongs to its owner."""
        if check_store(place) == OWN_STORE:
            return self.own
        if any(each.name == place for each in self.list_named()):
            return Store(place)
        raise HTTPException(404, f"no read-only store is named {place!r}")

    def is_writable(self, place: str) -> bool:
        return place == OWN_STORE and not self._read_only

    def require_writable(self, place: str) -> Store:
        """403: the server only shows this store."""
        store = self.store(place)
        if not self.is_writable(place):
            raise HTTPException(403, "this server only shows the store, and does not change it")
        return store

    def require_changes(self) -> None:
        """403: the server changes nothing."""
        if self._read_only:
            raise HTTPException(403, "this server changes nothing (--read-only)")

    def forget(self, place: str, name: str) -> None:
        """Closes the versions of a volume that was deleted."""
        with self._mutex:
            for key in [each for each in self._versions if each[:2] == (place, name)]:
                del self._versions[key]

    def version(self, place: str, name: str, version: str = NEWEST) -> ROVolume:
        """A version by its id, the beginning of its id, or a tag. NotFoundError."""
        store, name = self.store(place), check_name(name)
        key = (place, name, version)
        with self._mutex:
            if key in self._versions:
                self._versions.move_to_end(key)
                return self._versions[key]
        source = name if version == NEWEST else f"{name}@{check_name(version, 'version')}"
        found = store.version(source).resolve()
        with self._mutex:
            found = self._versions.setdefault((place, name, found.id), found)
            while len(self._versions) > OPEN_VERSIONS:
                self._versions.popitem(last=False)
        return found


def briefly(call: Callable[P, T]) -> Callable[P, T]:
    """The call, which fails soon if a store does not answer."""

    @wraps(call)
    def run(*arguments: P.args, **named: P.kwargs) -> T:
        with interruptible.brief():
            return call(*arguments, **named)

    return run


def places_of(request: Request) -> Places:
    found: Places = request.app.state.places
    return found


def version_of(request: Request) -> ROVolume:
    """The version in the request's path."""
    at = request.path_params
    return places_of(request).version(at["store"], at["name"], at["version"])
