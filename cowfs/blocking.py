"""The blocking twin of cowfs' volumes: the same names and arguments, without await.

Generated from the async classes by `python -m tests.api.blocking_twin`; change those, not this file.
All calls run in one event loop on a thread of its own (`portal`), so this works anywhere: in scripts, in threads,
and inside a running event loop such as a notebook's, which stands still meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cowfs.api import ro_volume, rw_volume
from cowfs.api import volume as volume_module
from cowfs.api.portal import run
from cowfs.format.locator import Locator
from cowfs.format.manifest import Stats

__all__ = ["Locator", "ROVolume", "RWVolume", "Volume", "volume"]


class ROVolume:
    """A version of a volume. Pickles to its locator, compares equal by it, and can be used on any machine."""

    def __init__(self, wrapped: ro_volume.ROVolume) -> None:
        self._async = wrapped

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        run(self._async.__aexit__, kind, error, traceback)

    def __reduce__(self) -> tuple[Any, ...]:
        return (ROVolume, (self._async,))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ROVolume) and other._async == self._async

    def __hash__(self) -> int:
        return hash(self._async)

    def __repr__(self) -> str:
        return f"blocking.{self._async!r}"

    @property
    def locator(self) -> str:
        """A string that leads to this version from anywhere, and proves that it is this one."""
        return self._async.locator

    @property
    def name(self) -> str:
        """The volume's name."""
        return self._async.name

    @property
    def id(self) -> str:
        """The version id: BLAKE3 of the manifest, 64 hex digits."""
        return self._async.id

    @property
    def is_pruned(self) -> bool:
        """Whether `history` found only the name of this version: its bytes are gone, and so are the fields below."""
        return self._async.is_pruned

    @property
    def message(self) -> str:
        return self._async.message

    @property
    def author(self) -> str:
        return self._async.author

    @property
    def created(self) -> datetime:
        """When the version was committed, by the committer's clock; UTC."""
        return self._async.created

    @property
    def labels(self) -> Mapping[str, str]:
        return self._async.labels

    @property
    def produced_by(self) -> Mapping[str, str]:
        """What made it: system, run, action, output, host, as far as known."""
        return self._async.produced_by

    @property
    def parents(self) -> list[str]:
        """Version ids; one, but none for a first version and several for a merge. They may be pruned."""
        return self._async.parents

    @property
    def stats(self) -> Stats:
        """files, directories, bytes, and what this version added."""
        return self._async.stats

    @property
    def path(self) -> Path:
        """Where this object is mounted. InvalidStateError when it is not."""
        return self._async.path

    @property
    def is_mounted(self) -> bool:
        return self._async.is_mounted

    def resolve(self) -> Self:
        """Fetches the manifest unless it is here already; `await version` does the same."""
        run(self._async.resolve)
        return self

    def mount(
        self,
        mount_path: str | os.PathLike[str] | None = None,
        *,
        max_uploads: int = 50,
        attr_cache: float | None = None,
        entry_cache: float | None = None,
        dir_entry_cache: float | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
        store_timeout: float | None = None,
        resident: bool = False,
        fast_lane: bool = True,
        transport: str = "auto",
        allow_other: bool | None = None,
        fuse_fd: int | None = None,
    ) -> Path:
        """Mounts the version read-only and returns the directory; mounting again returns the same.

        Any number of processes may mount it. The kernel caches attributes and names without limit unless told otherwise.
        mount_path: as for RWVolume. `MountOptions` explains the options.
        """
        return run(
            self._async.mount,
            mount_path,
            max_uploads=max_uploads,
            attr_cache=attr_cache,
            entry_cache=entry_cache,
            dir_entry_cache=dir_entry_cache,
            cache_dir=cache_dir,
            cache_size=cache_size,
            store_timeout=store_timeout,
            resident=resident,
            fast_lane=fast_lane,
            transport=transport,
            allow_other=allow_other,
            fuse_fd=fuse_fd,
        )

    def unmount(self) -> None:
        """Unmounts what this object mounted. ConflictError while files are open."""
        run(self._async.unmount)

    def fork(self, name: str | None = None) -> RWVolume:
        """A new volume that starts from this version and shares every byte: two small objects.

        A taken name becomes NAME-<6 hex>, so that a task that is tried again does not fail on its own traces.
        """
        return RWVolume(run(self._async.fork, name))

    def history(self) -> list[ROVolume]:
        """This version and its ancestors, newest first; one request each. Pruned ones have is_pruned set."""
        return [ROVolume(each) for each in run(self._async.history)]

    def __enter__(self) -> Self:
        run(self._async.__aenter__)
        return self

    def __fspath__(self) -> str:
        return self._async.__fspath__()

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        return self._async.__truediv__(name)


