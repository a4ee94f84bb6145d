"""An existing bucket, web directory or local directory as a version of a volume.

A link is a row in the index (`index.links`): one listing, and no byte is read. `absorb` reads what
is linked, and stores it.

A copy is an upload (docs/decisions/0036-uploads-without-an-engine.md) whose source is one listing
(`session.object_tree`): bytes go from ranged reads into cutting, hashing and packing, without a
copy on the local disk. What the volume has of the same object is not read. A directory of this
machine is uploaded as it is, with permissions and links.

The URL is one that the user names, so its server may see the user's credentials (`store.trust`);
with a `Storage`, it sees those and no others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from threading import Event
from typing import TYPE_CHECKING

from cowfs import apart
from cowfs.api import arguments, mount_transfer, names, stores, uploading
from cowfs.api.provenance import commit_request
from cowfs.api.ro_volume import ROVolume
from cowfs.api.rw_volume import RWVolume
from cowfs.api.storage.resolving import access
from cowfs.api.storage.storage import Storage
from cowfs.api.transfer_report import Source, TransferReport
from cowfs.errors import InvalidInputError, NotFoundError
from cowfs.format.store_url import StoreUrl
from cowfs.store import trust
from cowfs.store.named import place_named, placed
from cowfs.store.origin import OriginObject
from cowfs.store.origin.open import RepeatingOrigin, is_plain, open_origin
from cowfs.store.places import path_within
from cowfs.values import dataclass
from cowfs.version.commit import Base, ProgressListener

if TYPE_CHECKING:
    from cowfs.index import Link
    from cowfs.session.copying import Attributes
    from cowfs.session.import_log import ImportLog
    from cowfs.version.publish import Publisher

THREADS = 16
"""Objects that are read at once: a request to a bucket takes 10 ms and more."""


@dataclass(frozen=True)
class Imported:
    """The version that the volume stands on now, and what was done."""

    version: ROVolume
    report: TransferReport


def import_from(
    url: str | os.PathLike[str],
    name: str,
    *,
    store: stores.Named = None,
    link: bool = False,
    storage: Storage | None = None,
    delete: bool = False,
    exclude: Iterable[str] = (),
    message: str = "",
    progress: ProgressListener | None = None,
    executor: Executor | None = None,
) -> Imported:
    """`Volume.import_`."""
    from cowfs.session.import_log import ImportLog

    text = text_of(url)
    if executor is not None:
        _require_parts(text, storage, link=link)
    request, hears = commit_request(message), arguments.listener(progress) if progress is not None else None
    volume = RWVolume(store, names.checked(name), "either")
    ignored = uploading.excluding(exclude)
    if (directory := local_path(text)) is not None:
        links = _local_links(directory) if link else _no_links
        made = uploading.upload_local(
            volume, directory, "/", request, hears, delete=delete, excluded=ignored, link=links
        )
        return Imported(*made)
    with ExitStack() as stack:
        origin = stack.enter_context(closing(opened(text, storage)))
        _require_apart(text, origin, stores.canonical_url(store), ignored)
        source = _listed(stack, origin, ignored)  # before the volume is made
        links = _links_to(origin, text) if link else _no_links
        stack.enter_context(uploading.telling_of_empty(volume))
        target = volume.to_upload()
        if link and storage is not None:
            _require_same_bucket(origin.url, target.store.url, storage)
        uploading.require_not_mounted(target, b"")
        done = ImportLog(target.working_copy.imported_path, origin.url)
        prepare = _prepared_by(executor, target.store, text, source, done, ignored) if executor else _nothing_prepared
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
    url: str,
    name: str,
    *,
    store: stores.Named = None,
    link: bool = False,
    delete: bool = False,
    exclude: Iterable[str] = (),
    message: str = "",
    progress: ProgressListener | None = None,
) -> TransferReport:
    """`import_from`; of a volume that is mounted here the files go into the mount, whose commit
    publishes them. Links are none of a mount's files, so they are refused there."""
    volume = RWVolume(store, names.checked(name), "either")
    entry = None if link else volume.mounted_here()
    if entry is None:
        made = import_from(
            url, name, store=store, link=link, delete=delete, exclude=exclude, message=message, progress=progress
        )
        return made.report
    uploading.require_no_message(name, entry, message)
    if (directory := local_path(text_of(url))) is not None:
        return uploading.upload(volume, directory, delete=delete, exclude=exclude, progress=progress)
    excluded = uploading.excluding(exclude)
    with ExitStack() as stack:
        origin = stack.enter_context(closing(opened(url, None)))
        _require_apart(url, origin, entry.store_url, excluded)
        source = _listed(stack, origin, excluded)
        wanted = mount_transfer.Wanted(b"", delete=delete, excluded=excluded)
        hears = arguments.listener(progress) if progress is not None else None
        return mount_transfer.put(entry, source, wanted, volume.resolve().locator or "", hears)


