"""What a writer asks of its store until the volume may be read: each request has its reason in
`session/acquiring`, and none is made twice."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Barrier, Event
from typing import Any

import pytest

from cowfs import store as stores
from cowfs.base import clock
from cowfs.base.ids import PackId, WriteId
from cowfs.control import MountOptions, SessionSpec
from cowfs.errors import LeaseHeldError, UnavailableError
from cowfs.format import keys
from cowfs.format.records import HeadRecord
from cowfs.machine.working_copy import WorkingCopy
from cowfs.maintain.collect.generations import Condemned, Generations
from cowfs.session import opening
from cowfs.session.opening import open_session
from cowfs.store import ObjectInfo, ObjectStore, initialize
from cowfs.store.contract import Data
from cowfs.store.refs import leases, refs
from cowfs.store.refs.holder import current_holder
from cowfs.store.reliability.retrying import RetryingStore
from cowfs.version.names.volumes import Head, create_volume, read_head
from cowfs.version.publish import seen
from cowfs.writer import acquiring
from cowfs.writer import publishing as session_publishing
from cowfs.writer.publishing import publishing
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


def spec_of(tmp_path: Path, found: Head | None) -> SessionSpec:
    return SessionSpec(
        store_url=(tmp_path / "store").as_uri(),
        volume="v",
        mode="rw",
        head_number=found.number if found is not None else 0,
        head_version=str(found.version) if found is not None else None,
        quota_bytes=0,
        compress=True,
        working_copy=str(tmp_path / "working"),
        options=MountOptions(cache_dir=tmp_path / "cache").resolved(),
    )


def opened_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Head | None) -> list[str]:
    """The requests that concern the protocol of writers, as `method what`. What goes on beside the
    opening is left out: it asks for other volumes, and there is none."""
    return opened_by(tmp_path, monkeypatch, spec_of(tmp_path, found), {})


def opened_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: SessionSpec, known: Mapping[str, bytes]
) -> list[str]:
    counting = FaultyStore(stores.open_store((tmp_path / "store").as_uri()))
    monkeypatch.setattr(acquiring, "open_store", lambda url, **_: RetryingStore(counting, known=known))
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
    found = volume_with_a_version(tmp_path)
    asked = opened_with(tmp_path, monkeypatch, found if has_seen else None)
    before = asked[: asked.index("put_if_absent lease")]
    before = [each for each in before if each != "put_if_absent pins"]
    assert before.count("list head") == (0 if has_seen else 1), "what the caller has seen is not read again"
    assert before.count("get head") == (0 if has_seen else 2), "the head, and the look for the next"
    assert [each for each in before if "head" not in each.split()] == ["list lease"]
    claimed = 1 + max(asked.index("put_if_absent lease"), asked.index("put_if_absent pins"))
    assert claimed == len(before) + 2, "nothing of the volume is relied on before"
    assert sorted(asked[claimed:]) == ["get head", "get head", "list gc"]


def test_what_the_caller_has_seen_is_not_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is left is what must come behind lease and pin, and those."""
    volume_with_a_version(tmp_path)
    store = stores.open_store((tmp_path / "store").as_uri())
    leases.acquire(store, "v", current_holder("/before")).release()
    head = seen.read_seen(store, "v", seen.list_objects(store, "v"))
    assert head.seen is not None
    spec = replace(spec_of(tmp_path, head), lease_epoch=head.seen.lease_epoch)
    asked = opened_by(tmp_path, monkeypatch, spec, head.seen.objects)
    assert sorted(asked[:2]) == ["put_if_absent lease", "put_if_absent pins"]
    assert sorted(asked[2:]) == ["get head", "list gc"]


def test_what_the_caller_has_seen_may_be_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer came and went meanwhile, and yet another is there when the lease is put."""
    volume_with_a_version(tmp_path)
    store = stores.open_store((tmp_path / "store").as_uri())
    head = seen.read_seen(store, "v", seen.list_objects(store, "v"))
    assert head.seen is not None
    assert head.seen.lease_epoch == 0
    spec = replace(spec_of(tmp_path, head), lease_epoch=0)
    for _ in range(2):
        leases.acquire(store, "v", current_holder("/before")).release()
    with WorkingVolume(store, "v", tmp_path / "other") as volume:
        volume.write(b"g", b"y")
        volume.commit()
    opened_by(tmp_path, monkeypatch, spec, head.seen.objects)
    assert WorkingCopy(tmp_path / "working").state.head_number == read_head(store, "v").number
    held, pins = leases.acquire(store, "v", current_holder("/now")), store.list("pins/")
    with pytest.raises(LeaseHeldError):
        opened_by(tmp_path, monkeypatch, spec, head.seen.objects)
    assert store.list("pins/") == pins, "who is refused leaves none"
    held.release()


def test_a_working_copy_knows_where_it_stood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume_with_a_version(tmp_path)
    opened_with(tmp_path, monkeypatch, None)
    asked = opened_with(tmp_path, monkeypatch, None)
    of_the_head = [each for each in asked if each.endswith(" head")]
    assert of_the_head == ["get head", "get head"], "no list"
    assert "get heartbeat" in asked[: asked.index("put_if_absent lease")]


class MeetingStore(FaultyStore):
    """Answers the request that takes the lease only when the version's manifest was asked for, and
    the other way round."""

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
    found = volume_with_a_version(tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "FaultyStore", MeetingStore)
    assert "put_if_absent lease" in opened_with(tmp_path, monkeypatch, found)


def test_what_was_read_before_the_claim_is_left_when_the_head_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer publishes right before the lease is taken: of what was seen until then nothing
    counts."""
    found = volume_with_a_version(tmp_path)
    take = leases.take

    def take_late(store: ObjectStore, *args: Any) -> leases.Lease:
        with WorkingVolume(store, "v", tmp_path / "other") as volume:
            volume.write(b"g", b"y")
            volume.commit()
        return take(store, *args)

    monkeypatch.setattr(leases, "take", take_late)
    store = stores.open_store((tmp_path / "store").as_uri())
    with ExitStack() as stack:
        session = open_session(spec_of(tmp_path, found), stack, Event())
        assert session.base.version_id == read_head(store, "v").version != found.version
        assert session.files.read("/g") == b"y"


