"""RWVolume: the writable end of a volume, mounted on this machine. Blocking; `asynchronous` has its
async twin.

    unclaimed ── resolve ── claimed ── mount ── mounted ── unmount ── claimed … ── finalize ── ended

resolve      opens the store and claims or finds the name; before that nothing was read or written anywhere
mounted      a daemon serves it; found through the registry, so that another process than the one that mounted can commit
             and unmount. A daemon that died leaves the volume claimed: the next mount resumes its work
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
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from cowfs import apart, log
from cowfs import store as stores_layer
from cowfs.api import (
    abandoned,
    arguments,
    claiming,
    copied_stores,
    copies,
    kept_work,
    launch,
    mount_paths,
    mounts,
    names,
    new_mounts,
    overview,
    rescue,
    sources,
    stores,
    unmounted,
    used_mount,
)
from cowfs.api.changes import Change, Located
from cowfs.api.claiming import Claim
from cowfs.api.file_access import VolumeAccess
from cowfs.api.file_session import FileSession
from cowfs.api.files import RWFiles
from cowfs.api.located import names_locator
from cowfs.api.options import shows_options
from cowfs.api.overview import MountSummary, WorkingCopySummary
from cowfs.api.provenance import commit_request
from cowfs.api.ro_volume import ROVolume, versions
from cowfs.api.storage.storage import Storage
from cowfs.api.transfer_report import Target
from cowfs.api.used_files import UsedFiles
from cowfs.api.used_mount import UsedMount
from cowfs.control import MountOptions
from cowfs.control.messages import Left
from cowfs.control.options import CACHE_DEFAULTS, WriteOptions
from cowfs.errors import (
    ConflictError,
    CowfsError,
    InvalidStateError,
    LeaseHeldError,
    LeaseLostError,
    NotFoundError,
    UnavailableError,
)
from cowfs.format.locator import Locator
from cowfs.format.manifest import Manifest
from cowfs.ids import VersionId
from cowfs.machine import registry, sharing
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import WorkingCopy
from cowfs.version import volumes
from cowfs.version.volumes import Head, Seen

if TYPE_CHECKING:
    from cowfs.version.commit import CommitRequest, ProgressListener

_log = log.get("volume")


class RWVolume:
    """A volume to write to. Made by Volume.new, Volume.open and fork, never directly.

    Pickling: a mounted one is refused (commit, and send the ROVolume); so is one with uncommitted
    work here, or a finalized one. Any other pickles to its store and name: it is opened, or a new
    one is made, where it is first used.
    """

    def __init__(self, store: stores.Named, name: str, claim: Claim, *, strict: bool = False) -> None:
        """claim says what resolve does about the name: make it (strict: refuse a taken one), find
        it, or either."""
        self._name = name
        self._named = store
        self._claim = claim
        self._is_strict = strict
        self._store: stores.OpenStore | None = None
        self._has_made = False
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
        """The volume that was just made with this head, from this version if there is one."""
        volume = cls(store.storage or store.url, head.volume, "existing")
        volume._adopt(store, head)
        volume._forked_from = version
        return volume

    # -- what is known

    @property
    def name(self) -> str:
        """The volume's name. Of a new volume it is settled by the first call that reaches the
        store: a taken one gets a suffix."""
        return self._name

    @property
    def store_url(self) -> str | None:
        """The store's canonical URL once it was reached; before that what was given, None for the
        default store."""
        if self._store is not None:
            return self._store.url
        return self._named.url if isinstance(self._named, Storage) else self._named

    @property
    def locator(self) -> str | None:
        """Locator of the last committed version, of a fresh fork's base, or None before the first
        commit.

        InvalidStateError for an opened volume that nobody has resolved (or awaited) or mounted yet.
        """
        if self._store is None and self._claim != "new":
            raise InvalidStateError(
                f"volume {self.name!r} has not been looked up yet", hint="Await it (or call resolve()), or mount it."
            )
        return str(self._locator(self._version)) if self._version is not None else None

    @property
    def forked_from(self) -> ROVolume | None:
        """The version it was forked from, by the call that returned this object; None for any other
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
        """Whether a mount that this object made is there."""
        return self._mount_used.entry() is not None

    @property
    def files(self) -> RWFiles:
        """The volume's files, without a mount: through the mount, if the volume is mounted on this
        machine, else in this process. The first call does what mount() does, but for mounting:
        uncommitted work of this machine is there. LeaseHeldError: somebody else writes to this
        volume; it says who, where and since when."""
        return RWFiles(
            VolumeAccess(self._live_to_use, self._found_files, self._opened_files), self._committed_version, self
        )

    @names_locator
    def has_changes(self) -> bool:
        """Whether this machine has work of the volume that is in no version. Without a mount, and
        without calls of `files` in this process, also True for changes that cancel out."""
        if self._found_files() is not None and (is_dirty := self._files_used.is_dirty()) is not None:
            return is_dirty
        if (entry := self.live()) is not None:
            return mounts.has_uncommitted(entry)
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
        """What became of `other` in the volume as it is now, with work that is in no version: each
        path at which they differ. other: a version of the same store, or a folder of one; None: the
        version that the work stands on, so that it is what commit() would publish.

        The rest is as for `diff` of a version. Nothing is published. Bytes that were written since
        the last commit are read from this machine's disk, and commits wait meanwhile. Of a copy,
        mounted or left with work, the folder is read as a commit reads it. ConflictError: a file in
        it was written to each time it was read.
        """
        from cowfs.api import work

        self._require_not_ended()
        version = versions([other])[0] if other is not None else None
        below = sources.place(f":{os.fspath(path)}").path
        return iter(work.compared(self, version, below, times=times, renames=renames).changes)

    @names_locator
    def status(self) -> MountSummary | WorkingCopySummary | None:
        """What `cowfs status` shows of the volume: its writable mount here, else its working copy
        here, else None."""
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
        """The mount that writes to the volume on this machine, whoever made it: a writable one, or
        a scratch that has become the volume."""
        if self._store is not None:
            return copied_stores.find_mount(self._store, self.name)
        if self._is_unclaimed:
            return None
        return registry.find_by_url(stores.canonical_url(self._named), self.name)

    # -- claiming

    @names_locator
    def resolve(self, *, accept_unsafe_store: bool = False) -> Self:
        """Reaches the store and finds or makes the volume, without mounting; of an async one
        `await volume` does the same.

        NotFoundError: no such volume. Two or three requests the first time, none later.
        """
        with self._mutex:
            self._require_not_ended()
            if self._store is None:
                self._resolve(accept_unsafe_store, to_write=False)
            return self

    def _resolve(self, accept_unsafe_store: bool, *, to_write: bool) -> None:
        if self._claim == "existing" and to_write:
            found = sources.find(self.name, self._named, to_write=True)
            assert found.head is not None
            self._adopt(found.store, found.head)
            return
        if self._claim == "existing":
            store = stores.open_store(self._named)
        else:
            store = stores.open_or_initialize(self._named)
            stores_layer.require_writable(store.record, accept_unsafe=accept_unsafe_store)
        head, self._has_made = claiming.head(store.objects, self.name, self._claim, strict=self._is_strict)
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
        """Mounts the volume writable and returns the directory; mounting again returns the same,
        also from another process of this user: one that mounts it at this moment is waited for.

        Processes, and objects of one, share the mount so: finalize, and the end of a block, commit
        what all of them have written, and the last one unmounts. If the mount ends without this
        object, commit and finalize raise InvalidStateError until it is mounted again.

        mount_path: an empty directory, or a name in an existing one; None: one per volume under
        ~/cowfs. Uncommitted work of an earlier mount on this machine is there again; progress hears
        how far its replay is. cache_dir: where chunks lie; cache_size: the most it may hold
        ("20GiB"); meta_dir: where uncommitted work lies; resident: load every name first;
        take_over: from a writer that is gone. `MountOptions` explains these and the others, and
        `options` takes one; what is named besides wins. LeaseHeldError: somebody else writes to
        this volume; it says who, where and since when.
        """
        chosen, hears = arguments.mount_options(options, tuning), arguments.listener(progress)
        with self._mutex:
            self._require_not_ended()
            if (entry := self._mount_used.at_its_path()) is not None:
                path = mount_paths.same(entry, mount_path)
                if apart.run(partial(self._mount_used.join, entry)):
                    return path
            mount_paths.check(mount_path)
            if self._store is None:
                self._resolve(chosen.accept_unsafe_store, to_write=True)
            self._end_files(force=False)
            return apart.run_heard(partial(self._mounted, mount_path, chosen), hears if progress is not None else None)

    def _mounted(self, given: new_mounts.Given, options: MountOptions, progress: ProgressListener) -> Path:
        while (path := self._share_or_mount(given, options, progress)) is None:
            pass
        self._options = options
        return path

    def _share_or_mount(
        self, given: new_mounts.Given, options: MountOptions, progress: ProgressListener
    ) -> Path | None:
        """None: it has to be tried again."""
        store = self._opened()

        def find() -> MountEntry | None:
            entry = copied_stores.find_mount(store, self.name)
            if entry is None or entry.is_scratch:  # which keeps nothing, other than a mount of the volume
                return None
            return entry if mount_paths.is_there(entry) and mount_paths.is_same(entry, given) else None

        with mount_paths.turn(f"{store.record.store_id.hex()}/{self.name}", find) as may_make:
            if not options.take_over and (meta_dir := options.meta_path) is not None:
                place = copied_stores.locate(store, self.name, meta_dir=meta_dir).path
                used_mount.require_work_at(self.live(), place, meta_dir)
            if not options.take_over:
                # One of this user on this machine: a cell or a task is run again, or one of several workers.
                if (entry := self._mount_used.share(find, options, store.access)) is not None:
                    return Path(entry.mount_path)
                if may_make:
                    copies.require_none_elsewhere(store, self.name)
            return self._mount(given, options, progress) if may_make else None

    def _mount(self, given: new_mounts.Given, options: MountOptions, progress: ProgressListener) -> Path | None:
        """None: others have found and ended it before this object had a part of it."""
        self._mount_used.leave(None)
        store = self._opened()
        working_copy = copied_stores.locate(store, self.name, meta_dir=options.meta_path)
        seen, self._seen = self._seen, None  # it grows old
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
            entry = self.live()
            if entry is not None and entry.is_scratch and error.details.get("where") == entry.mount_path:
                error.set_hint(
                    f"It is a scratch of this machine. Work at {entry.mount_path}; or commit it, and unmount it, which drops "
                    f"what is not committed (`cowfs unmount {self.name} --commit`, commit()); or fork the volume."
                )
            raise
        self.started = made.started
        if made.started is not None and (ready := made.started.ready).head_number > self._head_number:
            self._head_number, self._version = ready.head_number, ready.version
        return made.path if self._mount_used.take(made, options) else None

    @names_locator
    def unmount(self, *, force: bool = False) -> None:
        """Unmounts and keeps uncommitted work for the next mount on this machine. A mount that this
        object has mounted, and others, or other processes of this user, have, too, stays with them,
        and one that `cowfs mount` was asked for. What `files` has opened in this process is closed.

        ConflictError while files are open, or when only other processes have mounted it;
        InvalidStateError: somebody else has ended the mount, or it is a scratch, which keeps
        nothing, with uncommitted work. force: unmounts all the same, and programs that use it get
        errors.
        """
        with self._mutex:
            self._require_not_ended()
            self._end_files(force=force)
            apart.run(partial(self._unmount, force=force))

    def _unmount(self, *, force: bool) -> None:
        entry = self.live()
        if not force and self._mount_used.is_left(f"volume {self.name!r}", entry):
            return
        if entry is not None and entry.is_scratch and not force and mounts.has_uncommitted(entry):
            raise InvalidStateError(
                f"volume {self.name!r} is written to by the scratch at {entry.mount_path}, which would drop what is not "
                "committed",
                hint="Commit it first (`cowfs commit`, commit()), or drop it: discard(), force=True.",
            )
        self._mount_used.end(entry, mounts.unmount, force=force)
        if self._store is not None:
            self._working_copy().delete_if_committed()

    @names_locator
    def discard(self, *, force: bool = False, meta_dir: str | os.PathLike[str] | None = None) -> None:
        """Unmounts and drops uncommitted work for good; the volume is again what its last version
        is. ConflictError while files are open, or others have it mounted, too; force: as for
        unmount.

        meta_dir: drops the work that lies there alone, also when that directory is not there any
        more; a mount of work elsewhere goes on. NotFoundError: no work is there. InvalidStateError:
        the volume is not mounted, and has work in several places; name one.
        """
        with self._mutex:
            self._require_not_ended()
            entry = self.live()
            if meta_dir is not None:
                named = self._kept_below(Path(os.path.abspath(os.path.expanduser(meta_dir))))
                if self._found_files() is not None and self._files_used.works_in(named):
                    self._end_files(force=force, discard=True)
                    return
                if entry is None or entry.working_copy != str(named.path):
                    apart.run(partial(unmounted.discard, self._opened(), named, force=force))
                    return
            elif self._end_files(force=force, discard=True):
                pass
            elif entry is None and self._claim != "new":
                self.resolve()
                if not self._end_files(force=force, discard=True):  # another object's, known by the store
                    used, store = self._working_copy(), self._opened()
                    if self._options.meta_path is None:
                        used = kept_work.to_discard(used, store)
                    apart.run(partial(unmounted.discard, store, used, force=force))
            if entry is not None and not force:
                self._mount_used.require_no_sharer(entry)
            apart.run(partial(self._mount_used.end, entry, partial(mounts.discard, store=self._store), force=force))
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
        """Publishes everything written before the call as a version; writers go on meanwhile, the
        volume stays mounted.

        Nothing changed: the last version again, its `is_new` False; but a message, author or labels
        that it does not have make a version of the same tree. Never mounted: the base, or an empty
        first version. LeaseLostError: somebody else took the volume over; the work is kept.
        progress is called with a `Progress`, from another thread than that of an async caller;
        first of a commit already under way, which is waited for.
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

        When committing fails the object lives on and finalize can be tried again; once the version
        is published it is returned, whatever happens to the mount. Programs that still have files
        open, or this process itself, keep them until they close them: the directory is gone all the
        same, and what they write from now on is not in this version: it stays on this machine as
        uncommitted work of the volume. force: they get errors instead. A mount that other objects,
        or processes of this user, have mounted, too, stays with them, but for force.
        """
        request = commit_request(message, author, produced_by, labels)
        with self._mutex:
            version = self._commit(request, progress)
            apart.run(partial(self._release, force))
            self._ended = "finalized"
            return version

    def _release(self, force: bool) -> None:
        """Lets go of a mount whose work is published: what goes wrong here is no failure any
        more."""
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
        """A new volume that starts from here; uncommitted work is committed first. Shares every
        byte: two small objects.

        The fork's `forked_from` tells whether that was so (`is_new`). A taken name becomes NAME-<6
        hex>; strict: ConflictError. When another writer has taken this volume over, uncommitted
        work can't be committed any more: it moves to the fork, unpublished, and this mount ends. So
        does work without a mount while another writer has the volume. That of a scratch stays
        there: LeaseLostError.
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
                if (entry := self.live()) is not None and entry.is_scratch:  # nothing of it outlives its mount
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

    def _commit(self, request: CommitRequest, progress: ProgressListener | None = None) -> ROVolume:
        """The daemon lets one commit follow the other, and tells all who wait how far it is: no
        lock is held for that."""
        hears = arguments.listener(progress)
        with self._mutex:
            self._require_not_ended()
            self.resolve()
            entry = self.live()
            self._mount_used.require_kept(self.name, entry)
        if entry is not None:
            try:
                done = mounts.commit(entry, request, progress and hears, target=self._target(), options=self._options)
            except UnavailableError:
                if entry.is_scratch or not mounts.has_died(entry):
                    raise
                self._mount_used.require_kept(self.name, self.live())
            else:
                return self._committed(done.head_number, done.version, done.known, is_new=done.is_new)
        elif self._found_files() is not None and (made := self._files_used.commit(request, hears)) is not None:
            before, base = made
            assert base.version_id is not None
            return self._committed(base.head_number, base.version_id, base.manifest, is_new=base.version_id != before)
        # Not mounted, or its daemon has just died: whether that had published is found out by
        # opening the volume.
        with self._mutex:
            store, working_copy = self._opened(), self._working_copy()
            if self._options.meta_path is None:
                kept_work.require_all(working_copy, store)
            head = volumes.read_head(store.objects, self.name)  # somebody may have gone on with it
            if working_copy.may_have_uncommitted or unmounted.is_commit_due(store, head, request):
                if working_copy.copy is not None:
                    base, _ = copies.commit(self._target(), self._options, request, hears)
                    if not copies.tidied(working_copy):
                        working_copy.delete_if_committed()
                else:
                    base = unmounted.commit(store, working_copy, self._options, request, hears)
                assert base.version_id is not None
                before = head.version if entry is None else self._version
                return self._committed(base.head_number, base.version_id, is_new=base.version_id != before)
            assert head.version is not None
            is_new = entry is not None and head.version != self._version  # of the daemon that died
            return self._committed(head.number, head.version, is_new=is_new)

    def _committed(
        self, head_number: int, version: VersionId, manifest: Manifest | None = None, *, is_new: bool
    ) -> ROVolume:
        with self._mutex:
            if head_number >= self._head_number:  # else another commit has overtaken this one
                self._head_number, self._version = head_number, version
            return self._ro(version, manifest, is_new=is_new)

    def _is_left_alone(self) -> bool:
        """Whether there is uncommitted work here that nobody is at."""
        working_copy = self._working_copy()
        return working_copy.may_have_uncommitted and working_copy.holder() is None

    def _rescue(self, name: str | None, *, strict: bool) -> RWVolume:
        store, working_copy, options = self._opened(), self._working_copy(), self._options
        self._end_files(force=True)
        apart.run(partial(self._mount_used.end, self.live(), mounts.unmount, force=False))
        return self._rescued(*rescue.fork(store, working_copy, name, strict=strict), options)

    def _rescued_before(self, name: str | None) -> RWVolume | None:
        """By a fork that was killed half way."""
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
        """The last version. InvalidStateError: there is work that it does not have."""
        if self.has_changes():
            raise InvalidStateError(
                f"volume {self.name!r} has uncommitted work on this machine, which a download would not have",
                hint="Commit first (`cowfs commit`, commit()); or download the last version, Volume.version(name).",
            )
        if not (found := self.history(1)):
            raise NotFoundError(f"volume {self.name!r} has no version yet", hint="Write to it, and commit().")
        return found[0]

    def mounted_here(self) -> MountEntry | None:
        """The volume's writable mount, if programs of this machine see it at its path."""
        self._require_not_ended()
        entry = self.live()
        return entry if entry is not None and mount_paths.is_there(entry) else None

    def to_upload(self) -> Target:
        """This process is going to publish without mount and session; one that `files` has open
        ends, and its work is kept."""
        with self._mutex:
            self._require_not_ended()
            self.resolve()
            self._end_files(force=False)
            return self._target()

    def leave_work(self) -> bool:
        """Unmounts, unless other processes share the mount; whether there is work that is in no
        version. A commit under way ends before."""
        with self._mutex:
            self._end_files(force=True)
            entry = self.live()
            if self._mount_used.is_lost(entry):
                self._mount_used.forget()
                return self.has_changes()
            left = apart.run(partial(self._left, entry))
            if left is None:
                return self.has_changes()
            if left.version is not None:
                self._committed(left.head_number, left.version, is_new=False)
            return left.is_dirty

    def _left(self, entry: MountEntry | None) -> Left | None:
        """How the mount was left; None: to others, or there is none."""
        if entry is None:
            self._mount_used.leave(None)
            return None
        if not self._mount_used.is_last(entry):
            self._mount_used.forget()
            return None
        try:
            left = mounts.unmount(entry)
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
        """What can be said without asking anybody."""
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
        """From now on this object stands for a volume that exists."""
        self._claim = "existing"
        self._store, self._name = store, head.volume
        self._version, self._head_number = head.version, head.number
        self._seen = head.seen

    @property
    def _is_made_empty(self) -> bool:
        """Whether this object has made the volume, and certainly no version of it: what became of a
        head that was put may not be known."""
        return self._has_made and self._version is None and not self._working_copy().may_have_uncommitted

    @property
    def _is_unclaimed(self) -> bool:
        """New, and nothing was read or written for it yet."""
        return self._claim == "new" and self._store is None

    def _live_to_use(self) -> MountEntry | None:
        self._require_not_ended()
        return self.live()

    def _found_files(self) -> FileSession | None:
        """The session that this process has open of the volume."""
        self._require_not_ended()
        return self._files_used.found(self._store, self.name)

    def _opened_files(self) -> FileSession:
        with self._mutex:
            self._require_not_ended()
            self.resolve()
            return self._files_used.opened(self._opened(), self._working_copy(), self._options)

    def _end_files(self, *, force: bool, discard: bool = False) -> bool:
        """Whether a session was open here."""
        return self._found_files() is not None and self._files_used.end(force=force, discard=discard)

    def _opened(self) -> stores.OpenStore:
        assert self._store is not None, "resolve comes first"
        return self._store

    def _target(self) -> Target:
        return Target(self.name, self._opened(), self._working_copy())

    def _working_copy(self) -> WorkingCopy:
        return copied_stores.locate(self._opened(), self.name, meta_dir=self._options.meta_path)

    def _kept_below(self, meta_dir: Path) -> WorkingCopy:
        """The place below it, which has work."""
        found = copied_stores.locate(self.resolve()._opened(), self.name, meta_dir=meta_dir)
        if not found.is_kept:
            raise NotFoundError(
                f"no uncommitted work of volume {self.name!r} lies in {found.path}",
                hint="`cowfs status` shows where there is some; meta_dir is the directory above `working`.",
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
