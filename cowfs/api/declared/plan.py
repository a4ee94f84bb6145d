"""What has to be done so that this machine and its stores are as a declaration says.

    create      a writable volume that is nowhere yet is made; but not one that was there when the file was applied
    register    a volume that is there, and that no apply of this file has seen, is recorded
    change      what is recorded of it differs from what is declared
    mount       it is not mounted at its path, or something else of it is. Before the change of a path where both can be there
    delete      it is recorded, and declared no more; with prune only, and in a plan of deletion. See below
    keep        nothing
    skip        an optional one that cannot be used

A plan is made by reading alone. Applying it goes step by step and records each, so that one that
was interrupted is continued by the next.

delete: its mount is unmounted, work kept, and it is dropped from the record. One that apply created
is deleted in its store as well (`Volume.delete`; undelete brings it back), unless this file or
another one on this machine still declares it; one that was there before stays. So does another
volume of its name: applying compares what tells them apart, which records of earlier versions lack.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cowfs.api import mount_paths
from cowfs.api.declared import host_paths, mount_points, placeholders, targets
from cowfs.api.declared.model import Declared
from cowfs.api.declared.targets import Target
from cowfs.errors import InvalidInputError, NotFoundError
from cowfs.machine import applied, registry
from cowfs.machine.applied import Applied, AppliedMount, AppliedVolume, Setting
from cowfs.store import places
from cowfs.values import dataclass

if TYPE_CHECKING:
    from cowfs.api.declared.applying import Hears
    from cowfs.version.commit import ProgressListener

Action = Literal["create", "register", "change", "mount", "delete", "keep", "skip"]
CHANGES = ("create", "register", "change", "mount", "delete")


@dataclass(frozen=True)
class Step:
    """One action about one volume, of a store, at a path. details: what differs, or why; may be
    empty. target: what is declared; recorded: what a delete or a change is about. is_destroyed: it
    deletes the volume in its store."""

    action: Action
    volume: str
    store_url: str
    path: str
    details: str = ""
    target: Target | None = field(default=None, repr=False)
    recorded: AppliedVolume | None = field(default=None, repr=False)
    is_destroyed: bool = False

    @property
    def is_change(self) -> bool:
        return self.action in CHANGES


@dataclass(frozen=True)
class Plan:
    """What `Declared.plan` has found. steps: in the order in which `apply` does them; each has an
    action (create, register, change, mount, delete, keep, skip). has_changes: one of them does
    something. notes: what a person should know. recorded: what it was compared with."""

    declared: Declared
    recorded: Applied
    steps: tuple[Step, ...]
    notes: tuple[str, ...]

    @property
    def has_changes(self) -> bool:
        return any(step.is_change for step in self.steps)

    def apply(
        self, *, progress: ProgressListener | None = None, hears: Hears | None = None, force: bool = False
    ) -> None:
        """Does it. What fails ends it; what was done until then is recorded, and no part of the
        next plan. hears: of each step that is done, and of what became of a mount. force: deletes
        also what is in use, and volumes with uncommitted work, which is kept (`Volume.delete`)."""
        from cowfs.api.declared import applying

        applying.apply(self, progress=progress, hears=hears or (lambda *_: None), force=force)


def make(declared: Declared, *, prune: bool = False, mounts: bool = True) -> Plan:
    """Looks at stores, mounts and the record. NotFoundError and others: a volume that is not
    optional cannot be used; one that was applied before is not made anew. mounts: plan them,
    too."""
    before = applied.load(file_of(declared))
    recorded = settled(before)
    found = targets.find(declared, mounted_by(recorded))
    for target in found:
        require_usable(target)
    wanted = [each for each in found if each.trouble is None or each.is_missing]
    matches, left = _matched(wanted, recorded)
    left = [each for each in left if not _is_of_another_rank(each, declared)]
    steps = [_deleted(each, _is_used(each, wanted, before)) for each in left] if prune else []
    for target in found:
        if target in wanted:
            steps += _steps(declared, target, matches.get(target.path), recorded, mounts=mounts)
        else:
            steps.append(_step("skip", target, details=target.trouble.message if target.trouble else ""))
    dropped = [] if prune else [_deleted(each, _is_used(each, wanted, before)) for each in left]
    return Plan(declared, before, tuple(steps), tuple(_notes(declared, dropped)))


def make_deletion(declared: Declared) -> Plan:
    """Of all that is recorded of the file, whatever it declares by now."""
    before = applied.load(file_of(declared))
    steps = (_deleted(each, _is_used(each, [], before)) for each in settled(before).volumes)
    return Plan(declared, before, tuple(steps), ())


def settled(recorded: Applied) -> Applied:
    """With the ids of mounts whose maker was killed before it could enter them, if they are
    there."""
    for each in recorded.mounts:
        entry = None if each.id else registry.find_by_path(each.mount_path)
        if entry is not None and (entry.store_url, entry.volume) == (each.store_url, each.volume):
            recorded = recorded.with_mount(replace(each, id=entry.id))
    return recorded


def mounted_by(recorded: Applied) -> dict[str, str]:
    """Path → source of what an apply or up has mounted and is mounted still."""
    live = {entry.id for entry in registry.list_mounts()}

    def is_there(mount: AppliedMount) -> bool:
        if host_paths.is_one(mount.source):
            return host_paths.is_linked(mount.source, mount.mount_path)
        return mount.id in live

    return {each.mount_path: each.source for each in recorded.mounts if is_there(each)}


def file_of(declared: Declared) -> Path:
    """The file whose record it has."""
    if declared.file is None:
        raise InvalidInputError(
            "a declaration made in Python has no record of what was applied",
            hint="Write it into a file and load that: Declared.load(FILE).",
        )
    return declared.file


def require_usable(target: Target) -> None:
    """Raises its trouble, unless it is optional or can be created."""
    trouble = target.trouble
    if trouble is not None and not target.is_missing and not target.declared.optional:
        message = f"{trouble.message} (declared at {target.path})"
        raise type(trouble)(message, hint=trouble.hint, details=trouble.details) from trouble


def check_place(target: Target, recorded: Applied) -> None:
    """InvalidInputError: symbolic links lead from its path to a directory of the system."""
    path = target.path
    if target.is_host_path or host_paths.is_one(mounted_by(recorded).get(path, "")):
        # a link is made at the path, or one of ours is removed there
        place = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    else:
        place = registry.canonical(path)
    mount_points.check_place(path, place)


def _matched(wanted: list[Target], recorded: Applied) -> tuple[dict[str, AppliedVolume], list[AppliedVolume]]:
    """What is recorded of each target, by its path; and what is left over. A volume at another path
    than it is declared at has moved."""
    left = list(recorded.volumes)
    matches: dict[str, AppliedVolume] = {}
    for is_same_path in (True, False):
        for target in wanted:
            for each in left:
                is_of = (each.store_url, each.volume) == (target.store_url, target.volume)
                if target.path not in matches and is_of and (each.path == target.path or not is_same_path):
                    matches[target.path] = each
                    left.remove(each)
                    break
    others = {(each.path, source) for each in wanted for source in each.declared.candidates}
    return matches, [each for each in left if (each.path, each.volume) not in others]


def _steps(
    declared: Declared, target: Target, before: AppliedVolume | None, recorded: Applied, *, mounts: bool
) -> list[Step]:
    steps = []
    if target.is_missing and (away := before or _recorded_candidate(target, recorded)) is not None:
        gone = (
            f"volume {away.volume!r} of {away.store_url}, which was applied before, is not there any more (declared at "
            f"{target.path})"
        )
        if target.declared.optional:
            return [_step("skip", target, details=gone)]
        raise NotFoundError(
            gone,
            hint="A store may be on a disk that is not mounted now. If it is gone for good, take the volume out of the file, "
            f"forget it (`cowfs apply -f {shlex.quote(str(declared.file))} --prune`, plan(prune=True)), and declare it again.",
        )
    if target.is_missing:
        steps.append(_step("create", target, details="its store is made, too, if it is none yet"))
    elif before is None:
        steps.append(_step("register", target))
    elif changed := _changed(target, before) or _quota_changed(declared, target):
        steps.append(_step("change", target, details=changed, recorded=before))
    if mounts and (why := targets.not_mounted(target)) is not None:
        check_place(target, recorded)
        if not (target.declared.optional or target.is_host_path):
            mount_paths.check(target.path)
        mount = _step("mount", target, details=why)
        is_first = before is not None and _fits_beside(target, before)
        steps = [mount, *steps] if is_first else [*steps, mount]
    return steps or [_step("keep", target)]


def _fits_beside(target: Target, before: AppliedVolume) -> bool:
    """Whether it moves, and can be mounted while it still is at its old path, which the change
    takes it off. A volume to write is mounted once only."""
    now, was = Path(target.path), Path(before.path)
    is_apart = not (now.is_relative_to(was) or was.is_relative_to(now))
    return is_apart and (target.declared.read_only or target.is_host_path)


def _recorded_candidate(target: Target, recorded: Applied) -> AppliedVolume | None:
    """What was applied at this path, by another name that is declared for it."""
    names = target.declared.candidates
    return next((each for each in recorded.volumes if each.path == target.path and each.volume in names), None)


def _step(action: Action, target: Target, details: str = "", recorded: AppliedVolume | None = None) -> Step:
    return Step(action, target.volume, target.store_url, target.path, details, target, recorded)


def _changed(target: Target, before: AppliedVolume) -> str:
    was = {"path": before.path, **before.settings}
    now = {"path": target.path, **target.settings}
    changed = [key for key in now if was.get(key) != now[key]]
    if "size" in changed and "quota" in changed:
        changed.remove("quota")  # the same, told twice
    return ", ".join(f"{key} {_said(was.get(key))} → {_said(now[key])}" for key in changed)


def _said(setting: Setting) -> str:
    """As people say it. "" is the subpath of all of a volume."""
    if setting in (None, ""):
        return "none"
    return str(setting).lower() if isinstance(setting, bool) else str(setting)


def _quota_changed(declared: Declared, target: Target) -> str:
    """By hand: as the volume was applied, it has the declared one."""
    if (wanted := target.declared_quota) is None or (found := targets.quota_now(declared, target)) == wanted:
        return ""
    return f"quota {_said(found)} → {wanted}"


def _deleted(recorded: AppliedVolume, is_used: bool) -> Step:
    is_created = recorded.made == "created" and not is_used
    is_destroyed = is_created and bool(recorded.write_id)
    details = "deleted in its store, until an undelete" if is_destroyed else "forgotten here; it stays in its store"
    if is_created and not is_destroyed:
        details += ": an earlier cowfs made it, and did not record what tells it from another volume of its name. To "
        details += f"delete it: `cowfs delete {recorded.volume} --store {shlex.quote(recorded.store_url)}`"
    return Step(
        "delete", recorded.volume, recorded.store_url, recorded.path, details, None, recorded, is_destroyed=is_destroyed
    )


def _is_of_another_rank(recorded: AppliedVolume, declared: Declared) -> bool:
    """Whether a name with placeholders may mean the volume, for another process on this machine: it
    is declared still."""
    names = (name for each in declared.volumes for name in each.name)
    return any(placeholders.may_become(name, recorded.volume) for name in names)


def _is_used(recorded: AppliedVolume, wanted: list[Target], record: Applied) -> bool:
    """Whether this file or another one on this machine still declares the volume, however its
    store's URL is spelled: what the environment adds to one may have changed."""
    others = [each for other in applied.records() if other.file != record.file for each in other.volumes]
    urls = [each.store_url for each in wanted if each.volume == recorded.volume]
    urls += [each.store_url for each in others if each.volume == recorded.volume]
    return any(places.is_one(url, recorded.store_url) for url in urls)


def _notes(declared: Declared, dropped: list[Step]) -> Iterator[str]:
    """dropped: what pruning would do."""
    if any(each.idle_delete is not None for each in declared.volumes):
        yield "idle_delete is recorded, and not enforced yet"
    for each in dropped:
        does = "deletes it in its store" if each.is_destroyed else "forgets it"
        yield f"{each.volume} at {each.path} was applied before, and is declared no more: --prune (prune=True) {does}"
