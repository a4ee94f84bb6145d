"""Declared: volumes, their mount paths and their stores, with all operations on them.

`plan().apply()`, `up` and `down` need a declaration that was loaded from a file, since their
effects are recorded under its name. `asynchronous` makes the async twin of `Declared`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cowfs.api.declared import cached_versions, emitting, fitting, found_files, loading, locking, mounting
from cowfs.api.declared import plan as planning
from cowfs.api.declared.model import Declaration, content_of
from cowfs.api.twins.one_type import OneType

if TYPE_CHECKING:
    from cowfs.api.declared.cleaning import CleanPlan
    from cowfs.api.declared.declared_store import DeclaredStore
    from cowfs.api.declared.emitting import Kind
    from cowfs.api.declared.locking import LockReport, ReleasedTag
    from cowfs.api.declared.model import DeclaredVolume
    from cowfs.api.declared.mounting import HearsOutcome, Outcome
    from cowfs.api.declared.plan import Plan
    from cowfs.api.storage.definition import Storage
    from cowfs.api.transfers.warming import WarmReport
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
            volumes: Sequence[DeclaredVolume | Mapping[str, Any] | str] = (),
            stores: Mapping[str, DeclaredStore | Storage | Mapping[str, Any] | str] = ...,
            root: str | None = None,
        ) -> None: ...

    @staticmethod
    def load(path: str | os.PathLike[str] | None = None) -> Declared:
        """Loads that file; None: the nearest one upwards from the working directory, else the
        user's own. NotFoundError; InvalidInputError with the file and the key's path."""
        return loading.load(path, Declared)

    @staticmethod
    def load_manifest(path: str | os.PathLike[str], *, root: str | os.PathLike[str] | None = None) -> Declared:
        """Loads the volumes that another program's TOML or YAML file lists by name, in `volumes` of
        its table `main`. They are read-only, and mounted at NAME or STORE/NAME below `root`; None:
        below `volumes` beside the file. Stores are those with a name on this machine.
        NotFoundError; InvalidInputError."""
        return loading.load_manifest(path, root, Declared)

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

    def plan_clean(self) -> CleanPlan:
        """Finds the volumes with `idle_delete` that were not used for that long, and what keeps the
        others. `apply` of the plan deletes them; `Store.undelete` restores them.

        Only volumes that the file declares writable count, and none with a tag, a pin, a lease, a
        mount or uncommitted work. Nothing is written. UnavailableError, AccessDeniedError,
        CorruptError: something that could keep a volume cannot be read."""
        from cowfs.api.declared import cleaning

        return cleaning.make(self)

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

    def lock(self, *, update: Sequence[str] = (), update_all: bool = False, dry_run: bool = False) -> LockReport:
        """Locks the read-only volumes to versions, in the lock file beside the file. Volumes that
        are locked keep their versions; others are locked to the version that their names mean now.
        Each version gets a tag, which keeps it from being pruned. The content id of a new version
        reads its whole index.

        update: names of volumes that are locked again; update_all: all of them. dry_run: neither
        the lock file nor a tag is written. NotFoundError: a volume that is not optional, or a
        locked version, does not exist."""
        return locking.lock(self, update=update, update_all=update_all, dry_run=dry_run)

    def find_misfits(self) -> list[str]:
        """Why the lock file does not fit the file, a text each; empty if it does. No store is
        asked. A lock that does not fit is refused by `plan`, `up` and `warm`."""
        return fitting.list_misfits(self)

    def release_lock(
        self, *, older: float | str = "30d", only: Sequence[ReleasedTag] | None = None, dry_run: bool = False
    ) -> list[ReleasedTag]:
        """Removes the tags of earlier locks of this project from the declared stores: those of
        versions that the lock file does not name now. Returns them. A prune may then delete the
        versions. Every copy and every branch of the project shares these tags: one that still locks
        such a version loses it.

        older: only tags that were set at least so long ago, in seconds or like "180d". only: of
        these alone, as a dry run has returned them. dry_run: remove none."""
        return locking.release(self, older=older, only=only, dry_run=dry_run)

    def warm(
        self,
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
        progress: ProgressListener | None = None,
        hears: HearsOutcome | None = None,
    ) -> list[WarmReport]:
        """`ROVolume.warm` of the version of every read-only volume, or of its subpath. hears:
        called for each optional volume that is skipped."""
        return cached_versions.warm(
            self, cache_dir=cache_dir, cache_size=cache_size, progress=progress, hears=hears or _hear_nothing
        )

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
