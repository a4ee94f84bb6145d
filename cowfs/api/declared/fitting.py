"""Compares a lock with the declaring file beside it. No store is asked.

    locked      read-only volumes: the version of each candidate that existed when it was locked
    not locked  writable volumes and paths of this machine; volumes with placeholders in their names, since another
                machine means other volumes

A lock fits if it has a version of every such volume that is not optional, and nothing else. A
newer version in the store changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cowfs.api.declared import lock_files, placeholders
from cowfs.api.declared.model import Declaration, DeclaredVolume, file_option, lock_of
from cowfs.base.errors import InvalidInputError
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.format.locator import Locator, is_locator
from cowfs.format.lock_file import LockedVolume


def is_lockable(volume: DeclaredVolume) -> bool:
    return volume.read_only and not placeholders.used([volume.name])


def lockable_sources(declared: Declaration) -> dict[tuple[str, str], DeclaredVolume]:
    """The candidates of volumes that can be locked, by the key of their lines, each with a volume
    that declares it."""
    return {
        (source, volume.store or ""): volume
        for volume in declared.volumes
        if is_lockable(volume)
        for source in volume.candidates
    }


def find_locked(declared: Declaration, volume: DeclaredVolume, source: str) -> LockedVolume | None:
    """The version that a candidate is locked to. None: there is no lock, or it has none."""
    lock = lock_of(declared) if is_lockable(volume) else None
    found = (each for each in lock.volumes if each.key == (source, volume.store or "")) if lock is not None else ()
    return next(iter(found), None)


def list_misfits(declared: Declaration) -> list[str]:
    """Why the lock does not fit; empty if it does, or if there is nothing to lock."""
    lock, wanted = lock_of(declared), lockable_sources(declared)
    if lock is None:
        assert declared.file is not None
        return [f"there is no {lock_files.path_of(declared.file)}"] if wanted else []
    lines = {each.key for each in lock.volumes}
    found = [f"{_name(key)} is locked twice{say_lines(both)}" for key, both in list_doubled(lock.volumes).items()]
    found += [f"{_name(key)} is locked, and not declared to be read" for key in sorted(lines) if key not in wanted]
    found += [
        f"{_name(each.key)} is locked to {each.locator.volume}@{each.version.hex()[:12]}"
        for each in lock.volumes
        if not is_of_its_volume(each)
    ]
    return [*found, *_list_unlocked(declared, lines)]


def list_doubled(lines: Iterable[LockedVolume]) -> dict[tuple[str, str], list[LockedVolume]]:
    """The keys of which there are different lines, as after a merge, with these lines."""
    found: dict[tuple[str, str], list[LockedVolume]] = {}
    for each in dict.fromkeys(lines):
        found.setdefault(each.key, []).append(each)
    return {key: found[key] for key in sorted(found) if len(found[key]) > 1}


def say_lines(volumes: Sequence[LockedVolume]) -> str:
    """Where these are in the file, as the end of a sentence; "" if that is not known."""
    numbers = [str(each.line) for each in volumes if each.line is not None]
    return f" (lines {' and '.join(numbers)})" if len(numbers) == len(volumes) else ""


def require_fitting(declared: Declaration) -> None:
    """InvalidInputError: there is a lock, and it does not fit."""
    lock = lock_of(declared)
    if lock is None or not (found := list_misfits(declared)):
        return
    assert declared.file is not None
    hint = f"{lock_command(declared)} brings it up to date; what is locked and still declared stays as it is."
    if doubled := list_doubled(lock.volumes):
        hint = hint_for_doubled(declared, doubled)
    path = lock_files.path_of(declared.file)
    raise InvalidInputError(
        f"{path} does not fit {declared.file}: {'; '.join(found)}",
        hint=hint,
        details={"misfits": found},
    )


def hint_for_doubled(declared: Declaration, keys: Iterable[tuple[str, str]]) -> str:
    names = sorted({name for name, _ in keys})
    update = [word for name in names for word in ("--update", name)]
    return f"Remove one of the two lines, or lock the last version: {lock_command(declared, *update)}."


def lock_command(declared: Declaration, *arguments: str) -> Command:
    return Command("lock", *file_option(declared), *arguments)


def _list_unlocked(declared: Declaration, lines: set[tuple[str, str]]) -> Iterator[str]:
    for volume in declared.volumes:
        found = [(source, volume.store or "") for source in volume.candidates]
        if is_lockable(volume) and not volume.optional and lines.isdisjoint(found):
            yield f"{_name(found[0])} is not locked"


def _name(key: tuple[str, str]) -> str:
    name, store = key
    return f"{name} of the store {store}" if store else name


def is_of_its_volume(line: LockedVolume) -> bool:
    """Whether the name of the line, as far as its text says, can mean the version that it locks."""
    source, locked = line.name, line.locator
    if is_locator(source):
        named = Locator.parse(source)
        return (named.volume, named.version) == (locked.volume, locked.version)
    name, _, at = source.partition("@")
    return name == locked.volume and (len(at) != 2 * VersionId.length or at == locked.version.hex())
