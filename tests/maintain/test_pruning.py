"""Pruning: only what the plan showed goes, and nothing that something holds."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cowfs.base import clock
from cowfs.base.ids import VersionId, WriteId
from cowfs.blocking import PrunePlan, ROVolume, Store, Volume
from cowfs.errors import CorruptError, InvalidInputError, NotFoundError
from cowfs.format import keys
from cowfs.format.records import PinRecord
from cowfs.maintain import pruning
from cowfs.store import ObjectStore, open_store
from cowfs.store.refs.pins import Pin
from cowfs.version.retention import pruned
from tests.api.conftest import place
from tests.cli.conftest import Run, run
from tests.cli.test_json import check
from tests.format.samples import CREATED_NS, WRITE

__all__ = ["place", "run"]


@pytest.fixture
def versions(place: Path) -> list[ROVolume]:
    data = Volume.new("data")
    return [data.commit(str(number)) for number in range(6)]


@pytest.fixture
def store(versions: list[ROVolume]) -> Iterator[ObjectStore]:
    store = open_store(Volume.open("data").resolve().store_url or "")
    yield store
    store.close()


def going(plan: PrunePlan) -> list[str]:
    return [each.version for each in plan.pruned]


def why(plan: PrunePlan, version: ROVolume) -> list[str]:
    return next(each.kept_by for each in plan.versions if each.version == version.id)


def test_a_plan_does_nothing_and_is_carried_out_as_shown(versions: list[ROVolume], store: ObjectStore) -> None:
    plan = Store().plan_prune("data", last=2)
    assert [each.version for each in plan.versions] == [each.id for each in reversed(versions)]
    assert going(plan) == [each.id for each in reversed(versions[:4])]
    assert pruned.read(store, "data").number == 0
    Volume.open("data").commit("later")
    assert [each.version for each in Store().prune(plan)] == going(plan)
    assert pruned.read(store, "data").ranges == ((2, 5),)
    assert Store().prune(plan) == [], "once"
    assert len(Store().plan_prune("data", last=1).versions) == 3
    assert Volume.version(f"data@{versions[0].id}") == versions[0], "it is there until a collection has run"
    again = Store().plan_prune("data", last=1)
    Store().prune(again)
    assert pruned.read(store, "data").ranges == ((2, 7),)
    assert Volume.version("data").message == "later"


def test_what_is_held_is_kept_and_says_by_what(versions: list[ROVolume]) -> None:
    versions[0].tag("v1")
    fork = versions[1].fork("fork")
    fork.commit("goes on")
    Volume.new("stands").resolve()
    data = Volume.open("data")
    data.files.write("work", b"uncommitted")
    plan = Store().plan_prune("data", last=1)
    assert why(plan, versions[0]) == ["tag v1"]
    assert why(plan, versions[1]) == ["base of fork"]
    held, *_, rule = why(plan, versions[5])
    assert (held, rule) == ("the last version", "one of the last 1")
    assert any(each.startswith("a mount of ") for each in why(plan, versions[5]))
    data.unmount()
    assert any(each.startswith("uncommitted work of ") for each in why(Store().plan_prune("data", last=1), versions[5]))
    assert going(plan) == [each.id for each in reversed(versions[2:5])]
    Store().untag("data", "v1")
    Store().prune(Store().plan_prune("fork", last=1))
    assert {versions[0].id, versions[1].id} <= set(going(Store().plan_prune("data", last=1))), "the fork let go of it"
    data.discard()


def test_work_kept_on_an_older_version_holds_it(versions: list[ROVolume], store: ObjectStore) -> None:
    """By its pin alone: it lies on another machine."""
    kept = Pin.create(store, volume="data", number=3, owner="ada@elsewhere")
    kept.renew(kind="hold")
    mounted = Pin.create(store, volume="data", number=4, owner="bob@elsewhere")
    plan = Store().plan_prune("data", last=1)
    assert why(plan, versions[1]) == ["uncommitted work of ada@elsewhere"]
    assert why(plan, versions[2]) == ["a mount of bob@elsewhere"]
    mounted.remove()
    assert {each.version for each in Store().prune(Store().plan_prune("data", last=1))} == {
        versions[number].id for number in (0, 2, 3, 4)
    }


def test_what_is_mounted_here_to_be_read_is_kept(versions: list[ROVolume]) -> None:
    """As a copy, which needs no kernel."""
    plan = Store().plan_prune("data", last=1)
    path = versions[1].mount(mode="copy")
    assert why(Store().plan_prune("data", last=1), versions[1]) == [f"mounted at {path}"]
    assert versions[1].id not in {each.version for each in Store().prune(plan)}
    versions[1].unmount()
    assert going(Store().plan_prune("data", last=1)) == [versions[1].id]


def test_a_volume_that_rests_loses_nothing_when_the_time_of_its_last_version_comes(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was committed by a clock that was 31 days ahead."""
    data, day_ns, now_ns = Volume.new("data"), 86_400 * 10**9, clock.now_ns
    data.commit("1")
    data.commit("2")
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns() + 31 * day_ns)
    ahead = data.commit("3")
    for days in (0, 32):
        monkeypatch.setattr(clock, "now_ns", lambda days=days: now_ns() + days * day_ns)
        plan = Store().plan_prune("data", within="30d")
        assert going(plan) == []
        assert why(plan, ahead) == ["the last version", "its time was still to come"]


