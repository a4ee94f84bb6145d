"""The kind of entry allowed at each key (an object or a directory), and the largest allowed object.
Readers refuse a larger one before they read it, writers before they put it.

A store may be hostile: without a limit one sparse file of 30 GB in the place of a record takes the
memory of every reader.

    key                                                             largest
    cowfs.json, heads, tags, leases, heartbeats, gc/…/begin         1 MiB    a few fields each
    other records, manifests                                        64 MiB   lists, texts of users: `canonical.MAX_BYTES`
    packs, and keys that are not of cowfs                           4 GiB    `pack.MAX_PACK_BYTES`

In an encrypted store a record also has a seal, and its size is rounded up: a reader allows a
sixteenth and `_SEAL_BYTES` for that. Packs are read by ranges, whose lengths are checked against
the records that name them.
"""

from __future__ import annotations

import re

from cowfs.base.errors import CorruptError, InvalidInputError
from cowfs.format import canonical, keys
from cowfs.format.pack import MAX_PACK_BYTES

SMALL_BYTES = 1 << 20
_SEAL_BYTES = 8192
_HINT = (
    "cowfs writes no such object there. Restore it from a backup, or move it out of the store if cowfs did not make it."
)
_N = "[0-9a-f]{16}"
_NAME = "[A-Za-z0-9][A-Za-z0-9._-]*"
"""Names of volumes and tags; `.DS_Store` and the like are not."""
_SMALL = re.compile(
    rf"cowfs\.json|collected|volumes/[^/]+/(?:(?:head|lease|heartbeat)/{_N}|tags/[^/]+/{_N})|gc/{_N}/begin|pins/shown"
)
_LISTS = re.compile(
    rf"(?:keys|purged)/{_N}|volumes/[^/]+/(?:meta|pruned)/{_N}|versions/[0-9a-f]{{2}}/[0-9a-f]{{64}}|packs/[0-9a-f]{{2}}/[0-9a-f]{{32}}\.moved/{_N}"
    rf"|pins/[0-9a-f]{{32}}/{_N}|gc/{_N}/(?:condemned|spared|done|(?:shards|seen/[0-9a-f]{{32}})/[0-9a-f]{{8}})"
)
_DIRECTORIES = re.compile(
    rf"keys|purged|versions(?:/[0-9a-f]{{2}})?|packs(?:/[0-9a-f]{{2}}(?:/[0-9a-f]{{32}}\.moved)?)?|pins|gc(?:/{_N}(?:/shards|/seen(?:/[0-9a-f]{{32}})?)?)?"
    rf"|volumes(?:/{_NAME}(?:/(?:meta|head|pruned|lease|heartbeat|tags(?:/{_NAME})?))?)?"
)


def is_object(key: str) -> bool:
    """Whether this is the key of an object, so that no directory may be there. Not the key of an
    old pin: pins of today have a directory there."""
    return bool(_SMALL.fullmatch(key) or _LISTS.fullmatch(key)) or keys.parse_pack(key) is not None


def is_directory(key: str) -> bool:
    """Whether only a directory may be there."""
    return _DIRECTORIES.fullmatch(key) is not None


def largest(key: str) -> int:
    """The largest object, in bytes, that a writer may put there."""
    if _SMALL.fullmatch(key):
        return SMALL_BYTES
    is_record = _LISTS.fullmatch(key) or keys.parse_old_pin(key) is not None
    return canonical.MAX_BYTES if is_record else MAX_PACK_BYTES


def largest_read(key: str) -> int:
    """The largest object, in bytes, that a reader accepts: sealing adds to a record's size."""
    return largest(key) * 17 // 16 + _SEAL_BYTES


def check_read(key: str, size_bytes: int, *, url: str) -> None:
    """CorruptError: an object of this size is larger than any that cowfs writes there."""
    limit = largest_read(key)
    if size_bytes > limit:
        raise too_large(key, f"{size_bytes} bytes, more than the limit of {limit}", url=url)


def too_large(key: str, has: str, *, url: str) -> CorruptError:
    return CorruptError(f"{url}: {key} has {has}", hint=_HINT, details={"key": key})


def check_write(key: str, size_bytes: int, *, url: str) -> None:
    """InvalidInputError if readers would refuse an object of this size."""
    if size_bytes > (limit := largest(key)):
        raise InvalidInputError(
            f"{url}: {key} would have {size_bytes} bytes; such an object has at most {limit}",
            hint="Shorten texts and labels, or split the change into several commits.",
        )
