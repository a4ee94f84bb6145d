"""cowfs rm, mv and mkdir, and patterns in ls, find and cp."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cowfs.blocking import Volume
from tests.api.conftest import place
from tests.cli.test_json import check
from tests.cli.test_live import Command, run

__all__ = ["place", "run"]

pytestmark = pytest.mark.mount


@pytest.fixture
def data(run: Command, place: Path) -> Path:
    """Volume "data" with some pictures, and a directory of this machine with the same."""
    here = place / "here"
    (here / "img" / "sub").mkdir(parents=True)
    for name in ("1.png", "2.png", "note.txt", "sub/3.png"):
        (here / "img" / name).write_text(name)
    run("create", "data")
    assert run("cp", here, "data:").code == 0
    return here


def test_commands_on_paths_make_versions(run: Command, data: Path) -> None:
    made = run("mkdir", "-p", "data:a/b", "-m", "made", "--label", "of=test", "--author", "me", "--json")
    check("mkdir", made.json)
    version = Volume.version("data")
    assert (version.message, version.labels, version.author) == ("made", {"of": "test"}, "me")
    moved = run("mv", "data:img/*.png", "data:a/b")
    assert (moved.out.strip(), moved.err) == (Volume.version("data").locator, "Moved 2 paths of data\n")
    planned = run("rm", "-r", "data:img", "--dry-run")
    assert (planned.code, planned.out, planned.err) == (0, "/img\n", "")
    check("rm", run("rm", "-r", "data:img", "--json").json)
    check("mv", run("mv", "data:a/b/1.png", "data:1.png", "--json").json)
    assert run("find", "data:").out.split() == ["/1.png", "/a", "/a/b", "/a/b/2.png"]
    for words, code, said in (
        (("rm", "data:a"), 2, "-r (recursive=True)"),
        (("rm", "data"), 2, "`cowfs delete data`"),
        (("rm", "data:nosuch"), 3, "data:/nosuch"),
        (("mkdir", "data:a"), 4, "there already"),
        (("rm", "data:1.png", "--label", "x"), 2, "label 'x' has no '='"),
    ):
        refused = run(*words)
        assert refused.code == code, words
        assert said in refused.err, words
    assert run("rm", "-f", "data:nosuch").err == "There is nothing to remove\n"


def test_patterns_list_and_find_what_matches(run: Command, data: Path) -> None:
    listed = run("ls", "data:img/*.png")
    assert [line.split()[-1] for line in listed.out.splitlines()] == ["PATH", "/img/1.png", "/img/2.png"]
    check("ls SOURCE", run("ls", "data:img/*.png", "--json").json)
    assert [line.split()[-1] for line in run("ls", "data:*").out.splitlines()] == ["PATH", "/img/"]
    assert run("find", "data:**/s*").out.split() == ["/img/sub", "/img/sub/3.png"]
    assert run("find", "data:img/*", "--name", "*.png", "--type", "f").out.split() == [
        "/img/1.png",
        "/img/2.png",
        "/img/sub/3.png",
    ]
    nothing = run("ls", "data:img/*.jpg")
    assert (nothing.code, nothing.err.splitlines()[0]) == (3, "cowfs: nothing in data matches 'img/*.jpg'")
    (data / "*").write_text("star")
    run("cp", data / "*", "data:img/*")
    assert [line.split()[-1] for line in run("ls", "data:img/*").out.splitlines()] == ["NAME", "*"], "a name wins"
    assert run("find", "data:i*/\\*").out.split() == ["/img/*"], "a backslash takes the wildcard literally"
    assert run("find", "data:**/[1-2].png").out.split() == ["/img/1.png", "/img/2.png"]
    assert run("ls", f"{Volume.version('data').locator}:img/?.png").out.count("png") == 2


def test_several_sources_and_patterns_are_copied_under_their_names(run: Command, data: Path, place: Path) -> None:
    assert run("cp", "data:**/*.png", place / "pngs").code == 0
    assert sorted(os.listdir(place / "pngs")) == ["1.png", "2.png", "3.png"]
    (data / ".hidden").touch()
    run("cp", data / ".hidden", "data:dots/")
    assert run("find", "data:dots/*").out.split() == ["/dots/.hidden"]
    assert run("cp", "data:img/*", place / "out").code == 0
    assert sorted(os.listdir(place / "out")) == ["1.png", "2.png", "note.txt", "sub"]
    assert (place / "out" / "sub" / "3.png").read_text() == "sub/3.png"
    assert run("cp", "data:img/sub", "data:img/1.png", place / "two").code == 0
    assert sorted(os.listdir(place / "two")) == ["1.png", "sub"]
    before = Volume.version("data")
    os.link(data / "img" / "1.png", data / "linked")
    copied = run("cp", data / "img" / "1.png", data / "linked", data / "img" / "sub", "data:more", "--json")
    assert (copied.json["files"], copied.json["is_new"]) == (3, True)
    version = Volume.version("data")
    assert version.parents == [before.id], "one version with all of it"
    assert run("find", "data:more").out.split() == ["/more/1.png", "/more/linked", "/more/sub", "/more/sub/3.png"]
    assert version.stats.files == before.stats.files + 2, "two names of one file"
    again = run("cp", data / "img" / "1.png", data / "linked", data / "img" / "sub", "data:more")
    assert again.err == f"Nothing has changed: 3 files, {2 * len('1.png') + len('sub/3.png')} B\n"
    run("create", "other")
    assert run("cp", "data:img/*.png", "data:more/sub", "other:").code == 0
    assert run("find", "other").out.split() == ["/1.png", "/2.png", "/sub", "/sub/3.png"]
    with Volume.open("other") as mounted:
        assert "into the mount" in run("cp", data / "img" / "note.txt", data / "linked", "other:x/y").err
        assert sorted(os.listdir(mounted.path / "x" / "y")) == ["linked", "note.txt"]


def test_names_without_a_colon_are_explained(run: Command, data: Path, place: Path) -> None:
    for words, said, hint in (
        (("one.txt", "data"), "'data' without a colon", "`cowfs cp one.txt data:`"),
        (("data", "out"), "'data' without a colon", "`cowfs cp data: out`"),
        (("one.txt", "nosuch"), "are paths of this machine", "SOURCE:PATH"),
        (("data:img", "one.txt", "data:x"), "one.txt on this machine", "one volume or version"),
        (("data:img", "other:img", "x"), "two sources", "at a time"),
        (("a/same", "b/same", "data:x"), "two of the sources are named 'same'", "one by one"),
        (("data:", "data:img", "x"), "has no name", "alone"),
    ):
        for name in ("a", "b"):
            (place / name).mkdir(exist_ok=True)
            (place / name / "same").touch()
        refused = run("cp", *words, cwd=place)
        assert refused.code == 2, words
        assert said in refused.err, words
        assert hint in refused.err, words
    for command, is_shown in (("mkdir", False), ("mv", False), ("rm", True)):
        refused = run(command, "nosuch", *(["other"] if command == "mv" else []))
        assert (refused.code, "cowfs delete" in refused.err) == (2, is_shown), command
    assert "cannot be renamed" in run("rename", "data", "other").err
    refused = run("mv", "data@{0}:img", "data:x")
    assert (refused.code, "a version never changes" in refused.err) == (7, True)
    refused = run("delete", "nosuch")
    assert (refused.code, "no volume 'nosuch'" in refused.err) == (3, True)
