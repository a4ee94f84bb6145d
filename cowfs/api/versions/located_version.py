"""A version by its locator: what functions of this package that read a version take, and what those
that publish one return. `ROVolume` is the object around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from cowfs.api import stores
from cowfs.api.storage.definition import Storage
from cowfs.base.errors import NotFoundError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import VersionId
from cowfs.format.locator import Locator
from cowfs.format.manifest import Manifest
from cowfs.version import history

A = TypeVar("A")


@dataclass(frozen=True)
class LocatedVersion:
    """A version, or one folder of it. named: the whole version. folder: without slashes at its
    ends; b"": all of it. manifest: None if it has not been read. storage: the credentials for its
    store. is_new: whether the call that returned it made the version."""

    named: Locator
    folder: bytes = b""
    manifest: Manifest | None = None
    storage: Storage | None = None
    is_new: bool = False

    @property
    def locator(self) -> str:
        return self.named.with_path(self.folder)

    @property
    def name(self) -> str:
        """The volume's name."""
        return self.named.volume

    @property
    def version(self) -> VersionId:
        return self.named.version

    @property
    def id(self) -> str:
        return self.named.version.hex()

    def open_store(self) -> stores.OpenStore:
        return self._reach(lambda: stores.open_located(self.named.store_url, self.storage))

    def read_manifest(self) -> Manifest:
        """NotFoundError: the version is pruned or deleted, or does not belong to this volume."""
        if self.manifest is not None:
            return self.manifest
        ask = partial(history.read_ahead, version=self.version)
        store, data = self._reach(lambda: stores.open_located_asking(self.named.store_url, self.storage, ask))
        return history.open_named(store.objects, self.name, self.version, data)

    def resolve(self) -> LocatedVersion:
        """The same with its manifest. Errors as for `read_manifest`."""
        return self if self.manifest is not None else replace(self, manifest=self.read_manifest())

    def _reach(self, reach: Callable[[], A]) -> A:
        try:
            return reach()
        except NotFoundError as error:
            raise NotFoundError(
                f"{self.locator} leads to no cowfs store: {error.message}",
                hint="Check the locator; the store may have moved or been deleted.",
            ) from error
