"""What the command line can do with volumes, Python can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

import cowfs
from cowfs.api.mounts.summaries import MountSummary, WorkingCopySummary
from cowfs.blocking import RWVolume, Store, Volume
from cowfs.errors import CowfsError, InvalidInputError, NotFoundError

pytestmark = [pytest.mark.mount, pytest.mark.usefixtures("place")]


def test_volumes_are_listed_and_versions_opened_by_name() -> None:
    with pytest.raises(NotFoundError):
        Store().volumes()
    with Volume.new("data") as vol:
        (vol / "file").write_text("one")
        first = vol.commit("one")
        (vol / "file").write_text("two!")
        second = vol.finalize("two")
    Volume.new("empty").resolve()
    listed = {each.name: each for each in Store().volumes()}
    assert sorted(listed) == ["data", "empty"]
    assert (listed["data"].locator, listed["data"].files, listed["data"].bytes) == (second.locator, 1, 4)
    assert listed["empty"].version is None
    for source in ("data", "data@{0}", f"data@{second.id[:8]}", f"data@{second.id}", second.locator):
        assert Volume.version(source) == second, source
    assert Volume.version(f"data@{first.id[:8]}").message == "one"
    for source in ("empty", "empty@{0}", "missing", "data@00000000"):
        with pytest.raises(NotFoundError) as caught:
            Volume.version(source)
        assert caught.value.hint
    with pytest.raises(InvalidInputError, match="nothing follows the @") as empty:
        Volume.version("data@")
    assert "Was a variable empty?" in empty.value.hint
    with pytest.raises(InvalidInputError, match="version") as refused:
        Volume.open(f"data@{first.id[:8]}")
    assert "Volume.version" in refused.value.hint


def test_a_volume_tells_its_changes_status_and_history() -> None:
    vol = Volume.new("told")
    assert (vol.has_changes(), vol.status(), vol.history()) == (False, None, [])
    path = vol.mount()
    assert not vol.has_changes()
    (path / "file").write_text("x")
    assert vol.has_changes()
    found = vol.status()
    assert isinstance(found, MountSummary)
    assert (found.mount_path, found.has_uncommitted) == (str(path), True)
    version = vol.commit("first")
    assert not vol.has_changes()
    assert [each.id for each in vol.history()] == [version.id]
    (path / "file").write_text("y")
    vol.unmount()
    kept = vol.status()
    assert isinstance(kept, WorkingCopySummary)
    assert kept.has_uncommitted
    assert Volume.open("told").has_changes()
    assert vol.fork("branch").history(limit=1) == [vol.commit()]
    assert Volume.open("branch").status() is None


def test_the_async_twin_does_likewise() -> None:
    async def body() -> None:
        async with cowfs.Volume.new("async") as vol:
            (vol / "file").write_text("x")
            assert await vol.has_changes()
            assert isinstance(await vol.status(), cowfs.MountSummary)
            version = await vol.commit("one")
            assert type((await vol.history())[0]) is cowfs.ROVolume
            fork = await vol.fork("fork")
            assert type(fork.forked_from) is cowfs.ROVolume
            assert not fork.forked_from.is_new
        assert await cowfs.Volume.version("async") == version
        assert [each.name for each in await cowfs.Store().volumes()] == ["async", "fork"]

    anyio.run(body)


def test_a_task_that_is_tried_again_goes_on_with_its_volume() -> None:
    with Volume.new("task", exist_ok=True) as vol:
        (vol / "file").write_text("x")
    with Volume.new("task", exist_ok=True) as again:
        assert again.name == "task"
        assert (again / "file").read_text() == "x"
        assert Volume.new("task", exist_ok=True).mount() == again.path, "an own mount is adopted"
    for name, strict in ((None, False), ("task", True)):
        with pytest.raises(InvalidInputError, match="exist_ok"):
            Volume.new(name, exist_ok=True, strict=strict)


def test_errors_name_the_last_version(place: Path) -> None:
    vol = Volume.new("lost")
    path = vol.mount()
    with pytest.raises(CowfsError) as fresh:
        vol.mount(place / "elsewhere")
    assert fresh.value.locator is None
    (path / "file").write_text("x")
    version = vol.commit()
    with pytest.raises(CowfsError) as elsewhere:
        vol.mount(place / "elsewhere")
    with pytest.raises(CowfsError) as wrong:
        version.mount(max_uploads=0)
    assert elsewhere.value.locator == wrong.value.locator == version.locator
    gone = Volume.from_locator(version.locator)
    (place / "store" / "versions" / version.id[:2] / version.id).unlink()
    with pytest.raises(NotFoundError) as missing:
        Volume.from_locator(gone.locator)
    assert missing.value.locator == gone.locator


@pytest.mark.parametrize("wrong", [None, 3, Path("/x"), b"cowfs+file:///x", ["x"]])
def test_wrong_types_say_what_was_expected(wrong: Any) -> None:
    """Nothing was claimed or written when it is refused."""
    other: Any = wrong if wrong is not None else 3
    no_store: Any = 3 if isinstance(other, Path) else other
    wrong_label: Any = {"a": [wrong]}
    for call in (
        lambda: Volume.from_locator(wrong),
        lambda: Volume.version(wrong),
        lambda: Volume.open(wrong),
        lambda: Volume.open("x", store=no_store),
        lambda: Volume.new("x").commit(wrong),
        lambda: Volume.new("x").commit("m", labels=wrong_label),
        lambda: Volume.new("x").commit("m", labels={"": "red"}),
        lambda: Volume.new("x").finalize("m", author=other),
        lambda: Volume.new("x").mount(3),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidInputError) as caught:
            call()
        assert caught.value.hint
    with pytest.raises(NotFoundError):
        Store().volumes()


def test_a_locator_of_a_volume_is_none_before_its_first_commit() -> None:
    vol: RWVolume = Volume.new("first")
    with pytest.raises(InvalidInputError, match="None") as caught:
        Volume.from_locator(vol.locator)  # type: ignore[arg-type]
    assert "commit" in caught.value.hint
