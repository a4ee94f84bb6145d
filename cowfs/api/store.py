"""Store: one place that holds volumes, and every operation on it or on a volume by name.

    Store()                          the default store (COWFS_STORE, the config file, else a directory of the user)
    Store("s3://bucket/prefix")      a URL, or a directory ("./mirror", with a slash)
    Store("near")                    the store of that name on this machine (`cowfs store add`, `cowfs.storage.add_store`)
    Store(storage=Storage(...))      with credentials

A Store is a value: it holds only the reference to a store and opens nothing. It can be pickled,
compared and shared by threads. Each method opens the store or reuses an open one
(`cowfs.api.stores`). Operations on one open volume or version are in `RWVolume` and `ROVolume`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Unpack

from cowfs.api import arguments, hints, names, stores
from cowfs.api.mounts import overview
from cowfs.api.mounts.overview import VolumeSummary
from cowfs.api.provenance import commit_request
from cowfs.api.signatures import shows_options
from cowfs.api.storage.definition import Storage
from cowfs.api.twins.one_type import OneType, unwrap
from cowfs.api.versions.labels import Conditions, Labels, make_test
from cowfs.base.errors import InvalidInputError
from cowfs.control.options import Uncommitted
from cowfs.version.commit import ProgressListener
from cowfs.version.retention.retention import KeepRules, Rules

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from cowfs.api.access.looking import FoundEntry, Listing, Usage
    from cowfs.api.claiming import Claim
    from cowfs.api.doctor import Check
    from cowfs.api.files import FilePath
    from cowfs.api.ro_volume import ROVolume
    from cowfs.api.rw_volume import RWVolume
    from cowfs.api.transfers.copying import CopyReport
    from cowfs.api.transfers.downloading import Overwrite
    from cowfs.api.transfers.transfer_report import TransferReport
    from cowfs.api.transfers.warming import WarmReport
    from cowfs.api.upkeep.collect_report import GcReport, WhyReport
    from cowfs.api.upkeep.collecting import GcPlan, Say
    from cowfs.api.upkeep.counting import By, StoredReport
    from cowfs.api.upkeep.pruning import PlannedVersion, PrunePlan
    from cowfs.api.upkeep.purge_report import PurgeReport
    from cowfs.api.upkeep.purging import PurgePlan
    from cowfs.api.upkeep.store_overview import StoreOverview
    from cowfs.api.versions.changes import Source, Sources
    from cowfs.api.versions.details import VolumeDetails
    from cowfs.api.versions.editing import EditReport
    from cowfs.api.versions.forking import ForkReport
    from cowfs.api.versions.head_changes import VolumeChanges
    from cowfs.api.versions.merge_report import MergeReport, Strategy
    from cowfs.api.versions.named_comparisons import Diff
    from cowfs.api.versions.restoring import RestoreReport
    from cowfs.api.versions.tagging import Tag
    from cowfs.api.versions.version_log import VersionLog
    from cowfs.maintain.check.verify_report import VerifyReport
    from cowfs.maintain.copy.push_report import PushReport
    from cowfs.maintain.repairs.repair_plan import RepairPlan


@hints.name_its_store
class Store(metaclass=OneType):
    """A store of volumes. Creating the object makes no request.

    url_or_name: a URL, a directory (with a slash) or a name (`cowfs store add`); None: COWFS_STORE,
    the config file, else a directory of the user. storage: a `cowfs.storage.Storage` with
    credentials, in place of url_or_name. located: the URL comes from a locator, not from the user,
    so that its server gets credentials only if the user has named it before.
    """

    def __init__(
        self,
        url_or_name: str | os.PathLike[str] | None = None,
        *,
        storage: Storage | None = None,
        located: bool = False,
    ) -> None:
        if url_or_name is not None and storage is not None:
            raise InvalidInputError(
                "two stores were given", hint="Give a URL, a path or a name; or a Storage, which has a URL."
            )
        if located and storage is not None:
            raise InvalidInputError("a Storage is named by the user", hint="Leave located out.")
        self._is_located = located
        self._named = (
            arguments.store(url_or_name) if located else stores.name(storage if storage is not None else url_or_name)
        )

    @property
    def url(self) -> str:
        """The store's canonical URL, as in locators. No request is made."""
        return stores.canonical_url(self._named)

    @property
    def was_used(self) -> bool:
        """Whether this machine has used a store there. No request is made."""
        return stores.was_used(self._named)

    @property
    def endpoint_note(self) -> str:
        """A note about a store whose endpoint comes from the environment, since locators name it;
        "" for any other. No request is made."""
        return stores.endpoint_note(self._named)

    def check(self) -> None:
        """Tells a store that has nothing from one that is not there: one request. NotFoundError:
        there was no store. UnavailableError: it has been opened, and is not there any more."""
        stores.require_there(stores.open_store(self._named))

    def doctor(self) -> Iterator[Check]:
        """Checks what cowfs needs on this machine and in this store, one after the other. The
        checks leave nothing behind, and create no store."""
        from cowfs.api import doctor

        return doctor.run(self._named if not isinstance(self._named, Storage) else self.url)

    def __eq__(self, other: object) -> bool:
        other = unwrap(other)
        return isinstance(other, Store) and self._named == other._named

    def __hash__(self) -> int:
        return hash(self._named)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unpickle, (self._named, self._is_located))

    def __repr__(self) -> str:
        return f"Store({self._named!r})" if self._named is not None else "Store()"

    # -- volumes

    def volumes(self, *, deleted: bool = False) -> list[VolumeSummary]:
        """The store's volumes, by name, with size, files, owner and head. If a record of a volume
        cannot be read, its entry has `problem` set; the others are still listed. deleted: list the
        deleted volumes that can be restored instead. NotFoundError: there is no cowfs store."""
        return overview.volumes_of(self._named, deleted=deleted)

    def names(self, *, start: str = "", limit: int) -> list[str]:
        """The first `limit` names of the store's volumes that begin with `start`, sorted; deleted
        volumes are among them. One request per name. NotFoundError: there is no cowfs store."""
        return overview.volume_names(self._named, start=start, limit=limit)

    def volume(self, name: str, *, create: bool = False, uncommitted: Uncommitted = "resume") -> RWVolume:
        """A volume by name, as `Volume.open`. Nothing is read until it is mounted or resolved."""
        from cowfs.api.rw_volume import RWVolume

        claim: Claim = "either" if create else "existing"
        return RWVolume(self._named, names.checked(name), claim, uncommitted=uncommitted)

    def create(
        self,
        name: str,
        *,
        exist_ok: bool = False,
        compress: bool = True,
        owner: str | None = None,
        accept_unsafe_store: bool = False,
        new_store: bool = False,
    ) -> RWVolume:
        """Creates a volume without versions, and the store if it does not exist. ConflictError: the
        name is taken; with exist_ok, the existing volume is returned instead. compress: as for
        `Volume.new`. owner: recorded as the volume's owner; None: the author of versions that are
        made here. accept_unsafe_store, new_store: as for `RWVolume.resolve`."""
        from cowfs.api.rw_volume import RWVolume

        claim: Claim = "either" if exist_ok else "new"
        volume = RWVolume(self._named, names.checked(name), claim, strict=not exist_ok, compress=compress, owner=owner)
        return volume.resolve(accept_unsafe_store=accept_unsafe_store, new_store=new_store)

    def version(self, source: str, *, of: str | None = None) -> ROVolume:
        """The version that `source` names, as `Volume.version`. of: the volume whose version is
        meant, so that @{3} alone is one of it; InvalidInputError for the bare name of another
        one."""
        from cowfs.api import ro_volume, sources

        meant = source if of is None else sources.version_of(of, source)
        return ro_volume.make_version(sources.find_version(meant, self._named))

    def names_version(self, source: str) -> bool:
        """Whether `source` names one version, and not a volume. Nothing is looked up.
        InvalidInputError: it names neither."""
        from cowfs.api import sources

        return sources.names_version(source)

    def locator(self, source: str) -> str | None:
        """The locator of the version that `source` names, as `version`, without reading it. None: a
        volume without versions. NotFoundError: no such volume or version."""
        from cowfs.api import sources

        found = sources.find(source, self._named)
        return None if found.version is None else str(found.locator())

    def log(self, source: str, *, labels: Conditions | None = None, limit: int | None = None) -> VersionLog:
        """The version that `source` names and its ancestors, newest first, at most `limit`, with
        their tags and whether a collection may delete them. A request for each version, and
        three more. SOURCE:PATH: only the versions that changed the path, and their changes. labels:
        only the versions whose labels meet these conditions, as for `ROVolume.history`."""
        from cowfs.api import ro_volume, sources
        from cowfs.api.versions import comparing
        from cowfs.api.versions.version_log import VersionLog, names_of

        meets = make_test(labels if labels is not None else ())
        meant = sources.place(source)
        found = sources.find(meant.source, self._named)
        if found.version is None:
            return VersionLog(found.volume, [], {})
        newest = found.located()
        if not meant.path:
            past, changes = ro_volume.make_version(newest.resolve()).history(labels=labels, limit=limit), {}
        else:
            arguments.limit(limit)
            steps = (
                (ro_volume.make_version(each), changed)
                for each, changed in comparing.path_changes(newest, os.fsdecode(meant.path))
            )
            kept = list(islice((each for each in steps if meets(each[0].labels)), limit))
            past = [each for each, _ in kept]
            changes = {each.id: changed for each, changed in kept}
        here = [each.id for each in past if not each.is_pruned]
        gone = [each.id for each in past if each.is_pruned]
        return VersionLog(found.volume, past, names_of(found.store, found.volume, here, gone), changes)

    def diff(
        self,
        old: str,
        new: str | None = None,
        paths: Sequence[str] = (),
        *,
        work: bool = False,
        times: bool = False,
        renames: bool = True,
    ) -> Diff:
        """What differs between two SOURCE[:PATH]. new None: `old` is NAME[:PATH], whose uncommitted
        work on this machine is compared with its base. work: `new` is a volume, with its
        uncommitted work. paths: only these paths and below. times, renames: as for
        `ROVolume.diff`."""
        from cowfs.api.versions import named_comparisons

        if new is None or work:
            return named_comparisons.compare_with_work(old, new, paths, self._named, times=times, renames=renames)
        return named_comparisons.compare(old, new, paths, self._named, times=times, renames=renames)

    def fork(self, source: str, name: str) -> ForkReport:
        """Makes volume `name` from `source`: NAME, NAME@TAG, NAME@VERSION or a locator. Uncommitted
        work of NAME on this machine is committed first; work that another writer keeps from being
        committed moves to the fork. The report says which. ConflictError: the name is taken."""
        from cowfs.api.versions import forking

        return forking.fork(source, name, self._named)

    def changes(self, name: str) -> VolumeChanges:
        """Begins changes of a volume's files that become one version, without a mount, on top of
        the version that is newest now. NotFoundError: no such volume."""
        from cowfs.api.versions.head_changes import VolumeChanges

        return VolumeChanges(stores.open_store(self._named), names.checked(name))

    # -- files by SOURCE:PATH

    def ls(self, place: str, *, recursive: bool = False, name: str | None = None, type: str | None = None) -> Listing:
        """The entries at SOURCE[:PATH], by name, each directory before its entries; for anything
        but a directory, its own entry. A bare NAME means its last version, even while it is mounted
        here. A link that PATH names is followed, others are not.

        PATH may be a pattern with the wildcards of `files.glob`, unless something exists under
        exactly that name: the entries that match it are listed, recursive: with everything below
        them. name: only names that match this
        shell pattern. type: only entries of that type, as in `Entry`. NotFoundError."""
        from cowfs.api.access import looking

        return looking.listing(place, self._named, recursive=recursive, name=name, type=type)

    def stat(self, place: str) -> FoundEntry:
        """The entry at SOURCE[:PATH]; a link is followed. NotFoundError."""
        from cowfs.api.access import looking

        return looking.stat(place, self._named)

    def usage(self, place: str) -> Usage:
        """The number and size of the files below each directory of SOURCE[:PATH]. Sizes are those
        of the files, not of their data in the store. NotFoundError."""
        from cowfs.api.access import looking

        return looking.usage(place, self._named)

    def read(self, place: str) -> Iterator[bytes]:
        """The bytes of the file at SOURCE:PATH, in pieces of at most 1 MiB. Close the iterator if
        it is not read to its end. NotFoundError; InvalidInputError: it is a directory."""
        from cowfs.api.access import looking

        return looking.contents(place, self._named)

    def copy(
        self,
        source: str | Sequence[str],
        target: str,
        *,
        message: str = "",
        author: str | None = None,
        labels: Labels | None = None,
        progress: ProgressListener | None = None,
    ) -> CopyReport:
        """Copies a file, or the contents of a directory. Either side is SOURCE:PATH, LOCATOR/PATH
        or a path of this machine; at least one is not of this machine.

        The contents of a directory go into the target directory. A file is placed inside the target
        if that is a directory or ends in "/"; otherwise it takes that name. Several sources, all of
        this machine or all of one version, go into the target directory, each under its own name;
        so do the entries that a pattern (SOURCE:PATH with wildcards) matches. Missing directories
        of the target are created. A volume gets one version with all of it (message), or nothing; a
        volume that is mounted here gets the files into its mount. A local pipe as the source is
        read to its end. progress receives the stage "copy", then the stages of the commit.
        """
        from cowfs.api.transfers import copying

        request = commit_request(message, author, None, labels)
        return copying.copy(source, target, request, store=self._named, progress=progress)

    def remove(
        self,
        places: str | Sequence[str],
        *,
        recursive: bool = False,
        missing_ok: bool = False,
        message: str = "",
        author: str | None = None,
        labels: Labels | None = None,
        dry_run: bool = False,
    ) -> EditReport:
        """Removes NAME:PATH, or several paths of one volume, without a mount, and publishes the
        result as one version. PATH may be a pattern, as in `ls`. recursive: directories, too, with
        everything in them. missing_ok: paths and patterns that name nothing are not an error.

        All paths are checked before anything is removed. If the volume is mounted here, they are
        removed in the mount, and its commit publishes that; message, author and labels are then
        refused. dry_run: report what would be removed. NotFoundError; InvalidInputError: a
        directory without recursive, or the root. LeaseHeldError: another writer has the volume.
        InvalidStateError: it has uncommitted work here.
        """
        from cowfs.api.versions import editing

        request = commit_request(message, author, None, labels)
        given = [places] if isinstance(places, str) else places
        return editing.remove(given, self._named, request, recursive=recursive, missing_ok=missing_ok, dry_run=dry_run)

    def move(
        self,
        sources: str | Sequence[str],
        target: str,
        *,
        message: str = "",
        author: str | None = None,
        labels: Labels | None = None,
        dry_run: bool = False,
    ) -> EditReport:
        """Renames NAME:PATH to NAME:PATH of the same volume, without a mount, and publishes the
        result as one version. No content is transferred.

        If the target is a directory or ends in "/", or if there are several sources or a pattern,
        they go into the target under their own names; otherwise the source takes the target's name.
        Missing directories of the target are created. A file or link there is replaced, as by
        rename(2). Mounts, errors and the other arguments: as for `remove`.
        """
        from cowfs.api.versions import editing

        request = commit_request(message, author, None, labels)
        given = [sources] if isinstance(sources, str) else sources
        return editing.move(given, target, self._named, request, dry_run=dry_run)

    def mkdir(
        self,
        places: str | Sequence[str],
        *,
        parents: bool = False,
        message: str = "",
        author: str | None = None,
        labels: Labels | None = None,
    ) -> EditReport:
        """Makes the directory NAME:PATH, or several of one volume, without a mount, and publishes
        them as one version. parents: missing parents, too, and an existing directory is no error.
        Mounts, errors and the other arguments: as for `remove`. ConflictError: the path exists."""
        from cowfs.api.versions import editing

        request = commit_request(message, author, None, labels)
        given = [places] if isinstance(places, str) else places
        return editing.mkdir(given, self._named, request, parents=parents)

    def download(
        self,
        source: str,
        dst: str | os.PathLike[str] | None = None,
        *,
        overwrite: Overwrite = "error",
        progress: ProgressListener | None = None,
    ) -> TransferReport:
        """`ROFiles.download` of SOURCE, SOURCE:PATH or LOCATOR/PATH."""
        from cowfs.api.transfers import named_transfers

        return named_transfers.download_from(source, dst, store=self._named, overwrite=overwrite, progress=progress)

    def upload(
        self,
        src: str | os.PathLike[str],
        target: str = "",
        *,
        delete: bool = False,
        exclude: Iterable[str] = (),
        checksum: bool = False,
        message: str = "",
        author: str | None = None,
        labels: Labels | None = None,
        progress: ProgressListener | None = None,
    ) -> TransferReport:
        """`RWFiles.upload` to NAME or NAME:PATH; "": the volume with the directory's name. The
        volume is created if it is missing."""
        from cowfs.api.transfers import named_transfers

        return named_transfers.upload_to(
            src,
            target,
            commit_request(message, author, None, labels),
            store=self._named,
            delete=delete,
            exclude=exclude,
            checksum=checksum,
            progress=progress,
        )

    def export(
        self,
        source: str,
        url: str,
        *,
        delete: bool = False,
        exclude: Iterable[str] = (),
        progress: ProgressListener | None = None,
    ) -> TransferReport:
        """`ROFiles.export` of SOURCE, SOURCE:PATH or LOCATOR/PATH."""
        from cowfs.api.transfers import named_transfers

        return named_transfers.export_from(
            source, url, store=self._named, delete=delete, exclude=exclude, progress=progress
        )

    def import_files(
        self,
        url: str | os.PathLike[str],
        name: str,
        *,
        link: bool = False,
        delete: bool = False,
        exclude: Iterable[str] = (),
        message: str = "",
        author: str | None = None,
        labels: Labels | None = None,
        progress: ProgressListener | None = None,
    ) -> TransferReport:
        """As `import_`, except that the files go into the mount if the volume is mounted on this
        machine, and the mount's commit publishes them (`mount_path` of the report). Links and
        archives do not: ConflictError."""
        from cowfs.api.transfers import importing

        request = commit_request(message, author, None, labels)
        return importing.import_to(
            url, name, request, store=self._named, link=link, delete=delete, exclude=exclude, progress=progress
        )

    def to_mount(self, source: str, *, read_only: bool = False, scratch: bool = False) -> RWVolume | ROVolume:
        """The object whose `mount` mounts `source`: the volume that it names, or, with read_only or
        scratch, its last version; otherwise the version or folder that SOURCE[:PATH] means. The
        mount uses the state that is read here. InvalidInputError: one folder of a volume, to be
        written."""
        from cowfs.api import ro_volume, rw_volume, sources
        from cowfs.api.access.volume_handle import VolumeHandle

        place, is_writable = sources.place(source), not (read_only or scratch)
        found = sources.find(place.source, self._named, to_write=is_writable, with_manifest=True)
        if found.head is None or not is_writable:
            return ro_volume.make_version(found.located(place.path))
        if place.path:
            raise InvalidInputError(
                f"one folder of a volume cannot be mounted writable: {source}",
                hint=f"Mount {found.volume} whole, or that folder of its last version with --read-only (read_only=True).",
            )
        return rw_volume.make_volume(VolumeHandle.of_head(found.store, found.head))

    def import_(
        self,
        url: str | os.PathLike[str],
        name: str,
        *,
        link: bool = False,
        storage: Storage | None = None,
        delete: bool = False,
        exclude: Iterable[str] = (),
        message: str = "",
        author: str | None = None,
        labels: Labels | None = None,
        progress: ProgressListener | None = None,
        executor: Executor | None = None,
    ) -> ROVolume:
        """Copies the files at `url` into the volume and returns the volume's last version. The
        volume is created if it is missing. `is_new` tells whether this call made the version. url:
        a bucket or a prefix of it, a web directory, a directory of this machine, an archive as
        tar://::URL or zip://::URL, or any other place that fsspec can list.

        link: copy and read no bytes. Files then refer to the objects at `url`, in the state in
        which they were listed. Reading an object that has changed since fails (SourceChangedError,
        EIO in a mount); the others are not affected. Objects are read with the credentials of the
        environment or, in the store's own bucket, with the store's.

        storage: credentials for `url`; None: those of the environment. delete: remove files from
        the volume that are not at `url`. exclude: as in `files.upload`. Objects with the size, ETag
        and time recorded by the last import are not read. To resume a killed import, repeat the
        call: it transfers only the missing data. The listing is held in memory. executor: its
        workers read and store the objects, each with its own credentials
        (docs/guide/large-stores.md). InvalidInputError: some keys cannot be file names; all of them
        are reported before anything is read. ConflictError: an object keeps being replaced.
        CorruptError: an archive is damaged.
        """
        from cowfs.api import ro_volume
        from cowfs.api.transfers import importing

        made = importing.import_from(
            url,
            name,
            commit_request(message, author, None, labels),
            store=self._named,
            link=link,
            storage=storage,
            delete=delete,
            exclude=exclude,
            progress=progress,
            executor=executor,
        )
        return ro_volume.make_version(made.version)

    def absorb(
        self,
        name: str,
        *,
        message: str = "",
        author: str | None = None,
        labels: Labels | None = None,
        progress: ProgressListener | None = None,
    ) -> TransferReport:
        """Reads the objects that the volume's last version links, stores their contents, and
        publishes a version that depends on the store alone. files, bytes: what was linked; without
        links nothing is published (`is_new`). SourceChangedError: an object has changed since it
        was linked; nothing is published."""
        from cowfs.api.transfers import importing

        request = commit_request(message, author, None, labels)
        return importing.absorb(name, request, store=self._named, progress=progress).report

    def delete(self, name: str, *, force: bool = False) -> None:
        """Deletes a volume; `undelete` restores it. The volume can no longer be found by its name,
        and the name stays taken. Its forks and locators of its versions keep working.

        NotFoundError: no such volume. LeaseHeldError: another writer has the volume; the message
        says where. InvalidStateError: it is mounted here, or has uncommitted work here. force:
        delete it all the same. Its writer can then publish nothing more; uncommitted work of the
        writer and of this machine is kept.
        """
        from cowfs.api.versions import deleting

        deleting.delete(names.checked(name), self._named, force=force)

    def undelete(self, name: str) -> bool:
        """Restores a deleted volume with all its versions. Returns whether it was deleted; any
        other volume stays as it is. NotFoundError: no volume of that name ever existed."""
        from cowfs.api.versions import deleting

        return deleting.undelete(names.checked(name), self._named)

    def merge(
        self,
        into: str,
        branches: Sources,
        *,
        strategy: Strategy = None,
        message: str = "",
        author: str | None = None,
        labels: Labels | None = None,
        dry_run: bool = False,
    ) -> MergeReport:
        """`RWVolume.merge` into the volume of that name."""
        return self.volume(into).merge(
            branches, strategy=strategy, message=message, author=author, labels=labels, dry_run=dry_run
        )

    def restore(
        self,
        name: str,
        version: Source,
        *,
        to: str | os.PathLike[str] | None = None,
        message: str = "",
        author: str | None = None,
        labels: Labels | None = None,
        dry_run: bool = False,
    ) -> RestoreReport:
        """Restores the contents of `version` at `to`, as the volume's next version. Everything else
        at `to` is removed. No content is transferred, and the versions in between are kept. If
        nothing differs, no version is made (`is_new`).

        version: of this volume or another volume of the store, or a folder or file of one; an
        object, or its name ("NAME@TAG:PATH"). to: the destination; None: the original path.
        dry_run: publish nothing.

        If the volume is mounted here, nothing is published. The working copy is changed instead:
        uncommitted changes at `to` are lost, the rest is kept, and the next commit publishes the
        result (`mount_path`). Contents that differ are fetched. Programs that have a replaced or
        removed file open keep its old contents.

        NotFoundError: the version does not have that path, or the volume has no directory for it.
        ConflictError: the volume is mounted here as a copy, which cannot be restored into, or a
        file is in the place of a directory. InvalidStateError: the volume is not mounted and has
        uncommitted work here, or the contents to restore are linked. InvalidInputError: a message
        was given but nothing is published.
        """
        from cowfs.api import ro_volume, rw_volume
        from cowfs.api.versions import restoring

        volume, wanted = rw_volume.get_handle(self.volume(name)), ro_volume.find_version(version, self._named)
        request = commit_request(message, author, None, labels)
        return restoring.restore(volume, wanted, request, to=to, dry_run=dry_run)

    def rollback(
        self,
        name: str,
        version: Source,
        *,
        message: str = "",
        author: str | None = None,
        labels: Labels | None = None,
        dry_run: bool = False,
    ) -> RestoreReport:
        """Restores the whole of `version`, as `restore` does: the volume's next version equals
        it."""
        from cowfs.api import ro_volume, rw_volume
        from cowfs.api.versions import restoring

        volume, wanted = rw_volume.get_handle(self.volume(name)), ro_volume.find_version(version, self._named)
        request = commit_request(message, author, None, labels)
        return restoring.rollback(volume, wanted, request, dry_run=dry_run)

    def tags(self, name: str) -> list[Tag]:
        """The volume's tags, by name. A version's `tag` sets one. NotFoundError: no such volume."""
        from cowfs.api.versions import tagging

        return tagging.list_tags(names.checked(name), self._named)

    def untag(
        self,
        name: str,
        tag: str,
        *,
        expect: str | None = None,
    ) -> Tag:
        """Removes a tag and returns its former value. The version is kept as long as something else
        keeps it. expect: remove the tag only if it is on this version (its id, 8 digits or more of
        it, or a source as for `version`); otherwise ConflictError. NotFoundError: no such volume or
        tag."""
        from cowfs.api.versions import tagging

        return tagging.remove_tag(names.checked(name), tag, self._named, expect=expect)

    @shows_options(KeepRules, of=Rules)
    def plan_prune(
        self,
        name: str,
        **rules: Unpack[KeepRules],
    ) -> PrunePlan:
        """Plans which versions of a volume these rules keep and which are removed; `prune` applies
        the plan.

        last: keep this many of the newest versions. within: keep versions made at most this long
        before the last one ("30d", "12h", "6mo", or a timedelta). hourly to yearly: keep the last
        version of each of this many hours, days, weeks, months or years (UTC) that have any. A
        version is kept if one rule keeps it. Some versions are always kept: the last one, tagged
        ones, and the base of a mount (of a read-only mount only if it is on this machine), of
        uncommitted work or of a fork. No rule at all: use the rules saved in the volume
        (`set_retention`). InvalidInputError: it has none.
        """
        from cowfs.api.upkeep import pruning

        return pruning.plan(names.checked(name), self._named, pruning.given(rules))

    @shows_options(KeepRules, of=Rules)
    def set_retention(
        self,
        name: str,
        **rules: Unpack[KeepRules],
    ) -> None:
        """Saves rules, as in `plan_prune`, in the volume's record in place of the earlier ones. No
        rule at all removes them. Nothing is pruned. `plan_prune` without rules, `plan_maintain` and
        `cowfs maintain` use the saved rules. NotFoundError: no such volume."""
        from cowfs.api.upkeep import pruning

        pruning.save_rules(names.checked(name), self._named, pruning.given(rules))

    def retention(self, name: str) -> dict[str, Any]:
        """The rules saved in the volume, as `set_retention` takes them; empty if it has none.
        NotFoundError: no such volume."""
        from cowfs.api.upkeep import pruning

        return pruning.rules(names.checked(name), self._named)

    def set_quota(self, name: str, size: int | str | None) -> None:
        """Limits the total size of the volume's regular files, holes included. The limit is an int
        or a text like "100GB" or "64GiB"; None removes it.

        Changes that would make the volume larger are then refused: with EDQUOT in a mount and in
        `files`, and with NoSpaceError for a version that is uploaded, imported, merged or restored.
        Existing files stay, even beyond the quota. `df` shows the quota. Processes that have the
        volume open already use the previous quota. NotFoundError: no such volume. If the volume's
        record is damaged, this writes a new one. The new record loses any pruning rules, and the
        volume's owner if no earlier record names it.
        """
        from cowfs.api.upkeep import quotas

        quotas.set_quota(names.checked(name), self._named, size)

    def quota(self, name: str) -> int | None:
        """The quota in bytes, as set by `set_quota`; None: no quota. NotFoundError: no such
        volume."""
        from cowfs.api.upkeep import quotas

        return quotas.quota(names.checked(name), self._named)

    def plan_maintain(self) -> list[PrunePlan]:
        """Makes a plan for each volume of the store that has saved rules. `prune` applies each
        plan, and `gc` then frees the space. Volumes without rules and deleted volumes are left
        out."""
        from cowfs.api.upkeep import pruning

        return pruning.plan_all(self._named)

    def prune(self, plan: PrunePlan) -> list[PlannedVersion]:
        """Prunes the versions that the plan removes and returns the pruned ones. The volume
        loses them permanently, and a collection may delete data that only they need. Versions that
        were tagged, mounted or forked since the plan was made are kept."""
        from cowfs.api.upkeep import pruning

        return pruning.prune(plan, self._named)

    def maintain(self, *, dry_run: bool = False, executor: Executor | None = None) -> GcReport:
        """Prunes each volume that has saved rules, then collects garbage as `gc` does. dry_run:
        report what would be deleted; nothing is pruned or deleted."""
        plans = self.plan_maintain()
        if dry_run:
            return self.gc(dry_run=True, pruned=plans, executor=executor)
        for plan in plans:
            self.prune(plan)
        return self.gc(executor=executor)

    def plan_gc(self, *, dry_run: bool = False, say: Say | None = None, executor: Executor | None = None) -> GcPlan:
        """The first half of `gc`: what it would delete, and an `apply` that deletes it. dry_run: do
        not wait for writers, so that the plan is to be shown only. say: called with a sentence when
        writers are waited for. Errors as for `gc`."""
        from cowfs.api.upkeep import collecting

        return collecting.prepare(self._named, dry_run=dry_run, say=say, executor=executor)

    def why(self, object: str) -> WhyReport:
        """The reasons for keeping an object of the store: a version (NAME@TAG, NAME@VERSION, or its
        id) or a pack (its id or key). NotFoundError, InvalidInputError."""
        from cowfs.api.upkeep import collecting

        return collecting.why(object, self._named)

    def gc(
        self,
        *,
        dry_run: bool = False,
        plan: GcReport | None = None,
        pruned: Sequence[PrunePlan] | None = None,
        accept_loss: str = "",
        executor: Executor | None = None,
    ) -> GcReport:
        """Deletes data that nothing in the store needs. Needed data is referenced by a head that is
        not pruned, a tag, a mount or uncommitted work. Writers can continue meanwhile. Data that
        they may still use is kept, and so is data younger than an hour. A deleted volume can be
        restored for a week; then its versions are deleted, too.

        dry_run: report what would be deleted, to the byte; with pruned, as if these plans
        (`plan_maintain`) had been applied. plan: the result of such a call; nothing outside of it
        is deleted. `is_done` is False if a writer does not answer; nothing was deleted then. The
        next call continues the collection, also after a killed one.

        InvalidStateError: this machine's clock is wrong by more than five minutes, or the store
        does not show everything that it should, such as heads, volumes or folders seen earlier
        (`alarms` of the report). LeaseHeldError: a process of this machine is collecting. An
        unreadable head, tag or pin raises its error before anything is deleted. accept_loss: the
        report's plan_id; delete in spite of the alarms. Cost: the roots, and the index of every
        kept version, once.

        executor: reads the indexes of many versions (docs/guide/large-stores.md).
        """
        from cowfs.api.upkeep import collecting

        return collecting.gc(
            self._named, dry_run=dry_run, plan=plan, pruned=pruned, accept_loss=accept_loss, executor=executor
        )

    def plan_purge(self, source: str, *, progress: ProgressListener | None = None) -> PurgePlan:
        """The first half of `purge`: what it would take from which versions, and an `apply` that
        takes it. Nothing is written. Errors as for `purge`."""
        from cowfs.api.upkeep import purging

        return purging.prepare(source, self._named, progress=progress)

    def purge(self, source: str, *, name: str = "", dry_run: bool = False, lose_work: bool = False) -> PurgeReport:
        """Takes the bytes of NAME (all versions of the volume, deleted or not), NAME@VERSION,
        NAME:PATH (the path in every version of the volume) or NAME@VERSION:PATH out of the store.
        Nothing brings them back.

        Chunks are shared, so every version that refers to one loses it, whatever volume, tag or
        mount keeps it; `versions` of the report has them all. Reading the lost bytes raises
        PurgedError. Everything else reads as before, and the ids of versions stay. Names and
        extended attributes go with whole versions only. Writers can continue meanwhile.

        name: the volume's name in full, as a confirmation. dry_run: only report. lose_work: purge
        whole versions although uncommitted work somewhere is based on one, and is lost then.

        `is_done` is False while a writer does not answer; the next purge or `gc` continues, also
        after a killed one. Anything that cannot be read raises its error before anything happens.
        LeaseHeldError: somebody writes to a volume whose last version would go as a whole, or a
        process of this machine is collecting. InvalidStateError: work would be lost. Cost: the
        directories of all packs, the index of every version, and the packs that hold the chunks.
        """
        from cowfs.api.upkeep import purging

        return purging.purge(source, self._named, name=name, dry_run=dry_run, lose_work=lose_work)

    def verify(
        self,
        source: str | None = None,
        *,
        sample: float = 1.0,
        resume: bool = False,
        progress: ProgressListener | None = None,
        executor: Executor | None = None,
    ) -> VerifyReport:
        """Reads the packs of a version (as `version` takes it) or of the whole store again and
        checks every byte. Reports the damaged packs and the paths of each version that they break.
        For a whole store it also reports damaged heads, tags, leases and volume records, and
        missing heads. Nothing is written. For linked files only the state of their objects is
        checked.

        sample: the fraction of the packs to read, chosen at random; the listing shows whether the
        others exist. resume: skip packs that an interrupted run on this machine has read. A store
        that does not answer raises an error; damage does not. executor: reads the packs
        (docs/guide/large-stores.md).
        """
        from cowfs.api.upkeep import verifying

        return verifying.verify(source, self._named, sample=sample, resume=resume, progress=progress, executor=executor)

    def warm(
        self,
        source: str,
        path: FilePath = "/",
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int | str | None = None,
        replay: str | os.PathLike[str] | None = None,
        progress: ProgressListener | None = None,
    ) -> WarmReport:
        """`ROVolume.warm` of a version as `version` takes it; a bare name means the volume's last
        version. The source may be SOURCE:PATH."""
        from cowfs.api.transfers import named_transfers

        return named_transfers.warm_from(source, path, self._named, cache_dir, cache_size, replay, progress)

    def plan_repair(
        self,
        *,
        sources: Sequence[str | os.PathLike[str] | Storage] = (),
        report: VerifyReport | None = None,
        progress: ProgressListener | None = None,
    ) -> RepairPlan:
        """Reads the whole store as `verify` does and searches for lost data: in this machine's
        cache, in copies of its volumes on this machine (mounts without FUSE), in `sources`, and in
        other packs of the store. Reports what `repair` would do and which paths stay broken.
        Nothing is written. sources: other stores that have some of the same versions, or local
        directories with files of these versions (a download, a mount). report: from a `verify` of
        this store; only its damaged packs are read again. InvalidInputError: a source has another
        key."""
        from cowfs.api.upkeep import repairing

        return repairing.plan(self._named, sources, report=report, progress=progress)

    def repair(self, plan: RepairPlan, *, progress: ProgressListener | None = None) -> RepairPlan:
        """Applies a plan made by this process and returns the result. Data found for a damaged pack
        is written to a new pack, and a record directs readers to it. Addresses, versions and
        locators do not change; nothing is deleted. CorruptError: a source has changed since."""
        from cowfs.api.upkeep import repairing

        if plan.store_url != self.url:
            raise InvalidInputError(f"the plan is of {plan.store_url}, not of {self.url}", hint="Plan again.")
        return repairing.repair(plan, progress)

    def push(
        self,
        source: str,
        to: str | os.PathLike[str] | Storage,
        *,
        name: str | None = None,
        all_versions: bool = False,
        progress: ProgressListener | None = None,
        executor: Executor | None = None,
    ) -> PushReport:
        """Copies a version (as `version` takes it) to another store and makes it the last version
        of the volume there. The target store is created if it does not exist. Its volume has the
        same name, or `name`. The version id stays the same; only the store in the locator differs.
        Only packs that the target lacks are transferred, each checked before and after. An
        interrupted push can therefore be repeated, and repeated pushes maintain a mirror.

        all_versions: also copy the volume's earlier versions that are not pruned, and its tags. The
        target needs none of them to read the version. Versions and tags that the target volume can
        no longer accept because it has a later version are in `left_out` and `left_out_tags`.
        ConflictError: the target volume has a version that this one does not descend from, or has a
        later version and lacks this one; nothing is replaced. LeaseHeldError: another writer has
        the target volume. InvalidInputError: one of the stores is encrypted, and the other does not
        have the same key. CorruptError: a pack is damaged. executor: copies the packs
        (docs/guide/large-stores.md).
        """
        from cowfs.api.upkeep import pushing

        return pushing.push(
            source,
            self._named,
            stores.name(to),
            name=name,
            all_versions=all_versions,
            progress=progress,
            executor=executor,
        )

    def pull(
        self,
        source: str,
        origin: str | os.PathLike[str] | Storage,
        *,
        name: str | None = None,
        all_versions: bool = False,
        progress: ProgressListener | None = None,
        executor: Executor | None = None,
    ) -> PushReport:
        """Copies a version from the store `origin` to this store, as `push` does the other way
        round."""
        from cowfs.api.upkeep import pushing

        return pushing.push(
            source,
            stores.name(origin),
            self._named,
            name=name,
            all_versions=all_versions,
            progress=progress,
            executor=executor,
        )

    def stored_bytes(
        self,
        source: str | None = None,
        *,
        by: By | None = None,
        progress: ProgressListener | None = None,
    ) -> StoredReport:
        """The bytes of the store that each version of `source` (a volume, or one version) needs, or
        each volume of the store, and the part of them that nothing else needs. Bytes are counted as
        stored, once however often they are used.

        by: `version`, `volume`, `owner` or `store`; None: versions of a source, else volumes. Reads
        the whole index of every version that the store keeps.
        """
        from cowfs.api.upkeep import counting

        return counting.counted(source, self._named, by, progress)

    def overview(self, *, count_bytes: bool | None = None, progress: ProgressListener | None = None) -> StoreOverview:
        """The store's volumes as a tree of forks, who writes to them, how many bytes they take, and
        what `gc` would free. Nothing is written.

        count_bytes: whether to count bytes and to plan a collection, which reads the index of every
        version that the store keeps; None: if that takes a few seconds at most (`is_counted`).
        NotFoundError: there is no cowfs store."""
        from cowfs.api.upkeep import store_overview

        return store_overview.look(self._named, count_bytes=count_bytes, progress=progress)

    def describe(self, name: str) -> VolumeDetails:
        """Details of a volume from its store and from this machine. NotFoundError: no volume has
        that name; the hint lists similar names."""
        from cowfs.api.versions import details

        return details.find(name, self._named)


def _unpickle(named: stores.Named, is_located: bool) -> Store:
    return Store(named, located=True) if is_located and not isinstance(named, Storage) else store_of(named)


def store_of(given: str | os.PathLike[str] | Storage | None) -> Store:
    """The store that a `store=` argument names."""
    return Store(storage=given) if isinstance(given, Storage) else Store(given)
