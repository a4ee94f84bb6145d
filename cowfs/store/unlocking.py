"""How an encrypted store is opened: where its secret comes from, and from the secret to the key.

    given       to this process for one store (`Access.key`): a secret, or the key itself, as a daemon has it
    typed       by a person, for every store of this process (`remember`)
    environment COWFS_ENCRYPTION_PASSPHRASE, COWFS_ENCRYPTION_KEY_FILE or COWFS_ENCRYPTION_KEY_COMMAND

The first that is there counts. A secret is tried on the slots of its kind in the newest keys
record, before anything else of the store is read; what it unwraps must have the check value in
cowfs.json. A key that is given costs no request.

A command is split as a shell would and run without one; it prints the key. Text, of a file or a
command, counts without the white space at its end; other bytes count as they are. Nothing here
writes a secret anywhere, and none is kept once the key is known, but for the typed one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING, NoReturn, Protocol, TypeVar

from cowfs import clock, redaction
from cowfs.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptError,
    CowfsError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
    unreadable,
)
from cowfs.format import keys
from cowfs.format.key_slots import KeysRecord, Secret, Slot
from cowfs.format.sealing import PLAIN
from cowfs.ids import WriteId
from cowfs.store import commands, refs
from cowfs.store.sealed import sealing_of
from cowfs.values import dataclass

if TYPE_CHECKING:
    from cowfs.format.store_record import Cipher
    from cowfs.store.contract import ObjectStore

PASSPHRASE = "COWFS_ENCRYPTION_PASSPHRASE"
KEY_FILE = "COWFS_ENCRYPTION_KEY_FILE"
KEY_COMMAND = "COWFS_ENCRYPTION_KEY_COMMAND"
VARIABLES = (PASSPHRASE, KEY_FILE, KEY_COMMAND)
_LOOKS = 3
HINT = (
    f"Set {PASSPHRASE}, {KEY_FILE} or {KEY_COMMAND}, or in Python give Storage(encryption_key=…). "
    "`cowfs` asks for a passphrase on a terminal."
)
LOCKED = "encrypted_store"
"""Of an error's details: the URL of a store that a passphrase is wanted for."""


class KeySource(Protocol):
    """Of one store. secret may wait; None: there is none."""

    def secret(self) -> Secret | None: ...


@dataclass(frozen=True, slots=True)
class StoreKey:
    """The key itself: of a store that this process, or the one that started it, has opened."""

    value: bytes = field(repr=False)

    def __post_init__(self) -> None:
        redaction.hide(self.value.hex())

    def __reduce__(self) -> NoReturn:
        raise TypeError("keys are not pickled")

    def secret(self) -> None:
        return None


class _Ambient:
    """What was typed, else what the environment names."""

    def secret(self) -> Secret | None:
        return _typed if _typed is not None else _of_environment()


AMBIENT_KEY: KeySource = _Ambient()
_typed: Secret | None = None


def remember(secret: Secret | None) -> None:
    """For every store that this process opens from now on without another one."""
    global _typed
    _typed = secret


def of_file(path: str | os.PathLike[str]) -> Secret:
    try:
        with open(path, "rb") as file:
            data = file.read((1 << 16) + 1)
    except OSError as error:
        raise unreadable(
            error,
            f"the key file {os.fspath(path)} cannot be read",
            hint="Name the file that has the key."
            if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError)
            else "Make it readable for you alone.",
        ) from error
    if not (key := _trimmed(data)):
        raise AccessDeniedError(
            f"the key file {os.fspath(path)} is empty",
            hint="Name the file that has the key. If it is being replaced, try again.",
        )
    return Secret("key", key)


def of_command(command: str) -> Secret:
    """Runs it. AccessDeniedError: it fails, or prints no key."""
    status, printed = commands.run(words_of(command), _failed)
    if status != 0:
        raise _failed(f"ended with exit status {status}")
    if not (key := _trimmed(printed)):
        raise _failed("printed nothing")
    return Secret("key", key)


def words_of(command: object) -> list[str]:
    """InvalidInputError: not a command."""
    return commands.words_of(command, "the command for a key is none")


S = TypeVar("S", bound=Secret | None)


