"""Checks that the store still has the base of a new version: the last check before its head.

A store may be put back to an earlier state under a mount, or be replaced by another one. Then the
previous head, or packs that were stored or found, are gone, and a version that names them would be
unreadable. docs/decisions/0073-the-store-under-a-mount.md
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from cowfs.base import clock
from cowfs.base.errors import InvalidStateError, NotFoundError
from cowfs.base.hints import Command
from cowfs.base.ids import PackId, StoreId, VersionId
from cowfs.base.thread_pool import Helpers
from cowfs.format import backends, keys
from cowfs.store.initialize import current_id
from cowfs.store.refs import refs

if TYPE_CHECKING:
    from cowfs.store import ObjectStore
    from cowfs.store.packs import PackReader
    from cowfs.version.commit import Base
    from cowfs.version.publish.stored_chunks import StoredChunks

LOOKS = 16
PROVEN_S = 60.0
"""How long stored or seen objects are assumed to exist, where a check costs a request."""


class StillThere:
    """For a volume's only writer. keeps_work: as for `Publisher`."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        store_id: StoreId,
        volume: str,
        packs: PackReader,
        chunks: StoredChunks,
        keeps_work: bool,
    ) -> None:
        self._store = store
        self._store_id = store_id
        self._volume = volume
        self._packs = packs
        self._chunks = chunks
        self._keeps_work = keeps_work
        self._is_near = (
            backends.of_url(store.url).reach == "machine"
        )  # a disk may be changed, and a check costs nothing
        self._proven_s = clock.monotonic_s()

    def was_seen(self) -> None:
        """The base's head was just put or seen."""
        self._proven_s = clock.monotonic_s()

    def has(self, base: Base, taken_from: Collection[VersionId], packs: Iterable[PackId]) -> bool:
        """Whether the store has everything that a version takes from it besides its base: `packs`,
        stored by this writer or found there. If not, the version has to be prepared again.

        InvalidStateError: the head before it is missing. NotFoundError: a version whose content was
        taken over is missing. Losses within such a version are taken over, and not searched for.
        """
        now_s = clock.monotonic_s()
        doubted_s = now_s if self._is_near else now_s - PROVEN_S  # packs stored before that are checked
        if not self._is_near and self._proven_s > doubted_s:
            return True
        self.require_base(base)
        for version in taken_from:
            if self._store.size(keys.version(version)) is None:
                raise NotFoundError(
                    f"{self._store.url} has no version {version} any more; nothing was published",
                    hint=f"It was collected, or the store was put back to an earlier state. {Command('log')} and history() list versions.",
                )
        named = set(packs)
        if taken_from:
            named &= self._chunks.list_uploaded_packs()
        doubted = [pack for pack in named if not self._chunks.was_stored_since(pack, doubted_s)]
        if doubted:
            with Helpers(min(LOOKS, len(doubted)), name="cowfs-look") as threads:
                if not all(threads.map(self._has_pack, doubted)):
                    self._chunks.forget_proofs()
                    return False
        self._proven_s = now_s
        return True

    def _has_pack(self, pack: PackId) -> bool:
        return self._store.size(keys.pack(pack)) is not None or self._packs.has_moved(pack)

    def require_base(self, base: Base) -> None:
        """InvalidStateError: the base version of the line is missing."""
        number = base.head_number
        if number < refs.FIRST:
            return
        try:
            is_there = base.version_id is not None or current_id(self._store) == self._store_id
            if is_there:
                is_there = refs.read(self._store, refs.head(self._volume), number).version == base.version_id
        except NotFoundError:
            is_there = False
        if not is_there:
            raise InvalidStateError(
                f"{self._store.url} does not have the base version of this work, head {number} of volume "
                f"{self._volume!r}: it is another store now, or was put back to an earlier state; nothing was published",
                hint="The work is kept. Make the earlier store available again, and commit; or copy what you need out of "
                f"the mount ({Command('upload', 'PATH', 'NAME')}, files.upload())."
                if self._keeps_work
                else "Make the earlier store available again, and do it again.",
            )
