"""Mounts declared volumes, and unmounts them again.

    up      mounts every declared volume at its path. If one fails that is not optional, the mounts made by this call
            are unmounted again, and the error is raised
    down    unmounts the volumes that `up` or `apply` of that file has mounted and that still are, the last one first;
            uncommitted work is kept

The record (`machine.applied`) says which mounts are ours. `up` accepts a mount that another user or
program has made; `down` leaves it alone. Volumes of one store share the open store, its checks and
the cache directory of this user.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from cowfs.api import hints
from cowfs.api.access.volume_handle import VolumeHandle
from cowfs.api.declared import fitting, found_files, host_paths, plan, targets
from cowfs.api.declared.model import Declaration
from cowfs.api.declared.targets import Target
from cowfs.api.mounts import mount_paths, version_mount, volume_mount
from cowfs.api.mounts import targets as live_targets
from cowfs.api.mounts.targets import Mounted
from cowfs.api.mounts.used_mount import UsedMount
from cowfs.base import failpoints, interruptible
from cowfs.base.errors import ConflictError, CowfsError, LeaseHeldError, NotFoundError, UnavailableError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.control import MountOptions
from cowfs.machine import applied, registry
from cowfs.machine.applied import Applied, AppliedMount
from cowfs.machine.registry import MountEntry
from cowfs.version.commit import ProgressListener

What = Literal["mounted", "found", "skipped", "unmounted", "gone", "failed", "done", "forgotten"]


@dataclass(frozen=True)
class Outcome:
    """The outcome for one mount. state: mounted, found (it existed already), skipped (it is
    optional), unmounted, gone (it was unmounted before), failed, done (its volume was handled too),
    or forgotten (its volume was dropped from the record; another volume now has its name in the
    store and stays). has_uncommitted: work is kept for the next mount. error: of a skipped or
    failed one."""

    state: What
    volume: str
    mount_path: str
    has_uncommitted: bool = False
    error: CowfsError | None = None


HearsOutcome = Callable[[Outcome], None]


def up(
    declared: Declaration, *, progress: ProgressListener | None = None, hears: HearsOutcome = lambda _: None
) -> list[Outcome]:
    """hears: called with each outcome as it occurs."""
    file = plan.file_of(declared)
    found_files.require_allowed(declared, mounts=True)
    fitting.require_fitting(declared)
    with applied.hold_lock(file):
        recorded = plan.settled(applied.load(file))
        found = targets.find(declared, plan.mounted_by(recorded))
        for target in found:
            _require_there(target)
            if targets.not_mounted(target) is not None:
                plan.check_place(target, recorded)
        outcomes: list[Outcome] = []
        made: list[AppliedMount] = []
        try:
            for target in found:
                recorded, outcome = mount_or_skip(declared, target, recorded, progress, made)
                outcomes.append(outcome)
                hears(outcome)
        except BaseException as error:
            _undo(file, made, error, hears)
            raise
        return outcomes


def down(file: Path, *, force: bool = False, hears: HearsOutcome = lambda _: None) -> list[Outcome]:
    """Works without the file itself. A mount that cannot be unmounted is reported as an outcome and
    stays in the record."""
    with applied.hold_lock(file):
        recorded = plan.settled(applied.load(file))
        outcomes = []
        for mount in reversed(recorded.mounts):
            recorded, outcome = take_off(recorded, mount, force=force)
            outcomes.append(outcome)
            hears(outcome)
        return outcomes


def mount_or_skip(
    declared: Declaration,
    target: Target,
    recorded: Applied,
    progress: ProgressListener | None,
    made: list[AppliedMount] | None = None,
) -> tuple[Applied, Outcome]:
    """Mounts a target, or the next of its candidates that can be mounted. An optional target that
    cannot be mounted is skipped. made: receives the new mounts."""
    try:
        if target.trouble is not None:
            raise target.trouble
        return _mount_any(declared, target, recorded, progress, made if made is not None else [])
    except CowfsError as error:
        if not target.declared.optional:
            raise
        return recorded, Outcome("skipped", target.volume, target.path, error=error)


def take_off(recorded: Applied, mount: AppliedMount, *, force: bool = False) -> tuple[Applied, Outcome]:
    """Unmounts the mount if it is there and unchanged. An error is reported in the outcome."""
    entry = registry.find_by_id(mount.id)
    try:
        if host_paths.is_one(mount.source):
            is_removed = host_paths.unlink(mount.source, mount.mount_path)
            outcome = Outcome("unmounted" if is_removed else "gone", mount.volume, mount.mount_path)
        elif entry is not None:
            is_kept = Mounted(entry).unmount(force=force)
            outcome = Outcome("unmounted", mount.volume, mount.mount_path, has_uncommitted=is_kept)
        else:  # it was unmounted, or its daemon died: free its path
            is_dead = (
                registry.find_by_path(mount.mount_path) is None
                and live_targets.detach_dead(mount.mount_path, wants_work=False) is not None
            )
            outcome = Outcome(
                "unmounted" if is_dead else "gone", mount.volume, mount.mount_path, has_uncommitted=is_dead
            )
    except CowfsError as error:
        return recorded, Outcome("failed", mount.volume, mount.mount_path, error=error)
    recorded = recorded.without_mount(mount)
    applied.store(recorded)
    return recorded, outcome


def _require_there(target: Target) -> None:
    plan.require_usable(target)
    if target.is_missing and target.trouble is not None and not target.declared.optional:
        raise NotFoundError(
            f"{target.trouble.message}, which is declared at {target.path}",
            hint=f"{Command('apply')}, or Declared.plan().apply(), makes what is missing.",
        ) from target.trouble


def _mount_any(
    declared: Declaration,
    target: Target,
    recorded: Applied,
    progress: ProgressListener | None,
    made: list[AppliedMount],
) -> tuple[Applied, Outcome]:
    if targets.not_mounted(target) is None:
        return recorded, Outcome("found", target.volume, target.path)
    failures: list[CowfsError] = []
    for each in targets.usable(declared, target.declared, {target.path: target.source}):
        if each.trouble is not None:
            raise each.trouble
        recorded = _clear(target, recorded)  # only after the replacement has been looked at
        try:
            with hints.of_store(each.store_url or None):
                entered = partial(_enter, declared, each, recorded)
                recorded = interruptible.run_with_listener(entered, progress)
        except (LeaseHeldError, NotFoundError, UnavailableError) as error:
            failures.append(error)
            continue
        made.append(recorded.mounts[-1])
        return recorded, Outcome("mounted", each.volume, target.path)
    raise failures[0]


def _clear(target: Target, recorded: Applied) -> Applied:
    """Unmounts a mount of ours at the path. ConflictError: the mount there is not ours."""
    links = (each for each in recorded.mounts if host_paths.is_one(each.source))
    link = next((each for each in links if each.mount_path == target.path), None)
    entry = registry.find_by_path(target.path) if link is None else None
    if link is None and entry is None:
        return recorded
    ours = link or next((each for each in recorded.mounts if entry is not None and each.id == entry.id), None)
    if ours is None:
        assert entry is not None
        raise ConflictError(
            _find_obstacle(entry, target),
            hint=f"Unmount it first: {Command('unmount', target.path)}, or unmount().",
        )
    recorded, outcome = take_off(recorded, ours)
    if outcome.error is not None:
        raise outcome.error
    return recorded


def _find_obstacle(entry: MountEntry, target: Target) -> str:
    if entry.volume != target.volume:
        return f"{entry.volume} is mounted at {target.path}, where {target.volume} is declared"
    if entry.store_url != target.store_url:
        there, wanted = f"{entry.volume} of {entry.store_url}", f"that of {target.store_url}"
        return f"{there} is mounted at {target.path}, where {wanted} is declared"
    return f"{entry.volume} is mounted at {target.path} otherwise than it is declared there"


def _enter(declared: Declaration, target: Target, recorded: Applied, progress: ProgressListener) -> Applied:
    """Mounts the target. The mount is the last entry of the record before and after. This runs
    outside the main thread, so that no signal comes between mounting and recording."""
    mount = AppliedMount(target.path, "", target.store_url, target.volume, target.source)
    applied.store(recorded.with_mount(mount))
    try:
        found = _mount(declared, target, progress)
    except BaseException:
        applied.store(recorded.without_mount(mount))
        raise
    failpoints.hit("declared-mounted")
    recorded = recorded.with_mount(replace(mount, id=found))
    applied.store(recorded)
    return recorded


def _mount(declared: Declaration, target: Target, progress: ProgressListener) -> str:
    """Returns the id of the new mount."""
    place = found_files.checked_place(declared, target.path, is_link=target.is_host_path)
    if target.is_host_path:
        host_paths.link(target.source, place)
        return host_paths.LINKED
    mount_paths.make_parent(place, below=found_files.makes_below(declared, target.path))
    said = target.declared
    options = MountOptions(mode=said.mode, copy_limit=said.copy_limit, uncommitted=said.uncommitted)
    if target.declared.read_only:
        version = targets.locate(declared, target)
        version_mount.require_possible(version, options, scratch=False)
        path = version_mount.make(version, UsedMount(), place, options, scratch=False).path
    else:
        store = targets.store_of(declared, target.declared)
        path = volume_mount.mount(VolumeHandle(store, target.volume, "existing"), place, options, progress)
    live_targets.keep_mounted(path)
    entry = registry.find_by_path(path)
    if entry is None:
        raise UnavailableError(
            f"the mount at {path} has ended again", hint=f"Its log says why: {Command('doctor')} helps."
        )
    return entry.id


def _undo(file: Path, made: list[AppliedMount], error: BaseException, hears: HearsOutcome) -> None:
    """Unmounts the mounts of this call. A mount that cannot be unmounted stays recorded and is
    reported."""
    recorded = applied.load(file)
    for mount in reversed(made):
        recorded, outcome = take_off(recorded, mount)
        if outcome.error is not None:
            error.add_note(f"{mount.mount_path} is still mounted: {outcome.error.message}")
        with suppress(Exception):  # the listener may be the part that failed
            hears(outcome)
