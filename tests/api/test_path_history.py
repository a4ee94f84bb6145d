"""The history of one path: the versions listed, across renames, merges and pruned versions."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cowfs.blocking import ROVolume, RWVolume, Store, Volume
from cowfs.errors import NotFoundError

pytestmark = pytest.mark.usefixtures("place")


def messages(volume: RWVolume | ROVolume, path: str) -> list[str]:
    return [version.message for version in volume.history(path)]


def publish(volume: RWVolume, message: str, **files: str) -> ROVolume:
    volume.files.mkdir("d", exist_ok=True)
    for name, text in files.items():
        volume.files.write(f"d/{name}", text.encode())
    return volume.commit(message)


@pytest.fixture
def volume(place: Path) -> RWVolume:
    return Volume.open("v", create=True)


def test_only_versions_that_changed_the_path_are_listed(volume: RWVolume) -> None:
    publish(volume, "one", a="1", b="1")
    publish(volume, "two", b="2")
    publish(volume, "three", a="3")
    assert messages(volume, "d/a") == ["three", "one"]
    assert messages(volume, "/d/b") == ["two", "one"]
    assert messages(volume, "d") == ["three", "two", "one"]
    assert [each.message for each in volume.history("d", limit=2)] == ["three", "two"]


def test_a_path_is_followed_over_renames(volume: RWVolume) -> None:
    publish(volume, "one", a="1", other="x")
    volume.files.move("d", "e")
    volume.commit("the directory moves")
    publish(volume, "unrelated", z="1")
    volume.files.move("e/a", "b")
    volume.commit("the file moves")
    volume.files.write("b", b"2")
    volume.commit("the file changes")
    assert messages(volume, "b") == ["the file changes", "the file moves", "the directory moves", "one"]


def test_a_removed_path_has_a_history(volume: RWVolume) -> None:
    publish(volume, "one", a="1", b="1")
    volume.files.remove("d/a")
    volume.commit("removed")
    publish(volume, "again", a="2")
    publish(volume, "unrelated", b="2")
    assert messages(volume, "d/a") == ["again", "removed", "one"]
    with pytest.raises(NotFoundError, match="/d/nothing"):
        volume.history("d/nothing")


def test_what_came_by_a_merge_is_listed_where_it_was_made(volume: RWVolume) -> None:
    base = publish(volume, "one", a="1", b="1")
    fork = base.fork("fork")
    publish(fork, "in the fork", b="2")
    publish(volume, "in the volume", a="2")
    Store().merge("v", [Volume.version("fork")], message="merged")
    assert messages(volume, "d/b") == ["in the fork", "one"]
    assert messages(volume, "d/a") == ["in the volume", "one"]
    assert messages(volume, "d") == ["merged", "in the volume", "in the fork", "one"]


def test_the_log_of_a_path_says_what_changed(volume: RWVolume) -> None:
    publish(volume, "one", a="1")
    volume.files.move("d/a", "d/b")
    volume.commit("moved")
    log = Store().log("v:d/b")
    changes = {version.message: log.changes[version.id] for version in log.versions}
    assert [(each.kind, each.old_path, each.path) for each in changes["moved"]] == [("renamed", "/d/a", "/d/b")]
    assert [each.kind for each in changes["one"]] == ["added"]


def test_a_folder_is_asked_below_it(volume: RWVolume) -> None:
    publish(volume, "one", a="1")
    publish(volume, "two", b="2")
    folder = Volume.version(f"{volume.history()[0].locator}/d")
    assert messages(folder, "a") == ["one"]


@given(
    st.lists(st.tuples(st.sampled_from(["write", "move", "remove"]), st.integers(0, 3), st.integers(0, 3)), max_size=8)
)
@settings(max_examples=25, deadline=None)
def test_any_history_is_that_of_a_model(steps: list[tuple[str, int, int]]) -> None:
    """Contents are unique, so that a move is the only way to a known content."""
    volume: RWVolume = Volume.new()
    trees: list[dict[str, str]] = [{}]
    moves: list[tuple[str, str] | None] = [None]
    for number, (what, at, to) in enumerate(steps):
        tree, path, target = dict(trees[-1]), f"f{at}", f"f{to}"
        move = None
        if what == "write":
            tree[path] = f"content {number}"
            volume.files.write_text(path, tree[path])
        elif path not in tree or (what == "move" and (path == target or target in tree)):
            continue
        elif what == "move":
            tree[target] = tree.pop(path)
            volume.files.move(path, target)
            move = path, target
        else:
            del tree[path]
            volume.files.remove(path)
        volume.commit(str(len(trees)))
        trees.append(tree)
        moves.append(move)
    for path in {path for tree in trees for path in tree}:
        assert messages(volume, path) == _expected(trees, moves, path)


def _expected(trees: list[dict[str, str]], moves: list[tuple[str, str] | None], path: str) -> list[str]:
    found = []
    for number in range(len(trees) - 1, 0, -1):
        if trees[number].get(path) != trees[number - 1].get(path):
            found.append(str(number))
            move = moves[number]
            if move is not None and move[1] == path:
                path = move[0]
    return found
