"""Finds out what a store really does, when it is initialised: a conditional put that is not one
loses commits.

    sequential   create, create again: the second must be refused and the first must stay
    race         N writers create one key at the same moment, several rounds: exactly one may win each
    plain        what was put is read, what replaced it is read, and a list shows it

Servers have ignored the condition, or honoured it only when writers were polite; that is why there
is a race. Errors that say nothing about the store's abilities (unreachable, no permission) are
raised.
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

WRITERS = 8
ROUNDS = 3  # SeaweedFS takes seconds for each: it makes contending writers wait


def probe(store: ObjectStore, writers: Sequence[ObjectStore] | None = None) -> ProbeResult:
    """Tests the store; writers: clients with connections of their own for the race (None: `store`
    from WRITERS threads)."""
    racers = writers or [store] * WRITERS
    exclusive = _refuses_second(store)
    return ProbeResult(
        put_if_absent=exclusive,
        race_writers=len(racers),
        race_rounds=ROUNDS,
        race_max_winners=_race(store, racers) if exclusive else len(racers),
        read_after_write=_with_scratch(store, _reads_what_was_put),
        list_after_write=_with_scratch(store, _lists_what_was_put),
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


def _race(store: ObjectStore, racers: Sequence[ObjectStore]) -> int:
    """The most winners of one round; 0 winners in a round is as wrong as 2 and counts as all of
    them."""
    worst = 1
    with ThreadPoolExecutor(len(racers), thread_name_prefix="cowfs-probe") as pool:
        for _ in range(ROUNDS):
            key = scratch.new_key()
            start = threading.Barrier(len(racers))
            try:
                won = list(pool.map(lambda racer, n: _try_to_win(racer, key, n, start), racers, range(len(racers))))  # noqa: B023
                winners = sum(won)
                if winners == 1 and store.get(key) != b"writer %d" % won.index(True):
                    winners = 2  # the one that was told so is not the one whose bytes are there
                worst = max(worst, winners or len(racers))
            finally:
                store.delete([key])
    return worst


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
