"""Refs: heads, tags and volume records (and leases, pins, moved records) as sequences of
create-only objects.

    <prefix>/<16 hex digits of 2^64-1-n>      record n, n = 1, 2, 3 …

The newest record is the ref's value. Keys count down, so on an ordered store a one-key list finds
the newest; then numbers are probed upward until one is absent, which also serves stores whose lists
are unordered or late. Records are never replaced, and never deleted while their volume lives, so
numbers have no gaps: a writer that appends n has seen n-1. (Those of keys are deleted;
`unlocking`.)

`append` needs nothing but put-if-absent. Each record carries a random write id, which tells a put
whose reply was lost from another writer's. The caller makes number and write id durable on its own
side before, and repeats the same record after a doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import islice, pairwise
from typing import Generic, Literal, Protocol, Self, TypeVar

from cowfs.base import clock
from cowfs.base.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptError,
    CowfsError,
    InvalidInputError,
    InvalidStateError,
    NotFoundError,
    UnavailableError,
    UnsupportedFormatError,
)
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import PackId, WriteId
from cowfs.base.thread_pool import Helpers
from cowfs.format import keys
from cowfs.format.records import (
    HeadRecord,
    KeysRecord,
    LeaseRecord,
    MetaRecord,
    MovedRecord,
    PinRecord,
    PrunedRecord,
    PurgedRecord,
    TagRecord,
)
from cowfs.machine.known_stores import Mark
from cowfs.store import remembering
from cowfs.store.contract import ObjectStore
from cowfs.store.refs.beside import beside
from cowfs.store.reliability.damaged import read_as
from cowfs.store.reliability.patience import Patience, Pauses, patience_of

FIRST = 1
Tell = Callable[[CorruptError], None]
"""Called for each damaged record, which is left out; on any thread."""
_PARALLEL_READS = 16
_GAP_SHOWN = 100
APPEND_S = 3.0  # of a store without patience of its own
_MISSING = f"Its object was deleted. {Command('verify')} names all damaged or missing objects, and how to repair them."


class RefRecord(Protocol):
    """What a record needs to stand in a ref."""

    @property
    def write_id(self) -> WriteId: ...

    @property
    def check(self) -> str: ...

    def encode_and_read(self, *, key: str = "") -> tuple[bytes, Self]: ...

    @classmethod
    def decode(cls, data: bytes, *, what: str, key: str = "") -> Self: ...


R = TypeVar("R", bound=RefRecord)


@dataclass(frozen=True)
class Ref(Generic[R]):
    """One sequence of records: made by `head`, `tag`, `pruned`, `meta`, `lease`, `moved`. prefix
    ends in '/'. says: where each record says that it belongs, which is not believed elsewhere: its
    key, or the prefix where who appends the next record writes fields again that he does not
    know."""

    title: str
    prefix: str
    key: Callable[[int], str]
    record_type: type[R]
    says: Literal["nothing", "key", "prefix"] = "nothing"
    series: tuple[str, str] | None = None
    """The volume, and what of it: how far it had come is remembered (`remembering`)."""

    def place(self, n: int) -> str:
        """What record n says; "": nothing."""
        return {"nothing": "", "key": self.key(n), "prefix": self.prefix}[self.says]

    def decode(self, data: bytes, n: int) -> R:
        """Record n, of its object's bytes. CorruptError: it is damaged, or another one."""
        return self.record_type.decode(data, what=f"{self.title}, number {n} ({self.key(n)})", key=self.place(n))


def head(volume: str) -> Ref[HeadRecord]:
    return Ref(
        f"the head of volume {volume}",
        keys.head_prefix(volume),
        lambda n: keys.head(volume, n),
        HeadRecord,
        says="key",
        series=(volume, "head"),
    )


def tag(volume: str, name: str) -> Ref[TagRecord]:
    return Ref(
        f"tag {name} of volume {volume}",
        keys.tag_prefix(volume, name),
        lambda n: keys.tag(volume, name, n),
        TagRecord,
        says="key",
        series=(volume, f"tag@{name}"),
    )


def pruned(volume: str) -> Ref[PrunedRecord]:
    """Use `cowfs.version.retention.pruned`."""
    return Ref(
        f"the pruned heads of volume {volume}",
        keys.pruning_prefix(volume),
        lambda n: keys.pruning_record(volume, n),
        PrunedRecord,
        says="prefix",
    )


