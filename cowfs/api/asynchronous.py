"""The async twins of the public classes: the same names and arguments, awaited; under asyncio and
trio alike.

Generated from the blocking classes by `python -m tests.api.async_twin`; change those, not this
file. Every call runs in a worker thread (`cowfs.api.twins`), so that the event loop goes on. A
cancelled call still runs to its end there, and its caller waits for it: nothing is left half done.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Self, Unpack

import anyio

from cowfs.api import files, ro_volume, rw_volume
from cowfs.api import store as store_module
from cowfs.api import volume as volume_module
from cowfs.api.files import Entry, FilePath
from cowfs.api.mounts.overview import VolumeSummary
from cowfs.api.mounts.summaries import MountSummary, WorkingCopySummary
from cowfs.api.options import shows_options
from cowfs.api.storage.definition import Storage
from cowfs.api.threads import iterated
from cowfs.api.transfers.downloading import Overwrite
from cowfs.api.transfers.transfer_report import TransferReport
from cowfs.api.transfers.warming import WarmReport
from cowfs.api.twins import Twin, VolumeTwin
from cowfs.api.upkeep.collect_report import GcReport
from cowfs.api.upkeep.counting import By
from cowfs.api.upkeep.pruning import PlannedVersion, PrunePlan
from cowfs.api.versions.changes import Change, Located
from cowfs.api.versions.details import VolumeDetails
from cowfs.api.versions.merge_report import MergeReport, Strategy
from cowfs.api.versions.restoring import RestoreReport
from cowfs.api.versions.tagging import Tag
from cowfs.control import MountOptions
from cowfs.control.options import CACHE_DEFAULTS, ReadOptions, WriteOptions
from cowfs.format.locator import Locator
from cowfs.format.manifest import Stats
from cowfs.maintain.check.verify_report import VerifyReport
from cowfs.maintain.copy.push_report import PushReport
from cowfs.maintain.repairs.repair_plan import RepairPlan
from cowfs.maintain.stored_report import StoredBytes
from cowfs.version.commit import ProgressListener
from cowfs.version.retention.retention import KeepRules, Rules

__all__ = ["ROFiles", "ROVolume", "RWFiles", "RWVolume", "Store", "Volume", "volume"]


class ROFiles(Twin, of=files.ROFiles):
    """The files of a version, or of one folder of it, as returned by `ROVolume.files`. Pickles as
    the version does."""

    _blocking: files.ROFiles

    def ls(self, path: FilePath | Entry = "/", recursive: bool = False) -> AsyncIterator[Entry]:
        """The entries of a directory, by name; for anything else, its own entry. recursive: include
        everything below, each directory before its contents; links are not followed.
        FileNotFoundError."""
        return iterated(partial(self._blocking.ls, path, recursive))

    async def stat(self, path: FilePath | Entry = "/", *, follow: bool = True) -> Entry:
        """The entry at a path. follow: if the path names a link, return its target instead of the
        link. FileNotFoundError."""

    async def exists(self, path: FilePath | Entry) -> bool:
        """Whether a path exists; for a link, whether its target does."""

    def glob(self, pattern: FilePath) -> AsyncIterator[Entry]:
        """The entries that match a pattern: within a name as in the shell (`*`, `?`, `[…]`, and
        `\\` before a literal character), and `**` for any number of directories. A link is followed
        only where the pattern contains its whole name."""
        return iterated(partial(self._blocking.glob, pattern))

    def walk(self, path: FilePath | Entry = "/") -> AsyncIterator[tuple[str, list[Entry], list[Entry]]]:
        """Walks the tree as os.walk does, top down. Yields a directory's path, its subdirectories
        and its other entries. Subdirectories that the caller removes from the second are
        skipped."""
        return iterated(partial(self._blocking.walk, path), 1)

    async def read(self, path: FilePath | Entry, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes of a file; length None: to the end. Returns fewer bytes at the end of the
        file."""

    async def download(
        self,
        src: FilePath = "/",
        dst: str | os.PathLike[str] | None = None,
        *,
        overwrite: Overwrite = "error",
        progress: ProgressListener | None = None,
    ) -> TransferReport:
        """Copies the contents of the directory `src`, or the file `src`, of the version to `dst`
        (None: volumes/NAME).

        Missing directories of dst are created. A file is placed inside dst if dst is a directory or
        ends in "/". Files with the same size and modification time are taken as present, so a
        killed download continues where it stopped, also within a file of 8 MiB or more. overwrite
        decides about other files at dst: "error" raises ConflictError before anything is written;
        "newer" replaces files that are older than in the version; "always" rewrites every file,
        even if it looks the same. Chunks are read in parallel and checked. Holes and links are
        preserved; set-id bits, owners and extended attributes are not. Nothing is written outside
        of dst.
        """

    async def export(
        self,
        url: str | os.PathLike[str],
        src: FilePath = "/",
        *,
        storage: Storage | None = None,
        delete: bool = False,
        exclude: Iterable[str] = (),
        progress: ProgressListener | None = None,
    ) -> TransferReport:
        """Writes the contents of the directory `src`, or the file `src`, as objects below `url` of
        any store, each under its path. For a volume, the last version is written, provided that
        there is no uncommitted work here.

        storage: credentials for `url`; None: those of the environment. Objects that an earlier
        export wrote and that have not been replaced since are skipped. delete: delete objects below
        `url` that the directory does not contain, regardless of their origin, except excluded ones;
        for a single file, delete none. Links to files become objects with the file's bytes.
        InvalidInputError, before anything is written: there are other links or names that are not
        UTF-8; `url` is the store, lies among its objects, or contains it without excluding it;
        objects of another store would be replaced or deleted.
        """

    async def open(self, path: FilePath | Entry, mode: str = "rb") -> anyio.AsyncFile[bytes]:
        """A seekable, buffered binary file. A volume also supports the modes "wb", "ab", "xb",
        "r+b" and "w+b"."""


