"""Connections to index databases, locked down and checked, with cowfs' errors; and a pool of them
for readers.

An index comes from a store, so its bytes are untrusted even when every hash is right: a hostile
version may have been made on purpose. Protection:

    schema        the schema must equal schema.sql, statement for statement: no view, trigger, generated column or virtual
                  table can be there
    SQLite        trusted_schema off, defensive, no extensions, no mmap, no attached files, cell_size_check on, values limited
    work          a query that takes more steps than its database can have rows for is stopped
    rows          checked for type and range by `rows`

Any fault that SQLite reports after that is a CorruptError that names the index; an error below
SQLite (the store does not answer, a block has a wrong hash) is raised unchanged. A connection with
an error is thrown away.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import apsw

from cowfs.base.errors import CorruptError, CowfsError, InvalidInputError, InvalidStateError, UnsupportedFormatError
from cowfs.base.fork_gate import GATE
from cowfs.index import links
from cowfs.index.overlay import PAGE_BYTES, Blocks
from cowfs.index.vfs import BlockFile, open_connection, raise_failure

INDEX_FORMAT = 1
"""The format without links; it is 2 with them (`links`)."""
FORMATS = (1, 2)
SCHEMA = Path(__file__).with_name("schema.sql").read_text(encoding="utf-8")

LARGEST_VALUE_BYTES = 1 << 20
STEPS_BETWEEN_CHECKS = 100_000
STEPS_PER_PAGE = 50_000
"""A page has at most 2,700 cells (6 bytes each), and a query takes fewer than 20 steps per row."""
READER_CONNECTIONS = 8
ROWS_AT_ONCE = 64
READER_CACHE_KIB = 1024
WRITER_CACHE_KIB = 16384
"""Rows are written in the order of their keys: a page is hardly needed again after the next one,
and changed pages go to the overlay."""

_READER_PRAGMAS = ("temp_store = memory", f"cache_size = -{READER_CACHE_KIB}")
_WRITER_PRAGMAS = (
    f"page_size = {PAGE_BYTES}",
    "auto_vacuum = none",
    "locking_mode = exclusive",
    "synchronous = off",
    "secure_delete = on",
    "temp_store = memory",
    f"cache_size = -{WRITER_CACHE_KIB}",
)


class Connection:
    """One connection, for one thread at a time."""

    def __init__(self, blocks: Blocks, *, writable: bool = False) -> None:
        """writable: blocks is an Overlay, and belongs to this connection until it is closed."""
        self.title = blocks.title
        self._blocks = blocks
        self._file = BlockFile(blocks, writable=writable)
        self._steps = 0
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE if writable else apsw.SQLITE_OPEN_READONLY
        with self._errors():
            self._connection = open_connection(self._file, flags)
        try:
            if writable:  # "defensive" would refuse it. After any error the overlay is dropped: no rollback needed
                self.execute("PRAGMA journal_mode = off")
            self._lock_down()
            for pragma in _WRITER_PRAGMAS if writable else _READER_PRAGMAS:
                self.execute(f"PRAGMA {pragma}")
        except BaseException:
            self.close()
            raise

    def _lock_down(self) -> None:
        connection = self._connection
        for name, value in (
            (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
            (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
            (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
            (apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0),
            (apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0),
        ):
            connection.config(name, value)
        connection.limit(apsw.SQLITE_LIMIT_LENGTH, LARGEST_VALUE_BYTES)
        connection.limit(apsw.SQLITE_LIMIT_ATTACHED, 0)
        connection.set_progress_handler(self._count_steps, STEPS_BETWEEN_CHECKS)
        for pragma in ("trusted_schema = off", "cell_size_check = on", "mmap_size = 0"):
            self.execute(f"PRAGMA {pragma}")

    def _count_steps(self) -> bool:
        self._steps += STEPS_BETWEEN_CHECKS
        return self._steps > STEPS_PER_PAGE * (self._blocks.count + 64)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except CowfsError:
            self._file.failure = None
            raise
        except apsw.ConstraintError as error:
            raise InvalidInputError(f"a change does not fit into {self.title}: {error}") from error
        except (apsw.Error, UnicodeDecodeError) as error:  # no writer of cowfs stores text that is not UTF-8
            raise_failure(self._file)
            raise CorruptError(
                f"{self.title} is damaged: {error}",
                hint="Its blocks have the right hashes, but they do not form an index. Use another version.",
            ) from error
        raise_failure(self._file)

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of one statement."""
        self._steps = 0
        with self._errors():
            with GATE:
                return list(self._connection.execute(sql, values))

    def rows(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Any]:
        """Rows one by one: for results that must be checked before they are all in memory."""
        self._steps = 0
        with self._errors():
            with GATE:
                cursor = self._connection.execute(sql, values)
            while True:
                with GATE:
                    some = list(islice(cursor, ROWS_AT_ONCE))
                if not some:
                    return
                yield from some

    def execute_many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        with self._errors():
            with GATE:
                self._connection.executemany(sql, self._each(rows))

    def _each(self, rows: Sequence[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        for row in rows:
            self._steps = 0
            yield row

    def create(self) -> None:
        """Makes an empty database of this format."""
        self.execute(SCHEMA)
        self.execute("INSERT INTO meta VALUES ('format', ?)", (INDEX_FORMAT,))

    def check_schema(self) -> None:
        """CorruptError or UnsupportedFormatError unless the database has exactly the tables of
        schema.sql, and in format 2 those of links.sql."""
        most = load_schema(FORMATS[-1])
        found = set(self.execute("SELECT type, name, sql FROM sqlite_schema LIMIT ?", (len(most) + 1,)))
        meta = next(row for row in most if row[1] == "meta")
        format = INDEX_FORMAT
        if meta in found:
            number = self.execute("SELECT value FROM meta WHERE key = 'format'")
            if number and number[0][0] not in FORMATS:
                raise UnsupportedFormatError(
                    f"{self.title} has format {number[0][0]}; this cowfs reads formats {FORMATS[0]} to {FORMATS[-1]}",
                    hint="Use a newer cowfs.",
                )
            format = number[0][0] if number else format
        if found != load_schema(format):
            raise CorruptError(f"{self.title} is damaged: its tables are not those of an index")

    def close(self) -> None:
        connection: apsw.Connection | None = getattr(self, "_connection", None)
        if connection is not None:
            with GATE:
                connection.close(True)


@cache
def load_schema(format: int = INDEX_FORMAT) -> frozenset[Any]:
    """(type, name, sql) of every object that an index of this format holds."""
    with GATE:
        connection = apsw.Connection(":memory:")
        connection.execute(SCHEMA if format == INDEX_FORMAT else SCHEMA + links.SCHEMA)
        found = frozenset(connection.execute("SELECT type, name, sql FROM sqlite_schema"))
        connection.close()
    return found


class ConnectionPool:
    """Up to READER_CONNECTIONS connections on one immutable file; threads beyond that wait."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self._idle: list[Connection] = []
        self._open = 0
        self._closed = False
        self._changed = threading.Condition()

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        connection = self._take()
        try:
            yield connection
        except BaseException:
            self._give_back(connection, usable=False)
            raise
        self._give_back(connection, usable=True)

    def _take(self) -> Connection:
        with self._changed:
            while not self._closed and not self._idle and self._open >= READER_CONNECTIONS:
                self._changed.wait()
            if self._closed:
                raise InvalidStateError(f"{self._blocks.title} was closed")
            if self._idle:
                return self._idle.pop()
            self._open += 1
        try:
            connection = Connection(self._blocks)
            connection.check_schema()
            return connection
        except BaseException:
            with self._changed:
                self._open -= 1
                self._changed.notify_all()
            raise

    def _give_back(self, connection: Connection, *, usable: bool) -> None:
        with self._changed:
            if usable and not self._closed:
                self._idle.append(connection)
            else:
                self._open -= 1
                connection.close()
            self._changed.notify_all()

    def close(self) -> None:
        """Waits for queries under way; further ones raise InvalidStateError."""
        with self._changed:
            self._closed = True
            self._open -= len(self._idle)
            for connection in self._idle:
                connection.close()
            self._idle.clear()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._open == 0)
