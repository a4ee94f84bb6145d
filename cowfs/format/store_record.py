"""cowfs.json: what makes a place a store, what the place was seen to do, and whether it is
encrypted. docs/format/store.md has every field."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from cowfs.errors import UnsupportedFormatError
from cowfs.format import fields
from cowfs.format.fields import Fields
from cowfs.format.record import FORMAT, Record, form
from cowfs.ids import StoreId, WriteId
from cowfs.values import dataclass


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What a store was seen to do. race_max_winners: most winners of one race of race_writers (1 is
    right)."""

    put_if_absent: bool
    race_writers: int
    race_rounds: int
    race_max_winners: int
    read_after_write: bool
    list_after_write: bool
    probed_ns: int

    @property
    def is_safe(self) -> bool:
        """Create-only puts hold, and reads and lists see them: several writers cannot lose each
        other's work."""
        return self.put_if_absent and self.race_max_winners == 1 and self.read_after_write and self.list_after_write


AES_256_GCM = "aes-256-gcm"


@dataclass(frozen=True, slots=True)
class Cipher:
    """How an encrypted store is sealed (`sealed`). check: the value that its key must have."""

    name: str
    check: bytes


def _cipher(found: Fields, name: str) -> Cipher | None:
    """UnsupportedFormatError, whatever else stands there, for a name that is not known."""
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
        raise inner.damaged("check", "is not 32 hexadecimal digits")
    return Cipher(kind, bytes.fromhex(check))


_CIPHER = form(lambda cipher: cipher and {"name": cipher.name, "check": cipher.check.hex()}, _cipher)


@dataclass(frozen=True, slots=True)
class StoreRecord(Record):
    """cowfs.json. cipher: of an encrypted store; one that is not known is refused, not misread."""

    record: ClassVar[str] = "store"
    cipher: Cipher | None = field(default=None, kw_only=True, metadata=_CIPHER)  # read before all else
    store_id: StoreId
    created_ns: int
    write_id: WriteId
    probe: ProbeResult

    def encode(self, *, key: str = "") -> bytes:
        return fields.seal(self.record, FORMAT, {**self.extra, **self._body(), **({"key": key} if key else {})})
