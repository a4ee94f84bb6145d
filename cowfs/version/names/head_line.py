"""The steps of a volume's line, newest first: resolves "three ago" and "the version of yesterday",
and shows which versions are kept.

    head    1 create   2 commit A   3 fence   4 commit B   5 delete   6 undelete   7 commit C
    steps              A: 2 to 3              B: 4 to 6                            C: 7

A step is a head that names a new version, and the heads behind it that only repeat it. A version
may have several steps.

Cost: the newest head (three requests), the pruned heads (two or three), and one request for each
head read, several at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Set

from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import VersionId
from cowfs.format.heads import UNCHANGED
from cowfs.store import ObjectStore
from cowfs.store.refs import refs
from cowfs.version.retention import pruned
from cowfs.version.retention.pruned import Pruned


@dataclass(frozen=True)
class Step:
    """first, last: numbers of the heads. created_ns: of the first, by its writer's clock."""

    first: int
    last: int
    version: VersionId
    created_ns: int
    is_pruned: bool


def steps(store: ObjectStore, volume: str, newest: int, hidden: Pruned | None = None) -> Iterator[Step]:
    """The steps from head number `newest` back. hidden: the pruned heads, if they were read
    already."""
    hidden = hidden if hidden is not None else pruned.read(store, volume)
    last = newest
    for number, record in refs.backwards(store, refs.head(volume), newest):
        if record.kind in UNCHANGED:
            continue
        if record.version is not None:
            is_pruned = all(hidden.has(each) for each in range(number, last + 1))
            yield Step(number, last, record.version, record.created_ns, is_pruned)
        last = number - 1


def find_given_up(store: ObjectStore, volume: str, versions: Set[VersionId]) -> set[VersionId]:
    """The versions that no head of the volume keeps any more: they were in its line, and all their
    steps are pruned. If nothing was pruned, the line is not read; pruned heads are read only if the
    others do not decide."""
    hidden = pruned.read(store, volume)
    newest = refs.newest(store, refs.head(volume)) if hidden.ranges else None
    if newest is None:
        return set()
    left, found = set(versions), set[VersionId]()
    numbers = range(newest[0], refs.FIRST - 1, -1)
    for _, record in refs.one_by_one(store, refs.head(volume), (each for each in numbers if not hidden.has(each))):
        left -= {record.version}
        if not left:
            return found
    for _, record in refs.one_by_one(store, refs.head(volume), filter(hidden.has, numbers)):
        found |= left & {record.version}
        if found == left:
            break
    return found


def find_named(store: ObjectStore, volume: str, version: VersionId) -> Step | None:
    """The newest step of a version, preferably one that is not pruned. None: it was never the
    volume's last version."""
    newest = refs.newest(store, refs.head(volume))
    if newest is None or newest[1].kind == "void":  # the versions of a void line are not kept
        return None
    found = None
    for step in steps(store, volume, newest[0]):
        if step.version == version and (found is None or not step.is_pruned):
            found = step
            if not step.is_pruned:
                break
    return found
