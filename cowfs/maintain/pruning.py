"""Pruning a volume: versions that no rule keeps and nothing else holds no longer count as its
heads'.

    plan     the line's versions, what rules keep, what holds the others            nothing is written
    prune    checks the chosen versions again ─▶ one record `pruned/<n>`            a later collection frees the bytes

Versions that are held whatever the rules say: the newest one; one with a tag; one that a writable
mount or uncommitted work is based on (their pins); one that another volume was forked from, as long
as the fork keeps it; and those that the caller reports as in use. Keeping the base of a fork costs
nothing, because the fork needs it anyway, and merges find it.

Pruning hides nothing: until a collection has run, a pruned version can still be read by its id.

Races: a tag, a fork or a mount that is made while a version is pruned protects its bytes by itself
(`version.names.tags`, design of collections). Two concurrent prunings join their ranges by the
record's number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from cowfs.base import clock
from cowfs.base.errors import ConflictError, NotFoundError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import VersionId
from cowfs.base.thread_pool import Helpers
from cowfs.format import keys
from cowfs.format.record import Holder
from cowfs.maintain.collect.roots import RootReader
from cowfs.store import ObjectStore
from cowfs.store.refs import refs
from cowfs.version.names import head_line, tags, volumes
from cowfs.version.names.head_line import Step
from cowfs.version.names.volumes import Head
from cowfs.version.retention import pruned
from cowfs.version.retention.retention import SKEW_NS, Rules

AT_ONCE = 16
TRIES = 8
NOTHING: Mapping[VersionId, Sequence[str]] = MappingProxyType({})


@dataclass(frozen=True)
class Decision:
    """One version of a line, and what keeps it. An empty `why`: it is pruned."""

    step: Step
    why: tuple[str, ...]

    @property
    def is_kept(self) -> bool:
        return bool(self.why)


def plan(
    store: ObjectStore, volume: str, rules: Rules, in_use: Mapping[VersionId, Sequence[str]] = NOTHING
) -> list[Decision]:
    """Decides for each version that is not pruned, newest first. in_use: what else holds versions,
    in words. NotFoundError: no such volume."""
    head = volumes.read_head(store, volume)
    line = list(head_line.steps(store, volume, head.number))
    kept = rules.find_reasons(line, _as_of_ns(store, volume, line[0])) if line else []
    left = [(step, why) for step, why in zip(line, kept, strict=True) if not step.is_pruned]
    held = _find_holds(store, head, [step for step, _ in left], in_use)
    return [Decision(step, (*held[place], *why)) for place, (step, why) in enumerate(left)]


def _as_of_ns(store: ObjectStore, volume: str, last: Step) -> int:
    """When the last version was stored, by the store's clock, or now, if that is earlier: without
    new versions, time alone changes nothing."""
    key = keys.head(volume, last.first)
    found = store.list(key, limit=1)
    stored = [info.mtime_ns + SKEW_NS for info in found if info.key == key and info.mtime_ns]  # 0: unknown
    return min([clock.now_ns(), *stored])


def prune(
    store: ObjectStore,
    volume: str,
    wanted: Collection[VersionId],
    holder: Holder | None = None,
    in_use: Mapping[VersionId, Sequence[str]] = NOTHING,
) -> list[Step]:
    """Prunes those of the versions that nothing holds now, and returns them. ConflictError: other
    processes keep pruning the volume."""
    for _ in range(TRIES):
        head = volumes.read_head(store, volume)
        seen = pruned.read(store, volume)
        steps = [step for step in head_line.steps(store, volume, head.number, seen) if not step.is_pruned]
        held = _find_holds(store, head, steps, in_use)
        going = [step for place, step in enumerate(steps) if step.version in wanted and not held[place]]
        if not going:
            return []
        try:
            pruned.append(store, volume, seen, [(step.first, step.last) for step in going], holder)
        except ConflictError:
            continue
        return going
    raise ConflictError(
        f"another process prunes volume {volume!r} at the same time", hint="Nothing was pruned. Try again later."
    )


def _find_holds(
    store: ObjectStore, head: Head, steps: Sequence[Step], in_use: Mapping[VersionId, Sequence[str]]
) -> list[list[str]]:
    """For each step, what keeps it whatever the rules say."""
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
    """Volumes whose first head is one of the versions, and keeps it. A deleted fork counts: it may
    be restored."""

    def base(name: str) -> tuple[str, VersionId] | None:
        try:
            first = refs.read(store, refs.head(name), refs.FIRST)
        except NotFoundError:  # the volume is being created, or was removed
            return None
        version = first.version
        if first.kind != "fork" or version is None or version not in versions:
            return None
        return None if pruned.read(store, name).has(refs.FIRST) else (name, version)

    names = [name for name in volumes.volume_names(store) if name != volume]
    with Helpers(AT_ONCE, name="cowfs-forks") as pool:
        return [found for found in pool.map(base, names) if found is not None]
