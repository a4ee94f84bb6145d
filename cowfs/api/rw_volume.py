"""RWVolume: the writable end of a volume, mounted on this machine. Blocking; `asynchronous` makes
its async twin.

    with Volume.new("my-dataset") as vol:            mounts; vol / "file" is a path below the mount
        (vol / "file").write_text("…")
                                                     normal exit: committed, unmounted, ended (finalize)
                                                     exception: unmounted, nothing published, work kept; a note says where

A daemon serves the mount. It is found through the registry, so that any process of the user can
commit and unmount. A daemon that died leaves the volume claimed: the next mount resumes its work.
Work that is not committed lives in the working copy, never in this object. Threads: any; calls wait
for each other, commits in the daemon.

This class holds a `VolumeHandle`, which knows the volume; functions of the package do the work with
it, and this class turns their results into objects.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

from cowfs.api import arguments, names, ro_volume, sources, stores
from cowfs.api.access.volume_handle import VolumeHandle
from cowfs.api.claiming import Claim
from cowfs.api.files import RWFiles
from cowfs.api.located import names_locator
from cowfs.api.mounts import overview, volume_mount
from cowfs.api.mounts.summaries import MountSummary, WorkingCopySummary
from cowfs.api.provenance import commit_request
from cowfs.api.ro_volume import ROVolume
from cowfs.api.signatures import shows_options
from cowfs.api.tasks import scope
from cowfs.api.twins.volume_fields import DATA_VERSION, VolumeField, read_data
from cowfs.api.versions import cards, committing
from cowfs.api.versions.changes import Changes, Source, Sources
from cowfs.api.versions.labels import Conditions, Labels
from cowfs.api.versions.version_list import VersionList
from cowfs.base import interruptible
from cowfs.base.errors import InvalidStateError
from cowfs.control import MountOptions
from cowfs.control.options import CACHE_DEFAULTS, Uncommitted, WriteOptions

if TYPE_CHECKING:
    from cowfs.api.versions.located_version import LocatedVersion
    from cowfs.api.versions.merge_report import MergeReport, Strategy
    from cowfs.version.commit import CommitRequest, ProgressListener


class RWVolume(VolumeField):
    """A volume to write to. Created by Volume.new, Volume.open and fork, never directly.

    Pickling is refused for a mounted volume (commit, and send the ROVolume), for a volume with
    uncommitted work here, and for a finalized object. Any other object pickles to its store and
    name. The volume is opened, or a new one is made, where it is first used.

    A field of a pydantic model may have this type: a name in a config opens the volume, and a
    locator is read as an ROVolume. The volume is written as the locator of its last version, on the
    same conditions as for a pickle.
    """

    def __init__(
        self,
        store: stores.Named,
        name: str,
        claim: Claim,
        *,
        strict: bool = False,
        compress: bool = True,
        owner: str | None = None,
        uncommitted: Uncommitted = "resume",
    ) -> None:
        """As for `VolumeHandle`."""
        handle = VolumeHandle(
            store, name, claim, strict=strict, compress=compress, owner=owner, uncommitted=uncommitted
        )
        self._hold(handle, None)

    def _hold(self, handle: VolumeHandle, forked_from: ROVolume | None) -> None:
        self._handle = handle
        self._forked_from = forked_from
        self._is_discarded = False
        self._pid = os.getpid()

    # -- properties

    @property
    def name(self) -> str:
        """The volume's name. For a new volume, the first call that reaches the store determines it:
        a taken name gets a suffix."""
        return self._handle.name

    @property
    def store_url(self) -> str | None:
        """The store's canonical URL after the first contact; before that the argument as given,
        None for the default store."""
        return self._handle.store_url

    @property
    def is_resolved(self) -> bool:
        """Whether the volume was found or created in its store, by any call."""
        return self._handle.store is not None

    @property
    def locator(self) -> str | None:
        """Locator of the last committed version, or of a fresh fork's base; None before the first
        commit.

        InvalidStateError: the opened volume was not yet resolved (or awaited) or mounted.
        """
        return self._handle.locator

    @property
    def forked_from(self) -> ROVolume | None:
        """The version from which the call that returned this object forked it; None for any other
        object."""
        return self._forked_from

    @property
    def path(self) -> Path:
        """Where the volume is mounted. InvalidStateError when it is not."""
        entry = self._handle.live()
        if entry is None:
            raise InvalidStateError(f"volume {self.name!r} is not mounted", hint="Call mount() first.")
        return Path(entry.mount_path)

    @property
    def is_mounted(self) -> bool:
        return self._handle.live() is not None

    @property
    def files(self) -> RWFiles:
        """The volume's files, without a mount. If the volume is mounted on this machine, they are
        accessed through that mount, otherwise in this process.

        The first call that writes opens the volume as mount() does, without mounting it.
        LeaseHeldError: another writer has the volume; the message says who, where and since when.
        Until then each call reads the version that is newest at that moment and blocks no writer.
        Such a call costs two requests; with `Volume.version(name).files`, which does not change, it
        costs none. If this machine has uncommitted work, a call that reads shows it and opens the
        volume as a writing call does.
        """
        return RWFiles(self._handle.access(), self._handle, self)

    @names_locator
    def has_changes(self) -> bool:
        """Whether this machine has work of the volume that is in no version. Without a mount and
        without calls of `files` in this process, this is also True for changes that cancel out."""
        return self._handle.has_changes()

    @names_locator
    def diff(
        self,
        other: Source | None = None,
        *,
        path: str | os.PathLike[str] = "/",
        times: bool = False,
        renames: bool = True,
    ) -> Changes:
        """Compares `other` with the volume as it is now, including uncommitted work, and returns
        each path that differs. other: a version of the same store, or a folder of one, or its name;
        None: the version that the work is based on, so that the result is what commit() would
        publish.

        The other arguments are those of a version's `diff`. Nothing is published. Bytes written
        since the last commit are read from this machine's disk, and commits wait meanwhile. For a
        copy, mounted or left with work, the folder is read as a commit reads it. ConflictError: a
        file in it changed during every attempt to read it.
        """
        from cowfs.api.mounts import work

        self._handle.require_not_ended()
        version = ro_volume.find_version(other, self._handle.named) if other is not None else None
        below = sources.place(f":{os.fspath(path)}").path
        return Changes(work.compared(self._handle, version, below, times=times, renames=renames).changes)

    @names_locator
    def status(self) -> MountSummary | WorkingCopySummary | None:
        """The entry that `cowfs status` shows for the volume: its writable mount here, else its
        working copy here, else None."""
        found = self._find_status()
        self._handle.learn_work(found)
        return found

    def _find_status(self) -> MountSummary | WorkingCopySummary | None:
        if (entry := self._handle.live()) is not None:
            return overview.mount_summary(entry)
        if self._handle.is_unclaimed:
            return None
        self._handle.resolve()
        return overview.working_copy_summary(self._handle.working_copy())

    @names_locator
    def history(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        labels: Conditions | None = None,
        limit: int | None = None,
    ) -> list[ROVolume]:
        """The volume's last version and its ancestors, newest first, at most `limit`; [] before the
        first commit. path, labels: only the versions that changed this path, or whose labels meet
        these conditions, as for `ROVolume.history`."""
        arguments.limit(limit)
        arguments.require_path(path)
        last = self._handle.last_version()
        return VersionList() if last is None else ro_volume.make_version(last).history(path, labels=labels, limit=limit)

    # -- claiming and mounting

    @names_locator
    def resolve(self, *, accept_unsafe_store: bool = False, new_store: bool = False) -> Self:
        """Contacts the store and finds or creates the volume, without mounting it. In the async API
        `await volume` does the same.

        new_store: create a store even if this machine has used one there that is now missing.
        NotFoundError: no such volume. InvalidStateError: the store that was there is missing. Costs
        two or three requests the first time, none later.
        """
        self._handle.resolve(accept_unsafe_store=accept_unsafe_store, new_store=new_store)
        return self

    @names_locator
    @shows_options(WriteOptions, CACHE_DEFAULTS)
    def mount(
        self,
        mount_path: str | os.PathLike[str] | None = None,
        *,
        options: MountOptions | None = None,
        progress: ProgressListener | None = None,
        wait: float | str | None = None,
        **tuning: Unpack[WriteOptions],
    ) -> Path:
        """Mounts the volume writable and returns the directory. Mounting again returns the same
        directory, also from another process of this user. If another process is mounting it, the
        call waits for that mount.

        Processes, and objects in one process, share a mount in this way. finalize, and the end of a
        block, commit the writes of all of them, and the last one unmounts. If another party ends
        the mount, commit and finalize raise InvalidStateError until the volume is mounted again.

        mount_path: an empty directory, or a new one; missing parents are made below the user's home
        only. None: one per volume under ~/cowfs. Uncommitted work of an earlier mount on this
        machine is restored, with a warning in the log; progress receives the state of its replay.
        uncommitted: "discard" drops that work, "refuse" raises InvalidStateError. cache_dir: the
        directory for chunks; cache_size: its maximum size ("20GiB"); meta_dir: the directory for
        uncommitted work; resident: load every name first; take_over: take the volume from a writer
        that is gone. `MountOptions` explains these and the other options. `options` accepts a
        `MountOptions`; options passed by name override it.

        wait: seconds, or a duration like "150s", to wait for another writer to end or for its lease
        to run out, which takes 120 s after its death; None: do not wait. The log says who has the
        volume, and progress receives the stage "wait". LeaseHeldError: another writer has the
        volume; the message says who, where and since when.
        """
        waits_s = arguments.wait_s(wait)
        chosen, hears = arguments.mount_options(options, tuning), arguments.listener(progress)
        if chosen.uncommitted == "resume" and "uncommitted" not in tuning:
            chosen = replace(chosen, uncommitted=self._handle.uncommitted)
        had_mount = self._has_own_mount()
        try:
            said = hears if progress is not None else None
            return volume_mount.mount(self._handle, mount_path, chosen, said, wait_s=waits_s)
        finally:
            if not had_mount and self._has_own_mount():
                scope.note_mounted(self)

    @names_locator
    def unmount(self, *, force: bool = False) -> None:
        """Unmounts and keeps uncommitted work for the next mount on this machine. A mount stays if
        other objects or other processes of this user share it, or if `cowfs mount` created it. A
        session that `files` has opened in this process is closed.

        ConflictError: files are open, or only other processes have mounted the volume.
        InvalidStateError: another party has ended the mount, or it is a scratch mount, which keeps
        nothing, with uncommitted work. force: unmount all the same; programs that use the mount get
        errors.
        """
        volume_mount.unmount(self._handle, force=force)

    @names_locator
    def discard(self, *, force: bool = False, meta_dir: str | os.PathLike[str] | None = None) -> None:
        """Unmounts and permanently discards uncommitted work; the volume then equals its last
        version. In a copy (a mount without FUSE), files that differ from that version stay in the
        folder. ConflictError: files are open, or others have it mounted, too; force: as for
        unmount.

        meta_dir: discard only the work in that directory, even if the directory no longer exists; a
        mount with work elsewhere continues. NotFoundError: there is no work there.
        InvalidStateError: the volume is not mounted and has work in several places; pass one.
        """
        with self._handle.mutex:
            self._is_discarded = (
                volume_mount.discard(self._handle, force=force, meta_dir=meta_dir) or self._is_discarded
            )

    # -- committing

    @names_locator
    def commit(
        self,
        message: str = "",
        *,
        author: str | None = None,
        produced_by: Mapping[str, str] | None = None,
        labels: Labels | None = None,
        progress: ProgressListener | None = None,
    ) -> ROVolume:
        """Publishes everything written before the call as a version. Writers can continue
        meanwhile, and the volume stays mounted.

        labels: texts, ints, finite floats and bools by name, such as {"loss": 0.25, "best": True}.
        The version has them as texts (`0.25`, `true`), and `history(labels="loss<0.5")` finds it.

        If nothing changed, the last version is returned with `is_new` False. A message, author or
        labels that it does not have still make a version of the same tree. If the volume was never
        mounted, the base or an empty first version is returned. LeaseLostError: another writer took
        the volume over; the work is kept. progress is called with a `Progress`, from another thread
        than that of an async caller. It first reports a commit already under way, which this call
        waits for.
        """
        return self._commit(commit_request(message, author, produced_by, labels), progress)

    @names_locator
    def finalize(
        self,
        message: str = "",
        *,
        author: str | None = None,
        produced_by: Mapping[str, str] | None = None,
        labels: Labels | None = None,
        progress: ProgressListener | None = None,
        force: bool = False,
    ) -> ROVolume:
        """Commits, unmounts and ends this object: every later call raises InvalidStateError.

        If the commit fails, the object stays usable and finalize can be repeated. Once the version
        is published it is returned, even if unmounting fails. Programs that still have files open,
        this process included, keep them until they close them. The directory is removed all the
        same. Later writes to these files are not in this version: they stay on this machine as
        uncommitted work of the volume. force: such programs get errors instead. A mount that other
        objects or processes of this user share stays, unless force is set.
        """
        request = commit_request(message, author, produced_by, labels)
        with self._handle.mutex:
            version = self._commit(request, progress)
            interruptible.run(partial(volume_mount.release, self._handle, force=force))
            self._handle.ended = "finalized"
            return version

    @names_locator
    def fork(self, name: str | None = None, *, strict: bool = False) -> RWVolume:
        """A new volume that starts from here; uncommitted work is committed first. It shares every
        byte and costs two small objects.

        The fork's `forked_from` tells whether that commit made a version (`is_new`). A taken name
        becomes NAME-<6 hex>; strict: ConflictError. If another writer has taken this volume over,
        uncommitted work can no longer be committed: it moves to the fork, unpublished, and this
        mount ends. The same applies to work without a mount while another writer has the volume.
        Work of a scratch mount stays there: LeaseLostError.
        """
        from cowfs.api.versions import forking

        made = forking.fork_volume(self._handle, name, strict=strict)
        return make_volume(made.volume, ro_volume.make_version(made.base) if made.base is not None else None)

    @names_locator
    def merge(
        self,
        branches: Sources,
        *,
        strategy: Strategy = None,
        message: str = "",
        author: str | None = None,
        labels: Labels | None = None,
        dry_run: bool = False,
    ) -> MergeReport:
        """Merges versions, usually the last ones of forks, into this volume. They are given as
        objects or by name: NAME (its last version), NAME@TAG, NAME@VERSION or a locator; one, or
        several in a sequence. The next version contains the changes that each of them has made
        since it diverged from the volume or from a common ancestor. No content is transferred. All
        are recorded as parents. Versions already merged are skipped; if none remains, no version is
        made (`is_new`).

        strategy: how to resolve conflicting changes: a dict from path patterns, as in .gitignore,
        to one of `ours` (the volume's state, or that of an earlier branch), `theirs`, `newest` (by
        modification time), `keep-both` (theirs as PATH~BRANCH), `union` (for files that were only
        appended to: ours, then the bytes appended by theirs) and `fail`; one such word for all
        paths; or a function from a `Conflict` to one. Without a strategy, or if it does not fit the
        conflict, ConflictError is raised, its `details["conflicts"]` lists all conflicts, and
        nothing is published. dry_run: nothing is published and conflicts raise nothing.

        ConflictError is also raised while the volume is mounted here. InvalidStateError: the volume
        has uncommitted work here, or a branch has no version in common with it.
        """
        from cowfs.api.versions import merging

        located = ro_volume.find_versions(branches, self._handle.named)
        request = commit_request(message, author, None, labels)
        return merging.merge(self._handle, located, request, strategy=strategy, dry_run=dry_run)

    def _commit(self, request: CommitRequest, progress: ProgressListener | None) -> ROVolume:
        return ro_volume.make_version(committing.commit(self._handle, request, progress))

    # -- as a context, as a path, as a value

    def __enter__(self) -> Self:
        self._pid = os.getpid()
        try:
            self.mount()
        except BaseException as error:
            if self._has_own_mount():  # interrupted after the mount was made
                self._abandon(error)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if os.getpid() != self._pid:
            return  # a forked child leaves the block too; the mount is its parent's
        if error is not None:
            self._abandon(error)
        elif not self.is_over:
            try:
                self.finalize()
            except BaseException as failure:
                self._abandon(failure)
                raise

    @property
    def is_over(self) -> bool:
        """Whether it was finalized or discarded."""
        return bool(self._handle.ended) or self._is_discarded

    def _has_own_mount(self) -> bool:
        return self._handle.mount_used.entry() is not None

    def leave(self, error: BaseException) -> None:
        """Unmounts after an error without publishing, and logs where uncommitted work is. `error`
        gets the same text as a note, and no other error is raised. Programs that have files open
        get errors. A mount that others share stays."""
        if not self.is_over:
            volume_mount.abandon(self._handle, error, force=True, is_logged=True)

    def _abandon(self, error: BaseException) -> None:
        if not self.is_over:
            volume_mount.abandon(self._handle, error)

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        return self.path / name

    def __reduce__(self) -> tuple[Any, ...]:
        self._handle.require_not_ended()
        is_mounted = self.is_mounted
        if is_mounted or (self._handle.store is not None and self._handle.working_copy().may_have_uncommitted):
            what = "is mounted" if is_mounted else "has uncommitted work on this machine"
            raise InvalidStateError(
                f"volume {self.name!r} {what} and cannot be pickled",
                hint="Send what commit() or finalize() returns, or its locator.",
            )
        return (RWVolume, (self.store_url, self.name, self._handle.claim))

    __version__: ClassVar[int] = DATA_VERSION

    def serialize(self) -> dict[str, str]:
        """For task systems that keep values as JSON (Airflow's XCom): {"locator": …}, of the last
        version. InvalidStateError: the volume is mounted, has uncommitted work here, or has no
        version."""
        return {"locator": self._require_committed().locator}

    @staticmethod
    def deserialize(data: Mapping[str, str], version: int = DATA_VERSION) -> RWVolume | ROVolume:
        """The version that `serialize` named; if "locator" is a name, that volume, to write to.
        Nothing is requested. version: of the data."""
        text = read_data(data, version)
        if sources.names_version(text):
            return ro_volume.make_sought_version(text)
        return RWVolume(None, names.checked(text), "existing")

    def __dask_tokenize__(self) -> tuple[str, ...]:
        """A request: another process may have committed."""
        located = self._require_committed()
        return ("cowfs", located.named.store_url, located.id, "")

    def _require_committed(self) -> LocatedVersion:
        """The last version. InvalidStateError: it is not all that there is, or there is none. Only
        the text of the message reaches users of task systems."""
        self._handle.require_not_ended()
        found = None
        if self.is_mounted:
            problem = "is mounted"
        elif self._handle.store is None and self._handle.claim != "existing":
            problem = "was not made yet"  # and this call does not make it
        elif self._handle.has_changes():
            problem = "has uncommitted work on this machine"
        else:
            problem, found = "has no version yet", self._handle.last_version()
        if found is None:
            raise InvalidStateError(
                f"volume {self.name!r} {problem}: return it from a @cowfs.task, or commit it",
                hint="Then pass on what commit() or finalize() returned, or its locator.",
            )
        return found

    def __repr__(self) -> str:
        """Shows only local knowledge; makes no request."""
        parts, handle = [repr(self.name)], self._handle
        if self.store_url is not None:
            parts.append(f"store={self.store_url!r}")
        if handle.ended:
            parts.append(handle.ended)
        elif (entry := handle.live()) is not None:
            parts.append(f"mounted at {entry.mount_path!r}")
        elif handle.store is None:
            parts.append("new" if handle.is_unclaimed else "not looked up yet")
        if handle.version is not None:
            parts.append(f"version {handle.version.hex()[:12]}")
        return f"RWVolume({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """A card for notebooks. uncommitted: as the last `status()` said."""
        handle = self._handle
        locator = self.locator if self.is_resolved else None
        new = "" if self.is_resolved else "new" if handle.is_unclaimed else "not looked up yet"
        return cards.show_volume(
            self.name, self.store_url, locator, handle.mount_used.path, handle.known, handle.ended or new
        )


def make_volume(handle: VolumeHandle, version: ROVolume | None = None) -> RWVolume:
    """The object for a handle. version: the version that the volume was just forked from."""
    volume = RWVolume.__new__(RWVolume)
    volume._hold(handle, version)
    return volume


def get_handle(volume: RWVolume) -> VolumeHandle:
    """The volume, for functions that take no object."""
    return volume._handle
