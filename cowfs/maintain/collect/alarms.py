"""Alarms that stop a collection: signs that the store does not show everything that it contains.

A disk that is not mounted, a prefix that a server lists as empty, a store that is still being
copied: each looks as if its objects were gone, and everything they protect were garbage. So an
object that is not listed counts as absent only if there is no evidence against it. Each alarm is
one line of text. A user may accept the alarms of one plan (`cowfs gc --accept-loss`); the
collection that carries it out leaves a new sight (`sight`).

    versions or packs, and not one head     heads are never deleted
    volumes, heads, tags                    fewer than the last collection saw
    pins/, gc/                              without the objects that a collection leaves there for good
    versions/                               is empty, although something names a version
    folders with numbered records           of a newer cowfs, which may protect something
    a head put after another one than shown a replaced head, whose version is perhaps kept by nothing else
    needed packs that are missing           more than the last collection missed: moved records may be hidden
    more than half of the bytes             would be deleted, without any pruning, deletion or moved tag since
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from cowfs.base import byte_sizes
from cowfs.base.errors import AccessDeniedError, InvalidStateError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.format import keys
from cowfs.format.records import SeenVolume
from cowfs.maintain.collect.roots import Roots
from cowfs.maintain.collect.sight import Sight
from cowfs.store import ObjectStore, scratch_objects

FOLDERS = tuple(sorted((*keys.PREFIXES, scratch_objects.PREFIX)))
LOOKED_AT = 100
"""Keys to look at in an unknown folder at the root. A key with a number makes it a folder with
records."""
LAST_RECORD = 1 << 32
"""Records are counted from 1: 16 hex digits with a larger number are a hash of another program."""
FOLDERS_LOOKED_AT = 100
SHOWN = 10


@dataclass
class Strangers:
    """Objects that this version of cowfs has not put. unknown: folders with records. others: files
    and folders that are left alone."""

    unknown: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)

    def add(self, folder: str, names: Sequence[str]) -> None:
        """names: the first ones, in order. Names inside another store below the folder are not
        counted."""
        stores = tuple(name.removesuffix(keys.STORE) for name in names if name.endswith(f"/{keys.STORE}"))
        numbers = [keys.parse_number(name) for name in names if not name.startswith(stores)]
        has_records = any(number is not None and 0 < number <= LAST_RECORD for number in numbers)
        (self.unknown if has_records else self.others).add(folder)


def strangers_at_root(store: ObjectStore) -> Strangers:
    """One request for each folder. A folder that may not be listed (lost+found) is skipped, with
    everything after it up to the next folder of the store."""
    found = Strangers()
    at = ""
    for _ in range(FOLDERS_LOOKED_AT):
        try:
            page = [info.key for info in store.list("", start_after=at, limit=LOOKED_AT)]
        except AccessDeniedError:
            at = next((_end_of(folder) for folder in FOLDERS if _end_of(folder) > at), "")
            if not at:
                return found
            continue
        if not page:
            return found
        folder, slash, _ = page[0].partition("/")
        if not slash:
            at = folder
            if folder not in (keys.STORE, keys.COLLECTED):
                found.others.add(folder)
            continue
        folder += slash
        at = _end_of(folder)
        if folder not in FOLDERS:
            found.add(folder, [key for key in page if key.startswith(folder)])
    return found


def _end_of(folder: str) -> str:
    return folder[:-1] + chr(ord("/") + 1)


def fewer(shown: Mapping[str, SeenVolume], before: Mapping[str, SeenVolume], who: str) -> Iterator[str]:
    """Reports what `who` has seen of volumes and the store no longer shows."""
    for name, seen in sorted(before.items()):
        now = shown.get(name)
        if now is None:
            yield f"volume {name}, which {who} saw, is missing"
        elif now.head < seen.head:
            yield f"volume {name} shows head {now.head} as its newest; {who} saw {seen.head}"
        elif now.tags < seen.tags or now.pruned < seen.pruned:
            yield f"volume {name} shows fewer records of tags or pruned heads than {who} saw"


def of_roots(store: ObjectStore, found: Roots, last: Sight | None) -> list[str]:
    """The alarms from the roots, without those of `strangers_at_root` and of packs."""
    who = f"collection {last.generation}" if last is not None else ""
    alarms = [*fewer(found.shown, last.volumes if last is not None else {}, who), *found.doubts]
    if (last is not None or store.size(keys.COLLECTED) is not None) and not found.are_pins_shown:
        alarms.append(f"{keys.PINS} does not show {keys.PINS_SHOWN}, which stays there for good")
    return alarms


def bytes_gone(last: Sight, going_bytes: int, there_bytes: int, found: Roots) -> list[str]:
    """there_bytes: of the objects put before `young_ns` of the last collection; going_bytes: those
    of them that would be deleted. Objects that came later with an older time, as multipart uploads
    do on S3, may be deleted."""
    figures = last.figures
    going_bytes -= max(there_bytes - figures.live_bytes - figures.other_bytes, 0)
    if _is_recorded(last, found) or going_bytes <= figures.live_bytes / 2 + figures.other_bytes:
        return []
    found_bytes = f"the {byte_sizes.format_size(figures.live_bytes)} that collection {last.generation} found in use"
    return [
        f"{byte_sizes.format_size(going_bytes)} of {found_bytes} would be deleted, although nothing was pruned or deleted since"
    ]


def _is_recorded(last: Sight, found: Roots) -> bool:
    """Whether a pruning, a deletion or a moved tag since then explains the deletion."""
    for name, now in found.shown.items():
        seen = last.volumes.get(name, SeenVolume(name, 0, 0, 0, 0))
        if now.pruned > seen.pruned or now.retagged > seen.retagged:
            return True
        if found.deletions.get(name, 0) > seen.head:
            return True
    return bool(found.lapsed)


def refuse(url: str, alarms: Sequence[str], plan_id: str) -> InvalidStateError:
    return InvalidStateError(
        f"{url} does not show everything that should be there, so nothing was deleted: {join_alarms(alarms)}",
        hint="If a disk is not mounted, a share is missing or a copy is not finished, complete it and run this again. "
        f"If the objects are gone for good, or the alarm is wrong: {Command('gc', '--accept-loss', plan_id)}.",
        details={"plan_id": plan_id, "alarms": list(alarms)},
    )


def join_alarms(alarms: Sequence[str]) -> str:
    more = f"; and {len(alarms) - SHOWN} more" if len(alarms) > SHOWN else ""
    return "; ".join(alarms[:SHOWN]) + more
