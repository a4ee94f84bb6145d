"""The keys that open an encrypted store: `keys/<n>`, a record of slots, each of which wraps the
store key for one secret.

    passphrase   a text that people remember: Argon2id (RFC 9106) makes the wrapping key, with salt and costs from the slot
    key          32 random bytes or more, of a key file or a command: BLAKE3's derive_key makes it, with the slot's salt

The store key is wrapped by AES-256-GCM. Associated data are the canonical JSON of the slot's other
fields, so they cannot be changed without the key. Slots of format 2 carry a keyed BLAKE3 of all
that, too: AES-GCM alone lets one ciphertext open under many keys, and so test many passphrases
at once. The record has a MAC by the store key over all its slots and its own object key; records of
earlier versions have none. The record itself is not sealed: it is read before there is a key.
docs/format/keys.md has every field.

Anyone with write access to the bucket can write this record, so everything in it is bounded: a slot
that is cheap to open would allow cheap tests of passphrases, an expensive one would keep a reader
busy. Pure, and slow for passphrases: 64 MiB and some 0.2 s of processor time for each slot tried.
The library is loaded when a slot is used: most stores have none. Not here: where secrets come from,
which slot is tried, and whether its key is the store's (`store.credentials.unlocking`).
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

from blake3 import blake3

from cowfs.base import clock, redaction
from cowfs.base.errors import InvalidInputError, UnsupportedFormatError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import WriteId
from cowfs.format import canonical
from cowfs.format.fields import Fields, check_format
from cowfs.format.record import Record, check_one_of, form, take_known_text

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

SecretKind = Literal["passphrase", "key"]
_KINDS: tuple[SecretKind, ...] = ("passphrase", "key")

STORE_KEY_BYTES = 32
SHORTEST_KEY_BYTES = 32
LONGEST_SECRET_BYTES = 1 << 16
SALT_BYTES = 16
LONGEST_LABEL = 128
_ID = re.compile(r"[0-9a-f]{8}")
_NONCE = bytes(12)  # of a key that wraps only this: each slot has its own salt

PASSES, LANES, MEMORY_KIB = 3, 4, 64 << 10
"""The second recommended option of RFC 9106, for machines without 2 GiB to spare. No version of
cowfs has made slots with fewer passes or less memory, and such slots are refused."""
MOST_PASSES, MOST_LANES, MOST_MEMORY_KIB = 16, 64, 1 << 20
MOST_SLOTS = 64
_PLAIN_WRAP, COMMITTING_WRAP = 1, 2
_GCM_BYTES = STORE_KEY_BYTES + 16
_WRAPPED_BYTES = {_PLAIN_WRAP: _GCM_BYTES, COMMITTING_WRAP: _GCM_BYTES + 32}
MAC_BYTES = 32


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret that opens a store. InvalidInputError: it is empty, or too short for a key."""

    kind: SecretKind
    value: bytes = field(repr=False)

    def __post_init__(self) -> None:
        check_one_of(self.kind, _KINDS, "kind of secret")
        if not self.value or len(self.value) > LONGEST_SECRET_BYTES:
            raise InvalidInputError("a passphrase has at least one character", hint="Choose a long one.")
        if self.kind == "key" and len(self.value) < SHORTEST_KEY_BYTES:
            raise InvalidInputError(
                f"a key has at least {SHORTEST_KEY_BYTES} bytes, and this one has {len(self.value)}",
                hint=f"Make a random one: `(umask 077; head -c {SHORTEST_KEY_BYTES} /dev/urandom > FILE)`. "
                "Use a shorter text as a passphrase: COWFS_ENCRYPTION_PASSPHRASE.",
            )
        redaction.hide(self.value.decode(errors="replace"))

    @property
    def forms(self) -> tuple[bytes, ...]:
        """The byte forms that a slot may have been made with; new slots take the first. A
        passphrase is normalised to Unicode's form NFC, so that every keyboard gives the same bytes;
        earlier versions took it as typed."""
        if self.kind == "key":
            return (self.value,)
        try:
            normal = unicodedata.normalize("NFC", self.value.decode()).encode()
        except UnicodeDecodeError:
            return (self.value,)
        return (normal,) if normal == self.value else (normal, self.value)

    def __reduce__(self) -> NoReturn:
        raise TypeError("secrets are not pickled")


