"""Transfers between places named by SOURCE, SOURCE:PATH, LOCATOR/PATH or NAME:PATH, as on a command
line. This module finds the version or volume; the module of the transfer does the work.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from cowfs.api import names, sources, stores
from cowfs.api.access.volume_handle import VolumeHandle
from cowfs.api.files import FilePath
from cowfs.api.mounts import mount_paths
from cowfs.api.sources import Place
from cowfs.api.transfers import downloading, exporting, uploading, warming
from cowfs.api.transfers.downloading import Overwrite
from cowfs.api.transfers.path_errors import NOT_HERE, NothingThere, errors_of_ours
from cowfs.api.transfers.transfer_report import TransferReport
from cowfs.api.transfers.warming import WarmReport
from cowfs.base.errors import CowfsError, InvalidInputError, NotFoundError, ReadOnlyError
from cowfs.base.hints import Command
from cowfs.format.locator import is_locator
from cowfs.machine import registry
from cowfs.version.commit import CommitRequest, ProgressListener


def download_from(
    source: str,
    dst: str | os.PathLike[str] | None,
    *,
    store: stores.Named = None,
    overwrite: Overwrite = "error",
    progress: ProgressListener | None = None,
) -> TransferReport:
    """`download` of SOURCE, SOURCE:PATH or LOCATOR/PATH."""
    place = sources.place(source)
    version = sources.find_version(place.source, store)
    return downloading.download(version, place.path, dst, overwrite=overwrite, progress=progress)


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
    version = sources.find_version(place.source, store)
    with errors_of_ours(source, sources.listing_hint(place)):
        return exporting.export(version, url, place.path, delete=delete, exclude=exclude, progress=progress)


def warm_from(
    source: str,
    path: FilePath = "/",
    store: stores.Named = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int | str | None = None,
    replay: str | os.PathLike[str] | None = None,
    progress: ProgressListener | None = None,
) -> WarmReport:
    """`Store.warm` of SOURCE, SOURCE:PATH or LOCATOR/PATH."""
    place = sources.place(source)
    version = sources.find_version(place.source, store)
    below = place.path + b"/" + os.fsencode(path)
    return warming.warm(version, below, cache_dir, cache_size, replay, progress)


def upload_to(
    src: str | os.PathLike[str],
    target: str,
    request: CommitRequest,
    *,
    store: stores.Named = None,
    delete: bool = False,
    exclude: Iterable[str] = (),
    checksum: bool = False,
    progress: ProgressListener | None = None,
) -> TransferReport:
    """`upload` to NAME or NAME:PATH; the volume is created if it is missing. "": the directory's
    name."""
    src = os.path.expanduser(src)
    if not os.path.isdir(src):
        raise _no_directory(src)
    name = os.path.basename(os.path.realpath(src))  # fails where the working directory is gone
    with errors_of_ours(os.fspath(src), NOT_HERE):  # before a volume is made
        os.scandir(src).close()
    place = sources.place(target) if target else Place(name, b"", True)
    if "@" in place.source or is_locator(place.source):
        raise ReadOnlyError(
            f"{place.source} is a version, and a version never changes",
            hint=f"Upload to a volume, NAME or NAME:PATH; a fork of the version is one ({Command('fork')}, fork()).",
        )
    volume = VolumeHandle(store, names.checked(place.source), "either")
    dst = os.fsdecode(place.path)
    return uploading.upload(
        volume, src, dst, request, delete=delete, exclude=exclude, checksum=checksum, progress=progress
    )


def _no_directory(src: str | os.PathLike[str]) -> CowfsError:
    mount_paths.require_alive(registry.canonical(os.fsdecode(os.fspath(src))))
    with errors_of_ours(os.fspath(src), NOT_HERE), NothingThere():
        os.stat(src)
    if os.path.lexists(src):
        return InvalidInputError(
            f"{os.fspath(src)} is no directory", hint=f"{Command('cp', 'FILE', 'NAME:PATH')} copies a file."
        )
    return NotFoundError(f"{os.fspath(src)} does not exist", hint="Give a directory of this machine.")
