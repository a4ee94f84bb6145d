"""Every object key of a store, built and parsed; no other module of cowfs spells a key.

    cowfs.json                              store record                     put if absent, once
    keys/<n>                                keys of an encrypted store       create-only
    packs/<2 hex>/<pack id>                 data and index packs             put once; the id is random, never used again
    packs/<2 hex>/<pack id>.moved/<n>       moved records                    create-only
    volumes/<name>/meta/<n>                 the volume's record              create-only
    volumes/<name>/head/<n>                 its line of versions             create-only, n without a gap
    volumes/<name>/tags/<tag>/<n>           its tags                         create-only
    volumes/<name>/pruned/<n>               which heads are pruned           create-only
    volumes/<name>/lease/<epoch>            the writer                       create-only
    volumes/<name>/heartbeat/<epoch>        sign of life of the writer       replaced by the lease's holder
    versions/<2 hex>/<version id>           manifests                        named by content
    pins/<pin id>/<n>                       protected versions and packs     create-only
    gc/<generation>/begin                   the collector                    create-only
    gc/<generation>/condemned               what a collection will delete    create-only
    gc/<generation>/shards/<8 hex>          the rest of a long list          create-only, before `condemnation`
    gc/<generation>/seen/<id>/<8 hex>       what a collection found there    create-only, before `done`
    gc/<generation>/done                    that a collection has ended      put by its collectors
    purged/<n>                              chunks that were purged          create-only
    pins/shown                              that pins/ can be seen           create-only, once
    collected                               that a collection has ended      create-only, once

Numbers <n>, <epoch>, <generation> start at 1 and are written as 16 hex digits of 2⁶⁴-1-n: the
newest sorts first. Key components are ASCII; the two hex digits are the first two of the id, and
spread keys over a store's request limits. User file names never appear in a key. Heartbeats have
their own prefix so that a one-key list of `lease/` returns a lease, and so that no key is another
key's directory (`file:` stores). `parse_*` functions return None for other keys: a store may hold
other objects.
"""

from __future__ import annotations

import re

from cowfs.base.errors import InvalidInputError
from cowfs.base.ids import PackId, VersionId, WriteId

STORE = "cowfs.json"
COLLECTED = "collected"
"""A collection has ended here: `gc/` and `pins/` are not empty."""
PINS_SHOWN = "pins/shown"
"""Stays there once a collection has ended: it proves that a list of pins is one of `pins/`."""
KEYS = "keys/"
VOLUMES = "volumes/"
PINS = "pins/"
GC = "gc/"
PACKS = "packs/"
VERSIONS = "versions/"
PURGED = "purged/"
PREFIXES = (KEYS, VOLUMES, PINS, GC, PACKS, VERSIONS, PURGED)
"""Prefixes of all keys but STORE and COLLECTED."""

_LAST = (1 << 64) - 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_NUMBER = re.compile(r"(?:.*/)?([0-9a-f]{16})")
_VOLUME = re.compile(rf"volumes/({_NAME.pattern})/.+")
_TAG = re.compile(rf"volumes/{_NAME.pattern}/tags/({_NAME.pattern})/[0-9a-f]{{16}}")
_VERSION = re.compile(r"versions/([0-9a-f]{2})/(\1[0-9a-f]{62})")
_PACK = re.compile(r"packs/([0-9a-f]{2})/(\1[0-9a-f]{30})")
_MOVED = re.compile(r"packs/([0-9a-f]{2})/(\1[0-9a-f]{30})\.moved/[0-9a-f]{16}")
_OLD_PIN = re.compile(r"pins/([0-9a-f]{32})")
_PIN = re.compile(r"pins/([0-9a-f]{32})/([0-9a-f]{16})")
_GENERATION = re.compile(r"gc/([0-9a-f]{16})/.+")


def is_ours(key: str) -> bool:
    """Whether it is a key of cowfs, or could be one or the prefix of one."""
    return key == STORE or f"{key}/".startswith(PREFIXES)


def check_volume_name(name: str) -> str:
    """Returns the name; InvalidInputError unless 1-128 of [A-Za-z0-9._-], starting with a letter or
    digit."""
    return _check_name(name, "volume")


def check_tag_name(name: str) -> str:
    """As `check_volume_name`, and not 64 hex digits (that would be a version id)."""
    if re.fullmatch(r"[0-9a-fA-F]{64}", name):
        raise InvalidInputError("a tag cannot look like a version id", hint="Choose a name that is not 64 hex digits.")
    return _check_name(name, "tag")


def _check_name(name: str, title: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            f"{name!r} is not a {title} name",
            hint=f"A {title} name is 1 to 128 of A-Z a-z 0-9 . _ - and starts with a letter or digit.",
        )
    return name


def count_down(number: int) -> str:
    """16 hex digits of 2**64 - 1 - number: the newest key sorts first."""
    if not 0 <= number <= _LAST:
        raise InvalidInputError(f"{number} is not a number of 64 bits")
    return f"{_LAST - number:016x}"