def meta(volume: str) -> Ref[MetaRecord]:
    return Ref(
        f"the record of volume {volume}",
        keys.meta_prefix(volume),
        lambda n: keys.meta(volume, n),
        MetaRecord,
        says="prefix",
    )


def lease(volume: str) -> Ref[LeaseRecord]:
    """Numbers are epochs. Use `cowfs.store.refs.leases`."""
    return Ref(f"the lease of volume {volume}", keys.lease_prefix(volume), lambda n: keys.lease(volume, n), LeaseRecord)


def pin(id: WriteId) -> Ref[PinRecord]:
    """Older records are deleted. Use `cowfs.store.refs.pins`."""
    return Ref(f"pin {id}", keys.pin_prefix(id), lambda n: keys.pin(id, n), PinRecord, says="prefix")


def moved(pack: PackId) -> Ref[MovedRecord]:
    """Where the live blobs of a pack lie now."""
    return Ref(
        f"the moved record of pack {pack}", keys.move_prefix(pack), lambda n: keys.move_record(pack, n), MovedRecord
    )


def purges() -> Ref[PurgedRecord]:
    """Use `cowfs.store.packs.purged`."""
    return Ref("the purged chunks", keys.PURGED, keys.purge_record, PurgedRecord, says="key")


def key_slots() -> Ref[KeysRecord]:
    """The secrets that open the store. Older records are deleted. Use
    `cowfs.store.credentials.unlocking`."""
    return Ref("the keys of the store", keys.KEYS, keys.key_slots, KeysRecord, says="key")


def newest(
    store: ObjectStore, ref: Ref[R], *, listed: int | None = None, marks: Mapping[str, Mark] | None = None
) -> tuple[int, R] | None:
    """The record with the highest number, None if there is no record.

    Three requests, two of them in a row: a list, then the record and, at the same time, the next
    number; two requests if there is no record. listed: the highest number that a list of the
    caller's has shown, which saves one; marks: of `remembering`, from before it. InvalidStateError:
    for heads and tags, this machine has seen a higher number, or another record of this number.
    """
    known = remembering.read_mark(store, ref) if marks is None or ref.series is None else marks.get(ref.series[1])
    found = _newest(store, ref, listed)
    remembering.compare(store, ref, known, found, partial(read, store, ref))
    return found


def _newest(store: ObjectStore, ref: Ref[R], listed: int | None) -> tuple[int, R] | None:
    number = newest_listed(store, ref) if listed is None else listed
    found: tuple[int, R] | None = None
    if number >= FIRST:
        shown, following = beside(partial(read, store, ref, number), partial(_read_if_there, store, ref, number + 1))
        if following is None:
            return number, shown
        number, found = number + 1, (number + 1, following)
    while True:
        number += 1
        if (following := _read_if_there(store, ref, number)) is None:
            return found
        found = (number, following)


def newest_listed(store: ObjectStore, ref: Ref[R]) -> int:
    """The highest number that a list shows, 0 if it shows none."""
    try:
        first = store.list(ref.prefix, limit=1)
    except InvalidInputError:  # it has no lists: numbers are probed from the first one on
        return 0
    if not first:
        return 0
    number = keys.parse_number(first[0].key)
    if number is not None:
        return number
    # Something foreign lies in front (an editor's dot file in a directory store).
    return max((keys.parse_number(info.key) or 0 for info in store.list(ref.prefix)), default=0)


def newest_from(store: ObjectStore, ref: Ref[R], number: int) -> tuple[int, R] | None:
    """As `newest`, where record `number` was the newest a while ago: two requests beside one
    another if it still is. Errors as of `newest`."""
    known = remembering.read_mark(store, ref)
    likely, following = beside(
        partial(_read_if_there, store, ref, number), partial(_read_if_there, store, ref, number + 1)
    )
    if likely is not None and following is None:
        remembering.compare(store, ref, known, (number, likely), partial(read, store, ref))
        return number, likely
    return newest(store, ref)


def read(store: ObjectStore, ref: Ref[R], n: int) -> R:
    """Record number n. NotFoundError: there is no such record; CorruptError: it is damaged, or
    another one, also when it is requested again."""
    return read_as(store, ref.key(n), lambda data: ref.decode(data, n))


