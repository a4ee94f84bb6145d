"""Deletes volumes that were not used for as long as a file declares (`idle_delete`).

    the file ─▶ volumes with idle_delete ─▶ what the store shows (`maintain.idle`) ─┬▶ steps: delete, or keep and why
                                            what this machine knows: mounts, work ──┘

Only a writable declaration of a volume by name counts. Making a plan writes nothing. Applying it
looks at everything again, by the store's clock, and deletes what is still unused, as
`Store.delete` does: `undelete` restores it until a collection closes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Literal

from cowfs.api import stores
from cowfs.api.declared import found_files, targets
from cowfs.api.declared.model import Declaration
from cowfs.api.declared.targets import Target
from cowfs.api.storage.definition import Storage
from cowfs.api.twins.one_type import OneType
from cowfs.api.upkeep import copied_stores
from cowfs.api.versions import deleting
from cowfs.base import clock
from cowfs.base.errors import (
    ConflictError,
    InvalidStateError,
    LeaseHeldError,
    LeaseLostError,
    NotFoundError,
    UnavailableError,
    unusable,
)
from cowfs.base.fast_dataclass import dataclass
from cowfs.format import keys
from cowfs.machine import last_mounts, registry
from cowfs.maintain.collect.planning import check_now_ns
from cowfs.maintain.collect.roots import RootReader
from cowfs.maintain.collect.sight import show_pins
from cowfs.maintain.idle import find_uses
from cowfs.store import require_writable


@dataclass(frozen=True)
class CleanStep:
    """What becomes of one volume. last_used_ns: the last sign of use; None: it was not looked for.
    idle_delete_s: how long it may be idle. why: what keeps it, in words."""

    action: Literal["delete", "keep"]
    volume: str
    store_url: str
    idle_delete_s: int
    last_used_ns: int | None = None
    why: tuple[str, ...] = ()
    storage: Storage | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class CleanPlan(metaclass=OneType):
    """The result of `Declared.plan_clean`: a step for each volume with `idle_delete`."""

    declared: Declaration
    steps: tuple[CleanStep, ...]

    @property
    def has_changes(self) -> bool:
        return any(step.action == "delete" for step in self.steps)

    def apply(self, *, hears: Callable[[CleanStep], None] | None = None) -> list[CleanStep]:
        """Deletes the volumes, each after looking at it again; what has been used since is kept.
        Returns the outcome of each volume that was to be deleted. hears: called with it as it
        occurs. InvalidStateError: the clocks of this machine and of a store differ."""
        done = []
        for step in self.steps:
            if step.action == "delete":
                done.append(_delete(step))
                if hears is not None:
                    hears(done[-1])
        return done


@dataclass(frozen=True)
class _Wanted:
    """idle_s: the longest time that is declared for the volume."""

    volume: str
    idle_s: int
    storage: Storage | None


def make(declared: Declaration) -> CleanPlan:
    """Reads stores and this machine. Anything that cannot be read is an error, except what concerns
    an optional volume that cannot be used."""
    found_files.require_allowed(declared, mounts=False, deletes=True)
    steps: list[CleanStep] = []
    wanted: dict[str, dict[str, _Wanted]] = defaultdict(dict)
    for target in targets.find(declared, {}):
        idle_s = target.declared.idle_delete_s
        if idle_s is None:
            continue
        if why := _why_not(target):
            steps.append(CleanStep("keep", target.volume, target.store_url, idle_s, why=(why,)))
            continue
        before = wanted[target.store_url].get(target.volume)
        longest_s = max(idle_s, before.idle_s) if before is not None else idle_s
        storage = targets.store_of(declared, target.declared)
        wanted[target.store_url][target.volume] = _Wanted(target.volume, longest_s, storage)
    for volumes in wanted.values():
        opened = stores.open_store(next(iter(volumes.values())).storage)
        steps += _look(opened, volumes, clock.now_ns())
    return CleanPlan(declared, tuple(sorted(steps, key=lambda step: (step.store_url, step.volume))))


def _why_not(target: Target) -> str:
    """Why the declaration says nothing about deleting its volume; "": it does."""
    if target.is_host_path:
        return "it is a path of this machine"
    if target.is_pinned:
        return "a version is declared, not the volume"
    if target.declared.read_only:
        return "it is declared read-only"
    if target.trouble is None:
        return ""
    if target.is_missing or target.declared.optional or target.trouble.details.get("is_deleted"):
        return target.trouble.message
    raise target.trouble


def _look(opened: stores.OpenStore, volumes: Mapping[str, _Wanted], now_ns: int) -> Iterator[CleanStep]:
    for volume, use in find_uses(opened.objects, volumes, now_ns).items():
        wanted = volumes[volume]
        last_ns = max(use.last_ns, _find_last_mount_ns(opened, volume))
        why = [*use.kept_by, *_find_local_uses(opened, volume)]
        if now_ns - last_ns < wanted.idle_s * 10**9:
            why.append("it was used since")
        if use.head is None or use.head.is_deleted or use.head.is_void:
            why.append("it is deleted")
        action: Literal["delete", "keep"] = "keep" if why else "delete"
        yield CleanStep(action, volume, opened.url, wanted.idle_s, last_ns, tuple(why), wanted.storage)


def _find_last_mount_ns(opened: stores.OpenStore, volume: str) -> int:
    try:
        return last_mounts.find_ns(opened.record.store_id.hex(), volume) or 0
    except OSError as error:
        raise unusable(error, "it cannot be told when volumes were last mounted here", elsewhere="") from error


def _find_local_uses(opened: stores.OpenStore, volume: str) -> Iterator[str]:
    """Mounts of the volume and of its versions, and uncommitted work, on this machine."""
    for entry in registry.list_mounts():
        if entry.store_id == opened.record.store_id.hex() and volume in (entry.volume, entry.written):
            yield f"mounted at {entry.mount_path}"
    for copy in copied_stores.known(opened, volume):
        if copy.is_kept:
            yield f"uncommitted work in {copy.path}"


def _delete(step: CleanStep) -> CleanStep:
    opened = stores.open_store(step.storage)
    require_writable(opened.record)
    now_ns = check_now_ns(opened.objects)
    show_pins(opened.objects)
    reader = RootReader(opened.objects)
    reader.pins()
    if not reader.are_pins_shown:
        raise UnavailableError(
            f"{opened.url} does not show the objects below {keys.PINS}",
            hint="Nothing was deleted. Run it again when the whole store is accessible.",
        )
    [now] = _look(opened, {step.volume: _Wanted(step.volume, step.idle_delete_s, step.storage)}, now_ns)
    if now.action == "delete":
        try:
            deleting.delete(step.volume, step.storage, force=False)
        except (ConflictError, InvalidStateError, LeaseHeldError, LeaseLostError, NotFoundError) as error:  # used, or
            # deleted, this very moment
            return CleanStep("keep", now.volume, now.store_url, now.idle_delete_s, now.last_used_ns, (error.message,))
    return now
