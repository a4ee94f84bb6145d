"""The async twins of the public classes: the same names and arguments, awaited; under asyncio and
trio alike.

Generated from the blocking classes by `python -m tests.api.async_twin`; change those, not this
file. Every call runs in a worker thread (`cowfs.api.twins`), so that the event loop goes on. A
cancelled call still runs to its end there, and its caller waits for it: nothing is left half done.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

import builtins
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Self, Unpack

import anyio

from cowfs.api import files, ro_volume, rw_volume
from cowfs.api import volume as volume_module
from cowfs.api.changes import Change, Located
from cowfs.api.collect_report import GcReport
from cowfs.api.counting import By
from cowfs.api.details import VolumeDetails
from cowfs.api.downloading import Overwrite
from cowfs.api.files import Entry, FilePath
from cowfs.api.merge_report import MergeReport, Strategy
from cowfs.api.options import shows_options
from cowfs.api.overview import MountSummary, VolumeSummary, WorkingCopySummary
from cowfs.api.pruning import PlannedVersion, PrunePlan
from cowfs.api.restoring import RestoreReport
from cowfs.api.storage.storage import Storage
from cowfs.api.tagging import Tag
from cowfs.api.threads import iterated
from cowfs.api.transfer_report import TransferReport
from cowfs.api.twins import Twin, VolumeTwin
from cowfs.api.warming import WarmReport
from cowfs.control import MountOptions
from cowfs.control.options import CACHE_DEFAULTS, ReadOptions, WriteOptions
from cowfs.format.locator import Locator
from cowfs.format.manifest import Stats
from cowfs.maintain.push_report import PushReport
from cowfs.maintain.repair_plan import RepairPlan
from cowfs.maintain.stored_report import StoredBytes
from cowfs.maintain.verify_report import VerifyReport
from cowfs.version.commit import ProgressListener
from cowfs.version.retention import KeepRules, Rules

__all__ = ["ROFiles", "ROVolume", "RWFiles", "RWVolume", "Volume", "volume"]


class ROFiles(Twin, of=files.ROFiles):
    """The files of a version, or of one folder of it. `ROVolume.files` gives it. Pickles as the
    version does."""

    _blocking: files.ROFiles

    def ls(self, path: FilePath | Entry = "/", recursive: bool = False) -> AsyncIterator[Entry]:
        """The entries of a directory, by name; of anything else its own. recursive: everything
        below as well, each directory before what is in it; links are not followed.
        FileNotFoundError."""
        return iterated(partial(self._blocking.ls, path, recursive))

    async def stat(self, path: FilePath | Entry = "/", *, follow: bool = True) -> Entry:
        """What is at a path. follow: where a link that is named leads, else the link.
        FileNotFoundError."""

    async def exists(self, path: FilePath | Entry) -> bool:
        """Whether there is something at a path; of a link, where it leads."""

    def glob(self, pattern: FilePath) -> AsyncIterator[Entry]:
        """What matches: `*`, `?` and `[…]` within a name, `**` for any directories in between.
        Links are followed only where the pattern has their whole name."""
        return iterated(partial(self._blocking.glob, pattern))

    def walk(self, path: FilePath | Entry = "/") -> AsyncIterator[tuple[str, list[Entry], list[Entry]]]:
        """As os.walk, from the top down: path of a directory, the directories in it, everything
        else in it. What is removed from the second is not walked into."""
        return iterated(partial(self._blocking.walk, path), 1)

    async def read(self, path: FilePath | Entry, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes of a file; length None: to the end. Shorter at the end of the file."""

    async def download(
        self,
        src: FilePath = "/",
        dst: str | os.PathLike[str] | None = None,
        *,
        overwrite: Overwrite = "error",
        progress: ProgressListener | None = None,
    ) -> TransferReport:
        """Copies what is in the directory `src`, or the file `src`, of the version to `dst` (None:
        volumes/NAME).

        What is missing of dst is made; a file goes into dst if that is a directory, or ends in "/".
        Files of the same size and time of modification are there already, so a download that was
        killed goes on where it was, also within a file of 8 MiB or more. Others that are at dst:
        "error" raises ConflictError before anything is written, "newer" replaces those that are
        older than in the version. "always" writes every file anew, also one that looks the same.
        Chunks are read in parallel and checked; holes and links are kept, set-id bits, owners and
        extended attributes are not, and nothing is written outside of dst.
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
        """Writes what is in the directory `src`, or the file `src`, as objects below `url` of any
        store, each under its path. Of a volume the last version, if there is no uncommitted work
        here.

        storage: credentials for `url`; None: those of the environment. What an earlier export has
        put there, and nobody has replaced, is not put again. delete: objects below `url` that the
        directory has not are deleted, whoever made them, but for what is excluded; beside a single
        file, none. Links to files become objects with the file's bytes. InvalidInputError, before
        anything is put: other links, names that are not UTF-8; `url` is the store, lies among its
        objects, or has it in it and not excluded; objects of another store would be replaced or
        deleted.
        """

    async def open(self, path: FilePath | Entry, mode: str = "rb") -> anyio.AsyncFile[bytes]:
        """A seekable, buffered binary file. Of a volume also in modes "wb", "ab", "xb", "r+b" and
        "w+b"."""


class RWFiles(ROFiles, of=files.RWFiles):
    """The files of a volume. `RWVolume.files` gives it.

    A call that has returned survives this process; a commit publishes it. `upload` publishes by
    itself.
    """

    _blocking: files.RWFiles

    async def upload(
        self,
        src: str | os.PathLike[str],
        dst: FilePath = "/",
        *,
        delete: bool = False,
        exclude: Iterable[str] = (),
        message: str = "",
        progress: ProgressListener | None = None,
    ) -> TransferReport:
        """Publishes what is in the directory `src`, or the file `src`, at `dst` of the volume, as
        one version; if nothing differs, none is made.

        What is missing of dst is made. A file goes below dst if that is a directory, or ends in
        "/", and takes that name else. delete: removes what is below dst and not in src; without it
        a directory takes the place of nothing else, nor the other way round. exclude: patterns as
        in .gitignore, relative to src; what they match is neither uploaded nor removed. A file of
        the same size and time of modification as in the volume is not read.

        Bytes go from the source to the store, and are not written to this machine. Ended, failed or
        killed: nothing is published, and the next upload moves only what is missing. ConflictError:
        a file never stood still. InvalidStateError: the volume has uncommitted work here.
        LeaseHeldError: somebody else writes to it.

        If the volume is mounted on this machine, the files go into the mount, as `cp` would copy
        them, and no version is made: the mount's commit publishes them with everything else. The
        report's mount_path says so.
        """

    async def download(
        self,
        src: FilePath = "/",
        dst: str | os.PathLike[str] | None = None,
        *,
        overwrite: Overwrite = "error",
        progress: ProgressListener | None = None,
    ) -> TransferReport:
        """As `ROFiles.download`, of the last version. If the volume is mounted on this machine,
        what programs see there is copied, committed or not. InvalidStateError: it is not mounted,
        and has uncommitted work here."""

    async def write(self, path: FilePath | Entry, data: bytes | bytearray | memoryview) -> None:
        """Makes a file, or replaces the content of one. FileNotFoundError: the directory is
        missing.

        Up to 64 MiB, and without a mount, in one step: if this process ends meanwhile, a file that
        was there has its old content or the new one.
        """

    async def append(self, path: FilePath | Entry, data: bytes | bytearray | memoryview) -> None:
        """Writes to the end of a file, which is made if it is missing."""

    async def mkdir(self, path: FilePath | Entry, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Makes a directory. parents: those above it, too; exist_ok: fine if there is one."""

    async def move(self, source: FilePath | Entry, target: FilePath) -> None:
        """As os.rename: the target may be a file, which is replaced, or an empty directory in the
        way of a directory."""

    async def copy(self, source: FilePath | Entry, target: FilePath, *, recursive: bool = False) -> None:
        """Copies a file by sharing its chunks: nothing is read or stored again. Permissions go with
        it. recursive: directories, too, into the target if it is one already."""

    async def remove(self, path: FilePath | Entry, *, recursive: bool = False) -> None:
        """A file, a link, or an empty directory; recursive: a directory with everything in it."""

    async def symlink(self, path: FilePath | Entry, target: FilePath) -> None:
        """Makes `path` a symbolic link to `target`, which is kept as it is given.
        FileExistsError."""

    async def chmod(self, path: FilePath | Entry, mode: int) -> None:
        """Sets the permission bits; a link is followed."""


