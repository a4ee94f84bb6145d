"""What a writer asks of its store until the volume may be read: each request has its reason in
`session/acquiring`, and none is made twice."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from threading import Event

import pytest

from cowfs import store as stores
from cowfs.control import MountOptions, SessionSpec
from cowfs.session import acquiring
from cowfs.session.opening import open_session
from cowfs.store import initialize
from cowfs.version.volumes import create_volume
from tests.faulty_store import FaultyStore

PROTOCOL = ("pins", "gc", "head", "lease", "heartbeat")


def opened_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head_number: int) -> list[str]:
    """The requests that concern the protocol of writers, as `method what`. What goes on beside the
    opening is left out: it asks for other volumes, and there is none."""
    counting = FaultyStore(stores.open_store((tmp_path / "store").as_uri()))
    monkeypatch.setattr(acquiring, "open_store", lambda url, **_: counting)
    spec = SessionSpec(
        store_url=(tmp_path / "store").as_uri(),
        volume="v",
        mode="rw",
        head_number=head_number,
        working_copy=str(tmp_path / "working"),
        options=MountOptions(cache_dir=tmp_path / "cache").resolved(),
    )
    discard = Event()
    with ExitStack() as stack:
        open_session(spec, stack, discard)
        calls = list(counting.calls)
    found = [(method, next((part for part in PROTOCOL if part in key.split("/")), "")) for method, key in calls]
    return [f"{method} {what}" for method, what in found if what]


@pytest.mark.parametrize(("head_number", "lists"), [(1, 0), (0, 1)])
def test_a_first_opening_makes_each_request_once(
    head_number: int, lists: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = stores.open_store((tmp_path / "store").as_uri(), create=True)
    initialize(store, writers=[store])
    create_volume(store, "v")
    asked = opened_with(tmp_path, monkeypatch, head_number)
    before = asked[: asked.index("put_if_absent lease")]
    assert before.count("list head") == lists, "a number that the caller has seen saves the list"
    assert before.count("get head") == 2, "the head, and the look for the next"
    assert sorted(each for each in before if "head" not in each.split()) == ["get lease", "list gc", "list lease"]
    after = asked[asked.index("put_if_absent lease") + 1 :]
    assert after[0] == "put_if_absent pins", "before anything of the volume is read"
    assert sorted(after[1:5]) == ["get head", "get head", "put heartbeat", "size lease"]


def test_a_working_copy_knows_where_it_stood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stores.open_store((tmp_path / "store").as_uri(), create=True)
    initialize(store, writers=[store])
    create_volume(store, "v")
    opened_with(tmp_path, monkeypatch, 1)
    asked = opened_with(tmp_path, monkeypatch, 0)
    of_the_head = [each for each in asked if each.endswith(" head")]
    assert of_the_head[:2] == ["get head", "get head"], "no list"
    assert "get heartbeat" in asked[: asked.index("put_if_absent lease")]
