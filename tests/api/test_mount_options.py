"""Options reach the daemon as they were given: nobody on the way names them, so that none can be
left out."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cowfs.blocking import ROVolume, RWVolume, Volume
from cowfs.control import MountOptions, MountSpec
from cowfs.control.options import ReadOptions, WriteOptions
from cowfs.control.typed import field_types
from cowfs.errors import MountFailedError
from cowfs.machine import mounting
from tests.api.test_launch import program

pytestmark = pytest.mark.quick


@pytest.fixture
def given(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A value for each option that is not its default."""
    fd = os.open("/dev/null", os.O_RDONLY)
    yield {
        "max_uploads": 7,
        "attr_cache": 1.5,
        "entry_cache": 2,
        "dir_entry_cache": 3.5,
        "cache_dir": tmp_path / "cache",
        "meta_dir": str(tmp_path / "meta"),
        "cache_size": "3GiB",
        "store_timeout": 11.0,
        "resident": True,
        "show_versions": True,
        "fast_lane": False,
        "transport": "device",
        "take_over": True,
        "accept_unsafe_store": True,
        "uncommitted": "refuse",
        "allow_other": False,
        "map_owner": "1000:100",
        "fuse_fd": fd,
        "foreground": True,
        "supervised": False,
        "mode": "fuse",
        "copy_limit": "3GiB",
        "record": "profile",
        "replay": tmp_path / "profile",
    }
    os.close(fd)


@pytest.fixture
def handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Mounts with a daemon that keeps what it was told; the specification."""

    def mount(volume: RWVolume | ROVolume, **said: Any) -> MountSpec:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", program(tmp_path, f"cat > {tmp_path / 'spec'}; exit 3"))
            patch.setattr(mounting, "require_seen", lambda fd, path: None)  # nothing is mounted
            with pytest.raises(MountFailedError, match="exit status 3"):
                volume.mount(tmp_path / "mnt", **said)
        specification, _credentials = (tmp_path / "spec").read_bytes().splitlines()
        return MountSpec.from_json(specification)

    return mount


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RWVolume:
    for name in ("COWFS_RESIDENT", "COWFS_FAST_LANE", "COWFS_TRANSPORT", "COWFS_STORE_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("COWFS_CACHE_DIR", str(tmp_path / "home"))
    (tmp_path / "run").mkdir(mode=0o700)
    return Volume.new("v", store=(tmp_path / "store").as_uri())


def test_there_is_a_value_for_every_option_that_differs_from_its_default(given: dict[str, Any]) -> None:
    assert list(given) == list(field_types(MountOptions))
    usual = MountOptions()
    assert [name for name, value in given.items() if getattr(usual, name) == value] == []
    assert set(WriteOptions.__annotations__) == set(given)


@pytest.mark.parametrize("way", ["keywords", "options", "both"])
def test_every_option_reaches_the_daemon_of_a_writable_mount(
    volume: RWVolume, handed_over: Any, given: dict[str, Any], way: str
) -> None:
    if way == "keywords":
        spec = handed_over(volume, **given)
    elif way == "options":
        spec = handed_over(volume, options=MountOptions(**given))
    else:
        spec = handed_over(volume, options=replace(MountOptions(**given), max_uploads=1), max_uploads=7)
    assert spec.options == MountOptions(**given).resolved()
    assert spec.working_copy.startswith(given["meta_dir"])


def test_every_option_of_readers_reaches_the_daemon_of_a_read_only_mount(
    volume: RWVolume, handed_over: Any, given: dict[str, Any]
) -> None:
    known = {name: value for name, value in given.items() if name in ReadOptions.__annotations__}
    version = volume.commit()
    assert handed_over(version, **known).options == MountOptions(**known).resolved()
    assert handed_over(version, options=MountOptions(**known)).options == MountOptions(**known).resolved()


def test_a_resolved_option_stays_what_it_is(given: dict[str, Any]) -> None:
    resolved = MountOptions(**given).resolved()
    assert resolved.is_resolved
    assert resolved.resolved() == resolved
    assert not MountOptions().is_resolved
