"""The pruned heads of a volume, which no longer keep their versions.

    volumes/<name>/pruned/<n>     create-only; the newest counts, and is complete

A head is immutable, so a separate record says that it is pruned. A collection may delete a version
once no head that is not pruned names it, and no tag, pin or hold either. The newest head is never
pruned, and a pruned head stays so, since the bytes may be gone: each record includes all entries of
the one before.

Cost: two requests if nothing is pruned, else three. Not here: choosing the versions to prune
(`retention`).
"""

from __future__ import annotations

from collections.abc import Iterable

from cowfs.base import clock
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import WriteId
from cowfs.format.record import Holder
from cowfs.format.records import PrunedRecord
from cowfs.store import ObjectStore
from cowfs.store.refs import refs


@dataclass(frozen=True)
class Pruned:
    """The pruned heads of one volume. number: of the record; 0: there is no record."""

    number: int
    record: PrunedRecord | None

    def has(self, head_number: int) -> bool:
        return self.record is not None and self.record.has(head_number)

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        return self.record.ranges if self.record is not None else ()


def read(store: ObjectStore, volume: str) -> Pruned:
    """Raises all errors: an unreadable record must not count as a missing one."""
    found = refs.newest(store, refs.pruned(volume))
    return Pruned(*found) if found is not None else Pruned(0, None)


def append(
    store: ObjectStore, volume: str, seen: Pruned, more: Iterable[tuple[int, int]], holder: Holder | None = None
) -> Pruned:
    """Prunes these ranges of heads, too. ConflictError: others were pruned since `seen`."""
    record = PrunedRecord(
        ranges=_join_ranges([*seen.ranges, *more]),
        created_ns=clock.now_ns(),
        write_id=WriteId(clock.random_bytes(WriteId.length)),
        holder=holder,
        extra=seen.record.extra if seen.record is not None else {},
    )
    refs.append(store, refs.pruned(volume), seen.number + 1, record)
    return Pruned(seen.number + 1, record)


def _join_ranges(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return tuple(found)
