"""Sealing with a store's key: AES-256-GCM, keyed names and keyed cut points.

    sealed blob     nonce 12 | stored bytes, encrypted | tag 16
    sealed object   magic "cowfssl\\0" | format u16, 2 | nonce 12 | length of the data u32, data, zeros, encrypted | tag 16

Every key comes from the store key by BLAKE3's derive_key, one for each purpose:

    "cowfs chunk names v1"         store key            32 bytes      key of the BLAKE3 that names blobs
    "cowfs cut points v1"          store key            2048 bytes    gear table: 256 numbers of 8 bytes, big-endian
    "cowfs store record check v1"  store key | record   16 bytes      stands in cowfs.json: tells a wrong key, and another record
    "cowfs store key check v1"     store key            16 bytes      the same in stores of earlier versions: tells a wrong key
    "cowfs sealed object v1"       store key | place    64 bytes      key of AES, and key of the nonces
    "cowfs pack filler v1"         store key | place | BLAKE3 of the sealed directory: as many bytes as a pack's filler has

Places: of a pack its object key; of a manifest `versions/`, since its id binds it to its place; of
every other object the store id in hexadecimal, "/", and its object key. So a record cannot be moved
to another record's place, nor into another store with the same key; packs and manifests can be
copied there.

Associated data: of a blob its offset u64, codec u8 and raw length u32 (a pack's directory has codec
255); of an object its first 10 bytes. A nonce is the first 12 bytes of the BLAKE3, keyed with the
key of the nonces, of the associated data followed by the data to seal. So only equal bytes at an
equal place share a nonce, even if a machine is cloned with its random numbers and uses a pack id
twice; and a record that is put again has the same bytes.

Sizes reveal content, so they are rounded up: of an object, of a pack, and of the entries in its
directory (`round_up`). Index blobs are not compressed, since their compressed size would reveal
the names in them. Objects of format 1, without length and zeros, and packs of
format 2, without filler, are read.

Guarantees: data that `open` returns was sealed with this key for this place. The cipher's name in
cowfs.json stands for all of this: other formats would have another name. Not here: where the store
key comes from (`key_slots`), which objects are sealed (`store.sealed`).
"""

from __future__ import annotations

import hmac
import struct
from typing import TYPE_CHECKING

from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cowfs.base.errors import CorruptError, InvalidInputError
from cowfs.base.ids import ChunkHash, PackId, StoreId
from cowfs.format import keys
from cowfs.format.sealing import BlobSealing, Buffer, Sealing

if TYPE_CHECKING:
    from cowfs.format.store_record import StoreRecord

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
GEAR_BYTES = 256 * 8
CHECK_BYTES = 16
PACK_FORMAT = 3
UNPADDED_PACK_FORMAT = 2
OBJECT_HEADER = b"cowfssl\0" + struct.pack(">H", 2)
UNPADDED_OBJECT_HEADER = b"cowfssl\0" + struct.pack(">H", 1)

_LENGTH = struct.Struct(">I")
_BLOB = struct.Struct(">QBI")
_ALTERED = "Its stored bytes were altered, or moved to another object's place."


