"""Warms the cache: fetches a version's contents at a path into this machine's cache."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cowfs.api import arguments
from cowfs.api.transfers import downloading
from cowfs.api.transfers.path_errors import errors_of_ours
from cowfs.base.hints import Command
from cowfs.base.short_repr import short_repr
from cowfs.control import MountOptions, SessionSpec
from cowfs.format import profile
from cowfs.version.commit import ProgressListener

if TYPE_CHECKING:
    from cowfs.api.files import FilePath
    from cowfs.api.versions.located_version import LocatedVersion


@short_repr
@dataclass(frozen=True)
class WarmReport:
    """The state of the cache after warming.

    files, bytes: of the requested path, by the sizes of the files; with a profile, only of its
    part. fetched_bytes: of chunks that were fetched; found_bytes: of chunks that were cached
    already. Chunks count decompressed, and a chunk shared by several files counts once or a few
    times. is_complete: all of it is cached; False if the cache, or its disk, has no room for more.
    locator: of the version.
    """

    files: int
    bytes: int
    fetched_bytes: int
    found_bytes: int
    is_complete: bool
    locator: str


def warm(
    version: LocatedVersion,
    path: FilePath,
    cache_dir: str | os.PathLike[str] | None,
    cache_size: int | str | None,
    replay: str | os.PathLike[str] | None,
    progress: ProgressListener | None,
) -> WarmReport:
    """`ROVolume.warm`."""
    from cowfs.session.profiles import profile_files
    from cowfs.session.warming import warming

    hears = arguments.listener(progress) if progress is not None else None
    options = MountOptions(cache_dir=cache_dir, cache_size=cache_size, replay=replay).resolved()
    ranges = profile_files.load(Path(options.replay)) if options.replay is not None else None
    store = version.open_store()
    spec = SessionSpec(
        store_url=store.url,
        volume=version.name,
        mode="ro",
        version=version.id,
        folder=os.fsdecode(version.folder),
        options=options,
    )
    given = b"/".join(part for part in os.fsencode(path).split(b"/") if part)
    source = f"{version.name}@{version.id[:12]}"
    with (
        errors_of_ours(version.locator, f"{Command('ls', source)} shows what there is.", within=source),
        warming(spec, access=store.access) as warmer,
    ):
        wanted = downloading.followed(warmer.tree, given)
        if ranges is None:
            done = warmer.warm(wanted, hears)
        else:
            whole = b"/".join(filter(None, (version.folder, wanted)))
            done = warmer.replay(profile.below(ranges, whole), hears)
    return WarmReport(**asdict(done), locator=version.locator)
