"""What the contract of `cowfs.store.contract` promises, on every backend."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cowfs.base import clock
from cowfs.errors import ConflictError, CorruptError, InvalidInputError, NotFoundError, ReadOnlyError
from cowfs.format import keys, object_kinds
from cowfs.store import ObjectStore, open_store
from cowfs.store.reliability.retrying import RetryingStore
from cowfs.store.streams import stream_range
from tests.store.conftest import FORKED_S3, KINDS, url_of


@pytest.fixture(params=[*KINDS, FORKED_S3])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """What sends requests in a forked child is a backend of its own."""
    return url_of(request.param, request, tmp_path)


def test_put_get_whole_and_ranges(store: ObjectStore) -> None:
    data = bytes(range(256)) * 16
    store.put("a/b/object", data)
    assert store.get("a/b/object") == data
    assert store.size("a/b/object") == len(data)
    assert store.get_range("a/b/object", 0, 10) == data[:10]
    assert store.get_range("a/b/object", 4000, 96) == data[4000:]
    assert store.get_range("a/b/object", 100, 0) == b""


@pytest.mark.parametrize("data", [bytearray(b"bytearray"), memoryview(b"_memoryview_")[1:-1], b""])
def test_takes_any_buffer(store: ObjectStore, data: bytes | bytearray | memoryview) -> None:
    store.put("one", data)
    store.put_if_absent("two", data)
    assert store.get("one") == store.get("two") == bytes(data)
    assert store.size("one") == len(data)


def test_large_object(store: ObjectStore) -> None:
    data = clock.random_bytes(1 << 20) * 20
    store.put("large", data)
    assert store.get("large") == data
    assert store.get_range("large", 17 << 20, 1 << 20) == data[17 << 20 :][: 1 << 20]


def test_a_range_in_pieces(store: ObjectStore) -> None:
    data = clock.random_bytes(1 << 20) * 10
    store.put("large", data)
    for offset, length in ((0, len(data)), (12345, 9 << 20), (len(data) - 1, 1), (5, 0)):
        pieces = [bytes(piece) for piece in stream_range(store, "large", offset, length)]
        assert b"".join(pieces) == data[offset : offset + length]
        assert all(pieces)
    abandoned = stream_range(store, "large", 0, len(data))
    next(abandoned)
    del abandoned
    assert store.get_range("large", 0, 5) == data[:5]


def test_absent_objects(store: ObjectStore) -> None:
    store.put("there/object", b"x")
    for key in ("absent", "there", "there/object2", "there/absent/deep"):
        with pytest.raises(NotFoundError, match=key):
            store.get(key)
        with pytest.raises(NotFoundError, match=key):
            store.get_range(key, 0, 1)
        with pytest.raises(NotFoundError, match=key):
            list(stream_range(store, key, 0, 1))
        assert store.size(key) is None


def test_range_beyond_the_end_is_corrupt(store: ObjectStore) -> None:
    store.put("short", b"0123456789")
    for offset, length in ((5, 6), (10, 1), (1000, 5)):
        with pytest.raises(CorruptError, match="short"):
            store.get_range("short", offset, length)
        with pytest.raises(CorruptError, match="short"):
            list(stream_range(store, "short", offset, length))


def test_put_replaces(store: ObjectStore) -> None:
    store.put("key", b"a longer first value")
    store.put("key", b"second")
    assert store.get("key") == b"second"
    assert store.size("key") == 6


def test_put_if_absent_refuses_and_keeps_the_first(store: ObjectStore) -> None:
    store.put_if_absent("key", b"first")
    with pytest.raises(ConflictError, match="key"):
        store.put_if_absent("key", b"second")
    assert store.get("key") == b"first"
    store.put("plain", b"put")
    with pytest.raises(ConflictError):
        store.put_if_absent("plain", b"second")


def test_put_if_absent_after_delete(store: ObjectStore) -> None:
    store.put_if_absent("key", b"first")
    store.delete(["key"])
    store.put_if_absent("key", b"second")
    assert store.get("key") == b"second"


def test_racing_threads_have_one_winner(store: ObjectStore) -> None:
    start = threading.Barrier(8)

    def create(number: int) -> bool:
        start.wait()
        try:
            store.put_if_absent("contended", b"writer %d" % number)
        except ConflictError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(8)))
    assert won.count(True) == 1
    assert store.get("contended") == b"writer %d" % won.index(True)


def test_list_is_ordered_by_key(store: ObjectStore) -> None:
    keys = ["b", "a/2", "a/10", "a/1", "a.x", "a/1.moved/0", "a-", "c/d/e/f", "a0"]
    for key in keys:
        store.put(key, key.encode())
    listed = store.list("")
    assert [info.key for info in listed] == sorted(keys)
    assert [info.size for info in listed] == [len(key) for key in sorted(keys)]
    assert all(info.mtime_ns > 0 for info in listed)


def test_list_takes_any_prefix(store: ObjectStore) -> None:
    for key in ("packs/ab/abcd", "packs/ab/abcd.moved/1", "packs/ac/acdc", "pac", "versions/ab/1"):
        store.put(key, b"")
    assert [info.key for info in store.list("packs/ab/")] == ["packs/ab/abcd", "packs/ab/abcd.moved/1"]
    assert [info.key for info in store.list("packs/a")] == ["packs/ab/abcd", "packs/ab/abcd.moved/1", "packs/ac/acdc"]
    assert [info.key for info in store.list("packs/ab/abcd.moved/")] == ["packs/ab/abcd.moved/1"]
    assert [info.key for info in store.list("packs/ab/abcd")] == ["packs/ab/abcd", "packs/ab/abcd.moved/1"]
    assert store.list("pac")[0].key == "pac"
    assert store.list("nothing/here/") == []
    assert store.list("pac/") == []


def test_list_start_after_and_limit(store: ObjectStore) -> None:
    keys = [f"ref/{number:04x}" for number in range(25)] + ["reg/0", "ra/1"]
    for key in keys:
        store.put(key, b"x")
    ordered = sorted(keys)
    assert [info.key for info in store.list("", limit=3)] == ordered[:3]
    assert [info.key for info in store.list("ref/", limit=1)] == ["ref/0000"]
    assert [info.key for info in store.list("ref/", start_after="ref/0003", limit=2)] == ["ref/0004", "ref/0005"]
    assert [info.key for info in store.list("", start_after="ref/0018")] == ["reg/0"]
    assert [info.key for info in store.list("", start_after="rb")] == [key for key in ordered if key > "rb"]
    assert store.list("ref/", start_after="ref/ffff") == []
    assert store.list("ref/", limit=0) == []


def test_list_beyond_one_page(store: ObjectStore) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: store.put(f"many/{number:05}", b""), range(1105)))
    assert [info.key for info in store.list("many/")] == [f"many/{number:05}" for number in range(1105)]
    assert len(store.list("many/", limit=1050)) == 1050
    store.delete(f"many/{number:05}" for number in range(1105))
    assert store.list("many/") == []


def test_delete_ignores_absent_keys(store: ObjectStore) -> None:
    store.put("a/one", b"1")
    store.put("a/two", b"2")
    store.delete(["a/one", "a/absent", "nowhere/at/all"])
    store.delete([])
    assert [info.key for info in store.list("")] == ["a/two"]


def test_read_only_view(store: ObjectStore) -> None:
    store.put("key", b"value")
    view = store.read_only()
    assert view.get("key") == b"value"
    assert view.get_range("key", 1, 2) == b"al"
    assert view.size("key") == 5
    assert [info.key for info in view.list("")] == ["key"]
    with pytest.raises(ReadOnlyError):
        view.put("key", b"")
    with pytest.raises(ReadOnlyError):
        view.put_if_absent("new", b"")
    with pytest.raises(ReadOnlyError):
        view.delete(["key"])
    assert store.get("key") == b"value"
    assert view.url == store.url


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/.", ".incoming/x", "ä", "a\nb"])
def test_keys_never_leave_the_store(store: ObjectStore, key: str) -> None:
    for call in (
        lambda: store.get(key),
        lambda: store.put(key, b""),
        lambda: store.put_if_absent(key, b""),
        lambda: store.size(key),
        lambda: store.get_range(key, 0, 0),
        lambda: store.delete([key]),
    ):
        with pytest.raises(InvalidInputError):
            call()


def test_another_client_sees_everything(store: ObjectStore) -> None:
    store.put("key", b"value")
    other = open_store(store.url)
    try:
        assert other.url == store.url
        assert other.get("key") == b"value"
        with pytest.raises(ConflictError):
            other.put_if_absent("key", b"")
    finally:
        other.close()


def test_many_threads(store: ObjectStore) -> None:
    def work(number: int) -> None:
        key, data = f"thread/{number}", b"%d" % number * 1000
        store.put(key, data)
        assert store.get(key) == data
        assert store.get_range(key, 1, 10) == data[1:11]
        assert [info.key for info in store.list(key, limit=1)] == [key]

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(work, range(200)))


def test_an_object_larger_than_its_kind_is_neither_written_nor_read(store: ObjectStore) -> None:
    assert isinstance(store, RetryingStore)
    key = keys.head("v", 1)
    for put in (store.put, store.put_if_absent):
        with pytest.raises(InvalidInputError, match="at most"):
            put(key, bytes(object_kinds.largest(key) + 1))
    store._store.put(key, bytes(object_kinds.largest_read(key)))
    assert len(store.get(key)) == object_kinds.largest_read(key)
    store._store.put(key, bytes(object_kinds.largest_read(key) + 1))
    with pytest.raises(
        CorruptError, match=f"{key} has .* more than the limit of {object_kinds.largest_read(key)}"
    ) as caught:
        store.get(key)
    assert caught.value.hint
    store.delete([key])
