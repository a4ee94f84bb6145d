"""Runs the steps of a plan. Each step is recorded before the next one begins.

The first error ends the run, except for the mount of an optional volume. Completed steps stay
recorded, so that the next plan continues there. If the record has changed since the plan was made,
no step is run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from cowfs.api import claiming, hints, stores
from cowfs.api.declared import mounting, plan, targets
from cowfs.api.declared.model import Declaration
from cowfs.api.declared.mounting import Outcome
from cowfs.api.declared.plan import Plan, Step
from cowfs.api.declared.targets import Target
from cowfs.api.mounts.base import mount_of
from cowfs.api.storage.definition import Storage
from cowfs.api.upkeep import quotas
from cowfs.api.versions import deleting
from cowfs.base.errors import ConflictError, InvalidStateError, NotFoundError
from cowfs.base.hints import Command
from cowfs.machine import applied, registry
from cowfs.machine.applied import Applied, AppliedVolume, Made
from cowfs.store import require_writable
from cowfs.version.commit import ProgressListener
from cowfs.version.publish import settings

Hears = Callable[[Step, Outcome | None], None]


def apply(
    made: Plan, *, progress: ProgressListener | None = None, hears: Hears = lambda *_: None, force: bool = False
) -> None:
    """See `Plan.apply`."""
    file = plan.file_of(made.declared)
    with applied.hold_lock(file):
        recorded = applied.load(file)
        if recorded != made.recorded:
            raise ConflictError(f"{file} was applied by another process meanwhile", hint="Plan again.")
        recorded = plan.settled(recorded)
        skipped: set[str] = set()
        for step in made.steps:
            if step.is_change and step.mount_path not in skipped:
                with hints.of_store(step.store_url or None):
                    recorded, outcome = _do(made, step, recorded, progress, force=force)
                if outcome is not None and outcome.state == "skipped":
                    skipped.add(step.mount_path)  # its next step would unmount it from the old path
                hears(step, outcome)


def _do(
    made: Plan, step: Step, recorded: Applied, progress: ProgressListener | None, *, force: bool
) -> tuple[Applied, Outcome | None]:
    if step.action in ("delete", "forget"):
        return _delete(made.declared, step, recorded, force=force)
    target = step.target
    assert target is not None
    if step.action == "mount":
        return _mount(made, step, recorded, progress)
    write_id = step.recorded.write_id if step.recorded is not None else ""
    if step.action == "create":
        write_id = _create(made.declared, target)
    _set_quota(made.declared, step)
    if target.declared_compress is not None:
        store = stores.open_store(targets.store_of(made.declared, target.declared))
        settings.save_compress(store.objects, target.volume, target.declared_compress)
    if step.recorded is not None:
        recorded = _move(step.recorded, target.path, recorded)
    how: Made = "created" if step.action == "create" else "registered" if step.recorded is None else step.recorded.made
    volume = AppliedVolume(target.store_url, target.volume, target.path, how, target.settings, write_id)
    recorded = recorded.with_volume(volume)
    applied.store(recorded)
    return recorded, None


def _create(declared: Declaration, target: Target) -> str:
    """The write id of the first head. It distinguishes the volume from any other of its name."""
    store, _ = stores.open_or_initialize(targets.store_of(declared, target.declared))
    require_writable(store.record)
    compress = target.declared_compress is not False
    head, _ = claiming.head(store.objects, target.volume, "new", strict=True, compress=compress)
    assert head.write_id is not None
    return head.write_id.hex()


def _set_quota(declared: Declaration, step: Step) -> None:
    """Sets the declared quota. Without one, removes the quota if one was declared before."""
    target = step.target
    assert target is not None
    was = step.recorded.settings.get("quota") if step.recorded is not None else None
    if target.declared_quota is not None or was is not None:
        quotas.set_quota(target.volume, targets.store_of(declared, target.declared), target.declared_quota)


def _delete(declared: Declaration, step: Step, recorded: Applied, *, force: bool) -> tuple[Applied, Outcome]:
    volume = step.recorded
    assert volume is not None
    is_another = step.action == "delete" and _is_another(declared, volume)
    is_destroyed = step.action == "delete" and not is_another
    if is_destroyed and not force:
        _require_committed(volume, recorded)
    recorded, is_kept = _unmount(volume, recorded, force=force)
    if is_destroyed:
        with suppress(NotFoundError):  # it has been deleted already
            deleting.delete(volume.volume, _store_at(declared, volume.store_url), force=force)
    recorded = recorded.without_volume(volume)
    applied.store(recorded)
    what: mounting.What = "forgotten" if is_another else "done"
    return recorded, Outcome(what, volume.volume, volume.path, has_uncommitted=is_kept)


def _is_another(declared: Declaration, volume: AppliedVolume) -> bool:
    """Whether its name now belongs to a volume that this file has not created, since the store was
    created anew or restored."""
    with suppress(NotFoundError):
        return deleting.first_write(volume.volume, _store_at(declared, volume.store_url)).hex() != volume.write_id
    return False


def _require_committed(volume: AppliedVolume, recorded: Applied) -> None:
    """Refuses to delete a volume with uncommitted work. Call it before the volume is unmounted."""
    for mount in recorded.mounts:
        entry = registry.find_by_id(mount.id) if (mount.store_url, mount.volume) == _key(volume) else None
        if entry is not None and entry.written and mount_of(entry).has_uncommitted():
            raise InvalidStateError(
                f"volume {volume.volume!r}, which is to be deleted, has uncommitted work at {entry.mount_path}",
                hint=f"Publish it ({Command('commit', entry.mount_path)}, commit()), or drop it "
                f"({Command('unmount', entry.mount_path, '--discard')}, discard()), and plan again.",
            )


def _store_at(declared: Declaration, url: str) -> stores.Named:
    """The declared store at that URL, with its credentials; else that of the user."""
    for name, store in declared.stores.items():
        at = store if isinstance(store, Storage) else store.without_secrets()
        if stores.canonical_url(at) == url:
            return targets.storage_named(declared, name)
    return url


def _key(volume: AppliedVolume) -> tuple[str, str]:
    return volume.store_url, volume.volume


def _move(before: AppliedVolume, path: str, recorded: Applied) -> Applied:
    """The record without the volume's entry at another path and without its mount there."""
    return recorded if before.path == path else _unmount(before, recorded)[0].without_volume(before)


