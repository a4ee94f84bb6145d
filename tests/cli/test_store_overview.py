"""cowfs store and Store.overview: a store on one screen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cowfs.api.upkeep import store_overview
from cowfs.blocking import ROVolume, Store, Volume
from cowfs.cli.store_screen import _lanes
from tests.api.conftest import place
from tests.cli.conftest import Run, run
from tests.cli.test_json import check

__all__ = ["place", "run"]

pytestmark = pytest.mark.mount


@pytest.fixture
def base(place: Path) -> ROVolume:
    """Volume "base", with forks fork-2, fork-10, a fork of fork-2, and a volume of its own."""
    volume = Volume.new("base")
    volume.files.write("big", bytes(range(256)) * 1000)
    version = volume.finalize("base")
    for name in ("fork-10", "fork-2"):
        fork = version.fork(name)
        fork.files.write(name, name.encode() * 100)
        fork.finalize(name)
    Volume.version("fork-2").fork("inner")
    Volume.new("alone").resolve()
    return version


def test_volumes_stand_below_those_that_they_were_forked_from(base: ROVolume, run: Run) -> None:
    found = Store().overview()
    assert [(each.volume.name, each.depth) for each in found.volumes] == [
        ("alone", 0),
        ("base", 0),
        ("fork-2", 1),
        ("inner", 2),
        ("fork-10", 1),
    ]
    by_name = {each.volume.name: each for each in found.volumes}
    assert by_name["fork-2"].forked_from == f"base@{base.id}"
    assert by_name["base"].forked_from is None
    names = [line.split("  ")[0] for line in run("store").out.splitlines() if line.startswith(("├", "│", "└"))]
    assert names == ["├─ fork-2", "│", "└─ fork-10"]
    Store().delete("base")
    orphaned = Store().overview()
    assert [(each.volume.name, each.depth) for each in orphaned.volumes][:3] == [
        ("alone", 0),
        ("fork-2", 0),
        ("inner", 1),
    ]
    assert [each.group for each in orphaned.deleted_volumes] == ["base"]
    assert "base (deleted)" in run("store").out


def test_bytes_are_those_of_the_other_commands(base: ROVolume, run: Run) -> None:
    found = Store().overview()
    assert found.is_counted
    stored = {each.group: each for each in Store().stored_bytes(by="volume").groups}
    for each in found.volumes:
        if each.volume.version is not None:
            own = stored[each.volume.name]
            assert (each.stored_bytes, each.unique_bytes) == (own.stored_bytes, own.unique_bytes)
    assert found.stored_bytes == Store().stored_bytes(by="store").groups[0].stored_bytes
    assert found.garbage == Store().gc(dry_run=True)
    check("store", run("store", "--json").json)
    shown = run("store").out
    assert "STORED" in shown
    assert "garbage  nothing to free" in shown


def test_what_is_not_quick_is_left_out_and_offered(base: ROVolume, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_overview, "QUICK_S", -1.0)
    said = run("store")
    assert "STORED" not in said.out
    assert "`cowfs store --full` counts them" in said.err
    check("store", run("store", "--json").json)
    assert "STORED" in run("store", "--full").out
    monkeypatch.setattr(store_overview, "QUICK_S", 1000.0)
    monkeypatch.setattr(store_overview, "MOST_HEADS", 3)
    assert not Store().overview().is_counted
    assert Store().overview(count_bytes=True).is_counted


def test_who_writes_and_what_the_store_is_called(base: ROVolume, run: Run, place: Path) -> None:
    assert run("store", "add", "near", str(place / "store")).code == 0
    with Volume.open("fork-2") as mounted:
        shown = run("store").out
        assert re.search(rf"fork-2 .*:{re.escape(str(mounted.path))}$", shown, re.MULTILINE)
    assert "(near)" in shown.splitlines()[0]
    for words in (("store", "--read-only"), ("store", "ls", "--full"), ("store", "nothing")):
        refused = run(*words)
        assert (refused.code, refused.out) == (2, "")


@pytest.mark.quick
@pytest.mark.parametrize(
    ("depths", "drawn"),
    [
        ([0, 0], ["", ""]),
        ([0, 1, 1], ["", "├─ ", "└─ "]),
        ([0, 1, 2, 2, 1, 2, 0], ["", "├─ ", "│  ├─ ", "│  └─ ", "└─ ", "   └─ ", ""]),
    ],
)
def test_lanes(depths: list[int], drawn: list[str]) -> None:
    assert _lanes(depths) == drawn