def steady(ask: Callable[[], S]) -> S:
    """The secret that a new slot is made with. InvalidInputError: it is another one the next time,
    as of a command that makes a new key whenever it runs; nothing would open the slot."""
    secret = ask()
    if secret is not None and secret.kind == "key" and ask() != secret:
        raise InvalidInputError(
            "the key is another one each time it is asked for, and would open nothing",
            hint="Name a file that stays, or a command that prints the same key whenever it runs: one that decrypts a key "
            "(`aws kms decrypt …`), not one that makes one.",
        )
    return secret


def key_of(store: ObjectStore, cipher: Cipher, source: KeySource) -> bytes:
    """The store key. AccessDeniedError: there is no secret, or it is not one of the store's."""
    import hmac

    if isinstance(source, StoreKey):
        if not hmac.compare_digest(_check_of(source.value), cipher.check):
            raise _wrong(store)
        return source.value
    if (secret := source.secret()) is None:
        raise AccessDeniedError(
            f"{store.url} is encrypted, and there is no passphrase or key for it",
            hint=HINT,
            details={LOCKED: store.url},
        )
    found = opened(newest_slots(store)[1], secret)
    if found is None:
        raise _wrong(store)
    if not hmac.compare_digest(_check_of(found), cipher.check):
        raise CorruptError(
            f"the keys of {store.url} are those of another store",
            hint=f"Somebody has replaced {keys.KEYS} or {keys.STORE} there.",
        )
    return found


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


def change_slots(
    store: ObjectStore, change: Callable[[tuple[Slot, ...]], tuple[Slot, ...]], *, may_repeat: bool = True
) -> None:
    """Replaces the slots by what `change` makes of the newest ones. It is called until it has
    nothing to do, and returns then what it was given.

    Older records are deleted: a secret that was taken out must not open them. So numbers have gaps,
    and a record that was made behind one that is not the newest any more counts for nothing: that
    it does is seen when the newest one is read again. If it did not, or somebody has undone the
    change since, it is made again; not with may_repeat=False: ConflictError.
    """
    was_made = False
    while True:
        number, record = newest_slots(store)
        _delete_older(store, number)
        if (slots := change(record.slots)) == record.slots:
            return
        if was_made and not may_repeat:
            raise ConflictError(
                f"the keys of {store.url} were changed by others at the same time",
                hint="Look at them (`cowfs key list`), and repeat what is missing.",
            )
        write_id = WriteId(clock.random_bytes(WriteId.length))
        try:
            refs.append(store, refs.key_slots(), number + 1, replace(record, slots=slots, write_id=write_id))
            was_made = True
        except ConflictError:
            pass  # somebody else has changed them
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


def opened(record: KeysRecord, secret: Secret) -> bytes | None:
    for slot in record.slots:
        if (found := slot.unwrap(secret)) is not None:
            return found
    return None


def _check_of(key: bytes) -> bytes:
    from cowfs.format.sealed import check_value

    return check_value(key)


def named_by_environment() -> tuple[str, str] | None:
    """Variable and value. InvalidInputError: several are set."""
    given = [(name, value) for name in VARIABLES if (value := os.environ.get(name))]
    if len(given) > 1:
        raise InvalidInputError(
            f"{' and '.join(name for name, _ in given)} are set, and one is used", hint="Unset all but one."
        )
    return given[0] if given else None


def _of_environment() -> Secret | None:
    made: dict[str, Callable[[str], Secret]] = {PASSPHRASE: passphrase, KEY_FILE: of_file, KEY_COMMAND: of_command}
    found = named_by_environment()
    return made[found[0]](found[1]) if found is not None else None


def passphrase(text: str) -> Secret:
    return Secret("passphrase", text.encode(errors="surrogateescape"))


def _trimmed(data: bytes) -> bytes:
    """Text without what an editor or `echo` puts at its end."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    return text.rstrip().encode() if all(each.isprintable() or each.isspace() for each in text) else data


def _failed(how: str) -> AccessDeniedError:
    return AccessDeniedError(
        f"the command for the key of an encrypted store {how}",
        hint="Run it by hand: it must print the key, and end with status 0.",
    )


def _wrong(store: ObjectStore) -> AccessDeniedError:
    return AccessDeniedError(
        f"this passphrase or key does not open {store.url}",
        hint=f"`cowfs key list` of somebody who can open it shows what does. {HINT}",
        details={LOCKED: store.url},
    )
