"""Which heads of a volume are pruned: they keep their versions no more.

    volumes/<name>/pruned/<n>     create-only; the newest counts, and is complete

A head is immutable, so that it is pruned stands beside it. A version is a collection's to delete
once no head that is not pruned names it, and no tag, pin or hold either. The newest head is never
pruned, and what is pruned stays so, since its bytes may be gone: each record has all that the one
before had.

Cost: two requests where nothing is pruned, else three. Not here: which versions to prune
(`retention`).
"""

from __future__ import annotations

from collections.abc import Iterable

from cowfs import clock
from cowfs.format.record import Holder
from cowfs.format.records import PrunedRecord
from cowfs.ids import WriteId
from cowfs.store import ObjectStore, refs
from cowfs.values import dataclass


@dataclass(frozen=True)
class Pruned:
    """The pruned heads of one volume. number: of the record; 0: there is none."""

    number: int
    record: PrunedRecord | None

    def has(self, head_number: int) -> bool:
        return self.record is not None and self.record.has(head_number)

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        return self.record.ranges if self.record is not None else ()


def read(store: ObjectStore, volume: str) -> Pruned:
    """An error is raised: nobody may take an unreadable record for none."""
    found = refs.newest(store, refs.pruned(volume))
    return Pruned(*found) if found is not None else Pruned(0, None)


def append(
    store: ObjectStore, volume: str, seen: Pruned, more: Iterable[tuple[int, int]], holder: Holder | None = None
) -> Pruned:
    """Prunes these ranges of heads, too. ConflictError: somebody else has pruned since `seen`."""
    record = PrunedRecord(
        ranges=_joined([*seen.ranges, *more]),
        created_ns=clock.now_ns(),
        write_id=WriteId(clock.random_bytes(WriteId.length)),
        holder=holder,
        extra=seen.record.extra if seen.record is not None else {},
    )
    refs.append(store, refs.pruned(volume), seen.number + 1, record)
    return Pruned(seen.number + 1, record)


def _joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return tuple(found)
