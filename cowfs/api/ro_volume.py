"""ROVolume: one version, immutable, for programs; async, under asyncio and trio alike.

Fields come from the version's manifest, which is fetched and verified once. Objects from `commit`, `from_locator` and
`history` have it already; an unpickled one fetches it when a field is first asked for, which blocks for one request:
`await version` (or resolve()) does it beforehand.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio

from cowfs.api import readable, writable
from cowfs.api.options import MountOptions
from cowfs.api.readable import ReadableVersion
from cowfs.api.threads import in_thread
from cowfs.errors import CowfsError, InvalidStateError
from cowfs.format.locator import Locator
from cowfs.format.manifest import Stats

if TYPE_CHECKING:
    from cowfs.api.rw_volume import RWVolume


class ROVolume:
    """A version of a volume. Pickles to its locator, compares equal by it, and can be used on any machine."""

    def __init__(self, blocking: ReadableVersion) -> None:
        self._blocking = blocking

    @property
    def locator(self) -> str:
        """A string that leads to this version from anywhere, and proves that it is this one."""
        return str(self._blocking.locator)

    @property
    def name(self) -> str:
        """The volume's name."""
        return self._blocking.locator.volume

    @property
    def id(self) -> str:
        """The version id: BLAKE3 of the manifest, 64 hex digits."""
        return self._blocking.locator.version.hex()

    @property
    def is_pruned(self) -> bool:
        """Whether `history` found only the name of this version: its bytes are gone, and so are the fields below."""
        return self._blocking.is_pruned

    @property
    def message(self) -> str:
        return self._blocking.manifest.message

    @property
    def author(self) -> str:
        return self._blocking.manifest.author

    @property
    def created(self) -> datetime:
        """When the version was committed, by the committer's clock; UTC."""
        return datetime.fromtimestamp(self._blocking.manifest.created_ns / 1e9, UTC)

    @property
    def labels(self) -> Mapping[str, str]:
        return dict(self._blocking.manifest.labels)

    @property
    def produced_by(self) -> Mapping[str, str]:
        """What made it: system, run, action, output, host, as far as known."""
        return dict(self._blocking.manifest.produced_by)

    @property
    def parents(self) -> list[str]:
        """Version ids; one, but none for a first version and several for a merge. They may be pruned."""
        return [parent.hex() for parent in self._blocking.manifest.parents]

    @property
    def stats(self) -> Stats:
        """files, directories, bytes, and what this version added."""
        return self._blocking.manifest.stats

    @property
    def path(self) -> Path:
        """Where this object is mounted. InvalidStateError when it is not."""
        path = self._blocking.mount_path
        if path is None:
            raise InvalidStateError(f"{self.name}@{self.id[:12]} is not mounted", hint="Call mount() first.")
        return path

    @property
    def is_mounted(self) -> bool:
        return self._blocking.mount_path is not None

    async def resolve(self) -> Self:
        """Fetches the manifest unless it is here already; `await version` does the same."""
        await in_thread(lambda: self._blocking.manifest)
        return self

    def __await__(self) -> Generator[Any, Any, Self]:
        return self.resolve().__await__()

    async def mount(
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
        options = MountOptions(
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
        return await in_thread(self._blocking.mount, mount_path, options)

    async def unmount(self) -> None:
        """Unmounts what this object mounted. ConflictError while files are open."""
        await in_thread(self._blocking.unmount)

    async def fork(self, name: str | None = None) -> RWVolume:
        """A new volume that starts from this version and shares every byte: two small objects.

        A taken name becomes NAME-<6 hex>, so that a task that is tried again does not fail on its own traces.
        """
        from cowfs.api.rw_volume import RWVolume

        return RWVolume(await in_thread(writable.fork, self._blocking.locator, name))

    async def history(self) -> list[ROVolume]:
        """This version and its ancestors, newest first; one request each. Pruned ones have is_pruned set."""
        return [ROVolume(past) for past in await in_thread(lambda: list(self._blocking.history()))]

    async def __aenter__(self) -> Self:
        await self.mount()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            try:
                await self.unmount()
            except CowfsError as failure:
                if error is None:
                    raise
                error.add_note(f"cowfs: {failure.message}. {failure.hint}")  # what went wrong first matters more

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __truediv__(self, name: str | os.PathLike[str]) -> Path:
        return self.path / name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ROVolume) and other.locator == self.locator

    def __hash__(self) -> int:
        return hash(self.locator)

    def __reduce__(self) -> tuple[Any, ...]:
        return (unpickled, (self.locator,))

    def __repr__(self) -> str:
        manifest = self._blocking.known_manifest
        said = f", {manifest.message!r}" if manifest is not None and manifest.message else ""
        return f"ROVolume({self.locator!r}{said}{', pruned' if self.is_pruned else ''})"


async def from_locator(locator: str | Locator) -> ROVolume:
    """The version a locator names, verified to exist."""
    return ROVolume(await in_thread(readable.from_locator, locator))


def unpickled(locator: str) -> ROVolume:
    return ROVolume(ReadableVersion(Locator.parse(locator)))
