"""The identifiers of cowfs as types of their own, so that one cannot be passed for another.

    VersionId   32 bytes   BLAKE3 of a version's manifest; 64 hex digits in text
    ChunkHash   32 bytes   BLAKE3 of a chunk's or index block's raw bytes
    PackId      16 bytes   random, never a content hash, never used twice; 32 hex digits in object keys
    StoreId     16 bytes   random, made when a store is initialised
    WriteId     16 bytes   random, marks one attempt to write a record, so that it can be recognised on read-back

All are immutable `bytes`; `.hex()` is their text form and `from_hex` the strict way back.
Invariant: a value of these types always has the right length. Not here: locators and object keys
(`cowfs.format`).
"""

from __future__ import annotations

from typing import ClassVar, Self

from cowfs.base.errors import InvalidInputError


class _Id(bytes):
    length: ClassVar[int]
    noun: ClassVar[str]

    def __new__(cls, value: bytes) -> Self:
        if len(value) != cls.length:
            raise InvalidInputError(
                f"a {cls.noun} has {cls.length} bytes, not {len(value)}",
                hint=f"Give the {cls.length * 2} hexadecimal digits in full.",
            )
        return super().__new__(cls, value)

    @classmethod
    def from_hex(cls, text: str) -> Self:
        """Parses exactly `2 * length` lower-case hex digits; anything else raises
        InvalidInputError."""
        if len(text) != cls.length * 2 or set(text) - set("0123456789abcdef"):
            raise InvalidInputError(
                f"{text!r} is not a {cls.noun}",
                hint=f"A {cls.noun} is {cls.length * 2} lower-case hexadecimal digits.",
            )
        return cls(bytes.fromhex(text))

    def __str__(self) -> str:
        return self.hex()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.hex()})"


class VersionId(_Id):
    length = 32
    noun = "version id"


class ChunkHash(_Id):
    length = 32
    noun = "chunk hash"


class PackId(_Id):
    length = 16
    noun = "pack id"


class StoreId(_Id):
    length = 16
    noun = "store id"


class WriteId(_Id):
    length = 16
    noun = "write id"
