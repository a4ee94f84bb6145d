"""cowfs merge and Store.merge: forks brought back into the volume that they came from."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

import cowfs
from cowfs.base.ids import PackId, VersionId, WriteId
from cowfs.blocking import Conflict, ROVolume, Store, Volume
from cowfs.errors import ConflictError, InvalidInputError, InvalidStateError, NotFoundError
from cowfs.format import keys
from cowfs.storage import Local
from cowfs.store import open_store
from cowfs.store.refs import refs
from tests.api.conftest import place
from tests.api.test_linking import server
from tests.cli.test_json import check
from tests.cli.test_live import Command, run
from tests.object_server import ObjectServer
from tests.simulation.roots import live_pins
from tests.version.test_faults import condemn
from tests.version.test_protection import fence

__all__ = ["place", "run", "server"]


def forked(base: ROVolume, name: str, **files: bytes) -> ROVolume:
    fork = base.fork(name)
    for path, data in files.items():
        fork.files.write(path, data)
    return fork.finalize()


@pytest.fixture
def base(place: Path) -> ROVolume:
    vol = Volume.new("main")
    vol.files.write("both", b"0123456789" * 1000)
    vol.files.write("log", b"one\n")
    return vol.finalize()


def test_forks_come_back_as_one_version(base: ROVolume, run: Command) -> None:
    forks = [forked(base, f"exp-{n}", **{f"of-{n}": str(n).encode() * 1000}) for n in range(3)]
    planned = run("merge", "exp-0", "exp-1", "--into", "main", "--dry-run", "--json").json
    check("merge", planned)
    assert [each["path"] for each in planned["changes"]] == ["/of-0", "/of-1"]
    assert (planned["locator"], planned["is_new"]) == (base.locator, False)
    done = run("merge", "exp-0", "exp-1", "--into", "main", "--json").json
    check("merge", done)
    version = Volume.version("main")
    assert version.locator == done["locator"]
    assert version.parents == [base.id, forks[0].id, forks[1].id]
    assert version.message == "Merge exp-0, exp-1"
    nothing = run("merge", "exp-0", "--into", "main", "--dry-run", "--exit-code")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "Volume main has all of it already\n")
    base.fork("alike")
    assert run("merge", "exp-0", "--into", "alike").code == 0
    nothing = run("merge", "alike", "--into", "main", "--dry-run")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "No path of main would change\n")
    assert version.files.read("of-1") == b"1" * 1000
    assert version.stats.added_bytes == 0
    again = run("merge", "exp-0", "exp-1", "--into", "main", "--json").json
    assert (again["is_new"], again["locator"], again["merged_locators"]) == (False, version.locator, [])
    third = Store().merge("main", [forks[2]])
    assert third.is_new
    assert {entry.name for entry in Volume.version("main").files.ls()} == {"both", "log", "of-0", "of-1", "of-2"}
    grown = Volume.open("exp-0")
    grown.files.write("of-0", b"more")
    later = Store().merge("main", [grown.finalize()])
    assert [(each.path, each.kind) for each in later.changes] == [("/of-0", "changed")], "from where it was merged last"
    went_on = Volume.open("main")
    went_on.files.append("of-0", b"!")
    assert went_on.finalize().files.read("of-0") == b"more!"


def test_conflicts_publish_nothing_until_somebody_says_what_to_do(base: ROVolume, run: Command) -> None:
    forks = [forked(base, name, log=b"one\n" + name.encode() + b"\n", both=name.encode()) for name in ("a", "b")]
    failed = run("merge", "a", "b", "--into", "main", "--json")
    assert (failed.code, failed.json["error"]["kind"]) == (4, "conflict")
    assert [each["path"] for each in failed.json["error"]["details"]["conflicts"]] == ["/both", "/log"]
    assert Volume.version("main").id == base.id
    tried = run("merge", "a", "b", "--into", "main", "--dry-run", "--strategy", "*.x=ours")
    assert tried.code == 0
    assert run("merge", "a", "b", "--into", "main", "--dry-run", "--exit-code").code == 1
    assert "C  /log  (both changed: a, b; fail)" in tried.out
    for how in ("mine", "*.x=mine"):
        said = run("merge", "a", "--into", "main", "--strategy", how)
        assert (said.code, said.err.splitlines()[0]) == (2, "cowfs: 'mine' is no way to resolve a conflict")
        assert "keep-both" in said.err
    done = Store().merge("main", forks, strategy={"*": "keep-both", "log": "union"})
    assert [(each.path, each.how) for each in done.conflicts] == [("/both", "keep-both"), ("/log", "union")]
    merged = Volume.version("main").files
    assert (merged.read("both"), merged.read("both~b"), merged.read("log")) == (b"a", b"b", b"one\na\nb\n")


def test_a_refusal_names_the_strategies_that_settle_each_kind(base: ROVolume, run: Command) -> None:
    for name in ("a", "b"):
        fork = base.fork(name)
        fork.files.move("both", f"both-{name}")
        fork.files.write("log", b"rewritten by " + name.encode())
        fork.finalize()
    for how, expected in (
        ("newest", {"renamed_twice": ["ours", "theirs", "keep-both"]}),
        (
            "union",
            {
                "both_changed": ["ours", "theirs", "newest", "keep-both", "union"],
                "renamed_twice": ["ours", "theirs", "keep-both"],
            },
        ),
    ):
        hint = run("merge", "a", "b", "--into", "main", "--strategy", how, "--json").json["error"]["hint"]
        offered = {kind: hows.strip().split(", ") for kind, hows in re.findall(r"(\w+) by ([a-z, -]*)", hint)}
        assert offered == expected
        assert ("where both have only appended" in hint) == (how == "union")
        for kind, hows in offered.items():
            for each in hows:
                tried = run("merge", "a", "b", "--into", "main", "--strategy", each, "--dry-run", "--json").json
                left = {conflict["kind"] for conflict in tried["conflicts"] if conflict["how"] == "fail"}
                assert kind not in left or each == "union", (kind, each)


def test_work_that_is_in_no_version_is_told_of(base: ROVolume, run: Command) -> None:
    first = forked(base, "exp", new=b"1")
    work = Volume.open("exp")
    work.files.write("new", b"2")
    work.commit()
    work.files.write("later", b"not committed")
    work.unmount()
    assert "uncommitted" not in run("merge", first.locator, "--into", "main", "--dry-run").err, "a version was named"
    said = run("merge", "exp", "--into", "main")
    assert said.code == 0
    assert "volume exp has uncommitted work on this machine, which is not merged" in said.err


def test_a_function_says_what_to_do(base: ROVolume) -> None:
    forks = [forked(base, name, log=name.encode()) for name in ("a", "b")]
    asked: list[Conflict] = []

    def decide(conflict: Conflict) -> str:
        asked.append(conflict)
        return "theirs"

    Store().merge("main", forks, strategy=decide)
    assert [(each.kind, each.path, each.ours, each.theirs) for each in asked] == [("both_changed", "/log", "a", "b")]
    assert Volume.version("main").files.read("log") == b"b"


def test_two_lines_that_have_merged_each_other_lose_no_change(base: ROVolume) -> None:
    """What is taken back on one of them stays so, whichever merge base is the newer one."""
    fork = forked(base, "exp", new=b"of exp", both=b"by exp")
    vol = Volume.open("main")
    vol.files.write("own", b"of main")
    main = vol.finalize()
    Store().merge("main", [fork])
    Store().merge("exp", [main])
    for name, gone in (("main", "new"), ("exp", "own")):
        vol = Volume.open(name)
        vol.files.remove(gone)
        vol.files.write("both", b"taken back") if name == "main" else vol.files.write("later", b"")
        vol.finalize()
    for into, branch in (("main", "exp"), ("exp", "main")):
        Store().merge(into, [Volume.version(branch)])
        merged = Volume.version(into).files
        assert [entry.name for entry in merged.ls()] == ["both", "later", "log"], into
        assert merged.read("both") == b"taken back", into


def test_branches_that_come_from_each_other_are_merged_as_one_by_one(base: ROVolume) -> None:
    """What one of them added, another one that comes from it has taken back or changed."""
    one = forked(base, "one", new=b"of one", mine=b"1")
    vol = one.fork("two")
    vol.files.remove("new")
    vol.files.write("mine", b"2")
    two, three = vol.finalize(), forked(one, "three", more=b"3")
    for names in ([one, two, three], [two, one, three], [three, two, one], [one, three, two]):
        base.fork(into := f"into-{names[0].name}-{names[1].name}")
        Store().merge(into, names)
        merged = Volume.version(into)
        assert {entry.name for entry in merged.files.ls()} == {"both", "log", "mine", "more"}, names
        assert merged.files.read("mine") == b"2"
        assert set(merged.parents) <= {base.id, one.id, two.id, three.id}


def test_a_large_file_that_was_appended_to_is_cut_differently_and_united(place: Path) -> None:
    start = b"".join(b"line %07d\n" % n for n in range(200_000))
    vol = Volume.new("main")
    vol.files.write("log", start)
    base = vol.finalize()
    forks = []
    for name in ("a", "b"):
        fork = base.fork(name)
        fork.files.append("log", b"%s\n" % name.encode() * 1000)
        forks.append(fork.finalize())
    Store().merge("main", forks, strategy="union")
    assert Volume.version("main").files.read("log") == start + b"a\n" * 1000 + b"b\n" * 1000
    with pytest.raises(ConflictError):
        Store().merge("main", [forked(base, "c", log=b"other" + start)], strategy="union")


def test_what_cannot_be_merged_is_refused(base: ROVolume) -> None:
    vol = Volume.new("apart")
    vol.files.write("x", b"x")
    apart = vol.finalize()
    with pytest.raises(InvalidStateError, match="no version in common"):
        Store().merge("main", [apart])
    with pytest.raises(InvalidInputError):
        Store().merge("main", [])
    with pytest.raises(InvalidInputError, match="one folder"):
        Store().merge("main", [Volume.version("apart:/x")])
    held = Volume.open("main")
    held.files.write("uncommitted", b"")
    with pytest.raises((InvalidStateError, ConflictError)):
        Store().merge("main", [forked(base, "late", x=b"")])
    held.discard()


def test_what_a_collection_has_condemned_is_not_taken_over(base: ROVolume) -> None:
    """Before the merge, or in the middle of it."""
    store = open_store(Volume.open("main").resolve().store_url or "")
    before = {info.key for info in store.list("packs/")}
    fork = forked(base, "exp", log=b"changed" * 5000)
    doomed = {PackId.from_hex(info.key[-32:]) for info in store.list("packs/") if info.key not in before}
    forked(base, "also", log=b"otherwise")
    Store().merge("main", [Volume.version("also")])
    last = Volume.version("main").id

    def collect_meanwhile(conflict: Conflict) -> str:
        condemn(store, 1, doomed)
        return "theirs"

    for _ in range(2):
        with pytest.raises(ConflictError, match="condemn"):
            Store().merge("main", [fork], strategy=collect_meanwhile)
        assert Volume.version("main").id == last
    store.delete([keys.condemnation(1)])
    Store().merge("main", [fork], strategy="theirs")
    assert Volume.version("main").files.read("log") == b"changed" * 5000
    store.close()


def test_a_merge_that_a_collection_took_for_dead_begins_anew(base: ROVolume) -> None:
    """Its pin expired while it slept; what only the branch needed is gone, and the list of it,
    too."""
    store = open_store(Volume.open("main").resolve().store_url or "")
    before = {info.key for info in store.list("packs/")}
    fork = forked(base, "exp", log=b"changed" * 5000)
    gone = [info.key for info in store.list("packs/") if info.key not in before]
    forked(base, "also", log=b"otherwise")
    Store().merge("main", [Volume.version("also")])
    last = Volume.version("main").id
    begun: list[Conflict] = []

    def collect_meanwhile(conflict: Conflict) -> str:
        begun.append(conflict)
        for id, (number, pin, _) in live_pins(store, {}).items():
            if pin.kind != "dead":
                dead = replace(
                    pin, kind="dead", lifetime_s=None, packs=(), write_id=WriteId(os.urandom(WriteId.length))
                )
                refs.append(store, refs.pin(id), number + 1, dead)
        fence(store, "main")
        store.delete([*gone, keys.version(VersionId.from_hex(fork.id))])
        return "theirs"

    with pytest.raises(NotFoundError, match=fork.id[:12]):
        Store().merge("main", [fork], strategy=collect_meanwhile)
    assert len(begun) == 1
    assert Volume.version("main").id == last
    assert Volume.version("main").files.read("log") == b"otherwise"
    store.close()


def test_merges_at_once_wait_for_each_other(base: ROVolume, run: Command) -> None:
    for n in range(3):
        forked(base, f"exp-{n}", **{f"of-{n}": b"x"})
    with ThreadPoolExecutor(3) as threads:
        done = list(threads.map(lambda n: run("merge", f"exp-{n}", "--into", "main"), range(3)))
    assert [each.code for each in done] == [0, 0, 0]
    assert {entry.name for entry in Volume.version("main").files.ls()} >= {"of-0", "of-1", "of-2"}


def test_an_encrypted_store_that_only_the_program_has_the_key_of(place: Path) -> None:
    store = Local(place / "sealed", encryption_key=lambda: "a passphrase of this test")
    vol = Volume.new("main", store=store)
    vol.files.write("log", b"one\n")
    base = vol.finalize()
    forks = [forked(base, name, log=b"one\n" + name.encode()) for name in ("a", "b")]
    assert [(each.path, each.what) for each in forks[0].diff(forks[1])] == [("/log", ("content", "mtime"))]
    Store(storage=store).merge("main", forks, strategy="union")
    assert Volume.version("main", store=store).files.read("log") == b"one\nab"


def test_linked_files_stay_linked_and_are_not_taken_over(server: ObjectServer) -> None:
    base = Store().import_(server.url("data"), "main", link=True)
    Store().merge("main", [forked(base, "beside", new=b"1")])
    merged = Volume.version("main")
    assert merged.files.read("dir/a") == b"a" * 1000
    assert merged.stats.linked_bytes == base.stats.linked_bytes
    moved = base.fork("moved")
    moved.files.move("dir", "elsewhere")
    with pytest.raises(InvalidStateError, match="linked") as refused:
        Store().merge("main", [moved.finalize()])
    assert "absorb" in refused.value.hint
    assert Volume.version("main").id == merged.id


def test_the_async_twin(base: ROVolume) -> None:
    forked(base, "exp", x=b"x")

    async def merged() -> str:
        report = await cowfs.Store().merge("main", [await cowfs.Volume.version("exp")])
        return report.locator

    assert anyio.run(merged) == Volume.version("main").locator
