"""How an encrypted store is opened: where its secret comes from, and how the secret gives the key.

    given       to this process for one store (`Access.key`): a secret, or the key itself, as a daemon has it
    typed       by a person, for every store of this process (`remember`)
    environment COWFS_ENCRYPTION_PASSPHRASE, COWFS_ENCRYPTION_KEY_FILE or COWFS_ENCRYPTION_KEY_COMMAND

The first that exists is used. A secret is tried on the slots of its kind in the newest keys record,
before anything else of the store is read; the unwrapped key must have the check value in
cowfs.json. A slot that opens to another key is treated as one that does not open: an attacker who
can write to the store may have put it there, to learn from the next request whether it opened. A
key that is given costs no request.

Slots are listed and changed only as far as the record's MAC covers them.

A command is split as a shell would and run without one; it prints the key. The white space at the
end of a text, of a file or a command, is ignored; other bytes are used unchanged. This module
writes no secret anywhere, and keeps only a typed one once the key is known.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

from cowfs.base import log, redaction
from cowfs.base.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptError,
    CowfsError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
    unreadable,
)
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.format import keys
from cowfs.format.key_slots import KeysRecord, Secret, Slot
from cowfs.format.sealing import PLAIN
from cowfs.machine.known_stores import OF_STORE
from cowfs.store import remembering
from cowfs.store.credentials import commands
from cowfs.store.refs import refs
from cowfs.store.sealed import sealing_of

if TYPE_CHECKING:
    from cowfs.format.store_record import StoreRecord
    from cowfs.store.contract import ObjectStore

PASSPHRASE = "COWFS_ENCRYPTION_PASSPHRASE"
KEY_FILE = "COWFS_ENCRYPTION_KEY_FILE"
KEY_COMMAND = "COWFS_ENCRYPTION_KEY_COMMAND"
VARIABLES = (PASSPHRASE, KEY_FILE, KEY_COMMAND)
MEMORY = "COWFS_ENCRYPTION_MEMORY_MIB"
MOST_MEMORY_KIB = 256 << 10
"""That a slot may cost, unless `MEMORY` says otherwise."""
SHORT_PASSPHRASE = 12
LEAST_DIFFERENT_BYTES = 6
"""In a key. One of 32 random decimal digits has fewer once in 10^7, one of bytes never."""
LONGEST_REPEATED = 16
REQUIRED = "COWFS_ENCRYPTION"
"""`required`: no store is used or made that is not encrypted."""
_LOOKS = 3
HINT = (
    f"Set {PASSPHRASE}, {KEY_FILE} or {KEY_COMMAND}, or in Python give Storage(encryption_key=…). "
    f"`cowfs` asks for a passphrase on a terminal."
)
LOCKED = "encrypted_store"
"""Of an error's details: the URL of a store that a passphrase is wanted for."""


_log = log.get("store")


class KeySource(Protocol):
    """The source of one store's secret. secret may wait; None: there is no secret."""

    def secret(self) -> Secret | None: ...


@dataclass(frozen=True, slots=True)
class StoreKey:
    """The key itself, of a store that was opened by this process or by the one that started it."""

    value: bytes = field(repr=False)

    def __post_init__(self) -> None:
        redaction.hide(self.value.hex())

    def __reduce__(self) -> NoReturn:
        raise TypeError("keys are not pickled")

    def secret(self) -> None:
        return None


class _Ambient:
    """The secret that a person typed, else the environment's."""

    def secret(self) -> Secret | None:
        return _typed if _typed is not None else _of_environment()


AMBIENT_KEY: KeySource = _Ambient()
_warned_of: set[str] = set()
_typed: Secret | None = None


def remember(secret: Secret | None) -> None:
    """Sets the secret for stores that this process opens from now on without another secret."""
    global _typed
    _typed = secret


def of_file(path: str | os.PathLike[str]) -> Secret:
    try:
        with open(path, "rb") as file:
            data = file.read((1 << 16) + 1)
            found = os.fstat(file.fileno())
    except OSError as error:
        raise unreadable(
            error,
            f"the key file {os.fspath(path)} cannot be read",
            hint="Name the file that has the key."
            if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError)
            else "Make it readable for you alone.",
        ) from error
    if not (key := _trim(data)):
        raise AccessDeniedError(
            f"the key file {os.fspath(path)} is empty",
            hint="Name the file that has the key. If it is being replaced, try again.",
        )
    if stat.S_ISREG(found.st_mode) and found.st_mode & 0o077 and os.fspath(path) not in _warned_of:
        # Not refused: Kubernetes mounts secrets with 0644, and no other user is in the container.
        _warned_of.add(os.fspath(path))
        _log.warning(
            "others on this machine may read the key file %s (mode %04o): `chmod 600` keeps it to you",
            os.fspath(path),
            stat.S_IMODE(found.st_mode),
        )
    return Secret("key", key)


def of_command(command: str) -> Secret:
    """Runs it. AccessDeniedError: it fails, or prints no key."""
    status, printed = commands.run(words_of(command), _failure)
    if status != 0:
        raise _failure(f"ended with exit status {status}")
    if not (key := _trim(printed)):
        raise _failure("printed nothing")
    return Secret("key", key)


