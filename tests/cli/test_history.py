"""Names of versions on the command line, and what has become of a volume: tag, log, show; and what
is taken back: restore, rollback."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cowfs
from cowfs.base.ids import PackId
from cowfs.blocking import ROVolume, RWVolume, Store, Volume
from cowfs.errors import ConflictError
from cowfs.format import keys
from cowfs.rendering.graph import draw
from cowfs.store import open_store
from cowfs.version.names import head_line
from cowfs.version.retention import pruned
from tests.api.conftest import place
from tests.cli.conftest import Run, run
from tests.cli.test_json import check
from tests.version.test_faults import condemn

__all__ = ["place", "run"]


@pytest.fixture
def versions(place: Path) -> list[ROVolume]:
    data = Volume.new("data")
    return [data.commit(text) for text in ("one", "two", "three")]


def test_tags(versions: list[ROVolume], run: Run) -> None:
    one, two, three = versions
    assert run("tag", "data").err == "Volume data has no tags\n"
    made = run("tag", f"data@{one.id[:12]}", "v1", "--json").json
    check("tag", made)
    assert made["tags"][0]["version"] == one.id
    assert run("tag", "data", "v1").code == 4
    assert run("tag", "data", "v1", "--expect", two.id).code == 4
    assert run("tag", "data", "v1", "--move").out == f"{three.locator}\n"
    assert run("tag", f"data@{two.id}", "v1", "--expect", "data@v1").code == 0
    assert run("tag", f"data@{three.id}", "v1", "--expect", two.id[:12]).code == 0
    assert run("tag", f"data@{two.id}", "v1", "--expect", two.id[:12]).code == 4
    assert run("tag", two.locator, "v1", "--expect", three.id).code == 0
    for expected in ("1234", "0" * 12):
        said = run("tag", "data", "v1", "--expect", expected)
        assert (said.code, f"{expected} names no version" in said.err) == (3, True)
        assert "8 digits" in said.err
    listed = run("tag", "data", "--json").json
    check("tag", listed)
    assert [(each["tag"], each["version"]) for each in listed["tags"]] == [("v1", two.id)]
    assert run("tag", "data").out.splitlines()[1].split()[:2] == ["v1", two.id[:12]]
    assert run("tag", "data", "v1", "--delete").code == 0
    assert run("tag", "data", "v1", "-d").code == 3
    assert run("tag", "data", "-d").code == 2
    assert run("tag", "data", "no name").code == 2


def test_sources(versions: list[ROVolume], run: Run) -> None:
    then = (versions[1].created + timedelta(microseconds=1)).isoformat()
    for source in ("data@{1}", f"data@{{{then}}}"):
        assert run("log", source, "--json").json["versions"][0]["version"] == versions[1].id
        assert run("ls", f"{source}:/", "--json").code == 0
        assert run("tag", source, "--delete", "x").code == 2, "tags are removed by the volume's name"
    missing = run("log", "data@{7}")
    assert (missing.code, "data@{2}" in missing.err) == (3, True)


def test_a_log_goes_across_forks_and_merges(versions: list[ROVolume], run: Run) -> None:
    fork = versions[1].fork("exp")
    fork.files.write("new", b"x")
    ahead = fork.finalize(message="ahead")
    merged = Store().merge("data", [ahead]).locator
    versions[0].tag("v1")
    versions[0].tag("first")
    found = run("log", "data", "--json").json
    check("log", found)
    for each in found["versions"]:
        check("show", {"format": 1, **each})
    assert [each["message"] for each in found["versions"]] == ["Merge exp", "ahead", "three", "two", "one"]
    assert [each["made_in"] for each in found["versions"]] == ["data", "exp", "data", "data", "data"]
    assert found["versions"][-1]["tag_names"] == ["first", "v1"]
    assert found["versions"][0]["locator"] == merged
    assert [each["message"] for each in run("log", "data", "-n", "2", "--json").json["versions"]] == [
        "Merge exp",
        "ahead",
    ]
    plain = run("log", "data").out.splitlines()
    assert "VOLUME" in plain[0]
    assert "(first, v1) one" in plain[-1]
    versions[1].fork("other")
    assert "VOLUME" in run("log", "other").out.splitlines()[0], "all its versions were made in data"
    assert "VOLUME" not in run("log", "data@{2}").out.splitlines()[0]
    header, *lines = run("log", "data", "--graph").out.splitlines()
    assert [line.split("  ")[0].rstrip() for line in lines] == ["*", "├─*", "*", "*", "*"]
    at = header.index("FROM")
    two = found["versions"][3]["version"][:12]
    assert [line[at : at + 12].strip() for line in lines] == ["", two, "", "", ""], "where the fork was made from"
    assert run("log", "data", "--graph", "--json").code == 2


def test_the_log_of_a_path_shows_what_each_version_changed(run: Run, place: Path) -> None:
    data = Volume.new("data")
    data.files.write("a", b"1")
    data.commit("first")
    data.files.move("a", "b")
    data.commit("moved")
    data.files.write("c", b"1")
    data.commit("another file")
    header, *lines = run("log", "data:b").out.splitlines()
    assert "CHANGE" in header
    assert ["renamed from /a  moved" in lines[0], "added" in lines[1], len(lines)] == [True, True, 2]
    log = run("log", "data:b", "--json").json
    changes = [log["changes_by_version"][each["version"]][0] for each in log["versions"]]
    assert [(each["kind"], each["added_bytes"]) for each in changes] == [("renamed", 0), ("added", 1)]
    assert run("log", "data:nothing").code == 3
    assert run("log", "data:b", "--graph").code == 2


def test_a_version_that_is_not_there_ends_its_line(versions: list[ROVolume], run: Run, place: Path) -> None:
    (place / "store" / "versions" / versions[0].id[:2] / versions[0].id).unlink()
    assert "not here" in run("log", "data", "--graph").out.splitlines()[-1]
    last = run("log", "data", "--json").json["versions"][-1]
    assert (last["is_pruned"], last["is_collectable"], last["made_in"], last["tag_names"]) == (True, False, None, [])
    assert run("show", f"data@{versions[0].id}").code == 3


def test_a_log_goes_on_behind_what_was_collected(run: Run, place: Path) -> None:
    """Heads that are not pruned, and tags, keep versions that no parent leads to any more."""
    data = Volume.new("data")
    made = [data.commit(str(n)) for n in range(9)]
    fork = made[5].fork("fork").commit("of the fork")
    made[3].tag("release")
    made[7].tag("newer")
    collected = {1, 2, 4, 6}
    with closing(open_store((place / "store").as_uri())) as store:
        numbers = {step.version.hex(): step.first for step in head_line.steps(store, "data", 10)}
        heads = [numbers[made[n].id] for n in (*collected, 3)]
        pruned.append(store, "data", pruned.read(store, "data"), [(head, head) for head in heads])
    for n in collected:
        (place / "store" / "versions" / made[n].id[:2] / made[n].id).unlink()

    def found(version: ROVolume, limit: int | None = None) -> list[tuple[int, bool]]:
        ids = [each.id for each in made]
        return [(ids.index(each.id), each.is_pruned) for each in version.history(limit=limit) if each.id in ids]

    behind = [(5, False), (4, True), (3, False), (2, True), (0, False)]
    assert found(made[8]) == [(8, False), (7, False), (6, True), *behind]
    assert found(made[8], 4) == [(8, False), (7, False), (6, True), (5, False)]
    assert found(made[5]) == behind, "what was tagged later is none of its past"
    assert found(fork) == behind
    said = run("log", "data", "--json").json
    check("log", said)
    assert [(each.get("message"), each["tag_names"]) for each in said["versions"][-3:]] == [
        ("3", ["release"]),
        (None, []),
        ("0", []),
    ]
    shown = run("log", "data", "--graph").out.splitlines()
    assert [(line[0], line.split()[1]) for line in shown[1:]] == [
        ("*", each["version"][:12]) for each in said["versions"]
    ]
    (place / "store" / "volumes" / "data" / "pruned").rename(place / "gone")
    assert found(made[8])[:4] == [(8, False), (7, False), (6, True), (5, False)]
    damaged = place / "store" / keys.head("data", numbers[made[5].id])
    damaged.unlink()
    damaged.write_bytes(b"x")
    behind = [(3, False), (2, True)]
    assert found(made[8]) == [(8, False), (7, False), (6, True), *behind], "what cannot be read ends a line"


def test_a_log_goes_on_on_both_sides_of_a_merge(run: Run, place: Path) -> None:
    """Also where no volume has the line of one side any more."""
    data = Volume.new("data")
    made = [data.commit(str(n)) for n in range(4)]
    fork = made[0].fork("fork")
    forked = [fork.commit(f"fork {n}") for n in range(3)]
    Store().merge("data", [forked[2]])
    shutil.rmtree(place / "store" / "volumes" / "fork")
    with closing(open_store((place / "store").as_uri())) as store:
        numbers = {step.version.hex(): step.first for step in head_line.steps(store, "data", 6)}
        head = numbers[made[2].id]
        pruned.append(store, "data", pruned.read(store, "data"), [(head, head)])
    for gone in (made[2], forked[1]):
        (place / "store" / "versions" / gone.id[:2] / gone.id).unlink()
    said = run("log", "data", "--json").json["versions"]
    assert [each.get("message") for each in said] == ["Merge fork", "fork 2", None, "3", None, "1", "0"]


def test_what_is_pruned_and_still_there_is_marked(versions: list[ROVolume], run: Run) -> None:
    versions[0].tag("v1")
    assert "STATE" not in run("log", "data").out
    assert not run("show", f"data@{versions[1].id}", "--json").json["is_collectable"]
    Store().prune(Store().plan_prune("data", last=1))
    found = run("log", "data", "--json").json
    check("log", found)
    assert [(each["message"], each["is_pruned"], each["is_collectable"]) for each in found["versions"]] == [
        ("three", False, False),
        ("two", False, True),
        ("one", False, False),
    ]
    header, three, two, one = run("log", "data").out.splitlines()
    at = header.index("STATE")
    assert [line[at:].split()[0] for line in (three, two, one)] == ["0", "pruned", "0"], "else: the number of files"
    assert "pruned        a collection may delete it" in run("show", f"data@{versions[1].id}").out
    assert "pruned" not in run("show", "data@{0}").out


def test_show(versions: list[ROVolume], run: Run) -> None:
    versions[1].tag("v1")
    found = run("show", "data@v1", "--json").json
    check("show", found)
    assert (found["version"], found["tag_names"], found["parents"]) == (versions[1].id, ["v1"], [versions[0].id])
    said = run("show", "data@v1").out
    assert f"parent        {versions[0].id}" in said
    assert "message       two" in said
    assert run("show", "data:nothing").code == run("show", f"{versions[1].locator}/nothing").code == 3


@pytest.mark.parametrize(
    ("history", "drawn"),
    [
        ([("c", "b"), ("b", "a"), ("a", "")], ["* c", "* b", "* a"]),
        ([("m", "ab"), ("b", "r"), ("a", "r"), ("r", "")], ["* m", "├─* b r", "* a", "* r"]),
        (
            [("m", "abc"), ("c", "r"), ("b", "r"), ("a", "r"), ("r", "")],
            ["* m", "├─* b r", "├─* c r", "* a", "* r"],
        ),
        (  # a merge in a merged branch
            [("m", "ab"), ("b", "xy"), ("x", "r"), ("y", "r"), ("a", "r"), ("r", "")],
            ["* m", "├─* b", "│ ├─* y r", "│ * x r", "* a", "* r"],
        ),
        (  # what is merged twice belongs to the older merge
            [("n", "mb"), ("m", "ca"), ("b", "a"), ("c", "r"), ("a", "r"), ("r", "")],
            ["* n", "├─* b a", "* m", "├─* a r", "* c", "* r"],
        ),
        ([("m", "ab"), ("b", "r"), ("a", "")], ["* m", "├─* b", "* a"]),
        ([("m", "rb"), ("b", "r")], ["* m", "└─* b"]),
        ([("x", ""), ("y", "z"), ("z", "")], ["* x", "* y", "* z"]),
        ([("p", ""), ("child", "p")], ["* p", "* child p"]),
    ],
)
def test_lines_of_a_graph(history: list[tuple[str, str]], drawn: list[str]) -> None:
    found = draw({version: list(parents) for version, parents in history})
    assert [" ".join((each.lanes, each.version, *each.others)) for each in found] == drawn


def test_a_merge_of_twenty_is_one_line_for_each() -> None:
    forks = [f"fork-{n}" for n in range(20)]
    found = draw({"merge": ["base", *forks], **{fork: ["base"] for fork in forks}, "base": []})
    assert [(each.lanes, each.version, each.others) for each in found] == [
        ("*", "merge", ()),
        *(("├─*", fork, ("base",)) for fork in forks),
        ("*", "base", ()),
    ]


@given(st.lists(st.lists(st.integers(1, 8), max_size=4), max_size=25))
def test_any_history_can_be_drawn(history: list[list[int]]) -> None:
    """Each version once, and each parent either is in the drawing or is named."""
    parents = {
        str(number): [str(number + step) for step in steps if number + step < len(history)]
        for number, steps in enumerate(history)
    }
    found = draw(parents)
    assert sorted(each.version for each in found) == sorted(parents)
    for at, each in enumerate(found):
        assert each.lanes.count("*") == 1
        assert set(each.lanes) <= set("│├└─ *")
        column = each.lanes.index("*")
        below = [other for other in found[at + 1 :] if other.lanes.index("*") <= column][:1]
        shown = {other.version for other in below if other.lanes.index("*") == column}
        inner = found[at + 1 : found.index(below[0])] if below else found[at + 1 :]
        shown |= {other.version for other in inner if other.lanes.index("*") == column + 2}
        assert set(parents[each.version]) <= shown | set(each.others)


@pytest.fixture
def data(place: Path) -> RWVolume:
    vol = Volume.new("data")
    vol.files.mkdir("dir")
    vol.files.write("dir/a", b"one" * 1000)
    vol.files.write("b", b"b")
    vol.commit("one").tag("v1")
    vol.files.write("dir/a", b"two")
    vol.files.remove("b")
    vol.files.write("c", b"c")
    vol.finalize("two")
    return Volume.open("data")


def contents(version: ROVolume) -> dict[str, bytes]:
    return {each.path: version.files.read(each.path) for each in version.files.ls("/", True) if each.type == "file"}


def test_restoring_moves_no_content_and_keeps_what_was_there(data: RWVolume, run: Run) -> None:
    two = Volume.version("data")
    planned = run("restore", "data@v1:dir/a", "--dry-run", "--json").json
    check("restore", planned)
    assert (planned["is_new"], planned["changes"]) == (False, [{"path": "/dir/a", "kind": "changed"}])
    assert run("restore", "data@v1:dir/a", "--dry-run").out == "M  /dir/a\n"
    assert Volume.version("data") == two
    done = run("restore", "data@v1:dir/a", "--json").json
    check("restore", done)
    three = Volume.version("data")
    assert (done["is_new"], done["locator"], three.parents) == (True, three.locator, [two.id])
    assert contents(three) == {"/dir/a": b"one" * 1000, "/c": b"c"}
    assert three.message == f"Restore /dir/a of data@{Volume.version('data@v1').id[:12]}"
    assert three.stats.added_bytes == 0
    again = run("restore", "data@v1:dir/a", "--json").json
    assert (again["is_new"], again["locator"]) == (False, three.locator)
    nothing = run("restore", "data@v1:dir/a", "--dry-run")
    assert (nothing.code, nothing.out) == (0, "")
    assert nothing.err == run("restore", "data@v1:dir/a").err == "Nothing differs in volume data\n"
    assert run("restore", "data@v1:dir/a", "--dry-run", "--json").err == ""
    elsewhere = Store().restore("data", Volume.version("data@v1:dir"), to="/old", message="beside")
    assert [(each.path, each.kind) for each in elsewhere.changes] == [("/old", "added"), ("/old/a", "added")]
    assert contents(Volume.version("data"))["/old/a"] == b"one" * 1000
    fork = two.fork("fork")
    assert run("restore", "data@v1:b", "fork:/dir/b").code == 0
    assert contents(Volume.version("fork"))["/dir/b"] == b"b"
    fork.discard()
    habit = run("restore", "data:b", "@v1")
    assert (habit.code, "`cowfs restore data@v1:b`" in habit.err) == (2, True)
    assert run("restore", "data@v1:none").code == 3
    assert run("restore", "data@v1:b", "data:x/b").code == 3


def test_a_path_that_is_no_text_is_restored(data: RWVolume, run: Run) -> None:
    name = os.fsdecode(b"f\xff")
    data.files.write(name, b"old")
    old = data.commit()
    data.files.write(name, b"new")
    data.finalize()
    assert run("restore", f"data@{old.id[:12]}:{name}").code == 0
    now = Volume.version("data")
    assert (now.files.read(name), now.message) == (b"old", f"Restore /f\\xff of data@{old.id[:12]}")


def test_a_rollback_is_a_version_of_its_own(data: RWVolume, run: Run) -> None:
    one, two = Volume.version("data@v1"), Volume.version("data")
    branch = two.fork("branch")
    branch.files.write("late", b"late")
    late = branch.finalize()
    done = run("rollback", "data@{1}", "--json").json
    check("rollback", done)
    back = Volume.version("data")
    assert back.locator == done["locator"]
    assert contents(back) == contents(one)
    assert list(one.diff(back, times=True)) == []
    assert (back.parents, back.stats.added_bytes) == ([two.id], 0)
    assert back.message == f"Roll back to data@{one.id[:12]}"
    Store().merge("data", [late])
    assert contents(Volume.version("data")) == {**contents(one), "/late": b"late"}, "and what was taken back stays so"
    data.files.write("more", b"more")
    assert contents(data.finalize())["/more"] == b"more", "the volume goes on"
    assert run("rollback", "data@v1:dir").code == 2
    Volume.new("v1").finalize()
    bare = run("rollback", "v1", "data")
    assert (bare.code, "@TAG" in bare.err) == (2, True), "the tag was meant, not the other volume"
    assert run("rollback", "v1@{0}", "data", "--dry-run").code == 0
    assert run("rollback", "data@v1").err == "Rolled back 2 paths of data\n"
    assert run("rollback", "data").code == 0


def test_uncommitted_work_is_never_left_behind(data: RWVolume, run: Run) -> None:
    last = Volume.version("data")
    data.files.write("uncommitted", b"work")
    for refused in (run("rollback", "data@v1"), run("restore", "data@v1:b")):
        assert refused.code in (4, 5, 14)
        assert refused.err.count("hint:") == 1
    data.unmount()
    assert run("rollback", "data@v1").code == 14
    assert Volume.version("data") == last
    assert contents(data.finalize())["/uncommitted"] == b"work"


def test_what_a_collection_has_condemned_is_not_restored(data: RWVolume) -> None:
    store = open_store(Volume.open("data").resolve().store_url or "")
    one, last = Volume.version("data@v1"), Volume.version("data")
    condemn(store, 1, {PackId.from_hex(info.key[-32:]) for info in store.list("packs/")})
    with pytest.raises(ConflictError, match="condemn"):
        Store().restore("data", Volume.version(f"data@{one.id}:dir"))
    assert Volume.version("data") == last
    store.close()


def test_a_rollback_without_waiting(data: RWVolume) -> None:
    async def back() -> str | None:
        done = await cowfs.Store().rollback("data", await cowfs.Volume.version("data@v1"))
        return done.locator

    assert anyio.run(back) == Volume.version("data").locator
