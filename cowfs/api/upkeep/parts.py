"""Work on whole stores, divided into independent parts that any `concurrent.futures.Executor` runs:
a pool of processes, or `dask.distributed`'s or Ray's if a store outgrows one machine.

    plan, in this process ─▶ parts: URLs and ids ─▶ executor ─▶ worker opens the stores ─▶ results ─▶ combined here

A part is a function of this module and arguments that are pickled. No credentials and no keys are
sent: a worker opens stores with those of its own environment (variables, profiles, key files), and
keeps indexes in its own cache. Parts may be run twice, and by workers that die: each part only
reads, or puts objects that a second run puts in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from cowfs.api import stores
from cowfs.base import config
from cowfs.base.errors import InvalidInputError
from cowfs.base.ids import PackId, VersionId
from cowfs.format.store_url import StoreUrl
from cowfs.store.credentials import trust

if TYPE_CHECKING:
    from cowfs.maintain.check.pack_check import Expected, PackState
    from cowfs.maintain.collect.marking import Marked
    from cowfs.maintain.copy.pack_copies import CopiedPart
    from cowfs.store.origin import OriginObject
    from cowfs.transfer.imports.object_parts import StoredPart

PACKS = 16
"""Packs in a part: some 256 MB."""
VERSIONS = 32
"""Versions in a part: neighbours, which share most of their index."""

LOOK_S = 0.5
"""The interval at which the executor is checked for completion."""

T = TypeVar("T")
P = TypeVar("P")


class Workers:
    """An executor, and the operations on stores that it runs. InvalidInputError: a store was opened
    with credentials that no worker has."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def check(self, store: stores.OpenStore, packs: Sequence[Expected]) -> Iterator[list[PackState]]:
        """Results in any order."""
        yield from self._results(partial(_check, _url(store)), _split_parts(packs, PACKS))

    def mark(self, store: stores.OpenStore, versions: Sequence[VersionId]) -> Iterator[Marked]:
        """Results in any order. versions: neighbours of a line, one after the other."""
        yield from self._results(partial(_mark, _url(store)), _split_parts(versions, VERSIONS))

    def copy(
        self,
        source: stores.OpenStore,
        target: stores.OpenStore,
        packs: Sequence[Expected],
        condemned: Set[PackId],
        collected: Set[PackId],
    ) -> Iterator[CopiedPart]:
        """Results in any order."""
        copy = partial(_copy, _url(source), _url(target), frozenset(condemned), frozenset(collected))
        yield from self._results(copy, _split_parts(packs, PACKS))

    def store(
        self,
        store: stores.OpenStore,
        url: str,
        parts: Sequence[tuple[OriginObject, ...]],
        is_over: Callable[[], bool],
        compress: bool,
    ) -> Iterator[StoredPart]:
        """Objects of `url`, in any order, until all are stored."""
        yield from self._results(partial(_store, _url(store), url, compress), parts, is_over)

    def _results(
        self, function: Callable[[P], T], parts: Sequence[P], is_over: Callable[[], bool] = lambda: False
    ) -> Iterator[T]:
        """The first error ends the run, after the results that were ready before it. Parts that
        have not begun are cancelled."""
        left: set[Future[T]] = {self._executor.submit(function, part) for part in parts}
        try:
            while left and not is_over():
                done, left = wait(left, LOOK_S, return_when=FIRST_COMPLETED)
                for future in sorted(done, key=lambda each: each.exception() is not None):
                    yield future.result()
        finally:
            for future in left:
                future.cancel()


def _split_parts(parts: Sequence[P], length: int) -> list[tuple[P, ...]]:
    return [tuple(parts[at : at + length]) for at in range(0, len(parts), length)]


def _url(store: stores.OpenStore) -> str:
    if store.storage is not None and store.storage.has_credentials:
        raise InvalidInputError(
            f"{store.url} was opened with credentials of this process, and workers get none",
            hint="Name the store by its URL, and give each worker credentials in its environment or profile.",
        )
    return store.url


# -- in a worker


def _open(url: str) -> stores.OpenStore:
    trust.name(StoreUrl.parse(url))  # the user who started the work named it
    return stores.open_located(url)


def _check(url: str, packs: tuple[Expected, ...]) -> list[PackState]:
    from cowfs.maintain.check.pack_check import check_packs

    return check_packs(_open(url).objects, packs)


def _mark(url: str, versions: tuple[VersionId, ...]) -> Marked:
    from cowfs.maintain.collect.marking import Marker

    marker = Marker(_open(url).objects, config.cache_dir())
    marker.mark(versions)
    return marker.export()


def _copy(
    source: str, target: str, condemned: frozenset[PackId], collected: frozenset[PackId], packs: tuple[Expected, ...]
) -> CopiedPart:
    from cowfs.maintain.copy.pack_copies import CopiedPart, PackCopies

    copies = PackCopies(_open(source).objects, _open(target).objects, config.cache_dir(), lambda *_: None)
    copies.expect(packs)
    copies.copy([pack for pack, _ in packs], condemned, collected)
    return CopiedPart(len(packs), copies.copied, copies.list_relied())


def _store(store: str, url: str, compress: bool, objects: tuple[OriginObject, ...]) -> StoredPart:
    from cowfs.api.transfers.origins import open_place
    from cowfs.transfer.imports.object_parts import store_objects

    with closing(open_place(url, None)) as origin:
        return store_objects(_open(store).objects, origin, objects, compress=compress)
