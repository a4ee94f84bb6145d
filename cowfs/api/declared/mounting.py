"""Mounts what is declared, and unmounts what was mounted so.

    up      every declared volume at its path. If one fails that is not optional, those that this call has mounted are
            unmounted again, and the error is raised
    down    what `up` or `apply` of that file has mounted and is mounted still, the last one first; uncommitted work is kept

The record (`machine.applied`) says which mounts are ours: a mount that somebody else has made is
found by `up` and left alone by `down`. Volumes of one store share the open store, its checks and
the cache directory of this user.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from cowfs import apart, failpoints
from cowfs.api import hints, stores
from cowfs.api import targets as live_targets
from cowfs.api.declared import host_paths, plan, targets
from cowfs.api.declared.model import Declared
from cowfs.api.declared.targets import Target
from cowfs.api.ro_volume import ROVolume
from cowfs.api.rw_volume import RWVolume
from cowfs.api.targets import Mounted
from cowfs.control import MountOptions
from cowfs.errors import ConflictError, CowfsError, LeaseHeldError, NotFoundError, UnavailableError
from cowfs.format.locator import Locator
from cowfs.format.store_url import StoreUrl
from cowfs.machine import applied, registry
from cowfs.machine.applied import Applied, AppliedMount
from cowfs.machine.registry import MountEntry
from cowfs.values import dataclass
from cowfs.version.commit import ProgressListener

What = Literal["mounted", "found", "skipped", "unmounted", "gone", "failed", "done", "forgotten"]


@dataclass(frozen=True)
class Outcome:
    """What became of one mount. what: mounted, found (it was there), skipped (it is optional);
    unmounted, gone (it was not there any more), failed; done (with its volume), forgotten (its
    volume; another one has its name in the store now, and stays). uncommitted: work is kept for the
    next mount. error: of a skipped or failed one."""

    what: What
    volume: str
    mount_path: str
    uncommitted: bool = False
    error: CowfsError | None = None


Hears = Callable[[Outcome], None]


def up(declared: Declared, *, progress: ProgressListener | None = None, hears: Hears = lambda _: None) -> list[Outcome]:
    """hears: of each outcome, as it comes."""
    file = plan.file_of(declared)
    with applied.locked(file):
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


def down(file: Path, *, force: bool = False, hears: Hears = lambda _: None) -> list[Outcome]:
    """The file itself need not be there any more. What cannot be unmounted is in the outcomes, and
    stays in the record."""
    with applied.locked(file):
        recorded = plan.settled(applied.load(file))
        outcomes = []
        for mount in reversed(recorded.mounts):
            recorded, outcome = take_off(recorded, mount, force=force)
            outcomes.append(outcome)
            hears(outcome)
        return outcomes


def mount_or_skip(
    declared: Declared,
    target: Target,
    recorded: Applied,
    progress: ProgressListener | None,
    made: list[AppliedMount] | None = None,
) -> tuple[Applied, Outcome]:
    """Mounts a target, or the next of its candidates that can be mounted. An optional one that
    cannot is skipped. made: gets what was mounted."""
    try:
        if target.trouble is not None:
            raise target.trouble
        return _mount_any(declared, target, recorded, progress, made if made is not None else [])
    except CowfsError as error:
        if not target.declared.optional:
            raise
        return recorded, Outcome("skipped", target.volume, target.path, error=error)


def take_off(recorded: Applied, mount: AppliedMount, *, force: bool = False) -> tuple[Applied, Outcome]:
    """Unmounts it, if it is there and the same still; what fails is told by the outcome."""
    entry = registry.find_by_id(mount.id)
    try:
        if host_paths.is_one(mount.source):
            is_removed = host_paths.unlink(mount.source, mount.mount_path)
            outcome = Outcome("unmounted" if is_removed else "gone", mount.volume, mount.mount_path)
        elif entry is not None:
            is_kept = Mounted(entry).unmount(force=force)
            outcome = Outcome("unmounted", mount.volume, mount.mount_path, uncommitted=is_kept)
        else:  # unmounted by somebody, or its daemon died: then its path is freed
            is_dead = (
                registry.find_by_path(mount.mount_path) is None
                and live_targets.detach_dead(mount.mount_path, wants_work=False) is not None
            )
            outcome = Outcome("unmounted" if is_dead else "gone", mount.volume, mount.mount_path, uncommitted=is_dead)
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
            hint="`cowfs apply`, or Declared.plan().apply(), makes what is missing.",
        ) from target.trouble


def _mount_any(
    declared: Declared, target: Target, recorded: Applied, progress: ProgressListener | None, made: list[AppliedMount]
) -> tuple[Applied, Outcome]:
    if targets.not_mounted(target) is None:
        return recorded, Outcome("found", target.volume, target.path)
    failures: list[CowfsError] = []
    for each in targets.usable(declared, target.declared, {target.path: target.source}):
        if each.trouble is not None:
            raise each.trouble
        recorded = _cleared(target, recorded)  # not before what takes its place has been looked at
        try:
            with hints.of_store(each.store_url or None):
                entered = partial(_entered, declared, each, recorded)
                recorded = apart.run_heard(entered, progress)
        except (LeaseHeldError, NotFoundError, UnavailableError) as error:
            failures.append(error)
            continue
        made.append(recorded.mounts[-1])
        return recorded, Outcome("mounted", each.volume, target.path)
    raise failures[0]


def _cleared(target: Target, recorded: Applied) -> Applied:
    """Takes off a mount of ours that is at the path; ConflictError: one of somebody else."""
    links = (each for each in recorded.mounts if host_paths.is_one(each.source))
    link = next((each for each in links if each.mount_path == target.path), None)
    entry = registry.find_by_path(target.path) if link is None else None
    if link is None and entry is None:
        return recorded
    ours = link or next((each for each in recorded.mounts if entry is not None and each.id == entry.id), None)
    if ours is None:
        assert entry is not None
        raise ConflictError(
            _in_the_way(entry, target),
            hint=f"Unmount it first: `cowfs unmount {target.path}`, or unmount().",
        )
    recorded, outcome = take_off(recorded, ours)
    if outcome.error is not None:
        raise outcome.error
    return recorded


def _in_the_way(entry: MountEntry, target: Target) -> str:
    if entry.volume != target.volume:
        return f"{entry.volume} is mounted at {target.path}, where {target.volume} is declared"
    if entry.store_url != target.store_url:
        there, wanted = f"{entry.volume} of {entry.store_url}", f"that of {target.store_url}"
        return f"{there} is mounted at {target.path}, where {wanted} is declared"
    return f"{entry.volume} is mounted at {target.path} otherwise than it is declared there"


def _entered(declared: Declared, target: Target, recorded: Applied, progress: ProgressListener) -> Applied:
    """Mounts it. It is in the record before and after, as the last one: apart from the main thread,
    so that nothing comes between mount and record."""
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


def _mount(declared: Declared, target: Target, progress: ProgressListener) -> str:
    """The id of its mount."""
    if target.is_host_path:
        host_paths.link(target.source, target.path)
        return host_paths.LINKED
    folder, store = target.declared.folder, targets.store_of(declared, target.declared)
    options = MountOptions(mode=target.declared.mode, copy_limit=target.declared.copy_limit)
    if target.declared.read_only:
        assert target.version is not None
        locator = Locator(StoreUrl.parse(target.store_url), target.volume, target.version)
        asked = stores.storage_of(store)
        path = ROVolume(locator, folder=os.fsencode(folder), storage=asked).mount(target.path, options=options)
    else:
        volume = RWVolume(store, target.volume, "existing")
        path = volume.mount(target.path, progress=progress, options=options)
    live_targets.keep_mounted(path)
    entry = registry.find_by_path(path)
    if entry is None:
        raise UnavailableError(f"the mount at {path} has ended again", hint="Its log says why: `cowfs doctor` helps.")
    return entry.id


def _undo(file: Path, made: list[AppliedMount], error: BaseException, hears: Hears) -> None:
    """Unmounts what this call has mounted. What cannot be stays recorded, and is said."""
    recorded = applied.load(file)
    for mount in reversed(made):
        recorded, outcome = take_off(recorded, mount)
        if outcome.error is not None:
            error.add_note(f"{mount.mount_path} is still mounted: {outcome.error.message}")
        with suppress(Exception):  # the listener may be what failed
            hears(outcome)
