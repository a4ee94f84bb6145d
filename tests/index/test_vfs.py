"""The file SQLite sees: reads of any size and place, writes only for a writer, nothing else on the
machine, errors as they are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import apsw
import pytest

from cowfs.errors import CorruptError, InvalidStateError, NoSpaceError, UnavailableError
from cowfs.index.connection import Connection
from cowfs.index.overlay import PAGE_BYTES, MemoryBlocks, Overlay
from cowfs.index.vfs import VFS_NAME, BlockFile, open_connection

pytestmark = pytest.mark.quick
CONTENT = bytes(range(256)) * (3 * PAGE_BYTES // 256)
BLOCKS = MemoryBlocks("three pages", [CONTENT[at : at + PAGE_BYTES] for at in range(0, len(CONTENT), PAGE_BYTES)])


@pytest.mark.parametrize(
    "offset", [0, 1, 24, 100, PAGE_BYTES - 1, PAGE_BYTES, 2 * PAGE_BYTES + 5, 3 * PAGE_BYTES, 1 << 40]
)
@pytest.mark.parametrize("amount", [1, 16, 100, PAGE_BYTES - 1, PAGE_BYTES, PAGE_BYTES + 1, 5 * PAGE_BYTES])
def test_a_read_gives_what_the_file_has_there(offset: int, amount: int) -> None:
    assert BlockFile(BLOCKS, writable=False).xRead(amount, offset) == CONTENT[offset : offset + amount]


def test_writes_of_any_size_change_the_overlay_only(tmp_path: Path) -> None:
    overlay = Overlay(BLOCKS, tmp_path)
    file = BlockFile(overlay, writable=True)
    expected = bytearray(CONTENT)
    for offset, length in ((5, 10), (PAGE_BYTES - 3, 6), (2 * PAGE_BYTES, PAGE_BYTES), (len(CONTENT), 40_000)):
        file.xWrite(b"w" * length, offset)
        expected[offset : offset + length] = b"w" * length
    expected = expected.ljust(overlay.count * PAGE_BYTES, b"\0")
    assert file.xFileSize() == len(expected)
    assert file.xRead(len(expected), 0) == bytes(expected)
    file.xTruncate(PAGE_BYTES)
    assert file.xRead(3 * PAGE_BYTES, 0) == bytes(expected[:PAGE_BYTES])
    assert BLOCKS.read(0) == CONTENT[:PAGE_BYTES]


def test_a_published_file_cannot_be_written(tmp_path: Path) -> None:
    for blocks in (BLOCKS, Overlay(BLOCKS, tmp_path)):
        with pytest.raises(InvalidStateError):
            BlockFile(blocks, writable=False).xWrite(b"x", 0)


def test_no_other_file_can_be_opened(tmp_path: Path) -> None:
    open_connection(BlockFile(MemoryBlocks("empty", []), writable=False), apsw.SQLITE_OPEN_READONLY).close()
    path = tmp_path / "real"
    apsw.Connection(str(path)).execute("CREATE TABLE t (x)")
    for name in (str(path), "index-1", "index-999999"):
        with pytest.raises(apsw.CantOpenError):
            apsw.Connection(name, vfs=VFS_NAME)


class FailingBlocks(MemoryBlocks):
    def __init__(self, pages: list[bytes], failure: BaseException) -> None:
        super().__init__("failing", pages)
        self.failure = failure
        self.fails = False

    def read(self, number: int) -> bytes:
        if self.fails and number > 0:
            raise self.failure
        return super().read(number)

    def prefetch(self, numbers: Iterable[int]) -> None: ...


def some_pages(tmp_path: Path) -> list[bytes]:
    overlay = Overlay(MemoryBlocks("new", []), tmp_path)
    connection = Connection(overlay, writable=True)
    connection.create()
    connection.execute_many("INSERT INTO packs VALUES (?, ?)", [(n, bytes(16)) for n in range(1, 5000)])
    connection.close()
    return [raw for _, raw in overlay.list_written()]


@pytest.mark.parametrize(
    "failure", [UnavailableError("no answer"), CorruptError("pack 12 is damaged"), KeyboardInterrupt()]
)
def test_an_error_below_sqlite_is_raised_as_it_is(tmp_path: Path, failure: BaseException) -> None:
    blocks = FailingBlocks(some_pages(tmp_path), failure)
    connection = Connection(blocks)
    blocks.fails = True
    with pytest.raises(type(failure)) as raised:
        connection.execute("SELECT count(id) FROM packs")
    assert raised.value is failure
    connection.close()


def test_a_full_disk_is_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    overlay = Overlay(MemoryBlocks("new", []), tmp_path)

    def full(number: int, page: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(overlay, "write", full)
    with pytest.raises(NoSpaceError):
        Connection(overlay, writable=True).create()


def test_a_session_refuses_what_an_index_never_needs(tmp_path: Path) -> None:
    connection = Connection(Overlay(MemoryBlocks("new", []), tmp_path), writable=True)
    connection.create()
    for statement in (
        "ATTACH DATABASE '/tmp/other' AS other",
        "SELECT load_extension('x')",
        "PRAGMA writable_schema = on; UPDATE sqlite_schema SET sql = ''",
    ):
        with pytest.raises(CorruptError):
            connection.execute(statement)
    assert connection.execute("PRAGMA secure_delete") == [(1,)]
    assert connection.execute("PRAGMA page_size") == [(16384,)]
    assert connection.execute("PRAGMA auto_vacuum") == [(0,)]
    assert connection.execute("PRAGMA journal_mode") == [("off",)]
    connection.close()


def test_a_query_without_end_is_stopped(tmp_path: Path) -> None:
    connection = Connection(MemoryBlocks("tiny", some_pages(tmp_path)))
    with pytest.raises(CorruptError):
        connection.execute("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n")
    connection.close()
