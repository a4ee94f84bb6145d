"""Tests what a store really does when it is initialised: a conditional put that is not conditional
loses commits.

    sequential   create, create again: the second must be refused and the first must stay
    race         two writers with connections of their own create one key at the same moment, PAIRS times on as many keys; then
                 WRITERS at once: exactly one may win each
    plain        a read returns what was put, and what replaced it, and a list shows the object

The race is needed because some servers have ignored the condition, or honoured it only for writers
that came one after the other. Pairs find the same faults as a crowd, and sooner: some servers delay
writers that meet at one key, SeaweedFS for whole seconds.

The result stays with the store, so an answer that says nothing about its abilities must not count.
A test or a race that a busy server has spoilt (the probe is a burst of requests to a new place) is
repeated with new keys while the store's patience lasts. Other errors (unreachable, no permission)
are raised. With credentials that may put and not delete, the probe's objects stay.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from typing import TypeVar

from cowfs.base import clock
from cowfs.base.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from cowfs.base.thread_pool import Helpers
from cowfs.format import backends
from cowfs.format.records import ProbeResult
from cowfs.store import scratch_objects
from cowfs.store.contract import ObjectStore
from cowfs.store.reliability.repeating import repeat_while_unavailable

T = TypeVar("T")

WRITERS = 3
PAIRS = 40
PAIRS_IN_A_DIRECTORY = 8  # there each costs syncs of the disk, and the kernel's lock is what decides
_TOGETHER = 2  # pairs at a time: more threads would keep the two of a pair apart
_FIRSTS = 3
"""How often a new random key may exist already, or a race may have no winner, before it counts: a
put of ours may have been delivered twice."""


def probe(store: ObjectStore, writers: Sequence[ObjectStore] | None = None) -> ProbeResult:
    """Tests the store; writers: WRITERS clients with connections of their own for the race (None:
    `store` itself)."""
    racers = writers or [store] * WRITERS
    pairs = PAIRS_IN_A_DIRECTORY if backends.of_url(store.url).reach == "machine" else PAIRS
    exclusive = _refuses_second(store)
    with Helpers(2 * _TOGETHER + 2, name="cowfs-probe") as pool:
        pool.start()  # racers wait for each other
        reads = pool.submit(_with_scratch, store, _reads_what_was_put)
        lists = pool.submit(_with_scratch, store, _lists_what_was_put)
        return ProbeResult(
            put_if_absent=exclusive,
            race_writers=len(racers),
            race_rounds=pairs + 1,
            race_max_winners=_race(pool, store, racers, pairs) if exclusive else len(racers),
            read_after_write=reads.result(),
            list_after_write=lists.result(),
            probed_ns=clock.now_ns(),
        )


def _with_scratch(store: ObjectStore, test: Callable[[ObjectStore, str], T]) -> T:
    key = scratch_objects.new_key()
    try:
        return test(store, key)
    finally:
        scratch_objects.remove(store, [key])


def _refuses_second(store: ObjectStore) -> bool:
    def test(store: ObjectStore, key: str) -> bool | None:
        """None: the first one was refused."""
        try:
            store.put_if_absent(key, b"first")
        except InvalidInputError:  # not implemented
            return False
        except ConflictError:
            return None
        try:
            store.put_if_absent(key, b"second")
        except ConflictError:
            return store.get(key) == b"first"
        return False

    results = (repeat_while_unavailable(store, lambda: _with_scratch(store, test)) for _ in range(_FIRSTS))
    return next((result for result in results if result is not None), False)


def _race(pool: Helpers, store: ObjectStore, racers: Sequence[ObjectStore], pairs: int) -> int:
    """The most winners of one key; 0 winners are as wrong as 2 and count as all of them."""
    left = [racers[:2]] * pairs + [racers]
    most = lost = 0

    def run() -> None:
        nonlocal left, most, lost
        winners = _run(pool, store, left)
        if 0 in winners:
            lost += 1
        if lost == _FIRSTS:  # again and again
            winners = [len(race) if count == 0 else count for race, count in zip(left, winners, strict=True)]
        most = max([most, *(count for count in winners if count is not None)])
        left = [race for race, count in zip(left, winners, strict=True) if not count]
        if left and most <= 1:
            raise UnavailableError(
                f"{store.url} is too busy to be tested: the winners of {len(left)} races between writers are unknown",
                hint="Try again; nothing was made.",
            )

    repeat_while_unavailable(store, run)
    return most


def _run(pool: Helpers, store: ObjectStore, races: Sequence[Sequence[ObjectStore]]) -> list[int | None]:
    """How many won each, by `_winners`."""
    keys = [scratch_objects.new_key() for _ in races]
    try:
        # Those of one race are neighbours in the pool's queue, so its threads never all wait.
        starters = [(key, race, threading.Barrier(len(race))) for key, race in zip(keys, races, strict=True)]
        try:
            running = [
                [pool.submit(_try_to_win, racer, key, number, start) for number, racer in enumerate(race)]
                for key, race, start in starters
            ]
            wait(each for race in running for each in race)  # none puts anything behind the deletion
        except BaseException:
            for _, _, start in starters:
                start.abort()  # its others may never begin
            raise
        won = [[each.result() for each in race] for race in running]
        return list(pool.map(lambda key, told: _winners(store, key, told), keys, won))
    finally:
        scratch_objects.remove(store, keys)


def _winners(store: ObjectStore, key: str, told: Sequence[bool | None]) -> int | None:
    """How many writers of a key won, by the answers they got and by the object that is there. None:
    unknown."""
    won = [number for number, is_winner in enumerate(told) if is_winner]
    if len(won) > 1:
        return len(won)
    unknown = [number for number, is_winner in enumerate(told) if is_winner is None]
    there = _bytes_at(store, key)
    if won and there == _bytes_of(won[0]):
        return 1
    if won:
        return 2 if there else None  # whose bytes are there is another
    if any(there == _bytes_of(number) for number in unknown):
        return 1
    return None if unknown else 0


def _bytes_at(store: ObjectStore, key: str) -> bytes:
    """b"": it is not there, or each look shows something else."""
    try:
        found = bytes(store.get(key))
        return found if bytes(store.get(key)) == found else b""
    except NotFoundError:
        return b""


def _try_to_win(racer: ObjectStore, key: str, number: int, start: threading.Barrier) -> bool | None:
    """Whether the writer's put was accepted; None: there was no answer."""
    start.wait()
    try:
        racer.put_if_absent(key, _bytes_of(number))
    except ConflictError:
        return False
    except UnavailableError:
        return None
    return True


def _bytes_of(number: int) -> bytes:
    return b"writer %d" % number


def _reads_what_was_put(store: ObjectStore, key: str) -> bool:
    for data in (b"old", b"new"):
        store.put(key, data)
        if store.get(key) != data:
            return False
    return store.get_range(key, 1, 2) == b"ew"


def _lists_what_was_put(store: ObjectStore, key: str) -> bool:
    store.put(key, b"x")
    return [info.key for info in store.list(key)] == [key]
