"""Arguments of wrong types are refused in our words, before anything is done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cowfs.blocking import RWVolume, Store, Volume, volume
from cowfs.errors import InvalidInputError

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COWFS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("COWFS_CACHE_DIR", str(tmp_path / "c"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("COWFS_STORE", (tmp_path / "store").as_uri())
    return tmp_path


WRONG: dict[str, Callable[[RWVolume], Any]] = {
    "limit is 'all'": lambda v: v.history(limit="all"),  # type: ignore[arg-type]
    "path is 3": lambda v: v.history(3),  # type: ignore[arg-type]
    "limit is -1": lambda v: v.history(limit=-1),
    "limit is True": lambda v: v.commit().history(limit=True),
    "limit is 1.5": lambda v: v.commit().history(limit=1.5),  # type: ignore[arg-type]
    "produced_by is 'me'": lambda v: v.commit(produced_by="me"),  # type: ignore[arg-type]
    "produced_by is 5": lambda v: v.commit(produced_by=5),  # type: ignore[arg-type]
    "progress is 5": lambda v: v.commit(progress=5),  # type: ignore[arg-type]
    "progress is 'no'": lambda v: v.mount(progress="no"),  # type: ignore[arg-type]
    "options is {'resident': True}": lambda v: v.mount(options={"resident": True}),  # type: ignore[arg-type]
    "options is 7": lambda v: v.commit().mount(options=7),  # type: ignore[arg-type]
    "a mount has no option 'residnt'": lambda v: v.mount(residnt=True),  # type: ignore[call-arg]
    "store is 5": lambda v: Volume.open("n", store=5),  # type: ignore[arg-type]
    "store is b'/x'": lambda v: Store(b"/x").volumes(),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("said", WRONG)
def test_a_wrong_argument_is_named(said: str) -> None:
    made = Volume.new("data").resolve()
    with pytest.raises(InvalidInputError) as caught:
        WRONG[said](made)
    assert caught.value.message == said
    assert caught.value.hint


def test_a_store_may_be_a_path(place: Path) -> None:
    there = place / "other"
    assert Volume.new("one", store=there).resolve().store_url == there.as_uri()
    assert [each.name for each in Store(there).volumes()] == ["one"]
    version = Volume.open("one", store=there).commit()
    assert Volume.version("one", store=there) == version
    assert volume("one", store=there).resolve().name == "one"
