"""Explains why an object of a store is kept, or that nothing keeps it.

For a version: which heads, tags, pins and mounts name it. For a pack: which versions need a blob of
it, stored there or moved there, and what keeps each of those. Every kept version is read, as for a
collection; for a version only the roots are read. Nothing is written: the age of a deletion is
measured by this machine's clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from cowfs.base import clock
from cowfs.base.errors import InvalidInputError, NotFoundError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import PackId, VersionId
from cowfs.format import keys
from cowfs.maintain.collect.marking import Marker
from cowfs.maintain.collect.planning import GRACE_S, Listing
from cowfs.maintain.collect.roots import InUse, RootReader, Roots, drop_gone
from cowfs.store import ObjectStore
from cowfs.store.packs import places_now, read_moved_records


@dataclass(frozen=True)
class Reason:
    """A version that needs the object, and what keeps it. None: a pin names the object itself."""

    version: VersionId | None
    protectors: tuple[str, ...]


@dataclass(frozen=True)
class Why:
    """The reasons for one object, by its key. No reasons: it is garbage."""

    key: str
    size: int | None
    reasons: tuple[Reason, ...]


def why(store: ObjectStore, cache_dir: Path, text: str, *, grace_s: float = GRACE_S, in_use: InUse = dict) -> Why:
    """text: a key, or the id of a version or pack. in_use: as for `RootReader`. NotFoundError:
    there is no such object."""
    found = parse(text)
    roots = RootReader(store, in_use=in_use).read(now_ns=clock.now_ns(), grace_s=grace_s)
    if isinstance(found, VersionId):
        key = keys.version(found)
        reasons = [Reason(found, tuple(roots.versions[found]))] if found in roots.versions else []
    else:
        key = keys.pack(found)
        reasons = _of_pack(store, cache_dir, found, roots)
    size = store.size(key)
    if size is None and not reasons:
        raise NotFoundError(f"{store.url} has no object {key}", hint="Give the id of a version or pack, or a key.")
    return Why(key, size, tuple(reasons))


def parse(text: str) -> VersionId | PackId:
    """InvalidInputError: neither a key nor an id of a version or pack."""
    found = keys.parse_version(text) or keys.parse_pack(text) or keys.parse_moved(text)
    digits = text.lower()
    if found is None and not set(digits) - set("0123456789abcdef"):
        if len(digits) == 2 * VersionId.length:
            found = VersionId.from_hex(digits)
        elif len(digits) == 2 * PackId.length:
            found = PackId.from_hex(digits)
    if found is None:
        raise InvalidInputError(
            f"{text!r} names no version and no pack",
            hint="Give NAME@TAG or NAME@VERSION, a whole id (64 digits of a version, 32 of a pack), or a key that begins "
            "with versions/ or packs/.",
        )
    return found


def _of_pack(store: ObjectStore, cache_dir: Path, pack: PackId, roots: Roots) -> list[Reason]:
    wanted = {pack, *_find_moved_into(store, pack, Listing.of(store))}
    needing: list[VersionId] = []

    def listen(version: VersionId, named: Collection[PackId]) -> None:
        if not wanted.isdisjoint(named):
            needing.append(version)

    drop_gone(store, roots)
    Marker(store, cache_dir, listen=listen).mark(roots.versions)
    reasons = [Reason(version, tuple(roots.versions[version])) for version in needing]
    if pack in roots.packs:
        reasons.append(Reason(None, tuple(roots.packs[pack])))
    return reasons


def _find_moved_into(store: ObjectStore, pack: PackId, listing: Listing) -> Iterator[PackId]:
    for old in listing.moved:
        places = places_now(read_moved_records(store, old), listing.packs.__contains__).values()
        if any(blob.new_pack == pack for blob in places):
            yield old
