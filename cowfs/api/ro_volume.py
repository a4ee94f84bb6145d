"""ROVolume: one version, immutable. Blocking; `asynchronous` makes its async twin.

Fields come from the version's manifest, which is fetched and verified once. Objects from `commit`,
`Volume.from_locator` and `history` already have it. An unpickled object fetches it when a field is
first read, which blocks for one request, and one that a config names (`of_source`) is looked up
then; resolve() (in the async API, `await version`) does this in advance. A mount is read-only or a
scratch mount, which discards its changes unless they are committed as a new volume. Each object has
at most one mount. The mount ends with the `with` block. Files that this process still has open, say
a numpy memmap, stay open, and a mount that other processes use stays. Threads: any; calls that
change the mount wait for each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from threading import RLock
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

from cowfs.api import arguments, sources, stores
from cowfs.api.access import file_access
from cowfs.api.access.file_access import SessionAccess
from cowfs.api.access.file_session import FileSession
from cowfs.api.files import ROFiles
from cowfs.api.located import names_locator
from cowfs.api.mounts import launch, overview, version_mount
from cowfs.api.mounts import scratch as scratches
from cowfs.api.mounts.base import Mount
from cowfs.api.mounts.summaries import MountSummary
from cowfs.api.mounts.used_mount import UsedMount
from cowfs.api.provenance import commit_request
from cowfs.api.signatures import shows_options
from cowfs.api.storage.definition import Storage
from cowfs.api.tasks import scope
from cowfs.api.twins.one_type import unwrap
from cowfs.api.twins.volume_fields import DATA_VERSION, VolumeField, read_data
from cowfs.api.versions import cards
from cowfs.api.versions.changes import Changes, Source, Sources
from cowfs.api.versions.labels import Conditions, Labels, make_test
from cowfs.api.versions.located_version import LocatedVersion
from cowfs.api.versions.sought_version import SoughtVersion
from cowfs.api.versions.version_list import VersionList
from cowfs.base import clock, interruptible
from cowfs.base.errors import CowfsError, InvalidInputError, InvalidStateError
from cowfs.base.ids import VersionId
from cowfs.control import MountOptions
from cowfs.control.options import ReadOptions
from cowfs.format.locator import Locator
from cowfs.format.manifest import Manifest, Stats
from cowfs.machine.registry import MountEntry
from cowfs.version import history
from cowfs.version.retention.kept_behind import KeptBehind

if TYPE_CHECKING:
    from datetime import datetime

    from cowfs.api.files import FilePath
    from cowfs.api.rw_volume import RWVolume
    from cowfs.api.transfers.warming import WarmReport
    from cowfs.api.versions.tagging import Tag
    from cowfs.api.versions.version_log import VersionNames
    from cowfs.api.versions.version_tree import VersionTree
    from cowfs.version.commit import ProgressListener


class ROVolume(VolumeField):
    """A version of a volume, or one folder of it. Pickles to its locator, equals every other object
    of the same version and folder, and can be used on any machine. A field of a pydantic model may
    have this type: a text in a config is then a version."""

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
        self._hold(SoughtVersion(LocatedVersion(locator, folder, manifest, storage, is_new)), is_pruned=is_pruned)

    def _hold(self, sought: SoughtVersion, *, is_pruned: bool = False) -> None:
        self._sought = sought
        self._is_pruned = is_pruned
        self._mount_used = UsedMount()
        self._mutex = RLock()
        self._pid = os.getpid()
        self._file_session: FileSession | None = None
        self._started: launch.Started | None = None

    @property
    def locator(self) -> str:
        """A string that identifies this version, and its folder if it is one, from anywhere. It
        also proves the version's identity."""
        return self._located.locator

    @property
    def folder(self) -> str:
        """The folder of the version that this object means, relative to its root; "" for all of
        it."""
        return os.fsdecode(self._located.folder)

    @property
    def name(self) -> str:
        """The volume's name."""
        return self._located.name

    @property
    def store_url(self) -> str:
        """The canonical URL of its store."""
        return self._located.named.store_url

    @property
    def id(self) -> str:
        """The version id: BLAKE3 of the manifest, 64 hex digits."""
        return self._located.id

    @property
    def is_pruned(self) -> bool:
        """Whether `history` found only the name of this version. It is then not in the store, and
        the fields below are missing. It was pruned and collected, or never copied to this store."""
        return self._is_pruned

    @property
    def is_resolved(self) -> bool:
        """Whether the version was looked up and its manifest is here, so that its fields make no
        request."""
        return self._is_looked_up() and self._located.manifest is not None

    @property
    def is_new(self) -> bool:
        """Whether the commit that returned this object made the version. False: nothing had
        changed, and this is the last version."""
        return self._located.is_new

    @property
    def message(self) -> str:
        return self._fetch().message

    @property
    def author(self) -> str:
        return self._fetch().author

    @property
    def created(self) -> datetime:
        """When the version was committed, by the committer's clock; UTC, to the microsecond."""
        return clock.as_datetime(self.created_ns)

    @property
    def created_ns(self) -> int:
        """When the version was committed, by the committer's clock, in nanoseconds since 1970."""
        return self._fetch().created_ns

    @property
    def labels(self) -> Mapping[str, str]:
        return dict(self._fetch().labels)

    @property
    def produced_by(self) -> Mapping[str, str]:
        """The origin of the version: system, workflow, run, action, attempt, output and host, as
        far as known."""
        return dict(self._fetch().produced_by)

    @property
    def parents(self) -> list[str]:
        """Version ids: none for a first version, several for a merge, otherwise one. Parents may be
        pruned."""
        return [parent.hex() for parent in self._fetch().parents]

    @property
    def made_in(self) -> str:
        """The volume that it was committed to. A fork also has versions of the volume that it was
        forked from."""
        return self._fetch().volume

    @property
    def stats(self) -> Stats:
        """files, directories, bytes, and the amount that this version added."""
        return self._fetch().stats

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

    def status(self) -> MountSummary | None:
        """The entry that `cowfs status` shows for this object's mount; None: not mounted."""
        entry = self._live()
        return overview.mount_summary(entry) if entry is not None else None

    @property
    def files(self) -> ROFiles:
        """The version's files without a mount; for a folder, its contents. Nothing is read before
        the first call."""
        return ROFiles(SessionAccess(self._open_files), self._locate, self)

    def _open_files(self) -> FileSession:
        held = self._file_session
        if held is None or not held.is_usable:
            held = file_access.open_version(self._locate())
            self._file_session = held
        return held

    @names_locator
    def resolve(self) -> Self:
        """Fetches the manifest unless it is loaded already. In the async API `await version` does
        the same."""
        self._fetch()
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
        version_mount.require_possible(self._located, chosen, scratch=scratch)
        with self._mutex:
            if (path := version_mount.join(self._mount_used, mount_path, chosen, scratch=scratch)) is not None:
                return path
            try:
                made = version_mount.make(self._locate(), self._mount_used, mount_path, chosen, scratch=scratch)
            finally:
                if self._has_own_mount():
                    scope.note_mounted(self)
            self._started = made.started or self._started
            return made.path

    @names_locator
    def unmount(self, *, force: bool = False) -> None:
        """Unmounts the mount of this object. Uncommitted work of a scratch mount is lost. A mount
        stays if others share it or if `cowfs mount` created it. ConflictError: files are open.
        InvalidStateError: another party has ended the mount. force: unmount all the same; programs
        that use the mount get errors."""
        self._unmount(lambda mount: mount.unmount(force=force), force=force)

    def _unmount(self, end: Callable[[Mount], object], *, force: bool = False) -> None:
        with self._mutex:
            interruptible.run(partial(self._end_mount, end, force=force))

    def _end_mount(self, end: Callable[[Mount], object], *, force: bool) -> None:
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
        labels: Labels | None = None,
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
        volume, done = scratches.commit(entry, name, request, progress, storage=self._located.storage, strict=strict)
        return self._same_store(volume, done.version, is_new=done.is_new)

    @names_locator
    def fork(self, name: str | None = None, *, strict: bool = False) -> RWVolume:
        """A new volume that starts from this version and shares every byte: two small objects.

        A taken name becomes NAME-<6 hex>, so that a retried task does not fail on its own
        leftovers; strict: ConflictError.
        """
        from cowfs.api.rw_volume import make_volume  # it makes versions, and a version makes volumes
        from cowfs.api.versions import forking

        return make_volume(forking.fork_version(self._located, name, strict=strict), self)

    @names_locator
    def history(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        labels: Conditions | None = None,
        limit: int | None = None,
    ) -> list[ROVolume]:
        """This version and its ancestors along all parents, across forks and merges, newest first,
        at most `limit`; one request each. Versions that are not in the store have is_pruned set.
        After such a version the history continues with the versions that the volume's heads and
        tags keep, for one more request each. For a folder, too, the versions returned are whole.

        path: only the versions that changed this path, or anything below it. A path that was moved
        is followed under its earlier names. Compares indexes, and reads no contents. Changes of
        modification times alone do not count. A merge is listed if the path differs from that of
        every parent. NotFoundError: no version has the path.

        labels: only the versions whose labels meet these conditions: "loss<0.5", or several as in
        ["best=true", "step>=1000"], or a dict of labels that are equal. `<`, `<=`, `>` and `>=`
        compare numbers; a label that is no number meets none of them.
        """
        arguments.limit(limit)
        arguments.require_path(path)
        if path is None:
            found = self._history()
        else:
            from cowfs.api.versions import comparing

            found = (make_version(each) for each, _ in comparing.path_changes(self._located, path))
        if labels is not None:
            meets = make_test(labels)
            found = (each for each in found if not each.is_pruned and meets(each.labels))
        return VersionList(islice(found, limit))

    @names_locator
    def diff(
        self,
        other: Source,
        *,
        path: str | os.PathLike[str] = "/",
        times: bool = False,
        renames: bool = True,
    ) -> Changes:
        """Compares this version with `other`, a version or its name (NAME@TAG), and returns each
        path that differs, in the order of paths. `Change` explains the result. Reads only the parts
        of the two indexes that differ, and no contents.

        path: only this path and below. times: include paths that differ only in modification time.
        renames: report a moved file or directory as one change, and omit the contents of a moved
        directory; False: report it as removed and added. NotFoundError: neither version has `path`.
        """
        from cowfs.api.versions import comparing

        here = self._locate()
        version = find_version(other, here.storage or self.store_url).resolve()
        return Changes(comparing.changes(here, version, path, times=times, renames=renames))

    @names_locator
    def tag(self, name: str, *, move: bool = False, expect: str | None = None) -> Tag:
        """Gives this version a name: NAME@TAG then refers to it, and it is not pruned as long as
        the tag exists. Tagging it again with the same name changes nothing.

        move: the tag may be on another version now. expect: move it only from this version (its id,
        8 digits or more of it, or a source), so that of several concurrent calls one succeeds.
        ConflictError: the tag is on another version, or was moved meanwhile. NotFoundError: this
        version is pruned, or was never a last version of its volume; tag a version that a fork has
        from its origin there.
        """
        from cowfs.api.versions import tagging

        return tagging.set_tag(self._located, name, move=move, expect=expect)

    @names_locator
    def names(self) -> VersionNames:
        """The version's tags, and whether a collection may delete it. Three requests."""
        from cowfs.api.versions import version_log

        return version_log.names_of(self._located.open_store(), self.name, [self.id])[self.id]

    @names_locator
    def tree(self, path: str | os.PathLike[str] = "/", *, depth: int = 2, limit: int = 200) -> VersionTree:
        """The upper part of the tree below `path`: names, types, sizes. It prints as a tree.

        depth: the number of levels. limit: entries in total; the directories of a level share what
        is left of it. Reads the index alone, and no directory further than it is shown. Links are
        not followed. FileNotFoundError.
        """
        from cowfs.api.versions import version_tree

        return version_tree.read_tree(self._locate(), path, depth, limit)

    @names_locator
    def export_index(self, path: str | os.PathLike[str]) -> None:
        """Writes the version's index to a file of this machine, which `IndexFile` and `cowfs
        explore --from-file` show without the store. The file has all names, sizes, times, link
        targets and extended attributes in plain text, also those of an encrypted store; it has no
        contents of files. Reads the whole index."""
        from cowfs.api.versions import index_files

        index_files.export(self._locate(), Path(path))

    @names_locator
    def content_id(self) -> str:
        """An id of the contents, for the cache keys of task systems: `content-1:` and 64 hex
        digits. For a folder, of that folder.

        Equal ids mean equal contents: names, types, permissions, sizes, link targets, extended
        attributes and bytes. Times, owners, the volume's name and its history do not count. The
        same bytes may be stored in other pieces after an overwrite in place, and then have another
        id. Linked files count by the state of their object. Ids of an encrypted store can be
        compared only with ids made with the same key.

        The first call for a version reads its whole index, about 15 s a million files, and later
        calls on this machine make no request. Commits do not compute it.
        """
        from cowfs.api.versions import content_ids

        return content_ids.find_content_id(self._located)

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

        return warming.warm(self._locate(), path, cache_dir, cache_size, replay, progress)

    def _has_own_mount(self) -> bool:
        return self._live() is not None  # the object counts no other mount

    def _is_looked_up(self) -> bool:
        return self._sought.found is not None

    @property
    def _located(self) -> LocatedVersion:
        return self._sought.find()

    def _history(self) -> Iterator[ROVolume]:
        objects = self._located.open_store().objects
        for past in history.history(objects, self._located.version, KeptBehind(objects, self.name)):
            yield self._same_store(self.name, past.version, past.manifest, is_pruned=past.manifest is None)

    def _same_store(
        self,
        volume: str,
        version: VersionId,
        manifest: Manifest | None = None,
        *,
        is_pruned: bool = False,
        is_new: bool = False,
    ) -> ROVolume:
        """Another version of the store."""
        locator, storage = Locator(self._located.named.store, volume, version), self._located.storage
        return ROVolume(locator, manifest, is_pruned=is_pruned, is_new=is_new, storage=storage)

    def _locate(self) -> LocatedVersion:
        """With the manifest, which is fetched once."""
        if self._located.manifest is None:  # a helper of a caller that holds the lock does not take it
            with self._mutex:
                self._sought.found = self._located.resolve()
        return self._located

    def _fetch(self) -> Manifest:
        return self._locate().read_manifest()

    def _live(self) -> MountEntry | None:
        return self._mount_used.entry()

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
        return hash((self.id, self.folder))

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickle, (self.locator,))

    __version__: ClassVar[int] = DATA_VERSION

    def serialize(self) -> dict[str, str]:
        """For task systems that keep values as JSON (Airflow's XCom): {"locator": …}."""
        return {"locator": self.locator}

    @staticmethod
    def deserialize(data: Mapping[str, str], version: int = DATA_VERSION) -> ROVolume:
        """The version that `serialize` was called of. No request; "locator" may also be a name, as
        for `Volume.version`, which is looked up when it is first used. version: of the data."""
        return make_sought_version(read_data(data, version))

    def __dask_tokenize__(self) -> tuple[str, ...]:
        return ("cowfs", self.store_url, self.id, self.folder)

    def __repr__(self) -> str:
        if not self._is_looked_up():
            return f"ROVolume({self._sought.source!r}, not looked up yet)"
        manifest = self._located.manifest
        said = f", {manifest.message!r}" if manifest is not None and manifest.message else ""
        return f"ROVolume({self.locator!r}{said}{', not here' if self._is_pruned else ''})"

    def _repr_html_(self) -> str | None:
        """A card for notebooks, if the version's fields are here."""
        return cards.show_version(self, self.folder) if self.is_resolved or self._is_pruned else None


