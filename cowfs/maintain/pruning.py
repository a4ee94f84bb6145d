"""Pruning a volume: versions that no rule keeps, and nothing else holds, are its heads' no more.

    plan     the line's versions, what rules keep, what holds the others            nothing is written
    prune    the same look again at what was to go ─▶ one record `pruned/<n>`       a later collection frees the bytes

Held whatever the rules say: the newest version; one with a tag; one that a writable mount or kept
work stands on (their pins); one that another volume was forked from, as long as the fork keeps it;
and what the caller knows to be in use besides. Nothing is lost by keeping what a fork needs anyway,
and merges find it.

Pruning hides nothing: until a collection has run, a pruned version can still be read by its id.

What races: a tag, a fork or a mount that is made while a version is pruned protects its bytes by
itself (`version.tags`, design of collections); two who prune join their ranges by the record's
number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from cowfs import clock
from cowfs.errors import ConflictError, NotFoundError
from cowfs.format import keys
from cowfs.format.record import Holder
from cowfs.helpers import Helpers
from cowfs.ids import VersionId
from cowfs.maintain.roots import RootReader
from cowfs.store import ObjectStore, refs
from cowfs.values import dataclass
from cowfs.version import head_line, pruned, tags, volumes
from cowfs.version.head_line import Step
from cowfs.version.retention import SKEW_NS, Rules
from cowfs.version.volumes import Head

AT_ONCE = 16
TRIES = 8
NOTHING: Mapping[VersionId, Sequence[str]] = MappingProxyType({})


@dataclass(frozen=True)
class Decision:
    """One version of a line, and what keeps it; nothing: it goes."""

    step: Step
    why: tuple[str, ...]

    @property
    def is_kept(self) -> bool:
        return bool(self.why)


def plan(
    store: ObjectStore, volume: str, rules: Rules, in_use: Mapping[VersionId, Sequence[str]] = NOTHING
) -> list[Decision]:
    """Of each version that is not pruned, newest first. in_use: what else holds versions, in words.
    NotFoundError: no such volume."""
    head = volumes.read_head(store, volume)
    line = list(head_line.steps(store, volume, head.number))
    kept = rules.kept(line, _as_of_ns(store, volume, line[0])) if line else []
    left = [(step, why) for step, why in zip(line, kept, strict=True) if not step.is_pruned]
    held = _held(store, head, [step for step, _ in left], in_use)
    return [Decision(step, (*held[place], *why)) for place, (step, why) in enumerate(left)]


def _as_of_ns(store: ObjectStore, volume: str, last: Step) -> int:
    """When the last version was stored, by the store's clock, or now, if that is earlier: as long
    as nobody writes, time alone changes nothing."""
    key = keys.head(volume, last.first)
    found = store.list(key, limit=1)
    stored = [info.mtime_ns + SKEW_NS for info in found if info.key == key and info.mtime_ns]  # 0: it does not say
    return min([clock.now_ns(), *stored])


def prune(
    store: ObjectStore,
    volume: str,
    wanted: Collection[VersionId],
    holder: Holder | None = None,
    in_use: Mapping[VersionId, Sequence[str]] = NOTHING,
) -> list[Step]:
    """Prunes those of the versions that nothing holds now; which these were. ConflictError: others
    prune the volume all the time."""
    for _ in range(TRIES):
        head = volumes.read_head(store, volume)
        seen = pruned.read(store, volume)
        steps = [step for step in head_line.steps(store, volume, head.number, seen) if not step.is_pruned]
        held = _held(store, head, steps, in_use)
        going = [step for place, step in enumerate(steps) if step.version in wanted and not held[place]]
        if not going:
            return []
        try:
            pruned.append(store, volume, seen, [(step.first, step.last) for step in going], holder)
        except ConflictError:
            continue
        return going
    raise ConflictError(
        f"somebody else prunes volume {volume!r} at the same time", hint="Nothing was pruned. Try again later."
    )


def _held(
    store: ObjectStore, head: Head, steps: Sequence[Step], in_use: Mapping[VersionId, Sequence[str]]
) -> list[list[str]]:
    """Of each step, what keeps it whatever the rules say."""
    found: dict[VersionId, list[str]] = defaultdict(list)
    for version, uses in in_use.items():
        found[version] += uses
    for tag in tags.all_tags(store, head.volume):
        found[tag.version].append(f"tag {tag.name}")
    for fork, version in _forks(store, head.volume, {step.version for step in steps}):
        found[version].append(f"base of {fork}")
    by_number = {number: step for step in steps for number in range(step.first, step.last + 1)}
    for pin in RootReader(store).pins():
        record = pin.record
        if record.kind == "dead":
            continue
        said = "uncommitted work" if record.kind == "hold" else "a mount" if record.kind != "fork" else "a fork"
        why = f"{said} of {record.owner}"
        if record.volume == head.volume and (step := by_number.get(record.number)) is not None:
            found[step.version].append(why)
        if record.version is not None:
            found[record.version].append(why)
    return [
        [*(["the last version"] if step.last >= head.number else []), *dict.fromkeys(found[step.version])]
        for step in steps
    ]


def _forks(store: ObjectStore, volume: str, versions: Collection[VersionId]) -> list[tuple[str, VersionId]]:
    """Volumes whose first head is one of the versions, and keeps it. A fork that was deleted
    counts: it may come back."""

    def base(name: str) -> tuple[str, VersionId] | None:
        try:
            first = refs.read(store, refs.head(name), refs.FIRST)
        except NotFoundError:  # it is being made, or was removed
            return None
        version = first.version
        if first.kind != "fork" or version is None or version not in versions:
            return None
        return None if pruned.read(store, name).has(refs.FIRST) else (name, version)

    names = [name for name in volumes.volume_names(store) if name != volume]
    with Helpers(AT_ONCE, name="cowfs-forks") as pool:
        return [found for found in pool.map(base, names) if found is not None]
