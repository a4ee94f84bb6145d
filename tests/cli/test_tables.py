"""Tables, times and messages as commands show them."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator

import pytest

from cowfs.base.quantities import format_time, natural_key
from cowfs.cli import tables
from cowfs.rendering import first_line, printable_lines
from cowfs.version.merge.conflicts import Conflict, describe_by_path

pytestmark = pytest.mark.quick


@pytest.fixture(params=["America/New_York", "Asia/Kolkata", "UTC"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def test_a_time_has_its_offset(zone: str) -> None:
    expected = {"America/New_York": "12:00:01-05:00", "Asia/Kolkata": "22:30:01+05:30", "UTC": "17:00:01+00:00"}[zone]
    noon_ns = 1_796_058_001 * 10**9 + 999_999_999
    assert format_time(noon_ns, to_the_second=True) == f"2026-11-30 {expected}"
    assert format_time(noon_ns) == f"2026-11-30 {expected[:5]}{expected[8:]}", "nothing is rounded up"
    assert format_time(noon_ns - 5 * 30 * 86400 * 10**9)[-6:] == {"America/New_York": "-04:00"}.get(zone, expected[8:])


def test_numbers_stand_below_each_other() -> None:
    rows = [("a", "3 B", "7"), ("bb", "15.5 MiB", "12,345"), ("c", "-", "x")]
    assert tables.table(("NAME", "SIZE", "LAST"), rows).splitlines() == [
        "NAME      SIZE  LAST",
        "a        3 B    7",
        "bb    15.5 MiB  12,345",
        "c            -  x",
    ]


def _narrow(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    # pytest asks for it with arguments
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((columns, 10)))


def _table(*lasts: str, is_cut: bool) -> list[str]:
    header, rows = ("VERSION", "FILES", "AUTHOR", "MESSAGE"), [("1" * 12, "7", "somebody", last) for last in lasts]
    return tables.table(header, rows, without=("FILES", "AUTHOR"), is_cut=is_cut).splitlines()


def test_a_narrow_terminal_does_without_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ["VERSION", "FILES", "AUTHOR", "MESSAGE"]
    message = "x" * 60
    assert _table(message, is_cut=True)[1].endswith(f"  {message}"), "a program gets all of it"
    for columns, header in (
        (61, whole),
        (60, [whole[0], *whole[2:]]),
        (53, [whole[0], whole[3]]),
        (20, [whole[0], "MESSA…"]),
    ):
        _narrow(monkeypatch, columns)
        first, line = _table(message, is_cut=True)
        assert first.split() == header
        assert (len(line), line[-2:]) == (columns, "x…")


def test_a_name_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    _narrow(monkeypatch, 60)
    for name, columns in (("n" * 29, 4), ("n" * 31, 3), ("n" * 46, 2), ("n" * 47, 4)):
        first, _, long = _table("short", name, is_cut=False)
        assert (long.split()[-1], len(first.split())) == (name, columns), "one that wraps anyway leaves out nothing"


def test_characters_of_two_columns_count_as_two(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("训练", "a"), ("e\u0301", "b"), ("name", "c")]
    assert tables.table(("N", "LAST"), rows).splitlines() == ["N     LAST", "训练  a", "e\u0301     b", "name  c"]
    assert tables.cut("训练训练", 8) == "训练训练"
    assert tables.cut("训练训练", 7) == "训练训…"
    assert tables.cut("训练训练", 6) == "训练…", "half a character is not shown"
    assert tables.cut("训练训练", 6, at_start=True) == "…训练"
    assert tables.cut("/a/long/path", 6, at_start=True) == "…/path"


def test_sizes_of_one_unit_are_not_padded() -> None:
    assert tables.table(("SIZE", "NAME"), [("3 B", "a"), ("12 B", "b")]).splitlines() == [
        "SIZE  NAME",
        " 3 B  a",
        "12 B  b",
    ]


def test_a_list_shows_the_first_line_of_a_message() -> None:
    assert first_line("one\ntwo") == "one …"
    assert first_line("\n one  \n\n") == "one"
    assert first_line("") == ""
    assert printable_lines("one\n\ttwo\x1b[1m") == ["one", " two [1m"]


def test_names_with_numbers_are_in_natural_order() -> None:
    assert sorted(["a-10", "a-9", "a", "b1", "a-9x"], key=natural_key) == ["a", "a-9", "a-9x", "a-10", "b1"]


def test_a_path_in_conflict_is_one_line_with_its_branches() -> None:
    found = [Conflict("both_added", "/f", f"a-{number}", f"a-{number + 1}", "newest") for number in range(11)]
    found.append(Conflict("attributes", "/f", "a-3", "a-4", "ours"))
    found += [Conflict("both_changed", f"/d{number}", "main", "a-0") for number in (10, 9)]
    assert describe_by_path(found) == {
        "/d9": "both changed: a-0, main; fail",
        "/d10": "both changed: a-0, main; fail",
        "/f": f"both added, attributes: {', '.join(f'a-{number}' for number in range(12))}; newest, ours",
    }
    assert list(describe_by_path(found)) == ["/d9", "/d10", "/f"]
