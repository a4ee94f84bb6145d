"""Numbers of packs: an index names packs by numbers, and a mount learns them as it needs them.

    read a chunk        its row's number    ─▶ id        looked up in the index once, then remembered
    store a chunk       its pack's id       ─▶ number    the known one, else a new one

The memory does not grow with the volume. So a pack may get a second number, if another version, or
an unread part of the index, has a number for it already: numbers lead to packs, not the other way
round (docs/decisions/0028-commits-stream-their-layer.md).

A number is assigned once in a working copy, so that rows prepared before a commit stay valid in any
later commit. Thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from cowfs.base.errors import CorruptError, InvalidStateError
from cowfs.base.ids import PackId

if TYPE_CHECKING:
    from cowfs.index import Index


class PackNumbers:
    """index: of the base version; `rebase` sets the next one."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._lock = threading.Lock()
        self._ids: dict[int, PackId] = {}
        self._numbers: dict[PackId, int] = {}
        self._unpublished: dict[int, PackId] = {}
        self._last = 0  # assigned, or of the index; 0: not read yet

    def id(self, number: int) -> PackId:
        with self._lock:
            pack = self._ids.get(number)
        if pack is None:
            pack = self._ask(number)
            with self._lock:
                self._learn(number, pack)
        return pack

    def number(self, pack: PackId) -> int:
        with self._lock:
            has_asked = self._last > 0
        last = 0 if has_asked else self._index.last_pack_number()  # may wait for the store; readers need the lock
        with self._lock:
            number = self._numbers.get(pack)
            if number is None:
                number = self._last = (self._last or last) + 1
                self._learn(number, pack)
                self._unpublished[number] = pack
            return number

    def new_among(self, numbers: Iterable[int]) -> dict[int, PackId]:
        """The packs of those `numbers` that no version has yet."""
        with self._lock:
            return {number: self._unpublished[number] for number in numbers if number in self._unpublished}

    def rebase(self, index: Index, published: Mapping[int, PackId]) -> None:
        """Uses `index` from now on, which includes `published`; the caller may close the previous
        one."""
        with self._lock:
            self._index = index
            for number in published:
                self._unpublished.pop(number, None)

    def _learn(self, number: int, pack: PackId) -> None:
        self._ids[number] = pack
        self._numbers.setdefault(pack, number)

    def _ask(self, number: int) -> PackId:
        while True:
            index = self._index
            try:
                pack = index.pack_id(number)
            except InvalidStateError:  # a commit has just closed it
                if index is self._index:
                    raise
                continue
            if pack is None and index is self._index:
                raise CorruptError(
                    f"the index names pack number {number} but has no pack of that number",
                    hint="The version is damaged; read another version of the volume.",
                )
            if pack is not None:
                return pack
