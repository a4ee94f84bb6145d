"""What many threads share: nobody waits for the store under a lock that readers need, and failures
keep no turn."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cowfs.base.ids import PackId
from cowfs.format.sealing import PLAIN
from cowfs.index import Index
from cowfs.version.publish.contents import MAX_PIECES_IN_FLIGHT, ContentStorer
from cowfs.version.publish.pack_numbers import PackNumbers
from cowfs.version.publish.recut import Piece

pytestmark = pytest.mark.quick

WAIT_S = 60
OLD, NEW = PackId(bytes(16)), PackId(b"n" * 16)


class SlowIndex:
    """An index whose block with the last pack number comes when the test says so."""

    def __init__(self) -> None:
        self.is_asked, self.answers = threading.Event(), threading.Event()

    def last_pack_number(self) -> int:
        self.is_asked.set()
        assert self.answers.wait(WAIT_S)
        return 7

    def pack_id(self, number: int) -> PackId:
        return OLD


def test_a_new_number_that_waits_for_the_store_keeps_nobody_from_reading() -> None:
    index, given = SlowIndex(), list[int]()
    numbers = PackNumbers(cast(Index, index))
    writers = [threading.Thread(target=lambda: given.append(numbers.number(NEW)), daemon=True) for _ in range(2)]
    has_read = threading.Event()

    def read() -> None:
        assert numbers.id(3) == OLD
        has_read.set()

    for writer in writers:
        writer.start()
    assert index.is_asked.wait(WAIT_S)
    threading.Thread(target=read, daemon=True).start()
    try:
        assert has_read.wait(WAIT_S)
    finally:
        index.answers.set()
    for writer in writers:
        writer.join(WAIT_S)
    assert given == [8, 8], "one pack has one number"
    assert numbers.number(PackId(b"m" * 16)) == 9


def test_commits_that_get_no_thread_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: Any = SimpleNamespace()
    storer = ContentStorer(nothing, nothing, PLAIN)

    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        for _ in range(MAX_PIECES_IN_FLIGHT + 1):
            assert storer._room.acquire(blocking=False), "no turn is left"
            storer._room.release()
            assert isinstance(storer._submit(Piece(0, b""), nothing).exception(), AttributeError), "it was not tried"
    assert storer._room.acquire(blocking=False)