class RWFiles(ROFiles, of=files.RWFiles):
    """The files of a volume, as returned by `RWVolume.files`.

    A finished call survives this process; a commit publishes it. `upload` publishes on its own.
    """

    _blocking: files.RWFiles

    async def upload(
        self,
        src: str | os.PathLike[str],
        dst: FilePath = "/",
        *,
        delete: bool = False,
        exclude: Iterable[str] = (),
        checksum: bool = False,
        message: str = "",
        progress: ProgressListener | None = None,
    ) -> TransferReport:
        """Publishes the contents of the directory `src`, or the file `src`, at `dst` of the volume
        as one version. If nothing differs, no version is made.

        Missing directories of dst are created. A file is placed inside dst if dst is a directory or
        ends in "/"; otherwise it takes that name. delete: remove entries below dst that are not in
        src. Without delete, a directory replaces nothing but a directory, and nothing else replaces
        a directory. exclude: patterns as in .gitignore, relative to src; entries that match are
        neither uploaded nor removed. A file with the same size and modification time as in the
        volume is not read, unless its inode number or change time differs from this machine's last
        upload. checksum: read all files.

        Bytes go from the source to the store without being written to this machine. If the upload
        is interrupted, fails or is killed, nothing is published, and the next upload transfers only
        the missing data. ConflictError: a file kept changing. InvalidStateError: the volume has
        uncommitted work here. LeaseHeldError: another writer has the volume.

        If the volume is mounted on this machine, the files are copied into the mount, as by `cp`,
        and no version is made. The mount's commit publishes them with its other changes. The
        report's mount_path shows this case.
        """

    async def download(
        self,
        src: FilePath = "/",
        dst: str | os.PathLike[str] | None = None,
        *,
        overwrite: Overwrite = "error",
        progress: ProgressListener | None = None,
    ) -> TransferReport:
        """Downloads the last version, as `ROFiles.download` does. If the volume is mounted on this
        machine, its current contents are copied, committed or not. InvalidStateError: it is not
        mounted and has uncommitted work here."""

    async def write(self, path: FilePath | Entry, data: bytes | bytearray | memoryview) -> None:
        """Creates a file, or replaces the content of an existing one. FileNotFoundError: the
        directory is missing.

        Up to 64 MiB and without a mount, the write is atomic: if this process dies meanwhile, an
        existing file has its old content or the new one.
        """

    async def append(self, path: FilePath | Entry, data: bytes | bytearray | memoryview) -> None:
        """Appends to a file, which is created if it is missing."""

    async def mkdir(self, path: FilePath | Entry, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Creates a directory. parents: create missing parents, too. exist_ok: accept an existing
        directory."""

    async def move(self, source: FilePath | Entry, target: FilePath) -> None:
        """Renames, as os.rename. The target may be a file, which is replaced. A directory may
        replace an empty directory."""

    async def copy(self, source: FilePath | Entry, target: FilePath, *, recursive: bool = False) -> None:
        """Copies a file by sharing its chunks: nothing is read or stored again. Permissions are
        copied. recursive: copy directories, too, into the target if that is an existing
        directory."""

    async def remove(self, path: FilePath | Entry, *, recursive: bool = False) -> None:
        """Removes a file, a link or an empty directory; recursive: a directory with all its
        contents."""

    async def symlink(self, path: FilePath | Entry, target: FilePath) -> None:
        """Makes `path` a symbolic link to `target`, which is stored unchanged. FileExistsError."""

    async def chmod(self, path: FilePath | Entry, mode: int) -> None:
        """Sets the permission bits; links are followed."""


class ROVolume(VolumeTwin, of=ro_volume.ROVolume):
    """A version of a volume, or one folder of it. Pickles to its locator, equals every other object
    of the same version and folder, and can be used on any machine."""

    _blocking: ro_volume.ROVolume

    @property
    def locator(self) -> str:
        """A string that identifies this version, and its folder if it is one, from anywhere. It
        also proves the version's identity."""

    @property
    def folder(self) -> str:
        """The folder of the version that this object means, relative to its root; "" for all of
        it."""

    @property
    def name(self) -> str:
        """The volume's name."""

    @property
    def id(self) -> str:
        """The version id: BLAKE3 of the manifest, 64 hex digits."""

    @property
    def is_pruned(self) -> bool:
        """Whether `history` found only the name of this version. It is then not in the store, and
        the fields below are missing. It was pruned and collected, or never copied to this store."""

    @property
    def is_new(self) -> bool:
        """Whether the commit that returned this object made the version. False: nothing had
        changed, and this is the last version."""

    @property
    def message(self) -> str: ...
    @property
    def author(self) -> str: ...
    @property
    def created(self) -> datetime:
        """When the version was committed, by the committer's clock; UTC, to the microsecond."""

    @property
    def created_ns(self) -> int:
        """When the version was committed, by the committer's clock, in nanoseconds since 1970."""

    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def produced_by(self) -> Mapping[str, str]:
        """The origin of the version: system, run, action, output and host, as far as known."""

    @property
    def parents(self) -> list[str]:
        """Version ids: none for a first version, several for a merge, otherwise one. Parents may be
        pruned."""

    @property
    def made_in(self) -> str:
        """The volume that it was committed to. A fork also has versions of the volume that it was
        forked from."""

    @property
    def stats(self) -> Stats:
        """files, directories, bytes, and the amount that this version added."""

    @property
    def path(self) -> Path:
        """Where this object is mounted. InvalidStateError when it is not."""

    @property
    def is_mounted(self) -> bool: ...
    async def status(self) -> MountSummary | None:
        """The entry that `cowfs status` shows for this object's mount; None: not mounted."""

    @property
    def files(self) -> ROFiles:
        """The version's files without a mount; for a folder, its contents. Nothing is read before
        the first call."""

    async def resolve(self) -> Self:
        """Fetches the manifest unless it is loaded already. In the async API `await version` does
        the same."""

    @shows_options(ReadOptions)
    async def mount(
        self,
        mount_path: str | os.PathLike[str] | None = None,
        *,
        scratch: bool = False,
        options: MountOptions | None = None,
        **tuning: Unpack[ReadOptions],
    ) -> Path:
        """Mounts the version read-only and returns the directory. Mounting again returns the same
        directory. Objects and processes of this user that mount it with the same options share the
        mount, and the last one unmounts.

        scratch: programs may also write there (databases, builds). Their writes belong to no
        volume, and no lease is taken. They are lost when the mount ends or when its daemon or the
        machine dies, unless `commit_scratch` makes a volume of them. Any number of processes may
        mount the version, each with its own scratch. The kernel caches attributes and names of a
        read-only mount without limit unless the options set one. mount_path: as for RWVolume.
        `MountOptions` explains the options. `options` accepts a `MountOptions`; options passed by
        name override it.
        """

    async def unmount(self, *, force: bool = False) -> None:
        """Unmounts the mount of this object. Uncommitted work of a scratch mount is lost. A mount
        stays if others share it or if `cowfs mount` created it. ConflictError: files are open.
        InvalidStateError: another party has ended the mount. force: unmount all the same; programs
        that use the mount get errors."""

    async def commit_scratch(
        self,
        message: str = "",
        *,
        name: str | None = None,
        strict: bool = False,
        author: str | None = None,
        produced_by: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        progress: ProgressListener | None = None,
    ) -> ROVolume:
        """Makes a volume of this object's scratch mount: a fork of this version with a version that
        contains everything written before the call. Returns that version.

        name: of the volume; a taken one becomes NAME-<6 hex>, strict: ConflictError; None: a name
        is generated. The mount stays and becomes the volume's writer. A later commit without a
        name, or with the same name, goes to that volume; another name makes another volume from
        there on. Uncommitted work is lost when the mount ends. The other arguments are as for
        RWVolume. InvalidStateError: there is no scratch mount.
        """

    async def fork(self, name: str | None = None, *, strict: bool = False) -> RWVolume:
        """A new volume that starts from this version and shares every byte: two small objects.

        A taken name becomes NAME-<6 hex>, so that a retried task does not fail on its own
        leftovers; strict: ConflictError.
        """

    async def history(self, limit: int | None = None) -> list[ROVolume]:
        """This version and its ancestors along all parents, across forks and merges, newest first,
        at most `limit`; one request each. Versions that are not in the store have is_pruned set.
        After such a version the history continues with the versions that the volume's heads and
        tags keep, for one more request each. For a folder, too, the versions returned are whole."""

    def diff(
        self, other: Located, *, path: str | os.PathLike[str] = "/", times: bool = False, renames: bool = True
    ) -> AsyncIterator[Change]:
        """Compares this version with `other` and returns each path that differs, in the order of
        paths. `Change` explains the result. Reads only the parts of the two indexes that differ,
        and no contents.

        path: only this path and below. times: include paths that differ only in modification time.
        renames: report a moved file or directory as one change, and omit the contents of a moved
        directory; False: report it as removed and added. NotFoundError: neither version has `path`.
        """
        return iterated(partial(self._blocking.diff, other, path=path, times=times, renames=renames))

    async def tag(self, name: str, *, move: bool = False, expect: str | None = None) -> Tag:
        """Gives this version a name: NAME@TAG then refers to it, and it is not pruned as long as
        the tag exists. Tagging it again with the same name changes nothing.

        move: the tag may be on another version now. expect: move it only from the version with this
        id, so that of several concurrent calls one succeeds. ConflictError: the tag is on another
        version, or was moved meanwhile. NotFoundError: this version is pruned, or was never a last
        version of its volume; tag a version that a fork has from its origin there.
        """

    async def warm(
        self,
        path: FilePath = "/",
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
        replay: str | os.PathLike[str] | None = None,
        progress: ProgressListener | None = None,
    ) -> WarmReport:
        """Fetches `path` and everything below it into this machine's cache, for mounts, `files` and
        later versions. Cached contents are not fetched again, so an interrupted call can be
        repeated. Mounts may run meanwhile.

        cache_dir, cache_size: as for a mount, which should use the same. Contents that do not fit
        are left out, and `is_complete` is False. replay: a profile that a mount recorded; fetch
        only the part of `path` that is in it. progress receives the stage "warm". CorruptError,
        SourceChangedError: raised after everything else was fetched.
        """


class RWVolume(VolumeTwin, of=rw_volume.RWVolume):
    """A volume to write to. Created by Volume.new, Volume.open and fork, never directly.

    Pickling is refused for a mounted volume (commit, and send the ROVolume), for a volume with
    uncommitted work here, and for a finalized object. Any other object pickles to its store and
    name. The volume is opened, or a new one is made, where it is first used.
    """

    _blocking: rw_volume.RWVolume

    @property
    def name(self) -> str:
        """The volume's name. For a new volume, the first call that reaches the store determines it:
        a taken name gets a suffix."""

    @property
    def store_url(self) -> str | None:
        """The store's canonical URL after the first contact; before that the argument as given,
        None for the default store."""

    @property
    def locator(self) -> str | None:
        """Locator of the last committed version, or of a fresh fork's base; None before the first
        commit.

        InvalidStateError: the opened volume was not yet resolved (or awaited) or mounted.
        """

    @property
    def forked_from(self) -> ROVolume | None:
        """The version from which the call that returned this object forked it; None for any other
        object."""

    @property
    def path(self) -> Path:
        """Where the volume is mounted. InvalidStateError when it is not."""

    @property
    def is_mounted(self) -> bool: ...
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

    async def has_changes(self) -> bool:
        """Whether this machine has work of the volume that is in no version. Without a mount and
        without calls of `files` in this process, this is also True for changes that cancel out."""

    def diff(
        self,
        other: Located | None = None,
        *,
        path: str | os.PathLike[str] = "/",
        times: bool = False,
        renames: bool = True,
    ) -> AsyncIterator[Change]:
        """Compares `other` with the volume as it is now, including uncommitted work, and returns
        each path that differs. other: a version of the same store, or a folder of one; None: the
        version that the work is based on, so that the result is what commit() would publish.

        The other arguments are those of a version's `diff`. Nothing is published. Bytes written
        since the last commit are read from this machine's disk, and commits wait meanwhile. For a
        copy, mounted or left with work, the folder is read as a commit reads it. ConflictError: a
        file in it changed during every attempt to read it.
        """
        return iterated(partial(self._blocking.diff, other, path=path, times=times, renames=renames))

    async def status(self) -> MountSummary | WorkingCopySummary | None:
        """The entry that `cowfs status` shows for the volume: its writable mount here, else its
        working copy here, else None."""

    async def history(self, limit: int | None = None) -> list[ROVolume]:
        """The volume's last version and its ancestors, newest first, at most `limit`; [] before the
        first commit."""

    async def resolve(self, *, accept_unsafe_store: bool = False, new_store: bool = False) -> Self:
        """Contacts the store and finds or creates the volume, without mounting it. In the async API
        `await volume` does the same.

        new_store: create a store even if this machine has used one there that is now missing.
        NotFoundError: no such volume. InvalidStateError: the store that was there is missing. Costs
        two or three requests the first time, none later.
        """

    @shows_options(WriteOptions, CACHE_DEFAULTS)
    async def mount(
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

    async def unmount(self, *, force: bool = False) -> None:
        """Unmounts and keeps uncommitted work for the next mount on this machine. A mount stays if
        other objects or other processes of this user share it, or if `cowfs mount` created it. A
        session that `files` has opened in this process is closed.

        ConflictError: files are open, or only other processes have mounted the volume.
        InvalidStateError: another party has ended the mount, or it is a scratch mount, which keeps
        nothing, with uncommitted work. force: unmount all the same; programs that use the mount get
        errors.
        """

    async def discard(self, *, force: bool = False, meta_dir: str | os.PathLike[str] | None = None) -> None:
        """Unmounts and permanently discards uncommitted work; the volume then equals its last
        version. In a copy (a mount without FUSE), files that differ from that version stay in the
        folder. ConflictError: files are open, or others have it mounted, too; force: as for
        unmount.

        meta_dir: discard only the work in that directory, even if the directory no longer exists; a
        mount with work elsewhere continues. NotFoundError: there is no work there.
        InvalidStateError: the volume is not mounted and has work in several places; pass one.
        """

    async def commit(
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

    async def finalize(
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

    async def fork(self, name: str | None = None, *, strict: bool = False) -> RWVolume:
        """A new volume that starts from here; uncommitted work is committed first. It shares every
        byte and costs two small objects.

        The fork's `forked_from` tells whether that commit made a version (`is_new`). A taken name
        becomes NAME-<6 hex>; strict: ConflictError. If another writer has taken this volume over,
        uncommitted work can no longer be committed: it moves to the fork, unpublished, and this
        mount ends. The same applies to work without a mount while another writer has the volume.
        Work of a scratch mount stays there: LeaseLostError.
        """

    async def merge(
        self, branches: Sequence[Located], *, strategy: Strategy = None, message: str = "", dry_run: bool = False
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


class Store(Twin, of=store_module.Store):
    """A store of volumes. Creating the object makes no request.

    url_or_name: a URL, a directory (with a slash) or a name (`cowfs store add`); None: COWFS_STORE,
    the config file, else a directory of the user. storage: a `cowfs.storage.Storage` with
    credentials, in place of url_or_name.
    """

    _blocking: store_module.Store

    def __init__(self, url_or_name: str | os.PathLike[str] | None = None, *, storage: Storage | None = None) -> None:
        super().__init__(store_module.Store(url_or_name, storage=storage))

    @property
    def url(self) -> str:
        """The store's canonical URL, as in locators. No request is made."""

    async def volumes(self, *, deleted: bool = False) -> list[VolumeSummary]:
        """The store's volumes, by name, with size, files, owner and head. If a record of a volume
        cannot be read, its entry has `problem` set; the others are still listed. deleted: list the
        deleted volumes that can be restored instead. NotFoundError: there is no cowfs store."""

    def volume(self, name: str, *, create: bool = False) -> RWVolume:
        """A volume by name, as `Volume.open`. Nothing is read until it is mounted or resolved."""
        return RWVolume(self._blocking.volume(name, create=create))

    async def create(
        self,
        name: str,
        *,
        exist_ok: bool = False,
        compress: bool = True,
        accept_unsafe_store: bool = False,
        new_store: bool = False,
    ) -> RWVolume:
        """Creates a volume without versions, and the store if it does not exist. ConflictError: the
        name is taken; with exist_ok, the existing volume is returned instead. compress: as for
        `Volume.new`. accept_unsafe_store, new_store: as for `RWVolume.resolve`."""

    async def version(self, source: str) -> ROVolume:
        """The version that `source` names, as `Volume.version`."""

    async def import_(
        self,
        url: str | os.PathLike[str],
        name: str,
        *,
        link: bool = False,
        storage: Storage | None = None,
        delete: bool = False,
        exclude: Iterable[str] = (),
        message: str = "",
        progress: ProgressListener | None = None,
        executor: Executor | None = None,
    ) -> ROVolume:
        """Copies the files at `url` into the volume and returns the volume's last version. The
        volume is created if it is missing. `is_new` tells whether this call made the version. url:
        a bucket or a prefix of it, a web directory, a directory of this machine, an archive as
        tar://::URL or zip://::URL, or any other place that fsspec can list.

        link: copy and read no bytes. Files then refer to the objects at `url`, in the state in
        which they were listed. Reading an object that has changed since fails (SourceChangedError,
        EIO in a mount); the others are not affected. Objects are read with the credentials of the
        environment or, in the store's own bucket, with the store's.

        storage: credentials for `url`; None: those of the environment. delete: remove files from
        the volume that are not at `url`. exclude: as in `files.upload`. Objects with the size, ETag
        and time recorded by the last import are not read. To resume a killed import, repeat the
        call: it transfers only the missing data. The listing is held in memory. executor: its
        workers read and store the objects, each with its own credentials
        (docs/guide/large-stores.md). InvalidInputError: some keys cannot be file names; all of them
        are reported before anything is read. ConflictError: an object keeps being replaced.
        CorruptError: an archive is damaged.
        """

    async def absorb(self, name: str, *, message: str = "", progress: ProgressListener | None = None) -> ROVolume:
        """Reads the objects that the volume's last version links, stores their contents, and
        publishes a version that depends on the store alone. A version without links is returned
        unchanged. SourceChangedError: an object has changed since it was linked; nothing is
        published."""

    async def delete(self, name: str, *, force: bool = False) -> None:
        """Deletes a volume; `undelete` restores it. The volume can no longer be found by its name,
        and the name stays taken. Its forks and locators of its versions keep working.

        NotFoundError: no such volume. LeaseHeldError: another writer has the volume; the message
        says where. InvalidStateError: it is mounted here, or has uncommitted work here. force:
        delete it all the same. Its writer can then publish nothing more; uncommitted work of the
        writer and of this machine is kept.
        """

    async def undelete(self, name: str) -> RWVolume:
        """Restores a deleted volume with all its versions and opens it. A volume that was not
        deleted is left unchanged. NotFoundError: no volume of that name ever existed."""

    async def merge(
        self,
        into: str,
        branches: Sequence[Located],
        *,
        strategy: Strategy = None,
        message: str = "",
        dry_run: bool = False,
    ) -> MergeReport:
        """`RWVolume.merge` into the volume of that name."""

    async def restore(
        self,
        name: str,
        version: Located,
        *,
        to: str | os.PathLike[str] | None = None,
        message: str = "",
        dry_run: bool = False,
    ) -> RestoreReport:
        """Restores the contents of `version` at `to`, as the volume's next version. Everything else
        at `to` is removed. No content is transferred, and the versions in between are kept. If
        nothing differs, no version is made (`is_new`).

        version: of this volume or another volume of the store, or a folder or file of one
        (`Volume.version("NAME@TAG:PATH")`). to: the destination; None: the original path. dry_run:
        publish nothing.

        If the volume is mounted here, nothing is published. The working copy is changed instead:
        uncommitted changes at `to` are lost, the rest is kept, and the next commit publishes the
        result (`mount_path`). Contents that differ are fetched. Programs that have a replaced or
        removed file open keep its old contents.

        NotFoundError: the version does not have that path, or the volume has no directory for it.
        ConflictError: the volume is mounted here as a copy, which cannot be restored into, or a
        file is in the place of a directory. InvalidStateError: the volume is not mounted and has
        uncommitted work here, or the contents to restore are linked. InvalidInputError: a message
        was given but nothing is published.
        """

    async def rollback(self, name: str, version: Located, *, message: str = "", dry_run: bool = False) -> RestoreReport:
        """Restores the whole of `version`, as `restore` does: the volume's next version equals
        it."""

    async def tags(self, name: str) -> list[Tag]:
        """The volume's tags, by name. A version's `tag` sets one. NotFoundError: no such volume."""

    async def untag(self, name: str, tag: str, *, expect: str | None = None) -> Tag:
        """Removes a tag and returns its former value. The version is kept as long as something else
        keeps it. expect: remove the tag only if it is on the version with this id; otherwise
        ConflictError. NotFoundError: no such volume or tag."""

    @shows_options(KeepRules, of=Rules)
    async def plan_prune(self, name: str, **rules: Unpack[KeepRules]) -> PrunePlan:
        """Plans which versions of a volume these rules keep and which are removed; `prune` applies
        the plan.

        last: keep this many of the newest versions. within: keep versions made at most this long
        before the last one ("30d", "12h", "6mo", or a timedelta). hourly to yearly: keep the last
        version of each of this many hours, days, weeks, months or years (UTC) that have any. A
        version is kept if one rule keeps it. Some versions are always kept: the last one, tagged
        ones, and the base of a mount (of a read-only mount only if it is on this machine), of
        uncommitted work or of a fork. No rule at all: use the rules saved in the volume
        (`set_retention`). InvalidInputError: it has none.
        """

    @shows_options(KeepRules, of=Rules)
    async def set_retention(self, name: str, **rules: Unpack[KeepRules]) -> None:
        """Saves rules, as in `plan_prune`, in the volume's record in place of the earlier ones. No
        rule at all removes them. Nothing is pruned. `plan_prune` without rules, `plan_maintain` and
        `cowfs maintain` use the saved rules. NotFoundError: no such volume."""

    async def retention(self, name: str) -> dict[str, Any]:
        """The rules saved in the volume, as `set_retention` takes them; empty if it has none.
        NotFoundError: no such volume."""

    async def set_quota(self, name: str, size: int | str | None) -> None:
        """Limits the total size of the volume's regular files, holes included. The limit is an int
        or a text like "100GB" (powers of 1024); None removes it.

        Changes that would make the volume larger are then refused: with EDQUOT in a mount and in
        `files`, and with NoSpaceError for a version that is uploaded, imported, merged or restored.
        Existing files stay, even beyond the quota. `df` shows the quota. Processes that have the
        volume open already use the previous quota. NotFoundError: no such volume. If the volume's
        record is damaged, this writes a new one. The new record loses any pruning rules, and the
        volume's owner if no earlier record names it.
        """

    async def quota(self, name: str) -> int | None:
        """The quota in bytes, as set by `set_quota`; None: no quota. NotFoundError: no such
        volume."""

    async def plan_maintain(self) -> list[PrunePlan]:
        """Makes a plan for each volume of the store that has saved rules. `prune` applies each
        plan, and `gc` then frees the space. Volumes without rules and deleted volumes are left
        out."""

    async def prune(self, plan: PrunePlan) -> list[PlannedVersion]:
        """Prunes the versions that the plan removes and returns the pruned ones. The volume
        loses them permanently, and a collection may delete data that only they need. Versions that
        were tagged, mounted or forked since the plan was made are kept."""

    async def maintain(self, *, dry_run: bool = False, executor: Executor | None = None) -> GcReport:
        """Prunes each volume that has saved rules, then collects garbage as `gc` does. dry_run:
        report what would be deleted; nothing is pruned or deleted."""

    async def gc(
        self,
        *,
        dry_run: bool = False,
        plan: GcReport | None = None,
        pruned: Sequence[PrunePlan] | None = None,
        accept_loss: str = "",
        executor: Executor | None = None,
    ) -> GcReport:
        """Deletes data that nothing in the store needs. Needed data is referenced by a head that is
        not pruned, a tag, a mount or uncommitted work. Writers can continue meanwhile. Data that
        they may still use is kept, and so is data younger than an hour. A deleted volume can be
        restored for a week; then its versions are deleted, too.

        dry_run: report what would be deleted, to the byte; with pruned, as if these plans
        (`plan_maintain`) had been applied. plan: the result of such a call; nothing outside of it
        is deleted. `is_done` is False if a writer does not answer; nothing was deleted then. The
        next call continues the collection, also after a killed one.

        InvalidStateError: this machine's clock is wrong by more than five minutes, or the store
        does not show everything that it should, such as heads, volumes or folders seen earlier
        (`alarms` of the report). LeaseHeldError: a process of this machine is collecting. An
        unreadable head, tag or pin raises its error before anything is deleted. accept_loss: the
        report's plan_id; delete in spite of the alarms. Cost: the roots, and the index of every
        kept version, once.

        executor: reads the indexes of many versions (docs/guide/large-stores.md).
        """

    async def verify(
        self,
        source: str | None = None,
        *,
        sample: float = 1.0,
        resume: bool = False,
        progress: ProgressListener | None = None,
        executor: Executor | None = None,
    ) -> VerifyReport:
        """Reads the packs of a version (as `version` takes it) or of the whole store again and
        checks every byte. Reports the damaged packs and the paths of each version that they break.
        For a whole store it also reports damaged heads, tags, leases and volume records, and
        missing heads. Nothing is written. For linked files only the state of their objects is
        checked.

        sample: the fraction of the packs to read, chosen at random; the listing shows whether the
        others exist. resume: skip packs that an interrupted run on this machine has read. A store
        that does not answer raises an error; damage does not. executor: reads the packs
        (docs/guide/large-stores.md).
        """

    async def warm(
        self,
        source: str,
        path: FilePath = "/",
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
        replay: str | os.PathLike[str] | None = None,
        progress: ProgressListener | None = None,
    ) -> WarmReport:
        """`ROVolume.warm` of a version as `version` takes it; a bare name means the volume's last
        version. The source may be SOURCE:PATH."""

    async def plan_repair(
        self,
        *,
        sources: Sequence[str | os.PathLike[str] | Storage] = (),
        report: VerifyReport | None = None,
        progress: ProgressListener | None = None,
    ) -> RepairPlan:
        """Reads the whole store as `verify` does and searches for lost data: in this machine's
        cache, in copies of its volumes on this machine (mounts without FUSE), in `sources`, and in
        other packs of the store. Reports what `repair` would do and which paths stay broken.
        Nothing is written. sources: other stores that have some of the same versions, or local
        directories with files of these versions (a download, a mount). report: from a `verify` of
        this store; only its damaged packs are read again. InvalidInputError: a source has another
        key."""

    async def repair(self, plan: RepairPlan, *, progress: ProgressListener | None = None) -> RepairPlan:
        """Applies a plan made by this process and returns the result. Data found for a damaged pack
        is written to a new pack, and a record directs readers to it. Addresses, versions and
        locators do not change; nothing is deleted. CorruptError: a source has changed since."""

    async def push(
        self,
        source: str,
        to: str | os.PathLike[str] | Storage,
        *,
        name: str | None = None,
        all_versions: bool = False,
        progress: ProgressListener | None = None,
        executor: Executor | None = None,
    ) -> PushReport:
        """Copies a version (as `version` takes it) to another store and makes it the last version
        of the volume there. The target store is created if it does not exist. Its volume has the
        same name, or `name`. The version id stays the same; only the store in the locator differs.
        Only packs that the target lacks are transferred, each checked before and after. An
        interrupted push can therefore be repeated, and repeated pushes maintain a mirror.

        all_versions: also copy the volume's earlier versions that are not pruned, and its tags. The
        target needs none of them to read the version. Versions and tags that the target volume can
        no longer accept because it has a later version are in `left_out` and `left_out_tags`.
        ConflictError: the target volume has a version that this one does not descend from, or has a
        later version and lacks this one; nothing is replaced. LeaseHeldError: another writer has
        the target volume. InvalidInputError: one of the stores is encrypted, and the other does not
        have the same key. CorruptError: a pack is damaged. executor: copies the packs
        (docs/guide/large-stores.md).
        """

    async def pull(
        self,
        source: str,
        origin: str | os.PathLike[str] | Storage,
        *,
        name: str | None = None,
        all_versions: bool = False,
        progress: ProgressListener | None = None,
        executor: Executor | None = None,
    ) -> PushReport:
        """Copies a version from the store `origin` to this store, as `push` does the other way
        round."""

    async def stored_bytes(
        self, source: str | None = None, *, by: By | None = None, progress: ProgressListener | None = None
    ) -> list[StoredBytes]:
        """The bytes of the store that each version of `source` (a volume, or one version) needs, or
        each volume of the store, and the part of them that nothing else needs. Bytes are counted as
        stored, once however often they are used.

        by: `version`, `volume`, `owner` or `store`; None: versions of a source, else volumes. Reads
        the whole index of every version that the store keeps.
        """

    async def describe(self, name: str) -> VolumeDetails:
        """Details of a volume from its store and from this machine. NotFoundError: no volume has
        that name; the hint lists similar names."""


class Volume(Twin, of=volume_module.Volume):
    """The entry point of cowfs. store: a URL or directory, or a `cowfs.storage.Storage` with
    credentials; None: COWFS_STORE, the config file, else a directory of the user."""

    _blocking: volume_module.Volume

    def __init__(self) -> None:
        raise TypeError("Volume is not made directly: use Volume.new, Volume.open or Volume.from_locator")

    @staticmethod
    def new(
        name: str | None = None,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        strict: bool = False,
        exist_ok: bool = False,
        compress: bool = True,
    ) -> RWVolume:
        """A volume that does not exist yet. Nothing is read or written until it is mounted (or
        resolved).

        The name is claimed then. A taken name becomes NAME-<6 hex>, which `.name` shows; strict:
        ConflictError instead; exist_ok: open the existing volume, so that a retried task continues
        with it. Without a name, one is generated.

        compress: whether file contents are compressed where this saves space. Pass False if other
        users can create files beside secret ones: the compressed size reveals information about
        these (docs/guide/encryption.md). The setting belongs to the volume and is not passed on to
        forks.
        """
        return RWVolume(
            volume_module.Volume.new(name, store=store, strict=strict, exist_ok=exist_ok, compress=compress)
        )

    @staticmethod
    def open(name: str, *, store: str | os.PathLike[str] | Storage | None = None, create: bool = False) -> RWVolume:
        """A volume by name. Mounting it continues from its head, with any uncommitted work on this
        machine.

        Nothing is read until it is mounted or resolved. A missing volume then raises NotFoundError,
        unless create is set, which creates it.
        """
        return RWVolume(volume_module.Volume.open(name, store=store, create=create))

    @staticmethod
    async def version(source: str, *, store: str | os.PathLike[str] | Storage | None = None) -> ROVolume:
        """The version that `source` names, as on the command line: NAME (its last version),
        NAME@TAG, NAME@VERSION (8 digits or more), NAME@{3} (three versions before its last one),
        NAME@{2026-11-20T12:00} (its last version at that time, local unless it has an offset), or a
        locator. An appended :PATH selects that folder of the version. NotFoundError, also for a
        volume without versions; its hint lists similar names."""

    @staticmethod
    async def from_locator(locator: str | Locator, *, store: Storage | None = None) -> ROVolume:
        """The version that a locator names, after verifying that it exists and belongs to the
        volume in the locator: one request. LOCATOR/path means that folder of it, which is looked up
        when it is mounted. store: the locator's store, with credentials. NotFoundError,
        InvalidInputError, CorruptError."""


def volume(name: str, *, store: str | os.PathLike[str] | Storage | None = None) -> RWVolume:
    """The volume of that name, created if it is missing; "/mydata" and "mydata" are the same."""
    return RWVolume(volume_module.volume(name, store=store))
