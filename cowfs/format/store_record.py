"""cowfs.json: marks a place as a store, and records the result of its probe and its encryption.
docs/format/store.md has every field."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from cowfs.base.errors import UnsupportedFormatError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import StoreId, WriteId
from cowfs.format import canonical, fields
from cowfs.format.fields import Fields
from cowfs.format.record import FORMAT, Record, form


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of probing a store. race_max_winners: most winners of one race of race_writers (1
    is right)."""

    put_if_absent: bool
    race_writers: int
    race_rounds: int
    race_max_winners: int
    read_after_write: bool
    list_after_write: bool
    probed_ns: int

    @property
    def is_safe(self) -> bool:
        """Whether create-only puts hold, and reads and lists see them: several writers cannot lose
        each other's work."""
        return self.put_if_absent and self.race_max_winners == 1 and self.read_after_write and self.list_after_write


AES_256_GCM = "aes-256-gcm"


@dataclass(frozen=True, slots=True)
class Cipher:
    """The cipher of an encrypted store (`sealed`). check: the value that its key and the rest of
    the record must have."""

    name: str
    check: bytes


def _cipher(found: Fields, name: str) -> Cipher | None:
    """UnsupportedFormatError for an unknown name, regardless of the other fields."""
    if found.is_null(name):
        return None
    given = found.rest[name]
    if not isinstance(given, dict) or given.get("name") != AES_256_GCM:
        raise UnsupportedFormatError(
            f"{found.what} is encrypted with {given!r:.60}, unknown to this cowfs", hint="Use a newer cowfs."
        )
    inner = found.object(name)
    kind, check = inner.text("name"), inner.text("check")
    if len(check) != 32 or set(check) - set("0123456789abcdef"):
        raise inner.damage_error("check", "is not 32 hexadecimal digits")
    return Cipher(kind, bytes.fromhex(check))


_CIPHER = form(lambda cipher: cipher and {"name": cipher.name, "check": cipher.check.hex()}, _cipher)


@dataclass(frozen=True, slots=True)
class StoreRecord(Record):
    """cowfs.json. cipher: of an encrypted store; an unknown one is refused, not misread."""

    record: ClassVar[str] = "store"
    cipher: Cipher | None = field(default=None, kw_only=True, metadata=_CIPHER)  # read before all other fields
    store_id: StoreId
    created_ns: int
    write_id: WriteId
    probe: ProbeResult

    @property
    def bound(self) -> bytes:
        """The part of an encrypted store's check value that is not the key: all other fields."""
        return canonical.encode({**self.extra, **self._body(), "cipher": self.cipher and self.cipher.name})

    def encode(self, *, key: str = "") -> bytes:
        return fields.seal(self.record, FORMAT, {**self.extra, **self._body(), **({"key": key} if key else {})})
