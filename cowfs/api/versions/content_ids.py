"""The content id of a version or of one folder of it, computed once on a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cowfs.base import config, interruptible

if TYPE_CHECKING:
    from cowfs.api.versions.located_version import LocatedVersion


def find_content_id(located: LocatedVersion) -> str:
    """`ROVolume.content_id`. No request if the id is in this machine's cache."""
    from cowfs.version.content_id_cache import ContentIdCache

    cache = ContentIdCache(config.cache_dir())
    found = cache.find(located.version, located.folder)
    if found is None:
        found = interruptible.run(lambda: _compute(located.resolve()))
        cache.store(located.version, located.folder, found)
    return found


def _compute(located: LocatedVersion) -> str:
    from cowfs.index import Subtree, open_index
    from cowfs.store.packs import PackReader
    from cowfs.version.content_id import content_id

    objects, section = located.open_store().objects, located.read_manifest().index
    packs = PackReader(objects)
    with open_index(objects, packs, section, cache_dir=config.cache_dir()) as whole:
        if located.folder:
            source = f"{located.name}@{located.id[:12]}"
            with whole.blocks.expect_scattered_reads(), Subtree(whole, located.folder, source) as folder:
                return content_id(folder, packs.sealing)
        whole.blocks.prefetch(range(whole.blocks.count))
        return content_id(whole, packs.sealing)
