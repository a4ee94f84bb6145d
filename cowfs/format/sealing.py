"""How objects are stored: the interface, and its implementation for a store without a key.

    name          a blob's raw bytes → the name that is stored for it: their BLAKE3, by name_key if there is one
    gear          the table that decides where files are cut; None: the public one
    pack          the blobs of one pack, sealed and opened
    seal_object   a whole object (a record or a manifest) for a key of the store
    compresses_index   whether blobs of index packs are compressed

`Sealing` implements a store without a key: every object is stored unchanged, and blobs are named by
their BLAKE3. `sealed.Sealed` implements an encrypted store. Code that writes or reads packs, names
blobs or cuts files calls this interface and never checks which implementation it has. No other
module of cowfs knows about keys.

Pure and thread-safe, except that only one thread at a time may seal with a `BlobSealing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cowfs.format.codec import hash_of

if TYPE_CHECKING:
    from cowfs.base.ids import ChunkHash, PackId

DIRECTORY_CODEC = 255
"""Takes the place of a blob's codec for a pack's directory."""

Buffer = bytes | bytearray | memoryview


class BlobSealing:
    """The blobs of one pack, stored unchanged. head, tail: room before and behind the stored bytes
    of each; format: of a new pack; older_format: of older packs that are still read."""

    format = 1
    older_format = 1
    head = b""
    tail = b""

    @property
    def overhead_bytes(self) -> int:
        return len(self.head) + len(self.tail)

    def seal(self, space: memoryview, offset: int, codec: int, raw_length: int) -> None:
        """Seals in place. space: head, stored bytes and tail of the blob at this offset of the
        pack."""

    def open(self, sealed: Buffer, offset: int, codec: int, raw_length: int, *, what: str) -> bytes:
        """The stored bytes. CorruptError: they were altered, or belong to another place."""
        return bytes(sealed)

    def pad_size(self, size_bytes: int) -> int:
        """The rounded size of a pack that needs so many bytes."""
        return size_bytes

    def pad_entries(self, count: int) -> int:
        """The number of directory entries of a pack with so many blobs."""
        return count

    def filler(self, length: int, directory_hash: bytes) -> bytes:
        """The filler between blobs and directory of a pack whose directory has this hash."""
        return b""


class Sealing:
    """Stores objects unchanged, for a store without a key."""

    gear: bytes | None = None
    name_key: bytes | None = None
    blob_overhead_bytes = 0
    compresses_index = True

    def name(self, raw: Buffer) -> ChunkHash:
        return hash_of(raw)

    def pack(self, pack: PackId) -> BlobSealing:
        return PLAIN_BLOBS

    def seal_object(self, key: str, data: Buffer) -> Buffer:
        """The bytes to store under `key`. The same data gives the same bytes."""
        return data

    def open_object(self, key: str, data: bytes, *, what: str) -> bytes:
        """The data that was sealed for `key`. CorruptError: altered, or sealed for another key."""
        return data


PLAIN_BLOBS = BlobSealing()
PLAIN = Sealing()