@pytest.mark.parametrize("has_moved", [False, True])
@pytest.mark.parametrize("writer", [open_session, publishing])
def test_a_pin_that_dies_between_the_claim_and_the_head(
    writer: Any, has_moved: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection takes whoever opens the volume for dead right after the claim, when the version
    has been read already: what is opened stands on the newest version, behind a pin that lives and
    is written down."""
    found = volume_with_a_version(tmp_path)
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
    spec = spec_of(tmp_path, found)
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


class LateStore(FaultyStore):
    """Answers the look for a newer head after the look at the lists, and behind what `between`
    does."""

    def __init__(self, store: ObjectStore, late_key: str, between: Callable[[], None]) -> None:
        super().__init__(store)
        self._late_key, self._between = late_key, between
        self._is_listed = Event()

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> list[ObjectInfo]:
        found = super().list(prefix, start_after=start_after, limit=limit)
        if prefix == keys.GC:
            self._is_listed.set()
        return found

    def get(self, key: str) -> bytes:
        if key == self._late_key and self._is_listed.wait(60):
            self._between()
        return super().get(key)


def test_a_fence_that_came_before_the_look_makes_the_lists_be_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer sleeps behind its look at the lists: a collection takes it for gone, publishes a
    list, and fences the volume. Nothing but the list tells the writer then what it must not use."""
    found = volume_with_a_version(tmp_path)
    store = stores.open_store((tmp_path / "store").as_uri())
    pack, fence = PackId(bytes(PackId.length)), HeadRecord("fence", found.version, 0, 1, WriteId(bytes(16)))

    def collect() -> None:
        generations = Generations(store)
        generations.condemn(generations.begin(current_holder("gc")).number, Condemned(frozenset([pack])))
        refs.append(store, refs.head("v"), found.number + 1, fence)

    late = LateStore(store, keys.head("v", found.number + 1), collect)
    monkeypatch.setattr(acquiring, "open_store", lambda url, **_: late)
    with ExitStack() as stack:
        session = open_session(spec_of(tmp_path, found), stack, Event())
        assert session.writer is not None
        session.writer.protection.read_lists()
        assert session.writer.protection.condemned == {pack}
        assert session.base.head_number == found.number + 1


@pytest.mark.parametrize("module", [opening, session_publishing], ids=["session", "publishing"])
def test_who_slept_until_the_version_was_collected_is_told_to_try_again(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = volume_with_a_version(tmp_path)
    store = stores.open_store((tmp_path / "store").as_uri())
    with WorkingVolume(store, "v", tmp_path / "second") as volume:
        volume.write(b"f", b"y")
        volume.commit()
    newest = read_head(store, "v")
    assert newest.version is not None

    def open_once() -> None:
        with ExitStack() as stack:
            if module is opening:
                open_session(spec_of(tmp_path, first), stack, Event())
            else:
                stack.enter_context(publishing(spec_of(tmp_path, first)))

    def claim_and_sleep(*words: Any) -> Any:
        claimed = acquiring.claim(*words)
        later = HeadRecord("commit", first.version, claimed[1].epoch, clock.now_ns(), WriteId(bytes(16)))
        refs.append(store, refs.head("v"), claimed[1].number + 1, later)
        assert newest.version is not None
        store.delete([keys.version(newest.version)])
        return claimed

    with monkeypatch.context() as patch:
        patch.setattr(module, "claim", claim_and_sleep)
        with pytest.raises(UnavailableError, match="got a newer version"):
            open_once()
    open_once()


def test_the_line_is_opened_like_a_command_and_keeps_what_was_sent_like_a_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/durability.md: 60 s until a version can be published, 900 s from then on."""
    found = volume_with_a_version(tmp_path)
    limits_s: list[float] = []

    def claim_and_look(*args: Any) -> Any:
        limits_s.append(args[2].patience.limit_s)
        return acquiring.claim(*args)

    monkeypatch.setattr(session_publishing, "claim", claim_and_look)
    with publishing(spec_of(tmp_path, found)) as line:
        assert line.patience is not None
        limits_s.append(line.patience.limit_s)
    assert limits_s == [60.0, 900.0]
