"""Imports an existing bucket, web directory or local directory as a version of a volume.

A link is a row in the index (`index.links`): it costs one listing, and no byte is read. `absorb`
reads the linked objects and stores their contents.

A copy is an upload (docs/decisions/0036-uploads-without-an-engine.md) whose source is one listing
(`transfer.imports.object_tree`). Bytes go from ranged reads into cutting, hashing and packing,
without a copy on the local disk. Objects that the volume already has are not read. A directory of
this machine is uploaded as it is, with permissions and links; an archive as if it had been unpacked
(`archives`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextlib import ExitStack, closing
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

from cowfs.api import arguments, names, stores
from cowfs.api.access.volume_handle import VolumeHandle
from cowfs.api.mounts import mount_transfer
from cowfs.api.storage.definition import Storage
from cowfs.api.transfers import archives, origins, uploading
from cowfs.api.transfers.ignore_patterns import excluding
from cowfs.api.transfers.path_errors import NOT_HERE, errors_of_ours
from cowfs.api.transfers.transfer_report import Source, TransferReport
from cowfs.api.versions.located_version import LocatedVersion
from cowfs.base import interruptible
from cowfs.base.errors import InvalidInputError, NotFoundError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.format import backends
from cowfs.format.store_url import StoreUrl, mask_secrets
from cowfs.store.credentials import trust
from cowfs.store.origin import OriginObject
from cowfs.store.origin.archive import Address, address_of
from cowfs.store.origin.open_origin import RepeatingOrigin, is_plain, open_origin
from cowfs.version.commit import Base, CommitRequest, ProgressListener

if TYPE_CHECKING:
    from cowfs.index import Link
    from cowfs.transfer.copying import Attributes
    from cowfs.transfer.imports.import_log import ImportLog
    from cowfs.version.publish.publisher import Publisher

THREADS = 16
"""Objects read at once: a request to a bucket takes 10 ms or more."""


@dataclass(frozen=True)
class Imported:
    """The volume's last version after the import, and a report."""

    version: LocatedVersion
    report: TransferReport


def import_from(
    url: str | os.PathLike[str],
    name: str,
    request: CommitRequest,
    *,
    store: stores.Named = None,
    link: bool = False,
    storage: Storage | None = None,
    delete: bool = False,
    exclude: Iterable[str] = (),
    progress: ProgressListener | None = None,
    executor: Executor | None = None,
) -> Imported:
    """`Store.import_`."""
    from cowfs.transfer.imports.import_log import ImportLog

    text = origins.text_of(url)
    archive = address_of(text)
    if executor is not None:
        _require_parts(text, storage, link=link)
    hears = arguments.listener(progress) if progress is not None else None
    volume = VolumeHandle(store, names.checked(name), "either")
    ignored = excluding(exclude)
    if archive is not None:
        if link:
            raise _unlinkable(mask_secrets(text).strip("'"))
        with ExitStack() as stack:
            origin, key = _open_archive(stack, archive, storage, stores.canonical_url(store))
            made = archives.import_archive(
                archive, origin, key, volume, request, hears, delete=delete, excluded=ignored
            )
        return Imported(*made)
    if (directory := origins.local_path(text)) is not None:
        links = _local_links(directory) if link else _no_links
        made = uploading.upload_local(
            volume, directory, "/", request, hears, delete=delete, excluded=ignored, link=links
        )
        return Imported(*made)
    with ExitStack() as stack:
        store_url = stores.canonical_url(store)
        origin = stack.enter_context(origins.enter_place(text, storage, store_url))
        _require_apart(text, origin, store_url, ignored)
        source = _list_objects(stack, origin, ignored)  # before the volume is made
        links = _links_to(origin, text) if link else _no_links
        stack.enter_context(uploading.telling_of_empty(volume))
        target = volume.to_upload()
        if link and storage is not None:
            _require_same_bucket(origin.url, target.store.url, storage)
        uploading.require_not_mounted(target, b"")
        done = ImportLog(target.working_copy.imported_path, origin.url)
        whole = origins.complete(text, store_url)
        prepare = _prepare(executor, target.store, whole, source, done, ignored) if executor else _nothing_prepared
        made = uploading.publish_to(
            volume,
            target,
            source,
            b"",
            request,
            hears,
            delete=delete,
            excluded=ignored,
            threads=THREADS,
            done=done,
            link=links,
            prepare=prepare,
        )
        done.delete()
    return Imported(*made)


