"""Comparing two versions: against comparing the trees name by name, and by doing to one what was
found until it is the other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cowfs.errors import NotFoundError
from cowfs.index import empty_index
from cowfs.version.differences import Difference, compare
from tests.index.bench import NOW_NS, Bench, change_set, extent, file_row, many_files
from tests.version.trees import NOWHERE, Node, Tree, applied_in_memory, changed, trees

ROOT = 1


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    bench = Bench(tmp_path)
    yield bench
    bench.store.close()


def compared(base: Tree, a: Tree, b: Tree, **options: Any) -> list[Difference]:
    """Both were made from `base`; the numbers of what is newer mean different files in them."""
    of_base = base.in_memory()
    with of_base, a.in_memory(base, of_base) as of_a, b.in_memory(base, of_base) as of_b:
        return compare(of_a, of_b, shared=base.next_ino, **options)


def applied(differences: list[Difference], a: Tree, b: Tree) -> dict[bytes, Any]:
    """What a becomes, in the order that the module gives."""
    states = a.states()
    wanted = b.states()
    moved: dict[bytes, dict[bytes, Any]] = {}
    for each in sorted(differences, key=lambda each: each.old_path or b"", reverse=True):
        if each.old_path is None or each.kind == "changed":
            continue
        taken = {path: states.pop(path) for path in sorted(states) if _is_below(path, each.old_path)}
        if each.kind == "renamed":
            moved[each.path] = {path[len(each.old_path) :]: state for path, state in taken.items()}
        else:
            assert list(taken) == [each.old_path], "what is below a removed directory is removed, too"
    for each in sorted(differences, key=lambda each: each.path):
        if each.kind == "renamed":
            states |= {each.path + rest: state for rest, state in moved[each.path].items()}
        if each.kind in ("added", "renamed"):
            assert _parent(each.path) in states
        if each.kind == "added":
            assert each.path not in states
            states[each.path] = wanted[each.path]
    for each in differences:
        if each.kind in ("changed", "renamed"):
            states[each.path] = _altered(states[each.path], wanted[each.path], each.what)
    return states


def _altered(old: Any, new: Any, what: frozenset[str]) -> Any:
    places = {"mode": (1,), "owner": (2,), "target": (3,), "content": (4,), "xattrs": (5,), "type": (0, 3, 4)}
    taken = {place for aspect in what for place in places.get(aspect, ())}
    return tuple(new[place] if place in taken else old[place] for place in range(len(old)))


def _is_below(path: bytes, top: bytes) -> bool:
    return path == top or path.startswith(top + b"/")


def _parent(path: bytes) -> bytes:
    return path.rpartition(b"/")[0]


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_what_was_found_makes_the_other_version_of_one(data: st.DataObject) -> None:
    base = data.draw(trees)
    a, b = data.draw(changed(base)), data.draw(changed(base))
    assert applied(compared(base, a, b), a, b) == b.states()
    assert applied(compared(base, b, a), b, a) == a.states()
    assert compared(base, a, a, times=True) == []


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_without_renames_it_is_a_comparison_name_by_name(data: st.DataObject) -> None:
    base = data.draw(trees)
    a, b = data.draw(changed(base)), data.draw(changed(base))
    before, after = a.states(), b.states()
    expected = set()
    for path in before.keys() | after.keys():
        old, new = before.get(path), after.get(path)
        if old is not None and new is not None and (old[0] == "directory") == (new[0] == "directory"):
            expected |= {("changed", path)} if old != new else set()
        else:
            expected |= {("removed", path)} if old is not None else set()
            expected |= {("added", path)} if new is not None else set()
    found = [each for each in compared(base, a, b, renames=False) if each.what - {"names", "mtime"} or not each.what]
    assert {(each.kind, each.path) for each in found} == expected
    assert len(found) == len(expected)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_which_names_are_one_file_is_told(data: st.DataObject) -> None:
    """Each file of a, at the names that it keeps, is one file of b."""
    base = data.draw(trees)
    a, b = data.draw(changed(base)), data.draw(changed(base))
    told = {each.path for each in compared(base, a, b, renames=False) if "names" in each.what}
    before, after = dict(a.paths()), dict(b.paths())
    kept = {path for path in before.keys() & after.keys() - told if "directory" not in _kinds(path, a, b)}
    pairs = {(before[path], after[path]) for path in kept}
    assert len(pairs) == len({old for old, _ in pairs}) == len({new for _, new in pairs})
    if a.files() == b.files():
        assert not told


def test_numbers_that_agree_by_chance_make_no_name_another_files(bench: Bench) -> None:
    """The entry `d` of directory 3 leads to 5 in both: to a directory here, to a file there."""
    base, a, b = Tree(), Tree(), Tree()
    top = b.make(ROOT, b"a", Node("directory"))
    below = b.make(top, b"n", Node("directory"))
    b.make(top, b"d", Node("directory"))
    b.link(below, b"z", b.make(below, b"d", Node("file", chunks=(1,))))
    for name in (b"a", b"a"):
        top = a.make(ROOT, name, Node("directory"))
    a.make(top, b"d", Node("file"))
    a.make(top, b"d", Node("directory"))
    below = a.make(top, b"n", Node("directory"))
    a.link(below, b"z", a.make(below, b"d", Node("file", chunks=(1,))))
    assert [number for number, node in a.nodes.items() if b"d" in node.names] == [3, 6]
    for renames in (True, False):
        assert compared(base, a, b, renames=renames) == []
        assert compared(base, b, a, renames=renames) == []


def _kinds(path: bytes, *trees: Tree) -> list[str]:
    return [str(tree.states()[path][0]) for tree in trees]


def test_what_kinds_there_are(bench: Bench) -> None:
    a = Tree()
    folder = a.make(ROOT, b"a", Node("directory"))
    kept = a.make(folder, b"kept", Node("file", chunks=(1, 2)))
    a.make(folder, b"moved", Node("file", chunks=(3,)))
    a.make(ROOT, b"copied", Node("file", chunks=(4,)))
    gone = a.make(ROOT, b"gone", Node("directory"))
    a.make(gone, b"deep", Node("file", chunks=(5,)))
    turned = a.make(ROOT, b"turned", Node("file", chunks=(6,)))
    b = a.copy()
    b.nodes[kept].chunks = (1, 7)
    b.nodes[kept].mode = 0o600
    b.rename(ROOT, b"a", ROOT, b"b")
    b.rename(folder, b"moved", ROOT, b"there")
    b.remove(ROOT, b"gone")
    b.remove(ROOT, b"copied")
    b.make(ROOT, b"the same", Node("file", chunks=(4,)))
    b.make(ROOT, b"turned", Node("symlink", 0o777, target=b"b"))
    b.make(ROOT, b"new", Node("directory"))
    with a.index(bench) as of_a, b.index(bench, a, of_a) as of_b:
        found = {(each.kind, each.path): each for each in compare(of_a, of_b, shared=a.next_ino)}
        assert {key: each.old_path for key, each in found.items()} == {
            ("renamed", b"b"): b"a",
            ("changed", b"b/kept"): b"a/kept",
            ("renamed", b"there"): b"a/moved",
            ("removed", b"gone"): b"gone",
            ("removed", b"gone/deep"): b"gone/deep",
            ("renamed", b"the same"): b"copied",
            ("changed", b"turned"): b"turned",
            ("added", b"new"): None,
        }
        changed = found["changed", b"b/kept"]
        assert changed.what >= {"content", "mode"}
        assert (changed.added_bytes, changed.removed_bytes) == (1000, 1000)
        assert "type" in found["changed", b"turned"].what
        assert found["removed", b"gone/deep"].removed_bytes == 1000
        below = compare(of_a, of_b, shared=a.next_ino, path=b"gone")
        assert [(each.kind, each.path) for each in below] == [("removed", b"gone"), ("removed", b"gone/deep")]
        assert [(each.kind, each.path) for each in compare(of_a, of_b, shared=a.next_ino, path=b"b/kept")] == [
            ("added", b"b/kept")
        ]
        with pytest.raises(NotFoundError):
            compare(of_a, of_b, shared=a.next_ino, path=b"nowhere")
    assert turned


def test_a_value_that_changes_only_where_it_goes_on_is_found(bench: Bench) -> None:
    """The row's page is the same then: only an overflow page differs."""
    a = Tree()
    ino = a.make(ROOT, b"a", Node("file", xattrs={b"user.a": b"x" * 20000 + b"y"}))
    b = a.copy()
    b.nodes[ino].xattrs[b"user.a"] = b"x" * 20000 + b"z"
    with a.index(bench) as of_a, b.index(bench, a, of_a) as of_b:
        assert [each.what for each in compare(of_a, of_b, shared=a.next_ino)] == [{"xattrs"}]