def read_earlier(store: ObjectStore, ref: Ref[R], n: int, *, hint: str = _MISSING) -> R:
    """As `read`, of a record that others were written after. CorruptError: it is missing (details:
    key), so the sequence has a gap; what to do then is in hint."""
    try:
        return read(store, ref, n)
    except NotFoundError as error:
        key = ref.key(n)
        raise CorruptError(
            f"{ref.title}, number {n} ({key}), is missing, though later records are there",
            hint=hint,
            details={"key": key},
        ) from error


def is_there(store: ObjectStore, ref: Ref[R], n: int) -> bool:
    """Whether there is a record n, also one of a newer cowfs, for who gives something up if there
    is: one request, but where the answer is no record. That is a damaged one if a list shows it,
    too. UnavailableError: it does not, so something else may have answered."""
    try:
        read(store, ref, n)
    except NotFoundError:
        return False
    except UnsupportedFormatError:
        return True
    except CorruptError as error:
        key = ref.key(n)
        if all(info.key != key for info in store.list(key, limit=1)):
            raise UnavailableError(
                f"{store.url} answers with something else where {ref.title}, number {n}, would be: {error.message}",
                hint="Try again; nothing is lost. Something between here and the store may answer in its place.",
                details={"key": key},
            ) from error
    return True


def _read_if_there(store: ObjectStore, ref: Ref[R], n: int) -> R | None:
    try:
        return read(store, ref, n)
    except NotFoundError:
        return None


def append(store: ObjectStore, ref: Ref[R], n: int, record: R) -> R:
    """Creates record number n (newest + 1, or FIRST), and returns it as it lies there. Returning
    means: durable and ours.

    After any error the record is read back: ours (same write id) is success once the store vouches
    for it by refusing it a second time; another's raises ConflictError (details: number, write_id);
    absent or unreadable is unknown, so the same bytes are put again while the store's patience
    lasts, then UnavailableError: repeating the same call with the same record is safe. A refusal by
    the store is raised as it is only while no put before it may have got through.
    InvalidStateError: of heads and tags, as of `newest`; nothing was put.
    """
    if n < FIRST:
        raise InvalidInputError(f"{ref.title}: records are numbered from {FIRST}, not {n}")
    known = remembering.read_mark(store, ref)
    remembering.require_next(store, ref, known, n, record)
    put = _append(store, ref, n, record)
    remembering.store_mark(store, ref, known, n, put)
    return put


def _append(store: ObjectStore, ref: Ref[R], n: int, record: R) -> R:
    data, written = record.encode_and_read(key=ref.place(n))
    patience, pauses, began_s = patience_of(store) or Patience(APPEND_S), Pauses(), clock.monotonic_s()
    may_be_there = False
    while True:
        try:
            store.put_if_absent(ref.key(n), data)
            return written
        except ConflictError as error:
            return _read_ours(store, ref, n, record, error)
        except CowfsError as error:
            # Ours or absent: put it again. A put that failed and is visible nevertheless may not be
            # durable yet; only a store that refuses the second one vouches for the first.
            is_visible = _is_visible(store, ref, n, record, error)
            if not is_visible and not isinstance(error, UnavailableError):
                if may_be_there:
                    raise _unknown(ref, n, record, error) from error
                raise
            may_be_there = True
            patience.tell(error, began_s)
            if not patience.wait_to_repeat(error, pauses, began_s):
                raise _unknown(ref, n, record, error) from error


def history(store: ObjectStore, ref: Ref[R], *, tell: Tell | None = None) -> list[tuple[int, R]]:
    """Every record, newest first: one list request for each thousand records, one get for each
    record. tell None: damage is raised, also a missing record or one of another line, and
    InvalidStateError as of `newest`. Otherwise `tell` is called for each of these."""

    def whole(n: int) -> R | None:
        try:
            return read_earlier(store, ref, n)
        except CorruptError as error:
            if tell is None:
                raise
            tell(error)
            return None

    known = remembering.read_mark(store, ref)
    numbers = _with_missing({keys.parse_number(info.key) or 0 for info in store.list(ref.prefix)})
    with Helpers(_PARALLEL_READS, name="cowfs-history") as pool:
        read = zip(numbers, pool.map(whole, numbers), strict=True)
        found = [(n, record) for n, record in read if record is not None]
    if found and found[0][0] == numbers[0]:
        try:
            remembering.compare(store, ref, known, found[0], dict(found).get)
        except InvalidStateError as error:
            if tell is None:
                raise
            tell(remembering.as_damage(error, ref, known))
    for later, earlier in pairwise(found):
        try:
            require_joined(ref, later, earlier)
        except CorruptError as error:
            if tell is None:
                raise
            tell(error)
    return found