def import_to(
    url: str | os.PathLike[str],
    name: str,
    request: CommitRequest,
    *,
    store: stores.Named = None,
    link: bool = False,
    delete: bool = False,
    exclude: Iterable[str] = (),
    progress: ProgressListener | None = None,
) -> TransferReport:
    """As `import_from`. For a volume that is mounted here, the files go into the mount, whose
    commit publishes them. Links and archives are refused there: a mount cannot hold links, and an
    archive is published as one version or not at all."""
    volume = VolumeHandle(store, names.checked(name), "either")
    text = origins.text_of(url)
    is_version = link or address_of(text) is not None
    entry = None if is_version else volume.mounted_here()
    if entry is None:
        made = import_from(
            url, name, request, store=store, link=link, delete=delete, exclude=exclude, progress=progress
        )
        return made.report
    uploading.require_nothing_given(name, entry, request)
    if (directory := origins.local_path(text)) is not None:
        return uploading.upload(volume, directory, "/", request, delete=delete, exclude=exclude, progress=progress)
    excluded = excluding(exclude)
    with ExitStack() as stack:
        origin = stack.enter_context(origins.enter_place(text, None, entry.store_url))
        _require_apart(text, origin, entry.store_url, excluded)
        source = _list_objects(stack, origin, excluded)
        wanted = mount_transfer.Wanted(b"", delete=delete, excluded=excluded)
        hears = arguments.listener(progress) if progress is not None else None
        volume.resolve()
        return mount_transfer.put(entry, source, wanted, volume.locator or "", hears)


def absorb(
    name: str, request: CommitRequest, *, store: stores.Named = None, progress: ProgressListener | None = None
) -> Imported:
    """`Store.absorb`."""
    from cowfs.transfer.imports.absorbing import Absorbing
    from cowfs.transfer.linked import LinkedBytes
    from cowfs.transfer.upload.upload_plan import NothingToUpload

    hears = arguments.listener(progress) if progress is not None else None
    volume = VolumeHandle(store, names.checked(name), "existing")
    target = volume.to_upload()
    uploading.require_not_mounted(target, b"")

    def published() -> tuple[Base, Base, Absorbing]:
        with ExitStack() as stack:
            linked = stack.enter_context(closing(LinkedBytes(target.store.url, target.store.access)))
            line = stack.enter_context(uploading.publishing_to(target))
            before = line.publisher.base
            if before.version_id is None:
                raise NotFoundError(
                    f"volume {name!r} has no version yet", hint=f"Import something first: {Command('import')}."
                )
            source = Absorbing(line.publisher, linked, hurry=line.hurry, progress=hears)
            try:
                return before, line.publisher.publish(source, request, hears or (lambda _: None)), source
            except NothingToUpload:
                return before, before, source

    before, base, source = interruptible.run(published)
    assert base.version_id is not None
    version = volume.record(base.head_number, base.version_id, is_new=base.version_id != before.version_id)
    report = TransferReport(source.files, 0, 0, source.bytes, 0, 0, 0, locator=version.locator, is_new=version.is_new)
    return Imported(version, report)


def _require_parts(text: str, storage: Storage | None, *, link: bool) -> None:
    """InvalidInputError: workers cannot run this import."""
    if link or address_of(text) is not None or origins.local_path(text) is not None:
        raise InvalidInputError(
            "executor= is for the bytes of objects: of a link none are read, an archive is read by one, in its order, and a "
            "directory of this machine is here",
            hint="Leave it out.",
        )
    if storage is not None and storage.has_credentials:
        raise InvalidInputError(
            "storage= has credentials of this process, and workers get none",
            hint="Leave it out, and give each worker credentials in its environment or profile.",
        )


def _prepare(
    executor: Executor, store: stores.OpenStore, text: str, source: Source, done: ImportLog, ignored: Excluded
) -> Callable[[Publisher, Event], None]:
    from cowfs.api.upkeep.parts import Workers
    from cowfs.transfer.imports.object_parts import ObjectParts
    from cowfs.transfer.imports.object_tree import ObjectTree

    assert isinstance(source.tree, ObjectTree)
    return ObjectParts(source.tree, done, ignored, partial(Workers(executor).store, store, text)).prepare


def _nothing_prepared(publisher: Publisher, stop: Event) -> None:
    pass


Excluded = Callable[[bytes], bool]
Links = Callable[[bytes, "Attributes"], "Link | None"]


def _no_links(path: bytes, attr: Attributes) -> Link | None:
    return None


