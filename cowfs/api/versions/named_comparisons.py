"""Compares versions named by SOURCE[:PATH] or NAME, as on a command line. This module finds the
versions; `comparing` or `work` does the rest."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cowfs.api import sources, stores
from cowfs.api.access.volume_handle import VolumeHandle
from cowfs.api.mounts import work
from cowfs.api.versions import cards, comparing
from cowfs.api.versions.changes import Change, Changes
from cowfs.api.versions.located_version import LocatedVersion
from cowfs.base.errors import InvalidInputError
from cowfs.format.locator import is_locator
from cowfs.version.named_changes import join_path


@dataclass(frozen=True)
class Diff:
    """What differs between two versions, or folders of them, or between a version and a volume as
    it is now, as `Store.diff` finds it. changes: in the order of paths. old None: before the first
    version."""

    old: LocatedVersion | None
    new: LocatedVersion | VolumeHandle
    changes: Changes

    @property
    def old_locator(self) -> str | None:
        """None: before the first version."""
        return self.old.locator if self.old is not None else None

    @property
    def new_locator(self) -> str | None:
        """None: the volume as it is now."""
        return self.new.locator if isinstance(self.new, LocatedVersion) else None

    def __repr__(self) -> str:
        return f"Diff({self._title}, {self.changes!r})"

    def _repr_html_(self) -> str:
        return cards.show_changes(self.changes, self._title)

    @property
    def _title(self) -> str:
        old = f"{self.old.name}@{self.old.id[:12]}" if self.old is not None else "nothing"
        id = f"@{self.new.id[:12]}" if isinstance(self.new, LocatedVersion) else " now"
        return f"{old} .. {self.new.name}{id}"

    def patch(self) -> Iterator[bytes]:
        """The parts of a patch for `git apply` and `patch -p1`, each of whole lines. Contents that
        differ are read. InvalidInputError: a renamed directory is one change in this diff; make it
        with renames=False."""
        from cowfs.api.versions import patches

        if any(each.kind == "renamed" and each.type == "directory" for each in self.changes):
            raise InvalidInputError("a patch renames files only", hint="Make the diff with renames=False.")
        return patches.of(self)


def compare(
    old: str, new: str, paths: Sequence[str], named: stores.Named, *, times: bool = False, renames: bool = True
) -> Diff:
    """Compares two SOURCE[:PATH] of the command line; paths: only these paths and below."""
    before, after = sources.find_version(old, named), sources.find_version(new, named)
    found = {
        change
        for path in paths or ("/",)
        for change in comparing.changes(before, after, path, times=times, renames=renames)
    }
    return Diff(before, after, _sort_pair(found))


def compare_with_work(
    old: str, new: str | None, paths: Sequence[str], named: stores.Named, *, times: bool = False, renames: bool = True
) -> Diff:
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
    return Diff(version, volume, _sort_pair(found))


def _name(text: str) -> str:
    """The name of a volume, for operations that need a volume."""
    place = sources.place(text)
    if "@" in place.source or is_locator(text):
        raise InvalidInputError(
            f"{text} is a version, and has no uncommitted work", hint="Give two versions, or the NAME of a volume."
        )
    return place.source


def _sort_pair(changes: Iterable[Change]) -> Changes:
    return Changes(sorted(changes, key=lambda each: (os.fsencode(each.path), each.kind != "removed")))
