"""Sealing with a store's key: AES-256-GCM, keyed names and keyed cut points.

    sealed blob     nonce 12 | stored bytes, encrypted | tag 16
    sealed object   magic "cowfssl\\0" | format u16, 1 | nonce 12 | data, encrypted | tag 16

Every key comes from the store key by BLAKE3's derive_key, one for each purpose:

    "cowfs chunk names v1"         store key            32 bytes      key of the BLAKE3 that names blobs
    "cowfs cut points v1"          store key            2048 bytes    gear table: 256 numbers of 8 bytes, big-endian
    "cowfs store key check v1"     store key            16 bytes      stands in cowfs.json: tells a wrong key
    "cowfs sealed object v1"       store key | place    64 bytes      key of AES, and key of the nonces

Places: of a pack its object key; of a manifest `versions/`, since its id binds it to its place; of
every other object the store id in hexadecimal, "/", and its object key. So a record cannot be put
in another's place, nor into another store with the same key; packs and manifests can be copied
there.

Associated data: of a blob its offset u64, codec u8 and raw length u32 (a pack's directory has codec
255); of an object its first 10 bytes. A nonce is the first 12 bytes of the BLAKE3, keyed with the
key of the nonces, of the associated data followed by what is sealed. So only equal bytes at an
equal place share a nonce, even if a machine is cloned with its random numbers and uses a pack id
twice; and a record that is put again has the same bytes.

Guarantees: what `open` returns was sealed with this key for this place. All of this is named by the
cipher in cowfs.json: other formats would have another name there. Not here: where the store
key comes from (`key_slots`), which objects are sealed (`store.sealed`).
"""

from __future__ import annotations

import struct

from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cowfs.errors import CorruptError, InvalidInputError
from cowfs.format import keys
from cowfs.format.sealing import BlobSealing, Buffer, Sealing
from cowfs.ids import ChunkHash, PackId, StoreId

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
GEAR_BYTES = 256 * 8
CHECK_BYTES = 16
PACK_FORMAT = 2
OBJECT_HEADER = b"cowfssl\0" + struct.pack(">H", 1)

_BLOB = struct.Struct(">QBI")
_ALTERED = "Its stored bytes were altered, or put in another object's place."


def check_value(store_key: bytes) -> bytes:
    """Tells nothing about the key, and another key has another one."""
    return _derived(store_key, "store key check", CHECK_BYTES)


class Sealed(Sealing):
    """Of the store with this id and key."""

    blob_overhead_bytes = NONCE_BYTES + TAG_BYTES

    def __init__(self, store_key: bytes, store_id: StoreId) -> None:
        if len(store_key) != KEY_BYTES:
            raise InvalidInputError(f"a store key has {KEY_BYTES} bytes")
        self._key = bytes(store_key)
        self._store = store_id.hex()
        self._name_key = self.name_key = _derived(self._key, "chunk names", KEY_BYTES)
        self.gear = _derived(self._key, "cut points", GEAR_BYTES)

    @property
    def store_key(self) -> bytes:
        """For another process that is to open the store."""
        return self._key

    def name(self, raw: Buffer) -> ChunkHash:
        return ChunkHash(blake3(raw, key=self._name_key).digest())

    def pack(self, pack: PackId) -> BlobSealing:
        return _SealedBlobs(_Cipher(self._key, keys.pack(pack)))

    def seal_object(self, key: str, data: Buffer) -> bytes:
        cipher = self._of_object(key)
        nonce = cipher.nonce(OBJECT_HEADER, data)
        return OBJECT_HEADER + nonce + cipher.aes.encrypt(nonce, data, OBJECT_HEADER)

    def open_object(self, key: str, data: bytes, *, what: str) -> bytes:
        if not data.startswith(OBJECT_HEADER) or len(data) < len(OBJECT_HEADER) + NONCE_BYTES + TAG_BYTES:
            raise CorruptError(f"{what} is not sealed as everything in its store is", hint=_ALTERED)
        return self._of_object(key).opened(memoryview(data)[len(OBJECT_HEADER) :], OBJECT_HEADER, what)

    def _of_object(self, key: str) -> _Cipher:
        return _Cipher(self._key, keys.VERSIONS if key.startswith(keys.VERSIONS) else f"{self._store}/{key}")


class _SealedBlobs(BlobSealing):
    format = PACK_FORMAT
    head = bytes(NONCE_BYTES)
    tail = bytes(TAG_BYTES)

    def __init__(self, cipher: _Cipher) -> None:
        self._cipher = cipher
        self._room = bytearray()  # of the largest blob: a copy there spares pages that are zeroed for each

    def seal(self, space: memoryview, offset: int, codec: int, raw_length: int) -> None:
        stored = space[NONCE_BYTES:-TAG_BYTES]
        if len(self._room) < len(stored):
            self._room = bytearray(len(stored))
        plain = memoryview(self._room)[: len(stored)]
        plain[:] = stored
        associated = _BLOB.pack(offset, codec, raw_length)
        nonce = self._cipher.nonce(associated, plain)
        space[:NONCE_BYTES] = nonce
        self._cipher.aes.encrypt_into(nonce, plain, associated, space[NONCE_BYTES:])

    def open(self, sealed: Buffer, offset: int, codec: int, raw_length: int, *, what: str) -> bytes:
        return self._cipher.opened(memoryview(sealed), _BLOB.pack(offset, codec, raw_length), what)


class _Cipher:
    """The keys of one place."""

    def __init__(self, store_key: bytes, place: str) -> None:
        derived = _derived(store_key + place.encode(), "sealed object", 2 * KEY_BYTES)
        self.aes, self._nonce_key = AESGCM(derived[:KEY_BYTES]), derived[KEY_BYTES:]

    def nonce(self, associated: bytes, data: Buffer) -> bytes:
        hasher = blake3(associated, key=self._nonce_key)
        return hasher.update(data).digest(NONCE_BYTES)

    def opened(self, sealed: memoryview, associated: bytes, what: str) -> bytes:
        try:
            return self.aes.decrypt(bytes(sealed[:NONCE_BYTES]), sealed[NONCE_BYTES:], associated)
        except (InvalidTag, ValueError):  # the latter: shorter than a tag
            raise CorruptError(f"{what} cannot be opened with the store's key", hint=_ALTERED) from None


def _derived(material: bytes, purpose: str, length: int) -> bytes:
    return blake3(material, derive_key_context=f"cowfs {purpose} v1").digest(length)