def _unmount(volume: AppliedVolume, recorded: Applied, *, force: bool = False) -> tuple[Applied, bool]:
    """Unmounts the volume if the mount is one of ours. Refused while it is in use, unless forced.
    Returns the record, and whether uncommitted work is kept."""
    is_kept = False
    for mount in recorded.mounts:
        if (mount.store_url, mount.volume, mount.mount_path) == (volume.store_url, volume.volume, volume.path):
            recorded, outcome = mounting.take_off(recorded, mount, force=force)
            if outcome.error is not None:
                raise outcome.error
            is_kept = outcome.has_uncommitted
    return recorded, is_kept


def _mount(made: Plan, step: Step, recorded: Applied, progress: ProgressListener | None) -> tuple[Applied, Outcome]:
    target = step.target
    assert target is not None
    if target.is_missing:  # the step before has created it
        target = replace(target, is_missing=False, trouble=None)
    recorded, outcome = mounting.mount_or_skip(made.declared, target, recorded, progress)
    if outcome.volume != target.volume:  # another candidate
        mount = next(each for each in recorded.mounts if each.mount_path == target.path)
        settings = {**target.settings, "source": mount.source}
        recorded = recorded.with_volume(
            AppliedVolume(mount.store_url, mount.volume, target.path, "registered", settings)
        )
        applied.store(recorded)
    return recorded, outcome
