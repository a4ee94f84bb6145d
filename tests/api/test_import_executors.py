"""Imports whose objects are read and stored by workers: the same version, and nothing is read
twice."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from cowfs.blocking import Store
from cowfs.errors import InvalidInputError
from cowfs.storage import Storage
from cowfs.store.origin import OriginObject
from cowfs.store.origin.s3 import S3Origin
from cowfs.transfer.imports import object_parts
from cowfs.transfer.imports.object_parts import StoredPart, cut
from tests.api.conftest import place
from tests.api.test_importing import BIG, contents, server
from tests.object_server import ObjectServer

__all__ = ["place", "server"]

Step = Callable[[int, Any], Any]


class Here(Executor):
    """Does parts at once, in this process. then: is called with a part's number and what it
    gives."""

    def __init__(self, then: Step = lambda number, result: result) -> None:
        self._then = then
        self.parts = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.parts += 1
        try:
            future.set_result(self._then(self.parts, fn(*args, **kwargs)))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_parts, "PART_OBJECTS", 3)
    monkeypatch.setattr(object_parts, "PART_BYTES", 1 << 20)


@pytest.fixture
def filled(server: ObjectServer) -> dict[str, bytes]:
    drawn = random.Random(7)
    objects = {f"dir{n % 3}/f{n}": drawn.randbytes(drawn.choice((10, 3000, 200_000))) for n in range(20)}
    objects |= {"big": BIG, "again/big": BIG, "empty": b"", "other/sub/é m": b"text" * 1000}
    for key, data in objects.items():
        server.put(key, data)
    return {f"/{key}": data for key, data in objects.items()}


@pytest.fixture
def processes(filled: dict[str, bytes]) -> Iterator[Executor]:
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool


def not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(self: S3Origin, found: OriginObject, offset: int, length: int) -> bytes:
        raise AssertionError(f"{found.key} is read by who imports")

    monkeypatch.setattr(S3Origin, "read", read)


def test_objects_are_read_and_stored_by_others(
    server: ObjectServer, filled: dict[str, bytes], processes: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    not_here(monkeypatch)
    version = Store().import_(server.url(), "copy", executor=processes)
    assert version.is_new
    assert contents(version) == filled
    assert server.asked("GET").count("dir0/f0") == 1
    server.requests.clear()
    assert Store().import_(server.url(), "copy", executor=processes).id == version.id
    assert [name for name, _ in server.requests] == ["LIST"], "nothing is read again"
    assert Store().verify().is_sound


def test_only_what_changed_is_read_and_what_is_excluded_is_not(
    server: ObjectServer, filled: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Store().import_(server.url(), "copy", executor=Here(), exclude=["other/", "/big"])
    left = {path: data for path, data in filled.items() if path not in ("/big", "/other/sub/é m")}
    assert contents(first) == left
    assert not {"big", "other/sub/é m"} & set(server.asked("GET"))
    server.requests.clear()
    server.put("dir1/f1", b"other bytes")
    del server.objects["dir2/f2"]
    second = Store().import_(server.url(), "copy", executor=Here(), exclude=["other/", "/big"], delete=True)
    del left["/dir2/f2"]
    assert contents(second) == left | {"/dir1/f1": b"other bytes"}
    assert server.asked("GET") == ["dir1/f1"]


def test_equal_objects_of_a_part_are_stored_once(server: ObjectServer, place: Path) -> None:
    server.put("a", BIG)
    server.put("b", BIG)
    Store().import_(server.url(), "copy", executor=Here())
    stored = sum(path.stat().st_size for path in (place / "store" / "packs").rglob("*") if path.is_file())
    assert stored < 2.5 * len(BIG), "one part for each: nothing is looked up among parts"


def test_what_was_stored_before_one_failed_is_not_read_again(server: ObjectServer, filled: dict[str, bytes]) -> None:
    def fail(number: int, part: StoredPart) -> StoredPart:
        if number > 4:
            raise MemoryError("this worker is no more")
        return part

    with pytest.raises(MemoryError):
        Store().import_(server.url(), "copy", executor=Here(fail))
    read = set(server.asked("GET"))
    server.requests.clear()
    executor = Here()
    version = Store().import_(server.url(), "copy", executor=executor)
    assert contents(version) == filled
    again = set(server.asked("GET")) & read
    assert again < read, "objects of parts that came to their end"


def test_a_pack_that_has_gone_meanwhile_is_made_again(
    server: ObjectServer, filled: dict[str, bytes], place: Path
) -> None:
    """As if a collection had taken it before who imports could name it."""

    def lose(number: int, part: StoredPart) -> StoredPart:
        if number == 2:
            name = part.receipts[0].pack.hex()
            (lost,) = (place / "store" / "packs").rglob(f"*{name}*")
            lost.unlink()
        return part

    version = Store().import_(server.url(), "copy", executor=Here(lose))
    assert contents(version) == filled
    assert Store().verify().is_sound


def test_what_is_replaced_or_gone_meanwhile_is_as_it_is_in_the_end(
    server: ObjectServer, filled: dict[str, bytes]
) -> None:
    def change(number: int, part: StoredPart) -> StoredPart:
        if number == 1:
            server.put("dir0/f0", b"replaced")
            server.put("dir2/f17", b"replaced, too")
            del server.objects["dir0/f18"]
        return part

    version = Store().import_(server.url(), "copy", executor=Here(change))
    found = contents(version)
    assert found["/dir2/f17"] == b"replaced, too"
    assert found["/dir0/f0"] in (filled["/dir0/f0"], b"replaced")
    assert "/dir0/f18" not in found
    assert Store().verify().is_sound


def test_workers_are_for_bytes_of_objects(server: ObjectServer, place: Path) -> None:
    server.put("a", b"1")
    given = Storage(server.url(), access_key="a", secret_key="b")
    with pytest.raises(InvalidInputError, match="of a link none are read"):
        Store().import_(server.url(), "copy", executor=Here(), link=True)
    with pytest.raises(InvalidInputError, match="directory of this machine"):
        Store().import_(place, "copy", executor=Here())
    with pytest.raises(InvalidInputError, match="workers get none"):
        Store().import_(server.url(), "copy", executor=Here(), storage=given)


def test_parts_have_so_many_bytes_or_objects() -> None:
    def objects(*sizes: int) -> list[OriginObject]:
        return [OriginObject(str(at), size, 0, "tag") for at, size in enumerate(sizes)]

    def lengths(*sizes: int) -> list[int]:
        return [len(part) for part in cut(objects(*sizes))]

    assert lengths() == []
    assert lengths(1, 1, 1, 1) == [3, 1]
    assert lengths(2 << 20, 1, 2 << 20, 1) == [1, 2, 1]