class ROVolume(VolumeTwin, of=ro_volume.ROVolume):
    """A version of a volume, or one folder of it. Pickles to its locator, equals every other object
    of the same version and folder, and can be used on any machine."""

    _blocking: ro_volume.ROVolume

    @property
    def locator(self) -> str:
        """A string that leads to this version from anywhere, and proves that it is this one; to its
        folder, if it is one."""

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
        """Whether `history` found only the name of this version: it is not in the store, and the
        fields below are missing. It was pruned and collected, or never copied there."""

    @property
    def is_new(self) -> bool:
        """Whether the commit that returned this object has made the version. False: nothing had
        changed, this is the last one."""

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
        """What made it: system, run, action, output, host, as far as known."""

    @property
    def parents(self) -> list[str]:
        """Version ids; one, but none for a first version and several for a merge. They may be
        pruned."""

    @property
    def made_in(self) -> str:
        """The volume that it was committed to. A fork also has versions of the volume that it came
        from."""

    @property
    def stats(self) -> Stats:
        """files, directories, bytes, and what this version added."""

    @property
    def path(self) -> Path:
        """Where this object is mounted. InvalidStateError when it is not."""

    @property
    def is_mounted(self) -> bool: ...
    async def status(self) -> MountSummary | None:
        """What `cowfs status` shows of this object's mount; None: there is none."""

    @property
    def files(self) -> ROFiles:
        """The version's files without a mount; of a folder, what is in it. Nothing is read before
        the first call."""

    async def resolve(self) -> Self:
        """Fetches the manifest unless it is here already; of an async version `await version` does
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
        """Mounts the version read-only and returns the directory; mounting again returns the same.
        Objects and processes of this user that mount it with the same options share the mount, and
        the last one unmounts.

        scratch: programs may write there too (databases, builds). No volume has what they write,
        and no lease is taken: it is gone when the mount ends, or its daemon or the machine dies,
        unless `commit_scratch` makes a volume of it. Any number of processes may mount the version,
        each a scratch of its own. The kernel caches attributes and names of a read-only mount
        without limit unless told otherwise. mount_path: as for RWVolume. `MountOptions` explains
        the options, and `options` takes one; what is named besides wins.
        """

    async def unmount(self, *, force: bool = False) -> None:
        """Unmounts what this object mounted; of a scratch what was not committed is gone. A mount
        that others share stays with them, and one that `cowfs mount` was asked for. ConflictError
        while files are open; InvalidStateError: somebody else has ended the mount. force: unmounts
        all the same, and programs that use it get errors."""

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
        """Makes a volume of this object's scratch mount: a fork of this version, and in it a
        version with everything that was written before the call. Returns that version.

        name: of the volume; a taken one becomes NAME-<6 hex>, strict: ConflictError; None: one is
        made up. The mount stays, and is the volume's writer: a later commit without a name, or with
        the same, goes to that volume, and another name makes another one from there on. What is not
        committed is gone at the end. The other arguments are as for RWVolume. InvalidStateError
        when there is no scratch mount.
        """

    async def fork(self, name: str | None = None, *, strict: bool = False) -> RWVolume:
        """A new volume that starts from this version and shares every byte: two small objects.

        A taken name becomes NAME-<6 hex>, so that a task that is tried again does not fail on its
        own traces; strict: ConflictError.
        """

    async def history(self, limit: int | None = None) -> list[ROVolume]:
        """This version and its ancestors along all parents, across forks and merges, newest first,
        at most `limit`; one request each. Those that are not in the store have is_pruned set;
        behind one it goes on with what the volume's heads and tags keep, for one request more each.
        Of a folder, too, the versions are whole."""

    def diff(
        self, other: Located, *, path: str | os.PathLike[str] = "/", times: bool = False, renames: bool = True
    ) -> AsyncIterator[Change]:
        """What became of this version in `other`: each path at which they differ, in the order of
        paths. `Change` explains what is told. Reads only what differs of the two indexes, and no
        contents.

        path: only what is there or below. times: also what only has another time of modification.
        renames: a file or directory that was moved is one change, and what is below a moved
        directory is none; False: it is removed and added. NotFoundError: neither has `path`.
        """
        return iterated(partial(self._blocking.diff, other, path=path, times=times, renames=renames))

    async def tag(self, name: str, *, move: bool = False, expect: str | None = None) -> Tag:
        """Gives this version a name: NAME@TAG means it from then on, and it is not pruned as long
        as the tag is there. Tagging it again with the same name changes nothing.

        move: the tag may be on another version now; expect: only on the one with this id, so that
        of several who move it at once one does. ConflictError: it is on another version, or was
        moved meanwhile. NotFoundError: this version is pruned, or never was its volume's last one:
        what a fork has from its origin is tagged there.
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
        """Fetches what is at `path`, with all below it, into this machine's cache, for mounts,
        `files` and later versions. What is there is not fetched, so an interrupted call is
        repeated. Mounts may run.

        cache_dir, cache_size: as of a mount, which should have the same. What does not fit is left
        out: `is_complete` is False then. replay: a profile that a mount recorded; what it has of
        `path`, and nothing else. progress hears of the stage "warm". CorruptError,
        SourceChangedError: after all else was fetched.
        """


