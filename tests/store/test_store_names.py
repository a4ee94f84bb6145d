"""Names of stores on this machine: what is one, where it is written, and what it stands for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cowfs.base import config
from cowfs.errors import ConflictError, InvalidInputError, NotFoundError, ReadOnlyError
from cowfs.store import initialize, open_store, store_names

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files with names lie."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    place = config.config_file().parent
    place.mkdir(parents=True)
    return place


@pytest.mark.parametrize("text", ["near", "near.2", "my store", "über"])
def test_a_bare_word_is_a_name(text: str) -> None:
    assert store_names.is_name(text)


@pytest.mark.parametrize(
    "text", ["", ".", "..", "./near", "a/b", "/near", "~", "~/near", "s3://near", "s3:near", "file//x"]
)
def test_a_path_or_a_url_is_no_name(text: str) -> None:
    assert not store_names.is_name(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("near/data", ("near", "data")),
        ("near/data@{0}", ("near", "data@{0}")),
        ("near/data@a/b", ("near", "data@a/b")),
        ("data@a/b", (None, "data@a/b")),
        ("/data", (None, "/data")),
        ("./near/data", (None, "./near/data")),
        ("near/", (None, "near/")),
        ("data", (None, "data")),
    ],
)
def test_a_source_is_taken_apart_at_its_first_slash(text: str, expected: tuple[str | None, str]) -> None:
    assert store_names.split_name(text) == expected


def test_added_names_are_found_until_they_are_removed(settings: Path, tmp_path: Path) -> None:
    url = (tmp_path / 'a "b').as_uri()
    added = store_names.add_store("near", str(tmp_path / 'a "b'))
    store_names.add_store("far", "s3://bucket/prefix", read_only=True)
    assert store_names.find_store("near") == added
    assert (added.url, added.read_only, store_names.name_of(url)) == (url, False, "near")
    assert [(each.name, each.read_only) for each in store_names.list_stores()] == [("far", True), ("near", False)]
    assert store_names.add_store("near", str(tmp_path / 'a "b')) == added, "the same again"
    with pytest.raises(ConflictError, match="another store"):
        store_names.add_store("near", "s3://bucket/prefix")
    assert store_names.remove_store("near") == added
    assert store_names.name_of(url) is None
    with pytest.raises(NotFoundError):
        store_names.remove_store("near")
    assert sorted(each.name for each in settings.iterdir()) == ["stores.toml"]


def test_names_that_two_processes_add_at_the_same_time_are_all_kept() -> None:
    program = (
        "import sys; from cowfs.store import store_names; sys.stdin.read(1)\n"
        "for number in range(15): store_names.add_store(f'{sys.argv[1]}{number}', '/srv/store')"
    )
    adding = [
        subprocess.Popen([sys.executable, "-c", program, name], stdin=subprocess.PIPE) for name in ("left", "right")
    ]
    for each in adding:
        each.stdin.write(b".")  # type: ignore[union-attr]
        each.stdin.flush()  # type: ignore[union-attr]
    for each in adding:
        each.communicate()
    assert [each.returncode for each in adding] == [0, 0]
    assert len(store_names.list_stores()) == 30


def test_a_word_without_a_store_is_refused_with_near_names_and_the_path() -> None:
    store_names.add_store("near", "/srv/store")
    with pytest.raises(InvalidInputError, match="no store is named 'neer'") as caught:
        store_names.find_store("neer")
    assert "Did you mean near?" in caught.value.hint
    assert "./neer" in caught.value.hint


@pytest.mark.parametrize("name", ["", ".near", "a/b", "a b", "a@b", "x" * 65, "s3:x"])
def test_a_name_is_letters_digits_and_few_signs(name: str) -> None:
    with pytest.raises(InvalidInputError):
        store_names.add_store(name, "/srv/store")


def test_a_bare_word_is_not_named_as_a_directory() -> None:
    with pytest.raises(InvalidInputError, match="neither a URL nor a path"):
        store_names.add_store("near", "store")


def test_names_that_are_written_by_hand_come_first(settings: Path) -> None:
    store_names.add_store("near", "/srv/ours")
    store_names.add_store("own", "/srv/own")
    (settings / "config.toml").write_text('[stores]\nnear = "/srv/config"\nlocal = "below"\n')
    (settings / "volumes.toml").write_text(
        '[stores]\nnear = "/srv/volumes"\nmain = {preset = "local", path = "/srv/main"}\n'
    )
    found = {each.name: each for each in store_names.list_stores()}
    assert sorted(found) == ["local", "main", "near", "own"]
    assert found["near"].url == "/srv/config"
    assert found["local"].url == str(settings / "below")
    assert not found["main"].is_url
    with pytest.raises(InvalidInputError, match="by hand"):
        store_names.remove_store("near")


@pytest.mark.parametrize(
    "text",
    ["stores = 3", "[stores]\nnear = 3", '[stores]\n"a b" = "/srv"', '[stores]\nnear = {url = "/srv", read_only = 1}'],
)
def test_a_table_that_is_wrong_is_refused(settings: Path, text: str) -> None:
    (settings / "config.toml").write_text(text)
    with pytest.raises(InvalidInputError):
        store_names.find_store("near")


def test_a_store_named_read_only_is_not_written_to_by_its_url_either(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with_writer = open_store(root.as_uri(), create=True)
    initialize(with_writer)
    with_writer.close()
    store_names.add_store("near", str(root), read_only=True)
    store = open_store(root.as_uri())
    assert store.list("")
    with pytest.raises(ReadOnlyError) as caught:
        store.put("volumes/x", b"x")
    assert "read-only" in caught.value.hint
    store.close()
    store_names.add_store("new", str(tmp_path / "new"), read_only=True)
    with pytest.raises(ReadOnlyError):
        open_store((tmp_path / "new").as_uri(), create=True)
    assert not (tmp_path / "new").exists()


def test_a_table_that_cannot_be_read_makes_no_store_writable(settings: Path, tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    store_names.add_store("near", str(root), read_only=True)
    (settings / "stores.toml").write_text("[near")
    with pytest.raises(InvalidInputError, match=r"stores\.toml"):
        open_store(root.as_uri())
