"""Change sets that would make a broken version are refused, and leave nothing behind."""

from __future__ import annotations

import stat
from typing import Any

import pytest

from cowfs.errors import InvalidInputError
from cowfs.index import ChangeSet
from tests.index.bench import Bench, change_set, directory_row, extent, file_row, many_files, pack_id

pytestmark = pytest.mark.quick

BASE = many_files(4)  # directory 2, files 3 to 6, next_ino 7
NOTHING = ChangeSet(next_ino=20)


@pytest.mark.parametrize(
    "change",
    [
        {"next_ino": 6},
        {"inodes": [file_row(20)]},
        {"inodes": [file_row(7), file_row(7)]},
        {"inodes": [file_row(0)]},
        {"inodes": [file_row(7, -1)]},
        {"inodes": [file_row(7, mode=0o644)]},
        {"inodes": [(*file_row(7)[:-1], "text")]},
        {"inodes": [(*file_row(7)[:-1], b"x" * 5000)]},
        {"inodes": [file_row(1)]},
        {"inodes": [file_row(3)], "removed": [3]},
        {"removed": [1]},
        {"removed": [2]},
        {"removed": [3], "contents": {3: []}},
        {"removed": [3], "xattrs": {3: []}},
        {"removed": [3], "entries": [(1, b"x", 3)]},
        {"entries": [(1, b"x", 7)]},
        {"entries": [(3, b"x", 4)]},
        {"entries": [(9, b"x", 4)]},
        {"entries": [(1, b"x", 4), (1, b"x", 5)]},
        {"entries": [(1, b"", 4)]},
        {"entries": [(1, b"a/b", 4)]},
        {"entries": [(1, b"..", 4)]},
        {"entries": [(1, b"n" * 256, 4)]},
        {"entries": [(1, b"a\0b", 4)]},
        {"contents": {3: [extent(0, 1001)]}},
        {"contents": {3: [extent(0, 10), extent(9, 10)]}},
        {"contents": {3: [extent(10, 10), extent(0, 10)]}},
        {"contents": {3: [extent(0, 1000, pack=2)]}},
        {"contents": {3: [extent(0, 10)]}},
        {"inodes": [file_row(3, 1000, mapped_bytes=999)], "contents": {3: [extent(0, 1000)]}},
        {"inodes": [file_row(7, 10, mapped_bytes=11)]},
        {"inodes": [(*directory_row(7)[:7], 1, *directory_row(7)[8:])]},
        {"contents": {3: [(0, 10, b"short", 1, 0, 10, 10, 0, 0)]}},
        {"contents": {3: [(0, 10, bytes(32), 1, 0, 10, 10, 1, 0)]}},
        {"contents": {3: [(0, 10, bytes(32), 1, 0, 10, 10, 0, 2)]}},
        {"contents": {2: [extent(0, 10)]}},
        {"contents": {8: [extent(0, 10)]}},
        {"xattrs": {9: [(b"user.a", b"")]}},
        {"xattrs": {3: [(b"", b"")]}},
        {"xattrs": {3: [(b"user.a", b""), (b"user.a", b"1")]}},
        {"xattrs": {3: [(b"user.a", bytes(65537))]}},
        {"packs": {1: pack_id(9)}},
        {"packs": {0: pack_id(9)}},
        {"packs": {5: pack_id(9), 6: pack_id(9)}},
    ],
    ids=str,
)
def test_a_wrong_change_set_is_refused(bench: Bench, change: dict[str, Any]) -> None:
    index, published = bench.commit(bench.empty(), BASE)
    before = (index.directory(1), index.directory(2), index.totals())
    with pytest.raises(InvalidInputError) as raised:
        index.apply(change_set(**{"next_ino": 20, **change})).close()
    assert raised.value.message.startswith("the change set is wrong: ")
    assert raised.value.hint
    assert (index.directory(1), index.directory(2), index.totals()) == before
    with index.apply(NOTHING) as delta:
        assert delta.totals == index.totals()
    index.close()
    with bench.open(published.section) as index:
        assert (index.directory(1), index.directory(2), index.totals()) == before


def test_a_file_may_become_another_kind_under_its_number(bench: Bench) -> None:
    """Not something an engine does, but rows say what they say."""
    index, _ = bench.commit(bench.empty(), BASE)
    changes = change_set(next_ino=7, inodes=[file_row(3, mode=stat.S_IFIFO | 0o600), directory_row(1, mtime_ns=5)])
    index, _ = bench.commit(index, changes)
    assert index.totals() == (4, 1, 3000)
    index.close()