@dataclass(frozen=True, slots=True)
class Slot:
    """The store key, wrapped for one secret. id: 8 hex digits, shown to users.
    passes, lanes, memory_kib: costs of Argon2id, 0 for a key. format: 1 for slots of earlier
    versions, whose wrap does not commit to the secret."""

    id: str
    kind: SecretKind
    label: str
    created_ns: int
    salt: bytes
    passes: int
    lanes: int
    memory_kib: int
    wrapped: bytes = b""
    format: int = COMMITTING_WRAP

    def __post_init__(self) -> None:
        check_one_of(self.kind, _KINDS, "kind of slot")
        is_passphrase = self.kind == "passphrase"
        for value, least, most in (
            (self.passes, PASSES, MOST_PASSES),
            (self.lanes, 1, MOST_LANES),
            (self.memory_kib, MEMORY_KIB, MOST_MEMORY_KIB),
        ):
            if not (least <= value <= most if is_passphrase else value == 0):
                raise InvalidInputError(f"a slot of kind {self.kind} does not cost {value}")
        if len(self.salt) != SALT_BYTES or not _ID.fullmatch(self.id):
            raise InvalidInputError(f"a slot has a salt of {SALT_BYTES} bytes, and an id of 8 hexadecimal digits")
        if len(self.label) > LONGEST_LABEL or not self.label.isprintable():
            raise InvalidInputError(
                f"a label has at most {LONGEST_LABEL} characters, all printable", hint="Choose another."
            )

    @property
    def has_default_costs(self) -> bool:
        costs = (PASSES, LANES, MEMORY_KIB) if self.kind == "passphrase" else (0, 0, 0)
        return (self.passes, self.lanes, self.memory_kib) == costs

    @property
    def body(self) -> dict[str, Any]:
        """All fields but the wrapped key."""
        costs = {"passes": self.passes, "lanes": self.lanes, "memory_kib": self.memory_kib}
        return {
            "id": self.id,
            "kind": self.kind,
            "label": self.label,
            "created_ns": self.created_ns,
            "salt": self.salt.hex(),
            **(costs if self.kind == "passphrase" else {}),
            **({"format": self.format} if self.format != _PLAIN_WRAP else {}),
        }

    def unwrap(self, secret: Secret) -> bytes | None:
        """The wrapped key; None: this secret does not open the slot."""
        if secret.kind != self.kind:
            return None
        return next(filter(None, map(self._try_unwrap, secret.forms)), None)

    def wrapping(self, store_key: bytes, secret: Secret) -> Slot:
        aes, tag_key = self._keys(secret.forms[0])
        sealed = aes.encrypt(_NONCE, store_key, self._encode_body())
        return replace(self, wrapped=sealed + self._commitment(tag_key, sealed))

    def _try_unwrap(self, form: bytes) -> bytes | None:
        import hmac

        from cryptography.exceptions import InvalidTag

        aes, tag_key = self._keys(form)
        sealed, commitment = self.wrapped[:_GCM_BYTES], self.wrapped[_GCM_BYTES:]
        if not hmac.compare_digest(commitment, self._commitment(tag_key, sealed)):
            return None
        try:
            return aes.decrypt(_NONCE, sealed, self._encode_body())
        except (InvalidTag, ValueError):  # the latter: shorter than a tag
            return None

    def _encode_body(self) -> bytes:
        return canonical.encode(self.body)

    def _commitment(self, tag_key: bytes, sealed: bytes) -> bytes:
        if self.format == _PLAIN_WRAP:
            return b""
        return blake3(self._encode_body() + sealed, key=tag_key).digest()

    def _keys(self, form: bytes) -> tuple[AESGCM, bytes]:
        """The keys for AES and for the commitment."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        wrapping_key = self._wrapping_key(form)
        if self.format == _PLAIN_WRAP:
            return AESGCM(wrapping_key), b""
        both = blake3(wrapping_key, derive_key_context="cowfs wrap of a slot v2").digest(64)
        return AESGCM(both[:32]), both[32:]

    def _wrapping_key(self, form: bytes) -> bytes:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

        if self.kind == "key":
            return blake3(self.salt + form, derive_key_context="cowfs key of a slot v1").digest()
        try:
            function = Argon2id(
                salt=self.salt,
                length=STORE_KEY_BYTES,
                iterations=self.passes,
                lanes=self.lanes,
                memory_cost=self.memory_kib,
            )
        except UnsupportedAlgorithm:
            raise UnsupportedFormatError(
                "the Python package cryptography of this machine has no Argon2id, which passphrases need",
                hint="It was built with an OpenSSL before 3.2. Install its wheel from PyPI, or use a key file.",
            ) from None
        return function.derive(form)


def new_slot(store_key: bytes, secret: Secret, *, label: str = "") -> Slot:
    costs = (PASSES, LANES, MEMORY_KIB) if secret.kind == "passphrase" else (0, 0, 0)
    id, salt = clock.random_bytes(4).hex(), clock.random_bytes(SALT_BYTES)
    return Slot(id, secret.kind, label, clock.now_ns(), salt, *costs).wrapping(store_key, secret)


def first_record(slot: Slot, store_key: bytes, key: str) -> KeysRecord:
    """The record of a store that is made with this slot. key: key of the record's object."""
    draft = KeysRecord((slot,), slot.created_ns, WriteId(bytes(WriteId.length)), bytes(MAC_BYTES))
    return draft.sign(store_key, key)


