"""cowfs find, tree, stat and du: what lies in a version, without a mount."""

from __future__ import annotations

from pathlib import Path

import pytest

from cowfs.blocking import ROVolume, Volume
from tests.api.conftest import place
from tests.cli.test_live import Command, run

__all__ = ["place", "run"]

TREE = """\
data
├── a/
│   ├── b/
│   │   └── deep
│   └── file
├── link -> a/file
└── z
"""


@pytest.fixture
def version(place: object) -> ROVolume:
    vol = Volume.new("data")
    vol.files.mkdir("a/b", parents=True)
    vol.files.write("a/b/deep", b"x" * 3000)
    vol.files.write("a/file", b"four")
    vol.files.symlink("link", "a/file")
    vol.files.write("z", b"")
    vol.files.chmod("z", 0o640)
    return vol.finalize()


def test_what_lies_in_a_version_is_shown(run: Command, version: ROVolume) -> None:
    assert run("find", "data").out.split() == ["/a", "/a/b", "/a/b/deep", "/a/file", "/link", "/z"]
    assert run("find", "data:a", "--type", "f", "-0").out == "/a/b/deep\0/a/file\0"
    assert run("find", f"{version.locator}/a", "--name", "f*").out == "/a/file\n"
    found = run("find", "data", "--type", "l", "--json").json
    assert (found["locator"], [each["target"] for each in found["entries"]]) == (version.locator, ["a/file"])
    assert run("tree", "data").out == TREE
    assert [each["path"] for each in run("tree", "data:a", "--json").json["entries"]] == [
        "/a/b",
        "/a/b/deep",
        "/a/file",
    ]
    said = run("stat", "data:z", "--json").json
    assert (said["path"], said["type"], said["bytes"], said["mode"] & 0o7777) == ("/z", "file", 0, 0o640)
    assert "-rw-r-----" in run("stat", "data:z").out
    assert run("stat", "data:link", "--json").json["bytes"] == 4, "a link is followed"
    used = run("du", "data", "--json").json["usage"]
    assert [(each["path"], each["files"], each["bytes"]) for each in used] == [
        ("/a/b", 1, 3000),
        ("/a", 2, 3004),
        ("/", 3, 3004),
    ]
    assert run("du", "data:a", "-s").out.split()[-2:] == ["2", "/a"]
    for command in ("find", "tree", "stat", "du"):
        failed = run(command, "data:none")
        assert (failed.code, "hint:" in failed.err) == (3, True), failed
        assert "none" in failed.err


def test_patterns_are_refused_where_they_are_not_expanded(run: Command, version: ROVolume) -> None:
    for words in (("cat",), ("du",), ("stat",), ("purge", "--dry-run")):
        refused = run(*words, "data:a/f*")
        assert (refused.code, "expanded" in refused.err, "cowfs ls" in refused.err) == (3, True, True), words


def test_files_of_this_machine_that_do_not_exist_are_not_found(run: Command, version: ROVolume, place: Path) -> None:
    for words in (
        ("explore", "--from-file", place / "nofile"),
        ("index", "export", "data", place / "nowhere" / "file"),
        ("web", "users", "ls", "--users", place / "nofile"),
    ):
        refused = run(*words)
        assert (refused.code, "does not exist" in refused.err) == (3, True), words