def parse_number(key: str) -> int | None:
    """The number in the last component of a count-down key; None if it is not one."""
    found = _NUMBER.fullmatch(key)
    return _LAST - int(found[1], 16) if found else None


def key_slots(number: int) -> str:
    """keys/<n>."""
    return KEYS + count_down(number)


def purge_record(number: int) -> str:
    """purged/<n>."""
    return PURGED + count_down(number)


def volume(name: str) -> str:
    """Prefix of all keys of one volume, ending in '/', like all `*_prefix`."""
    return f"{VOLUMES}{check_volume_name(name)}/"


def meta_prefix(name: str) -> str:
    return f"{volume(name)}meta/"


def meta(name: str, number: int) -> str:
    return meta_prefix(name) + count_down(number)


def head_prefix(name: str) -> str:
    return f"{volume(name)}head/"


def head(name: str, number: int) -> str:
    return head_prefix(name) + count_down(number)


def tags_prefix(name: str) -> str:
    return f"{volume(name)}tags/"


def tag_prefix(name: str, tag_name: str) -> str:
    return f"{tags_prefix(name)}{check_tag_name(tag_name)}/"


def tag(name: str, tag_name: str, number: int) -> str:
    return tag_prefix(name, tag_name) + count_down(number)


def pruning_prefix(name: str) -> str:
    return f"{volume(name)}pruned/"


def pruning_record(name: str, number: int) -> str:
    return pruning_prefix(name) + count_down(number)


def lease_prefix(name: str) -> str:
    return f"{volume(name)}lease/"


def lease(name: str, epoch: int) -> str:
    return lease_prefix(name) + count_down(epoch)


def heartbeat(name: str, epoch: int) -> str:
    """volumes/<name>/heartbeat/<epoch>: the one replaceable object of a volume."""
    return f"{volume(name)}heartbeat/{count_down(epoch)}"


def version(id: VersionId) -> str:
    return f"{VERSIONS}{id.hex()[:2]}/{id.hex()}"


def pack(id: PackId) -> str:
    return f"{PACKS}{id.hex()[:2]}/{id.hex()}"


def move_prefix(id: PackId) -> str:
    return f"{pack(id)}.moved/"


def move_record(id: PackId, number: int) -> str:
    return move_prefix(id) + count_down(number)


def pin_prefix(id: WriteId) -> str:
    """pins/<32 hex>/: the write id of the pin's first record names it."""
    return f"{PINS}{id.hex()}/"


def pin(id: WriteId, number: int) -> str:
    return pin_prefix(id) + count_down(number)


def collection(generation: int, name: str) -> str:
    """gc/<generation>/<name>: `begin`, `condemnation` or `done` of one collection."""
    return f"{GC}{count_down(generation)}/{name}"


def condemnation(generation: int) -> str:
    return collection(generation, "condemned")


def condemnation_shard(generation: int, shard: int) -> str:
    """gc/<generation>/shards/<8 hex>, counted from 0."""
    return collection(generation, f"shards/{shard:08x}")


def sight_shard(generation: int, of: WriteId, shard: int) -> str:
    """gc/<generation>/seen/<32 hex>/<8 hex>, counted from 0. of: the write id of the `done` that
    names them."""
    return collection(generation, f"seen/{of.hex()}/{shard:08x}")


def parse_volume(key: str) -> str | None:
    """The volume a key under volumes/ belongs to."""
    found = _VOLUME.fullmatch(key)
    return found[1] if found else None


def parse_tag(key: str) -> str | None:
    """The tag a key under volumes/<name>/tags/ belongs to."""
    found = _TAG.fullmatch(key)
    return found[1] if found else None


def parse_version(key: str) -> VersionId | None:
    found = _VERSION.fullmatch(key)
    return VersionId.from_hex(found[2]) if found else None


def parse_pack(key: str) -> PackId | None:
    """The pack whose own object has this key (not a moved record)."""
    found = _PACK.fullmatch(key)
    return PackId.from_hex(found[2]) if found else None


def parse_moved(key: str) -> PackId | None:
    """The pack of a moved record."""
    found = _MOVED.fullmatch(key)
    return PackId.from_hex(found[2]) if found else None


def parse_old_pin(key: str) -> WriteId | None:
    """The pin with one object for all its records, as earlier versions of cowfs made them."""
    found = _OLD_PIN.fullmatch(key)
    return WriteId.from_hex(found[1]) if found else None


def parse_pin(key: str) -> tuple[WriteId, int] | None:
    """The pin of a key under pins/, and the number of its record."""
    found = _PIN.fullmatch(key)
    return (WriteId.from_hex(found[1]), _LAST - int(found[2], 16)) if found else None


def parse_generation(key: str) -> int | None:
    """The collection a key under gc/ belongs to."""
    found = _GENERATION.fullmatch(key)
    return _LAST - int(found[1], 16) if found else None
