"""Volume: the entry point. It creates and opens volumes and finds versions; it holds no state.
Operations on a store are in `Store`."""

from __future__ import annotations

import os

from cowfs.api import hints, names, ro_volume, sources, stores
from cowfs.api.ro_volume import ROVolume
from cowfs.api.rw_volume import RWVolume
from cowfs.api.storage.definition import Storage
from cowfs.api.store import store_of
from cowfs.api.twins.one_type import OneType
from cowfs.base.errors import InvalidInputError
from cowfs.control.options import Uncommitted
from cowfs.format.locator import Locator


class Volume(metaclass=OneType):
    """The entry point of cowfs. store: a URL or directory, or a `cowfs.storage.Storage` with
    credentials; None: COWFS_STORE, the config file, else a directory of the user."""

    def __init__(self, *given: object, **named: object) -> None:
        raise TypeError(
            "Volume is not made directly: use Volume.open(NAME), Volume.new(NAME), Volume.version(NAME@TAG) or "
            "Volume.from_locator(LOCATOR)"
        )

    @staticmethod
    def new(
        name: str | None = None,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        strict: bool = False,
        exist_ok: bool = False,
        compress: bool = True,
    ) -> RWVolume:
        """A volume that does not exist yet. Nothing is read or written until it is mounted (or
        resolved).

        The name is claimed then. A taken name becomes NAME-<6 hex>, which `.name` shows; strict:
        ConflictError instead; exist_ok: open the existing volume, so that a retried task continues
        with it. Without a name, one is generated.

        compress: whether file contents are compressed where this saves space. Pass False if other
        users can create files beside secret ones: the compressed size reveals information about
        these (docs/guide/encryption.md). The setting belongs to the volume and is not passed on to
        forks.
        """
        place = stores.name(store)
        if exist_ok and (strict or name is None):
            raise InvalidInputError(
                "exist_ok means a name that may be taken", hint="Give a name, and either exist_ok or strict."
            )
        with hints.of_store(place):
            wanted = names.checked(name) if name is not None else names.generated()
        return RWVolume(place, wanted, "either" if exist_ok else "new", strict=strict, compress=compress)

    @staticmethod
    def open(
        name: str,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        create: bool = False,
        uncommitted: Uncommitted = "resume",
    ) -> RWVolume:
        """A volume by name. Mounting it continues from its head, with any uncommitted work on this
        machine. uncommitted: "discard" or "refuse", as for `RWVolume.mount`, for the first mount or
        use of `files` by this object.

        Nothing is read until it is mounted or resolved. A missing volume then raises NotFoundError,
        unless create is set, which creates it.
        """
        return store_of(store).volume(name, create=create, uncommitted=uncommitted)

    @staticmethod
    def version(source: str, *, store: str | os.PathLike[str] | Storage | None = None) -> ROVolume:
        """The version that `source` names, as on the command line: NAME (its last version),
        NAME@TAG, NAME@VERSION (8 digits or more), NAME@{3} (three versions before its last one),
        NAME@{2026-11-20T12:00} (its last version at that time, local unless it has an offset), or a
        locator. An appended :PATH selects that folder of the version. NotFoundError, also for a
        volume without versions; its hint lists similar names."""
        return store_of(store).version(source)

    @staticmethod
    def from_locator(locator: str | Locator, *, store: Storage | None = None) -> ROVolume:
        """The version that a locator names, after verifying that it exists and belongs to the
        volume in the locator: one request. LOCATOR/path means that folder of it, which is looked up
        when it is mounted. store: the locator's store, with credentials. NotFoundError,
        InvalidInputError, CorruptError."""
        with hints.of_store(store):
            return ro_volume.make_version(sources.of_locator(locator, store)).resolve()


def volume(name: str, *, store: str | os.PathLike[str] | Storage | None = None) -> RWVolume:
    """The volume of that name, created if it is missing; "/mydata" and "mydata" are the same."""
    return Volume.open(name, store=store, create=True)