class RWVolume(VolumeTwin, of=rw_volume.RWVolume):
    """A volume to write to. Made by Volume.new, Volume.open and fork, never directly.

    Pickling: a mounted one is refused (commit, and send the ROVolume); so is one with uncommitted
    work here, or a finalized one. Any other pickles to its store and name: it is opened, or a new
    one is made, where it is first used.
    """

    _blocking: rw_volume.RWVolume

    @property
    def name(self) -> str:
        """The volume's name. Of a new volume it is settled by the first call that reaches the
        store: a taken one gets a suffix."""

    @property
    def store_url(self) -> str | None:
        """The store's canonical URL once it was reached; before that what was given, None for the
        default store."""

    @property
    def locator(self) -> str | None:
        """Locator of the last committed version, of a fresh fork's base, or None before the first
        commit.

        InvalidStateError for an opened volume that nobody has resolved (or awaited) or mounted yet.
        """

    @property
    def forked_from(self) -> ROVolume | None:
        """The version it was forked from, by the call that returned this object; None for any other
        object."""

    @property
    def path(self) -> Path:
        """Where the volume is mounted. InvalidStateError when it is not."""

    @property
    def is_mounted(self) -> bool: ...
    @property
    def files(self) -> RWFiles:
        """The volume's files, without a mount: through the mount, if the volume is mounted on this
        machine, else in this process. The first call does what mount() does, but for mounting:
        uncommitted work of this machine is there. LeaseHeldError: somebody else writes to this
        volume; it says who, where and since when."""

    async def has_changes(self) -> bool:
        """Whether this machine has work of the volume that is in no version. Without a mount, and
        without calls of `files` in this process, also True for changes that cancel out."""

    def diff(
        self,
        other: Located | None = None,
        *,
        path: str | os.PathLike[str] = "/",
        times: bool = False,
        renames: bool = True,
    ) -> AsyncIterator[Change]:
        """What became of `other` in the volume as it is now, with work that is in no version: each
        path at which they differ. other: a version of the same store, or a folder of one; None: the
        version that the work stands on, so that it is what commit() would publish.

        The rest is as for `diff` of a version. Nothing is published. Bytes that were written since
        the last commit are read from this machine's disk, and commits wait meanwhile. Of a copy,
        mounted or left with work, the folder is read as a commit reads it. ConflictError: a file in
        it was written to each time it was read.
        """
        return iterated(partial(self._blocking.diff, other, path=path, times=times, renames=renames))

    async def status(self) -> MountSummary | WorkingCopySummary | None:
        """What `cowfs status` shows of the volume: its writable mount here, else its working copy
        here, else None."""

    async def history(self, limit: int | None = None) -> list[ROVolume]:
        """The volume's last version and its ancestors, newest first, at most `limit`; [] before the
        first commit."""

    async def resolve(self, *, accept_unsafe_store: bool = False) -> Self:
        """Reaches the store and finds or makes the volume, without mounting; of an async one
        `await volume` does the same.

        NotFoundError: no such volume. Two or three requests the first time, none later.
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

    async def unmount(self, *, force: bool = False) -> None:
        """Unmounts and keeps uncommitted work for the next mount on this machine. A mount that this
        object has mounted, and others, or other processes of this user, have, too, stays with them,
        and one that `cowfs mount` was asked for. What `files` has opened in this process is closed.

        ConflictError while files are open, or when only other processes have mounted it;
        InvalidStateError: somebody else has ended the mount, or it is a scratch, which keeps
        nothing, with uncommitted work. force: unmounts all the same, and programs that use it get
        errors.
        """

    async def discard(self, *, force: bool = False, meta_dir: str | os.PathLike[str] | None = None) -> None:
        """Unmounts and drops uncommitted work for good; the volume is again what its last version
        is. ConflictError while files are open, or others have it mounted, too; force: as for
        unmount.

        meta_dir: drops the work that lies there alone, also when that directory is not there any
        more; a mount of work elsewhere goes on. NotFoundError: no work is there. InvalidStateError:
        the volume is not mounted, and has work in several places; name one.
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
        """Publishes everything written before the call as a version; writers go on meanwhile, the
        volume stays mounted.

        Nothing changed: the last version again, its `is_new` False; but a message, author or labels
        that it does not have make a version of the same tree. Never mounted: the base, or an empty
        first version. LeaseLostError: somebody else took the volume over; the work is kept.
        progress is called with a `Progress`, from another thread than that of an async caller;
        first of a commit already under way, which is waited for.
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

        When committing fails the object lives on and finalize can be tried again; once the version
        is published it is returned, whatever happens to the mount. Programs that still have files
        open, or this process itself, keep them until they close them: the directory is gone all the
        same, and what they write from now on is not in this version: it stays on this machine as
        uncommitted work of the volume. force: they get errors instead. A mount that other objects,
        or processes of this user, have mounted, too, stays with them, but for force.
        """

    async def fork(self, name: str | None = None, *, strict: bool = False) -> RWVolume:
        """A new volume that starts from here; uncommitted work is committed first. Shares every
        byte: two small objects.

        The fork's `forked_from` tells whether that was so (`is_new`). A taken name becomes NAME-<6
        hex>; strict: ConflictError. When another writer has taken this volume over, uncommitted
        work can't be committed any more: it moves to the fork, unpublished, and this mount ends. So
        does work without a mount while another writer has the volume. That of a scratch stays
        there: LeaseLostError.
        """


