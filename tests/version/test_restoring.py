"""What is restored is there as the version has it, and the rest is as it was; files stay what they
are one of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cowfs.errors import ConflictError, InvalidInputError, NotFoundError
from cowfs.version.differences import compare
from cowfs.version.merge.merge_changes import MergeChanges, becomes
from cowfs.version.merge.restoring import plan_restore
from cowfs.version.publish.contents import files_of
from cowfs.version.publish.tree_changes import MTIME
from tests.index.bench import NOW_NS, pack_id
from tests.version.trees import Node, Tree, applied_in_memory, changed, files_of_index, read_back, trees

ROOT = 1
LATER_NS = NOW_NS + 10**12


def result(target: Tree, source: Tree, base: Tree, path: bytes = b"", to: bytes | None = None) -> Any:
    """States, and names by file, after what `source` has at `path` is put into `target`."""
    of_base = base.in_memory()
    of_target = target.in_memory(base, of_base) if target is not base else of_base
    of_source = source.in_memory(base, of_base) if source is not base else of_base
    to = path if to is None else to
    merged = plan_restore(of_target, of_source, shared=base.next_ino, path=path, to=to, now_ns=LATER_NS)
    told = becomes(merged)
    draft = MergeChanges(merged, {pack_id(1): 1}.__getitem__, LATER_NS).draft()
    contents = [(ino, rows) for ino, _, rows in files_of(draft.contents)]
    packs = {1: pack_id(1)} if contents else {}
    with applied_in_memory(of_target, replace(draft.changes, contents=contents, packs=packs)) as index:
        states = read_back(index)
        if not path and not to:
            left = compare(index, of_source, shared=0, times=True, renames=False)
            assert not left, "times are those of the version, too"
            assert told or target.states() == source.states()
        return states, files_of_index(index, states)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_rolled_back_to_a_version_it_is_that_version(data: st.DataObject) -> None:
    base = data.draw(trees)
    target, source = data.draw(changed(base)), data.draw(changed(base))
    states, files = result(target, source, base)
    assert states == source.states()
    assert files == source.files()
    assert result(target, target, base)[0] == target.states()
    states, files = result(target, base, base)
    assert states == base.states()
    assert files == base.files()


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_one_path_is_as_the_version_has_it_and_the_rest_is_as_it_was(data: st.DataObject) -> None:
    base = data.draw(trees)
    target, source = data.draw(changed(base)), data.draw(changed(base))
    path = data.draw(st.sampled_from(sorted(source.states())))
    to = data.draw(st.sampled_from([path, path, b"new", b"a/new"]))
    before = target.states()
    try:
        states, _ = result(target, source, base, path, to)
    except (NotFoundError, ConflictError):
        above = [
            to.rsplit(b"/", count)[0] if to.count(b"/") >= count else b"" for count in range(1, to.count(b"/") + 2)
        ]
        assert any(before.get(each, ("", None))[0] != "directory" for each in above)
        return
    except InvalidInputError:
        assert not to
        return
    inside = _below(states, to)
    assert inside == _below(source.states(), path)
    outside = {each: state for each, state in states.items() if not _is_below(each, to)}
    kept = {each: state for each, state in before.items() if not _is_below(each, to)}
    came_along = outside.keys() - kept.keys()
    assert all(to.startswith(each + b"/") and outside[each][0] == "directory" for each in came_along)
    assert {each: outside[each] for each in kept} == kept


def _is_below(path: bytes, top: bytes) -> bool:
    return not top or path == top or path.startswith(top + b"/")


def _below(states: dict[bytes, Any], top: bytes) -> dict[bytes, Any]:
    return {path[len(top) :].strip(b"/"): state for path, state in states.items() if _is_below(path, top)}


def test_a_file_that_was_moved_and_whose_name_another_one_took() -> None:
    """Each goes back to its own name with its own content, and is no other file's name too."""
    base = Tree()
    one = base.make(ROOT, b"q", Node("file", chunks=(1,)))
    source, target = base.copy(), base.copy()
    source.rename(ROOT, b"q", ROOT, b"p")
    source.make(ROOT, b"q", Node("file", chunks=(2,)))
    states, files = result(target, source, base)
    assert (states[b"p"][4], states[b"q"][4]) == ((1,), (2,))
    assert files == {frozenset([b"p"]), frozenset([b"q"])}
    assert target.nodes[ROOT].names[b"q"] == one


def test_names_of_one_file_are_one_file_again() -> None:
    base = Tree()
    ino = base.make(ROOT, b"x", Node("file", chunks=(1,)))
    base.link(ROOT, b"y", ino)
    target = base.copy()
    target.remove(ROOT, b"y")
    _, files = result(target, base, base)
    assert files == {frozenset([b"x", b"y"])}
    _, files = result(target, base, base, b"y")
    assert files == {frozenset([b"x"]), frozenset([b"y"])}, "one path alone is a file of its own"


def test_a_directory_whose_name_comes_or_goes_is_changed_then() -> None:
    base = Tree()
    base.make(base.make(ROOT, b"d", Node("directory", 0o755)), b"x", Node("file", chunks=(1,)))
    target = base.copy()
    target.remove(target.nodes[ROOT].names[b"d"], b"x")
    of_base = base.in_memory()
    of_target = target.in_memory(base, of_base)
    merged = plan_restore(of_target, of_base, shared=base.next_ino, path=b"d/x", to=b"d/x", now_ns=LATER_NS)
    assert merged.paths[b"d"] is not None
    assert merged.paths[b"d"].body.row[MTIME] == LATER_NS
    assert [(path, what) for path, what in becomes(merged)] == [(b"d/x", "added")]


@pytest.mark.parametrize(
    ("path", "to", "error"),
    [
        (b"none", b"none", NotFoundError),
        (b"f", b"missing/f", NotFoundError),
        (b"f", b"f/below", ConflictError),
        (b"f", b"", InvalidInputError),
    ],
)
def test_what_has_no_place_is_refused(path: bytes, to: bytes, error: type[Exception]) -> None:
    base = Tree()
    base.make(ROOT, b"f", Node("file", chunks=(1,)))
    with pytest.raises(error):
        result(base, base, base, path, to)