def round_up(size: int, step: int) -> int:
    """The smallest multiple of `step`, and of Padmé's step for that size, that is at least `size`.

    Padmé (Nikitin et al., "Reducing Metadata Leakage from Encrypted Files and Communication with
    PURBs", 2019) keeps as many leading bits of a size as its exponent has. So a size reveals
    O(log log) bits and grows by less than 12 %, above 64 KiB by 3.2 %.
    """
    exponent = max(size, 2).bit_length() - 1
    step = max(step, 1 << (exponent - exponent.bit_length()))
    return -(-size // step) * step


def check_value(store_key: bytes, record: StoreRecord) -> bytes:
    """The value for `cipher.check` of this record. It reveals nothing about the key; another key,
    or a record with any other content, has another value."""
    return _derive(store_key + record.bound, "store record check", CHECK_BYTES)


def is_key_of(store_key: bytes, record: StoreRecord) -> bool:
    """Whether an encrypted store has this key. The check value of earlier versions depends on the
    key alone."""
    assert record.cipher is not None
    known = (check_value(store_key, record), _derive(store_key, "store key check", CHECK_BYTES))
    return any(hmac.compare_digest(each, record.cipher.check) for each in known)


class Sealed(Sealing):
    """Seals for the store with this id and key."""

    blob_overhead_bytes = NONCE_BYTES + TAG_BYTES
    compresses_index = False
    object_step_bytes = 4096  # a block of most disks; nearly every record and manifest fits
    pack_step_bytes = 16 << 10
    step_entries = 16

    def __init__(self, store_key: bytes, store_id: StoreId) -> None:
        if len(store_key) != KEY_BYTES:
            raise InvalidInputError(f"a store key has {KEY_BYTES} bytes")
        self._key = bytes(store_key)
        self._store = store_id.hex()
        self._name_key = self.name_key = _derive(self._key, "chunk names", KEY_BYTES)
        self.gear = _derive(self._key, "cut points", GEAR_BYTES)

    @property
    def store_key(self) -> bytes:
        """For another process that opens the store."""
        return self._key

    def name(self, raw: Buffer) -> ChunkHash:
        return ChunkHash(blake3(raw, key=self._name_key).digest())

    def pack(self, pack: PackId) -> BlobSealing:
        return _SealedBlobs(_Cipher(self._key, keys.pack(pack)), self.pack_step_bytes, self.step_entries)

    def seal_object(self, key: str, data: Buffer) -> bytes:
        cipher = self._of_object(key)
        size = len(OBJECT_HEADER) + self.blob_overhead_bytes + _LENGTH.size + len(data)
        padding = bytes(round_up(size, self.object_step_bytes) - size)
        plain = b"".join((_LENGTH.pack(len(data)), data, padding))
        nonce = cipher.nonce(OBJECT_HEADER, plain)
        return OBJECT_HEADER + nonce + cipher.aes.encrypt(nonce, plain, OBJECT_HEADER)

    def open_object(self, key: str, data: bytes, *, what: str) -> bytes:
        header = data[: len(OBJECT_HEADER)]
        if header not in (OBJECT_HEADER, UNPADDED_OBJECT_HEADER) or len(data) < len(header) + NONCE_BYTES + TAG_BYTES:
            raise CorruptError(f"{what} is not sealed as everything in its store is", hint=_ALTERED)
        plain = self._of_object(key).decrypt(memoryview(data)[len(header) :], header, what)
        if header == UNPADDED_OBJECT_HEADER:
            return plain
        length = int.from_bytes(plain[: _LENGTH.size])
        if len(plain) < _LENGTH.size + length or any(plain[_LENGTH.size + length :]):
            raise CorruptError(f"{what} does not have the length that it says")
        return plain[_LENGTH.size :][:length]

    def _of_object(self, key: str) -> _Cipher:
        return _Cipher(self._key, keys.VERSIONS if key.startswith(keys.VERSIONS) else f"{self._store}/{key}")


class _SealedBlobs(BlobSealing):
    format = PACK_FORMAT
    older_format = UNPADDED_PACK_FORMAT
    head = bytes(NONCE_BYTES)
    tail = bytes(TAG_BYTES)

    def __init__(self, cipher: _Cipher, step_bytes: int, step_entries: int) -> None:
        self._cipher = cipher
        self._step_bytes = step_bytes
        self._step_entries = step_entries
        self._room = bytearray()  # of the largest blob: a copy there saves zeroed pages for each blob

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
        return self._cipher.decrypt(memoryview(sealed), _BLOB.pack(offset, codec, raw_length), what)

    def pad_size(self, size_bytes: int) -> int:
        return round_up(size_bytes, self._step_bytes)

    def pad_entries(self, count: int) -> int:
        return round_up(count, self._step_entries)

    def filler(self, length: int, directory_hash: bytes) -> bytes:
        return self._cipher.filler(length, directory_hash)


class _Cipher:
    """The keys of one place."""

    def __init__(self, store_key: bytes, place: str) -> None:
        self._material = store_key + place.encode()
        derived = _derive(self._material, "sealed object", 2 * KEY_BYTES)
        self.aes, self._nonce_key = AESGCM(derived[:KEY_BYTES]), derived[KEY_BYTES:]

    def nonce(self, associated: bytes, data: Buffer) -> bytes:
        hasher = blake3(associated, key=self._nonce_key)
        return hasher.update(data).digest(NONCE_BYTES)

    def filler(self, length: int, directory_hash: bytes) -> bytes:
        return _derive(self._material + directory_hash, "pack filler", length)

    def decrypt(self, sealed: memoryview, associated: bytes, what: str) -> bytes:
        try:
            return self.aes.decrypt(bytes(sealed[:NONCE_BYTES]), sealed[NONCE_BYTES:], associated)
        except (InvalidTag, ValueError):  # the latter: shorter than a tag
            raise CorruptError(f"{what} cannot be opened with the store's key", hint=_ALTERED) from None


def _derive(material: bytes, purpose: str, length: int) -> bytes:
    return blake3(material, derive_key_context=f"cowfs {purpose} v1").digest(length)
