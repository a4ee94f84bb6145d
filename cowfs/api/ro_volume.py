"""ROVolume: one version, immutable. Blocking; `asynchronous` makes its async twin.

Fields come from the version's manifest, which is fetched and verified once. Objects from `commit`,
`from_locator` and `history` already have it. An unpickled object fetches it when a field is first
read, which blocks for one request; resolve() (in the async API, `await version`) fetches it in
advance. A mount is read-only or a scratch mount, which discards its changes unless they are
committed as a new volume. Each object has at most one mount. The mount ends with the `with` block.
Files that this process still has open, say a numpy memmap, stay open, and a mount that other
processes use stays. Threads: any; calls that change the mount wait for each other.
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

from cowfs.api import arguments, names, sources, stores
from cowfs.api.access import file_access
from cowfs.api.access.file_access import SessionAccess
from cowfs.api.access.file_session import FileSession
from cowfs.api.claiming import claimed
from cowfs.api.files import ROFiles
from cowfs.api.located import names_locator
from cowfs.api.mounts import launch, mount_paths, new_mounts, overview
from cowfs.api.mounts import scratch as scratches
from cowfs.api.mounts.base import Mount, fits, mount_of, require_mode
from cowfs.api.mounts.summaries import MountSummary
from cowfs.api.mounts.used_mount import UsedMount
from cowfs.api.options import shows_options
from cowfs.api.provenance import author as default_author
from cowfs.api.provenance import commit_request
from cowfs.api.storage.definition import Storage
from cowfs.api.twins.one_type import OneType, unwrap
from cowfs.api.versions.changes import Change, Located
from cowfs.base import interruptible
from cowfs.base.errors import CowfsError, InvalidInputError, InvalidStateError, NotFoundError
from cowfs.control import MountOptions
from cowfs.control.options import ReadOptions
from cowfs.format.locator import Locator
from cowfs.format.manifest import Manifest, Stats
from cowfs.machine import registry
from cowfs.machine.registry import MountEntry
from cowfs.version import history
from cowfs.version.names import volumes
from cowfs.version.names.volumes import Head
from cowfs.version.retention.kept_behind import KeptBehind

if TYPE_CHECKING:
    from cowfs.api.files import FilePath
    from cowfs.api.rw_volume import RWVolume
    from cowfs.api.transfers.warming import WarmReport
    from cowfs.api.versions.tagging import Tag
    from cowfs.version.commit import ProgressListener

A = TypeVar("A")


class ROVolume(metaclass=OneType):
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
        """folder: as returned by `Locator.parse_with_path`. storage: the credentials for its
        store."""
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
        """The version that a locator names, after verifying that it exists and belongs to the
        volume in the locator: one request. LOCATOR/path means that folder of it, which is looked up
        when it is mounted. store: the locator's store, with credentials. NotFoundError,
        InvalidInputError, CorruptError."""
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
        """A string that identifies this version, and its folder if it is one, from anywhere. It
        also proves the version's identity."""
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
        """Whether `history` found only the name of this version. It is then not in the store, and
        the fields below are missing. It was pruned and collected, or never copied to this store."""
        return self._is_pruned

    @property
    def is_new(self) -> bool:
        """Whether the commit that returned this object made the version. False: nothing had
        changed, and this is the last version."""
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
        """The origin of the version: system, run, action, output and host, as far as known."""
        return dict(self._fetched().produced_by)

    @property
    def parents(self) -> list[str]:
        """Version ids: none for a first version, several for a merge, otherwise one. Parents may be
        pruned."""
        return [parent.hex() for parent in self._fetched().parents]

    @property
    def made_in(self) -> str:
        """The volume that it was committed to. A fork also has versions of the volume that it was
        forked from."""
        return self._fetched().volume

    @property
    def stats(self) -> Stats:
        """files, directories, bytes, and the amount that this version added."""
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
        """Whether a mount that this object made or shares exists. For a version the two are the
        same, because the object counts no other mount."""
        return self.is_mounted

    def status(self) -> MountSummary | None:
        """The entry that `cowfs status` shows for this object's mount; None: not mounted."""
        entry = self._live()
        return overview.mount_summary(entry) if entry is not None else None

    @property
    def files(self) -> ROFiles:
        """The version's files without a mount; for a folder, its contents. Nothing is read before
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
        """Fetches the manifest unless it is loaded already. In the async API `await version` does
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
                if (entry.kind == "scratch") != scratch:
                    raise InvalidStateError(
                        f"this object is mounted {'read-only' if scratch else 'as a scratch'} at {entry.mount_path}",
                        hint="Unmount it first, or use another object of the same version.",
                    )
                require_mode(entry, chosen)
                path = mount_paths.same(entry, mount_path)
                if interruptible.run(partial(self._mount_used.join, entry)):
                    return path
            self._fetched()
            make = self._mounted_scratch if scratch else self._mounted
            return interruptible.run(partial(make, mount_path, chosen))

    def _mounted(self, given: new_mounts.Given, options: MountOptions) -> Path:
        if key := options.resolved().sharing_key:
            return self._share_or_mount(given, options, key)
        while (path := self._mount(given, options)) is None:
            pass
        return path

    def _mounted_scratch(self, given: new_mounts.Given, options: MountOptions) -> Path:
        made = None
        while made is None or not self._mount_used.take(made, options):
            made = new_mounts.scratch_of_version(self._store(), self._named, self._fetched(), given, options)
            self.started = made.started
        return made.path

    def _share_or_mount(self, given: new_mounts.Given, options: MountOptions, key: str) -> Path:
        store, folder = self._store(), os.fsdecode(self._folder)
        wanted = (store.record.store_id.hex(), self.name, self.id, folder, key)

        def find() -> MountEntry | None:
            for entry in registry.find_shareable(*wanted):
                if mount_paths.is_same(entry, given) and fits(entry, options) and mount_of(entry).is_there():
                    return entry
            return None

        while True:
            with mount_paths.turn("/".join(wanted), find) as may_make:
                if (entry := self._mount_used.share(find, options, store.access)) is not None:
                    return Path(entry.mount_path)
                if may_make and (path := self._mount(given, options)) is not None:
                    return path

    def _mount(self, given: new_mounts.Given, options: MountOptions) -> Path | None:
        """None: another process found and ended the mount before this object joined it."""
        manifest, store = self._fetched(), self._store()
        made = new_mounts.of_version(store, self._named, self._folder, manifest, given, options)
        self.started = made.started
        return made.path if self._mount_used.take(made, options) else None

    @names_locator
    def unmount(self, *, force: bool = False) -> None:
        """Unmounts the mount of this object. Uncommitted work of a scratch mount is lost. A mount
        stays if others share it or if `cowfs mount` created it. ConflictError: files are open.
        InvalidStateError: another party has ended the mount. force: unmount all the same; programs
        that use the mount get errors."""
        self._unmount(lambda mount: mount.unmount(force=force), force=force)

    def _unmount(self, end: Callable[[Mount], object], *, force: bool = False) -> None:
        with self._mutex:
            interruptible.run(partial(self._unmounted, end, force=force))

    def _unmounted(self, end: Callable[[Mount], object], *, force: bool) -> None:
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
        """Makes a volume of this object's scratch mount: a fork of this version with a version that
        contains everything written before the call. Returns that version.

        name: of the volume; a taken one becomes NAME-<6 hex>, strict: ConflictError; None: a name
        is generated. The mount stays and becomes the volume's writer. A later commit without a
        name, or with the same name, goes to that volume; another name makes another volume from
        there on. Uncommitted work is lost when the mount ends. The other arguments are as for
        RWVolume. InvalidStateError: there is no scratch mount.
        """
        request = commit_request(message, author, produced_by, labels)
        entry = self._live()
        if entry is None or entry.kind != "scratch":
            raise InvalidStateError(
                f"{self.name}@{self.id[:12]} has no scratch mount, and a version does not change",
                hint="Mount it with scratch=True first, or fork it.",
            )
        volume, done = scratches.commit(entry, name, request, progress, storage=self._storage, strict=strict)
        return ROVolume(Locator(self._named.store, volume, done.version), is_new=done.is_new, storage=self._storage)

    @names_locator
    def fork(self, name: str | None = None, *, strict: bool = False) -> RWVolume:
        """A new volume that starts from this version and shares every byte: two small objects.

        A taken name becomes NAME-<6 hex>, so that a retried task does not fail on its own
        leftovers; strict: ConflictError.
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
        at most `limit`; one request each. Versions that are not in the store have is_pruned set.
        After such a version the history continues with the versions that the volume's heads and
        tags keep, for one more request each. For a folder, too, the versions returned are whole."""
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
        """Compares this version with `other` and returns each path that differs, in the order of
        paths. `Change` explains the result. Reads only the parts of the two indexes that differ,
        and no contents.

        path: only this path and below. times: include paths that differ only in modification time.
        renames: report a moved file or directory as one change, and omit the contents of a moved
        directory; False: report it as removed and added. NotFoundError: neither version has `path`.
        """
        from cowfs.api.versions import comparing

        [version] = versions([other])
        return iter(comparing.changes(self, version, path, times=times, renames=renames))

    @names_locator
    def tag(self, name: str, *, move: bool = False, expect: str | None = None) -> Tag:
        """Gives this version a name: NAME@TAG then refers to it, and it is not pruned as long as
        the tag exists. Tagging it again with the same name changes nothing.

        move: the tag may be on another version now. expect: move it only from the version with this
        id, so that of several concurrent calls one succeeds. ConflictError: the tag is on another
        version, or was moved meanwhile. NotFoundError: this version is pruned, or was never a last
        version of its volume; tag a version that a fork has from its origin there.
        """
        from cowfs.api.versions import tagging

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
        """Fetches `path` and everything below it into this machine's cache, for mounts, `files` and
        later versions. Cached contents are not fetched again, so an interrupted call can be
        repeated. Mounts may run meanwhile.

        cache_dir, cache_size: as for a mount, which should use the same. Contents that do not fit
        are left out, and `is_complete` is False. replay: a profile that a mount recorded; fetch
        only the part of `path` that is in it. progress receives the stage "warm". CorruptError,
        SourceChangedError: raised after everything else was fetched.
        """
        from cowfs.api.transfers import warming

        return warming.warm(self, path, cache_dir, cache_size, replay, progress)

    def to_compare(self) -> Manifest:
        """The location of the version's index, for reading it without mount and session."""
        return self._fetched()

    def _history(self) -> Iterator[ROVolume]:
        objects = self._store().objects
        for past in history.history(objects, self._named.version, KeptBehind(objects, self._named.volume)):
            locator = Locator(self._named.store, self._named.volume, past.version)
            yield ROVolume(locator, past.manifest, is_pruned=past.manifest is None, storage=self._storage)

    def _fetched(self) -> Manifest:
        """The manifest, fetched once. NotFoundError: the version is pruned or deleted, or does not
        belong to this volume."""
        if self._manifest is not None:  # a helper of a caller that holds the lock does not take it
            return self._manifest
        with self._mutex:
            if self._manifest is None:
                ask = partial(history.read_ahead, version=self._named.version)
                url, storage = self._named.store_url, self._storage
                store, data = self._reach(lambda: stores.open_located_asking(url, storage, ask))
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
        """The version's store, for reading it without mount and session."""
        return self._store()

    def _store(self) -> stores.OpenStore:
        return self._reach(lambda: stores.open_located(self._named.store_url, self._storage))

    def _reach(self, reach: Callable[[], A]) -> A:
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
        if entry is None or not interruptible.run(partial(self._mount_used.join, entry)):
            self.mount()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if os.getpid() != self._pid:
            return  # a forked child leaves the block too; the mount is its parent's
        try:
            self._unmount(lambda mount: mount.leave())
        except CowfsError as failure:
            if error is None:
                raise
            error.add_note(f"cowfs: {failure.message}. {failure.hint}")  # the original error matters more

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        return self.path / name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ROVolume) and (other.id, other.folder) == (self.id, self.folder)

    def __hash__(self) -> int:
        return hash((self.id, self._folder))

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickle, (self.locator,))

    def __repr__(self) -> str:
        said = f", {self._manifest.message!r}" if self._manifest is not None and self._manifest.message else ""
        return f"ROVolume({self.locator!r}{said}{', not here' if self._is_pruned else ''})"


def versions(given: Iterable[Located]) -> list[ROVolume]:
    """Converts versions, blocking or async, as a caller passes them. InvalidInputError: something
    else."""
    found = []
    for each in given:
        version = unwrap(each)
        if not isinstance(version, ROVolume):
            raise InvalidInputError(
                f"{each!r} is no version", hint="Volume.version(source) gives the version that a text means."
            )
        found.append(version)
    return found


def _unpickle(locator: str) -> ROVolume:
    named, folder = Locator.parse_with_path(locator)
    return ROVolume(named, folder=folder)