def words_of(command: object) -> list[str]:
    """InvalidInputError: not a command."""
    return commands.words_of(command, "the command for a key is none")


S = TypeVar("S", bound=Secret | None)


def steady(ask: Callable[[], S]) -> S:
    """The secret that a new slot is made with. InvalidInputError: it is another one the next time,
    as of a command that makes a new key whenever it runs; nothing would open the slot. Or it is no
    random key. A passphrase that is short is warned of."""
    secret = ask()
    if secret is not None:
        _require_strength(secret)
    if secret is not None and secret.kind == "key" and ask() != secret:
        raise InvalidInputError(
            "the key differs each time it is asked for, and would not open the store again",
            hint="Name a file that stays, or a command that prints the same key each time it runs: one that decrypts a key "
            "(`aws kms decrypt …`), not one that makes one.",
        )
    return secret


def _require_strength(secret: Secret) -> None:
    """As far as can be seen. Only of secrets for new slots: what opens a store goes on to."""
    if secret.kind == "passphrase":
        count = len(secret.value.decode(errors="replace"))
        if count < SHORT_PASSPHRASE:
            _log.warning(
                "the passphrase is short (%d of %d characters or more): anyone with a copy of the store can try guesses at it. "
                f"Five random words make a good one; {Command('key', 'add')} adds it, and {Command('key', 'remove')} removes this one",
                count,
                SHORT_PASSPHRASE,
            )
        return
    value = secret.value
    if len(set(value)) < LEAST_DIFFERENT_BYTES or any(value[n:] == value[:-n] for n in range(1, LONGEST_REPEATED)):
        raise InvalidInputError(
            "the key repeats itself, so it is not random, and a key is not made slower to guess as a passphrase is",
            hint="Make a random one: `(umask 077; head -c 32 /dev/urandom > FILE)`.",
        )


def key_of(store: ObjectStore, record: StoreRecord, source: KeySource) -> bytes:
    """The store key. AccessDeniedError: there is no secret, or it is not one of the store's."""
    from cowfs.format.sealed import is_key_of

    if isinstance(source, StoreKey):
        if not is_key_of(source.value, record):
            raise _wrong(store)
        return source.value
    if (secret := source.secret()) is None:
        raise AccessDeniedError(
            f"{store.url} is encrypted, and there is no passphrase or key for it",
            hint=HINT,
            details={LOCKED: store.url},
        )
    slots = newest_slots(store)[1]
    found = find_key(slots, secret, lambda key: is_key_of(key, record))
    if found is None:
        raise _wrong(store, _too_dear(slots, secret))
    return found


def find_key(record: KeysRecord, secret: Secret, fits: Callable[[bytes], bool]) -> bytes | None:
    """The first key that fits, of those that the secret unwraps."""
    left_out = _too_dear(record, secret)
    for slot in record.slots:
        if slot not in left_out and (found := slot.unwrap(secret)) is not None and fits(found):
            return found
    return None


def _too_dear(record: KeysRecord, secret: Secret) -> list[Slot]:
    most = _most_memory_kib()
    return [slot for slot in record.slots if slot.kind == secret.kind and slot.memory_kib > most]


def _most_memory_kib() -> int:
    text = os.environ.get(MEMORY, "")
    if not text:
        return MOST_MEMORY_KIB
    if not text.isascii() or not text.isdigit():
        raise InvalidInputError(f"{MEMORY} is {text!r:.60}", hint="Give MiB, as a whole number.")
    return int(text) << 10


def store_key_of(store: object) -> StoreKey | None:
    """Of a store that has been opened; None: it is not encrypted."""
    sealing = sealing_of(store)
    if sealing is PLAIN:
        return None
    from cowfs.format.sealed import Sealed

    return StoreKey(sealing.store_key) if isinstance(sealing, Sealed) else None


def newest_slots(store: ObjectStore) -> tuple[int, KeysRecord]:
    """Number and record. Looked for again when it was just replaced: older ones are deleted."""
    for _ in range(_LOOKS):
        with suppress(NotFoundError):
            if (found := refs.newest(store, refs.key_slots())) is not None:
                return found
    raise NotFoundError(
        f"{store.url} is encrypted, and its keys are gone: there is nothing below {keys.KEYS}",
        hint="Without them it cannot be opened. Bring them back from a copy or from the bucket's history.",
        details={"missing": keys.KEYS},
    )


def authentic_slots(store: ObjectStore) -> tuple[int, KeysRecord]:
    """As `newest_slots`, for a store that has been opened. CorruptError: they were changed without
    the store's key. InvalidStateError: this machine has seen later ones. Only a record that is
    signed is remembered: an attacker could put an unsigned one with a higher number."""
    ref = slots_in_memory()
    known = remembering.read_mark(store, ref)
    number, record = newest_slots(store)
    key = _key_to_sign_with(store)
    if record.is_signed(key, keys.key_slots(number)) and (record.mac is not None or known is None):
        if record.mac is not None:
            remembering.compare(store, ref, known, (number, record), partial(refs.read, store, ref))
    else:
        raise CorruptError(
            f"the keys of {store.url} were changed without the store's key: IDs and labels there cannot be trusted",
            hint=f"Restore the objects below {keys.KEYS}, from the bucket's history or a copy, and check who may write to the "
            "bucket. Passphrases and keys that open the store still open it. If you have restored an older copy of the store yourself, "
            f"{Command('store', 'accept')} accepts it.",
            details={"key": keys.key_slots(number)},
        )
    return number, record


