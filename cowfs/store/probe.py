"""Finds out what a store really does, when it is initialised: a conditional put that is not one
loses commits.

    sequential   create, create again: the second must be refused and the first must stay
    race         two writers with connections of their own create one key at the same moment, PAIRS times on as many keys; then
                 WRITERS at once: exactly one may win each
    plain        what was put is read, what replaced it is read, and a list shows it

Servers have ignored the condition, or honoured it only when writers were polite; that is why there
is a race. Pairs find what a crowd finds, and sooner: a server may make those who meet at one key
wait, SeaweedFS for whole seconds. Errors that say nothing about the store's abilities (unreachable,
no permission) are raised.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from cowfs import clock
from cowfs.errors import ConflictError, InvalidInputError, NotFoundError, UnavailableError
from cowfs.format.records import ProbeResult
from cowfs.store import scratch
from cowfs.store.contract import ObjectStore

WRITERS = 3
PAIRS = 40
PAIRS_IN_A_DIRECTORY = 8  # there each costs syncs of the disk, and the kernel's lock is what decides
_TOGETHER = 2  # pairs at a time: more threads would keep the two of a pair apart


def probe(store: ObjectStore, writers: Sequence[ObjectStore] | None = None) -> ProbeResult:
    """Tests the store; writers: WRITERS clients with connections of their own for the race (None:
    `store` itself)."""
    racers = writers or [store] * WRITERS
    pairs = PAIRS_IN_A_DIRECTORY if store.url.startswith("file:") else PAIRS
    exclusive = _refuses_second(store)
    with ThreadPoolExecutor(2 * _TOGETHER + 2, thread_name_prefix="cowfs-probe") as pool:
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


def _with_scratch(store: ObjectStore, test: Callable[[ObjectStore, str], bool]) -> bool:
    key = scratch.new_key()
    try:
        return test(store, key)
    finally:
        store.delete([key])


def _refuses_second(store: ObjectStore) -> bool:
    def test(store: ObjectStore, key: str) -> bool:
        try:
            store.put_if_absent(key, b"first")
        except (InvalidInputError, ConflictError):  # not implemented; or a retry below us met its own first attempt
            return False
        try:
            store.put_if_absent(key, b"second")
        except ConflictError:
            return store.get(key) == b"first"
        return False

    return _with_scratch(store, test)


def _race(pool: ThreadPoolExecutor, store: ObjectStore, racers: Sequence[ObjectStore], pairs: int) -> int:
    """The most winners of one key; 0 winners are as wrong as 2 and count as all of them."""
    races = [racers[:2]] * pairs + [racers]
    keys = [scratch.new_key() for _ in races]
    try:
        # Those of one race are neighbours in the pool's queue, so its threads never all wait.
        starters = [(key, race, threading.Barrier(len(race))) for key, race in zip(keys, races, strict=True)]
        running = [
            [pool.submit(_try_to_win, racer, key, number, start) for number, racer in enumerate(race)]
            for key, race, start in starters
        ]
        won = [[each.result() for each in race] for race in running]
        return max(pool.map(lambda key, told: _winners(store, key, told), keys, won))
    finally:
        store.delete(keys)


def _winners(store: ObjectStore, key: str, told: Sequence[bool]) -> int:
    """How many writers of a key won, by what they were told and by what is there."""
    if sum(told) == 1 and store.get(key) != b"writer %d" % told.index(True):
        return 2  # the one that was told so is not the one whose bytes are there
    return sum(told) or len(told)


def _try_to_win(racer: ObjectStore, key: str, number: int, start: threading.Barrier) -> bool:
    start.wait()
    mine = b"writer %d" % number
    try:
        racer.put_if_absent(key, mine)
    except ConflictError:
        return False
    except UnavailableError:  # outcome unknown: whose bytes are there?
        try:
            return racer.get(key) == mine
        except NotFoundError:
            return False
    return True


def _reads_what_was_put(store: ObjectStore, key: str) -> bool:
    for data in (b"old", b"new"):
        store.put(key, data)
        if store.get(key) != data:
            return False
    return store.get_range(key, 1, 2) == b"ew"


def _lists_what_was_put(store: ObjectStore, key: str) -> bool:
    store.put(key, b"x")
    return [info.key for info in store.list(key)] == [key]
