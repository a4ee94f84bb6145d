"""Locks the volumes of a declaring file to versions, and releases versions that are locked no more.

    lock       keeps the versions that are locked, adds volumes that are not, drops those that are not declared any
               more; `update` locks volumes to the version that they have now
    release    removes old tags of the project from versions that its lock does not name; the user decides, since other
               copies and branches of the project share the tags

Each locked version gets a tag (`version.names.lock_tags`), so that no prune removes it, and only
then the lock file is written; the first time, its project is written before. Older commits of a
project name older versions, so their tags stay until `release`. Where this user may not set tags,
the line says so, and the report.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Literal

from cowfs.api import arguments, hints, sources, stores
from cowfs.api.declared import fitting, found_files, lock_files, plan, problems, targets
from cowfs.api.declared.model import Declaration, DeclaredVolume, lock_of, set_lock
from cowfs.api.storage.definition import Storage
from cowfs.api.versions import content_ids, tagging
from cowfs.api.versions.located_version import LocatedVersion
from cowfs.base import clock
from cowfs.base.errors import AccessDeniedError, ConflictError, InvalidInputError, NotFoundError, ReadOnlyError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.thread_pool import Helpers
from cowfs.format.lock_file import LockedVolume, LockFile
from cowfs.machine import applied
from cowfs.store.refs.holder import current_holder
from cowfs.version.names import lock_tags, tags, volumes

What = Literal["added", "updated", "kept", "removed"]
AT_ONCE = 8
_LONGEST_NAME = 40


@dataclass(frozen=True)
class LockedVersion:
    """One line of a lock. what: it was added, updated (`before` was locked), kept, or removed since
    the volume is not declared any more. name, store: as in the declaring file. tag: keeps the
    version; None: this user may not set it."""

    what: What
    name: str
    store: str | None
    locator: str
    content_id: str
    tag: str | None
    before: str | None = None


@dataclass(frozen=True)
class LockReport:
    """The result of `Declared.lock`. path: of the lock file. is_changed: it was written, or would
    be. notes: remarks for the user."""

    path: str
    is_changed: bool
    volumes: tuple[LockedVersion, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ReleasedTag:
    """A tag of a version that the lock file does not name. Another copy of the project may."""

    store_url: str
    volume: str
    tag: str
    version: str
    created_ns: int


def lock(declared: Declaration, *, update: Sequence[str], update_all: bool, dry_run: bool) -> LockReport:
    """See `Declared.lock`."""
    found_files.require_allowed(declared, mounts=False)
    if dry_run:
        return _lock(declared, update, update_all=update_all, dry_run=True)
    with _hold(declared):
        return _lock(declared, update, update_all=update_all, dry_run=False)


@contextmanager
def _hold(declared: Declaration) -> Iterator[None]:
    """No other process here changes the lock or its tags meanwhile. ConflictError: one does, or has
    done since the file was loaded."""
    file = plan.file_of(declared)
    with applied.hold_lock(file):
        path = lock_files.path_of(file)
        found, was = lock_files.read(path), lock_of(declared)
        if (found and found[0].encode()) != (was and was.encode()):
            raise ConflictError(f"{path} was changed by another process meanwhile", hint="Run it again.")
        yield


def _lock(declared: Declaration, update: Sequence[str], *, update_all: bool, dry_run: bool) -> LockReport:
    file = plan.file_of(declared)
    path, before = lock_files.path_of(file), lock_of(declared)
    found_lines = before.volumes if before is not None else ()
    lines = [each for each in found_lines if fitting.is_of_its_volume(each)]  # others lock nothing
    project = before.project if before is not None else _new_project(file)
    wanted = fitting.lockable_sources(declared)
    chosen = set(wanted) if update_all else _choose(update, wanted, lines)
    locked = {each.key: each for each in lines}
    _require_single(declared, lines, chosen)

    def look(key: tuple[str, str]) -> tuple[LockedVolume, LocatedVersion] | None:
        return _look(declared, wanted[key], key[0], locked.get(key), is_kept=key not in chosen)

    def tag(found: tuple[LockedVolume, LocatedVersion]) -> tuple[LockedVolume, str]:
        line, located = found
        note = _tag(located, lock_tags.lock_tag(project, line.version))
        return replace(line, is_tagged=not note), note

    with Helpers(AT_ONCE, name="cowfs-lock") as pool:
        found = [each for each in pool.map(look, sorted(wanted)) if each is not None]
        _require_locked(declared, {line.key for line, _ in found})
        tagged = [(line, "") for line, _ in found]
        if found and not dry_run:
            if (
                before is None
            ):  # else nobody could release the tags if this process ended before it has written the lock
                _replace(declared, path, LockFile(project))
            tagged = list(pool.map(tag, found))
    made = LockFile(project, tuple(line for line, _ in tagged))
    is_changed = before != made if before is not None else bool(found)
    if is_changed and not dry_run:
        _replace(declared, path, made)
    notes = tuple(note for _, note in tagged if note)
    return LockReport(str(path), is_changed, tuple(_compare(found_lines, made)), notes)


def _replace(declared: Declaration, path: Path, made: LockFile) -> None:
    lock_files.replace(path, made)
    set_lock(declared, made)


def release(
    declared: Declaration, *, older: float | str, only: Sequence[ReleasedTag] | None, dry_run: bool
) -> list[ReleasedTag]:
    """See `Declared.release_lock`."""
    with nullcontext() if dry_run else _hold(declared):
        return _release(declared, older=older, only=only, dry_run=dry_run)


def _release(
    declared: Declaration, *, older: float | str, only: Sequence[ReleasedTag] | None, dry_run: bool
) -> list[ReleasedTag]:
    now = lock_of(declared)
    if now is None:
        raise NotFoundError(
            f"there is no {lock_files.path_of(plan.file_of(declared))}, which names the project of the tags",
            hint="Restore it from version control.",
        )
    found_files.require_allowed(declared, mounts=False)
    fitting.require_fitting(declared)
    limit_ns = clock.now_ns() - int(arguments.seconds("older", older) * 1e9)
    needed = {lock_tags.lock_tag(now.project, each.version) for each in now.volumes}
    holder = current_holder(f"process {os.getpid()}, which releases it")
    released = []
    for storage in _stores(declared):
        opened = stores.open_store(storage)
        with hints.of_store(opened.url):
            for volume, tag in _find_tags(opened, now.project):
                found = ReleasedTag(opened.url, volume, tag.name, tag.version.hex(), tag.created_ns)
                if tag.name in needed or tag.created_ns > limit_ns or (only is not None and found not in only):
                    continue
                if not dry_run:
                    tags.remove_tag(opened.objects, volume, tag.name, holder=holder, expected=tag.version)
                released.append(found)
    return released


def _find_tags(store: stores.OpenStore, project: str) -> Iterator[tuple[str, tags.Tag]]:
    """Every volume and tag that belongs to the project."""
    for volume in volumes.volume_names(store.objects):
        for tag in tags.all_tags(store.objects, volume):
            if lock_tags.parse_project(tag.name) == project:
                yield volume, tag


def _choose(
    update: Sequence[str], wanted: dict[tuple[str, str], DeclaredVolume], lines: Sequence[LockedVolume]
) -> set[tuple[str, str]]:
    """The keys that are updated: by the name in the file, with or without its store, or by the name
    of the volume."""
    names: dict[str, set[tuple[str, str]]] = {}
    for key in wanted:
        source, store = key
        for name in (source, source.partition("@")[0], *((f"{store}/{source}",) if store else ())):
            names.setdefault(name, set()).add(key)
    for each in lines:
        names.setdefault(each.locator.volume, set()).add(each.key)
    for name in update:
        if name not in names:
            raise InvalidInputError(
                f"no volume that can be locked is named {name!r}", hint=problems.near(name, sorted(names), "Names")
            )
    return {key for name in update for key in names[name]}


def _require_single(declared: Declaration, lines: Sequence[LockedVolume], chosen: Collection[tuple[str, str]]) -> None:
    """InvalidInputError: a line would be kept, and there are two, as after a merge."""
    for key, both in fitting.list_doubled(lines).items():
        if key not in chosen:
            versions = " and ".join(each.version.hex()[:12] for each in both)
            raise InvalidInputError(
                f"{key[0]} is locked twice, to {versions}{fitting.say_lines(both)}",
                hint=fitting.hint_for_doubled(declared, [key]),
            )


def _require_locked(declared: Declaration, locked: set[tuple[str, str]]) -> None:
    """The first candidate's error for a volume of which no candidate exists."""
    for volume in declared.volumes:
        if volume.optional or not fitting.is_lockable(volume):
            continue
        keys = [(source, volume.store or "") for source in volume.candidates]
        if locked.isdisjoint(keys):
            _find(declared, volume, volume.candidates[0])


