"""cowfs diff: what differs between two versions, as text and as JSON; and ROVolume.diff, which it
shows."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import cowfs
from cowfs.blocking import ROVolume, Volume
from cowfs.errors import InvalidInputError, NotFoundError
from cowfs.storage import Local
from tests.api.conftest import place
from tests.cli.test_json import check
from tests.cli.test_live import Command, run

__all__ = ["place", "run"]


@pytest.fixture
def versions(place: Path) -> tuple[ROVolume, ROVolume]:
    vol = Volume.new("data")
    vol.files.mkdir("a")
    vol.files.mkdir("gone")
    vol.files.write("a/text", b"one\ntwo\nthree\n")
    vol.files.write("gone/deep", b"x" * 3000)
    vol.files.write("bytes", b"\0\1")
    first = vol.commit()
    vol.files.write("a/text", b"one\n2\nthree")
    vol.files.move("a", "b")
    vol.files.remove("gone", recursive=True)
    vol.files.write("bytes", b"\0\2")
    vol.files.write("new", b"line\n")
    return first, vol.finalize()


def test_what_differs_is_shown(run: Command, versions: tuple[ROVolume, ROVolume]) -> None:
    first, last = versions
    old, new = f"data@{first.id[:12]}", "data"
    assert run("diff", old, new, "--name-status").out.splitlines() == [
        "R\t/a/\t/b/",
        "M\t/b/text",
        "M\t/bytes",
        "D\t/gone/",
        "D\t/gone/deep",
        "A\t/new",
    ]
    assert "M  /b/text  (content, mtime)" in run("diff", old, last.locator).out
    stat = run("diff", old, new, "--stat").out.splitlines()
    assert " /new       |  +5 B" in stat
    assert stat[-1].startswith(" 1 added, 2 removed, 2 changed, 1 renamed; +")
    patch = run("diff", old, new, "--patch").out
    assert "--- a/a/text\n+++ /dev/null\n" in patch
    assert "+2\n+three\n\\ No newline at end of file\n" in patch
    assert "# cowfs: /bytes: not in this patch: content" in patch
    assert run("diff", old, new, "new").out == "A  /new\n"
    assert run("diff", f"{old}:a", "data:b").out == "M  /text  (content, mtime)\n"
    found = run("diff", old, new, "--json").json
    check("diff", found)
    assert (found["old_locator"], found["new_locator"]) == (first.locator, last.locator)
    assert found["totals"]["removed_bytes"] >= 3000
    same = run("diff", new, new, "--exit-code")
    assert (same.code, same.out) == (0, "")
    assert run("diff", old, new, "--exit-code").code == 1
    assert run("diff", old, new).code == 0
    assert run("diff", old, new, "nowhere").code == 3
    assert [run("diff", new, new, each).code for each in ("/", "new", "nowhere", "new/nowhere")] == [0, 0, 3, 3]
    assert [run("diff", f"{new}:{each}", f"{new}:{each}").code for each in ("b", "nowhere")] == [0, 3]
    assert run("diff", old, new, "--json", "--patch").code == 2


def test_versions_say_what_became_of_them(versions: tuple[ROVolume, ROVolume], tmp_path: Path) -> None:
    first, last = versions
    there = {change.path: change for change in first.diff(last)}
    assert there["/b"].old_path == "/a"
    assert (there["/b/text"].old_size, there["/b/text"].size) == (14, 11)
    back = {(change.kind, change.path) for change in last.diff(first)}
    assert ("renamed", "/a") in back
    assert ("removed", "/new") in back
    assert [change.path for change in first.diff(last, path="/a")] == ["/a", "/a/text"], "the other end is elsewhere"
    with pytest.raises(NotFoundError):
        first.diff(last, path="nowhere")
    with pytest.raises(NotFoundError):
        first.diff(first, path="nowhere")
    assert list(first.diff(last.locator)) == list(first.diff(last)), "a text names it as well"
    with pytest.raises(InvalidInputError):
        first.diff(5)  # type: ignore[arg-type]
    elsewhere = Volume.new("other", store=(tmp_path / "second").as_uri())
    elsewhere.files.write("bytes", b"\0\2")
    other = elsewhere.finalize()
    assert "/bytes" not in {change.path for change in last.diff(other)}, "equal content has equal names in every store"


def test_forks_are_compared_though_their_new_files_have_the_same_numbers(place: Path) -> None:
    vol = Volume.new("base")
    vol.files.write("both", b"same")
    base = vol.finalize()
    forks = []
    for name in ("one", "two"):
        fork = base.fork(name)
        fork.files.write(f"of {name}", name.encode())
        forks.append(fork.finalize())
    assert {(each.kind, each.path) for each in forks[0].diff(forks[1])} == {
        ("removed", "/of one"),
        ("added", "/of two"),
    }


def test_forks_are_compared_where_only_the_program_has_the_key(place: Path) -> None:
    """What both came from is opened with the same."""
    store = Local(place / "sealed", encryption_key=lambda: "a passphrase of this test")
    vol = Volume.new("base", store=store)
    vol.files.write("both", b"same")
    base = vol.finalize()
    forks = []
    for name in ("one", "two"):
        fork = base.fork(name)
        fork.files.write("both", name.encode())
        forks.append(fork.finalize())
    assert [(each.kind, each.path) for each in forks[0].diff(forks[1])] == [("changed", "/both")]


def test_the_async_twin(versions: tuple[ROVolume, ROVolume]) -> None:
    async def found() -> list[str]:
        first, last = [await cowfs.Volume.from_locator(each.locator) for each in versions]
        return [change.path async for change in first.diff(last)]

    assert anyio.run(found) == [change.path for change in versions[0].diff(versions[1])]
