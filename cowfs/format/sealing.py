"""What a store's key does to its objects: the interface, and the store that has no key.

    name          a blob's raw bytes → the name that is stored for it: their BLAKE3, by name_key if there is one
    gear          the table that decides where files are cut; None: the public one
    pack          the blobs of one pack, sealed and opened
    seal_object   a whole object (a record or a manifest) for a key of the store

`Sealing` is what a store without a key does: every object is stored as it is, and blobs are named
by their BLAKE3. `sealed.Sealed` is the other one. Whoever writes or reads packs, names blobs or
cuts files asks one of them and never looks which one it is. Nothing else in cowfs knows that keys
exist.

Pure and thread-safe, but for a `BlobSealing`, with which one thread at a time seals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cowfs.format.codec import hash_of

if TYPE_CHECKING:
    from cowfs.ids import ChunkHash, PackId

DIRECTORY_CODEC = 255
"""Stands for a pack's directory where a blob has its codec."""

Buffer = bytes | bytearray | memoryview


class BlobSealing:
    """The blobs of one pack, which stay as they are. head, tail: room before and behind the stored
    bytes of each; format: of the pack."""

    format = 1
    head = b""
    tail = b""

    @property
    def overhead_bytes(self) -> int:
        return len(self.head) + len(self.tail)

    def seal(self, space: memoryview, offset: int, codec: int, raw_length: int) -> None:
        """In place. space: head, stored bytes and tail of the blob at this offset of the pack."""

    def open(self, sealed: Buffer, offset: int, codec: int, raw_length: int, *, what: str) -> bytes:
        """The stored bytes. CorruptError: they were altered, or belong to another place."""
        return bytes(sealed)


class Sealing:
    """Of a store without a key."""

    gear: bytes | None = None
    name_key: bytes | None = None
    blob_overhead_bytes = 0

    def name(self, raw: Buffer) -> ChunkHash:
        return hash_of(raw)

    def pack(self, pack: PackId) -> BlobSealing:
        return PLAIN_BLOBS

    def seal_object(self, key: str, data: Buffer) -> Buffer:
        """The bytes to store under `key`. The same data gives the same bytes."""
        return data

    def open_object(self, key: str, data: bytes, *, what: str) -> bytes:
        """What was sealed for `key`. CorruptError: altered, or sealed for another key."""
        return data


PLAIN_BLOBS = BlobSealing()
PLAIN = Sealing()
