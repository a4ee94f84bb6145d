"""What a writer asks of its store until the volume may be read: each request has its reason in
`session/acquiring`, and none is made twice."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest

from cowfs import store as stores
from cowfs.control import MountOptions, SessionSpec
from cowfs.machine.working_copy import WorkingCopy
from cowfs.session import acquiring, opening
from cowfs.session import publishing as session_publishing
from cowfs.session.opening import open_session
from cowfs.session.publishing import publishing
from cowfs.store import ObjectStore, initialize, leases
from cowfs.store.contract import Data
from cowfs.version.volumes import Head, create_volume, read_head
from tests.faulty_store import FaultyStore
from tests.store.test_pins import declare_dead
from tests.version.working_volume import WorkingVolume

PROTOCOL = ("pins", "gc", "head", "lease", "heartbeat")


def volume_with_a_version(tmp_path: Path) -> Head:
    store = stores.open_store((tmp_path / "store").as_uri(), create=True)
    initialize(store, writers=[store])
    create_volume(store, "v")
    with WorkingVolume(store, "v", tmp_path / "first") as volume:
        volume.write(b"f", b"x")
        volume.commit()
    return read_head(store, "v")


def spec_of(tmp_path: Path, seen: Head | None) -> SessionSpec:
    return SessionSpec(
        store_url=(tmp_path / "store").as_uri(),
        volume="v",
        mode="rw",
        head_number=seen.number if seen is not None else 0,
        head_version=str(seen.version) if seen is not None else None,
        working_copy=str(tmp_path / "working"),
        options=MountOptions(cache_dir=tmp_path / "cache").resolved(),
    )


def opened_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: Head | None) -> list[str]:
    """The requests that concern the protocol of writers, as `method what`. What goes on beside the
    opening is left out: it asks for other volumes, and there is none."""
    counting = FaultyStore(stores.open_store((tmp_path / "store").as_uri()))
    monkeypatch.setattr(acquiring, "open_store", lambda url, **_: counting)
    spec = spec_of(tmp_path, seen)
    discard = Event()
    with ExitStack() as stack:
        open_session(spec, stack, discard)
        calls = list(counting.calls)
    found = [(method, next((part for part in PROTOCOL if part in key.split("/")), "")) for method, key in calls]
    return [f"{method} {what}" for method, what in found if what]


@pytest.mark.parametrize("has_seen", [True, False])
def test_a_first_opening_makes_each_request_once(
    has_seen: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = volume_with_a_version(tmp_path)
    asked = opened_with(tmp_path, monkeypatch, seen if has_seen else None)
    before = asked[: asked.index("put_if_absent lease")]
    assert before.count("list head") == (0 if has_seen else 1), "what the caller has seen is not read again"
    assert before.count("get head") == (0 if has_seen else 2), "the head, and the look for the next"
    assert sorted(each for each in before if "head" not in each.split()) == ["get lease", "list gc", "list lease"]
    after = asked[asked.index("put_if_absent lease") + 1 :]
    assert after[0] == "put_if_absent pins", "before anything of the volume is relied on"
    assert sorted(after[1:5]) == ["get head", "get head", "put heartbeat", "size lease"]


def test_a_working_copy_knows_where_it_stood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume_with_a_version(tmp_path)
    opened_with(tmp_path, monkeypatch, None)
    asked = opened_with(tmp_path, monkeypatch, None)
    of_the_head = [each for each in asked if each.endswith(" head")]
    assert of_the_head == ["get head", "get head"], "no list"
    assert "get heartbeat" in asked[: asked.index("put_if_absent lease")]


class MeetingStore(FaultyStore):
    """Answers the request that takes the lease only when the version's manifest was asked for, and the
    other way round."""

    def __init__(self, store: ObjectStore) -> None:
        super().__init__(store)
        self._both = Barrier(2, timeout=60)

    def get(self, key: str) -> bytes:
        if key.startswith("versions/"):
            self._both.wait()
        return super().get(key)

    def put_if_absent(self, key: str, data: Data) -> None:
        if "/lease/" in key:
            self._both.wait()
        super().put_if_absent(key, data)


def test_the_version_is_read_while_the_volume_is_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = volume_with_a_version(tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "FaultyStore", MeetingStore)
    assert "put_if_absent lease" in opened_with(tmp_path, monkeypatch, seen)


def test_what_was_read_before_the_claim_is_left_when_the_head_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer publishes right before the lease is taken: of what was seen until then nothing
    counts."""
    seen = volume_with_a_version(tmp_path)
    acquire = leases.acquire

    def acquire_late(store: ObjectStore, *args: Any, **options: Any) -> leases.Lease:
        with WorkingVolume(store, "v", tmp_path / "other") as volume:
            volume.write(b"g", b"y")
            volume.commit()
        return acquire(store, *args, **options)

    monkeypatch.setattr(leases, "acquire", acquire_late)
    store = stores.open_store((tmp_path / "store").as_uri())
    with ExitStack() as stack:
        session = open_session(spec_of(tmp_path, seen), stack, Event())
        assert session.base.version_id == read_head(store, "v").version != seen.version
        assert session.files.read("/g") == b"y"


@pytest.mark.parametrize("has_moved", [False, True])
@pytest.mark.parametrize("writer", [open_session, publishing])
def test_a_pin_that_dies_between_the_claim_and_the_head(
    writer: Any, has_moved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection takes whoever opens the volume for dead right after the claim, when the version has been
    read already: what is opened stands on the newest version, behind a pin that lives and is written down."""
    seen = volume_with_a_version(tmp_path)
    store = stores.open_store((tmp_path / "store").as_uri())
    if has_moved:
        with WorkingVolume(store, "v", tmp_path / "other") as volume:
            volume.write(b"g", b"y")
            volume.commit()
    head = read_head(store, "v")
    dead: list[str] = []
    claim = acquiring.claim

    def claim_and_pause(*args: Any) -> Any:
        claimed = claim(*args)
        pin = claimed[0].protection.pin
        declare_dead(store, pin)
        pin._written_s = None  # its lifetime has passed
        dead.append(pin.key)
        return claimed

    for module in (opening, session_publishing):
        monkeypatch.setattr(module, "claim", claim_and_pause)
    spec = spec_of(tmp_path, seen)
    with ExitStack() as stack:
        if writer is publishing:
            publisher = stack.enter_context(publishing(spec)).publisher
        else:
            session = open_session(spec, stack, Event())
            assert session.writer is not None
            publisher = session.writer.committer._publisher
        protection = publisher._protection
        assert publisher.base.version_id == head.version
        assert publisher.base.head_number == protection.pin.number == read_head(store, "v").number
        assert WorkingCopy(tmp_path / "working").state.pin == protection.pin.key != dead[0]
        protection.pin.renew(is_forced=True)
        assert publisher.chunks.proven_lapses == protection.lapses
