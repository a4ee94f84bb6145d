"""Volume: where everything begins. Makes, opens and finds volumes and versions; holds nothing
itself."""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterable, Sequence

from cowfs.api import deleting, details, importing, merging, names, overview, sources, stores
from cowfs.api.changes import Located
from cowfs.api.details import VolumeDetails
from cowfs.api.merge_report import MergeReport, Strategy
from cowfs.api.overview import VolumeSummary
from cowfs.api.ro_volume import ROVolume, versions
from cowfs.api.rw_volume import RWVolume
from cowfs.api.storage.storage import Storage
from cowfs.errors import InvalidInputError
from cowfs.format.locator import Locator
from cowfs.version.commit import ProgressListener


class Volume:
    """The entry to cowfs. store: a URL or directory, or a `cowfs.storage.Storage` with credentials;
    None: COWFS_STORE, the config file, else a directory of the user."""

    def __init__(self) -> None:
        raise TypeError("Volume is not made directly: use Volume.new, Volume.open or Volume.from_locator")

    @staticmethod
    def new(
        name: str | None = None,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        strict: bool = False,
        exist_ok: bool = False,
    ) -> RWVolume:
        """A volume that does not exist yet. Nothing is read or written until it is mounted (or
        resolved).

        Then the name is claimed; a taken one becomes NAME-<6 hex>, and `.name` tells; strict:
        ConflictError then; exist_ok: the volume of that name is opened, so that a task that is
        tried again goes on with it. Without a name one is made up.
        """
        place = stores.name(store)
        if exist_ok and (strict or name is None):
            raise InvalidInputError(
                "exist_ok means a name that may be taken", hint="Give a name, and either exist_ok or strict."
            )
        wanted = names.checked(name) if name is not None else names.generated()
        return RWVolume(place, wanted, "either" if exist_ok else "new", strict=strict)

    @staticmethod
    def open(name: str, *, store: str | os.PathLike[str] | Storage | None = None, create: bool = False) -> RWVolume:
        """A volume by name: mounting it goes on from its head, with the uncommitted work this
        machine has of it.

        Nothing is read until it is mounted or resolved; NotFoundError then, unless create makes
        what is missing.
        """
        place = stores.name(store)
        return RWVolume(place, names.checked(name), "either" if create else "existing")

    @staticmethod
    def version(source: str, *, store: str | os.PathLike[str] | Storage | None = None) -> ROVolume:
        """The version that `source` means, as on the command line: NAME (its last one), NAME@TAG,
        NAME@VERSION (8 digits or more), or a locator; with :PATH behind it, that folder of it.
        NotFoundError, also for a volume without versions.
        """
        place, meant = stores.name(store), sources.place(source)
        found = sources.find(meant.source, place)
        return ROVolume(found.locator(), folder=meant.path, storage=found.store.storage).resolve()

    @staticmethod
    def import_(
        url: str | os.PathLike[str],
        name: str,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        link: bool = False,
        storage: Storage | None = None,
        delete: bool = False,
        exclude: Iterable[str] = (),
        message: str = "",
        progress: ProgressListener | None = None,
    ) -> ROVolume:
        """Copies what is at `url` (a bucket or a prefix of it, a web directory, a directory of this
        machine, whatever fsspec lists) into the volume, which is made if it is missing, and returns
        its last version; `is_new` tells whether this made it.

        link: no byte is copied or read; files are the objects at `url`, in the state in which they
        were listed. Reading one that changed since fails (SourceChangedError, EIO in a mount); all
        others are as they were. They are read with the credentials of the environment, or, in the
        store's own bucket, with the store's.

        storage: credentials for `url`; None: those of the environment. delete: what is in the volume
        and not at `url` goes. exclude: as `files.upload`. Objects whose size, ETag and time are those
        of the last import are not read. An import that was killed is repeated: it moves only what is
        missing. The listing is in memory. InvalidInputError: keys that no file can have, all of them
        before anything is read; ConflictError: an object that is replaced all the time.
        """
        place = stores.name(store)
        return importing.import_from(
            url,
            name,
            store=place,
            link=link,
            storage=storage,
            delete=delete,
            exclude=exclude,
            message=message,
            progress=progress,
        ).version

    @staticmethod
    def absorb(
        name: str,
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        message: str = "",
        progress: ProgressListener | None = None,
    ) -> ROVolume:
        """Reads what the volume's last version links, stores it, and publishes a version that needs
        nothing but the store; one without links is returned as it is. SourceChangedError: an object is
        not what was linked; nothing is published then."""
        return importing.absorb(name, store=stores.name(store), message=message, progress=progress).version

    @staticmethod
    def list(
        store: str | os.PathLike[str] | Storage | None = None, *, deleted: bool = False
    ) -> builtins.list[VolumeSummary]:
        """The volumes of a store, by name, with size, files, owner and head. deleted: those that
        were deleted, instead. NotFoundError: there is no cowfs store."""
        place = stores.name(store)
        return overview.volumes_of(place, deleted=deleted)

    @staticmethod
    def delete(name: str, *, store: str | os.PathLike[str] | Storage | None = None, force: bool = False) -> None:
        """Deletes a volume; `undelete` brings it back. Nobody finds it by its name any more, which
        stays taken; its forks, and locators of its versions, are as before.

        NotFoundError: no such volume. LeaseHeldError: somebody writes to it, and says where;
        InvalidStateError: it is mounted here, or has uncommitted work here. force: it is deleted all
        the same; its writer can publish nothing more, and its work is kept, as this machine's is.
        """
        deleting.delete(names.checked(name), stores.name(store), force=force)

    @staticmethod
    def undelete(name: str, *, store: str | os.PathLike[str] | Storage | None = None) -> RWVolume:
        """Brings a deleted volume back, with all its versions, and opens it. One that was not deleted
        stays as it is. NotFoundError: there never was one."""
        deleting.undelete(names.checked(name), stores.name(store))
        return Volume.open(name, store=store)

    @staticmethod
    def merge(
        into: str,
        branches: Sequence[Located],
        *,
        store: str | os.PathLike[str] | Storage | None = None,
        strategy: Strategy = None,
        message: str = "",
        dry_run: bool = False,
    ) -> MergeReport:
        """Merges versions, mostly the last ones of forks, into the volume `into`: its next version has
        what each has changed since it came from the volume, or from a version that both came from.
        No content moves. All are recorded as parents. What it has already is left out; if that is
        all, there is no new version (`is_new`).

        strategy: what to do where two have changed the same: a dict from patterns of paths, as in
        .gitignore, to one of `ours` (as the volume has it, or the branch before), `theirs`, `newest`
        (by time of modification), `keep-both` (theirs as PATH~BRANCH), `union` (of files that were
        only appended to: ours, then what theirs has appended) and `fail`; one such word for all; or a
        function from a `Conflict` to one. Without it, and where a way does not fit the conflict,
        ConflictError is raised, whose `details["conflicts"]` has all of them, and nothing is
        published. dry_run: nothing is published in any case, and nothing is raised for conflicts.

        ConflictError: also while the volume is mounted here. InvalidStateError: it has uncommitted
        work here, or a branch has no version in common with it.
        """
        volume = Volume.open(into, store=store)
        return merging.merge(volume, versions(branches), strategy=strategy, message=message, dry_run=dry_run)

    @staticmethod
    def get(name: str, *, store: str | os.PathLike[str] | Storage | None = None) -> VolumeDetails:
        """What is known of a volume, in its store and on this machine. NotFoundError: there is none of
        that name; the hint names near ones."""
        return details.find(name, store)

    @staticmethod
    def from_locator(locator: str | Locator, *, store: Storage | None = None) -> ROVolume:
        """The version a locator names, verified to exist, and to be one of the volume that it
        names: one request. LOCATOR/path means that folder of it, which is looked for when it is
        mounted. store: the locator's, with credentials. NotFoundError, InvalidInputError,
        CorruptError."""
        return ROVolume.from_locator(locator, store=store)


def volume(name: str, *, store: str | os.PathLike[str] | Storage | None = None) -> RWVolume:
    """The volume of that name, made when it is missing; "/mydata" and "mydata" are the same."""
    return Volume.open(name, store=store, create=True)
