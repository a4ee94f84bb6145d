"""Stores to test on: a directory, this process' memory, a backend that the test registers, a bucket
of the SeaweedFS server; and a clock that does not wait."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cowfs.base import clock
from cowfs.store import ObjectStore, open_store
from cowfs.store.backends.s3 import s3_by_obstore
from tests.seaweedfs import SeaweedFS
from tests.store import plain_store

KINDS = ["directory", "memory", "registered", pytest.param("s3", marks=pytest.mark.s3)]
FORKED_S3 = pytest.param("s3 in a forked child", marks=pytest.mark.s3)
PERSISTENT_KINDS = ["directory", pytest.param("s3", marks=pytest.mark.s3)]


def url_of(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if kind == "directory":
        return (tmp_path / "store").as_uri()
    if kind == "memory":
        return f"memory://{os.urandom(6).hex()}/store"
    if kind == "registered":
        plain_store.register()
        return f"plain://{os.urandom(6).hex()}/store"
    server: SeaweedFS = request.getfixturevalue("seaweedfs")
    patch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    if kind == FORKED_S3.values[0]:
        patch.setattr(s3_by_obstore, "is_usable", lambda: False)
    for name, value in server.credentials.items():
        patch.setenv(name, value)
    return f"{server.store_url}/{os.urandom(6).hex()}"


@pytest.fixture(params=KINDS)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty place, on every backend in turn."""
    return url_of(request.param, request, tmp_path)


@pytest.fixture(params=PERSISTENT_KINDS)
def shared_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty place that other processes see too."""
    return url_of(request.param, request, tmp_path)


@pytest.fixture
def store(store_url: str) -> Iterator[ObjectStore]:
    opened = open_store(store_url, create=True)
    yield opened
    opened.close()


@pytest.fixture
def directory(tmp_path: Path) -> ObjectStore:
    """A plain directory store, where the kind of store does not matter."""
    return open_store((tmp_path / "store").as_uri(), create=True)


class PatientClock(clock.SystemClock):
    """Waiting moves time on instead of taking any."""

    def __init__(self) -> None:
        self.waited_s: list[float] = []

    def sleep_s(self, seconds: float) -> None:
        self.waited_s.append(seconds)

    def monotonic_s(self) -> float:
        return super().monotonic_s() + sum(self.waited_s)

    def now_ns(self) -> int:
        return super().now_ns() + int(sum(self.waited_s) * 1e9)


@pytest.fixture
def patient_clock(monkeypatch: pytest.MonkeyPatch) -> PatientClock:
    patient = PatientClock()
    monkeypatch.setattr(clock, "current", patient)
    return patient


class WarpClock(clock.SystemClock):
    """Waiting takes no time, and threads that wait at the same moment wait for the same time."""

    def __init__(self) -> None:
        self.waited_s = 0.0
        self._lock = threading.Lock()

    def sleep_s(self, seconds: float) -> None:
        end_s = self.monotonic_s() + seconds
        with self._lock:
            self.waited_s = max(self.waited_s, end_s - super().monotonic_s())
        time.sleep(0.001)

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.waited_s


@pytest.fixture
def warp(monkeypatch: pytest.MonkeyPatch) -> WarpClock:
    found = WarpClock()
    monkeypatch.setattr(clock, "current", found)
    return found


class FastClock(clock.SystemClock):
    """Time runs FACTOR times as fast, for waits and for real work alike: a request on a busy
    machine misses no whole outage."""

    FACTOR = 100

    def sleep_s(self, seconds: float) -> None:
        time.sleep(seconds / self.FACTOR)

    def monotonic_s(self) -> float:
        return super().monotonic_s() * self.FACTOR


@pytest.fixture
def fast_clock(monkeypatch: pytest.MonkeyPatch) -> FastClock:
    found = FastClock()
    monkeypatch.setattr(clock, "current", found)
    return found