def slots_in_memory() -> refs.Ref[KeysRecord]:
    return replace(refs.key_slots(), series=(OF_STORE, "keys"))


def _key_to_sign_with(store: ObjectStore) -> bytes:
    key = store_key_of(store)
    assert key is not None
    return key.value


def change_slots(
    store: ObjectStore, change: Callable[[tuple[Slot, ...]], tuple[Slot, ...]], *, may_repeat: bool = True
) -> None:
    """Replaces the slots by the result of `change` for the newest ones. `change` is called again
    until it returns its argument.

    Older records are deleted: a secret that was removed must not open them. So numbers have gaps,
    and a record that was put after one that is no longer the newest has no effect: reading the
    newest one again shows whether it took effect. If it did not, or the change was undone since,
    the change is made again; with may_repeat=False: ConflictError.
    """
    was_made = False
    while True:
        number, record = authentic_slots(store)
        _delete_older(store, number)
        if (slots := change(record.slots)) == record.slots:
            return
        if was_made and not may_repeat:
            raise ConflictError(
                f"the keys of {store.url} were changed by others at the same time",
                hint=f"Look at them ({Command('key', 'list')}), and repeat the changes that are missing.",
            )
        changed = record.sign(_key_to_sign_with(store), keys.key_slots(number + 1), slots=slots)
        try:
            refs.append(store, refs.key_slots(), number + 1, changed)
            was_made = True
        except ConflictError:
            pass  # another process has changed them
        except UnavailableError:
            if not _is_replaced(store, number + 1):
                raise
            was_made = True  # perhaps: it is replaced, and deleted as an older one


def _is_replaced(store: ObjectStore, number: int) -> bool:
    """By one behind it, as far as the store tells."""
    with suppress(CowfsError):
        return newest_slots(store)[0] > number
    return False


def _delete_older(store: ObjectStore, than: int) -> None:
    found = {info.key: keys.parse_number(info.key) for info in store.list(keys.KEYS)}
    store.delete([key for key, number in found.items() if number is not None and number < than])


def is_encryption_required() -> bool:
    """InvalidInputError: the variable says something else."""
    if (value := os.environ.get(REQUIRED, "")) not in ("", "required"):
        raise InvalidInputError(
            f"{REQUIRED} is {value!r}", hint=f"Set it to `required`, or unset it. A passphrase goes into {PASSPHRASE}."
        )
    return bool(value)


def has_ambient_secret() -> bool:
    """Whether a secret was given for every store that is opened."""
    return _typed is not None or any(os.environ.get(name) for name in VARIABLES)


def find_in_environment() -> tuple[str, str] | None:
    """Variable and value. InvalidInputError: several are set."""
    given = [(name, value) for name in VARIABLES if (value := os.environ.get(name))]
    if len(given) > 1:
        raise InvalidInputError(
            f"{' and '.join(name for name, _ in given)} are set, and one is used", hint="Unset all but one."
        )
    return given[0] if given else None


def _of_environment() -> Secret | None:
    made: dict[str, Callable[[str], Secret]] = {PASSPHRASE: passphrase, KEY_FILE: of_file, KEY_COMMAND: of_command}
    found = find_in_environment()
    return made[found[0]](found[1]) if found is not None else None


def passphrase(text: str) -> Secret:
    return Secret("passphrase", text.encode(errors="surrogateescape"))


def _trim(data: bytes) -> bytes:
    """Text without what an editor or `echo` puts at its end."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    return text.rstrip().encode() if all(each.isprintable() or each.isspace() for each in text) else data


def _failure(how: str) -> AccessDeniedError:
    return AccessDeniedError(
        f"the command for the key of an encrypted store {how}",
        hint="Run it by hand: it must print the key, and end with status 0.",
    )


def _wrong(store: ObjectStore, left_out: Sequence[Slot] = ()) -> AccessDeniedError:
    """left_out: slots that were not tried."""
    untried = ""
    if left_out:
        most_mib = max(slot.memory_kib for slot in left_out) >> 10
        untried = (
            f"{len(left_out)} of its keys were not tried, because they want up to {most_mib} MiB of memory; cowfs makes "
            f"none such. If they are yours: {MEMORY}={most_mib}. "
        )
    return AccessDeniedError(
        f"this passphrase or key does not open {store.url}",
        hint=f"{untried}{Command('key', 'list')}, run by a person who can open it, shows its passphrases and keys; if it should "
        f"open it, {keys.STORE} or {keys.KEYS} there may have been replaced. {HINT}",
        details={LOCKED: store.url},
    )
