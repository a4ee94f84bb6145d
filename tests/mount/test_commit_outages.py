"""The store goes away, or the daemon dies, at any call a commit makes: what was written is whole
after the next mount.

A session is what a daemon serves, without FUSE: working copy, lease, pin, engine, committer. Each
case counts the store's calls; from the n-th one on the store fails (before that call takes effect,
or after), or the process is killed there. Then the volume is mounted again, as if on a new day, and
committed: nothing is lost, nothing is there twice, and the heads form one line.
"""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from cowfs.errors import LeaseLostError, UnavailableError
from cowfs.session import opening
from cowfs.session.session import Session
from cowfs.store import open_store as really_open_store
from cowfs.store.refs import refs
from cowfs.store.refs.holder import current_holder
from cowfs.store.reliability import patience
from cowfs.version.commit import CommitRequest
from cowfs.version.names.volumes import read_head
from cowfs.writer import acquiring
from tests.faulty_store import Fault, FaultyStore
from tests.mount.daemons import ROOT, Place
from tests.version.working_volume import ReadingVolume, WritableView

FIRST = random.Random(1).randbytes(300_000)
SECOND = random.Random(2).randbytes(300_000)
THIRD = b"written after the commit that failed"


class OpenSession(WritableView):
    """Paths over a session's engine."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.engine = session.engine
        self.residency = session.residency

    def commit(self, message: str) -> None:
        assert self.session.writer is not None
        self.session.writer.committer.commit(CommitRequest(message=message))


@contextmanager
def opened(place: Place, **fields: Any) -> Iterator[OpenSession]:
    with ExitStack() as stack:
        yield OpenSession(opening.open_session(place.spec("v", **fields), stack, threading.Event()))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refs, "APPEND_S", 0.2)
    monkeypatch.setattr(patience, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(acquiring, "CLOSE_S", 2.0)


def check(place: Place, content: dict[bytes, bytes]) -> None:
    """Mounts again, compares, commits, and reads the version back."""
    with opened(place) as again:
        assert again.tree() == content
        again.commit("last")
        assert not again.engine.is_dirty()
    line = refs.history(place.store, refs.head("v"))[::-1]
    assert [number for number, _ in line] == list(range(1, len(line) + 1))
    commits = [record.version for _, record in line if record.kind == "commit"]
    assert len(commits) == len(set(commits))
    version = read_head(place.store, "v").version
    assert version == commits[-1]
    assert version is not None
    with ReadingVolume(place.store, version, place.root / "c" / f"reader-{version.hex()[:8]}") as reader:
        assert reader.tree() == content
    state = place.working_copy().state
    assert state.intent is None
    assert (state.base_version, state.pin) == (version, None)
    assert not place.working_copy().may_have_uncommitted


def count_calls(monkeypatch: pytest.MonkeyPatch) -> int:
    with Place() as place:
        place.volume("v")
        faulty = FaultyStore(place.store)
        monkeypatch.setattr(acquiring, "open_store", lambda url, **_: faulty)
        with opened(place) as volume:
            volume.write(b"f", FIRST)
            volume.commit("first")
            before = len(faulty.calls)
            volume.write(b"g", SECOND)
            volume.commit("second")
            return len(faulty.calls) - before


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.LOSE_REPLY], ids=lambda fault: fault.name)
def test_an_outage_from_any_call_on_and_an_unmount(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    calls = count_calls(monkeypatch)
    monkeypatch.setattr(
        acquiring, "current_holder", lambda path: replace(current_holder(path), start_time=1)
    )  # soon dead
    for failing in range(calls):
        print(f"call {failing}")
        with Place() as place:
            place.volume("v")
            faulty = FaultyStore(really_open_store(place.store_url))
            monkeypatch.setattr(acquiring, "open_store", lambda url, faulty=faulty, **_: faulty)
            with opened(place) as volume:
                volume.write(b"f", FIRST)
                volume.commit("first")
                volume.write(b"g", SECOND)
                faulty.inject(fault, skip=failing, times=1)
                faulty.inject(Fault.FAIL, skip=failing + 1, times=math.inf)
                with suppress(UnavailableError):  # behind the head only a catalogue is read, which may fail
                    volume.commit("second")
                volume.write(b"h", THIRD)
                with pytest.raises(UnavailableError):
                    volume.commit("not yet")
                assert volume.tree() == {b"f": FIRST, b"g": SECOND, b"h": THIRD}
            monkeypatch.setattr(acquiring, "open_store", really_open_store)
            check(place, {b"f": FIRST, b"g": SECOND, b"h": THIRD})


CHILD = """
import os, signal, sys, threading
from contextlib import ExitStack
from cowfs.control import MountSpec
from cowfs.writer import acquiring; from cowfs.session import opening
from cowfs.store import open_store
from cowfs.errors import CowfsError
from tests.faulty_store import FaultyStore
from tests.mount.test_commit_outages import FIRST, SECOND, OpenSession

