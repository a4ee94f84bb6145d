"""The content id of a version, or of one folder: one hash of everything that a program can read in
it (docs/format/content-id.md defines the bytes).

    counts      names, kinds, permissions, sizes, link targets, device numbers, extended attributes, extents, and which
                names are one file
    ignored     times, owners, inode numbers, places in packs, history

    walk, depth first ─▶ windows of WINDOW_ENTRIES ─▶ hashes of their contents ─▶ records ─▶ BLAKE3 ─▶ the store's name of it

Equal ids mean equal contents. Equal contents may have two ids: extents count as they were cut, so a
file that was rewritten in place differs from one that was written once. `differences` compares the
same properties, and owners besides. A linked file counts by the state of its object, and so differs
from a copy of it.

In an encrypted store the ids depend on its key, as the names of chunks do, and reveal nothing.

An index may be crafted: a directory that is met twice is CorruptError, and so are contents that a
mount would not show because the row of the inode denies them.

Cost: the whole index is read, or the part of it that describes the folder. Memory: a window, the
numbers of all directories, and those of files with several names. One thread.
"""

from __future__ import annotations

import stat
import struct
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from blake3 import blake3

from cowfs.base import interruptible
from cowfs.index.contents_by_inode import extents_by_inode, xattrs_by_inode
from cowfs.index.links import links_by_inode, range_name
from cowfs.native.constants import ROOT_INO
from cowfs.version.publish.tree_changes import FLAGS, HAS_XATTRS, INO, MODE, NLINK, SIZE, TARGET

if TYPE_CHECKING:
    from cowfs.format.sealing import Sealing
    from cowfs.index import Index, InodeRow

SCHEME: Final = "content-1"
WINDOW_ENTRIES = 4096
"""Some 5 MB, and few enough numbers for one query."""

_CONTEXT = "cowfs 2026-11-30 content-1"
_RDEV, _MAPPED_BYTES = 5, 7  # of an inode row
_STORED, _LINKED, _XATTRS, _SAME_FILE = 1, 2, 4, 8
_INODE = struct.Struct(">BIIQH")  # kinds of contents, mode, device number, size, length of the target
_FILE = struct.Struct(">BQ")  # _SAME_FILE, number of the entry that named the file first
_EXTENT = struct.Struct(">QQQ")  # offset, length, skip; the chunk's name follows
_XATTR = struct.Struct(">BI")  # lengths of name and value
_END = b"\0"  # of a directory's entries, where the next name would have its length

_Step: TypeAlias = "tuple[bytes, InodeRow | None]"
"""Bytes to hash, and the inode whose record follows them."""


def content_id(index: Index, sealing: Sealing) -> str:
    """The id of everything in the index; for one folder, pass its `Subtree`. CorruptError: the rows
    are not those of a tree."""
    hasher = blake3(derive_key_context=_CONTEXT)
    steps = _walk(index)
    while window := list(islice(steps, WINDOW_ENTRIES)):
        interruptible.require_wanted()
        hasher.update(b"".join(_records(index, window)))
    return f"{SCHEME}:{sealing.name(SCHEME.encode() + hasher.digest()).hex()}"


def _walk(index: Index) -> Iterator[_Step]:
    """The root, and then the entries of each directory: first the root's, then those of its first
    subdirectory and everything below it."""
    root = index.inode(ROOT_INO)
    if root is None or not stat.S_ISDIR(root[MODE]):
        raise index.damage_error("it has no root directory")
    yield b"", root
    number = 0
    named: dict[int, int] = {}  # files with several names → the number of the entry that was first
    seen, waiting = {ROOT_INO}, [ROOT_INO]
    while waiting:
        below = []
        for page in index.directory_pages(waiting.pop()):
            for name, row in page:
                ino, said = row[INO], bytes((len(name),)) + name
                if stat.S_ISDIR(row[MODE]):
                    if ino in seen:
                        raise index.damage_error(f"directory {ino} has two names")
                    seen.add(ino)
                    below.append(ino)
                    yield said, row
                elif row[NLINK] > 1 and (first := named.setdefault(ino, number)) != number:
                    yield said + _FILE.pack(_SAME_FILE, first), None
                else:
                    yield said, row
                number += 1
        yield _END, None
        waiting += reversed(below)


def _records(index: Index, window: Iterable[_Step]) -> Iterator[bytes]:
    rows = {row[INO]: row for _, row in window if row is not None}
    stored, linked = _hash_bytes(index, [row for row in rows.values() if stat.S_ISREG(row[MODE])])
    xattrs = _hash_xattrs(index, rows)
    for said, row in window:
        yield said
        if row is not None:
            ino, target = row[INO], row[TARGET]
            hashes = [each.get(ino, b"") for each in (stored, linked, xattrs)]
            kinds = sum(kind for kind, found in zip((_STORED, _LINKED, _XATTRS), hashes, strict=True) if found)
            size = row[SIZE] if stat.S_ISREG(row[MODE]) else 0
            yield _INODE.pack(kinds, row[MODE], row[_RDEV], size, len(target))
            yield target
            yield from hashes


def _hash_bytes(index: Index, files: Iterable[InodeRow]) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Inode → hash of its extents, and inode → name of the state that it is linked to."""
    mapped = {row[INO]: row[_MAPPED_BYTES] for row in files}
    stored: dict[int, bytes] = {}
    with extents_by_inode(index, mapped) as found:
        for ino, extents in found:
            if not mapped[ino]:
                raise index.damage_error(f"inode {ino} has extents and maps no bytes")
            hasher = blake3()
            for offset, length, chunk, _, _, _, _, skip, _ in extents:
                hasher.update(_EXTENT.pack(offset, length, skip) + chunk)
            stored[ino] = hasher.digest()
    links = links_by_inode(index, mapped.keys() - stored.keys())
    return stored, {ino: range_name(link, 0, link.size) for ino, link in links.items()}


def _hash_xattrs(index: Index, rows: dict[int, InodeRow]) -> dict[int, bytes]:
    """Inode → hash of its extended attributes."""
    found: dict[int, bytes] = {}
    if ROOT_INO in rows:  # of a folder, which has another number in the table
        xattrs = index.read_stored_content(ROOT_INO)[1]
        if xattrs:
            found[ROOT_INO] = _hash_pairs(xattrs)
    with xattrs_by_inode(index, rows.keys() - {ROOT_INO}) as others:
        for ino, pairs in others:
            found[ino] = _hash_pairs(pairs)
    for ino in found:
        if not rows[ino][FLAGS] & HAS_XATTRS:
            raise index.damage_error(f"inode {ino} has extended attributes that its flags deny")
    return found


def _hash_pairs(xattrs: Iterable[tuple[bytes, bytes]]) -> bytes:
    hasher = blake3()
    for name, value in xattrs:
        hasher.update(_XATTR.pack(len(name), len(value)) + name + value)
    return hasher.digest()
