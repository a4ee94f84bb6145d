"""Compares a store with this machine's memory of it, to detect a store that was replaced or
restored to an earlier state.

A store that `open_store` has opened has a memory, of this machine (`machine.known_stores`): the
store's id at that URL, whether it is encrypted, and the highest record of each volume's heads and
of each tag, with its `check`. Heads and tags are never deleted while their volume lives (`refs`),
so the newest number never becomes lower, and a number never names another record.

    known = read_mark(store, ref)   first, so that a record that another process of this machine sees meanwhile is no contradiction
    …                               look for the newest record
    compare(store, ref, known, …)   InvalidStateError, or it is remembered

If the newest head does not follow the known one directly, the head after the known one is read as
well: it names its predecessor, so a store that shows a different line than before is detected.
docs/decisions/0085-what-a-machine-has-seen.md
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

from cowfs.base.errors import CorruptError, CowfsError, InvalidStateError, NotFoundError
from cowfs.base.hints import Command
from cowfs.base.quantities import format_time
from cowfs.format.records import HeadRecord, StoreRecord
from cowfs.machine.known_stores import OF_STORE, PLAIN, Known, Mark

if TYPE_CHECKING:
    from cowfs.base.ids import StoreId
    from cowfs.store.contract import ObjectStore
    from cowfs.store.refs.refs import Ref, RefRecord

R = TypeVar("R", bound="RefRecord")
NONE: Mapping[str, Mark] = {}


class Memory(Protocol):
    """Of one store. A sequence is named as by `Ref.series`."""

    def load(self) -> Known | None: ...

    def remember(self, store_id: StoreId, cipher: str) -> None: ...

    def forget(self) -> None: ...

    def newest(self, volume: str, series: str) -> Mark | None: ...

    def marks(self, volume: str) -> Mapping[str, Mark]: ...

    def volumes(self) -> list[str]: ...

    def saw(self, volume: str, series: str, number: int, check: str, before: Mark | None) -> None: ...


@runtime_checkable
class HasMemory(Protocol):
    @property
    def memory(self) -> Memory | None: ...


def memory_of(store: object) -> Memory | None:
    return store.memory if isinstance(store, HasMemory) else None


def cipher_of(record: StoreRecord) -> str:
    """As a memory keeps it."""
    return PLAIN if record.cipher is None else record.cipher.check.hex()


def require_same(store: ObjectStore, record: StoreRecord) -> None:
    """InvalidStateError: another store was there before, or it had another key."""
    memory = memory_of(store)
    if memory is None or (known := memory.load()) is None:
        return
    cipher = cipher_of(record)
    if known.cipher not in (None, PLAIN) and cipher == PLAIN:
        what = "is not encrypted, and was"
    elif known.store_id != record.store_id:
        what = f"is another store ({record.store_id.hex()}) than the one ({known.store_id.hex()}) that was there"
    elif known.cipher not in (None, cipher):
        what = "has another key than" if known.cipher != PLAIN else "is encrypted, and was not"
    else:
        return
    raise InvalidStateError(
        f"{store.url} {what} when this machine used it last, about {day(known.last_ns)}",
        hint="Another store may have been put in its place. Nothing of it was used. Is the URL right, and the right disk "
        f"mounted? If this is the store that you mean, {Command('store', 'accept')}, or storage.accept_store(), accepts it.",
        details={"known_store_id": known.store_id.hex(), "store_id": record.store_id.hex()},
    )


def remember(store: ObjectStore, record: StoreRecord) -> None:
    """It was opened."""
    if (memory := memory_of(store)) is not None:
        memory.remember(record.store_id, cipher_of(record))


def read_mark(store: ObjectStore, ref: Ref[R]) -> Mark | None:
    memory = memory_of(store)
    return memory.newest(*ref.series) if memory is not None and ref.series is not None else None


def read_marks(store: ObjectStore, volume: str) -> Mapping[str, Mark]:
    """As `read_mark`, of all sequences of a volume."""
    memory = memory_of(store)
    return memory.marks(volume) if memory is not None else NONE


def volumes(store: ObjectStore) -> list[str]:
    """Volumes with remembered records. Their heads exist for good, deleted or not."""
    memory = memory_of(store)
    return memory.volumes() if memory is not None else []


def read_all_marks(store: ObjectStore) -> dict[str, Mapping[str, Mark]]:
    """Marks of all volumes with remembered records."""
    return {volume: read_marks(store, volume) for volume in volumes(store)}


def find_unlisted(
    known: Mapping[str, Mapping[str, Mark]], heads: Container[str], tags: Container[tuple[str, str]]
) -> Iterator[tuple[str, str, Mark]]:
    """Volume, tag ("": its heads) and mark of remembered records that are not among these: a list
    of the store does not show them, though no record of these sequences is ever deleted."""
    for volume, marks in known.items():
        for series, mark in marks.items():
            tag = series.partition("tag@")[2]
            if (volume, tag) not in tags if tag else volume not in heads:
                yield volume, tag, mark


def compare(
    store: ObjectStore,
    ref: Ref[R],
    known: Mark | None,
    found: tuple[int, R] | None,
    read: Callable[[int], object],
) -> None:
    """found: the newest record that the store has shown since `load` was asked for. read: another
    one of them. InvalidStateError: the store was put back, or shows another line. That there is no
    head at all is not judged here."""
    memory = memory_of(store)
    if memory is None or ref.series is None:
        return
    if known is not None:
        if found is None and ref.series[1] == "head":
            return  # `volumes` says whether the volume is damaged, or gone
        if found is None or found[0] < known.number:
            raise rollback_error(store, ref, known, found[0] if found is not None else 0)
        if found[0] == known.number:
            if found[1].check != known.check:
                raise _another_error(store, ref, known, known.number)
            return
        if not _is_behind(store, ref, known, found, read):
            return
    if found is not None:
        memory.saw(*ref.series, found[0], found[1].check, known)


def store_mark(store: ObjectStore, ref: Ref[R], known: Mark | None, number: int, record: R) -> None:
    """This one was put."""
    memory = memory_of(store)
    if memory is not None and ref.series is not None and (known is None or known.number < number):
        memory.saw(*ref.series, number, record.check, known)


def require_next(store: ObjectStore, ref: Ref[R], known: Mark | None, number: int, record: R) -> None:
    """Call it before record `number` is put. InvalidStateError: the store has lost records that
    this machine remembers, or shows another line: the new record would take the place of a lost
    one."""
    if known is None or number > known.number + 1:
        return
    if number == known.number + 1:
        if isinstance(record, HeadRecord) and record.prev not in (None, known.check):
            raise _another_error(store, ref, known, known.number)
    elif store.size(ref.key(known.number)) is None:
        raise rollback_error(store, ref, known, number - 1)


def as_damage(error: CowfsError, ref: Ref[R], known: Mark | None) -> CorruptError:
    """For a look at the whole store that goes on."""
    details = {"key": ref.key(known.number)} if known is not None else {}
    return CorruptError(error.message, hint=error.open_hint, details={**error.details, **details})


def rollback_error(store: ObjectStore, ref: Ref[R], known: Mark, number: int) -> CowfsError:
    assert ref.series is not None
    volume, series = ref.series
    details = {"volume": volume, "known_number": known.number, "number": number}
    if number == 0 and series == "head":
        return NotFoundError(
            f"{store.url} has no volume {volume!r} any more, nor says that it was deleted",
            hint=f"This machine saw its head {known.number}{_when(known)}. {_WHY} {_accept(volume)}",
            details=details,
        )
    shown = f"is number {number}" if number else "is not there"
    return InvalidStateError(
        f"{store.url} was put back to an earlier state: {ref.title} {shown}, and this machine saw number "
        f"{known.number}{_when(known)}",
        hint=f"{_WHY} {'' if volume == OF_STORE else 'Locators are read all the same. '}{_accept(volume)}",
        details=details,
    )


_WHY = "A backup may have been restored, or newer records are hidden or were removed. Bring them back if you can."


def _another_error(store: ObjectStore, ref: Ref[R], known: Mark, number: int) -> InvalidStateError:
    assert ref.series is not None
    return InvalidStateError(
        f"{ref.title}: {store.url} shows another number {number} than the one that this machine saw{_when(known)}"
        if number == known.number
        else f"{ref.title}: {store.url} does not show number {number}, the one after the newest that this machine saw{_when(known)}",
        hint="It was replaced, or the store shows different machines different states. Compare with the history on other machines "
        f"({Command('log', ref.series[0])}, history()) before you go on. {_accept(ref.series[0])}",
        details={"volume": ref.series[0], "known_number": known.number, "number": number},
    )


def _is_behind(
    store: ObjectStore, ref: Ref[R], known: Mark, found: tuple[int, R], read: Callable[[int], object]
) -> bool:
    """Whether what was found goes on from the known record. False: the record behind the known one
    cannot be read now, so what was found is not remembered. InvalidStateError: it is of another
    line, or the record behind the known one is gone, though none is ever deleted."""
    following: object = found[1]
    if not isinstance(following, HeadRecord):
        return True
    if found[0] > known.number + 1:
        try:
            following = read(known.number + 1)
        except (NotFoundError, CorruptError) as error:
            raise _another_error(store, ref, known, known.number + 1) from error
        except CowfsError:
            return False
    if isinstance(following, HeadRecord) and following.prev not in (None, known.check):
        raise _another_error(store, ref, known, known.number)
    return True


def _accept(volume: str) -> str:
    if volume == OF_STORE:
        return (
            f"If this is the state that you mean, {Command('store', 'accept')}, or storage.accept_store(), accepts it."
        )
    return (
        f"If this is the state that you mean, {Command('store', 'accept', '--volume', volume)}, or "
        f"storage.accept_store(volume={volume!r}), accepts it."
    )


def _when(known: Mark) -> str:
    seen_ns = known.seen_ns
    return f" on {day(seen_ns)}" if seen_ns is not None else ""


def day(when_ns: int) -> str:
    return format_time(when_ns)
