"""The blocking half of ROVolume: one version of a store, read, mounted and forked.

The manifest is fetched and verified once, when first needed. Mounts are always read-only; each object has at most one
and mounting again returns the same path. Threads: any; calls that change the mount wait for each other.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from threading import RLock

from cowfs.api import daemon, launch, mount_paths, stores
from cowfs.api.options import MountOptions
from cowfs.control import MountSpec
from cowfs.errors import InvalidInputError, NotFoundError
from cowfs.format.locator import Locator
from cowfs.format.manifest import Manifest
from cowfs.machine import registry
from cowfs.version import history as versions


class ReadableVersion:
    def __init__(self, locator: Locator, manifest: Manifest | None = None, *, is_pruned: bool = False) -> None:
        self.locator = locator
        self.is_pruned = is_pruned
        self.started: launch.Started | None = None
        self._manifest = manifest
        self._mount_id: str | None = None
        self._mount_path: str | None = None
        self._mutex = RLock()

    @property
    def manifest(self) -> Manifest:
        """Fetched once. NotFoundError when the version is pruned or deleted."""
        with self._mutex:
            if self._manifest is None:
                self._manifest = versions.open_version(self._store().objects, self.locator.version)
            return self._manifest

    @property
    def known_manifest(self) -> Manifest | None:
        return self._manifest

    def history(self) -> Iterator[ReadableVersion]:
        for past in versions.history(self._store().objects, self.locator.version):
            locator = Locator(self.locator.store, self.locator.volume, past.version)
            yield ReadableVersion(locator, past.manifest, is_pruned=past.manifest is None)

    @property
    def mount_path(self) -> Path | None:
        """Where this object is mounted; None: it is not."""
        entry = self._live()
        return Path(entry.mount_path) if entry else None

    def mount(self, mount_path: str | os.PathLike[str] | None, options: MountOptions) -> Path:
        """Mounts the version read-only and returns the path."""
        with self._mutex:
            if (entry := self._live()) is not None:
                return mount_paths.same(entry, mount_path)
            if options.take_over or options.accept_unsafe_store:
                raise InvalidInputError(
                    "a read-only mount takes nothing over and writes to no store",
                    hint="Leave take_over and accept_unsafe_store out.",
                )
            _ = self.manifest
            store = self._store()
            stores.refuse_memory(store)
            name = f"{self.locator.volume}@{self.locator.version.hex()[:12]}"
            with mount_paths.chosen(mount_path, name, store.record.store_id) as path:
                registration = registry.new_id()
                spec = MountSpec(
                    store_url=store.url,
                    volume=self.locator.volume,
                    mode="ro",
                    source=str(self.locator),
                    version=self.locator.version.hex(),
                    log=str(registry.log_path(registration)),
                    **mount_paths.common_fields(registration, path, options),
                )
                self.started = launch.start(spec)
            self._mount_id, self._mount_path = registration, path
            return Path(path)

    def unmount(self) -> None:
        """Unmounts this object's mount; does nothing when there is none."""
        with self._mutex:
            if (entry := self._live()) is not None:
                daemon.unmount(entry)
            mount_paths.leave(self._mount_path)
            self._mount_id = self._mount_path = None

    def _live(self) -> registry.MountEntry | None:
        return registry.find_by_id(self._mount_id) if self._mount_id else None

    def _store(self) -> stores.OpenStore:
        try:
            return stores.open_store(self.locator.store_url)
        except NotFoundError as error:
            raise NotFoundError(
                f"{self.locator} leads to no cowfs store: {error.message}",
                hint="Check the locator; the store may have moved or been deleted.",
            ) from error


def from_locator(text: str | Locator) -> ReadableVersion:
    """The version a locator names, verified to exist."""
    locator = text if isinstance(text, Locator) else Locator.parse(text)
    version = ReadableVersion(locator)
    _ = version.manifest
    return version
