"""The steps that bring this machine and its stores into the state that a declaration describes.

    create      make a writable volume that does not exist, unless it existed when the file was applied before
    register    record a volume that exists and that no apply of this file has recorded
    change      update the record, which differs from the declaration
    mount       mount the volume, since its path has no mount or another one. Comes before the change of a path where
                both can exist
    delete      delete a recorded volume in its store; with prune, and in a plan of deletion. See below
    forget      drop a recorded volume from the record; it stays in its store
    keep        do nothing
    skip        pass over an optional volume that cannot be used

Making a plan only reads. Applying it records each step, so that the next apply continues an
interrupted one.

delete, forget: for a recorded volume that is no longer declared. It is unmounted, its work is kept,
and it is dropped from the record. If apply had created it, it is deleted in its store, too
(`Store.delete`; undelete brings it back), unless this file or another one on this machine still
declares it. A volume that existed before is forgotten, and so is another volume of the same name.
To tell them apart, apply compares an identity that records of earlier versions lack.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cowfs.api.declared import fitting, found_files, host_paths, mount_points, placeholders, targets
from cowfs.api.declared.model import Declaration
from cowfs.api.declared.targets import Target
from cowfs.api.mounts import mount_paths
from cowfs.api.twins.one_type import OneType
from cowfs.base.errors import CowfsError, InvalidInputError, NotFoundError, report_done
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.short_repr import has_card, short_repr
from cowfs.machine import applied, registry
from cowfs.machine.applied import Applied, AppliedMount, AppliedVolume, Setting
from cowfs.store import nesting

if TYPE_CHECKING:
    from cowfs.api.declared.applying import Hears
    from cowfs.version.commit import ProgressListener

Action = Literal["create", "register", "change", "mount", "delete", "forget", "keep", "skip"]
CHANGES = ("create", "register", "change", "mount", "delete", "forget")


@has_card
@dataclass(frozen=True)
class Step:
    """One action on one volume of a store, at a path. reason: the difference or the reason; may be
    empty. target: the declared volume. recorded: the entry that a delete, forget or change refers
    to."""

    action: Action
    volume: str
    store_url: str
    mount_path: str
    reason: str = ""
    target: Target | None = field(default=None, repr=False)
    recorded: AppliedVolume | None = field(default=None, repr=False)

    @property
    def is_change(self) -> bool:
        return self.action in CHANGES


@short_repr
@dataclass(frozen=True)
class Plan(metaclass=OneType):
    """The result of `Declared.plan`. steps: in the order in which `apply` runs them; each has an
    action (create, register, change, mount, delete, forget, keep, skip). has_changes: at least one
    step does something. notes: remarks for the user. recorded: the record that the plan was
    compared with."""

    declared: Declaration = field(repr=False)
    recorded: Applied = field(repr=False)
    steps: tuple[Step, ...]
    notes: tuple[str, ...]

    @property
    def has_changes(self) -> bool:
        return any(step.is_change for step in self.steps)

    def apply(
        self, *, progress: ProgressListener | None = None, hears: Hears | None = None, force: bool = False
    ) -> None:
        """Runs the steps. The first error ends it. The steps done by then are recorded and left out
        of the next plan. hears: called after each step, and with the outcome of each mount. force:
        delete volumes even if they are in use or have uncommitted work, which is kept
        (`Store.delete`)."""
        from cowfs.api.declared import applying

        applying.apply(self, progress=progress, hears=hears or (lambda *_: None), force=force)


def make(declared: Declaration, *, prune: bool = False, mounts: bool = True) -> Plan:
    """Reads stores, mounts and the record, and makes a plan. mounts: plan mounts, too.
    NotFoundError and other errors: a volume that is not optional cannot be used. A volume that was
    applied before is not created again."""
    before = applied.load(file_of(declared))
    found_files.require_allowed(declared, mounts=mounts)
    fitting.require_fitting(declared)
    recorded = settled(before)
    found = targets.find(declared, mounted_by(recorded))
    for target in found:
        require_usable(target)
    wanted = [each for each in found if each.trouble is None or each.is_missing]
    matches, left = _match(wanted, recorded)
    left = [each for each in left if not _is_of_another_rank(each, declared)]
    steps = [_plan_deletion(each, _is_used(each, wanted, before)) for each in left] if prune else []
    for target in found:
        if target in wanted:
            steps += _steps(declared, target, matches.get(target.path), recorded, mounts=mounts)
        else:
            steps.append(_step("skip", target, details=target.trouble.message if target.trouble else ""))
    dropped = [] if prune else [_plan_deletion(each, _is_used(each, wanted, before)) for each in left]
    return Plan(declared, before, tuple(steps), tuple(_notes(declared, dropped)))


def make_deletion(declared: Declaration) -> Plan:
    """A plan to delete every volume recorded for the file, whether or not it is still declared."""
    before = applied.load(file_of(declared))
    steps = (_plan_deletion(each, _is_used(each, [], before)) for each in settled(before).volumes)
    return Plan(declared, before, tuple(steps), ())


def settled(recorded: Applied) -> Applied:
    """Adds the ids of existing mounts whose maker was killed before it could record them."""
    for each in recorded.mounts:
        entry = None if each.id else registry.find_by_path(each.mount_path)
        if entry is not None and (entry.store_url, entry.volume) == (each.store_url, each.volume):
            recorded = recorded.with_mount(replace(each, id=entry.id))
    return recorded


def mounted_by(recorded: Applied) -> dict[str, str]:
    """Path → source of the mounts that an apply or up has made and that still exist."""
    live = {entry.id for entry in registry.list_mounts()}

    def is_there(mount: AppliedMount) -> bool:
        if host_paths.is_one(mount.source):
            return host_paths.is_linked(mount.source, mount.mount_path)
        return mount.id in live

    return {each.mount_path: each.source for each in recorded.mounts if is_there(each)}


def file_of(declared: Declaration) -> Path:
    """The file that the record belongs to."""
    if declared.file is None:
        raise InvalidInputError(
            "a declaration made in Python has no record of what was applied",
            hint="Write it into a file and load that: Declared.load(FILE).",
        )
    return declared.file


def require_usable(target: Target) -> None:
    """Raises the target's trouble, unless the target is optional or can be created."""
    trouble = target.trouble
    if trouble is not None and not target.is_missing and not target.declared.optional:
        message = f"{trouble.message} (declared at {target.path})"
        raise type(trouble)(message, hint=trouble.open_hint, details=trouble.details) from trouble


