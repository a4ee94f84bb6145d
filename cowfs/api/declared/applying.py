"""Does what a plan says, step by step; each step is recorded before the next one begins.

A step that fails ends it, but for the mount of an optional volume; what was done before stays done
and recorded, so that the next plan begins there. If the record has changed since the plan was made,
nothing is done.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from cowfs.api import claiming, deleting, hints, mounts, quotas, stores
from cowfs.api.declared import mounting, plan, targets
from cowfs.api.declared.model import Declared
from cowfs.api.declared.mounting import Outcome
from cowfs.api.declared.plan import Plan, Step
from cowfs.api.declared.targets import Target
from cowfs.api.storage.storage import Storage
from cowfs.errors import ConflictError, InvalidStateError, NotFoundError
from cowfs.machine import applied, registry
from cowfs.machine.applied import Applied, AppliedVolume, Made
from cowfs.store import require_writable
from cowfs.version.commit import ProgressListener

Hears = Callable[[Step, Outcome | None], None]


def apply(
    made: Plan, *, progress: ProgressListener | None = None, hears: Hears = lambda *_: None, force: bool = False
) -> None:
    """See `Plan.apply`."""
    file = plan.file_of(made.declared)
    with applied.locked(file):
        recorded = applied.load(file)
        if recorded != made.recorded:
            raise ConflictError(f"{file} was applied by another process meanwhile", hint="Plan again.")
        recorded = plan.settled(recorded)
        skipped: set[str] = set()
        for step in made.steps:
            if step.is_change and step.path not in skipped:
                with hints.of_store(step.store_url or None):
                    recorded, outcome = _done(made, step, recorded, progress, force=force)
                if outcome is not None and outcome.what == "skipped":
                    skipped.add(step.path)  # what would come after it: taking it off its old path
                hears(step, outcome)


def _done(
    made: Plan, step: Step, recorded: Applied, progress: ProgressListener | None, *, force: bool
) -> tuple[Applied, Outcome | None]:
    if step.action == "delete":
        return _deleted(made.declared, step, recorded, force=force)
    target = step.target
    assert target is not None
    if step.action == "mount":
        return _mounted(made, step, recorded, progress)
    write_id = step.recorded.write_id if step.recorded is not None else ""
    if step.action == "create":
        write_id = _create(made.declared, target)
    _set_quota(made.declared, step)
    if step.recorded is not None:
        recorded = _moved(step.recorded, target.path, recorded)
    how: Made = "created" if step.action == "create" else "registered" if step.recorded is None else step.recorded.made
    volume = AppliedVolume(target.store_url, target.volume, target.path, how, target.settings, write_id)
    recorded = recorded.with_volume(volume)
    applied.store(recorded)
    return recorded, None


def _create(declared: Declared, target: Target) -> str:
    """The write id of the first head, which tells it from any other volume of its name."""
    store = stores.open_or_initialize(targets.store_of(declared, target.declared))
    require_writable(store.record)
    head, _ = claiming.head(store.objects, target.volume, "new", strict=True)
    assert head.write_id is not None
    return head.write_id.hex()


def _set_quota(declared: Declared, step: Step) -> None:
    """As declared; one that was not declared is left alone, unless it was before."""
    target = step.target
    assert target is not None
    was = step.recorded.settings.get("quota") if step.recorded is not None else None
    if target.declared_quota is not None or was is not None:
        quotas.set_quota(target.volume, targets.store_of(declared, target.declared), target.declared_quota)


def _deleted(declared: Declared, step: Step, recorded: Applied, *, force: bool) -> tuple[Applied, Outcome]:
    volume = step.recorded
    assert volume is not None
    is_another = step.is_destroyed and _is_another(declared, volume)
    is_destroyed = step.is_destroyed and not is_another
    if is_destroyed and not force:
        _require_committed(volume, recorded)
    recorded, is_kept = _taken_off(volume, recorded, force=force)
    if is_destroyed:
        with suppress(NotFoundError):  # somebody has deleted it
            deleting.delete(volume.volume, _store_at(declared, volume.store_url), force=force)
    recorded = recorded.without_volume(volume)
    applied.store(recorded)
    what: mounting.What = "forgotten" if is_another else "done"
    return recorded, Outcome(what, volume.volume, volume.path, uncommitted=is_kept)


def _is_another(declared: Declared, volume: AppliedVolume) -> bool:
    """Whether its name now is that of a volume that this file has not made: the store was made
    anew, or put back, since."""
    with suppress(NotFoundError):
        return deleting.first_write(volume.volume, _store_at(declared, volume.store_url)).hex() != volume.write_id
    return False


def _require_committed(volume: AppliedVolume, recorded: Applied) -> None:
    """Before it is unmounted: a volume with uncommitted work is not deleted."""
    for mount in recorded.mounts:
        entry = registry.find_by_id(mount.id) if (mount.store_url, mount.volume) == _key(volume) else None
        if entry is not None and entry.written and mounts.has_uncommitted(entry):
            raise InvalidStateError(
                f"volume {volume.volume!r}, which is to be deleted, has uncommitted work at {entry.mount_path}",
                hint=f"Publish it (`cowfs commit {entry.mount_path}`, commit()), or drop it "
                f"(`cowfs unmount {entry.mount_path} --discard`, discard()), and plan again.",
            )


def _store_at(declared: Declared, url: str) -> stores.Named:
    """The declared store there, with its credentials; else that of the user."""
    for name, store in declared.stores.items():
        at = store if isinstance(store, Storage) else store.without_secrets()
        if stores.canonical_url(at) == url:
            return targets.storage_named(declared, name)
    return url


def _key(volume: AppliedVolume) -> tuple[str, str]:
    return volume.store_url, volume.volume


def _moved(before: AppliedVolume, path: str, recorded: Applied) -> Applied:
    """Without what is recorded of it at another path, and without its mount there."""
    return recorded if before.path == path else _taken_off(before, recorded)[0].without_volume(before)


def _taken_off(volume: AppliedVolume, recorded: Applied, *, force: bool = False) -> tuple[Applied, bool]:
    """Its mount is unmounted, if it is one of ours; refused while it is in use, unless force. And
    whether uncommitted work is kept."""
    is_kept = False
    for mount in recorded.mounts:
        if (mount.store_url, mount.volume, mount.mount_path) == (volume.store_url, volume.volume, volume.path):
            recorded, outcome = mounting.take_off(recorded, mount, force=force)
            if outcome.error is not None:
                raise outcome.error
            is_kept = outcome.uncommitted
    return recorded, is_kept


def _mounted(made: Plan, step: Step, recorded: Applied, progress: ProgressListener | None) -> tuple[Applied, Outcome]:
    target = step.target
    assert target is not None
    if target.is_missing:  # the step before has made it
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
