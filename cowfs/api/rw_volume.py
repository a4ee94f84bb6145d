"""RWVolume: the writable end of a volume, mounted on this machine. Blocking; `asynchronous` makes
its async twin.

    unclaimed ── resolve ── claimed ── mount ── mounted ── unmount ── claimed … ── finalize ── ended

resolve      opens the store and claims or finds the name; before that nothing was read or written anywhere
mounted      a daemon serves it; found through the registry, so that any process of the user can commit and unmount.
             A daemon that died leaves the volume claimed: the next mount resumes its work
ended        finalized: the line goes on, but through another object

    with Volume.new("my-dataset") as vol:            mounts; vol / "file" is a path below the mount
        (vol / "file").write_text("…")
                                                     normal exit: committed, unmounted, ended (finalize)
                                                     exception: unmounted, nothing published, work kept; a note says where

Work that is not committed lives in the working copy, never in this object. Threads: any; calls wait
for each other, commits in the daemon.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from cowfs import store as stores_layer
from cowfs.api import arguments, claiming, names, sources, stores
from cowfs.api.access.file_access import Opens, VolumeAccess
from cowfs.api.access.file_session import FileSession
from cowfs.api.access.used_files import UsedFiles
from cowfs.api.claiming import Claim
from cowfs.api.files import RWFiles
from cowfs.api.located import names_locator
from cowfs.api.mounts import (
    abandoned,
    folder,
    kept_work,
    launch,
    mount_paths,
    new_folders,
    new_mounts,
    overview,
    rescue,
    scratch,
    unmounted,
)
from cowfs.api.mounts.base import Mount, mount_of
from cowfs.api.mounts.summaries import MountSummary, WorkingCopySummary
from cowfs.api.mounts.used_mount import UsedMount
from cowfs.api.options import shows_options
from cowfs.api.provenance import commit_request
from cowfs.api.ro_volume import ROVolume, versions
from cowfs.api.storage.definition import Storage
from cowfs.api.transfers.transfer_report import Target
from cowfs.api.twins.one_type import OneType
from cowfs.api.upkeep import copied_stores
from cowfs.api.versions.changes import Change, Located
from cowfs.base import interruptible, log
from cowfs.base.errors import (
    ConflictError,
    CowfsError,
    InvalidStateError,
    LeaseHeldError,
    LeaseLostError,
    NotFoundError,
    UnavailableError,
)
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.control import MountOptions
from cowfs.control.messages import Left
from cowfs.control.options import CACHE_DEFAULTS, WriteOptions
from cowfs.folders import work_left
from cowfs.format.locator import Locator
from cowfs.format.manifest import Manifest
from cowfs.machine import registry, sharing
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import WorkingCopy
from cowfs.version.names import volumes
from cowfs.version.names.volumes import Head, Seen

if TYPE_CHECKING:
    from cowfs.api.versions.merge_report import MergeReport, Strategy
    from cowfs.version.commit import CommitRequest, ProgressListener

_log = log.get("volume")


class RWVolume(metaclass=OneType):
    """A volume to write to. Created by Volume.new, Volume.open and fork, never directly.

    Pickling is refused for a mounted volume (commit, and send the ROVolume), for a volume with
    uncommitted work here, and for a finalized object. Any other object pickles to its store and
    name. The volume is opened, or a new one is made, where it is first used.
    """

    def __init__(
        self, store: stores.Named, name: str, claim: Claim, *, strict: bool = False, compress: bool = True
    ) -> None:
        """claim: how resolve treats the name: create it (strict: refuse a taken one), find it, or
        either. compress: whether the contents of a new volume are compressed."""
        self._name = name
        self._named = store
        self._claim = claim
        self._is_strict = strict
        self._compress = compress
        self._store: stores.OpenStore | None = None
        self._has_made = False
        self._made_store: str | None = None
        self._version: VersionId | None = None
        self._head_number = 0
        self._seen: Seen | None = None
        self._ended = ""
        self._is_discarded = False
        self._options = MountOptions()
        self._mount_used = UsedMount()
        self._mutex = RLock()
        self._pid = os.getpid()
        self._forked_from: ROVolume | None = None
        self._files_used = UsedFiles()
        self.started: launch.Started | None = None
        """The daemon of the last mount that this object made."""

    @classmethod
    def made(cls, store: stores.OpenStore, head: Head, version: ROVolume | None) -> Self:
        """The volume that was just made with this head, from this version if one is given."""
        volume = cls(store.storage or store.url, head.volume, "existing")
        volume._adopt(store, head)
        volume._forked_from = version
        return volume

    # -- properties

    @property
    def name(self) -> str:
        """The volume's name. For a new volume, the first call that reaches the store determines it:
        a taken name gets a suffix."""
        return self._name

    @property
    def store_url(self) -> str | None:
        """The store's canonical URL after the first contact; before that the argument as given,
        None for the default store."""
        if self._store is not None:
            return self._store.url
        return self._named.url if isinstance(self._named, Storage) else self._named

    @property
    def locator(self) -> str | None:
        """Locator of the last committed version, or of a fresh fork's base; None before the first
        commit.

        InvalidStateError: the opened volume was not yet resolved (or awaited) or mounted.
        """
        if self._store is None and self._claim != "new":
            raise InvalidStateError(
                f"volume {self.name!r} has not been looked up yet", hint="Await it (or call resolve()), or mount it."
            )
        return str(self._locator(self._version)) if self._version is not None else None

    @property
    def forked_from(self) -> ROVolume | None:
        """The version from which the call that returned this object forked it; None for any other
        object."""
        return self._forked_from

    @property
    def path(self) -> Path:
        """Where the volume is mounted. InvalidStateError when it is not."""
        entry = self.live()
        if entry is None:
            raise InvalidStateError(f"volume {self.name!r} is not mounted", hint="Call mount() first.")
        return Path(entry.mount_path)

    @property
    def is_mounted(self) -> bool:
        return self.live() is not None

    @property
    def owns_mount(self) -> bool:
        """Whether a mount that this object made exists."""
        return self._mount_used.entry() is not None

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
        access = VolumeAccess(self._live_to_use, self._found_files, self._opened_files, self._newest_files)
        return RWFiles(access, self._committed_version, self)

    @names_locator
    def has_changes(self) -> bool:
        """Whether this machine has work of the volume that is in no version. Without a mount and
        without calls of `files` in this process, this is also True for changes that cancel out."""
        if self._found_files() is not None and (is_dirty := self._files_used.is_dirty()) is not None:
            return is_dirty
        if (entry := self.live()) is not None:
            return mount_of(entry).has_uncommitted()
        if self._is_unclaimed:
            return False
        working_copy = self.resolve()._working_copy()
        return working_copy.may_have_uncommitted or bool(kept_work.elsewhere(working_copy, self._opened()))

    @names_locator
    def diff(
        self,
        other: Located | None = None,
        *,
        path: str | os.PathLike[str] = "/",
        times: bool = False,
        renames: bool = True,
    ) -> Iterator[Change]:
        """Compares `other` with the volume as it is now, including uncommitted work, and returns
        each path that differs. other: a version of the same store, or a folder of one; None: the
        version that the work is based on, so that the result is what commit() would publish.

        The other arguments are those of a version's `diff`. Nothing is published. Bytes written
        since the last commit are read from this machine's disk, and commits wait meanwhile. For a
        copy, mounted or left with work, the folder is read as a commit reads it. ConflictError: a
        file in it changed during every attempt to read it.
        """
        from cowfs.api.mounts import work

        self._require_not_ended()
        version = versions([other])[0] if other is not None else None
        below = sources.place(f":{os.fspath(path)}").path
        return iter(work.compared(self, version, below, times=times, renames=renames).changes)

    @names_locator
    def status(self) -> MountSummary | WorkingCopySummary | None:
        """The entry that `cowfs status` shows for the volume: its writable mount here, else its
        working copy here, else None."""
        if (entry := self.live()) is not None:
            return overview.mount_summary(entry)
        return None if self._is_unclaimed else overview.working_copy_summary(self.resolve()._working_copy())

    @names_locator
    def history(self, limit: int | None = None) -> list[ROVolume]:
        """The volume's last version and its ancestors, newest first, at most `limit`; [] before the
        first commit."""
        arguments.limit(limit)
        if self._is_unclaimed:
            return []
        head = volumes.read_head(self.resolve()._opened().objects, self.name)
        return [] if head.version is None else self._ro(head.version).history(limit)

    def live(self) -> MountEntry | None:
        """The mount that writes to the volume on this machine, regardless of its creator: a
        writable mount, or a scratch mount that has become the volume."""
        if self._store is not None:
            return copied_stores.find_mount(self._store, self.name)
        if self._is_unclaimed:
            return None
        return registry.find_by_url(stores.canonical_url(self._named), self.name)

    # -- claiming

    @names_locator
    def resolve(self, *, accept_unsafe_store: bool = False, new_store: bool = False) -> Self:
        """Contacts the store and finds or creates the volume, without mounting it. In the async API
        `await volume` does the same.

        new_store: create a store even if this machine has used one there that is now missing.
        NotFoundError: no such volume. InvalidStateError: the store that was there is missing. Costs
        two or three requests the first time, none later.
        """
        with self._mutex:
            self._require_not_ended()
            if self._store is None:
                self._resolve(accept_unsafe_store, to_write=False, new_store=new_store)
            return self

    def _resolve(self, accept_unsafe_store: bool, *, to_write: bool, new_store: bool = False) -> None:
        if self._claim == "existing" and to_write:
            found = sources.find(self.name, self._named, to_write=True)
            assert found.head is not None
            self._adopt(found.store, found.head)
            return
        if self._claim == "existing":
            store = stores.open_store(self._named)
        else:
            is_new = self._claim == "new"
            store, has_made = stores.open_or_initialize(self._named, new_store=new_store, with_parents=is_new)
            self._made_store = store.url if has_made else None
            stores_layer.require_writable(store.record, accept_unsafe=accept_unsafe_store)
        head, self._has_made = claiming.head(
            store.objects, self.name, self._claim, strict=self._is_strict, compress=self._compress
        )
        self._adopt(store, head)

    # -- mounting

    @names_locator
    @shows_options(WriteOptions, CACHE_DEFAULTS)
    def mount(
        self,
        mount_path: str | os.PathLike[str] | None = None,
        *,
        options: MountOptions | None = None,
        progress: ProgressListener | None = None,
        **tuning: Unpack[WriteOptions],
    ) -> Path:
        """Mounts the volume writable and returns the directory. Mounting again returns the same
        directory, also from another process of this user. If another process is mounting it, the
        call waits for that mount.

        Processes, and objects in one process, share a mount in this way. finalize, and the end of a
        block, commit the writes of all of them, and the last one unmounts. If another party ends
        the mount, commit and finalize raise InvalidStateError until the volume is mounted again.

        mount_path: an empty directory, or a name in an existing one; None: one per volume under
        ~/cowfs. Uncommitted work of an earlier mount on this machine is restored; progress receives
        the state of its replay. cache_dir: the directory for chunks; cache_size: its maximum size
        ("20GiB"); meta_dir: the directory for uncommitted work; resident: load every name first;
        take_over: take the volume from a writer that is gone. `MountOptions` explains these and the
        other options. `options` accepts a `MountOptions`; options passed by name override it.
        LeaseHeldError: another writer has the volume; the message says who, where and since when.
        """
        chosen, hears = arguments.mount_options(options, tuning), arguments.listener(progress)
        with self._mutex:
            self._require_not_ended()
            if (entry := self._mount_used.at_its_path()) is not None:
                path = mount_paths.same(entry, mount_path)
                if interruptible.run(partial(self._mount_used.join, entry)):
                    return path
            mount_paths.check(mount_path)
            if self._store is None:
                self._resolve(chosen.accept_unsafe_store, to_write=True)
            self._end_files(force=False)
            return interruptible.run_with_listener(
                partial(self._mounted, mount_path, chosen), hears if progress is not None else None
            )

    def _mounted(self, given: new_mounts.Given, options: MountOptions, progress: ProgressListener) -> Path:
        while (path := self._share_or_mount(given, options, progress)) is None:
            pass
        self._options = options
        return path

    def _share_or_mount(
        self, given: new_mounts.Given, options: MountOptions, progress: ProgressListener
    ) -> Path | None:
        """None: the caller must try again."""
        store = self._opened()

        def find() -> MountEntry | None:
            entry = copied_stores.find_mount(store, self.name)
            if entry is None or not (mount := mount_of(entry)).keeps_work:
                return None
            return entry if mount.is_there() and mount_paths.is_same(entry, given) else None

        with mount_paths.turn(f"{store.record.store_id.hex()}/{self.name}", find) as may_make:
            if not options.take_over and (meta_dir := options.meta_path) is not None:
                place = copied_stores.locate(store, self.name, meta_dir=meta_dir).path
                if (entry := self.live()) is not None:
                    mount_of(entry).require_work_at(place, meta_dir)
            if not options.take_over:
                # Mounted by this user on this machine: a cell or task runs again, or several
                # workers share it.
                if (entry := self._mount_used.share(find, options, store.access)) is not None:
                    return Path(entry.mount_path)
                if may_make:
                    new_folders.require_none_elsewhere(store, self.name)
            return self._mount(given, options, progress) if may_make else None

    def _mount(self, given: new_mounts.Given, options: MountOptions, progress: ProgressListener) -> Path | None:
        """None: another process found and ended the mount before this object joined it."""
        self._mount_used.leave(None)
        store = self._opened()
        working_copy = copied_stores.locate(store, self.name, meta_dir=options.meta_path)
        seen, self._seen = self._seen, None  # it becomes stale
        try:
            made = new_mounts.of_volume(
                Target(self.name, store, working_copy),
                given,
                options,
                progress,
                head_number=self._head_number,
                version=self._version,
                seen=seen,
            )
        except LeaseHeldError as error:
            scratch.explain_lease(self.live(), error, self.name)
            raise
        self.started = made.started
        if made.started is not None and (ready := made.started.ready).head_number > self._head_number:
            self._head_number, self._version = ready.head_number, ready.version
        return made.path if self._mount_used.take(made, options) else None

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
        with self._mutex:
            self._require_not_ended()
            self._end_files(force=force)
            interruptible.run(partial(self._unmount, force=force))

    def _unmount(self, *, force: bool) -> None:
        entry = self.live()
        if not force and self._mount_used.is_left(f"volume {self.name!r}", entry):
            return
        if entry is not None and not force:
            mount_of(entry).require_nothing_lost()
        self._mount_used.end(entry, lambda mount: mount.unmount(force=force), force=force)
        if self._store is not None:
            self._working_copy().delete_if_committed()

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
        with self._mutex:
            self._require_not_ended()
            entry = self.live()
            if meta_dir is not None:
                named = self._find_kept_below(Path(os.path.abspath(os.path.expanduser(meta_dir))))
                if self._found_files() is not None and self._files_used.works_in(named):
                    self._end_files(force=force, discard=True)
                    return
                if entry is None or entry.working_copy != str(named.path):
                    interruptible.run(partial(unmounted.discard, self._opened(), named, force=force))
                    return
            elif self._end_files(force=force, discard=True):
                pass
            elif entry is None and self._claim != "new":
                self.resolve()
                if not self._end_files(force=force, discard=True):  # another object's, known by the store
                    used, store = self._working_copy(), self._opened()
                    if self._options.meta_path is None:
                        used = kept_work.to_discard(used, store)
                    interruptible.run(partial(unmounted.discard, store, used, force=force))
            if entry is not None and not force:
                self._mount_used.require_no_sharer(entry)

            def discard(mount: Mount) -> None:
                mount.discard(force=force, store=self._store)

            interruptible.run(partial(self._mount_used.end, entry, discard, force=force))
            self._is_discarded = True

    # -- committing

    @names_locator
    def commit(
        self,
        message: str = "",
        *,
        author: str | None = None,
        produced_by: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        progress: ProgressListener | None = None,
    ) -> ROVolume:
        """Publishes everything written before the call as a version. Writers can continue
        meanwhile, and the volume stays mounted.

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
        labels: Mapping[str, str] | None = None,
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
        with self._mutex:
            version = self._commit(request, progress)
            interruptible.run(partial(self._release, force))
            self._ended = "finalized"
            return version

    def _release(self, force: bool) -> None:
        """Releases a mount whose work is published. Errors here are not failures."""
        entry = self.live()
        if entry is not None and not force and not self._mount_used.is_last(entry):
            self._mount_used.leave_to_others(f"volume {self.name}")
            return
        trouble = self._mount_used.release(entry, force=force) if entry is not None else ""
        try:
            self._end_files(force=True)
            self._mount_used.leave(entry)
            self._working_copy().delete_if_committed()
        except (CowfsError, OSError) as error:
            trouble = trouble or str(error)
        if trouble:
            _log.warning("volume %s is published; what is left here: %s", self.name, trouble)

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
        with self._mutex:
            message = f"before the fork {name}" if name else "before a fork"
            if name is not None:
                names.checked(name)
            if (rescued := self._rescued_before(name)) is not None:
                return rescued
            if name is not None and strict and self.has_changes():  # a fork that is refused publishes nothing
                self.resolve()
                volumes.require_free(self._opened().objects, name)
            try:
                version = self._commit(replace(commit_request(message), given=frozenset()))
            except LeaseLostError:
                if (entry := self.live()) is not None and not mount_of(entry).keeps_work:
                    raise
                return self._rescue(name, strict=strict)
            except LeaseHeldError:
                if self.live() is not None or not self._is_left_alone():
                    raise
                return self._rescue(name, strict=strict)
            except ConflictError as error:
                if "newer_version" not in error.details:  # of a copy that was overtaken
                    raise
                return self._rescue(name, strict=strict)
            return version.fork(name, strict=strict)

    @names_locator
    def merge(
        self,
        branches: Sequence[Located],
        *,
        strategy: Strategy = None,
        message: str = "",
        dry_run: bool = False,
    ) -> MergeReport:
        """Merges versions, usually the last ones of forks, into this volume. The next version
        contains the changes that each of them has made since it diverged from the volume or from a
        common ancestor. No content is transferred. All are recorded as parents. Versions already
        merged are skipped; if none remains, no version is made (`is_new`).

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

        return merging.merge(self, versions(branches), strategy=strategy, message=message, dry_run=dry_run)

    def _commit(self, request: CommitRequest, progress: ProgressListener | None = None) -> ROVolume:
        """The daemon runs commits one after another and reports progress to all waiting callers. No
        lock is held for that."""
        hears = arguments.listener(progress)
        with self._mutex:
            self._require_not_ended()
            self.resolve()
            entry = self.live()
            self._mount_used.require_kept(self.name, entry)
        if entry is not None:
            try:
                done = mount_of(entry).commit(request, progress and hears, target=self._target(), options=self._options)
            except UnavailableError:
                if not mount_of(entry).has_left_work():
                    raise
                self._mount_used.require_kept(self.name, self.live())
            else:
                return self._committed(done.head_number, done.version, done.known, is_new=done.is_new)
        elif self._found_files() is not None and (made := self._files_used.commit(request, hears)) is not None:
            before, base = made
            assert base.version_id is not None
            return self._committed(base.head_number, base.version_id, base.manifest, is_new=base.version_id != before)
        # Not mounted, or its daemon has just died. Opening the volume shows whether that daemon
        # published.
        with self._mutex:
            store, working_copy = self._opened(), self._working_copy()
            if self._options.meta_path is None:
                kept_work.require_all(working_copy, store)
            head = volumes.read_head(store.objects, self.name)  # another writer may have committed since
            if working_copy.may_have_uncommitted or unmounted.is_commit_due(store, head, request):
                if working_copy.copy is not None:
                    base, _ = folder.commit(self._target(), self._options, request, hears)
                    if not work_left.tidy(working_copy):
                        working_copy.delete_if_committed()
                else:
                    base = unmounted.commit(store, working_copy, self._options, request, hears)
                assert base.version_id is not None
                before = head.version if entry is None else self._version
                return self._committed(base.head_number, base.version_id, is_new=base.version_id != before)
            assert head.version is not None
            is_new = entry is not None and head.version != self._version  # made by the daemon that died
            return self._committed(head.number, head.version, is_new=is_new)

    def _committed(
        self, head_number: int, version: VersionId, manifest: Manifest | None = None, *, is_new: bool
    ) -> ROVolume:
        with self._mutex:
            if head_number >= self._head_number:  # otherwise another commit has overtaken this one
                self._head_number, self._version = head_number, version
            return self._ro(version, manifest, is_new=is_new)

    def _is_left_alone(self) -> bool:
        """Whether this machine has uncommitted work that no process uses."""
        working_copy = self._working_copy()
        return working_copy.may_have_uncommitted and working_copy.holder() is None

    def _rescue(self, name: str | None, *, strict: bool) -> RWVolume:
        store, working_copy, options = self._opened(), self._working_copy(), self._options
        self._end_files(force=True)
        interruptible.run(partial(self._mount_used.end, self.live(), lambda mount: mount.unmount(), force=False))
        return self._rescued(*rescue.fork(store, working_copy, name, strict=strict), options)

    def _rescued_before(self, name: str | None) -> RWVolume | None:
        """Completes an earlier fork that was killed half way; None: nothing to complete."""
        if (self._claim == "new" and self._store is None) or self.live() is not None:
            return None
        self.resolve()
        found = rescue.ended(self._opened(), self.name, name)
        return None if found is None else self._rescued(*found, self._options)

    def _rescued(self, head: Head, base: Locator | None, options: MountOptions) -> RWVolume:
        store = self._opened()
        rescued = RWVolume.made(store, head, ROVolume(base, storage=store.storage) if base is not None else None)
        rescued._options = options
        return rescued

    # -- as a context, as a path, as a value

    def __enter__(self) -> Self:
        self._pid = os.getpid()
        try:
            self.mount()
        except BaseException as error:
            if self.owns_mount:  # interrupted after the mount was made
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
        elif not self._ended and not self._is_discarded:
            try:
                self.finalize()
            except BaseException as failure:
                self._abandon(failure)
                raise

    def _abandon(self, error: BaseException) -> None:
        if not self._ended and not self._is_discarded:
            abandoned.leave(self, error)

    def _committed_version(self) -> ROVolume:
        """The last version. InvalidStateError: there is work that is not in it."""
        if self.has_changes():
            raise InvalidStateError(
                f"volume {self.name!r} has uncommitted work on this machine, which a download would not have",
                hint=f"Commit first ({Command('commit')}, commit()); or download the last version, Volume.version(name).",
            )
        if not (found := self.history(1)):
            raise NotFoundError(f"volume {self.name!r} has no version yet", hint="Write to it, and commit().")
        return found[0]

    def mounted_here(self) -> MountEntry | None:
        """The volume's writable mount, if programs of this machine see it at its path."""
        self._require_not_ended()
        entry = self.live()
        return entry if entry is not None and mount_of(entry).is_there() else None

    def to_upload(self) -> Target:
        """Prepares the volume for publishing from this process without mount and session. A session
        that `files` has open ends, and its work is kept."""
        with self._mutex:
            self._require_not_ended()
            self.resolve()
            self._end_files(force=False)
            return self._target()

    def leave_work(self) -> bool:
        """Unmounts, unless other processes share the mount. Returns whether there is work that is
        in no version. A commit under way finishes first."""
        with self._mutex:
            self._end_files(force=True)
            entry = self.live()
            if self._mount_used.is_lost(entry):
                self._mount_used.forget()
                return self.has_changes()
            left = interruptible.run(partial(self._left, entry))
            if left is None:
                return self.has_changes()
            if left.version is not None:
                self._committed(left.head_number, left.version, is_new=False)
            return left.is_dirty

    def _left(self, entry: MountEntry | None) -> Left | None:
        """How the mount was left; None: it stays with others, or none exists."""
        if entry is None:
            self._mount_used.leave(None)
            return None
        if not self._mount_used.is_last(entry):
            self._mount_used.forget()
            return None
        try:
            left = mount_of(entry).unmount()
        except BaseException:
            sharing.forget(entry)
            raise
        self._mount_used.leave(entry)
        return left

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        return self.path / name

    def __reduce__(self) -> tuple[Any, ...]:
        self._require_not_ended()
        is_mounted = self.live() is not None
        if is_mounted or (self._store is not None and self._working_copy().may_have_uncommitted):
            what = "is mounted" if is_mounted else "has uncommitted work on this machine"
            raise InvalidStateError(
                f"volume {self.name!r} {what} and cannot be pickled",
                hint="Send what commit() or finalize() returns, or its locator.",
            )
        return (RWVolume, (self.store_url, self.name, self._claim))

    def __repr__(self) -> str:
        """Shows only local knowledge; makes no request."""
        parts = [repr(self.name)]
        if self.store_url is not None:
            parts.append(f"store={self.store_url!r}")
        if self._ended:
            parts.append(self._ended)
        elif (entry := self.live()) is not None:
            parts.append(f"mounted at {entry.mount_path!r}")
        elif self._store is None:
            parts.append("new" if self._claim == "new" else "not looked up yet")
        if self._version is not None:
            parts.append(f"version {self._version.hex()[:12]}")
        return f"RWVolume({', '.join(parts)})"

    # -- inside

    def _adopt(self, store: stores.OpenStore, head: Head) -> None:
        """From now on this object represents an existing volume."""
        self._claim = "existing"
        self._store, self._name = store, head.volume
        self._version, self._head_number = head.version, head.number
        self._seen = head.seen

    @property
    def _is_made_empty(self) -> bool:
        """Whether this object has made the volume and certainly no version of it. The outcome of
        putting a head may be unknown."""
        return self._has_made and self._version is None and not self._working_copy().may_have_uncommitted

    @property
    def _is_unclaimed(self) -> bool:
        """New, and not yet read or written anywhere."""
        return self._claim == "new" and self._store is None

    def _live_to_use(self) -> MountEntry | None:
        self._require_not_ended()
        return self.live()

    def _found_files(self) -> FileSession | None:
        """The session of the volume that is open in this process."""
        self._require_not_ended()
        return self._files_used.found(self._store, self.name)

    def _opened_files(self) -> FileSession:
        with self._mutex:
            self._require_not_ended()
            self.resolve()
            return self._files_used.opened(self._opened(), self._working_copy(), self._options)

    def _newest_files(self) -> Opens | None:
        self._require_not_ended()
        self.resolve()
        return self._files_used.newest(self._opened(), self._working_copy())

    def _end_files(self, *, force: bool, discard: bool = False) -> bool:
        """Whether a session was open here."""
        self._found_files()  # needed by end()
        return self._files_used.end(force=force, discard=discard)

    def _opened(self) -> stores.OpenStore:
        assert self._store is not None, "resolve comes first"
        return self._store

    def _target(self) -> Target:
        return Target(self.name, self._opened(), self._working_copy())

    def _working_copy(self) -> WorkingCopy:
        return copied_stores.locate(self._opened(), self.name, meta_dir=self._options.meta_path)

    def _find_kept_below(self, meta_dir: Path) -> WorkingCopy:
        """The place below it that has work."""
        found = copied_stores.locate(self.resolve()._opened(), self.name, meta_dir=meta_dir)
        if not found.is_kept:
            raise NotFoundError(
                f"no uncommitted work of volume {self.name!r} lies in {found.path}",
                hint=f"{Command('status')} shows where there is some; meta_dir is the directory above `working`.",
            )
        return found

    def _ro(self, version: VersionId, manifest: Manifest | None = None, *, is_new: bool = False) -> ROVolume:
        return ROVolume(self._locator(version), manifest, is_new=is_new, storage=self._opened().storage)

    def _locator(self, version: VersionId) -> Locator:
        return volumes.locator(self._opened().objects, self.name, version)

    def _require_not_ended(self) -> None:
        if self._ended:
            raise InvalidStateError(
                f"volume {self.name!r} was {self._ended}: this object cannot be used any more",
                hint=f"Volume.open({self.name!r}) goes on with the volume; forking the version starts another one.",
            )
