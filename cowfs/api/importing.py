"""An existing bucket, web directory or local directory as a version of a volume.

A copy is an upload (docs/decisions/0036-uploads-without-an-engine.md) whose source is one listing
(`session.object_tree`): bytes go from ranged reads into cutting, hashing and packing, without a copy
on the local disk. What the volume has of the same object is not read. A directory of this machine is
uploaded as it is, with permissions and links.

The URL is one that the user names, so its server may see the user's credentials (`store.trust`);
with a `Storage`, it sees those and no others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace

from cowfs.api import arguments, names, stores, uploading
from cowfs.api.provenance import commit_request
from cowfs.api.ro_volume import ROVolume
from cowfs.api.rw_volume import RWVolume
from cowfs.api.storage.resolving import access
from cowfs.api.storage.storage import Storage
from cowfs.api.transfer_report import TransferReport
from cowfs.api.uploading import Source
from cowfs.errors import InvalidInputError, NotFoundError
from cowfs.format.store_url import StoreUrl
from cowfs.store import trust
from cowfs.store.named import place_named, placed
from cowfs.store.origin.open import RepeatingOrigin, is_plain, open_origin
from cowfs.version.commit import ProgressListener

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
    storage: Storage | None = None,
    delete: bool = False,
    exclude: Iterable[str] = (),
    message: str = "",
    progress: ProgressListener | None = None,
) -> Imported:
    """`Volume.import_`."""
    text = text_of(url)
    request, hears = commit_request(message), arguments.listener(progress) if progress is not None else None
    volume = RWVolume(store, names.checked(name), "either")
    if (directory := local_path(text)) is not None:
        made = uploading.upload_local(volume, directory, "/", request, hears, delete=delete, exclude=exclude)
        return Imported(*made)
    from cowfs.session.import_log import ImportLog

    ignored = uploading.excluding(exclude)
    with ExitStack() as stack:
        origin = stack.enter_context(closing(opened(text, storage)))
        source = _listed(stack, origin, ignored)  # before the volume is made
        target = volume.to_upload()
        uploading.require_not_mounted(target, b"")
        done = ImportLog(target.working_copy.imported_path, origin.url)
        made = uploading.publish_to(
            volume, target, source, b"", request, hears, delete=delete, excluded=ignored, threads=THREADS, done=done
        )
        done.delete()
    return Imported(*made)


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
    """The place as `storage` asks for it. InvalidInputError: its credentials are for another one."""
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
