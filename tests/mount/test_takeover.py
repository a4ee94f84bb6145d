"""One writer at a time: take-overs, working copies that fell behind, and that no work is lost on
the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cowfs.base.ids import VersionId
from cowfs.errors import LeaseLostError
from cowfs.version.names import volumes
from tests.mount.daemons import Mount, Place

pytestmark = pytest.mark.mount


def elsewhere(place: Place) -> dict[str, str]:
    """What makes a mount one of another machine, as far as working copy and cache go."""
    return {
        "working_copy": str(place.root / "c" / "state" / "working" / "elsewhere-v"),
        "cache_dir": str(place.root / "c" / "elsewhere"),
    }


def head(place: Place) -> VersionId | None:
    return volumes.read_head(place.store, "v").version


def test_the_writer_that_lost_its_line_cannot_publish_and_keeps_its_work(place: Place, mount: Mount) -> None:
    (mount.path / "base").write_text("both have it")
    mount.commit()
    (mount.path / "mine").write_text("uncommitted")
    other = place.mount("v", take_over=True, **elsewhere(place))
    assert sorted(os.listdir(other.path)) == ["base"]
    (other.path / "theirs").write_text("published")
    published = other.commit()

    with pytest.raises(LeaseLostError) as caught:
        mount.commit()
    assert caught.value.hint
    assert (mount.path / "mine").read_text() == "uncommitted"
    (mount.path / "more").write_text("the mount goes on")
    assert mount.unmount()["is_dirty"] is True
    assert str(head(place)) == published

    other.unmount()
    again = place.mount("v")
    assert sorted(os.listdir(again.path)) == ["base", "mine", "more"]
    with pytest.raises(LeaseLostError):
        again.commit()
    assert str(head(place)) == published


def test_a_take_over_that_published_nothing_already_shuts_the_other_out(place: Place, mount: Mount) -> None:
    (mount.path / "mine").write_text("x")
    place.mount("v", take_over=True, **elsewhere(place))
    before = head(place)
    with pytest.raises(LeaseLostError):
        mount.commit()
    assert head(place) == before


def test_a_clean_working_copy_follows_the_head(place: Place, mount: Mount) -> None:
    (mount.path / "f").write_text("one")
    mount.unmount(commit=True)
    other = place.mount("v", **elsewhere(place))
    (other.path / "f").write_text("two")
    version = other.unmount(commit=True)["version"]
    again = place.mount("v")
    assert again.ready["version"] == version
    assert (again.path / "f").read_text() == "two"
    (again.path / "g").write_text("three")
    assert again.commit() != version


def test_a_dead_writer_on_this_machine_leaves_no_lease_to_wait_for(place: Place, mount: Mount) -> None:
    (mount.path / "f").write_text("here only")
    mount.kill()
    other = place.mount("v", **elsewhere(place))
    (other.path / "g").write_text("x")
    other.unmount(commit=True)
    kept = place.mount("v")
    assert (kept.path / "f").read_text() == "here only"


def test_a_working_copy_of_another_store_is_refused(place: Place, mount: Mount, tmp_path: Path) -> None:
    (mount.path / "f").write_text("kept")
    mount.unmount()
    from cowfs.errors import InvalidStateError

    with Place() as other:
        other.volume("v")
        with pytest.raises(InvalidStateError):
            other.mount("v", working_copy=mount.spec.working_copy)
    assert (place.mount("v").path / "f").read_text() == "kept"


def test_a_commit_that_is_known_to_be_lost_leaves_no_question(place: Place, mount: Mount) -> None:
    (mount.path / "mine").write_text("uncommitted")
    other = place.mount("v", take_over=True, **elsewhere(place))
    (other.path / "theirs").write_text("published")
    published = other.commit()
    with pytest.raises(LeaseLostError):
        mount.commit()
    assert place.working_copy().state.intent is None
    assert mount.call("status")["writer"]["overtaken_by"] == published
    mount.unmount()
    assert "not known" not in mount.log()