def check_place(target: Target, recorded: Applied) -> None:
    """InvalidInputError: symbolic links lead from its path to a directory of the system."""
    path = target.path
    if target.is_host_path or host_paths.is_one(mounted_by(recorded).get(path, "")):
        # a link is created at the path, or one of ours is removed there
        place = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    else:
        place = registry.canonical(path)
    mount_points.check_place(path, place)


def _match(wanted: list[Target], recorded: Applied) -> tuple[dict[str, AppliedVolume], list[AppliedVolume]]:
    """The recorded volume of each target, by the target's path, and the remaining recorded volumes.
    A volume that is recorded at another path than the declared one has moved."""
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
    declared: Declaration, target: Target, before: AppliedVolume | None, recorded: Applied, *, mounts: bool
) -> list[Step]:
    steps = []
    if target.is_missing and (away := before or _find_recorded(target, recorded)) is not None:
        gone = (
            f"volume {away.volume!r} of {away.store_url}, which was applied before, is not there any more (declared at "
            f"{target.path})"
        )
        if target.declared.optional:
            return [_step("skip", target, details=gone)]
        raise NotFoundError(
            gone,
            hint="A store may be on a disk that is not mounted now. If it is gone for good, take the volume out of the file, "
            f"forget it ({Command('apply', '-f', str(declared.file), '--prune')}, plan(prune=True)), and declare it again.",
        )
    if target.is_missing:
        steps.append(_step("create", target, details="its store is made, too, if it is none yet"))
    elif before is None:
        steps.append(_step("register", target))
    elif changed := _describe_change(target, before) or _quota_changed(declared, target):
        steps.append(_step("change", target, details=changed, recorded=before))
    if mounts and (why := targets.not_mounted(target)) is not None:
        check_place(target, recorded)
        if not (target.declared.optional or target.is_host_path):
            _check_parent(declared, target)
        mount = _step("mount", target, details=why)
        is_first = before is not None and _fits_beside(target, before)
        steps = [mount, *steps] if is_first else [*steps, mount]
    return steps or [_step("keep", target)]