def _look(
    declared: Declaration, volume: DeclaredVolume, source: str, locked: LockedVolume | None, *, is_kept: bool
) -> tuple[LockedVolume, LocatedVersion] | None:
    """The line of one candidate, and its version. None: it does not exist, and is not locked."""
    if locked is not None and is_kept:
        return locked, _find_locked(declared, volume, locked)
    try:
        located = _find(declared, volume, source)
    except NotFoundError:
        if locked is not None:
            raise
        return None
    return LockedVolume(source, volume.store, located.named, content_ids.find_content_id(located)), located


def _find(declared: Declaration, volume: DeclaredVolume, source: str) -> LocatedVersion:
    """The version that a candidate means now."""
    store = targets.store_of(declared, volume)
    with hints.of_store(_url(store)):
        return sources.find(source, store).located().resolve()


def _find_locked(declared: Declaration, volume: DeclaredVolume, line: LockedVolume) -> LocatedVersion:
    """The locked version in the store that is declared now, which may be a mirror of the first."""
    store = targets.store_of(declared, volume)
    return targets.find_locked(declared, line, store).located().resolve()


def _url(store: Storage | None) -> str | None:
    return None if store is None else store.url


def _tag(located: LocatedVersion, tag: str) -> str:
    """Sets the tag that keeps the version; "" or why it cannot be set."""
    try:
        try:
            _set_tag(located, tag)
        except NotFoundError:  # a fork has it from its origin, and only there it can be tagged
            origin = located.read_manifest().volume
            if origin == located.name:
                raise
            _set_tag(replace(located, named=replace(located.named, volume=origin)), tag)
    except (AccessDeniedError, ReadOnlyError) as error:
        return (
            f"{located.name}@{located.id[:12]} is locked without a tag, so a prune of its store may delete it: "
            f"{error.message}. {Command('lock')} by a user who may write there adds the tag."
        )
    return ""


