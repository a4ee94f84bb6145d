"""Merging trees: the laws, each kind of conflict against what it must come to, and that whatever is
merged is a sound version."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from cowfs.index import Index
from cowfs.version.merge.conflicts import HOWS, Conflict, How
from cowfs.version.merge.merge_changes import MergeChanges, becomes
from cowfs.version.merge.merge_states import Branch, Part
from cowfs.version.merge.merge_steps import merge_all
from cowfs.version.publish.contents import files_of
from cowfs.version.publish.tree_changes import INO
from tests.index.bench import NOW_NS, pack_id
from tests.version.trees import (
    NAMES,
    STEPS,
    Node,
    Tree,
    applied_in_memory,
    changed,
    files_of_index,
    names_together,
    read_back,
    trees,
)

ROOT = 1
NAMING = ("link", "link", "rename", "alter", "remove", "file")
WITHOUT_MOVES = [step for step in STEPS if step not in ("rename", "link")]


def begins_with(sides: Sequence[Index], whole: Part, first: Part) -> bool:
    rows = [sides[part.side].content(part.row[INO])[0] for part in (whole, first)]
    return rows[0][: len(rows[1])] == rows[1]


def merged(
    base: Tree,
    target: Tree,
    *branches: Tree,
    how: How | Callable[[Conflict], How] = "fail",
    others: Sequence[tuple[Tree, Tree]] = (),
) -> tuple[dict[bytes, Any], list[Conflict]]:
    """States, and conflicts. All come from `base`, and from the `others`: each with what it and
    `base` come from."""
    states, _, conflicts = merged_files(base, target, *branches, how=how, others=others)
    return states, conflicts


def merged_files(
    base: Tree,
    target: Tree,
    *branches: Tree,
    how: How | Callable[[Conflict], How] = "fail",
    others: Sequence[tuple[Tree, Tree]] = (),
) -> tuple[dict[bytes, Any], set[frozenset[bytes]], list[Conflict]]:
    """As `merged`, with the names of each file."""

    of_base = base.in_memory()
    of_target = target.in_memory(base, of_base) if target is not base else of_base
    indexes = [branch.in_memory(base, of_base) for branch in branches]
    shared = base.next_ino
    bases = [(other.in_memory(before, before.in_memory()), before.in_memory()) for other, before in others]
    made = [Branch(f"b{n}", each, of_base, shared, shared, bases) for n, each in enumerate(indexes, 1)]
    index, conflicts = _merged_index(of_target, made, how)
    if index is None:
        return {}, set(), conflicts
    with index:
        states = read_back(index)
        return states, files_of_index(index, states), conflicts


def _merged_index(
    target: Index, branches: Sequence[Branch], how: How | Callable[[Conflict], How]
) -> tuple[Index | None, list[Conflict]]:
    """None: there are conflicts that were not resolved."""

    def resolve(conflict: Conflict) -> How:
        return how(conflict) if callable(how) else how

    found = merge_all("main", target, branches, resolve, begins_with, ExitStack())
    becomes(found)
    if found.failed:
        return None, found.conflicts
    draft = MergeChanges(found, {pack_id(1): 1}.__getitem__, NOW_NS).draft()
    contents = [(ino, rows) for ino, _, rows in files_of(draft.contents)]
    packs = {1: pack_id(1)} if contents else {}
    return applied_in_memory(target, replace(draft.changes, contents=contents, packs=packs)), found.conflicts


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_merged_with_the_base_it_is_the_other_side(data: st.DataObject) -> None:
    base = data.draw(trees)
    other = data.draw(changed(base))
    assert merged_files(base, base, other) == (other.states(), other.files(), [])
    assert merged_files(base, other, base) == (other.states(), other.files(), [])


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_merged_with_itself_it_is_the_same(data: st.DataObject) -> None:
    base = data.draw(trees)
    a = data.draw(changed(base))
    assert merged_files(base, a, a) == (a.states(), a.files(), [])
    assert merged_files(base, a, a, a) == (a.states(), a.files(), [])


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_changes_that_do_not_meet_come_out_the_same_in_any_order(data: st.DataObject) -> None:
    base = data.draw(trees)
    sides = []
    for name in (b"x", b"y", b"z"):
        side = base.copy()
        own = side.make(ROOT, name, Node("directory", 0o755))
        inside = data.draw(changed(Tree()))
        _graft(inside, side, own)
        for number, (_, ino) in enumerate(base.paths()):
            if data.draw(st.booleans()):
                side.link(own, b"also%d" % number, ino)
        sides.append(side)
    expected = base.states()
    for side, name in zip(sides, (b"x", b"y", b"z"), strict=True):
        expected |= {path: state for path, state in side.states().items() if path.split(b"/")[0] == name}
    led = {path: (b"", ino) for path, ino in base.paths() if base.nodes[ino].kind != "directory"}
    for side, name in zip(sides, (b"x", b"y", b"z"), strict=True):
        led = {path: file for path, file in led.items() if path.split(b"/")[0] != name}
        for path, ino in side.paths():
            if path.split(b"/")[0] == name and side.nodes[ino].kind != "directory":
                led[path] = (b"" if ino < base.next_ino else name, ino)
    files = names_together(led.items())
    for order in data.draw(st.lists(st.permutations(sides), min_size=2, max_size=2)):
        assert merged_files(base, base, *order) == (expected, files, [])
        assert merged_files(base, *order) == (expected, files, [])


@given(st.data(), st.lists(st.sampled_from(["fail", "ours", "theirs", "keep-both"]), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_merged_at_once_they_come_to_what_they_come_to_one_by_one(data: st.DataObject, hows: list[How]) -> None:
    """Of branches from several versions of the target, with a strategy for each path."""

    def how(conflict: Conflict) -> How:
        return hows[len(conflict.path) % len(hows)]

    line = [data.draw(st.one_of(st.just(BASE), changed(Tree())))]
    indexes = [line[0].in_memory()]
    for _ in range(data.draw(st.integers(0, 2))):
        line.append(data.draw(changed(line[-1], 3)))
        indexes.append(line[-1].in_memory(line[-2], indexes[-1]))
    branches = []
    for number in range(1, 4):
        of = data.draw(st.integers(0, len(line) - 1))
        tree, index = line[of], indexes[of]
        side = data.draw(changed(tree, 4)).in_memory(tree, index)
        branches.append(Branch(f"b{number}", side, index, tree.next_ino, tree.next_ino))
    at_once, conflicts = _merged_index(indexes[-1], branches, how)
    so_far, one_by_one = indexes[-1], list[Conflict]()
    for branch in branches:
        merged_one, found = _merged_index(so_far, [branch], how)
        one_by_one += found
        if merged_one is None:
            assert at_once is None
            assert set(map(_met, found)) <= set(map(_met, conflicts))
            return
        so_far = merged_one
    assert sorted(map(_met, conflicts)) == sorted(map(_met, one_by_one))
    assert at_once is not None
    states = read_back(at_once)
    assert states == read_back(so_far)
    assert files_of_index(at_once, states) == files_of_index(so_far, states)


def _met(conflict: Conflict) -> tuple[str, str, str, str]:
    return conflict.kind, conflict.path, conflict.theirs, conflict.how


def test_a_link_to_a_file_that_was_moved_has_what_comes_after() -> None:
    base = tree(f=[1], q=[2])
    ino = base.nodes[ROOT].names[b"f"]
    moved, linked, altered = base.copy(), base.copy(), alter(base, b"f", chunks=(3,))
    moved.rename(ROOT, b"f", ROOT, b"g")
    linked.remove(ROOT, b"q")
    linked.link(ROOT, b"q", ino)
    states, files, conflicts = merged_files(base, moved, linked, altered)
    assert (content(states), conflicts) == ({b"g": (3,), b"q": (3,)}, [])
    assert files == {frozenset([b"g", b"q"])}


@pytest.mark.parametrize("changes", [{"mode": 0o600}, {"chunks": (4,)}, {"xattrs": {b"user.x": b"y"}}])
def test_a_file_that_is_moved_onto_another_one_has_what_the_other_side_did_to_it(changes: dict[str, Any]) -> None:
    """Also where its old name leads to a new file."""
    base = tree(a=[2], b=[3])
    base.link(ROOT, b"c", base.nodes[ROOT].names[b"b"])
    altered, moved = alter(base, b"a", **changes), base.copy()
    moved.rename(ROOT, b"a", ROOT, b"b")
    moved.make(ROOT, b"a", Node("file", chunks=(5,)))
    for sides in ((altered, moved), (moved, altered), (base, altered, moved), (base, moved, altered)):
        states, conflicts = merged(base, *sides, how="theirs" if sides[-1] is moved else "ours")
        assert states[b"b"] == altered.states()[b"a"]
        assert content(states) == {b"a": (5,), b"b": changes.get("chunks", (2,)), b"c": (3,)}
        assert [each.path for each in conflicts] == (["/a"] if "chunks" in changes else [])


def test_a_file_that_one_side_removed_is_one_for_all_who_gave_it_names() -> None:
    base = tree(f=[1])
    removed, named, renamed = gone(base, b"f"), base.copy(), base.copy()
    ino = base.nodes[ROOT].names[b"f"]
    named.link(ROOT, b"g", ino)
    renamed.link(ROOT, b"h", ino)
    orders = list(itertools.permutations((removed, named, renamed)))
    for sides in (*orders, *((base, *order) for order in orders)):
        states, files, conflicts = merged_files(base, *sides)
        assert (content(states), files, conflicts) == ({b"g": (1,), b"h": (1,)}, {frozenset([b"g", b"h"])}, [])


def test_a_name_that_nobody_has_any_more_is_free_for_another_file() -> None:
    base = tree(f=[1])
    to_g, to_h, new_g = base.copy(), base.copy(), base.copy()
    to_g.rename(ROOT, b"f", ROOT, b"g")
    to_h.rename(ROOT, b"f", ROOT, b"h")
    new_g.make(ROOT, b"g", Node("file", chunks=(5,)))

    def how(conflict: Conflict) -> How:
        return "theirs" if conflict.kind == "renamed_twice" else "fail"

    states, conflicts = merged(base, to_g, to_h, new_g, how=how)
    assert content(states) == {b"g": (5,), b"h": (1,)}
    assert [each.kind for each in conflicts] == ["renamed_twice"]


def _graft(tree: Tree, into: Tree, parent: int) -> None:
    """What is in the tree, into a directory."""
    numbers = {ROOT: parent}
    for ino in sorted(tree.nodes):
        if ino != ROOT:
            numbers[ino], into.next_ino = into.next_ino, into.next_ino + 1
    for ino, node in tree.nodes.items():
        node.names = {name: numbers[below] for name, below in node.names.items()}
        if ino == ROOT:
            into.nodes[parent].names = node.names
        else:
            into.nodes[numbers[ino]] = node


@pytest.mark.parametrize("is_few", [False, True])
@given(st.data(), st.sampled_from(["ours", "theirs"]))
@settings(max_examples=120, deadline=None)
def test_path_by_path_it_is_what_one_side_changed_and_conflicts_are_all_named(
    is_few: bool, data: st.DataObject, how: How
) -> None:
    """Without moves, which are followed. Names do not turn from files into directories here.
    is_few: so that both sides change the same files."""
    base = BASE if is_few else data.draw(changed(Tree(), steps=WITHOUT_MOVES))
    steps = ["alter"] if is_few else WITHOUT_MOVES
    ours, theirs = (data.draw(changed(base, 6, steps=steps)) for _ in range(2))
    before, mine, other = base.states(), ours.states(), theirs.states()
    every = before.keys() | mine.keys() | other.keys()
    for path in every:
        kinds = {states[path][0] == "directory" for states in (before, mine, other) if path in states}
        if len(kinds) > 1:
            return  # the next test has these
    result, conflicts = merged(base, ours, theirs, how=how)
    expected: dict[bytes, Any] = {}
    clashes = set()
    for path in every:
        state, kind = _model(before.get(path), mine.get(path), other.get(path), how)
        if kind:
            clashes.add((kind, path))
        if state is not None:
            expected[path] = state
    for path in sorted(expected, key=len, reverse=True):
        above = path.rpartition(b"/")[0]
        if above not in expected:
            kept = mine.get(above) or other.get(above)
            assert kept is not None
            expected[above] = kept
    assert {path: state for path, state in result.items() if state[0] != "directory"} == {
        path: state for path, state in expected.items() if state[0] != "directory"
    }
    assert {(each.kind, each.path.encode("utf-8", "surrogateescape")[1:]) for each in conflicts} == clashes


@given(st.data(), st.sampled_from(["ours", "theirs"]))
@settings(max_examples=100, deadline=None)
def test_two_that_have_merged_each_other_are_merged_as_from_that_merge(data: st.DataObject, how: How) -> None:
    base = data.draw(changed(Tree(), steps=WITHOUT_MOVES))
    sides = []
    whole = base
    for name in (b"x", b"y"):
        inside = data.draw(changed(Tree(), steps=WITHOUT_MOVES))
        alone, whole = base.copy(), whole.copy()
        for tree in (alone, whole):
            _graft(inside.copy(), tree, tree.make(ROOT, name, Node("directory", 0o755)))
        sides.append(alone)
    ours, theirs = (data.draw(changed(whole, 6, steps=WITHOUT_MOVES)) for _ in range(2))
    expected, clashes = merged(whole, ours, theirs, how=how)
    found, conflicts = merged(sides[0], ours, theirs, how=how, others=[(sides[1], base)])
    assert {path: state for path, state in found.items() if state[0] != "directory"} == {
        path: state for path, state in expected.items() if state[0] != "directory"
    }
    assert {(each.kind, each.path) for each in conflicts} == {(each.kind, each.path) for each in clashes}


def test_what_two_merge_bases_do_not_agree_on_is_a_conflict() -> None:
    one, other = alter(BASE, b"a", chunks=(3,)), alter(BASE, b"a", chunks=(4,))
    ours, theirs = alter(one, b"a", chunks=(3,)), alter(one, b"a", chunks=(4,))
    assert [each.path for each in merged(one, ours, theirs, others=[(other, BASE)])[1]] == ["/a"]
    assert [each.path for each in merged(one, theirs, ours, others=[(other, BASE)])[1]] == ["/a"]


def test_a_directory_that_merge_bases_disagree_on_goes_with_what_lay_in_it() -> None:
    before = Tree()
    directory = before.make(ROOT, b"x", Node("directory", 0o755))
    before.make(directory, b"in", Node("file", chunks=(1,)))
    base, other = before.copy(), before.copy()
    base.nodes[directory].mode, other.nodes[directory].mode = 0o700, 0o750
    without, beside = gone(base, b"x"), base.copy()
    beside.make(ROOT, b"n", Node("file", chunks=(2,)))
    for ours, theirs in ((without, beside), (beside, without)):
        states, conflicts = merged(base, ours, theirs, others=[(other, before)])
        assert (sorted(states), conflicts) == ([b"", b"n"], [])


def _model(before: Any, mine: Any, other: Any, how: str) -> tuple[Any, str]:
    """State, and the kind of conflict; "": none."""
    if other in (before, mine):
        return mine, ""
    if mine == before:
        return other, ""
    if mine is None or other is None:
        left = mine or other
        if left[0] == "directory":
            return None, ""
        return (mine if how == "ours" else other), "changed_and_removed"
    parts: list[Any] = []
    kind = ""
    for places in ((0, 3, 4), (1, 2, 5)):
        three = [tuple(state[place] for place in places) if state else None for state in (before, mine, other)]
        if three[2] in (three[0], three[1]):
            parts.append(three[1])
        elif three[1] == three[0]:
            parts.append(three[2])
        elif places[0] == 0:
            kind = "type_changed" if mine[0] != other[0] else "both_changed" if before else "both_added"
            if kind != "both_changed" or before[0] != mine[0]:
                return (mine if how == "ours" else other), kind
            parts.append(three[1] if how == "ours" else three[2])
        else:
            kind = kind or "attributes"
            parts.append(three[1] if how == "ours" else three[2])
    (what, target, chunks), (mode, uid, xattrs) = parts
    return (what, mode, uid, target, chunks, xattrs), kind


@given(st.data())
@settings(max_examples=200, deadline=None, phases=[Phase.generate])
def test_whatever_is_merged_is_a_sound_version(data: st.DataObject) -> None:
    base = data.draw(trees)
    target, *branches = (data.draw(changed(base)) for _ in range(data.draw(st.integers(2, 4))))
    chosen = data.draw(st.lists(st.sampled_from(HOWS), min_size=1, max_size=4))
    asked: list[Conflict] = []

    def how(conflict: Conflict) -> How:
        asked.append(conflict)
        return chosen[len(asked) % len(chosen)]

    merged(base, target, *branches, how=how)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_names_that_are_one_file_in_a_branch_are_one_file_afterwards(data: st.DataObject) -> None:
    """Name by name it is the file that the side which gave the name gave it to."""
    base = data.draw(changed(Tree(), 8))
    _require_together(base, [data.draw(changed(base, 4, steps=NAMING)) for _ in range(data.draw(st.integers(2, 3)))])


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_name_that_is_given_to_another_file_has_its_content(data: st.DataObject) -> None:
    """Nearly all that happens here is that names of files are given to others, and files
    changed."""
    base = Tree()
    for name, chunks in zip(NAMES, data.draw(st.permutations([(7,), (8,), (9, 10)])), strict=False):
        base.make(ROOT, name, Node("file", chunks=chunks))
    sides = [data.draw(changed(base, 3, steps=["link", "alter"])) for _ in range(2)]
    states, known = _require_together(base, sides)
    for path, (ino, _) in known.items():
        if all(ino in side.nodes for side in sides):
            was, made = base.nodes[ino].chunks, {side.nodes[ino].chunks for side in sides}
            assert states[path][4] in (made - {was} or {was}), path


def _require_together(base: Tree, sides: list[Tree]) -> tuple[dict[bytes, Any], dict[bytes, tuple[int, int]]]:
    """States, and which file each name leads to, as far as that is beyond doubt; none if there are
    conflicts."""
    states, files, conflicts = merged_files(base, *sides)
    if conflicts:
        return states, {}
    led = [{path: _file(side, ino, n, base) for path, ino in side.paths()} for n, side in enumerate(sides)]
    before = {path: _file(base, ino, 0, base) for path, ino in base.paths()}
    for path, file in before.items():
        at_path = {each[path].number for each in led if path in each}
        if at_path - {file.number} and any(path not in each for each in led):
            return states, {}  # what replaced a file goes where another side has moved it
    # A name that was given to another file which looks the same counts as left alone. Then it is not
    # said which of the two the names that its file got on that side are of.
    in_doubt = {
        file.number
        for path, file in before.items()
        for each in led
        if path in each and each[path].number != file.number and each[path].state == file.state
    }
    known = {}
    for path, state in states.items():
        changed_by = [each for each in led if each.get(path) != before.get(path)]
        numbers = {each[path].number for each in changed_by if path in each} or {before[path].number}
        is_led_elsewhere = any(path not in each or each[path].number not in numbers for each in changed_by)
        # A file that looks as the one before counts as that one.
        is_the_same = any(
            path in each and each[path].state == before[path].state for each in changed_by if path in before
        )
        if (
            state[0] != "directory"
            and len(numbers) == 1
            and not numbers & in_doubt
            and not is_led_elsewhere
            and not is_the_same
        ):
            known[path] = numbers.pop()
    found = {frozenset(names & known.keys()) for names in files} - {frozenset()}
    assert found == names_together(known.items())
    return states, known


class _File(NamedTuple):
    number: tuple[int, int]
    state: Any
    mtime_ns: int


def _file(tree: Tree, ino: int, side: int, base: Tree) -> _File:
    node = tree.nodes[ino]
    return _File((ino, side if ino >= base.next_ino else -1), node.state(), node.mtime_ns)


@pytest.mark.parametrize("is_few", [False, True])
@given(st.data())
@settings(max_examples=250, deadline=None)
def test_what_each_side_wrote_moved_or_made_is_there_in_any_order_or_in_conflict(
    is_few: bool, data: st.DataObject
) -> None:
    """Also where names turn from files into directories, and back. is_few: of the same files."""
    base = tree(a=[1], b=[2])
    if is_few:
        base.link(ROOT, b"c", base.nodes[ROOT].names[b"b"])
    else:
        base = data.draw(changed(Tree(), 5, steps=MAKING))
    _tell_contents_apart(base, Tree(), 0)
    sides = [data.draw(changed(base, 4, steps=REPLACING)) for _ in range(2)]
    for number, side in enumerate(sides, 1):
        _tell_contents_apart(side, base, number)
    a, b = sides
    found = [merged_files(base, *order) for order in ((a, b), (b, a), (base, a, b), (base, b, a))]
    assert len({bool(conflicts) for _, _, conflicts in found}) == 1
    states, _, conflicts = found[0]
    if conflicts:
        states, _ = merged(base, a, b, how=_keep_both)
    else:
        assert all(others == found[0] for others in found)
    _require_nothing_lost(base, a, b, states)
    _require_nothing_lost(base, b, a, states)


def _keep_both(conflict: Conflict) -> How:
    return "newest" if conflict.kind == "attributes" else "keep-both"


MAKING = ("file", "file", "symlink", "directory", "link")
REPLACING = ("move", "move", "replace", "replace", "link", "alter", "remove", "file")


def _tell_contents_apart(tree: Tree, old: Tree, number: int) -> None:
    """Of the files that are new or changed."""
    for ino, node in tree.nodes.items():
        before = old.nodes.get(ino)
        if before is not None and (before.chunks, before.target) == (node.chunks, node.target):
            continue
        if node.kind == "file":
            node.chunks = (30 * number + ino,)
        elif node.kind == "symlink":
            node.target = b"%d-%d" % (number, ino)


def _require_nothing_lost(base: Tree, side: Tree, other: Tree, states: dict[bytes, Any]) -> None:
    """Of what the side has and the base has not got at that path."""
    before, at_other = dict(base.paths()), dict(other.paths())
    contents = {_content(state) for state in states.values()}
    for path, ino in side.paths():
        node = side.nodes[ino]
        old = base.nodes.get(before.get(path, 0))
        if node.kind == "directory":
            is_new = old is None or old.kind != "directory"
            assert not is_new or (path in states and states[path][0] == "directory"), path
            continue
        was = base.nodes.get(ino)
        if was is None or _content(was.state()) != _content(node.state()):
            assert _content(node.state()) in contents, path
        elif before.get(path) != ino and ino in other.nodes:
            assert _content(other.nodes[ino].state()) in contents, path
        elif before.get(path) != ino:
            names = [each for each, file in before.items() if file == ino]
            replaced = [at_other[each] for each in names if each in at_other]
            if all(other.nodes[each].kind == "directory" for each in replaced):  # else it was changed
                assert _content(node.state()) in contents, path


def _content(state: Any) -> Any:
    return state[0], state[3], state[4]


def test_a_name_that_was_added_has_what_others_did_to_its_file() -> None:
    """Whoever wrote to the file, and through whichever name."""
    base = tree(f=[1], h1=[2])
    base.link(ROOT, b"h2", base.nodes[ROOT].names[b"h1"])
    f, h = base.nodes[ROOT].names[b"f"], base.nodes[ROOT].names[b"h1"]
    named, written, named_elsewhere = base.copy(), base.copy(), base.copy()
    named.link(ROOT, b"g", f)
    named.rename(ROOT, b"h1", ROOT, b"h9")
    named_elsewhere.link(ROOT, b"k", f)
    named_elsewhere.link(ROOT, b"h3", h)
    written.nodes[f].chunks, written.nodes[h].mode = (3,), 0o600
    written.nodes[f].mtime_ns = 1
    for side in (base, named_elsewhere):
        for ours, theirs in ((side, named), (named, side)):
            states, files, conflicts = merged_files(base, ours, theirs)
            more = side is named_elsewhere
            assert not conflicts
            assert files == {
                frozenset([b"f", b"g", b"k"] if more else [b"f", b"g"]),
                frozenset([b"h2", b"h3", b"h9"] if more else [b"h2", b"h9"]),
            }
    written_and_named = written.copy()
    written_and_named.link(ROOT, b"g", f)
    written.nodes[h].mode = 0o644
    for sides in (
        (named, written, named_elsewhere),
        (written, named, named_elsewhere),
        (named_elsewhere, named, written),
        (base, written, named_elsewhere, named),
        (base, named_elsewhere, written, named),
    ):
        states, files, conflicts = merged_files(base, *sides)
        assert (files, conflicts) == ({frozenset([b"f", b"g", b"k"]), frozenset([b"h2", b"h3", b"h9"])}, [])
        assert states[b"k"][4] == (3,)
    states, files, conflicts = merged_files(base, named_elsewhere, written_and_named)
    assert (files, conflicts) == ({frozenset([b"f", b"g", b"k"]), frozenset([b"h1", b"h2", b"h3"])}, [])
    assert (states[b"k"][4], states[b"h3"][1]) == ((3,), 0o600)


@pytest.mark.parametrize("became", ["removed", "renamed", "another file", "a directory"])
@pytest.mark.parametrize("names", [1, 2])
def test_a_name_that_was_added_has_what_others_did_whatever_became_of_the_other_names(became: str, names: int) -> None:
    base = tree(f=[1], x=[2])
    f = base.nodes[ROOT].names[b"f"]
    if names == 2:
        base.link(ROOT, b"k", f)
    named, written = base.copy(), base.copy()
    named.link(ROOT, b"added", f)
    written.link(ROOT, b"own", f)
    if became == "renamed":
        written.rename(ROOT, b"f", ROOT, b"g")
    else:
        written.remove(ROOT, b"f")
    if became == "another file":
        written.make(ROOT, b"f", Node("file", chunks=(5,)))
    elif became == "a directory":
        written.make(ROOT, b"f", Node("directory", 0o755))
    written.nodes[f].chunks, written.nodes[f].mtime_ns = (3,), written._tick()
    expected = written.copy()
    expected.link(ROOT, b"added", f)
    for sides in ((named, written), (written, named), (base, named, written), (base, written, named)):
        assert merged_files(base, *sides) == (expected.states(), expected.files(), [])


def test_a_name_that_was_added_leads_to_the_old_file_where_another_replaced_it() -> None:
    base = tree(f=[1])
    named, saved = base.copy(), base.copy()
    named.link(ROOT, b"added", base.nodes[ROOT].names[b"f"])
    saved.make(ROOT, b"f", Node("file", chunks=(2,)))
    for sides in ((named, saved), (saved, named), (base, named, saved), (base, saved, named)):
        states, files, conflicts = merged_files(base, *sides)
        assert (content(states), conflicts) == ({b"added": (1,), b"f": (2,)}, [])
        assert files == {frozenset([b"added"]), frozenset([b"f"])}


def test_a_name_given_to_another_file_is_in_conflict_with_a_change_of_its_own() -> None:
    """A file that is saved by replacing it is no other file of the base."""
    base = tree(a=[1], b=[2])
    a, b = (base.nodes[ROOT].names[name] for name in (b"a", b"b"))
    linked, moved, restricted, saved = (base.copy() for _ in range(4))
    linked.link(ROOT, b"b", a)
    moved.rename(ROOT, b"b", ROOT, b"x")
    moved.link(ROOT, b"b", a)
    restricted.nodes[b].mode = 0o600
    saved.make(ROOT, b"b", Node("file", chunks=(3,)))
    for side in (linked, moved):
        for sides in ((side, restricted), (restricted, side)):
            conflicts = merged(base, *sides)[1]
            assert [(each.kind, each.path) for each in conflicts] == [("both_changed", "/b")]
    for sides in ((saved, restricted), (restricted, saved)):
        states, conflicts = merged(base, *sides)
        assert (states[b"b"][1], states[b"b"][4], conflicts) == (0o600, (3,), [])


def test_a_conflict_in_a_file_is_resolved_for_the_names_that_it_got() -> None:
    base = tree(f=[1])
    ino = base.nodes[ROOT].names[b"f"]
    ours, theirs = alter(base, b"f", chunks=(2,)), alter(base, b"f", chunks=(3,))
    ours.link(ROOT, b"k", ino)
    theirs.link(ROOT, b"g", ino)
    for how, kept in (("ours", (2,)), ("theirs", (3,)), ("keep-both", (2,))):
        states, files, conflicts = merged_files(base, ours, theirs, how=how)  # type: ignore[arg-type]
        assert [(each.kind, each.path) for each in conflicts] == [("both_changed", "/f")]
        assert frozenset([b"f", b"g", b"k"]) in files
        assert states[b"g"][4] == kept


def test_a_name_that_leads_to_an_equal_file_now_leads_there_afterwards() -> None:
    base = tree(a=[1], b=[1])
    one, other = (base.nodes[ROOT].names[name] for name in (b"a", b"b"))
    base.nodes[other].mtime_ns = base.nodes[one].mtime_ns
    linked = base.copy()
    linked.link(ROOT, b"b", one)
    assert merged_files(base, base, linked)[1] == {frozenset([b"a", b"b"])}
    assert merged_files(linked, linked, base)[1] == {frozenset([b"a"]), frozenset([b"b"])}


def tree(**files: Sequence[int]) -> Tree:
    made = Tree()
    for name, chunks in files.items():
        made.make(ROOT, name.encode(), Node("file", chunks=tuple(chunks)))
    return made


def content(states: dict[bytes, Any]) -> dict[bytes, Any]:
    return {path: state[4] for path, state in states.items() if state[0] == "file"}


def alter(base: Tree, name: bytes, **changes: Any) -> Tree:
    new = base.copy()
    node = new.nodes[new.nodes[ROOT].names[name]]
    for attribute, value in changes.items():
        setattr(node, attribute, value)
    node.mtime_ns = new._tick()
    return new


def gone(base: Tree, name: bytes) -> Tree:
    new = base.copy()
    new.remove(ROOT, name)
    return new


BASE = tree(a=[1], b=[2])


@pytest.mark.parametrize(
    ("kind", "ours", "theirs", "comes_to"),
    [
        (
            "both_changed",
            alter(BASE, b"a", chunks=(1, 3)),
            alter(BASE, b"a", chunks=(1, 4), mtime_ns=0),
            {
                "ours": {b"a": (1, 3)},
                "theirs": {b"a": (1, 4)},
                "keep-both": {b"a": (1, 3), b"a~b1": (1, 4)},
                "union": {b"a": (1, 3, 4)},
            },
        ),
        (
            "changed_and_removed",
            gone(BASE, b"a"),
            alter(BASE, b"a", chunks=(5,)),
            {"ours": {}, "theirs": {b"a": (5,)}, "newest": {b"a": (5,)}, "keep-both": {b"a": (5,)}},
        ),
        (
            "changed_and_removed",
            alter(BASE, b"a", chunks=(5,)),
            gone(BASE, b"a"),
            {"ours": {b"a": (5,)}, "theirs": {}, "newest": {b"a": (5,)}},
        ),
    ],
)
def test_kinds_of_content(kind: str, ours: Tree, theirs: Tree, comes_to: dict[How, dict[bytes, Any]]) -> None:
    for how, expected in comes_to.items():
        states, conflicts = merged(BASE, ours, theirs, how=how)
        assert content(states) == expected | {b"b": (2,)}, how
        assert [(each.kind, each.path, each.ours, each.theirs, each.how) for each in conflicts] == [
            (kind, "/a", "main", "b1", how)
        ]
    cannot: list[How] = ["fail"] if kind == "both_changed" else ["fail", "union"]
    for how in cannot:
        assert [each.how for each in merged(BASE, ours, theirs, how=how)[1]] == ["fail"]


@pytest.mark.parametrize("is_base_empty", [True, False])
def test_both_added(is_base_empty: bool) -> None:
    """From different bases; and as a link to something else."""
    base = Tree() if is_base_empty else BASE
    rest = content(base.states())
    sides = []
    for chunks in ((1, 3), (1, 4)):
        side = base.copy()
        side.make(ROOT, b"new", Node("file", chunks=chunks))
        side.nodes[side.nodes[ROOT].names[b"new"]].mtime_ns += chunks[1]
        sides.append(side)
    comes_to: dict[How, dict[bytes, Any]] = {
        "ours": {b"new": (1, 3)},
        "theirs": {b"new": (1, 4)},
        "newest": {b"new": (1, 4)},
        "keep-both": {b"new": (1, 3), b"new~b1": (1, 4)},
        "union": {b"new": (1, 3, 1, 4)},
    }
    for how, expected in comes_to.items():
        states, conflicts = merged(base, *sides, how=how)
        assert content(states) == rest | expected, how
        assert [(each.kind, each.path) for each in conflicts] == [("both_added", "/new")]
    links = [base.copy(), base.copy()]
    for link, target in zip(links, (b"here", b"there"), strict=True):
        link.make(ROOT, b"new", Node("symlink", 0o777, target=target))
    for how, kept in (("ours", b"here"), ("theirs", b"there")):
        states, conflicts = merged(base, *links, how=how)
        assert (states[b"new"][3], [each.kind for each in conflicts]) == (kept, ["both_added"])
    assert [each.how for each in merged(base, *links, how="union")[1]] == ["fail"], "a link is not appended to"


def test_a_file_that_became_a_link_on_one_side() -> None:
    as_link, as_file = BASE.copy(), alter(BASE, b"a", chunks=(5,))
    as_link.make(ROOT, b"a", Node("symlink", 0o777, target=b"b"))
    as_link.nodes[as_link.nodes[ROOT].names[b"a"]].mtime_ns += 10**9
    for sides, how_link in (((as_link, as_file), "ours"), ((as_file, as_link), "theirs")):
        for how in ("ours", "theirs", "newest", "keep-both"):
            states, conflicts = merged(BASE, *sides, how=how)
            assert [(each.kind, each.path, each.how) for each in conflicts] == [("type_changed", "/a", how)]
            is_link = how in (how_link, "newest") or (how == "keep-both" and how_link == "ours")
            assert states[b"a"][0] == ("symlink" if is_link else "file")
            if how == "keep-both":
                assert states[b"a~b1"][0] == ("file" if is_link else "symlink")
        assert [each.how for each in merged(BASE, *sides, how="union")[1]] == ["fail"]


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        ({"mode": 0o600}, {"mode": 0o755}),
        ({"uid": 1}, {"uid": 2}),
        ({"xattrs": {b"user.x": b"1"}}, {"xattrs": {b"user.x": b"2"}}),
        ({"mode": 0o600}, {"uid": 2}),
    ],
)
def test_attributes_that_both_have_changed(mine: dict[str, Any], other: dict[str, Any]) -> None:
    """Content is merged by itself: what one side has written stays, whoever's attributes are
    taken."""
    ours, theirs = alter(BASE, b"a", **mine), alter(BASE, b"a", chunks=(1, 3), **other)
    theirs.nodes[theirs.nodes[ROOT].names[b"a"]].mtime_ns += 10**9
    for how, side in (("ours", ours), ("theirs", theirs), ("newest", theirs)):
        states, conflicts = merged(BASE, ours, theirs, how=how)  # type: ignore[arg-type]
        kind, mode, uid, target, _, xattrs = side.states()[b"a"]
        assert states[b"a"] == (kind, mode, uid, target, (1, 3), xattrs)
        assert [(each.kind, each.path, each.how) for each in conflicts] == [("attributes", "/a", how)]
    for cannot in ("keep-both", "union", "fail"):
        assert [each.how for each in merged(BASE, ours, theirs, how=cannot)[1]] == ["fail"]


@pytest.mark.parametrize("is_ours", [True, False])
@pytest.mark.parametrize("how", ["ours", "theirs", "newest", "keep-both", "union"])
def test_attributes_that_one_has_changed_stay_whoever_wins_the_content(how: How, is_ours: bool) -> None:
    """A file that was made private stays so."""
    private: dict[str, Any] = {"mode": 0o600, "xattrs": {b"user.x": b"1"}}
    ours = alter(BASE, b"a", chunks=(1, 3), **(private if is_ours else {}))
    theirs = alter(BASE, b"a", chunks=(1, 4), **({} if is_ours else private))
    states, conflicts = merged(BASE, ours, theirs, how=how)
    assert [(each.kind, each.how) for each in conflicts] == [("both_changed", how)]
    xattrs = (theirs, ours)[is_ours].states()[b"a"][5]
    names = (b"a", b"a~b1") if how == "keep-both" else (b"a",)
    assert [(states[name][1], states[name][5]) for name in names] == [(0o600, xattrs)] * len(names)


def test_what_took_the_place_of_a_directory_has_the_permissions_of_its_own() -> None:
    base = BASE.copy()
    base.make(ROOT, b"new", Node("directory", 0o755))
    sides = []
    for mode, chunk in ((0o644, 3), (0o755, 4)):
        side = base.copy()
        side.remove(ROOT, b"new")
        side.make(ROOT, b"new", Node("file", mode, chunks=(chunk,)))
        sides.append(side)
    expected: dict[How, int] = {"ours": 0o644, "theirs": 0o755}
    for how, mode in expected.items():
        assert merged(base, *sides, how=how)[0][b"new"][1] == mode


def test_what_one_moved_and_another_changed_is_changed_where_it_is_now() -> None:
    base = Tree()
    folder = base.make(ROOT, b"d", Node("directory", 0o755))
    for name in (b"a", b"b", b"c"):
        base.make(folder, name, Node("file", chunks=(1, 2)))
    moved, changed_there, gone_there = base.copy(), base.copy(), base.copy()
    moved.rename(ROOT, b"d", ROOT, b"e")
    changed_there.nodes[changed_there.nodes[folder].names[b"a"]].chunks = (1, 3)
    changed_there.make(folder, b"new", Node("file", chunks=(4,)))
    gone_there.remove(folder, b"b")
    expected = {b"e/a": (1, 3), b"e/b": (1, 2), b"e/c": (1, 2), b"d/new": (4,)}
    for sides in (
        (base, moved, changed_there),
        (base, changed_there, moved),
        (moved, changed_there),
        (changed_there, moved),
    ):
        states, conflicts = merged(base, *sides)
        assert (content(states), conflicts) == (expected, [])
    elsewhere = base.copy()
    elsewhere.rename(folder, b"a", ROOT, b"x")
    for sides in ((base, moved, elsewhere), (moved, elsewhere)):
        for how, paths in (("ours", {b"e/a"}), ("theirs", {b"x"}), ("keep-both", {b"e/a", b"x"})):
            states, conflicts = merged(base, *sides, how=how)  # type: ignore[arg-type]
            assert content(states).keys() == {b"e/b", b"e/c"} | paths
            assert [(each.kind, each.path) for each in conflicts] == [("renamed_twice", "/d/a")]
    for mine, other, keeps in ((moved, gone_there, "ours"), (gone_there, moved, "theirs")):
        for how in ("ours", "theirs", "newest"):
            states, conflicts = merged(base, mine, other, how=how)  # type: ignore[arg-type]
            assert (b"e/b" in states) == (how in (keeps, "newest"))
            assert [(each.kind, each.path) for each in conflicts] == [("changed_and_removed", "/e/b")]


def test_what_was_changed_stays_whoever_names_the_file() -> None:
    base = tree(f=[1])
    appended, moved_and_appended, *moved = (base.copy() for _ in range(5))
    for branch in (appended, moved_and_appended):
        branch.nodes[branch.nodes[ROOT].names[b"f"]].chunks = (1, 2)
    for name, branch in zip((b"x", b"y", b"z"), moved, strict=True):
        branch.rename(ROOT, b"f", ROOT, name)
    moved_and_appended.rename(ROOT, b"f", ROOT, b"own")
    x, y, z = moved
    for how, comes_to in (("theirs", {b"z": (1, 2)}), ("ours", {b"x": (1, 2)})):
        for sides in ((base, x, appended, z), (x, appended, z), (base, appended, x, y, z), (base, x, y, appended, z)):
            assert content(merged(base, *sides, how=how)[0]) == comes_to  # type: ignore[arg-type]
    for how, comes_to in (("theirs", {b"own": (1, 2)}), ("ours", {b"x": (1, 2)})):
        assert content(merged(base, x, moved_and_appended, how=how)[0]) == comes_to  # type: ignore[arg-type]


def test_a_directory_against_a_file() -> None:
    base = tree(a=[1])
    as_directory, as_file = base.copy(), base.copy()
    made = as_directory.make(ROOT, b"x", Node("directory", 0o755))
    as_directory.make(made, b"in", Node("file", chunks=(2,)))
    as_file.make(ROOT, b"x", Node("file", chunks=(3,)))
    inside, outside = {b"a": (1,), b"x/in": (2,)}, {b"a": (1,), b"x": (3,)}
    for sides in ((as_directory, as_file), (base, as_directory, as_file)):
        for how, expected in (("ours", inside), ("theirs", outside)):
            states, conflicts = merged(base, *sides, how=how)  # type: ignore[arg-type]
            assert content(states) == expected
            assert [(each.kind, each.path) for each in conflicts] == [("directory_and_file", "/x")]
            assert (conflicts[0].ours, conflicts[0].theirs) == (("b1", "b2") if len(sides) == 3 else ("main", "b1"))
    states, _ = merged(base, as_file, as_directory, how="keep-both")
    assert sorted(content(states).values()) == [(1,), (2,), (3,)]


@pytest.mark.parametrize("kind", ["file", "symlink"])
@pytest.mark.parametrize("is_empty", [True, False])
def test_a_directory_that_took_the_place_of_what_another_moved_or_removed_stays(kind: str, is_empty: bool) -> None:
    """And what was moved is not lost."""
    base = tree(b=[2])
    base.make(ROOT, b"a", Node("file", chunks=(1,)) if kind == "file" else Node("symlink", 0o777, target=b"x"))
    as_directory, moved = base.copy(), base.copy()
    made = as_directory.make(ROOT, b"a", Node("directory", 0o700, xattrs={b"user.x": b"1"}))
    if not is_empty:
        as_directory.make(made, b"in", Node("file", chunks=(3,)))
    moved.rename(ROOT, b"a", moved.make(ROOT, b"d", Node("directory", 0o755)), b"moved")
    there = as_directory.states()
    removed = gone(base, b"a")
    for sides in ((as_directory, removed), (removed, as_directory), (base, as_directory, removed)):
        assert merged(base, *sides) == (there, [])
    expected = there | {path: state for path, state in moved.states().items() if path.startswith(b"d")}
    for ours, theirs in ((as_directory, moved), (moved, as_directory)):
        for how in ("ours", "theirs", "newest", "keep-both"):
            states, conflicts = merged(base, ours, theirs, how=how)
            assert [(each.kind, each.path) for each in conflicts] == [("changed_and_removed", "/d/moved")]
            keeps = how != ("ours" if theirs is moved else "theirs")
            assert states == {path: state for path, state in expected.items() if keeps or path != b"d/moved"}


@pytest.mark.parametrize("way", ["link", "rename"])
def test_another_file_that_took_the_place_of_what_was_moved_is_not_its_content(way: str) -> None:
    base = tree(a=[1], b=[2])
    replaced, moved = base.copy(), base.copy()
    if way == "link":
        replaced.link(ROOT, b"a", base.nodes[ROOT].names[b"b"])
    else:
        replaced.rename(ROOT, b"b", ROOT, b"a")
    moved.rename(ROOT, b"a", ROOT, b"moved")
    for ours, theirs in ((replaced, moved), (moved, replaced)):
        states, conflicts = merged(base, ours, theirs, how="newest")
        assert {(each.kind, each.path) for each in conflicts} == {
            ("changed_and_removed", "/a"),
            ("changed_and_removed", "/moved"),
        }
        assert content(states) == content(replaced.states()) | {b"moved": (1,)}


def test_a_directory_where_a_strategy_has_moved_a_file_away_stays() -> None:
    base = tree(a=[1])
    to_x, to_y = base.copy(), base.copy()
    to_x.rename(ROOT, b"a", ROOT, b"x")
    to_y.rename(ROOT, b"a", ROOT, b"y")
    to_y.make(ROOT, b"x", Node("directory", 0o700))
    states, conflicts = merged(base, to_x, to_y, how="theirs")
    assert states == to_y.states()
    assert {(each.kind, each.path) for each in conflicts} == {("renamed_twice", "/a")}
