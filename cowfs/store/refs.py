"""Refs: heads, tags and volume records (and leases, pins, moved records) as sequences of
create-only objects.

    <prefix>/<16 hex digits of 2^64-1-n>      record n, n = 1, 2, 3 …

The newest record is the ref's value. Keys count down, so on an ordered store a one-key list finds
the newest; then numbers are probed upward until one is absent, which also serves stores whose lists
are unordered or late. Records are never replaced, and never deleted while their volume lives, so
numbers have no gaps: whoever appends n has seen n-1. (Those of keys are deleted; `unlocking`.)

`append` needs nothing but put-if-absent. Each record carries a random write id; that is how a put
whose reply was lost is told from somebody else's. The caller makes number and write id durable on
its own side before, and repeats the same record after a doubt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice, pairwise
from typing import Generic, Literal, Protocol, Self, TypeVar

from cowfs import clock
from cowfs.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptError,
    CowfsError,
    InvalidInputError,
    NotFoundError,
    UnavailableError,
    UnsupportedFormatError,
)
from cowfs.format import keys
from cowfs.format.records import (
    HeadRecord,
    KeysRecord,
    LeaseRecord,
    MetaRecord,
    MovedRecord,
    PinRecord,
    PrunedRecord,
    TagRecord,
)
from cowfs.helpers import Helpers
from cowfs.ids import PackId, WriteId
from cowfs.store.beside import beside
from cowfs.store.contract import ObjectStore
from cowfs.store.damaged import read_as
from cowfs.store.patience import Patience, Pauses, patience_of
from cowfs.values import dataclass

FIRST = 1
Tell = Callable[[CorruptError], None]
"""Hears of damaged records, which are left out; on any thread."""
_PARALLEL_READS = 16
_GAP_SHOWN = 100
APPEND_S = 3.0  # of a store that has no patience of its own
_MISSING = "Its object was deleted. `cowfs verify` names all that are damaged or missing, and says what to do."


class RefRecord(Protocol):
    """What a record needs to stand in a ref."""

    @property
    def write_id(self) -> WriteId: ...

    def encode(self, *, key: str = "") -> bytes: ...

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
    )


def tag(volume: str, name: str) -> Ref[TagRecord]:
    return Ref(
        f"tag {name} of volume {volume}",
        keys.tag_prefix(volume, name),
        lambda n: keys.tag(volume, name, n),
        TagRecord,
        says="key",
    )


def pruned(volume: str) -> Ref[PrunedRecord]:
    """Use `cowfs.version.pruned`."""
    return Ref(
        f"the pruned heads of volume {volume}",
        keys.pruned_prefix(volume),
        lambda n: keys.pruned(volume, n),
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
    """Numbers are epochs. Use `cowfs.store.leases`."""
    return Ref(f"the lease of volume {volume}", keys.lease_prefix(volume), lambda n: keys.lease(volume, n), LeaseRecord)


def pin(id: WriteId) -> Ref[PinRecord]:
    """Older records are deleted. Use `cowfs.store.pins`."""
    return Ref(f"pin {id}", keys.pin_prefix(id), lambda n: keys.pin(id, n), PinRecord, says="prefix")


def moved(pack: PackId) -> Ref[MovedRecord]:
    """Where the live blobs of a pack lie now."""
    return Ref(f"the moved record of pack {pack}", keys.moved_prefix(pack), lambda n: keys.moved(pack, n), MovedRecord)


def key_slots() -> Ref[KeysRecord]:
    """Who may open the store. Older records are deleted. Use `cowfs.store.unlocking`."""
    return Ref("the keys of the store", keys.KEYS, keys.key_slots, KeysRecord)


def newest(store: ObjectStore, ref: Ref[R], *, listed: int | None = None) -> tuple[int, R] | None:
    """The record with the highest number, None when there is none.

    Three requests, two of them in a row: a list, then the record beside the next number; two when
    there is no record. listed: the highest number that a list of the caller's has shown, which
    saves one.
    """
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
    """The highest number a list shows, 0 when there is none."""
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
    another if it still is."""
    likely, following = beside(
        partial(_read_if_there, store, ref, number), partial(_read_if_there, store, ref, number + 1)
    )
    if likely is not None and following is None:
        return number, likely
    return newest(store, ref)


