"""docs/format/index.md: its example is the golden database, which stays readable; its tables are
those of schema.sql."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cowfs.index.cache import BlockCache
from cowfs.index.connection import SCHEMA, Connection
from cowfs.index.index import Index
from cowfs.index.links import SCHEMA as LINKS
from cowfs.index.overlay import MemoryBlocks
from tests.index.bench import Bench
from tests.index.example import EXAMPLE, golden_pages, pages_of_example

pytestmark = pytest.mark.quick

PAGE = (Path(__file__).parents[2] / "docs" / "format" / "index.md").read_text()
VALUE = re.compile(r"x'([0-9a-f]*)'|'([^']*)'|(\d+)")


def shown(fence: str) -> list[str]:
    found = re.search(rf"^```{fence}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1].splitlines()


def rows_of(pages: list[bytes]) -> list[tuple[object, ...]]:
    connection = Connection(MemoryBlocks("the example", pages))
    tables = re.findall(r"CREATE TABLE (\w+)", SCHEMA)
    rows = [(table, *row) for table in tables for row in connection.execute(f"SELECT * FROM {table}")]
    connection.close()
    return rows


def parse(line: str) -> tuple[object, ...]:
    table, rest = line.split(maxsplit=1)
    values: list[object] = []
    for digits, text, number in VALUE.findall(rest):
        as_bytes = bytes.fromhex(digits) or text.encode()
        is_meta_key = table == "meta" and text
        values.append(int(number) if number else text if is_meta_key else as_bytes)
    return (table, *values)


def test_the_rows_shown_are_those_of_the_golden_database() -> None:
    assert [parse(line) for line in shown("rows")] == rows_of(golden_pages())


def test_the_same_tree_gives_the_same_rows_today() -> None:
    counted = ("meta", "attribute_bytes", len("bin/run") + len("user.origin") + len("example"))
    assert rows_of(pages_of_example()) == [counted, *rows_of(golden_pages())]


def test_the_page_shown_is_the_golden_databases() -> None:
    (number,) = re.findall(r"^```page (\d+)$", PAGE, re.MULTILINE)
    page = golden_pages()[int(number) - 1]
    covered: set[int] = set()
    for line in shown(f"page {number}"):
        at, rest = line.split(maxsplit=1)
        data = bytes.fromhex(rest.partition("|")[0])
        assert page[int(at) : int(at) + len(data)] == data
        covered.update(range(int(at), int(at) + len(data)))
    assert not any(byte for at, byte in enumerate(page) if at not in covered)


def test_the_golden_database_is_read(bench: Bench) -> None:
    pages = golden_pages()
    with bench.open(bench.store_pages(pages)) as index:
        check(index)
    with Index(MemoryBlocks("the example", pages), BlockCache(bench.cache())) as index:
        check(index)


def check(index: Index) -> None:
    assert index.directory(4) == [(b"run", list(EXAMPLE.inodes)[4]), (b"\xff", list(EXAMPLE.inodes)[4])]
    assert index.content(5) == (dict(EXAMPLE.contents)[5], dict(EXAMPLE.xattrs)[5])
    assert index.pack_ids() == EXAMPLE.packs
    assert index.totals() == (3, 1, 700_011)


def test_every_table_is_named() -> None:
    for table in re.findall(r"CREATE TABLE (\w+)", SCHEMA + LINKS):
        assert f"| `{table}` |" in PAGE


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", PAGE):
        assert (Path(__file__).parents[2] / "docs" / "format" / target).exists()
