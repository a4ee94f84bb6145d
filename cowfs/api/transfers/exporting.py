"""Exports the files of a version as plain objects of a bucket, for programs that do not use
cowfs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

from cowfs.api import arguments
from cowfs.api.storage.definition import Storage
from cowfs.api.transfers import downloading, origins
from cowfs.api.transfers.ignore_patterns import excluding
from cowfs.api.transfers.path_errors import errors_of_ours
from cowfs.api.transfers.transfer_report import TransferReport
from cowfs.base.errors import InvalidInputError
from cowfs.base.hints import Command
from cowfs.format import keys
from cowfs.format.store_url import StoreUrl
from cowfs.store.nesting import path_within
from cowfs.store.origin.open_origin import is_plain
from cowfs.version.commit import ProgressListener

if TYPE_CHECKING:
    from cowfs.api.files import FilePath
    from cowfs.api.versions.located_version import LocatedVersion


def export(
    version: LocatedVersion,
    url: str | os.PathLike[str],
    src: FilePath = "/",
    *,
    storage: Storage | None = None,
    delete: bool = False,
    exclude: Iterable[str] = (),
    progress: ProgressListener | None = None,
) -> TransferReport:
    """`ROFiles.export`."""
    from cowfs.transfer.exporting import Export

    text = origins.text_of(url)
    hears = arguments.listener(progress) if progress is not None else None
    ignored = excluding(exclude)
    if origins.local_path(text) is not None:
        raise InvalidInputError(
            f"{text} is a directory of this machine",
            hint=f"{Command('download')} and files.download() copy a version there.",
        )
    store_url = version.open_store().url
    with downloading.reading(version) as tree, origins.enter_place(text, storage, store_url) as target:
        given = b"/".join(part for part in os.fsencode(src).split(b"/") if part)
        with errors_of_ours(version.locator, f"vol.files.ls() and {Command('ls')} show what there is."):
            _require_apart(target.url, store_url, text, ignored)
            at = downloading.followed(tree, given)
            done = Export(tree, at, target, excluded=ignored, progress=hears).run(delete=delete)
    return TransferReport(**asdict(done), locator=version.locator, is_new=False)


def _require_apart(url: str, store_url: str, text: str, excluded: Callable[[bytes], bool]) -> None:
    """InvalidInputError: the target is the store that is read, lies among its objects, or contains
    it. A folder beside these objects belongs to the bucket, even if the whole bucket is the
    store."""
    if is_plain(text):
        return
    target, store = StoreUrl.parse(url), StoreUrl.parse(store_url)
    within = path_within(target, store)
    if within is not None and (not within or f"{within}/".startswith((f"{keys.STORE}/", *keys.PREFIXES))):
        raise InvalidInputError(
            f"{url} lies in the store, {store}, which is for cowfs alone", hint="Choose another target."
        )
    origins.require_without(target, store, excluded, "Choose another target")