def read(store: ObjectStore, ref: Ref[R], n: int) -> R:
    """Record number n. NotFoundError when there is none; CorruptError: it is damaged, or another
    one, also when it is asked for again."""
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


def append(store: ObjectStore, ref: Ref[R], n: int, record: R) -> None:
    """Creates record number n (newest + 1, or FIRST). Returning means: durable and ours.

    After any error the record is read back: ours (same write id) is success once the store vouches
    for it by refusing it a second time; another's raises ConflictError (details: number, write_id);
    absent or unreadable is unknown, so the same bytes are put again while the store's patience
    lasts, then UnavailableError: repeating the same call with the same record is safe. A refusal by
    the store is raised as it is only while no put before it may have got through.
    """
    if n < FIRST:
        raise InvalidInputError(f"{ref.title}: records are numbered from {FIRST}, not {n}")
    data = record.encode(key=ref.place(n))
    patience, pauses, began_s = patience_of(store) or Patience(APPEND_S), Pauses(), clock.monotonic_s()
    may_be_there = False
    while True:
        try:
            store.put_if_absent(ref.key(n), data)
            return
        except ConflictError as error:
            _check_ours(store, ref, n, record, error)
            return
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
    record. tell None: damage is raised, also that one of them is missing."""

    def whole(n: int) -> R | None:
        try:
            return read_earlier(store, ref, n)
        except CorruptError as error:
            if tell is None:
                raise
            tell(error)
            return None

    numbers = _with_missing({keys.parse_number(info.key) or 0 for info in store.list(ref.prefix)})
    with Helpers(_PARALLEL_READS, name="cowfs-history") as pool:
        found = zip(numbers, pool.map(whole, numbers), strict=True)
        return [(n, record) for n, record in found if record is not None]


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
    taken. read: as of `backwards`."""
    count, left = 1, iter(numbers)
    with Helpers(_PARALLEL_READS, name="cowfs-backwards") as pool:
        while some := list(islice(left, count)):
            yield from zip(some, pool.map(lambda n: read(store, ref, n), some), strict=True)
            count = min(count * 2, _PARALLEL_READS)


def _check_ours(store: ObjectStore, ref: Ref[R], n: int, record: R, cause: CowfsError) -> None:
    """Reads record n back after its put failed with `cause`. ConflictError: somebody else's.
    UnavailableError: not to be seen, for whatever reason."""
    try:
        found = read(store, ref, n)
    except UnsupportedFormatError:  # not ours
        raise
    except CowfsError as error:
        raise _unknown(ref, n, record, error) from cause
    if found.write_id != record.write_id:
        raise ConflictError(
            f"{ref.title} has a number {n} already, written by somebody else",
            hint="Read the newest record and start from there.",
            details={"number": n, "write_id": found.write_id.hex()},
        ) from cause


def _is_visible(store: ObjectStore, ref: Ref[R], n: int, record: R, cause: CowfsError) -> bool:
    try:
        _check_ours(store, ref, n, record, cause)
    except UnavailableError:
        return False
    return True


def _unknown(ref: Ref[R], n: int, record: R, problem: CowfsError) -> UnavailableError:
    correct = f"{problem.hint} Then run" if isinstance(problem, AccessDeniedError) and problem.hint else "Run"
    return UnavailableError(
        f"whether {ref.title} became number {n} is unknown: {problem.message}",
        hint=f"It may be there already. {correct} the same again: that finds out, and nothing is lost.",
        details={"number": n, "write_id": record.write_id.hex()},
    )
