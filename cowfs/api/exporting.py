"""The files of a version as plain objects of a bucket, for programs that know no cowfs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING

from cowfs.api import arguments, downloading, importing, sources, stores, uploading
from cowfs.api.looking import of_volume
from cowfs.api.path_errors import errors_of_ours
from cowfs.api.ro_volume import ROVolume
from cowfs.api.storage.storage import Storage
from cowfs.api.transfer_report import TransferReport
from cowfs.errors import InvalidInputError
from cowfs.format import keys
from cowfs.format.store_url import StoreUrl
from cowfs.store.origin.open import is_plain
from cowfs.store.places import path_within
from cowfs.version.commit import ProgressListener

if TYPE_CHECKING:
    from cowfs.api.files import FilePath


def export(
    version: ROVolume,
    url: str | os.PathLike[str],
    src: FilePath = "/",
    *,
    storage: Storage | None = None,
    delete: bool = False,
    exclude: Iterable[str] = (),
    progress: ProgressListener | None = None,
) -> TransferReport:
    """`ROFiles.export`."""
    from cowfs.session.exporting import Export

    text = importing.text_of(url)
    hears = arguments.listener(progress) if progress is not None else None
    ignored = uploading.excluding(exclude)
    if importing.local_path(text) is not None:
        raise InvalidInputError(
            f"{text} is a directory of this machine",
            hint="`cowfs download` and files.download() copy a version there.",
        )
    with downloading.reading(version) as tree, closing(importing.opened(text, storage)) as target:
        given = b"/".join(part for part in os.fsencode(src).split(b"/") if part)
        with errors_of_ours(version.locator, "vol.files.ls() and `cowfs ls` show what there is."):
            _require_apart(target.url, version.to_read().url, text, ignored)
            at = downloading.followed(tree, given)
            done = Export(tree, at, target, excluded=ignored, progress=hears).run(delete=delete)
    return TransferReport(**asdict(done), locator=version.locator, is_new=False)


def _require_apart(url: str, store_url: str, text: str, excluded: Callable[[bytes], bool]) -> None:
    """InvalidInputError: the target is the store that is read, lies among its objects, or has it in
    it. A folder beside them is a bucket's own, also where the whole bucket is the store."""
    if is_plain(text):
        return
    target, store = StoreUrl.parse(url), StoreUrl.parse(store_url)
    within = path_within(target, store)
    if within is not None and (not within or f"{within}/".startswith((f"{keys.STORE}/", *keys.PREFIXES))):
        raise InvalidInputError(
            f"{url} lies in the store, {store}, which is for cowfs alone", hint="Choose another target."
        )
    importing.require_without(target, store, excluded, "Choose another target")


def export_from(
    source: str,
    url: str,
    *,
    store: stores.Named = None,
    delete: bool = False,
    exclude: Iterable[str] = (),
    progress: ProgressListener | None = None,
) -> TransferReport:
    """`export` of SOURCE, SOURCE:PATH or LOCATOR/PATH."""
    place = sources.place(source)
    found = sources.find(place.source, store)
    version = ROVolume(found.locator(), storage=found.store.storage)
    with errors_of_ours(source, of_volume(place)):
        return export(version, url, place.path, delete=delete, exclude=exclude, progress=progress)
