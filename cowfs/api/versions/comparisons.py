"""Compares versions named by SOURCE[:PATH] or NAME, as on a command line. This module finds the
versions; `comparing` or `work` does the rest."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from cowfs.api import sources, stores
from cowfs.api.access.volume_handle import VolumeHandle
from cowfs.api.mounts import work
from cowfs.api.versions import comparing
from cowfs.api.versions.changes import Change
from cowfs.api.versions.located_version import LocatedVersion
from cowfs.base.errors import InvalidInputError
from cowfs.base.fast_dataclass import dataclass
from cowfs.format.locator import is_locator
from cowfs.version.named_changes import join_path


@dataclass(frozen=True)
class Compared:
    """Two versions, or folders of them, by their locators; or a version and a volume as it is now.
    old None: before the first version."""

    old: LocatedVersion | None
    new: LocatedVersion | VolumeHandle
    changes: list[Change]


def compare(
    old: str, new: str, paths: Sequence[str], named: stores.Named, *, times: bool = False, renames: bool = True
) -> Compared:
    """Compares two SOURCE[:PATH] of the command line; paths: only these paths and below."""
    before, after = sources.find_version(old, named), sources.find_version(new, named)
    found = {
        change
        for path in paths or ("/",)
        for change in comparing.changes(before, after, path, times=times, renames=renames)
    }
    return Compared(before, after, _sort_pair(found))


def compare_with_work(
    old: str, new: str | None, paths: Sequence[str], named: stores.Named, *, times: bool = False, renames: bool = True
) -> Compared:
    """Compares with uncommitted work included. old: SOURCE[:PATH], new: NAME; new None: old is
    NAME[:PATH], and the work is compared with its base."""
    place = sources.place(old)
    volume = VolumeHandle(named, _name(old if new is None else new), "existing")
    volume.resolve()
    given = sources.find_version(old, named) if new is not None else None
    above = place.path if new is None else b""
    found: set[Change] = set()
    version = given
    for path in paths or ("/",):
        done = work.compared(
            volume, given, join_path(above, sources.place(f":{path}").path), times=times, renames=renames
        )
        found.update(done.changes)
        if given is None and done.version is not None:
            version = volume.locate(done.version)
    return Compared(version, volume, _sort_pair(found))


def _name(text: str) -> str:
    """The name of a volume, for operations that need a volume."""
    place = sources.place(text)
    if "@" in place.source or is_locator(text):
        raise InvalidInputError(
            f"{text} is a version, and has no uncommitted work", hint="Give two versions, or the NAME of a volume."
        )
    return place.source


def _sort_pair(changes: Iterable[Change]) -> list[Change]:
    return sorted(changes, key=lambda each: (os.fsencode(each.path), each.kind != "removed"))