def test_rows_of_interior_pages_are_compared_too() -> None:
    """A row in some 500 lies above the leaves."""
    files = 20_000
    first = 2 + files // 1000
    with empty_index(NOWHERE, uid=1000, gid=1000, now_ns=NOW_NS) as nothing:
        of_a = applied_in_memory(nothing, many_files(files))
    gone = range(0, files, 3)
    changes = change_set(
        next_ino=of_a.next_ino,
        removed=[first + n for n in gone],
        entries=[(2 + n // 1000, b"file-%07d" % n, 0) for n in gone],
    )
    with of_a, applied_in_memory(of_a, changes) as of_b:
        found = compare(of_a, of_b, shared=of_a.next_ino)
        back = compare(of_b, of_a, shared=of_a.next_ino)
    expected = [b"d%04d/file-%07d" % (2 + n // 1000, n) for n in gone]
    assert [(each.kind, each.path) for each in found] == [("removed", path) for path in expected]
    assert [(each.kind, each.path) for each in back] == [("added", path) for path in expected]


def test_a_few_files_of_many_are_found_without_reading_the_others(bench: Bench) -> None:
    files = 50_000
    first = 2 + files // 1000
    base, _ = bench.commit(bench.empty(), many_files(files))
    assert base.section is not None
    some = [first + n for n in range(77, files, files // 10)]
    changes = change_set(
        next_ino=base.next_ino,
        inodes=[file_row(ino, 1000, mtime_ns=7) for ino in some],
        contents={ino: [extent(0, 1000, chunk=files + ino)] for ino in some},
    )
    other, _ = bench.commit(bench.open(base.section), changes)
    assert other.section is not None
    base.close()
    other.close()
    cache = bench.cache()
    with bench.open(base.section, cache) as a, bench.open(other.section, cache) as b:
        before = len(bench.store.reads)
        found = compare(a, b, shared=a.next_ino)
        reads = bench.store.reads[before:]
    assert [each.path for each in found] == sorted(
        b"d%04d/file-%07d" % (2 + (ino - first) // 1000, ino - first) for ino in some
    )
    assert sum(size for _, _, size in reads) < 250_000, "the whole index has some 3 MB"
