"""How long a collection waits: not at all for writers that acknowledge when they are asked, and for
nobody if there is nothing to delete."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

import pytest

from cowfs.format import keys
from cowfs.maintain.collect.collecting import Collection
from cowfs.maintain.collect.planning import HOUR_NS
from cowfs.store import ObjectStore, scratch_objects
from cowfs.store.refs import refs
from cowfs.store.refs.pins import LIFETIME_S
from tests.maintain.fixtures import impatient, store
from tests.maintain.stores import ME, age, collect, commit, prune, random_bytes, stored, survey
from tests.version.working_volume import WorkingVolume

__all__ = ["impatient", "store"]

pytestmark = pytest.mark.usefixtures("impatient")


def make_garbage(store: ObjectStore, home: Path) -> None:
    for n in range(2):
        commit(store, "v", home, {b"f": random_bytes(n)})
    prune(store, "v", 2)


def test_a_writer_that_acknowledges_when_asked_is_not_waited_for(store: ObjectStore, tmp_path: Path) -> None:
    make_garbage(store, tmp_path)
    with WorkingVolume(store, "w", tmp_path / "w") as writer:
        writer.write(b"f", random_bytes(7))
        writer.commit()
        age(tmp_path)
        asked = []

        def ask(volumes: Set[str]) -> bool:
            asked.append(set(volumes))
            writer.publisher.acknowledge()
            return True

        found, plan = survey(store, tmp_path)
        assert (plan.waits_for[0].record.volume, plan.held_bytes > 100_000) == ("w", True)
        assert Collection(found, ME, wait_s=0, ask=ask).settle() == ()
        plan = found.plan()
        assert plan.objects
        outcome = Collection(found, ME, wait_s=0, ask=ask).apply(plan)
        assert (outcome.waits_for, outcome.is_ended) == ((), True)
        assert outcome.deleted == dict(plan.objects)
        assert asked == [{"w"}, {"w"}]


def test_what_counts_is_the_writers_pin_not_its_answer(store: ObjectStore, tmp_path: Path) -> None:
    make_garbage(store, tmp_path)
    with WorkingVolume(store, "w", tmp_path / "w") as writer:
        writer.write(b"f", random_bytes(7))
        writer.commit()
        age(tmp_path)
        found, _ = survey(store, tmp_path)
        assert len(Collection(found, ME, wait_s=0, ask=lambda volumes: True).settle()) == 1
        writer.publisher.acknowledge()
        Collection(found, ME, wait_s=0).settle()
        plan = found.plan()
        before = stored(store)
        outcome = Collection(found, ME, wait_s=0, ask=lambda volumes: True).apply(plan)
        assert (len(outcome.waits_for), outcome.deleted, stored(store)) == (1, {}, before)


def test_nobody_is_waited_for_when_nothing_is_condemned(store: ObjectStore, tmp_path: Path) -> None:
    """A scratch object is all that goes: it is in no list."""
    with WorkingVolume(store, "w", tmp_path / "w") as writer:
        writer.write(b"f", random_bytes(7))
        writer.commit()
        store.put(f"{scratch_objects.PREFIX}left", b"")
        age(tmp_path)
        outcome = collect(store, tmp_path)
        assert (outcome.waits_for, outcome.is_ended) == ((), True)
        assert list(outcome.deleted) == [f"{scratch_objects.PREFIX}left"]


def test_an_empty_collection_still_takes_expired_pins_for_dead(store: ObjectStore, tmp_path: Path) -> None:
    with WorkingVolume(store, "w", tmp_path / "w") as writer:
        writer.write(b"f", random_bytes(7))
        writer.commit()
        store.put(f"{scratch_objects.PREFIX}left", b"")
        age(tmp_path, LIFETIME_S + 1)
        collect(store, tmp_path)
        assert next(record.kind for _, record in refs.history(store, refs.head("w"))) == "fence"


def test_garbage_that_is_too_young_for_any_writer_is_not_held_back(store: ObjectStore, tmp_path: Path) -> None:
    """Only objects that a writer's acknowledgement would free count."""
    with WorkingVolume(store, "w", tmp_path / "w") as writer:
        writer.write(b"f", random_bytes(7))
        writer.commit()
        age(tmp_path)
        make_garbage(store, tmp_path)
        _, plan = survey(store, tmp_path)
        assert (len(plan.waits_for), plan.held_bytes) == (1, 0)
        assert plan.young_bytes > 100_000
        age(tmp_path, HOUR_NS / 1e9)
        assert survey(store, tmp_path)[1].held_bytes > 100_000


def test_a_sparse_pack_that_a_writer_holds_back_counts(store: ObjectStore, tmp_path: Path) -> None:
    kept, gone = random_bytes(1, 50_000), random_bytes(2, 900_000)
    commit(store, "v", tmp_path, {b"kept": kept, b"gone": gone})
    commit(store, "v", tmp_path, {b"gone": None})
    prune(store, "v", 2)
    with WorkingVolume(store, "w", tmp_path / "w") as writer:
        writer.write(b"f", random_bytes(7))
        writer.commit()
        age(tmp_path)
        _, plan = survey(store, tmp_path)
        assert not any(key.startswith(keys.PACKS) for key in plan.objects)
        assert plan.held_bytes > 900_000
