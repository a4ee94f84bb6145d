"""Who may open an encrypted store: `keys/<n>`, a record of slots, each of which wraps the store key
for one secret.

    passphrase   a text that somebody remembers: Argon2id (RFC 9106) makes the wrapping key, with salt and costs from the slot
    key          32 random bytes or more, of a key file or a command: BLAKE3's derive_key makes it, with the slot's salt

The store key is wrapped by AES-256-GCM. Associated data are the canonical JSON of the slot's other
fields, so nobody changes what a slot says about itself. Whether the unwrapped key is the store's is
told by the check value in cowfs.json. The library is loaded when a slot is used: most stores have
none. The record itself is not sealed: it is read before there is a
key. docs/format/keys.md has every field.

Costs that a slot asks for are bounded before they are paid. Pure, and slow for passphrases: 64 MiB
and some 0.2 s of processor time for each slot that is tried. Not here: where secrets come from and
which slot is tried (`store.unlocking`).
"""

from __future__ import annotations

import re
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn

from blake3 import blake3

from cowfs import clock, redaction
from cowfs.errors import InvalidInputError, UnsupportedFormatError
from cowfs.format import canonical
from cowfs.format.fields import Fields
from cowfs.format.record import Record, check_one_of, form, known_text
from cowfs.ids import WriteId
from cowfs.values import dataclass

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
_NONCE = bytes(12)  # of a key that wraps this one thing: each slot has a salt of its own

PASSES, LANES, MEMORY_KIB = 3, 4, 64 << 10
"""The second recommended option of RFC 9106, for machines without 2 GiB to spare."""
MOST_PASSES, MOST_LANES, MOST_MEMORY_KIB = 16, 64, 1 << 20


@dataclass(frozen=True, slots=True)
class Secret:
    """What somebody opens a store with. InvalidInputError: it is empty, or too short for a key."""

    kind: SecretKind
    value: bytes = field(repr=False)

    def __post_init__(self) -> None:
        check_one_of(self.kind, _KINDS, "kind of secret")
        if not self.value or len(self.value) > LONGEST_SECRET_BYTES:
            raise InvalidInputError("a passphrase has at least one character", hint="Choose a long one.")
        if self.kind == "key" and len(self.value) < SHORTEST_KEY_BYTES:
            raise InvalidInputError(
                f"a key has at least {SHORTEST_KEY_BYTES} bytes, and this one has {len(self.value)}",
                hint=f"Make one: `head -c {SHORTEST_KEY_BYTES} /dev/urandom > FILE`. What is shorter is a passphrase: "
                "COWFS_ENCRYPTION_PASSPHRASE.",
            )
        redaction.hide(self.value.decode(errors="replace"))

    def __reduce__(self) -> NoReturn:
        raise TypeError("secrets are not pickled")


@dataclass(frozen=True, slots=True)
class Slot:
    """The store key, wrapped for one secret. id: 8 hex digits, by which people name the slot.
    passes, lanes, memory_kib: costs of Argon2id, 0 for a key."""

    id: str
    kind: SecretKind
    label: str
    created_ns: int
    salt: bytes
    passes: int
    lanes: int
    memory_kib: int
    wrapped: bytes = b""

    def __post_init__(self) -> None:
        check_one_of(self.kind, _KINDS, "kind of slot")
        is_passphrase = self.kind == "passphrase"
        for value, most in ((self.passes, MOST_PASSES), (self.lanes, MOST_LANES), (self.memory_kib, MOST_MEMORY_KIB)):
            if not (1 <= value <= most if is_passphrase else value == 0):
                raise InvalidInputError(f"a slot of kind {self.kind} does not cost {value}")
        if len(self.salt) != SALT_BYTES or not _ID.fullmatch(self.id):
            raise InvalidInputError(f"a slot has a salt of {SALT_BYTES} bytes, and an id of 8 hexadecimal digits")
        if len(self.label) > LONGEST_LABEL or not self.label.isprintable():
            raise InvalidInputError(
                f"a label has at most {LONGEST_LABEL} characters, all printable", hint="Choose another."
            )

    @property
    def body(self) -> dict[str, Any]:
        """All but the wrapped key."""
        costs = {"passes": self.passes, "lanes": self.lanes, "memory_kib": self.memory_kib}
        return {
            "id": self.id,
            "kind": self.kind,
            "label": self.label,
            "created_ns": self.created_ns,
            "salt": self.salt.hex(),
            **(costs if self.kind == "passphrase" else {}),
        }

    def unwrap(self, secret: Secret) -> bytes | None:
        """The store key; None: this secret does not open the slot."""
        from cryptography.exceptions import InvalidTag

        if secret.kind != self.kind:
            return None
        try:
            return self._cipher(secret).decrypt(_NONCE, self.wrapped, canonical.encode(self.body))
        except (InvalidTag, ValueError):  # the latter: shorter than a tag
            return None

    def wrapping(self, store_key: bytes, secret: Secret) -> Slot:
        return replace(self, wrapped=self._cipher(secret).encrypt(_NONCE, store_key, canonical.encode(self.body)))

    def _cipher(self, secret: Secret) -> AESGCM:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

        if self.kind == "key":
            context = "cowfs key of a slot v1"
            return AESGCM(blake3(self.salt + secret.value, derive_key_context=context).digest())
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
        return AESGCM(function.derive(secret.value))


def new_slot(store_key: bytes, secret: Secret, *, label: str = "") -> Slot:
    costs = (PASSES, LANES, MEMORY_KIB) if secret.kind == "passphrase" else (0, 0, 0)
    id, salt = clock.random_bytes(4).hex(), clock.random_bytes(SALT_BYTES)
    return Slot(id, secret.kind, label, clock.now_ns(), salt, *costs).wrapping(store_key, secret)


def _slot(found: Fields) -> Slot:
    kind: Any = known_text(found, "kind", _KINDS)
    names = ("passes", "lanes", "memory_kib")
    costs = {name: found.integer(name, maximum=1 << 32) if kind == "passphrase" else 0 for name in names}
    return Slot(
        id=found.text("id"),
        kind=kind,
        label=found.text("label"),
        created_ns=found.integer("created_ns"),
        salt=_hex(found, "salt"),
        wrapped=_hex(found, "wrapped"),
        **costs,
    )


def _hex(found: Fields, name: str) -> bytes:
    try:
        return bytes.fromhex(found.text(name))
    except ValueError:
        raise found.damaged(name, "is not hexadecimal") from None


_SLOTS = form(
    lambda slots: [{**slot.body, "wrapped": slot.wrapped.hex()} for slot in slots],
    lambda found, name: tuple(_slot(each) for each in found.objects(name)),
)


@dataclass(frozen=True, slots=True)
class KeysRecord(Record):
    """All slots of a store, in the order in which they were made; never none."""

    record: ClassVar[str] = "keys"
    slots: tuple[Slot, ...] = field(metadata=_SLOTS)
    created_ns: int
    write_id: WriteId

    def __post_init__(self) -> None:
        if not self.slots or len({slot.id for slot in self.slots}) != len(self.slots):
            raise InvalidInputError("a store has one slot or more, each with an id of its own")
