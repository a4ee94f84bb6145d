"""Checks for one folder of a version before it is used."""

from __future__ import annotations

import os
from pathlib import Path

from cowfs.api.stores import OpenStore
from cowfs.base.ids import VersionId
from cowfs.version import history


def require(store: OpenStore, volume: str, version: VersionId, folder: str, cache_dir: Path) -> None:
    """NotFoundError: the path does not exist in the version. InvalidInputError: it is no
    directory."""
    from cowfs.index import Subtree, open_index
    from cowfs.store.packs import PackReader

    section = history.open_version(store.objects, version).index
    source = f"{volume}@{version.hex()[:12]}"
    with open_index(store.objects, PackReader(store.objects), section, cache_dir=cache_dir) as whole:
        Subtree(whole, os.fsencode(folder), source).close()
