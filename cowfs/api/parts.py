"""Work on whole stores, cut into independent parts that any `concurrent.futures.Executor` runs: a
pool of processes, `dask.distributed`'s or Ray's where a store outgrows one machine.

    plan, in this process ─▶ parts: URLs and ids ─▶ executor ─▶ worker opens the stores ─▶ what it found ─▶ put together here

A part is a function of this module and arguments that are pickled. No credentials and no keys
travel: a worker opens stores with those of its own surroundings (environment, profiles, key files),
and keeps indexes in its own cache. Parts may be run twice, and by workers that die: each only
reads, or puts what is put the same way again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from cowfs import config
from cowfs.api import stores
from cowfs.errors import InvalidInputError
from cowfs.format.store_url import StoreUrl
from cowfs.ids import PackId, VersionId
from cowfs.store import trust

if TYPE_CHECKING:
    from cowfs.maintain.marking import Marked
    from cowfs.maintain.pack_check import Expected, PackState
    from cowfs.maintain.pack_copies import CopiedPart
    from cowfs.session.object_parts import StoredPart
    from cowfs.store.origin import OriginObject

PACKS = 16
"""Of a part: some 256 MB."""
VERSIONS = 32
"""Of a part: neighbours, most of whose index is the same."""

LOOK_S = 0.5
"""How often it is asked whether all is over."""

T = TypeVar("T")
P = TypeVar("P")


class Workers:
    """An executor, and what it does with stores. InvalidInputError: one was opened with credentials
    that no worker has."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def check(self, store: stores.OpenStore, packs: Sequence[Expected]) -> Iterator[list[PackState]]:
        """In any order."""
        yield from self._results(partial(_check, _url(store)), _cut(packs, PACKS))

    def mark(self, store: stores.OpenStore, versions: Sequence[VersionId]) -> Iterator[Marked]:
        """In any order. versions: neighbours of a line one behind the other."""
        yield from self._results(partial(_mark, _url(store)), _cut(versions, VERSIONS))

    def copy(
        self,
        source: stores.OpenStore,
        target: stores.OpenStore,
        packs: Sequence[Expected],
        condemned: Set[PackId],
        collected: Set[PackId],
    ) -> Iterator[CopiedPart]:
        """In any order."""
        copy = partial(_copy, _url(source), _url(target), frozenset(condemned), frozenset(collected))
        yield from self._results(copy, _cut(packs, PACKS))

    def store(
        self,
        store: stores.OpenStore,
        url: str,
        parts: Sequence[tuple[OriginObject, ...]],
        is_over: Callable[[], bool],
    ) -> Iterator[StoredPart]:
        """Objects of `url`, in any order; until it is over."""
        yield from self._results(partial(_store, _url(store), url), parts, is_over)

    def _results(
        self, function: Callable[[P], T], parts: Sequence[P], is_over: Callable[[], bool] = lambda: False
    ) -> Iterator[T]:
        """The first error ends it, behind what has been done by then: parts that have not begun are
        not run any more."""
        left: set[Future[T]] = {self._executor.submit(function, part) for part in parts}
        try:
            while left and not is_over():
                done, left = wait(left, LOOK_S, return_when=FIRST_COMPLETED)
                for future in sorted(done, key=lambda each: each.exception() is not None):
                    yield future.result()
        finally:
            for future in left:
                future.cancel()


def _cut(parts: Sequence[P], length: int) -> list[tuple[P, ...]]:
    return [tuple(parts[at : at + length]) for at in range(0, len(parts), length)]


def _url(store: stores.OpenStore) -> str:
    if store.storage is not None and store.storage.has_credentials:
        raise InvalidInputError(
            f"{store.url} was opened with credentials of this process, and workers get none",
            hint="Name the store by its URL, and give each worker credentials in its environment or profile.",
        )
    return store.url


# -- in a worker


def _opened(url: str) -> stores.OpenStore:
    trust.name(StoreUrl.parse(url))  # by whoever has started the work
    return stores.open_located(url)


def _check(url: str, packs: tuple[Expected, ...]) -> list[PackState]:
    from cowfs.maintain.pack_check import check_packs

    return check_packs(_opened(url).objects, packs)


def _mark(url: str, versions: tuple[VersionId, ...]) -> Marked:
    from cowfs.maintain.marking import Marker

    marker = Marker(_opened(url).objects, config.cache_dir())
    marker.mark(versions)
    return marker.marked()


def _copy(
    source: str, target: str, condemned: frozenset[PackId], collected: frozenset[PackId], packs: tuple[Expected, ...]
) -> CopiedPart:
    from cowfs.maintain.pack_copies import CopiedPart, PackCopies

    copies = PackCopies(_opened(source).objects, _opened(target).objects, config.cache_dir(), lambda *_: None)
    copies.expect(packs)
    copies.copy([pack for pack, _ in packs], condemned, collected)
    return CopiedPart(len(packs), copies.copied, copies.relied())


def _store(store: str, url: str, objects: tuple[OriginObject, ...]) -> StoredPart:
    from cowfs.api.importing import opened
    from cowfs.session.object_parts import store_objects

    with closing(opened(url, None)) as origin:
        return store_objects(_opened(store).objects, origin, objects)