def _set_tag(located: LocatedVersion, tag: str) -> None:
    try:
        tagging.set_tag(located, tag, move=False, expect=None)
    except ConflictError as error:
        if error.details.get("version") != located.id:  # else another line or process has set it at the same time
            raise


def _stores(declared: Declaration) -> Iterator[Storage | None]:
    """The declared stores of volumes that can be locked, each once."""
    seen = set()
    for volume in declared.volumes:
        if fitting.is_lockable(volume) and volume.store not in seen:
            seen.add(volume.store)
            yield targets.store_of(declared, volume)


def _compare(before: Sequence[LockedVolume], made: LockFile) -> Iterator[LockedVersion]:
    was = {each.key: each for each in before}
    now = {each.key: each for each in made.volumes}
    for key in sorted(was.keys() | now.keys()):
        line, old = now.get(key), was.get(key)
        what: What = "added" if old is None else "removed" if line is None else "kept"
        if line is not None and old is not None and line.version != old.version:
            what = "updated"
        shown = line or old
        assert shown is not None
        tag = lock_tags.lock_tag(made.project, shown.version) if line is not None and line.is_tagged else None
        yield LockedVersion(
            *(what, shown.name, shown.store, str(shown.locator), shown.content_id, tag),
            before=str(old.locator) if old is not None and what == "updated" else None,
        )


def _new_project(file: Path) -> str:
    """The name of the file's directory, as far as it can be a part of a tag, and random digits:
    another project in a directory of that name has other tags."""
    name = "".join(each if each.isascii() and each.isalnum() else "-" for each in file.parent.name)
    name = name.strip("-")[:_LONGEST_NAME] or "project"
    return f"{name}-{clock.random_bytes(4).hex()}"
