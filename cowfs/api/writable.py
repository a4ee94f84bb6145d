"""The blocking half of RWVolume: one volume's line, written through a mount on this machine.

    unclaimed ── resolve ── claimed ── mount ── mounted ── unmount ── claimed … ── finalize ── ended

resolve      opens the store and claims or finds the name; before that nothing was read or written anywhere
mounted      a daemon serves it; found through the registry, so that another process than the one that mounted can commit
             and unmount. A daemon that died leaves the volume claimed: the next mount resumes its work
ended        finalized: the line goes on, but through another object

Work that is not committed lives in the working copy, never in this object. Threads: any; calls wait for each other.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Literal

from cowfs import config, log
from cowfs import store as stores_layer
from cowfs.api import daemon, launch, mount_paths, names, stores
from cowfs.api.daemon import Progress
from cowfs.api.options import MountOptions
from cowfs.api.provenance import author, commit_request
from cowfs.api.readable import ReadableVersion
from cowfs.control import MountSpec
from cowfs.errors import ConflictError, CowfsError, InvalidStateError, LeaseLostError, UnavailableError
from cowfs.format.locator import Locator
from cowfs.ids import VersionId
from cowfs.machine import registry
from cowfs.machine.registry import MountEntry
from cowfs.machine.working_copy import WorkingCopy
from cowfs.store.pins import Pin
from cowfs.version import volumes
from cowfs.version.volumes import Head

if TYPE_CHECKING:
    from cowfs.version.commit import CommitRequest

Claim = Literal["new", "existing", "either"]

NAME_TRIES = 20

_log = log.get("volume")


class WritableVolume:
    """claim says what resolve does about the name: make it (with `is_strict`, refuse a taken one), find it, or either."""

    def __init__(self, store_url: str | None, name: str, claim: Claim, *, is_strict: bool = False) -> None:
        self.name = name
        self.store_url = store_url
        self.claim = claim
        self.ended = ""
        self._is_strict = is_strict
        self._store: stores.OpenStore | None = None
        self._version: VersionId | None = None
        self.is_discarded = False
        self.started: launch.Started | None = None
        self._options = MountOptions()
        self._mount_id: str | None = None
        self._mount_path: str | None = None
        self._mutex = RLock()

    # -- claiming

    @property
    def is_resolved(self) -> bool:
        return self._store is not None

    def resolve(self, *, accept_unsafe_store: bool = False) -> None:
        """Finds or makes the volume, once. NotFoundError, ConflictError (strict), and whatever the store has to say."""
        with self._mutex:
            self._require_not_ended()
            if self._store is not None:
                return
            if self.claim == "existing":
                store = stores.open_store(self.store_url)
            else:
                store = stores.open_or_initialize(self.store_url)
                stores_layer.require_writable(store.record, accept_unsafe=accept_unsafe_store)
            self.adopt(store, self._claim_name(store))

    def _claim_name(self, store: stores.OpenStore) -> Head:
        def create(name: str) -> Head:
            return volumes.create_volume(store.objects, name, owner=author())

        if self.claim == "new":
            return claim(self.name, create, is_strict=self._is_strict)
        if self.claim == "existing":
            return volumes.read_head(store.objects, self.name)
        try:
            return volumes.find_head(store.objects, self.name) or create(self.name)
        except ConflictError:  # somebody made it between the two
            return volumes.read_head(store.objects, self.name)

    # -- what is known

    @property
    def version(self) -> VersionId | None:
        """The last committed version as far as this object knows; None before the first."""
        if self._store is None and self.claim != "new":
            raise InvalidStateError(
                f"volume {self.name!r} has not been looked up yet", hint="Await it (or call resolve()), or mount it."
            )
        return self._version

    @property
    def locator(self) -> Locator | None:
        version = self.version
        return self._locator(version) if version is not None else None

    def live(self) -> MountEntry | None:
        """The volume's writable mount on this machine, whoever made it."""
        if self._store is not None:
            return registry.find_by_volume(self._store.record.store_id.hex(), self.name)
        if self.claim == "new":
            return None
        return registry.find_by_url(stores.canonical_url(self.store_url), self.name)

    @property
    def has_mounted(self) -> bool:
        """Whether a mount that this object made is there."""
        return self._own_mount() is not None

    # -- mounting

    def mount(
        self, mount_path: str | os.PathLike[str] | None, options: MountOptions, progress: Progress = lambda _: None
    ) -> Path:
        """Mounts the volume writable; when this object has mounted it already, returns the path it has.

        LeaseHeldError when somebody else has it mounted. progress: how far the replay of an earlier mount's journal is.
        """
        with self._mutex:
            self._require_not_ended()
            if (entry := self._own_mount()) is not None:
                return mount_paths.same(entry, mount_path)
            mount_paths.check(mount_path)
            self.resolve(accept_unsafe_store=options.accept_unsafe_store)
            path = self._mount(mount_path, options, progress)
            self._options = options
            return path

    def _mount(
        self, mount_path: str | os.PathLike[str] | None, options: MountOptions, progress: Progress = lambda _: None
    ) -> Path:
        store = self._opened()
        self._leave(None)
        stores.refuse_memory(store)
        stores_layer.require_writable(store.record, accept_unsafe=options.accept_unsafe_store)
        working_copy = WorkingCopy.locate(store.record.store_id, self.name, meta_dir=options.meta_path)
        with mount_paths.chosen(mount_path, self.name, store.record.store_id) as path:
            registration = registry.new_id()
            spec = MountSpec(
                store_url=store.url,
                volume=self.name,
                mode="rw",
                source=self.name,
                working_copy=str(working_copy.path),
                log=str(working_copy.log_path),
                **mount_paths.common_fields(registration, path, options),
            )
            self.started = launch.start(spec, progress=progress)
        self._mount_id, self._mount_path = registration, path
        return Path(path)

    def unmount(self) -> None:
        """Unmounts, keeping uncommitted work in the working copy. Nothing is mounted: nothing to do."""
        with self._mutex:
            self._require_not_ended()
            if (entry := self.live()) is not None:
                daemon.unmount(entry)
            self._leave(entry)

    def discard(self) -> None:
        """Unmounts and drops uncommitted work for good."""
        with self._mutex:
            self._require_not_ended()
            if (entry := self.live()) is not None:
                daemon.discard(entry)
            elif self.claim != "new":
                self.resolve()
                self._discard_unmounted()
            self._leave(entry)
            self.is_discarded = True

    def _discard_unmounted(self) -> None:
        """Deletes the working copy, and removes its hold from the store; a hold that cannot be removed only costs space."""
        working_copy = self._working_copy()
        pin = working_copy.state.pin if working_copy.exists else None
        working_copy.delete()
        try:
            if pin is not None and (held := Pin.resume(self._opened().objects, pin)) is not None:
                held.remove()
        except CowfsError as error:
            _log.warning("the hold %s of the discarded work stays in the store: %s", pin, error)

    # -- committing

    def commit(self, request: CommitRequest, progress: Progress | None = None) -> ReadableVersion:
        """Publishes everything written before the call; the same version again if nothing has changed."""
        with self._mutex:
            self._require_not_ended()
            self.resolve()
            if (entry := self.live()) is not None:
                self._version = daemon.commit(entry, request, progress)
                return ReadableVersion(self._locator(self._version))
            head = volumes.read_head(self._opened().objects, self.name)  # somebody may have gone on with it
            if head.version is None or self._working_copy().may_have_uncommitted:
                self._version = self._commit_unmounted(request, progress)
            else:
                self._version = head.version
            return ReadableVersion(self._locator(self._version))

    def _commit_unmounted(self, request: CommitRequest, progress: Progress | None) -> VersionId:
        """Brings the working copy to life for one commit, on a mount point nobody else uses."""
        place = config.runtime_dir() / f"commit-{registry.new_id()}"
        self._mount(place, replace(self._options, foreground=False, fuse_fd=None, take_over=False))
        try:
            entry = self.live()
            if entry is None:
                raise UnavailableError(
                    f"the mount daemon of volume {self.name!r} ended before it could commit",
                    hint="Nothing is lost: try again. `cowfs status` shows the working copy.",
                )
            return daemon.commit(entry, request, progress)
        finally:
            self.unmount()
            with contextlib.suppress(FileNotFoundError):
                place.rmdir()

    def finalize(self, request: CommitRequest, progress: Progress | None = None) -> ReadableVersion:
        """Commits, unmounts, and ends this object. When committing fails nothing has changed and it can be tried again."""
        with self._mutex:
            if (entry := self.live()) is not None:
                self._require_not_ended()
                self._version = daemon.commit_and_unmount(entry, request, progress)
                version = ReadableVersion(self._locator(self._version))
            else:
                version = self.commit(request, progress)
            self._leave(entry)
            self._working_copy().delete_if_committed()
            self.ended = "finalized"
            return version

    def fork(self, name: str | None, *, is_strict: bool = False) -> WritableVolume:
        """A volume that starts from everything written here until now: uncommitted work is committed first.

        When another writer has taken the volume over, the uncommitted work moves to the fork instead, and the mount ends.
        """
        with self._mutex:
            message = f"before the fork {name}" if name else "before a fork"
            try:
                version = self.commit(commit_request(message))
            except LeaseLostError:
                return self._rescue(name, is_strict=is_strict)
            return fork(version.locator, name, is_strict=is_strict)

    def _rescue(self, name: str | None, *, is_strict: bool) -> WritableVolume:
        """Work that can't be published in its own line goes on in a new one, from the version it was made on."""
        store, working_copy = self._opened(), self._working_copy()
        self.unmount()
        state = WorkingCopy(working_copy.path).state
        if state.base_version is not None:
            rescued = fork(self._locator(state.base_version), name, is_strict=is_strict)
        else:
            wanted = names.checked(name) if name is not None else names.generated()
            rescued = WritableVolume(store.url, wanted, "new", is_strict=is_strict)
            rescued.resolve(accept_unsafe_store=True)
        head = volumes.read_head(store.objects, rescued.name)
        place = WorkingCopy.locate(store.record.store_id, rescued.name, meta_dir=self._options.meta_path)
        working_copy.move_to(place, head.number)
        rescued._options = self._options
        return rescued

    # -- inside

    def require_sendable(self) -> None:
        """InvalidStateError while this object stands for work that lies on this machine only."""
        self._require_not_ended()
        if self.live() is not None:
            what = "is mounted"
        elif self._store is not None and self._working_copy().may_have_uncommitted:
            what = "has uncommitted work on this machine"
        else:
            return
        raise InvalidStateError(
            f"volume {self.name!r} {what} and cannot be pickled: commit first",
            hint="Send what commit() or finalize() returns, or its locator.",
        )

    @property
    def description(self) -> str:
        """For __repr__: what can be said without asking anybody."""
        parts = [repr(self.name)]
        if self.store_url is not None:
            parts.append(f"store={self.store_url!r}")
        if self.ended:
            parts.append(self.ended)
        elif (entry := self.live()) is not None:
            parts.append(f"mounted at {entry.mount_path!r}")
        elif self._store is None:
            parts.append("new" if self.claim == "new" else "not looked up yet")
        if self._version is not None:
            parts.append(f"version {self._version.hex()[:12]}")
        return ", ".join(parts)

    @property
    def resume_hint(self) -> str:
        """How to go on with work that was not published."""
        return (
            f"Uncommitted work of volume {self.name!r} was not published; it is kept on this machine: "
            f"go on with Volume.open({self.name!r}).mount() or `cowfs mount {self.name} PATH`, "
            f"drop it with `cowfs unmount {self.name} --discard`, "
            f"or save it under another name with Volume.open({self.name!r}).fork(NAME)."
        )

    def adopt(self, store: stores.OpenStore, head: Head) -> None:
        """From now on this object stands for a volume that exists."""
        self.claim = "existing"
        self.name, self._version, self.store_url = head.volume, head.version, store.url
        self._store = store

    def _leave(self, entry: MountEntry | None) -> None:
        mount_paths.leave(entry.mount_path if entry is not None else None, self._mount_path)
        self._mount_id = self._mount_path = None

    def _own_mount(self) -> MountEntry | None:
        return registry.find_by_id(self._mount_id) if self._mount_id else None

    def _opened(self) -> stores.OpenStore:
        assert self._store is not None, "resolve comes first"
        return self._store

    def _working_copy(self) -> WorkingCopy:
        return WorkingCopy.locate(self._opened().record.store_id, self.name, meta_dir=self._options.meta_path)

    def _locator(self, version: VersionId) -> Locator:
        return volumes.locator(self._opened().objects, self.name, version)

    def _require_not_ended(self) -> None:
        if self.ended:
            raise InvalidStateError(
                f"volume {self.name!r} was {self.ended}: this object cannot be used any more",
                hint=f"Volume.open({self.name!r}) goes on with the volume; forking the version starts another one.",
            )


def fork(source: Locator, name: str | None, *, is_strict: bool = False) -> WritableVolume:
    """A new volume whose base is `source`, sharing every byte: two objects are written."""
    store = stores.open_store(source.store_url)

    def create(new_name: str) -> Head:
        return volumes.fork_volume(store.objects, new_name, source, owner=author())

    wanted = names.checked(name) if name is not None else names.generated()
    head = claim(wanted, create, is_strict=is_strict)
    forked = WritableVolume(store.url, head.volume, "existing")
    forked.adopt(store, head)
    return forked


def claim(name: str, create: Callable[[str], Head], *, is_strict: bool) -> Head:
    """Creates `name`, or when it is taken NAME-<6 hex>; strict: ConflictError when it is taken."""
    for candidate in (name, *(names.beside(name) for _ in range(NAME_TRIES))):
        try:
            return create(candidate)
        except ConflictError:
            if is_strict:
                raise
    raise ConflictError(f"no name beside {name!r} is free", hint="Choose another name.")
