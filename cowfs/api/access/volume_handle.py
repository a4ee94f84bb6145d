"""A volume as one object or one call works on it: how its name is claimed, its store and its head
as far as they are known, and what of this process uses it. Functions of this package take a handle;
`RWVolume` is the object around one.

    unclaimed ── resolve ── claimed ── end ── ended

resolve      opens the store and claims or finds the name; before that nothing was read or written anywhere
ended        finalized: every later use raises InvalidStateError

Threads: any. `mutex` is held by calls that change what the handle knows or uses.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Self

from cowfs import store as stores_layer
from cowfs.api import claiming, hints, sources, stores
from cowfs.api.access.file_access import Opens, VolumeAccess
from cowfs.api.access.used_files import UsedFiles
from cowfs.api.mounts import kept_work, left_work
from cowfs.api.mounts.base import mount_of
from cowfs.api.mounts.used_mount import UsedMount
from cowfs.api.storage.definition import Storage
from cowfs.api.transfers.transfer_report import Target
from cowfs.api.upkeep import copied_stores
from cowfs.api.versions.located_version import LocatedVersion
from cowfs.base import clock
from cowfs.base.byte_sizes import format_size
from cowfs.base.errors import CowfsError, InvalidStateError, NotFoundError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.quantities import count
from cowfs.control import MountOptions
from cowfs.machine import registry
from cowfs.version.names import volumes

if TYPE_CHECKING:
    from cowfs.api.access.file_session import FileSession
    from cowfs.api.claiming import Claim
    from cowfs.api.mounts.launch import Started
    from cowfs.api.mounts.summaries import MountSummary, WorkingCopySummary
    from cowfs.base.ids import VersionId
    from cowfs.control.options import Uncommitted
    from cowfs.format.locator import Locator
    from cowfs.format.manifest import Manifest
    from cowfs.machine.registry import MountEntry
    from cowfs.machine.working_copy import WorkingCopy
    from cowfs.version.names.volumes import Head, Seen


@dataclass(frozen=True)
class Known:
    """What `status` said about uncommitted work. work: in a few words. time_ns: when."""

    work: str
    time_ns: int


class VolumeHandle:
    """claim: how resolve treats the name: create it (strict: refuse a taken one), find it, or
    either. compress: whether the contents of a new volume are compressed. owner: of a new volume;
    None: the author of versions made here. uncommitted: what the first mount or use of files does
    about uncommitted work, unless the call says it."""

    def __init__(
        self,
        named: stores.Named,
        name: str,
        claim: Claim,
        *,
        strict: bool = False,
        compress: bool = True,
        owner: str | None = None,
        uncommitted: Uncommitted = "resume",
    ) -> None:
        self.named = named
        self.name = name
        """The volume's name. Resolving a new volume determines it: a taken name gets a suffix."""
        self.claim = claim
        self.store: stores.OpenStore | None = None
        """None: not resolved yet."""
        self.version: VersionId | None = None
        """The last version, as far as it is known."""
        self.head_number = 0
        self.has_made = False
        """Whether resolving has made the volume."""
        self.made_store: str | None = None
        """URL of the store, if resolving has made it."""
        self.options = MountOptions()
        """Those of the last mount."""
        self.uncommitted: Uncommitted = MountOptions(uncommitted=uncommitted).uncommitted
        """That choice, until it was followed."""
        self.started: Started | None = None
        """The daemon of the last mount that was made."""
        self.mount_used = UsedMount()
        self.known: Known | None = None
        """Of the last `status` since the last commit, for those who must not ask."""
        self.files_used = UsedFiles()
        self.mutex = RLock()
        self.ended = ""
        """How it was ended, in one word; "": not yet."""
        self._is_strict = strict
        self._compress = compress
        self._owner = owner
        self._seen: Seen | None = None

    @classmethod
    def of_head(cls, store: stores.OpenStore, head: Head) -> Self:
        """The volume that has this head."""
        volume = cls(store.storage or store.url, head.volume, "existing")
        volume._adopt(store, head)
        return volume

    @property
    def is_unclaimed(self) -> bool:
        """Whether it is new, and not yet read or written anywhere."""
        return self.claim == "new" and self.store is None

    @property
    def opened(self) -> stores.OpenStore:
        """The store, once it is resolved."""
        assert self.store is not None, "resolve comes first"
        return self.store

    @property
    def store_url(self) -> str | None:
        """As `RWVolume.store_url`."""
        if self.store is not None:
            return self.store.url
        return self.named.url if isinstance(self.named, Storage) else self.named

    @property
    def locator(self) -> str | None:
        """As `RWVolume.locator`."""
        if self.store is None and self.claim != "new":
            raise InvalidStateError(
                f"volume {self.name!r} has not been looked up yet", hint="Await it (or call resolve()), or mount it."
            )
        return str(self.place_of(self.version)) if self.version is not None else None

    @property
    def is_made_empty(self) -> bool:
        """Whether this handle has made the volume and certainly no version of it. The outcome of
        putting a head may be unknown."""
        return self.has_made and self.version is None and not self.working_copy().may_have_uncommitted

    def require_not_ended(self) -> None:
        if self.ended:
            opened = hints.opening(self.name, self.store.url if self.store is not None else None)
            raise InvalidStateError(
                f"volume {self.name!r} was {self.ended}: this object cannot be used any more",
                hint=f"{opened} goes on with the volume; forking the version starts another one.",
            )

    # -- claiming

    def resolve(
        self, *, accept_unsafe_store: bool = False, new_store: bool = False, to_write: bool = False
    ) -> stores.OpenStore:
        """Finds or creates the volume, once. to_write: the volume is opened next, so that reading
        its head also reads what opening it needs (`take_seen`)."""
        with self.mutex:
            self.require_not_ended()
            if self.store is None:
                self._resolve(accept_unsafe_store, to_write=to_write, new_store=new_store)
            return self.opened

    def _resolve(self, accept_unsafe_store: bool, *, to_write: bool, new_store: bool) -> None:
        if self.claim == "existing" and to_write:
            found = sources.find(self.name, self.named, to_write=True)
            assert found.head is not None
            self._adopt(found.store, found.head)
            return
        if self.claim == "existing":
            store = stores.open_store(self.named)
        else:
            is_new = self.claim == "new"
            store, has_made = stores.open_or_initialize(self.named, new_store=new_store, with_parents=is_new)
            self.made_store = store.url if has_made else None
            stores_layer.require_writable(store.record, accept_unsafe=accept_unsafe_store)
        head, self.has_made = claiming.head(
            store.objects,
            self.name,
            self.claim,
            strict=self._is_strict,
            compress=self._compress,
            owner=self._owner,
        )
        self._adopt(store, head)

    def _adopt(self, store: stores.OpenStore, head: Head) -> None:
        """From now on it is an existing volume."""
        self.claim = "existing"
        self.store, self.name = store, head.volume
        self.version, self.head_number = head.version, head.number
        self._seen = head.seen

    def take_seen(self) -> Seen | None:
        """The objects that were read together with the head; only the first caller gets them, since
        they become stale."""
        seen, self._seen = self._seen, None
        return seen

    # -- versions

    def record(
        self, head_number: int, version: VersionId, manifest: Manifest | None = None, *, is_new: bool
    ) -> LocatedVersion:
        """Remembers the version as the last one, unless a later one is known, and returns it."""
        with self.mutex:
            self.known = None
            if head_number >= self.head_number:  # otherwise another commit has overtaken this one
                self.head_number, self.version = head_number, version
            return self.locate(version, manifest, is_new=is_new)

    def place_of(self, version: VersionId) -> Locator:
        return volumes.locator(self.opened.objects, self.name, version)

    def locate(self, version: VersionId, manifest: Manifest | None = None, *, is_new: bool = False) -> LocatedVersion:
        return LocatedVersion(self.place_of(version), manifest=manifest, storage=self.opened.storage, is_new=is_new)

    def last_version(self) -> LocatedVersion | None:
        """Reads the head. None: there is no version yet."""
        if self.is_unclaimed:
            return None
        head = volumes.read_head(self.resolve().objects, self.name)
        return self.locate(head.version) if head.version is not None else None

    def committed_version(self) -> LocatedVersion:
        """The last version. InvalidStateError: there is work that is not in it."""
        if self.has_changes():
            raise InvalidStateError(
                f"volume {self.name!r} has uncommitted work on this machine, which a download would not have",
                hint=f"Commit first ({Command('commit')}, commit()); or download the last version, Volume.version(name).",
            )
        if (found := self.last_version()) is None:
            raise NotFoundError(f"volume {self.name!r} has no version yet", hint="Write to it, and commit().")
        return found

    # -- this machine

    def working_copy(self) -> WorkingCopy:
        return copied_stores.locate(self.opened, self.name, meta_dir=self.options.meta_path)

    def target(self) -> Target:
        return Target(self.name, self.opened, self.working_copy())

    def live(self) -> MountEntry | None:
        """The mount that writes to the volume on this machine, regardless of its creator: a
        writable mount, or a scratch mount that has become the volume."""
        if self.store is not None:
            return copied_stores.find_mount(self.store, self.name)
        if self.is_unclaimed:
            return None
        return registry.find_by_url(stores.canonical_url(self.named), self.name)

    def is_last_user(self) -> bool:
        """Whether no other handle and no other process uses the mount."""
        entry = self.live()
        return entry is None or self.mount_used.is_last(entry)

    def mounted_here(self) -> MountEntry | None:
        """The volume's writable mount, if programs of this machine see it at its path."""
        self.require_not_ended()
        entry = self.live()
        return entry if entry is not None and mount_of(entry).is_there() else None

    def has_changes(self) -> bool:
        """As `RWVolume.has_changes`."""
        if self.find_files() is not None and (is_dirty := self.files_used.is_dirty()) is not None:
            return is_dirty
        if (entry := self.live()) is not None:
            return mount_of(entry).has_uncommitted()
        if self.is_unclaimed:
            return False
        self.resolve()
        working_copy = self.working_copy()
        return working_copy.may_have_uncommitted or bool(kept_work.elsewhere(working_copy, self.opened))

    def learn_work(self, said: MountSummary | WorkingCopySummary | None) -> None:
        """Remembers what a status says about uncommitted work. Measures the work of a mount or of
        `files` of this process, unless a commit is under way, which would have to be waited for."""
        self.known = Known(said.work, clock.now_ns()) if said is not None else None
        if said is None or not said.has_uncommitted:
            return
        with suppress(CowfsError):
            found = self.files_used.measure_work()
            writer = getattr(said, "writer", None)
            if found is None and writer is not None and not writer.is_committing and (entry := self.live()) is not None:
                work = mount_of(entry).measure_work(self.opened)
                found = (work.files, work.bytes) if work is not None else None
            if found is not None:
                amount = f"{count(found[0], 'file')}, {format_size(found[1])}"
                self.known = Known(f"{said.work}: {amount}", clock.now_ns())

    def find_kept_below(self, meta_dir: Path) -> WorkingCopy:
        """The working copy in that directory that has work."""
        found = copied_stores.locate(self.resolve(), self.name, meta_dir=meta_dir)
        if not found.is_kept:
            raise NotFoundError(
                f"no uncommitted work of volume {self.name!r} lies in {found.path}",
                hint=f"{Command('status')} shows where there is some; meta_dir is the directory above `working`.",
            )
        return found

    # -- files of this process

    def access(self) -> VolumeAccess:
        """The way to the volume's files, for `RWFiles`."""
        return VolumeAccess(self._live_to_use, self.find_files, self.open_files, self._open_newest)

    def find_files(self) -> FileSession | None:
        """The session of the volume that is open in this process."""
        self.require_not_ended()
        return self.files_used.found(self.store, self.name)

    def end_files(self, *, force: bool, discard: bool = False) -> bool:
        """Ends that session. Returns whether one was open."""
        self.find_files()  # needed by end()
        return self.files_used.end(force=force, discard=discard)

    def to_upload(self) -> Target:
        """Prepares the volume for publishing from this process without mount and session. A session
        that `files` has open ends, and its work is kept."""
        with self.mutex:
            self.resolve()
            self.end_files(force=False)
            return self.target()

    def _live_to_use(self) -> MountEntry | None:
        self.require_not_ended()
        return self.live()

    def open_files(self) -> FileSession:
        """That session, opened if necessary. LeaseHeldError: another process writes to the
        volume."""
        with self.mutex:
            store, working_copy = self.resolve(), self.working_copy()
            if self.find_files() is None:
                left_work.prepare_files(self, working_copy)
            return self.files_used.opened(store, working_copy, self.options)

    def _open_newest(self) -> Opens | None:
        return self.files_used.newest(self.resolve(), self.working_copy())
