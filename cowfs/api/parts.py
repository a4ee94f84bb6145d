"""Work on whole stores, cut into independent parts that any `concurrent.futures.Executor` runs: a pool
of processes, `dask.distributed`'s or Ray's where a store outgrows one machine.

    plan, in this process ─▶ parts: URLs and ids ─▶ executor ─▶ worker opens the stores ─▶ what it found ─▶ put together here

A part is a function of this module and arguments that are pickled. No credentials and no keys travel:
a worker opens stores with those of its own surroundings (environment, profiles, key files), and keeps
indexes in its own cache. Parts may be run twice, and by workers that die: each only reads, or puts what
is put the same way again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
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
    from cowfs.maintain.pack_check import PackState
    from cowfs.maintain.pack_copies import CopiedPart

PACKS = 16
"""Of a part: some 256 MB."""
VERSIONS = 32
"""Of a part: neighbours, most of whose index is the same."""

T = TypeVar("T")
Id = TypeVar("Id", PackId, VersionId)


class Workers:
    """An executor, and what it does with stores. InvalidInputError: one was opened with credentials that
    no worker has."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def check(self, store: stores.OpenStore, packs: Sequence[PackId]) -> Iterator[list[PackState]]:
        """In any order."""
        yield from self._results(partial(_check, _url(store)), _cut(packs, PACKS))

    def mark(self, store: stores.OpenStore, versions: Sequence[VersionId]) -> Iterator[Marked]:
        """In any order. versions: neighbours of a line one behind the other."""
        yield from self._results(partial(_mark, _url(store)), _cut(versions, VERSIONS))

    def copy(
        self,
        source: stores.OpenStore,
        target: stores.OpenStore,
        packs: Sequence[PackId],
        condemned: Set[PackId],
        collected: Set[PackId],
    ) -> Iterator[CopiedPart]:
        """In any order."""
        copy = partial(_copy, _url(source), _url(target), frozenset(condemned), frozenset(collected))
        yield from self._results(copy, _cut(packs, PACKS))

    def _results(self, function: Callable[[tuple[Id, ...]], T], parts: Sequence[tuple[Id, ...]]) -> Iterator[T]:
        """The first error ends it: parts that have not begun are not run any more."""
        left: set[Future[T]] = {self._executor.submit(function, part) for part in parts}
        try:
            while left:
                done, left = wait(left, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            for future in left:
                future.cancel()


def _cut(ids: Sequence[Id], length: int) -> list[tuple[Id, ...]]:
    return [tuple(ids[at : at + length]) for at in range(0, len(ids), length)]


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


def _check(url: str, packs: tuple[PackId, ...]) -> list[PackState]:
    from cowfs.maintain.pack_check import check_packs

    return check_packs(_opened(url).objects, packs)


def _mark(url: str, versions: tuple[VersionId, ...]) -> Marked:
    from cowfs.maintain.marking import Marker

    marker = Marker(_opened(url).objects, config.cache_dir())
    marker.mark(versions)
    return marker.marked()


def _copy(
    source: str, target: str, condemned: frozenset[PackId], collected: frozenset[PackId], packs: tuple[PackId, ...]
) -> CopiedPart:
    from cowfs.maintain.pack_copies import CopiedPart, PackCopies

    copies = PackCopies(_opened(source).objects, _opened(target).objects, config.cache_dir(), lambda *_: None)
    copies.copy(packs, condemned, collected)
    return CopiedPart(len(packs), copies.copied, copies.relied())