class Volume(Twin, of=volume_module.Volume):
    """The entry to cowfs. store: a URL or directory, or a `cowfs.storage.Storage` with credentials;
    None: COWFS_STORE, the config file, else a directory of the user."""

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
    ) -> RWVolume:
        """A volume that does not exist yet. Nothing is read or written until it is mounted (or
        resolved).

        Then the name is claimed; a taken one becomes NAME-<6 hex>, and `.name` tells; strict:
        ConflictError then; exist_ok: the volume of that name is opened, so that a task that is
        tried again goes on with it. Without a name one is made up.
        """
        return RWVolume(volume_module.Volume.new(name, store=store, strict=strict, exist_ok=exist_ok))

    @staticmethod
    def open(name: str, *, store: str | os.PathLike[str] | Storage | None = None, create: bool = False) -> RWVolume:
        """A volume by name: mounting it goes on from its head, with the uncommitted work this
        machine has of it.

        Nothing is read until it is mounted or resolved; NotFoundError then, unless create makes
        what is missing.
        """
        return RWVolume(volume_module.Volume.open(name, store=store, create=create))

    @staticmethod
    async def version(source: str, *, store: str | os.PathLike[str] | Storage | None = None) -> ROVolume:
        """The version that `source` means, as on the command line: NAME (its last one), NAME@TAG,
        NAME@VERSION (8 digits or more), NAME@{3} (three versions before its last one),
        NAME@{2026-11-20T12:00} (its last one at that time, which is local unless it has an offset),
        or a locator; with :PATH behind it, that folder of it. NotFoundError, also for a volume
        without versions; its hint names near ones.
        """

    @staticmethod
    async def import_(
        url: str | os.PathLike[str],
        name: str,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        link: bool = False,
        storage: Storage | None = None,
        delete: bool = False,
        exclude: Iterable[str] = (),
        message: str = "",
        progress: ProgressListener | None = None,
        executor: Executor | None = None,
    ) -> ROVolume:
        """Copies what is at `url` (a bucket or a prefix of it, a web directory, a directory of this
        machine, whatever fsspec lists) into the volume, which is made if it is missing, and returns
        its last version; `is_new` tells whether this made it.

        link: no byte is copied or read; files are the objects at `url`, in the state in which they
        were listed. Reading one that changed since fails (SourceChangedError, EIO in a mount); all
        others are as they were. They are read with the credentials of the environment, or, in the
        store's own bucket, with the store's.

        storage: credentials for `url`; None: those of the environment. delete: what is in the
        volume and not at `url` goes. exclude: as `files.upload`. Objects whose size, ETag and time
        are those of the last import are not read. An import that was killed is repeated: it moves
        only what is missing. The listing is in memory. executor: its workers read and store the
        objects, each with its own credentials (docs/guide/large-stores.md). InvalidInputError: keys
        that no file can have, all of them before anything is read; ConflictError: an object that is
        replaced all the time.
        """

    @staticmethod
    async def absorb(
        name: str,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        message: str = "",
        progress: ProgressListener | None = None,
    ) -> ROVolume:
        """Reads what the volume's last version links, stores it, and publishes a version that needs
        nothing but the store; one without links is returned as it is. SourceChangedError: an object
        is not what was linked; nothing is published then."""

    @staticmethod
    async def list(
        store: str | os.PathLike[str] | Storage | None = None, *, deleted: bool = False
    ) -> builtins.list[VolumeSummary]:
        """The volumes of a store, by name, with size, files, owner and head. deleted: those that
        were deleted and can be brought back, instead. One of which something cannot be read has a
        problem, and hides no other. NotFoundError: there is no cowfs store."""

    @staticmethod
    async def delete(name: str, *, store: str | os.PathLike[str] | Storage | None = None, force: bool = False) -> None:
        """Deletes a volume; `undelete` brings it back. Nobody finds it by its name any more, which
        stays taken; its forks, and locators of its versions, are as before.

        NotFoundError: no such volume. LeaseHeldError: somebody writes to it, and says where;
        InvalidStateError: it is mounted here, or has uncommitted work here. force: it is deleted
        all the same; its writer can publish nothing more, and its work is kept, as this machine's
        is.
        """

    @staticmethod
    async def undelete(name: str, *, store: str | os.PathLike[str] | Storage | None = None) -> RWVolume:
        """Brings a deleted volume back, with all its versions, and opens it. One that was not
        deleted stays as it is. NotFoundError: there never was one."""

    @staticmethod
    async def merge(
        into: str,
        branches: Sequence[Located],
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        strategy: Strategy = None,
        message: str = "",
        dry_run: bool = False,
    ) -> MergeReport:
        """Merges versions, mostly the last ones of forks, into the volume `into`: its next version
        has what each has changed since it came from the volume, or from a version that both came
        from. No content moves. All are recorded as parents. What it has already is left out; if
        that is all, there is no new version (`is_new`).

        strategy: what to do where two have changed the same: a dict from patterns of paths, as in
        .gitignore, to one of `ours` (as the volume has it, or the branch before), `theirs`,
        `newest` (by time of modification), `keep-both` (theirs as PATH~BRANCH), `union` (of files
        that were only appended to: ours, then what theirs has appended) and `fail`; one such word
        for all; or a function from a `Conflict` to one. Without it, and where a way does not fit
        the conflict, ConflictError is raised, whose `details["conflicts"]` has all of them, and
        nothing is published. dry_run: nothing is published in any case, and nothing is raised for
        conflicts.

        ConflictError: also while the volume is mounted here. InvalidStateError: it has uncommitted
        work here, or a branch has no version in common with it.
        """

    @staticmethod
    async def restore(
        name: str,
        version: Located,
        *,
        to: str | os.PathLike[str] | None = None,
        store: str | os.PathLike[str] | Storage | None = None,
        message: str = "",
        dry_run: bool = False,
    ) -> RestoreReport:
        """Brings back what a version has: the next version of the volume has at `to` what `version`
        has, and nothing else there. No content moves, and the versions in between stay. If nothing
        differs, there is no new version (`is_new`).

        version: of this volume or another one of the store, or a folder or file of it
        (`Volume.version("NAME@TAG:PATH")`). to: where it is put; None: where it was. dry_run:
        nothing is published.

        Of a volume that is mounted here nothing is published: its working copy has at `to` what the
        version has, uncommitted changes there are lost, the rest stays, and the next commit has it
        (`mount_path`). What differs is fetched. Programs that have a replaced or removed file open
        keep it as it is.

        NotFoundError: the version has not got that path, or the volume no directory for it.
        ConflictError: the volume is mounted here as a copy, into which nothing is restored, or a
        file is where a directory has to be. InvalidStateError: the volume is not mounted, and has
        uncommitted work here; or what is brought back is linked. InvalidInputError: a message,
        though nothing is published.
        """

    @staticmethod
    async def rollback(
        name: str,
        version: Located,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        message: str = "",
        dry_run: bool = False,
    ) -> RestoreReport:
        """As `restore` of all that the version has: the volume's next version is what `version`
        is."""

    @staticmethod
    async def tags(name: str, *, store: str | os.PathLike[str] | Storage | None = None) -> builtins.list[Tag]:
        """The volume's tags, by name. `tag` of a version sets one. NotFoundError: no such
        volume."""

    @staticmethod
    async def untag(
        name: str, tag: str, *, store: str | os.PathLike[str] | Storage | None = None, expect: str | None = None
    ) -> Tag:
        """Removes a tag, and returns what it was; its version stays as long as something else keeps
        it. expect: only if it is on the version with this id, else ConflictError. NotFoundError: no
        such volume or tag."""

    @staticmethod
    @shows_options(KeepRules, of=Rules)
    async def plan_prune(
        name: str, *, store: str | os.PathLike[str] | Storage | None = None, **rules: Unpack[KeepRules]
    ) -> PrunePlan:
        """Which versions of a volume these rules keep, and which would go; `prune` carries it out.

        last: so many of the last ones. within: those made at most so long before the last one
        ("30d", "12h", "6mo", or a timedelta). hourly to yearly: the last one of each of so many
        hours, days, weeks, months, years (of UTC) that have any. A version stays if one rule keeps
        it. Kept always: the last one, those with a tag, and those that a mount (a read-only one
        only if it is on this machine), uncommitted work or a fork stands on. No rule at all: those
        that the volume has saved (`set_retention`). InvalidInputError: it has none.
        """

    @staticmethod
    @shows_options(KeepRules, of=Rules)
    async def set_retention(
        name: str, *, store: str | os.PathLike[str] | Storage | None = None, **rules: Unpack[KeepRules]
    ) -> None:
        """Saves rules, as `plan_prune` has them, in the volume's record, instead of those that were
        there; no rule at all removes them. Nothing is pruned: `plan_prune` without rules,
        `plan_maintain` and `cowfs maintain` go by them. NotFoundError: no such volume."""

    @staticmethod
    async def retention(name: str, *, store: str | os.PathLike[str] | Storage | None = None) -> dict[str, Any]:
        """The rules that the volume has saved, as `set_retention` takes them; empty: none.
        NotFoundError: no such volume."""

    @staticmethod
    async def set_quota(
        name: str, size: int | str | None, *, store: str | os.PathLike[str] | Storage | None = None
    ) -> None:
        """The volume's regular files may have so many bytes together, holes counted: an int, or a
        text like "100GB" (powers of 1024); None: as many as there is room for.

        What would make the volume larger is refused then: in a mount and in `files` with EDQUOT, a
        version that is uploaded, imported, merged or restored with NoSpaceError. What there is
        stays, also beyond the quota. `df` shows it. Whoever has the volume open goes by the quota
        that was there before. NotFoundError: no such volume. Where the volume's record is damaged,
        this makes a new one, without the rules of pruning that it may have had, and without the
        volume's owner if no earlier record names it.
        """

    @staticmethod
    async def quota(name: str, *, store: str | os.PathLike[str] | Storage | None = None) -> int | None:
        """In bytes, as `set_quota` has set it; None: none. NotFoundError: no such volume."""

    @staticmethod
    async def plan_maintain(*, store: str | os.PathLike[str] | Storage | None = None) -> builtins.list[PrunePlan]:
        """A plan for each volume of the store that has saved rules, by them; `prune` carries each
        out, and `gc` then gives back the room. Volumes without rules, and deleted ones, are left
        out."""

    @staticmethod
    async def prune(
        plan: PrunePlan, *, store: str | os.PathLike[str] | Storage | None = None
    ) -> builtins.list[PlannedVersion]:
        """Prunes the versions that a plan lets go: the volume has them no more, for good, and what
        only they need may be collected. Returns those that were pruned: what was tagged, mounted or
        forked since the plan was made stays. store: needed if the plan's was given with
        credentials."""

    @staticmethod
    async def gc(
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        dry_run: bool = False,
        plan: GcReport | None = None,
        pruned: Sequence[PrunePlan] | None = None,
        executor: Executor | None = None,
    ) -> GcReport:
        """Deletes what nothing in the store needs: neither a head that is not pruned, nor a tag,
        nor a mount or kept work. Writers go on meanwhile; what they may still use stays, and what
        is younger than an hour. A deleted volume can be brought back for a week; then its versions
        go, too.

        dry_run: says what would go, to the byte; with pruned, after these plans (`plan_maintain`).
        plan: what such a call has returned; nothing that it does not name is deleted. `is_done` is
        False if a writer does not answer: nothing was deleted. The next call goes on, also after a
        killed one.

        InvalidStateError: this machine's clock is wrong by more than five minutes. LeaseHeldError:
        a process of this machine is at it. Any error before something is deleted: a head, a tag or
        a pin that cannot be read stops it. Cost: roots, and the index of every kept version, once.

        executor: reads the indexes of many versions (docs/guide/large-stores.md).
        """

    @staticmethod
    async def verify(
        source: str | None = None,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        sample: float = 1.0,
        resume: bool = False,
        progress: ProgressListener | None = None,
        executor: Executor | None = None,
    ) -> VerifyReport:
        """Reads the packs of a version (as `version` takes it), or of the whole store, again,
        checks every byte, and says which packs are damaged and which paths of which versions that
        breaks; of a whole store also which heads, tags, leases and records of volumes are damaged,
        and which heads are missing. Nothing is written. Of linked files only the state of their
        objects is looked at.

        sample: that part of the packs, chosen by chance; that the others are there is seen from the
        list. resume: what an interrupted run on this machine has read is left out. A store that
        does not answer raises; damage does not. executor: reads the packs
        (docs/guide/large-stores.md).
        """

    @staticmethod
    async def warm(
        source: str,
        path: FilePath = "/",
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
        replay: str | os.PathLike[str] | None = None,
        progress: ProgressListener | None = None,
    ) -> WarmReport:
        """`ROVolume.warm` of a version as `version` takes it: of a bare name the volume's last one.
        It may be SOURCE:PATH."""

    @staticmethod
    async def plan_repair(
        store: str | os.PathLike[str] | Storage | None = None,
        *,
        sources: Sequence[str | os.PathLike[str] | Storage] = (),
        report: VerifyReport | None = None,
        progress: ProgressListener | None = None,
    ) -> RepairPlan:
        """Reads the whole store as `verify` does, and looks for what is lost: in this machine's
        cache, in copies of its volumes on this machine (mounts without FUSE), in `sources`, and in
        other packs of the store. Says what `repair` would do, and which paths stay broken. Nothing
        is written. sources: other stores that have some of the same versions, or local directories
        that have files of them (a download, a mount). report: of a `verify` of this store: only its
        damaged packs are read again. InvalidInputError: a source has another key.
        """

    @staticmethod
    async def repair(plan: RepairPlan, *, progress: ProgressListener | None = None) -> RepairPlan:
        """Does what a plan of this process says, and returns what was done: what was found of each
        damaged pack is put into a new one, and a record says so to readers. Addresses, versions and
        locators stay as they are; nothing is deleted. CorruptError: a source has changed since."""

    @staticmethod
    async def push(
        source: str,
        to: str | os.PathLike[str] | Storage,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        name: str | None = None,
        all_versions: bool = False,
        progress: ProgressListener | None = None,
        executor: Executor | None = None,
    ) -> PushReport:
        """Copies a version (as `version` takes it) to another store, which is made if there is
        none, and makes it the last one of the volume there: of the same name, or `name`. Its id
        stays the same, and its locator differs in the store alone. Only packs that the target has
        not travel, each checked before and after, so that a push that was interrupted is repeated,
        and so is one that keeps a mirror.

        all_versions: also the volume's earlier versions that are not pruned, and its tags. The
        target needs none of them to read the version. What its volume cannot get any more, since
        it has a later version, is in `left_out` and `left_out_tags`. ConflictError: the target's
        volume has a version that this one did not come from, or a later one, and not this one;
        nothing is replaced. LeaseHeldError: somebody writes to it. InvalidInputError: one of the
        stores is encrypted, and the other has not the same key. CorruptError: a pack is damaged.
        executor: copies the packs (docs/guide/large-stores.md).
        """

    @staticmethod
    async def pull(
        source: str,
        origin: str | os.PathLike[str] | Storage,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        name: str | None = None,
        all_versions: bool = False,
        progress: ProgressListener | None = None,
        executor: Executor | None = None,
    ) -> PushReport:
        """As `push`, of a version in the store `origin`, to `store`."""

    @staticmethod
    async def stored_bytes(
        source: str | None = None,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        by: By | None = None,
        progress: ProgressListener | None = None,
    ) -> builtins.list[StoredBytes]:
        """How much of the store each version of `source` (a volume, or one version) needs, or each
        volume of the store, and what of that nothing else needs: the room that it takes alone.
        Bytes count as they are stored, once however often they are used.

        by: `version`, `volume`, `owner` or `store`; None: versions of a source, else volumes. Reads
        the whole index of every version that the store keeps.
        """

    @staticmethod
    async def get(name: str, *, store: str | os.PathLike[str] | Storage | None = None) -> VolumeDetails:
        """What is known of a volume, in its store and on this machine. NotFoundError: there is none
        of that name; the hint names near ones."""

    @staticmethod
    async def from_locator(locator: str | Locator, *, store: Storage | None = None) -> ROVolume:
        """The version a locator names, verified to exist, and to be one of the volume that it
        names: one request. LOCATOR/path means that folder of it, which is looked for when it is
        mounted. store: the locator's, with credentials. NotFoundError, InvalidInputError,
        CorruptError."""


def volume(name: str, *, store: str | os.PathLike[str] | Storage | None = None) -> RWVolume:
    """The volume of that name, made when it is missing; "/mydata" and "mydata" are the same."""
    return RWVolume(volume_module.volume(name, store=store))