def absorb(
    name: str, *, store: stores.Named = None, message: str = "", progress: ProgressListener | None = None
) -> Imported:
    """`Volume.absorb`."""
    from cowfs.session.absorbing import Absorbing
    from cowfs.session.linked import LinkedBytes
    from cowfs.session.upload_plan import NothingToUpload

    request, hears = commit_request(message), arguments.listener(progress) if progress is not None else None
    volume = RWVolume(store, names.checked(name), "existing")
    target = volume.to_upload()
    uploading.require_not_mounted(target, b"")

    def published() -> tuple[Base, Base, Absorbing]:
        with ExitStack() as stack:
            linked = stack.enter_context(closing(LinkedBytes(target.store.url, target.store.access)))
            line = stack.enter_context(uploading.publishing_to(target))
            before = line.publisher.base
            if before.version_id is None:
                raise NotFoundError(
                    f"volume {name!r} has no version yet", hint="Import something first: `cowfs import`."
                )
            source = Absorbing(line.publisher, linked, hurry=line.hurry, progress=hears)
            try:
                return before, line.publisher.publish(source, request, hears or (lambda _: None)), source
            except NothingToUpload:
                return before, before, source

    before, base, source = apart.run(published)
    assert base.version_id is not None
    version = volume._committed(base.head_number, base.version_id, is_new=base.version_id != before.version_id)
    report = TransferReport(source.files, 0, 0, source.bytes, 0, 0, 0, locator=version.locator, is_new=version.is_new)
    return Imported(version, report)


def _require_parts(text: str, storage: Storage | None, *, link: bool) -> None:
    """InvalidInputError: workers cannot do that."""
    if link or local_path(text) is not None:
        raise InvalidInputError(
            "executor= is for the bytes of objects: of a link none are read, and a directory of this machine is here",
            hint="Leave it out.",
        )
    if storage is not None and storage.has_credentials:
        raise InvalidInputError(
            "storage= has credentials of this process, and workers get none",
            hint="Leave it out, and give each worker credentials in its environment or profile.",
        )


def _prepared_by(
    executor: Executor, store: stores.OpenStore, text: str, source: Source, done: ImportLog, ignored: Excluded
) -> Callable[[Publisher, Event], None]:
    from cowfs.api.parts import Workers
    from cowfs.session.object_parts import ObjectParts
    from cowfs.session.object_tree import ObjectTree

    assert isinstance(source.tree, ObjectTree)
    return ObjectParts(source.tree, done, ignored, partial(Workers(executor).store, store, text)).prepare


def _nothing_prepared(publisher: Publisher, stop: Event) -> None:
    pass


Excluded = Callable[[bytes], bool]
Links = Callable[[bytes, "Attributes"], "Link | None"]


def _no_links(path: bytes, attr: Attributes) -> Link | None:
    return None


def _links_to(origin: RepeatingOrigin, text: str) -> Links:
    """Empty objects become empty files. InvalidInputError: nothing of this place can be linked."""
    from cowfs.index import Link
    from cowfs.session.object_tree import ObjectAttr

    if is_plain(text) or not trust.is_linkable(StoreUrl.parse(origin.url)):
        raise InvalidInputError(
            f"{origin.url} cannot be linked: nobody else finds it there",
            hint="Import it without a link, which copies the files.",
        )

    checked: list[OriginObject] = []

    def link(path: bytes, attr: Attributes) -> Link | None:
        found = attr.object if isinstance(attr, ObjectAttr) else None
        if found is None or not found.size:
            return None
        if not found.state:
            raise _cannot_tell(origin.url, found)
        if not checked and not origin.url.startswith("s3:"):
            # What a listing shows of an object, and what a look at it shows, need not agree.
            if (now := origin.look(found.key)) is None or not found.is_now(now):
                raise _cannot_tell(origin.url, found)
            checked.append(found)
        return Link(origin.url, os.fsencode(found.key), found.size, found.mtime_ns, found.tag)

    return link


