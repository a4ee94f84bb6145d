"""Volume: where everything begins. Makes, opens and finds volumes and versions; holds nothing itself."""

from __future__ import annotations

from cowfs.api import names, stores
from cowfs.api.ro_volume import ROVolume
from cowfs.api.rw_volume import RWVolume
from cowfs.format.locator import Locator


class Volume:
    """The entry to cowfs. store: a URL or directory; None: COWFS_STORE, the config file, else a directory of the user."""

    def __init__(self) -> None:
        raise TypeError("Volume is not made directly: use Volume.new, Volume.open or Volume.from_locator")

    @staticmethod
    def new(name: str | None = None, *, store: str | None = None, strict: bool = False) -> RWVolume:
        """A volume that does not exist yet. Nothing is read or written until it is mounted (or resolved).

        Then the name is claimed; a taken one becomes NAME-<6 hex>, and `.name` tells; strict: ConflictError then.
        Without a name one is made up.
        """
        stores.name(store)
        wanted = names.checked(name) if name is not None else names.generated()
        return RWVolume(store, wanted, "new", strict=strict)

    @staticmethod
    def open(name: str, *, store: str | None = None, create: bool = False) -> RWVolume:
        """A volume by name: mounting it goes on from its head, with the uncommitted work this machine has of it.

        Nothing is read until it is mounted or resolved; NotFoundError then, unless create makes what is missing.
        """
        stores.name(store)
        return RWVolume(store, names.checked(name), "either" if create else "existing")

    @staticmethod
    def from_locator(locator: str | Locator) -> ROVolume:
        """The version a locator names, verified to exist: one request. NotFoundError, InvalidInputError, CorruptError."""
        return ROVolume.from_locator(locator)


def volume(name: str, *, store: str | None = None) -> RWVolume:
    """The volume of that name, made when it is missing; "/mydata" and "mydata" are the same."""
    return Volume.open(name, store=store, create=True)
