"""Damaged packs, unreachable stores, hostile databases: a clear error of the right kind, never a
crash, a hang or a wrong row."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cowfs.errors import CorruptError, CowfsError, UnavailableError, UnsupportedFormatError
from cowfs.format.manifest import IndexSection
from cowfs.index import Index
from cowfs.index.blocks import StoreBlocks
from cowfs.index.cache import BlockCache
from cowfs.index.connection import SCHEMA
from tests.index.bench import Bench, change_set, extent, file_row, many_files

FILES = 3000
FIRST = 5


def look_everywhere(index: Index) -> None:
    """Every query on every key; each either answers or raises one of our errors."""
    for query in (index.inode, index.directory, index.content, lambda ino: index.read_stored_contents(ino - 9, ino)):
        for ino in [*range(1, 30), FIRST + FILES - 1, FIRST + FILES, (1 << 63) - 1]:
            try:
                query(ino)
            except CowfsError as error:
                assert error.kind in ("corrupt", "unavailable", "unsupported_format")
    with suppress(CorruptError):
        index.pack_ids()


def use(bench: Bench, section: IndexSection) -> None:
    """Opens, queries and changes an index that may be anything."""
    try:
        index = bench.open(section)
    except CorruptError as error:
        assert error.message
        return
    with index:
        look_everywhere(index)
        try:
            changes = change_set(
                next_ino=max(index.next_ino, 100_000),
                inodes=[file_row(FIRST, 77), file_row(99_999, 5)],
                removed=[FIRST + 1],
                entries=[(1, b"new", 99_999), (2, b"file-%07d" % 1, 0)],
                contents={99_999: [extent(0, 5)]},
            )
            with index.apply(changes) as delta:
                assert delta.page_count
        except CowfsError as error:
            assert error.kind in ("corrupt", "invalid_input")


# -- bytes that are not what was stored


@pytest.fixture
def published(bench: Bench) -> IndexSection:
    index, done = bench.commit(bench.empty(), many_files(FILES))
    index.close()
    return done.section


def packs_of(bench: Bench, section: IndexSection) -> list[Path]:
    return [bench.pack_path(use.pack) for use in section.packs]


def test_a_flipped_bit_in_a_pack_is_noticed_by_who_needs_it(bench: Bench, published: IndexSection) -> None:
    (path,) = packs_of(bench, published)
    good = path.read_bytes()
    path.chmod(0o600)
    noticed = 0
    for at in range(100, len(good) - 5000, len(good) // 40):
        path.write_bytes(good[:at] + bytes([good[at] ^ 4]) + good[at + 1 :])
        try:
            with bench.open(published) as index:
                assert len(index.directory(2)) == 1000
                for ino in range(FIRST, FIRST + FILES, 50):
                    assert index.content(ino)[0] == [extent(0, 1000, chunk=ino - FIRST)]
        except CorruptError as error:
            assert str(published.packs[0].pack) in error.message
            noticed += 1
    assert noticed > 5


def test_a_damaged_neighbour_harms_nobody_else(bench: Bench, published: IndexSection) -> None:
    """The last page of extents is damaged; every look at other files succeeds, and that one says
    what is wrong."""
    (path,) = packs_of(bench, published)
    good = path.read_bytes()
    path.chmod(0o600)
    last = StoreBlocks(bench.reader, published, BlockCache(bench.cache())).ref(published.pages - 1)
    assert last is not None
    at = last.offset + last.stored_length // 2
    path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    with bench.open(published) as index:
        failed = []
        for ino in range(FIRST, FIRST + FILES):
            try:
                assert index.content(ino)[0] == [extent(0, 1000, chunk=ino - FIRST)]
            except CorruptError:
                failed.append(ino)
        assert 0 < len(failed) < 300


def list_all(bench: Bench, section: IndexSection) -> None:
    with bench.open(section) as index:
        for ino in range(1, FIRST):
            index.directory(ino)


@pytest.mark.parametrize("keep", [0.9, 0.5, 0.0])
def test_a_pack_cut_short_is_corrupt(bench: Bench, published: IndexSection, keep: float) -> None:
    (path,) = packs_of(bench, published)
    good = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(good[: int(len(good) * keep)])
    with pytest.raises(CorruptError) as raised:
        list_all(bench, published)
    assert str(published.packs[0].pack) in raised.value.message


def test_a_missing_pack_is_corrupt(bench: Bench, published: IndexSection) -> None:
    (path,) = packs_of(bench, published)
    path.unlink()
    with pytest.raises(CorruptError):
        bench.open(published)


def test_an_unreachable_store_is_unavailable_in_the_middle_of_a_query_and_later_works(bench: Bench) -> None:
    files = 20_000
    index, done = bench.commit(bench.empty(), many_files(files))
    index.close()
    first = 2 + files // 1000
    changes = change_set(first + files, inodes=[file_row(ino, 9999) for ino in range(first, first + files, 100)])
    with bench.open(done.section) as index:
        bench.store.is_down = True
        with pytest.raises(UnavailableError) as raised:
            list(map(index.content, range(first, first + files)))
        assert "does not answer" in raised.value.message
        with pytest.raises(UnavailableError):
            index.apply(replace(changes, contents=[(first + files - 1, [])]))
        bench.store.is_down = False
        assert len(index.directory(first - 1)) == 1000
        assert index.content(first + files - 1)[0]
        with index.apply(changes) as delta:
            assert delta.totals.files == files


# -- bytes that are what was stored, by somebody who means harm


@pytest.fixture(scope="module")
def victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, list[bytes]]]:
    bench = Bench(tmp_path_factory.mktemp("victim"))
    index, done = bench.commit(bench.empty(), many_files(FILES))
    index.close()
    yield bench, bench.pages(done.section)
    bench.store.close()


@settings(max_examples=60)
@given(data=st.data())
def test_damage_with_right_hashes(victim: tuple[Bench, list[bytes]], data: st.DataObject) -> None:
    bench, good = victim
    pages = [bytearray(page) for page in good]
    for _ in range(data.draw(st.integers(1, 12))):
        page = data.draw(st.integers(0, len(pages) - 1))
        head = data.draw(st.booleans())
        at = data.draw(st.integers(0, 120 if head else 16383))
        pages[page][at] = data.draw(st.integers(0, 255))
    use(bench, bench.store_pages([bytes(page) for page in pages]))


@pytest.mark.parametrize("seed", range(6))
def test_pages_in_the_wrong_place(victim: tuple[Bench, list[bytes]], seed: int) -> None:
    print(f"seed {seed}")
    bench, good = victim
    chance = random.Random(seed)
    for _ in range(8):
        pages = list(good)
        for _ in range(chance.randrange(1, 6)):
            pages[chance.randrange(1, len(pages))] = chance.choice(good)
        use(bench, bench.store_pages(pages))
        use(bench, bench.store_pages([good[0], *chance.sample(good, len(good) - 1)]))
        use(bench, bench.store_pages(good[: chance.randrange(1, len(good))]))


def test_pages_that_are_no_database(bench: Bench) -> None:
    for pages in ([bytes(16384)], [b"\xff" * 16384], [b"SQLite format 3\0".ljust(16384, b"\0")] * 2):
        with pytest.raises(CorruptError):
            bench.open(bench.store_pages(pages))


def database(*statements: str) -> list[bytes]:
    """The pages of a database that SQLite itself made."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "db"
        connection = apsw.Connection(str(path))
        connection.execute("PRAGMA page_size = 16384; PRAGMA journal_mode = delete")
        for statement in statements:
            connection.execute(statement)
        connection.close()
        data = path.read_bytes()
    return [data[at : at + 16384] for at in range(0, len(data), 16384)]


