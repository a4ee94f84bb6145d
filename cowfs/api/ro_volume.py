"""ROVolume: one version, immutable. Blocking; `asynchronous` has its async twin.

Fields come from the version's manifest, which is fetched and verified once. Objects from `commit`,
`from_locator` and `history` have it already; an unpickled one fetches it when a field is first
asked for, which blocks for one request: resolve() (of an async one, `await version`) does it
beforehand. A mount is read-only, or a scratch, of which nothing is kept unless it is committed as a
new volume; each object has at most one. At the end of a `with` block the mount goes; what this
process still has open, say a numpy memmap, stays open, and a mount that other processes use stays.
Threads: any; calls that change the mount wait for each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from cowfs import apart
from cowfs.api import (
    arguments,
    copies,
    file_access,
    launch,
    mount_paths,
    mounts,
    names,
    new_mounts,
    overview,
    sources,
    stores,
)
from cowfs.api import scratch as scratches
from cowfs.api.changes import Change, Located
from cowfs.api.claiming import claimed
from cowfs.api.file_access import SessionAccess
from cowfs.api.file_session import FileSession
from cowfs.api.files import ROFiles
from cowfs.api.located import names_locator
from cowfs.api.options import shows_options
from cowfs.api.overview import MountSummary
from cowfs.api.provenance import author as default_author
from cowfs.api.provenance import commit_request
from cowfs.api.storage.storage import Storage
from cowfs.api.used_mount import UsedMount
from cowfs.control import MountOptions
from cowfs.control.options import ReadOptions
from cowfs.errors import CowfsError, InvalidInputError, InvalidStateError, NotFoundError
from cowfs.format.locator import Locator
from cowfs.format.manifest import Manifest, Stats
from cowfs.machine import registry
from cowfs.machine.registry import MountEntry
from cowfs.version import history, volumes
from cowfs.version.kept_behind import KeptBehind
from cowfs.version.volumes import Head

if TYPE_CHECKING:
    from cowfs.api.files import FilePath
    from cowfs.api.rw_volume import RWVolume
    from cowfs.api.tagging import Tag
    from cowfs.api.warming import WarmReport
    from cowfs.version.commit import ProgressListener

A = TypeVar("A")


class ROVolume:
    """A version of a volume, or one folder of it. Pickles to its locator, equals every other object
    of the same version and folder, and can be used on any machine."""

    def __init__(
        self,
        locator: Locator,
        manifest: Manifest | None = None,
        *,
        folder: bytes = b"",
        is_pruned: bool = False,
        is_new: bool = False,
        storage: Storage | None = None,
    ) -> None:
        """folder: as `Locator.parse_with_path` gives it. storage: how its store is asked."""
        self._named = locator
        self._storage = storage
        self._folder = folder
        self._is_new = is_new
        self._is_pruned = is_pruned
        self._manifest = manifest
        self._mount_used = UsedMount()
        self._mutex = RLock()
        self._pid = os.getpid()
        self._file_session: FileSession | None = None
        self.started: launch.Started | None = None
        """The daemon of the last mount that this object made."""

    @classmethod
    def from_locator(cls, locator: str | Locator, *, store: Storage | None = None) -> Self:
        """The version a locator names, verified to exist, and to be one of the volume that it
        names: one request. LOCATOR/path means that folder of it, which is looked for when it is
        mounted. store: the locator's, with credentials. NotFoundError, InvalidInputError,
        CorruptError."""
        if not isinstance(locator, str | Locator):
            raise InvalidInputError(
                f"a locator is text, not {locator!r}",
                hint="Give the locator of a committed version: that of a volume is None before its first commit.",
            )
        named, folder = (locator, b"") if isinstance(locator, Locator) else Locator.parse_with_path(locator)
        chosen = stores.name(store)
        sources.require_same_store(named, chosen)
        return cls(named, folder=folder, storage=stores.storage_of(chosen)).resolve()

    @property
    def locator(self) -> str:
        """A string that leads to this version from anywhere, and proves that it is this one; to its
        folder, if it is one."""
        return self._named.with_path(self._folder)

    @property
    def folder(self) -> str:
        """The folder of the version that this object means, relative to its root; "" for all of
        it."""
        return os.fsdecode(self._folder)

    @property
    def name(self) -> str:
        """The volume's name."""
        return self._named.volume

    @property
    def id(self) -> str:
        """The version id: BLAKE3 of the manifest, 64 hex digits."""
        return self._named.version.hex()

    @property
    def is_pruned(self) -> bool:
        """Whether `history` found only the name of this version: it is not in the store, and the
        fields below are missing. It was pruned and collected, or never copied there."""
        return self._is_pruned

    @property
    def is_new(self) -> bool:
        """Whether the commit that returned this object has made the version. False: nothing had
        changed, this is the last one."""
        return self._is_new

    @property
    def message(self) -> str:
        return self._fetched().message

    @property
    def author(self) -> str:
        return self._fetched().author

    @property
    def created(self) -> datetime:
        """When the version was committed, by the committer's clock; UTC, to the microsecond."""
        return datetime.fromtimestamp(self.created_ns / 1e9, UTC)

    @property
    def created_ns(self) -> int:
        """When the version was committed, by the committer's clock, in nanoseconds since 1970."""
        return self._fetched().created_ns

    @property
    def labels(self) -> Mapping[str, str]:
        return dict(self._fetched().labels)

    @property
    def produced_by(self) -> Mapping[str, str]:
        """What made it: system, run, action, output, host, as far as known."""
        return dict(self._fetched().produced_by)

    @property
    def parents(self) -> list[str]:
        """Version ids; one, but none for a first version and several for a merge. They may be
        pruned."""
        return [parent.hex() for parent in self._fetched().parents]

    @property
    def made_in(self) -> str:
        """The volume that it was committed to. A fork also has versions of the volume that it came
        from."""
        return self._fetched().volume

    @property
    def stats(self) -> Stats:
        """files, directories, bytes, and what this version added."""
        return self._fetched().stats

    @property
    def path(self) -> Path:
        """Where this object is mounted. InvalidStateError when it is not."""
        entry = self._live()
        if entry is None:
            raise InvalidStateError(f"{self.name}@{self.id[:12]} is not mounted", hint="Call mount() first.")
        return Path(entry.mount_path)

    @property
    def is_mounted(self) -> bool:
        return self._live() is not None

    @property
    def owns_mount(self) -> bool:
        """Whether a mount that this object made, or shares, is there: the same, since it counts no
        other."""
        return self.is_mounted

    def status(self) -> MountSummary | None:
        """What `cowfs status` shows of this object's mount; None: there is none."""
        entry = self._live()
        return overview.mount_summary(entry) if entry is not None else None

    @property
    def files(self) -> ROFiles:
        """The version's files without a mount; of a folder, what is in it. Nothing is read before
        the first call."""
        return ROFiles(SessionAccess(self._opened_files), lambda: self)

    def _opened_files(self) -> FileSession:
        held = self._file_session
        if held is None or not held.is_usable:
            self._fetched()
            held = file_access.of_version(self._store(), self.name, self.id, self._folder)
            self._file_session = held
        return held

    @names_locator
    def resolve(self) -> Self:
        """Fetches the manifest unless it is here already; of an async version `await version` does
        the same."""
        self._fetched()
        return self

    @names_locator
    @shows_options(ReadOptions)
    def mount(
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
        chosen = arguments.mount_options(options, tuning)
        if chosen.take_over or chosen.accept_unsafe_store:
            raise InvalidInputError(
                "a read-only or scratch mount takes nothing over, and writes to no store",
                hint="Leave take_over and accept_unsafe_store out.",
            )
        if scratch:
            self._require_whole("mounted as a scratch")
            if chosen.mode == "copy":
                raise InvalidInputError("a scratch is no copy", hint="Leave the mode out: a scratch needs FUSE.")
        if chosen.meta_dir is not None and not scratch:
            raise InvalidInputError("a read-only mount has no working copy", hint="Leave meta_dir out.")
        with self._mutex:
            if (entry := self._mount_used.at_its_path()) is not None:
                if entry.is_scratch != scratch:
                    raise InvalidStateError(
                        f"this object is mounted {'as a scratch' if entry.is_scratch else 'read-only'} at {entry.mount_path}",
                        hint="Unmount it first, or use another object of the same version.",
                    )
                copies.require_mode(entry, chosen)
                path = mount_paths.same(entry, mount_path)
                if apart.run(partial(self._mount_used.join, entry)):
                    return path
            self._fetched()
            return apart.run(partial(self._mounted, mount_path, chosen, scratch))

    def _mounted(self, given: new_mounts.Given, options: MountOptions, is_scratch: bool) -> Path:
        if key := "" if is_scratch else options.resolved().sharing_key:
            return self._share_or_mount(given, options, key)
        while (made := self._mount(given, options, is_scratch)) is None:
            pass
        return made

    def _share_or_mount(self, given: new_mounts.Given, options: MountOptions, key: str) -> Path:
        store, folder = self._store(), os.fsdecode(self._folder)
        wanted = (store.record.store_id.hex(), self.name, self.id, folder, key)

        def find() -> MountEntry | None:
            for entry in registry.find_shareable(*wanted):
                if (
                    mount_paths.is_same(entry, given)
                    and copies.is_of_mode(entry, options)
                    and mount_paths.is_there(entry)
                ):
                    return entry
            return None

        while True:
            with mount_paths.turn("/".join(wanted), find) as may_make:
                if (entry := self._mount_used.share(find, options, store.access)) is not None:
                    return Path(entry.mount_path)
                if may_make and (path := self._mount(given, options, is_scratch=False)) is not None:
                    return path

    def _mount(self, given: new_mounts.Given, options: MountOptions, is_scratch: bool) -> Path | None:
        """None: others have found and ended it before this object had a part of it."""
        manifest, store = self._fetched(), self._store()
        made = new_mounts.of_version(store, self._named, self._folder, manifest, given, options, is_scratch=is_scratch)
        self.started = made.started
        return made.path if self._mount_used.take(made, options) else None

    @names_locator
    def unmount(self, *, force: bool = False) -> None:
        """Unmounts what this object mounted; of a scratch what was not committed is gone. A mount
        that others share stays with them, and one that `cowfs mount` was asked for. ConflictError
        while files are open; InvalidStateError: somebody else has ended the mount. force: unmounts
        all the same, and programs that use it get errors."""
        self._unmount(mounts.unmount, force=force)

    def _unmount(self, end: Callable[..., object], *, force: bool = False) -> None:
        with self._mutex:
            apart.run(partial(self._unmounted, end, force=force))

    def _unmounted(self, end: Callable[..., object], *, force: bool) -> None:
        entry = self._live()
        if force or not self._mount_used.is_left(f"{self.name}@{self.id[:12]}", entry):
            self._mount_used.end(entry, end, force=force)

    @names_locator
    def commit_scratch(
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
        request = commit_request(message, author, produced_by, labels)
        entry = self._live()
        if entry is None or not entry.is_scratch:
            raise InvalidStateError(
                f"{self.name}@{self.id[:12]} has no scratch mount, and a version does not change",
                hint="Mount it with scratch=True first, or fork it.",
            )
        volume, done = scratches.commit(entry, name, request, progress, storage=self._storage, strict=strict)
        return ROVolume(Locator(self._named.store, volume, done.version), is_new=done.is_new, storage=self._storage)

    @names_locator
    def fork(self, name: str | None = None, *, strict: bool = False) -> RWVolume:
        """A new volume that starts from this version and shares every byte: two small objects.

        A taken name becomes NAME-<6 hex>, so that a task that is tried again does not fail on its
        own traces; strict: ConflictError.
        """
        from cowfs.api.rw_volume import RWVolume  # it makes versions, and a version makes volumes

        self._require_whole("forked")
        store = self._store()

        def create(new_name: str) -> Head:
            return volumes.fork_volume(store.objects, new_name, self._named, owner=default_author())

        wanted = names.checked(name) if name is not None else names.generated()
        return RWVolume.made(store, claimed(wanted, create, strict=strict), self)

    @names_locator
    def history(self, limit: int | None = None) -> list[ROVolume]:
        """This version and its ancestors along all parents, across forks and merges, newest first,
        at most `limit`; one request each. Those that are not in the store have is_pruned set;
        behind one it goes on with what the volume's heads and tags keep, for one request more each.
        Of a folder, too, the versions are whole."""
        arguments.limit(limit)
        return list(islice(self._history(), limit))

    @names_locator
    def diff(
        self,
        other: Located,
        *,
        path: str | os.PathLike[str] = "/",
        times: bool = False,
        renames: bool = True,
    ) -> Iterator[Change]:
        """What became of this version in `other`: each path at which they differ, in the order of
        paths. `Change` explains what is told. Reads only what differs of the two indexes, and no
        contents.

        path: only what is there or below. times: also what only has another time of modification.
        renames: a file or directory that was moved is one change, and what is below a moved
        directory is none; False: it is removed and added. NotFoundError: neither has `path`.
        """
        from cowfs.api import comparing

        [version] = versions([other])
        return iter(comparing.changes(self, version, path, times=times, renames=renames))

    @names_locator
    def tag(self, name: str, *, move: bool = False, expect: str | None = None) -> Tag:
        """Gives this version a name: NAME@TAG means it from then on, and it is not pruned as long
        as the tag is there. Tagging it again with the same name changes nothing.

        move: the tag may be on another version now; expect: only on the one with this id, so that
        of several who move it at once one does. ConflictError: it is on another version, or was
        moved meanwhile. NotFoundError: this version is pruned, or never was its volume's last one:
        what a fork has from its origin is tagged there.
        """
        from cowfs.api import tagging

        return tagging.set_tag(self, name, move=move, expect=expect)

    @names_locator
    def warm(
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
        from cowfs.api import warming

        return warming.warm(self, path, cache_dir, cache_size, replay, progress)

    def to_compare(self) -> Manifest:
        """What says where the version's index lies, for who reads it without mount and session."""
        return self._fetched()

    def _history(self) -> Iterator[ROVolume]:
        objects = self._store().objects
        for past in history.history(objects, self._named.version, KeptBehind(objects, self._named.volume)):
            locator = Locator(self._named.store, self._named.volume, past.version)
            yield ROVolume(locator, past.manifest, is_pruned=past.manifest is None, storage=self._storage)

    def _fetched(self) -> Manifest:
        """The manifest, fetched once. NotFoundError when the version is pruned or deleted, or is
        none of this volume's."""
        if self._manifest is not None:  # who works for a caller that has the lock does not take it
            return self._manifest
        with self._mutex:
            if self._manifest is None:
                ask = partial(history.read_ahead, version=self._named.version)
                url, storage = self._named.store_url, self._storage
                store, data = self._reached(lambda: stores.open_located_asking(url, storage, ask))
                self._manifest = history.open_named(store.objects, self.name, self._named.version, data)
            return self._manifest

    def _require_whole(self, done: str) -> None:
        if self._folder:
            raise InvalidInputError(
                f"one folder of a version cannot be {done}: {self.locator}",
                hint=f"Use the whole version: {self._named}",
            )

    def _live(self) -> MountEntry | None:
        return self._mount_used.entry()

    def to_read(self) -> stores.OpenStore:
        """The version's store, for who reads it without mount and session."""
        return self._store()

    def _store(self) -> stores.OpenStore:
        return self._reached(lambda: stores.open_located(self._named.store_url, self._storage))

    def _reached(self, reach: Callable[[], A]) -> A:
        try:
            return reach()
        except NotFoundError as error:
            raise NotFoundError(
                f"{self.locator} leads to no cowfs store: {error.message}",
                hint="Check the locator; the store may have moved or been deleted.",
            ) from error

    # -- as a context, as a path, as a value

    def __enter__(self) -> Self:
        self._pid = os.getpid()
        entry = self._mount_used.at_its_path()
        if entry is None or not apart.run(partial(self._mount_used.join, entry)):
            self.mount()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if os.getpid() != self._pid:
            return  # a forked child leaves the block too; the mount is its parent's
        try:
            self._unmount(mounts.leave)
        except CowfsError as failure:
            if error is None:
                raise
            error.add_note(f"cowfs: {failure.message}. {failure.hint}")  # what went wrong first matters more

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        return self.path / name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ROVolume) and (other.id, other._folder) == (self.id, self._folder)

    def __hash__(self) -> int:
        return hash((self.id, self._folder))

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickled, (self.locator,))

    def __repr__(self) -> str:
        said = f", {self._manifest.message!r}" if self._manifest is not None and self._manifest.message else ""
        return f"ROVolume({self.locator!r}{said}{', not here' if self._is_pruned else ''})"


def versions(given: Iterable[Located]) -> list[ROVolume]:
    """What a caller gives as versions, blocking or async. InvalidInputError: something else."""
    found = []
    for each in given:
        version: object = getattr(each, "_blocking", each)  # an async version has the blocking one inside
        if not isinstance(version, ROVolume):
            raise InvalidInputError(
                f"{each!r} is no version", hint="Volume.version(source) gives the version that a text means."
            )
        found.append(version)
    return found


def _unpickled(locator: str) -> ROVolume:
    named, folder = Locator.parse_with_path(locator)
    return ROVolume(named, folder=folder)