def find_version(given: Source, named: stores.Named) -> LocatedVersion:
    """The version that a caller passes: an object, blocking or async, or a text that names one in
    the store. InvalidInputError: something else. NotFoundError."""
    version = unwrap(given)
    if isinstance(version, str):
        return sources.find_version(version, named)
    if not isinstance(version, ROVolume):
        raise InvalidInputError(
            f"{given!r} is no version", hint="Give what commit() or Volume.version() returns, or a text: NAME@TAG."
        )
    return version._located


def find_versions(given: Sources, named: stores.Named) -> list[LocatedVersion]:
    """As `find_version`, of one version or several."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        return [find_version(given, named)]
    return [find_version(each, named) for each in given]


def _unpickle(locator: str) -> ROVolume:
    named, folder = Locator.parse_with_path(locator)
    return ROVolume(named, folder=folder)


def make_version(located: LocatedVersion) -> ROVolume:
    """The object for a version that was found or made."""
    return ROVolume(
        located.named, located.manifest, folder=located.folder, is_new=located.is_new, storage=located.storage
    )


def make_sought_version(source: str) -> ROVolume:
    """The version that a text names, as for `Volume.version`; it is looked up in the default store
    when it is first used. InvalidInputError: the text names no version."""
    version = ROVolume.__new__(ROVolume)
    version._hold(SoughtVersion.of_source(source))
    return version


def locate(version: ROVolume) -> LocatedVersion:
    """The version as a value, for functions that take no object."""
    return version._located


def get_daemon(version: ROVolume) -> launch.Started | None:
    """The daemon of the last mount that this object made."""
    return version._started