ROOT = "INSERT INTO inodes VALUES (1, 16877, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, x'')"
META = "INSERT INTO meta VALUES ('format', 1), ('next_ino', 9), ('files', 1), ('directories', 0), ('bytes', 0)"
FILE = "INSERT INTO inodes VALUES (2, 33188, 1, 0, 0, 0, 10, 7, 0, 0, 0, 0, x'')"


def test_what_sqlite_itself_made_is_read(bench: Bench) -> None:
    pages = database(SCHEMA, ROOT, META, FILE, "INSERT INTO dirents VALUES (1, x'61', 2)")
    with bench.open(bench.store_pages(pages)) as index:
        assert [name for name, _ in index.directory(1)] == [b"a"]


ENDLESS_VIEW = (
    "CREATE VIEW dirents AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT 1 AS parent, CAST(i AS BLOB) AS name, 1 AS ino FROM n"
)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE more (x)",
        "CREATE INDEX more ON inodes (mode)",
        "CREATE VIEW more AS SELECT 1",
        "CREATE TRIGGER more AFTER INSERT ON inodes BEGIN DELETE FROM dirents; END",
        "DROP TABLE xattrs",
        f"DROP TABLE dirents; {ENDLESS_VIEW}",
        "DROP TABLE meta; CREATE VIEW meta AS SELECT 'format' AS key, 1 AS value",
        "ALTER TABLE inodes ADD COLUMN more INTEGER",
        "CREATE VIRTUAL TABLE more USING fts5 (x)",
        "ANALYZE",
    ],
)
def test_other_tables_than_ours_are_corrupt(bench: Bench, statement: str) -> None:
    pages = database(SCHEMA, ROOT, META, statement)
    with pytest.raises(CorruptError, match="tables"):
        bench.open(bench.store_pages(pages))


def test_an_unknown_format_number_is_named(bench: Bench) -> None:
    pages = database(SCHEMA, ROOT, META.replace("('format', 1)", "('format', 3)"), "CREATE TABLE more (x)")
    with pytest.raises(UnsupportedFormatError, match="format 3"):
        bench.open(bench.store_pages(pages))


