"""Warming, as users ask for it: what a version has at a path, into this machine's cache."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs.api import arguments, downloading, sources, stores
from cowfs.api.path_errors import errors_of_ours
from cowfs.api.ro_volume import ROVolume
from cowfs.control import MountOptions, SessionSpec
from cowfs.format import profile
from cowfs.version.commit import ProgressListener

if TYPE_CHECKING:
    from cowfs.api.files import FilePath


@dataclass(frozen=True)
class WarmReport:
    """What is in the cache now.

    files, bytes: of what was asked for, by the sizes of the files; with a profile, what it has of
    them. fetched_bytes: of chunks that were fetched; found_bytes: of those that were there. Chunks
    count decompressed, and what several files share counts once or a few times. is_complete: all of
    it is there; False when the cache, or its disk, has no room for more. locator: of the version.
    """

    files: int
    bytes: int
    fetched_bytes: int
    found_bytes: int
    is_complete: bool
    locator: str


def warm(
    version: ROVolume,
    path: FilePath,
    cache_dir: str | os.PathLike[str] | None,
    cache_size: int | str | None,
    replay: str | os.PathLike[str] | None,
    progress: ProgressListener | None,
) -> WarmReport:
    """`ROVolume.warm`."""
    from cowfs.session import profile_files
    from cowfs.session.warming import warming

    hears = arguments.listener(progress) if progress is not None else None
    options = MountOptions(cache_dir=cache_dir, cache_size=cache_size, replay=replay).resolved()
    ranges = profile_files.load(Path(options.replay)) if options.replay is not None else None
    store = version.resolve().to_read()
    spec = SessionSpec(
        store_url=store.url,
        volume=version.name,
        mode="ro",
        version=version.id,
        folder=version.folder,
        options=options,
    )
    given = b"/".join(part for part in os.fsencode(path).split(b"/") if part)
    with (
        errors_of_ours(version.locator, "vol.files.ls() and `cowfs ls` show what there is."),
        warming(spec, access=store.access) as warmer,
    ):
        wanted = downloading.followed(warmer.tree, given)
        if ranges is None:
            done = warmer.warm(wanted, hears)
        else:
            whole = b"/".join(filter(None, (os.fsencode(version.folder), wanted)))
            done = warmer.replay(profile.below(ranges, whole), hears)
    return WarmReport(**asdict(done), locator=version.locator)


def warm_from(
    source: str,
    path: FilePath = "/",
    store: stores.Named = None,
    cache_dir: str | os.PathLike[str] | None = None,
    cache_size: int | str | None = None,
    replay: str | os.PathLike[str] | None = None,
    progress: ProgressListener | None = None,
) -> WarmReport:
    """`Volume.warm` of SOURCE, SOURCE:PATH or LOCATOR/PATH."""
    place = sources.place(source)
    found = sources.find(place.source, store)
    version = ROVolume(found.locator(), storage=found.store.storage)
    below = place.path + b"/" + os.fsencode(path)
    return warm(version, below, cache_dir, cache_size, replay, progress)
