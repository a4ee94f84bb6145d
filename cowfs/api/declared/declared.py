"""Declared: volumes, their mount paths and their stores, with all operations on them.

`plan().apply()`, `up` and `down` need a declaration that was loaded from a file, since their
effects are recorded under its name. `asynchronous` makes the async twin of `Declared`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cowfs.api.declared import emitting, found_files, loading, mounting
from cowfs.api.declared import plan as planning
from cowfs.api.declared.model import Declaration, content_of
from cowfs.api.twins.one_type import OneType

if TYPE_CHECKING:
    from cowfs.api.declared.declared_store import DeclaredStore
    from cowfs.api.declared.emitting import Kind
    from cowfs.api.declared.model import DeclaredVolume
    from cowfs.api.declared.mounting import HearsOutcome, Outcome
    from cowfs.api.declared.plan import Plan
    from cowfs.api.storage.definition import Storage
    from cowfs.version.commit import ProgressListener


class _DeclaredType(OneType, type(Declaration)):  # type: ignore[misc]
    """Of `OneType` and pydantic."""


class Declared(Declaration, metaclass=_DeclaredType):  # type: ignore[metaclass]
    """Volumes and the stores they are in. InvalidInputError reports all problems at once, with line
    numbers if they are in a file. `plan`, `up` and `down` need a declaration that was loaded from a
    file."""

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            volumes: Sequence[DeclaredVolume | Mapping[str, Any]] = (),
            stores: Mapping[str, DeclaredStore | Storage | Mapping[str, Any] | str] = ...,
        ) -> None: ...

    @staticmethod
    def load(path: str | os.PathLike[str] | None = None) -> Declared:
        """Loads that file; None: the nearest one upwards from the working directory, else the
        user's own. NotFoundError; InvalidInputError with the file and the key's path."""
        return loading.load(path, Declared)

    def allow(self) -> str:
        """Lets the file do, where it is found, what otherwise only a named file may do: mount
        outside of its own directory, and open stores elsewhere. Ends when the file changes. Returns
        the hash of its content."""
        content = content_of(self)
        found_files.allow_content(planning.file_of(self), content)
        return content

    @staticmethod
    def allow_content(path: str | os.PathLike[str], content: str) -> None:
        """As `allow`, for the content that the user has seen: its hash is in the details of the
        error that refused the file."""
        found_files.allow_content(Path(path), content)

    def plan(self, *, prune: bool = False, mounts: bool = True) -> Plan:
        """The steps that bring stores and this machine into the declared state. Nothing is written.
        prune: a volume that an earlier apply of this file has recorded, but that is no longer
        declared, is unmounted and dropped from the record. If that apply had created it, it is also
        deleted in its store. mounts: plan mounts, too. NotFoundError: a volume does not exist, and
        is neither optional nor to be created.
        """
        return planning.make(self, prune=prune, mounts=mounts)

    def plan_deletion(self) -> Plan:
        """The steps that undo the plans applied for this file. Each of its volumes is unmounted and
        dropped from the record. If a plan had created it, it is also deleted in its store. Nothing
        is written."""
        return planning.make_deletion(self)

    def emit(self, kind: Kind) -> str:
        """A script ("sh"), a service ("systemd") or a manifest ("k8s") that mounts the declared
        volumes. No store is queried, and no secret is read."""
        return emitting.emit(self, kind)

    @staticmethod
    def find(path: str | os.PathLike[str] | None = None) -> Path:
        """The file that `load` loads, which need not exist if it is named. NotFoundError: there is
        none."""
        return loading.find(path)

    @staticmethod
    def unmount(
        path: str | os.PathLike[str], *, force: bool = False, hears: HearsOutcome | None = None
    ) -> list[Outcome]:
        """As `down`, for a file that need not exist any more. hears: called with each outcome as it
        occurs."""
        return mounting.down(Path(path), force=force, hears=hears or _hear_nothing)

    def up(self, *, progress: ProgressListener | None = None, hears: HearsOutcome | None = None) -> list[Outcome]:
        """Mounts every volume at its path, or none. If a volume fails that is not optional, the
        mounts made by this call are unmounted again. hears: called with each outcome as it
        occurs."""
        return mounting.up(self, progress=progress, hears=hears or _hear_nothing)

    def down(self, *, force: bool = False) -> list[Outcome]:
        """Unmounts the volumes that `up` or a plan of this file has mounted. Uncommitted work is
        kept. A volume whose outcome has an error is still mounted."""
        return mounting.down(planning.file_of(self), force=force)


def _hear_nothing(outcome: Outcome) -> None:
    pass