def test_text_that_is_not_utf_8_is_corrupt(bench: Bench) -> None:
    pages = database(SCHEMA, ROOT, META, "INSERT INTO meta VALUES (CAST(x'80' AS TEXT), 1)")
    with pytest.raises(CorruptError):
        bench.open(bench.store_pages(pages))


def test_missing_facts_are_corrupt(bench: Bench) -> None:
    pages = database(SCHEMA, ROOT, META.replace("('next_ino', 9), ", ""))
    with pytest.raises(CorruptError, match="next_ino"):
        bench.open(bench.store_pages(pages))


Query = Callable[[Index], object]


@pytest.mark.parametrize(
    ("statement", "query"),
    [
        (FILE.replace("33188", "420"), lambda index: index.inode(2)),
        (FILE.replace("33188", "-1"), lambda index: index.inode(2)),
        (FILE.replace("10, 7", "-10, 0"), lambda index: index.inode(2)),
        (FILE.replace("10, 7", "10, 11"), lambda index: index.inode(2)),
        (FILE.replace("10, 7", "10, -1"), lambda index: index.inode(2)),
        (FILE.replace("33188", "4516"), lambda index: index.inode(2)),
        (FILE.replace("1, 0, 0, 0, 10", "1, 4294967296, 0, 0, 10"), lambda index: index.inode(2)),
        (FILE.replace("x''", "zeroblob(5000)"), lambda index: index.inode(2)),
        (FILE.replace("x''", "zeroblob(2000000)"), lambda index: index.inode(2)),
        ("INSERT INTO dirents VALUES (1, x'61', 3)", lambda index: index.directory(1)),
        ("INSERT INTO dirents VALUES (1, x'', 1)", lambda index: index.directory(1)),
        ("INSERT INTO dirents VALUES (1, x'2e2e', 1)", lambda index: index.directory(1)),
        ("INSERT INTO dirents VALUES (1, x'612f62', 1)", lambda index: index.directory(1)),
        ("INSERT INTO dirents VALUES (1, zeroblob(256), 1)", lambda index: index.directory(1)),
        ("INSERT INTO extents VALUES (2, 0, 0, zeroblob(32), 1, 0, 5, 5, 0, 0)", lambda index: index.content(2)),
        ("INSERT INTO extents VALUES (2, -1, 5, zeroblob(32), 1, 0, 5, 5, 0, 0)", lambda index: index.content(2)),
        ("INSERT INTO extents VALUES (2, 0, 5, zeroblob(31), 1, 0, 5, 5, 0, 0)", lambda index: index.content(2)),
        ("INSERT INTO extents VALUES (2, 0, 5, zeroblob(32), 1, 0, 5, 4, 0, 0)", lambda index: index.content(2)),
        ("INSERT INTO extents VALUES (2, 0, 5, zeroblob(32), 1, 0, 5, 5, 1, 0)", lambda index: index.content(2)),
        ("INSERT INTO extents VALUES (2, 0, 5, zeroblob(32), 1, 0, 5, 5, 0, 9)", lambda index: index.content(2)),
        ("INSERT INTO extents VALUES (2, 0, 5, zeroblob(32), -1, 0, 5, 5, 0, 0)", lambda index: index.content(2)),
        (
            "INSERT INTO extents VALUES (2, 0, 5, zeroblob(32), 1, 0, 5, 4, 0, 0)",
            lambda index: index.read_stored_contents(1, 9),
        ),
        ("INSERT INTO xattrs VALUES (2, x'', x'')", lambda index: index.read_stored_contents(1, 9)),
        ("INSERT INTO xattrs VALUES (2, x'', x'')", lambda index: index.content(2)),
        ("INSERT INTO xattrs VALUES (2, x'61', zeroblob(70000))", lambda index: index.content(2)),
        ("INSERT INTO packs VALUES (1, x'00')", lambda index: index.pack_ids()),
    ],
)
def test_impossible_rows_are_corrupt(bench: Bench, statement: str, query: Query) -> None:
    pages = database(SCHEMA, ROOT, META, statement)
    with bench.open(bench.store_pages(pages)) as index, pytest.raises(CorruptError):
        query(index)


def test_a_tree_that_leads_to_one_page_many_times_ends(victim: tuple[Bench, list[bytes]]) -> None:
    """Every child pointer of each interior page is made the same page: a scan would never be done
    with it."""
    bench, good = victim
    tried = 0
    for number, page in enumerate(good[1:], 1):
        if page[0] not in (2, 5):
            continue
        crafted = bytearray(page)
        cells = int.from_bytes(page[3:5])
        first = int.from_bytes(page[12:14])
        child = page[first : first + 4]
        crafted[8:12] = child
        for cell in range(cells):
            at = int.from_bytes(page[12 + 2 * cell : 14 + 2 * cell])
            crafted[at : at + 4] = child
        pages = list(good)
        pages[number] = bytes(crafted)
        tried += 1
        use(bench, bench.store_pages(pages))
    assert tried >= 3