def _links_to(origin: RepeatingOrigin, text: str) -> Links:
    """Links to the objects. Empty objects become empty files. InvalidInputError: this place cannot
    be linked."""
    from cowfs.index import Link
    from cowfs.transfer.imports.object_tree import ObjectAttr

    if is_plain(text) or not trust.is_linkable(StoreUrl.parse(origin.url)):
        raise _unlinkable(origin.url)

    checked: list[OriginObject] = []

    def link(path: bytes, attr: Attributes) -> Link | None:
        found = attr.object if isinstance(attr, ObjectAttr) else None
        if found is None or not found.size:
            return None
        if not found.state:
            raise _cannot_tell(origin.url, found)
        if not checked and not backends.of_url(origin.url).has_exact_lists:
            # The listing and a request for the object may show different properties.
            if (now := origin.look(found.key)) is None or not found.is_now(now):
                raise _cannot_tell(origin.url, found)
            checked.append(found)
        return Link(origin.url, os.fsencode(found.key), found.size, found.mtime_ns, found.tag)

    return link


def _unlinkable(url: str) -> InvalidInputError:
    return InvalidInputError(
        f"{url} cannot be linked: nobody else finds it there", hint="Import it without a link, which copies the files."
    )


def _cannot_tell(url: str, found: OriginObject) -> InvalidInputError:
    return InvalidInputError(
        f"{url} does not tell when {found.key or 'it'} changes, so that it cannot be linked",
        hint="Import it without a link, which copies the files.",
    )


def _local_links(directory: str) -> Links:
    """Links to regular files. The caller thereby allows reading them through links on this
    machine."""
    from cowfs.index import Link

    real = os.path.realpath(directory)
    place = StoreUrl.from_path(real if os.path.isdir(real) else os.path.dirname(real))
    trust.name_directory(place)

    def link(path: bytes, attr: Attributes) -> Link | None:
        return Link(str(place), path, attr.size, attr.mtime_ns, str(attr.mtime_ns)) if attr.size else None

    return link


def _require_same_bucket(url: str, store_url: str, storage: Storage) -> None:
    """Mounts that read links have only the credentials of the environment and the store."""
    one, other = StoreUrl.parse(url), StoreUrl.parse(store_url)
    is_same = (one.protocol, one.authority, one.endpoint) == (other.protocol, other.authority, other.endpoint)
    if storage.has_credentials and not is_same:
        raise InvalidInputError(
            "links are read with the credentials of the environment, and those of storage= are none of these",
            hint="Set them in the environment (AWS_ACCESS_KEY_ID, …), or import without a link, which copies the files.",
        )


def _require_apart(text: str, origin: RepeatingOrigin, store_url: str, excluded: Excluded) -> None:
    if not is_plain(text):
        place, store = StoreUrl.parse(origin.url), StoreUrl.parse(store_url)
        origins.require_without(place, store, excluded, "Import the folders beside it one by one")


def _open_archive(
    stack: ExitStack, archive: Address, storage: Storage | None, store_url: str
) -> tuple[RepeatingOrigin, str]:
    """The place of the archive, and its key there."""
    if address_of(archive.place) is not None:
        raise InvalidInputError(
            "an archive within an archive cannot be imported", hint="Unpack the outer one with another program."
        )
    if (path := origins.local_path(archive.place)) is None:
        return stack.enter_context(origins.enter_place(archive.place, storage, store_url)), ""
    if storage is not None:
        raise InvalidInputError("storage= is for stores alone", hint="Leave it out: the archive is on this machine.")
    with errors_of_ours(path, NOT_HERE):
        real = os.path.realpath(path, strict=True)
    directory, name = os.path.split(real)
    return stack.enter_context(closing(open_origin(directory))), name


def _list_objects(stack: ExitStack, origin: RepeatingOrigin, excluded: Callable[[bytes], bool]) -> Source:
    """All objects below the URL, or the single object that it names."""
    from cowfs.transfer.imports.object_tree import ObjectTree

    found, name = [*origin.list()], ""
    if not found and (single := origin.look("")) is not None:
        name = origin.url.rstrip("/").rpartition("/")[2]
        found = [single]
    if not found:
        raise NotFoundError(f"there is nothing at {origin.url}", hint="Correct the URL; a prefix is a whole folder.")
    return Source(stack.enter_context(closing(ObjectTree(origin, found, name=name, excluded=excluded))), b"", b"")