class RWVolume:
    """A volume to write to. Made by Volume.new, Volume.open and fork, never directly.

    Pickling: a mounted one is refused (commit, and send the ROVolume); so is one with uncommitted work here, or a
    finalized one. Any other pickles to its store and name: it is opened, or a new one is made, where it is first used.
    """

    def __init__(self, wrapped: rw_volume.RWVolume) -> None:
        self._async = wrapped

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        run(self._async.__aexit__, kind, error, traceback)

    def __reduce__(self) -> tuple[Any, ...]:
        return (RWVolume, (self._async,))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RWVolume) and other._async == self._async

    def __hash__(self) -> int:
        return hash(self._async)

    def __repr__(self) -> str:
        return f"blocking.{self._async!r}"

    @property
    def name(self) -> str:
        """The volume's name. Of a new volume it is settled by the first call that reaches the store: a taken one gets a suffix."""
        return self._async.name

    @property
    def locator(self) -> str | None:
        """Locator of the last committed version, of a fresh fork's base, or None before the first commit.

        InvalidStateError for an opened volume that nobody has awaited or mounted yet.
        """
        return self._async.locator

    @property
    def path(self) -> Path:
        """Where the volume is mounted. InvalidStateError when it is not."""
        return self._async.path

    @property
    def is_mounted(self) -> bool:
        return self._async.is_mounted

    def resolve(self) -> Self:
        """Reaches the store and finds or makes the volume, without mounting; `await volume` does the same.

        NotFoundError: no such volume. Two or three requests the first time, none later.
        """
        run(self._async.resolve)
        return self

    def mount(
        self,
        mount_path: str | os.PathLike[str] | None = None,
        *,
        max_uploads: int = 50,
        attr_cache: float | None = 60.0,
        entry_cache: float | None = 60.0,
        dir_entry_cache: float | None = 60.0,
        cache_dir: str | os.PathLike[str] | None = None,
        meta_dir: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
        store_timeout: float | None = None,
        resident: bool = False,
        fast_lane: bool = True,
        transport: str = "auto",
        take_over: bool = False,
        accept_unsafe_store: bool = False,
        allow_other: bool | None = None,
        fuse_fd: int | None = None,
    ) -> Path:
        """Mounts the volume writable and returns the directory; mounting again returns the same.

        mount_path: an empty directory, or a name in an existing one; None: one per volume under ~/cowfs. Uncommitted work
        of an earlier mount on this machine is there again. `MountOptions` explains the options.
        LeaseHeldError: somebody else writes to this volume; it says who, where and since when.
        """
        return run(
            self._async.mount,
            mount_path,
            max_uploads=max_uploads,
            attr_cache=attr_cache,
            entry_cache=entry_cache,
            dir_entry_cache=dir_entry_cache,
            cache_dir=cache_dir,
            meta_dir=meta_dir,
            cache_size=cache_size,
            store_timeout=store_timeout,
            resident=resident,
            fast_lane=fast_lane,
            transport=transport,
            take_over=take_over,
            accept_unsafe_store=accept_unsafe_store,
            allow_other=allow_other,
            fuse_fd=fuse_fd,
        )

    def commit(
        self,
        message: str = "",
        *,
        author: str | None = None,
        produced_by: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> ROVolume:
        """Publishes everything written before the call as a version; writers go on meanwhile, the volume stays mounted.

        Nothing changed: the last version again. Never mounted: the base, or an empty first version. LeaseLostError:
        somebody else took the volume over; the work is kept. progress is called from another thread with
        {"stage", "done_bytes", "total_bytes"}.
        """
        return ROVolume(
            run(self._async.commit, message, author=author, produced_by=produced_by, labels=labels, progress=progress)
        )

    def finalize(
        self,
        message: str = "",
        *,
        author: str | None = None,
        produced_by: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> ROVolume:
        """Commits, unmounts and ends this object: every later call raises InvalidStateError.

        When it fails the object lives on and finalize can be tried again.
        """
        return ROVolume(
            run(self._async.finalize, message, author=author, produced_by=produced_by, labels=labels, progress=progress)
        )

    def unmount(self) -> None:
        """Unmounts and keeps uncommitted work for the next mount on this machine. ConflictError while files are open."""
        run(self._async.unmount)

    def discard(self) -> None:
        """Unmounts and drops uncommitted work for good; the volume is again what its last version is."""
        run(self._async.discard)

    def fork(self, name: str | None = None) -> RWVolume:
        """A new volume that starts from here; uncommitted work is committed first. Shares every byte: two small objects.

        A taken name becomes NAME-<6 hex>. When another writer has taken this volume over, uncommitted work can't be
        committed any more: it moves to the fork, unpublished, and this mount ends.
        """
        return RWVolume(run(self._async.fork, name))

    def __enter__(self) -> Self:
        run(self._async.__aenter__)
        return self

    def __fspath__(self) -> str:
        return self._async.__fspath__()

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        return self._async.__truediv__(name)


class Volume:
    """The entry to cowfs. store: a URL or directory; None: COWFS_STORE, the config file, else a directory of the user."""

    def __init__(self) -> None:
        raise TypeError("Volume is not made directly: use Volume.new, Volume.open or Volume.from_locator")

    @staticmethod
    def new(name: str | None = None, *, store: str | None = None) -> RWVolume:
        """A volume that does not exist yet. Nothing is read or written until it is mounted (or awaited).

        Then the name is claimed; a taken one becomes NAME-<6 hex>, and `.name` tells. Without a name one is made up.
        """
        return RWVolume(volume_module.Volume.new(name, store=store))

    @staticmethod
    def open(name: str, *, store: str | None = None, create: bool = False) -> RWVolume:
        """A volume by name: mounting it goes on from its head, with the uncommitted work this machine has of it.

        Nothing is read until it is mounted or awaited; NotFoundError then, unless create makes what is missing.
        """
        return RWVolume(volume_module.Volume.open(name, store=store, create=create))

    @staticmethod
    def from_locator(locator: str | Locator) -> ROVolume:
        """The version a locator names, verified to exist: one request. NotFoundError, InvalidInputError, CorruptError."""
        return ROVolume(run(volume_module.Volume.from_locator, locator))


def volume(name: str, *, store: str | None = None) -> RWVolume:
    """The volume of that name, made when it is missing; "/mydata" and "mydata" are the same."""
    return RWVolume(volume_module.volume(name, store=store))