def require_joined(ref: Ref[R], later: tuple[int, R], earlier: tuple[int, R]) -> None:
    """CorruptError (details: key of the earlier one): the later record says that it was put behind
    another one. Only heads say so, and only of the one before."""
    number, record = later
    if earlier[0] != number - 1 or not isinstance(record, HeadRecord) or record.prev in (None, earlier[1].check):
        return
    key = ref.key(number - 1)
    raise CorruptError(
        f"{ref.title}, number {number}, was put after another number {number - 1} than the present one ({key})",
        hint="One of them was replaced, or two writers were shown different states of the store. Look at both "
        f"({Command('log')}, history()), and take the right ones from a copy of the store, or from the bucket's earlier versions.",
        details={"key": key},
    )


def _with_missing(listed: set[int]) -> list[int]:
    """These and the numbers between them, newest first; of each gap not more than the last
    _GAP_SHOWN: a strange object may have any number."""
    shown = sorted({n for n in listed if n >= FIRST}, reverse=True)
    found: list[int] = []
    for later, earlier in pairwise([*shown, FIRST - 1]):
        found += range(later, max(earlier, later - 1 - _GAP_SHOWN), -1)
    return found


def backwards(
    store: ObjectStore, ref: Ref[R], number: int, *, read: Callable[[ObjectStore, Ref[R], int], R] = read_earlier
) -> Iterator[tuple[int, R]]:
    """Record `number`, which exists, and those before it, newest first, as `one_by_one`. read:
    another one where records may be deleted."""
    return one_by_one(store, ref, range(number, FIRST - 1, -1), read=read)


def one_by_one(
    store: ObjectStore,
    ref: Ref[R],
    numbers: Iterable[int],
    *,
    read: Callable[[ObjectStore, Ref[R], int], R] = read_earlier,
) -> Iterator[tuple[int, R]]:
    """These records, which exist: one get for each, a few at a time and not many more than are
    taken. read: as of `backwards`. CorruptError, besides: as of `require_joined`."""
    count, left = 1, iter(numbers)
    later: tuple[int, R] | None = None
    with Helpers(_PARALLEL_READS, name="cowfs-backwards") as pool:
        while some := list(islice(left, count)):
            for found in zip(some, pool.map(lambda n: read(store, ref, n), some), strict=True):
                if later is not None:
                    require_joined(ref, later, found)
                later = found
                yield found
            count = min(count * 2, _PARALLEL_READS)


def _read_ours(store: ObjectStore, ref: Ref[R], n: int, record: R, cause: CowfsError) -> R:
    """Reads record n back after its put failed with `cause`. ConflictError: another writer's.
    UnavailableError: it cannot be read, for any reason."""
    try:
        found = read(store, ref, n)
    except UnsupportedFormatError:  # not ours
        raise
    except CowfsError as error:
        raise _unknown(ref, n, record, error) from cause
    if found.write_id != record.write_id:
        raise ConflictError(
            f"{ref.title} has a number {n} already, from another writer",
            hint="Read the newest record and start from there.",
            details={"number": n, "write_id": found.write_id.hex()},
        ) from cause
    return found


def _is_visible(store: ObjectStore, ref: Ref[R], n: int, record: R, cause: CowfsError) -> bool:
    try:
        _read_ours(store, ref, n, record, cause)
    except UnavailableError:
        return False
    return True


def _unknown(ref: Ref[R], n: int, record: R, problem: CowfsError) -> UnavailableError:
    correct = f"{problem.open_hint} Then run" if isinstance(problem, AccessDeniedError) and problem.hint else "Run"
    return UnavailableError(
        f"whether {ref.title} became number {n} is unknown: {problem.message}",
        hint=f"It may be there already. {correct} the same again: that finds out, and nothing is lost.",
        details={"number": n, "write_id": record.write_id.hex()},
    )