def test_a_version_of_a_clock_that_was_behind_is_not_old(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when what told so is pruned."""
    data, now_ns = Volume.new("data"), clock.now_ns
    first = data.commit("1")
    monkeypatch.setattr(clock, "now_ns", lambda: now_ns() - 7000 * 86_400 * 10**9)
    behind = data.commit("2")
    monkeypatch.setattr(clock, "now_ns", now_ns)
    data.commit("3")
    pruning.prune(open_store(data.resolve().store_url or ""), "data", {VersionId.from_hex(first.id)})
    plan = Store().plan_prune("data", within="30d")
    assert why(plan, behind) == ["young enough, if its clock was wrong"]


def test_what_was_tagged_since_the_plan_stays(versions: list[ROVolume], store: ObjectStore) -> None:
    plan = Store().plan_prune("data", last=1)
    versions[2].tag("late")
    versions[3].fork("late")
    done = {each.version for each in Store().prune(plan)}
    assert done == {versions[0].id, versions[1].id, versions[4].id}
    assert pruned.read(store, "data").ranges == ((2, 3), (6, 6))


def test_a_version_behind_a_deletion_goes_with_all_heads_that_repeat_it(
    versions: list[ROVolume], store: ObjectStore
) -> None:
    Store().delete("data")
    with pytest.raises(NotFoundError, match="deleted"):
        Store().plan_prune("data", last=1)
    Store().undelete("data")
    Volume.open("data").commit("behind")
    Store().prune(Store().plan_prune("data", last=1))
    head = len(store.list("volumes/data/head/"))
    assert pruned.read(store, "data").ranges == ((2, head - 1),)


def test_two_who_prune_at_once_prune_all_that_both_want(versions: list[ROVolume], store: ObjectStore) -> None:
    ids = [VersionId.from_hex(each.id) for each in versions]
    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(lambda id: pruning.prune(store, "data", {id}), ids[:4]))
    assert [step.version for steps in done for step in steps] == ids[:4]
    assert pruned.read(store, "data").ranges == ((2, 5),)
    assert pruning.prune(store, "data", {ids[5]}) == [], "never the last one"


def test_the_command_line(versions: list[ROVolume], run: Run) -> None:
    assert run("prune", "data").code == 2
    assert run("prune", "data", "--keep-last", "2").code == 2, "nobody to ask"
    assert run("prune", "data", "--keep-within", "3").code == 2
    shown = run("prune", "data", "--keep-last", "2", "--dry-run")
    assert [line.split()[0] for line in shown.out.splitlines()[1:]] == ["keep"] * 2 + ["prune"] * 4
    planned = run("prune", "data", "--keep-last", "2", "--dry-run", "--json").json
    check("prune", planned)
    assert planned["pruned_version_ids"] == []
    done = run("prune", "data", "--keep-last", "2", "-y", "--json").json
    check("prune", done)
    assert done["pruned_version_ids"] == [each.id for each in reversed(versions[:4])]
    assert "To prune: 0 of 2 versions" in run("prune", "data", "--keep-last", "2", "-y").err
    assert run("tag", f"data@{versions[0].id}", "late").code == 3


def test_a_plan_is_of_one_store(versions: list[ROVolume], place: Path) -> None:
    plan = Store().plan_prune("data", last=1)
    other = Volume.new("data", store=place / "other").resolve().store_url
    with pytest.raises(InvalidInputError, match="the plan is of"):
        Store(other).prune(plan)
    with pytest.raises(InvalidInputError):
        Store().prune("data")  # type: ignore[arg-type]


def test_a_pin_of_an_earlier_cowfs_holds_too(versions: list[ROVolume], store: ObjectStore) -> None:
    old = PinRecord("data", 3, 0, CREATED_NS, None, WRITE, "ada@node-7", extra={"expires_ns": CREATED_NS})
    store.put(f"{keys.PINS}{'0a' * 16}", old.encode())
    store.put(f"{keys.PINS}somebody-elses", b"nothing of ours")
    assert why(Store().plan_prune("data", last=1), versions[1]) == ["a mount of ada@node-7"]
    store.put(keys.pin(WriteId(bytes(16)), 1), b"damaged")
    with pytest.raises(CorruptError):
        Store().plan_prune("data", last=1)
