"""The findings of a collection, left for the next one, which then does not take hidden objects for
absent.

    gc/<g>/seen/<write id>/<k>    volumes with the numbers of their newest heads, at most 5,000 in one; before
    pins/shown                    a list of pins that has it is a list of `pins/`
    gc/<g>/done                   bytes, and the write id of the lists above
    collected                     a collection has ended: `gc/` shows one, and `pins/` its object

Only the newest `done` counts. The lists of older ones are removed; each collection leaves a few
hundred bytes. A `done` of an earlier cowfs is empty and says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial

from cowfs.base import clock
from cowfs.base.errors import ConflictError, CorruptError, NotFoundError, UnavailableError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import WriteId
from cowfs.format import keys
from cowfs.format.records import DoneRecord, SeenRecord, SeenVolume
from cowfs.maintain.collect.generations import Generation, Generations
from cowfs.store import ObjectStore
from cowfs.store.reliability.damaged import read_as
from cowfs.store.reliability.repeating import create

SHARD_VOLUMES = 5000
"""Volumes in one object: at most 900 KB."""


@dataclass(frozen=True)
class Figures:
    """As in `DoneRecord`. young_ns: by the store's clock."""

    young_ns: int
    live_bytes: int
    other_bytes: int
    lost_packs: int


@dataclass(frozen=True)
class Sight:
    """The findings of the last collection that ended."""

    generation: int
    figures: Figures
    volumes: Mapping[str, SeenVolume]


def last_sight(store: ObjectStore, generations: Generations) -> Sight | None:
    """None: no collection has ended, or the last one was of an earlier cowfs. CorruptError: its
    findings are incomplete. UnavailableError: another has ended meanwhile."""
    number = max((each.number for each in generations.found.values() if each.is_done), default=None)
    if number is None:
        return None
    key = keys.collection(number, "done")
    try:
        done = read_as(store, key, partial(_decode_done, number, key))
        if done is None:
            return None
        volumes = {each.name: each for shard in range(done.shards) for each in _shard(store, done, shard).volumes}
    except NotFoundError as error:
        if number == max((each.number for each in generations.load().found.values() if each.is_done), default=0):
            raise CorruptError(f"the findings of collection {number} are missing") from error
        raise UnavailableError(
            f"{store.url}: another collection has ended meanwhile", hint="Nothing was deleted. Try again."
        ) from error
    young_ns = generations.found[number].begun_ns - done.young_s * 10**9
    figures = Figures(young_ns, done.live_bytes, done.other_bytes, done.lost_packs)
    return Sight(number, figures, volumes)


def leave_sight(store: ObjectStore, of: Generation, figures: Figures, volumes: Mapping[str, SeenVolume]) -> None:
    """Ends a collection and stores its findings."""
    number = of.number
    id = WriteId(clock.random_bytes(WriteId.length))
    names = sorted(volumes)
    shards = range(0, len(names), SHARD_VOLUMES)
    for shard, at in enumerate(shards):
        some = tuple(volumes[name] for name in names[at : at + SHARD_VOLUMES])
        create(store, keys.sight_shard(number, id, shard), SeenRecord(number, some, id).encode())
    show_pins(store)
    done = DoneRecord(
        generation=number,
        young_s=max(of.begun_ns - figures.young_ns, 0) // 10**9,
        live_bytes=figures.live_bytes,
        other_bytes=figures.other_bytes,
        lost_packs=figures.lost_packs,
        shards=len(shards),
        created_ns=clock.now_ns(),
        write_id=id,
    )
    store.put(keys.collection(number, "done"), done.encode())
    _create_empty(store, keys.COLLECTED)  # last: a reader that finds it expects a `done`


def show_pins(store: ObjectStore) -> None:
    """Makes sure that a list of `pins/` is not empty from now on."""
    _create_empty(store, keys.PINS_SHOWN)


def _create_empty(store: ObjectStore, key: str) -> None:
    with suppress(ConflictError):
        create(store, key, b"")


def _decode_done(number: int, key: str, data: bytes) -> DoneRecord | None:
    if not data:
        return None
    found = DoneRecord.decode(data, what=key)
    _require(found.generation == number, key, number)
    return found


def _shard(store: ObjectStore, done: DoneRecord, shard: int) -> SeenRecord:
    key = keys.sight_shard(done.generation, done.write_id, shard)
    found = read_as(store, key, partial(SeenRecord.decode, what=key))
    _require((found.generation, found.write_id) == (done.generation, done.write_id), key, done.generation)
    return found


def _require(is_own: bool, key: str, number: int) -> None:
    if not is_own:
        raise CorruptError(f"{key} does not belong to collection {number}")