def _slot(found: Fields) -> Slot:
    kind: Any = take_known_text(found, "kind", _KINDS)
    names = ("passes", "lanes", "memory_kib")
    costs = {name: found.integer(name, maximum=1 << 32) if kind == "passphrase" else 0 for name in names}
    return Slot(
        id=found.text("id"),
        kind=kind,
        label=found.text("label"),
        created_ns=found.integer("created_ns"),
        salt=_hex(found, "salt"),
        wrapped=_hex(found, "wrapped"),
        format=_wrap_format(found),
        **costs,
    )


def _wrap_format(found: Fields) -> int:
    if found.is_null("format"):
        return _PLAIN_WRAP
    number = found.integer("format")
    check_format(number, COMMITTING_WRAP, what=f"a slot of {found.what}")
    return number


def _hex(found: Fields, name: str) -> bytes:
    try:
        return bytes.fromhex(found.text(name))
    except ValueError:
        raise found.damage_error(name, "is not hexadecimal") from None


_SLOTS = form(
    lambda slots: [{**slot.body, "wrapped": slot.wrapped.hex()} for slot in slots],
    lambda found, name: tuple(_slot(each) for each in found.objects(name)),
)
_MAC = form(lambda mac: mac and mac.hex(), lambda found, name: None if found.is_null(name) else _hex(found, name))


@dataclass(frozen=True, slots=True)
class KeysRecord(Record):
    """All slots of a store, in the order in which they were made; at least one. mac: by the store
    key, over the whole record; None: written by a version without MACs."""

    record: ClassVar[str] = "keys"
    formats: ClassVar[tuple[int, ...]] = (1, 2)
    slots: tuple[Slot, ...] = field(metadata=_SLOTS)
    created_ns: int
    write_id: WriteId
    mac: bytes | None = field(default=None, metadata=_MAC)

    def __post_init__(self) -> None:
        if not self.slots or len({slot.id for slot in self.slots}) != len(self.slots):
            raise InvalidInputError("a store has one slot or more, each with an id of its own")
        if len(self.slots) > MOST_SLOTS:
            raise InvalidInputError(
                f"a store has at most {MOST_SLOTS} keys", hint=f"Remove an unused one: {Command('key', 'list')}."
            )
        if any(len(slot.wrapped) != _WRAPPED_BYTES[slot.format] for slot in self.slots):
            raise InvalidInputError("a slot wraps a key of another length")
        if self.mac is None and any(slot.format != _PLAIN_WRAP for slot in self.slots):
            raise InvalidInputError("the keys of this version have a MAC (field 'mac')")
        if self.mac is not None and len(self.mac) != MAC_BYTES:
            raise InvalidInputError(f"the MAC of keys has {MAC_BYTES} bytes")

    @property
    def format_number(self) -> int:
        """2 is refused by versions that would write the slots again without the fields that they do
        not know."""
        return 1 if self.mac is None else 2

    def sign(self, store_key: bytes, key: str, *, slots: tuple[Slot, ...] | None = None) -> KeysRecord:
        """The record with its MAC and a new write id. key: key of its object. slots: None:
        unchanged."""
        write_id = WriteId(clock.random_bytes(WriteId.length))
        changed = replace(self, slots=self.slots if slots is None else slots, write_id=write_id, mac=bytes(MAC_BYTES))
        return replace(changed, mac=changed._mac(store_key, key))

    def is_signed(self, store_key: bytes, key: str) -> bool:
        """Whether a holder of the store key wrote the whole record, for this object. True for
        records without a MAC, where that is unknown."""
        import hmac

        return self.mac is None or hmac.compare_digest(self.mac, self._mac(store_key, key))

    def _mac(self, store_key: bytes, key: str) -> bytes:
        body = {name: value for name, value in self._body().items() if name != "mac"}
        hashed = blake3(store_key, derive_key_context="cowfs keys record v1").digest()
        return blake3(canonical.encode({**self.extra, **body, "key": key}), key=hashed).digest()