def _cannot_tell(url: str, found: OriginObject) -> InvalidInputError:
    return InvalidInputError(
        f"{url} does not tell when {found.key or 'it'} changes, so that it cannot be linked",
        hint="Import it without a link, which copies the files.",
    )


def _local_links(directory: str) -> Links:
    """Of regular files. The user says with it that they may be read through links here."""
    from cowfs.index import Link

    real = os.path.realpath(directory)
    place = StoreUrl.from_path(real if os.path.isdir(real) else os.path.dirname(real))
    trust.name_directory(place)

    def link(path: bytes, attr: Attributes) -> Link | None:
        return Link(str(place), path, attr.size, attr.mtime_ns, str(attr.mtime_ns)) if attr.size else None

    return link


def _require_same_bucket(url: str, store_url: str, storage: Storage) -> None:
    """Links are read by mounts that have no credentials but those of the environment and the
    store's."""
    one, other = StoreUrl.parse(url), StoreUrl.parse(store_url)
    is_same = (one.protocol, one.authority, one.endpoint) == (other.protocol, other.authority, other.endpoint)
    if storage.has_credentials and not is_same:
        raise InvalidInputError(
            "links are read with the credentials of the environment, and those of storage= are none of these",
            hint="Set them in the environment (AWS_ACCESS_KEY_ID, …), or import without a link, which copies the files.",
        )


def require_without(place: StoreUrl, store: StoreUrl, excluded: Excluded, elsewhere: str) -> None:
    """InvalidInputError: the place has the store in it, and that is not excluded. elsewhere: what
    else there is to do, for the hint."""
    from cowfs.session.upload_plan import is_left_out

    below = path_within(store, place)
    if below is None or (below and is_left_out(excluded, os.fsencode(below) + b"/")):
        return
    raise InvalidInputError(
        f"{place} has the store in it, {store}, which is for cowfs alone",
        hint=f"{elsewhere}, or leave the store out: --exclude '/{below}/' (exclude=)." if below else f"{elsewhere}.",
    )


def _require_apart(text: str, origin: RepeatingOrigin, store_url: str, excluded: Excluded) -> None:
    if not is_plain(text):
        place, store = StoreUrl.parse(origin.url), StoreUrl.parse(store_url)
        require_without(place, store, excluded, "Import the folders beside it one by one")


def text_of(url: object) -> str:
    if not isinstance(url, str | os.PathLike) or not (text := os.fsdecode(url)):
        raise InvalidInputError(
            f"what is imported is named by a URL or a path, not {url!r}", hint="For example s3://bucket/prefix."
        )
    return text


def local_path(text: str) -> str | None:
    """The path, of what is on this machine."""
    if is_plain(text) or (place := placed(text)).protocol != "file":
        return None
    return os.fsdecode(os.fsencode("/" + place.path))


def opened(text: str, storage: Storage | None) -> RepeatingOrigin:
    """With the credentials of `storage`, else those of the environment."""
    if is_plain(text):
        if storage is not None:
            raise InvalidInputError("storage= is for stores alone", hint="Leave it out: fsspec finds what it needs.")
        return open_origin(text)
    if storage is None:
        trust.name(place_named(text))
        return open_origin(text)
    slash = "/" if text.endswith("/") else ""
    stores.name(storage)
    return open_origin(f"{_within(placed(text), storage)}{slash}", access=access(storage))


def _within(place: StoreUrl, storage: Storage) -> StoreUrl:
    """The place as `storage` asks for it. InvalidInputError: its credentials are for another
    one."""
    own = StoreUrl.parse(storage.url)
    if place.endpoint is None:
        place = replace(place, endpoint=own.endpoint, region=place.region or own.region)
    if (place.protocol, place.authority, place.endpoint) != (own.protocol, own.authority, own.endpoint):
        raise InvalidInputError(
            f"storage= is for {storage.url}, not for {place}", hint="Give the Storage of the bucket that is imported."
        )
    return place


def _listed(stack: ExitStack, origin: RepeatingOrigin, excluded: Callable[[bytes], bool]) -> Source:
    """All below the URL, or the one object that it names."""
    from cowfs.session.object_tree import ObjectTree

    found, name = [*origin.list()], ""
    if not found and (single := origin.look("")) is not None:
        name = origin.url.rstrip("/").rpartition("/")[2]
        found = [single]
    if not found:
        raise NotFoundError(f"there is nothing at {origin.url}", hint="Correct the URL; a prefix is a whole folder.")
    return Source(stack.enter_context(closing(ObjectTree(origin, found, name=name, excluded=excluded))), b"", b"")
