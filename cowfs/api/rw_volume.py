"""RWVolume: the writable end of a volume, for programs; async, under asyncio and trio alike.

Every method runs its blocking half (`writable`) in a worker thread, so that the event loop goes on. A cancelled call
still runs to its end in its thread: nothing is left half done.

    async with Volume.new("my-dataset") as vol:      mounts; vol / "file" is a path below the mount
        (vol / "file").write_text("…")
                                                     normal exit: committed, unmounted, ended (finalize)
                                                     exception: unmounted, nothing published, work kept; a note says where
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio

from cowfs import log
from cowfs.api import provenance
from cowfs.api.options import MountOptions
from cowfs.api.ro_volume import ROVolume
from cowfs.api.threads import in_thread
from cowfs.api.writable import WritableVolume
from cowfs.errors import CowfsError, InvalidStateError

if TYPE_CHECKING:
    from cowfs.version.commit import CommitRequest

_logger = log.get("volume")


class RWVolume:
    """A volume to write to. Made by Volume.new, Volume.open and fork, never directly.

    Pickling: a mounted one is refused (commit, and send the ROVolume); so is one with uncommitted work here, or a
    finalized one. Any other pickles to its store and name: it is opened, or a new one is made, where it is first used.
    """

    def __init__(self, blocking: WritableVolume) -> None:
        self._blocking = blocking

    @property
    def name(self) -> str:
        """The volume's name. Of a new volume it is settled by the first call that reaches the store: a taken one gets a suffix."""
        return self._blocking.name

    @property
    def locator(self) -> str | None:
        """Locator of the last committed version, of a fresh fork's base, or None before the first commit.

        InvalidStateError for an opened volume that nobody has awaited or mounted yet.
        """
        locator = self._blocking.locator
        return str(locator) if locator is not None else None

    @property
    def path(self) -> Path:
        """Where the volume is mounted. InvalidStateError when it is not."""
        entry = self._blocking.live()
        if entry is None:
            raise InvalidStateError(f"volume {self.name!r} is not mounted", hint="Call mount() first.")
        return Path(entry.mount_path)

    @property
    def is_mounted(self) -> bool:
        return self._blocking.live() is not None

    async def resolve(self) -> Self:
        """Reaches the store and finds or makes the volume, without mounting; `await volume` does the same.

        NotFoundError: no such volume. Two or three requests the first time, none later.
        """
        await in_thread(self._blocking.resolve)
        return self

    def __await__(self) -> Generator[Any, Any, Self]:
        return self.resolve().__await__()

    async def mount(
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
        options = MountOptions(
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
        return await in_thread(self._blocking.mount, mount_path, options)

    async def commit(
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
        request = await _request(message, author, produced_by, labels)
        return ROVolume(await in_thread(self._blocking.commit, request, progress))

    async def finalize(
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
        request = await _request(message, author, produced_by, labels)
        return ROVolume(await in_thread(self._blocking.finalize, request, progress))

    async def unmount(self) -> None:
        """Unmounts and keeps uncommitted work for the next mount on this machine. ConflictError while files are open."""
        await in_thread(self._blocking.unmount)

    async def discard(self) -> None:
        """Unmounts and drops uncommitted work for good; the volume is again what its last version is."""
        await in_thread(self._blocking.discard)

    async def fork(self, name: str | None = None) -> RWVolume:
        """A new volume that starts from here; uncommitted work is committed first. Shares every byte: two small objects.

        A taken name becomes NAME-<6 hex>. When another writer has taken this volume over, uncommitted work can't be
        committed any more: it moves to the fork, unpublished, and this mount ends.
        """
        return RWVolume(await in_thread(self._blocking.fork, name))

    async def __aenter__(self) -> Self:
        try:
            await self.mount()
        except anyio.get_cancelled_exc_class() as error:  # it may have been mounted all the same
            with anyio.CancelScope(shield=True):
                if self._blocking.has_mounted:
                    await self._abandon(error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            if error is not None:
                await self._abandon(error)
            elif not self._blocking.ended and not self._blocking.is_discarded:
                try:
                    await self.finalize()
                except CowfsError as failure:
                    await self._abandon(failure)
                    raise

    async def _abandon(self, error: BaseException) -> None:
        """Leaves the mount without publishing anything; never hides the error that led here."""
        if self._blocking.ended or self._blocking.is_discarded:
            return
        notes = [self._blocking.resume_hint]
        try:
            await self.unmount()
        except CowfsError as failure:
            notes.append(f"It is still mounted: {failure.message}. {failure.hint}")
        for note in notes:
            error.add_note(f"cowfs: {note}")
            _logger.warning("%s", note)

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        return self.path / name

    def __reduce__(self) -> tuple[Any, ...]:
        self._blocking.require_sendable()
        return (_opened_again, (self._blocking.store_url, self._blocking.name, self._blocking.claim))

    def __repr__(self) -> str:
        return f"RWVolume({self._blocking.description})"


async def _request(
    message: str, author: str | None, produced_by: Mapping[str, str] | None, labels: Mapping[str, str] | None
) -> CommitRequest:
    return await in_thread(provenance.commit_request, message, author, produced_by, labels)


def _opened_again(store_url: str | None, name: str, claim: Any) -> RWVolume:
    return RWVolume(WritableVolume(store_url, name, claim))
