"""Packs over links that are slow, break, or refuse: all arrive, and no byte is sent many times.

The links are real connections, scaled down: fewer bytes, and a silence of seconds instead of a
minute counts as too long.
"""

from __future__ import annotations

import random
import threading
import time
from typing import BinaryIO

import pytest
from blake3 import blake3

from cowfs.base import clock
from cowfs.base.ids import ChunkHash
from cowfs.errors import CowfsError
from cowfs.format import keys
from cowfs.format.pack import PackKind
from cowfs.store.backends.s3 import s3_by_obstore
from cowfs.store.backends.s3.s3_errors import Refused, from_failure
from cowfs.store.backends.s3.s3_store import S3Store
from cowfs.store.packs import PackUploader
from cowfs.store.reliability.patience import RETRY_AFTER, Patience
from cowfs.store.reliability.retry_after import retry_after_s
from cowfs.store.reliability.retrying import RetryingStore
from tests.store.conftest import WarpClock
from tests.store.scripted_server import STORED, Answer, Request, ScriptedServer, response

PACKS = 40
PACK_BYTES = 512 << 10
SEED = 7


class SlowLink:
    """All connections together receive bytes_per_s; what arrived is counted, whatever becomes of
    it."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._lock = threading.Lock()
        self._free_s = 0.0
        self.received = 0

    def take(self, stream: BinaryIO, length: int) -> bytes:
        pieces = []
        for start in range(0, length, 32 << 10):
            pieces.append(stream.read(min(32 << 10, length - start)))
            with self._lock:
                self.received += len(pieces[-1])
                self._free_s = max(self._free_s, time.monotonic()) + len(pieces[-1]) / self._bytes_per_s
                wait_s = self._free_s - time.monotonic()
            time.sleep(max(wait_s, 0))
        return b"".join(pieces)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "cowfs-tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret-at-all")


def patient_store(server: ScriptedServer) -> RetryingStore:
    raw = S3Store(bucket="cowfs", prefix="", url="s3://cowfs", endpoint=server.endpoint, region="us-east-1")
    return RetryingStore(raw, Patience(900.0))


def upload(store: RetryingStore) -> set[str]:
    """Stores PACKS packs; their keys."""
    print(f"slow links: seed {SEED}")
    source = random.Random(SEED)
    uploader = PackUploader(store, PackKind.DATA, target_bytes=PACK_BYTES)
    for _ in range(PACKS):
        data = source.randbytes(PACK_BYTES)
        uploader.add(ChunkHash(blake3(data).digest()), data)
    receipts = uploader.flush()
    uploader.close()
    assert len(receipts) == PACKS
    return {keys.pack(receipt.pack) for receipt in receipts}


def arrived(server: ScriptedServer) -> dict[str, bytes]:
    return {
        request.target.removeprefix("/cowfs/"): request.body
        for request in server.requests
        if request.method == "PUT" and len(request.body) > PACK_BYTES
    }


def answer(request: Request) -> Answer:
    return (
        STORED if request.method == "PUT" else response("404 Not Found" if request.method == "HEAD" else "200 OK")
    ), True


def test_a_commit_over_a_slow_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it takes longer than silence may last; sixteen packs at once would each see a
    sixteenth of the link."""
    monkeypatch.setattr(s3_by_obstore, "SILENCE_S", 4.0)
    link = SlowLink(4 << 20)
    with ScriptedServer(answer, take=link.take, buffer_bytes=32 << 10) as server:
        store = patient_store(server)
        assert upload(store) == arrived(server).keys()
        store.close()
    assert link.received < 2.5 * PACKS * PACK_BYTES


def test_a_body_that_did_not_get_through_has_more_time_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_by_obstore, "SILENCE_S", 0.25)
    monkeypatch.setattr(s3_by_obstore, "FIRST_BYTES_PER_S", 1 << 40)
    link = SlowLink(2 << 20)
    with ScriptedServer(answer, take=link.take, buffer_bytes=32 << 10) as server:
        store = patient_store(server)
        store.put("key", bytes(2 << 20))
        assert [len(request.body) for request in server.requests if request.method == "PUT"][-1] == 2 << 20
        store.close()
    assert link.received > 2 << 20, "the first attempt had too little"


@pytest.mark.parametrize("status", ["503 Slow Down", "500 Internal Error", "429 Too Many Requests", "hang up"])
@pytest.mark.parametrize("methods", [{"PUT", "HEAD"}, {"PUT"}])
@pytest.mark.usefixtures("fast_clock")
def test_two_minutes_of_refusals(status: str, methods: set[str]) -> None:
    """They delay a commit. What was under way when they began is sent twice; bodies are not thrown
    at a store that refuses."""
    began_s = clock.monotonic_s()
    link = SlowLink(1e9)

    def refuse(request: Request) -> Answer:
        if request.method not in methods or clock.monotonic_s() - began_s > 120:
            return answer(request)
        return (
            (b"", False) if status == "hang up" else (response(status, b"" if request.method == "HEAD" else XML), True)
        )

    with ScriptedServer(refuse, take=link.take) as server:
        store = patient_store(server)
        assert upload(store) == arrived(server).keys()
        store.close()
    assert link.received < 2 * PACKS * PACK_BYTES


XML = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


def test_retry_after_of_an_answer(warp: WarpClock) -> None:
    """Seconds, or a date by the server's own clock."""
    headers = [
        "Retry-After: 35",
        "Date: Wed, 21 Oct 2026 07:28:00 GMT\r\nRetry-After: Wed, 21 Oct 2026 07:28:40 GMT",
        "Retry-After: soon",
    ]
    gets = 0

    def busy(request: Request) -> Answer:
        nonlocal gets
        gets += request.method == "GET"
        if gets > len(headers):
            return response("200 OK", b"value"), True
        head, _, rest = response("503 Slow Down", XML).partition(b"\r\n")
        return head + b"\r\n" + headers[gets - 1].encode() + b"\r\n" + rest, True

    with ScriptedServer(busy) as server:
        store = patient_store(server)
        before_s = warp.waited_s
        assert store.get("key") == b"value"
        assert gets == 4
        store.close()
    assert 74 < warp.waited_s - before_s < 80


@pytest.mark.quick
def test_an_absurd_retry_after_counts_as_none() -> None:
    assert RETRY_AFTER == "retry_after_s"
    for value in ("-5", "nan", "1e400", "", "9" * 400):
        assert s3_retry_after(value) in (0.0, 3600.0)
    assert Patience(60.0).requested_wait_s(s3_error("7"), clock.monotonic_s()) == 7.0
    assert "left alone for 7 s" in str(s3_error("7"))


def s3_retry_after(value: str) -> float:
    return float(s3_error(value).details.get(RETRY_AFTER, 0.0))


def s3_error(value: str) -> CowfsError:
    refused = Refused(503, "", "", retry_after_s({"retry-after": value}))
    return from_failure(refused, url="s3://b", key="k")