class DyingStore(FaultyStore):
    left = None
    def _call(self, method, key, action):
        if self.left is None:
            return action()
        self.left -= 1
        if self.left == 0 and sys.argv[2] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = action()
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

store = None
def open_dying(url, **_):
    global store
    store = DyingStore(open_store(url))
    return store
acquiring.open_store = open_dying
with ExitStack() as stack:
    volume = OpenSession(opening.open_session(MountSpec.from_json(sys.stdin.read()), stack, threading.Event()))
    volume.write(b"f", FIRST)
    volume.commit("first")
    volume.write(b"g", SECOND)
    store.left = int(sys.argv[1])
    volume.commit("second")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_death_at_any_call_of_a_commit(monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    calls = count_calls(monkeypatch)
    monkeypatch.setattr(acquiring, "open_store", really_open_store)
    for dying in range(1, calls + 2):
        print(f"call {dying}")
        with Place() as place:
            place.volume("v")
            died = subprocess.run(
                [sys.executable, "-c", CHILD, str(dying), when],
                input=place.spec("v").to_json(),
                env={**os.environ, "PYTHONPATH": str(ROOT), **place.environment},
                text=True,
                capture_output=True,
            )
            assert died.returncode == -signal.SIGKILL, died.stderr
            check(place, {b"f": FIRST, b"g": SECOND})


def test_an_unknown_head_and_a_take_over_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the head became ours is unknown; another machine takes over; the first one comes
    back: one line, work kept."""
    for is_put in (True, False):
        with Place() as place:
            place.volume("v")
            faulty = FaultyStore(really_open_store(place.store_url))
            with opened(place) as volume:
                volume.write(b"f", FIRST)
                volume.commit("first")
            monkeypatch.setattr(acquiring, "open_store", lambda url, faulty=faulty, **_: faulty)
            with ExitStack() as stack:
                here = OpenSession(opening.open_session(place.spec("v"), stack, threading.Event()))
                here.write(b"g", SECOND)
                faulty.inject(Fault.LOSE_REPLY if is_put else Fault.FAIL, "put_if_absent", key_part="head/", times=1)
                faulty.inject(Fault.FAIL, key_part="head/", skip=2, times=math.inf)  # the look at the base, and the put
                with pytest.raises(UnavailableError):
                    here.commit("second")
                monkeypatch.setattr(acquiring, "open_store", really_open_store)
                with opened(place, take_over=True, working_copy=str(place.root / "c" / "elsewhere")) as elsewhere:
                    assert (b"g" in elsewhere.tree()) == is_put
                    elsewhere.write(b"h", THIRD)
                    elsewhere.commit("elsewhere")
                faulty.heal()
                here.write(b"i", b"more")
                with pytest.raises(LeaseLostError):
                    here.commit("too late")
                assert here.tree() == {b"f": FIRST, b"g": SECOND, b"i": b"more"}, "the work is kept"
                assert here.engine.is_dirty()
            line = refs.history(place.store, refs.head("v"))[::-1]
            assert [record.kind for _, record in line].count("commit") == (3 if is_put else 2)
            with opened(place) as again:  # the working copy is dirty on an old base: it can be read and forked
                assert again.tree() == {b"f": FIRST, b"g": SECOND, b"i": b"more"}
                with pytest.raises(LeaseLostError):
                    again.commit("still too late")


def test_a_clean_working_copy_follows_what_others_committed(place: Place) -> None:
    with opened(place) as here:
        here.write(b"f", FIRST)
        here.commit("first")
    with opened(place, working_copy=str(place.root / "c" / "elsewhere")) as elsewhere:
        elsewhere.write(b"f", SECOND)
        elsewhere.commit("second")
    with opened(place) as here:
        assert here.tree() == {b"f": SECOND}
        here.write(b"g", THIRD)
        here.commit("third")
    check(place, {b"f": SECOND, b"g": THIRD})