def _check_parent(declared: Declaration, target: Target) -> None:
    try:
        mount_paths.check_path(target.path, below=found_files.makes_below(declared, target.path))
    except CowfsError as error:
        raise report_done(error, f"volume {target.volume!r} is declared at {target.path}", hint="") from error


def _fits_beside(target: Target, before: AppliedVolume) -> bool:
    """Whether the target moves and can be mounted at the new path before the change unmounts it
    from the old one. A writable volume is mounted only once."""
    now, was = Path(target.path), Path(before.path)
    is_apart = not (now.is_relative_to(was) or was.is_relative_to(now))
    return is_apart and (target.declared.read_only or target.is_host_path)


def _find_recorded(target: Target, recorded: Applied) -> AppliedVolume | None:
    """The volume applied at this path under another of the target's candidate names."""
    names = target.declared.candidates
    return next((each for each in recorded.volumes if each.path == target.path and each.volume in names), None)


def _step(action: Action, target: Target, details: str = "", recorded: AppliedVolume | None = None) -> Step:
    return Step(action, target.volume, target.store_url, target.path, details, target, recorded)


def _describe_change(target: Target, before: AppliedVolume) -> str:
    was = {"path": before.path, **before.settings}
    now = {"path": target.path, **target.settings}
    changed = [key for key in now if was.get(key) != now[key]]
    if "size" in changed and "quota" in changed:
        changed.remove("quota")  # the same change, listed twice
    return ", ".join(f"{key} {_describe(was.get(key))} → {_describe(now[key])}" for key in changed)


def _describe(setting: Setting) -> str:
    """The setting as text for people. The subpath "" stands for the whole volume."""
    if setting in (None, ""):
        return "none"
    return str(setting).lower() if isinstance(setting, bool) else str(setting)


def _quota_changed(declared: Declaration, target: Target) -> str:
    """The change to the declared quota, if a user has set another one since apply; else ""."""
    if (wanted := target.declared_quota) is None or (found := targets.quota_now(declared, target)) == wanted:
        return ""
    return f"quota {_describe(found)} → {wanted}"


def _plan_deletion(recorded: AppliedVolume, is_used: bool) -> Step:
    is_created = recorded.made == "created" and not is_used
    is_destroyed = is_created and bool(recorded.write_id)
    details = "deleted in its store, until an undelete" if is_destroyed else "it stays in its store"
    if is_created and not is_destroyed:
        details += ": an earlier cowfs made it, and did not record what tells it from another volume of its name. To "
        details += f"delete it: {Command('delete', recorded.volume, '--store', recorded.store_url)}"
    action: Action = "delete" if is_destroyed else "forget"
    return Step(action, recorded.volume, recorded.store_url, recorded.path, details, None, recorded)


def _is_of_another_rank(recorded: AppliedVolume, declared: Declaration) -> bool:
    """Whether a declared name with placeholders can mean the volume in another process on this
    machine. Such a volume is still declared."""
    names = (name for each in declared.volumes for name in each.name)
    return any(placeholders.may_become(name, recorded.volume) for name in names)


def _is_used(recorded: AppliedVolume, wanted: list[Target], record: Applied) -> bool:
    """Whether this file or another one on this machine still declares the volume. URLs of one store
    count as equal in any spelling, since the part that the environment adds may have changed."""
    others = [each for other in applied.records() if other.file != record.file for each in other.volumes]
    urls = [each.store_url for each in wanted if each.volume == recorded.volume]
    urls += [each.store_url for each in others if each.volume == recorded.volume]
    return any(nesting.is_one(url, recorded.store_url) for url in urls)


def _notes(declared: Declaration, dropped: list[Step]) -> Iterator[str]:
    """dropped: the steps that pruning would add."""
    for each in dropped:
        does = "deletes it in its store" if each.action == "delete" else "forgets it"
        yield f"{each.volume} at {each.mount_path} was applied before, and is declared no more: --prune (prune=True) {does}"
