"""Mount options say which one is wrong; names and provenance come from where they should."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from cowfs.api import names, provenance
from cowfs.control import MountOptions
from cowfs.errors import InvalidInputError
from tests.api.test_task_systems import without_system

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_uploads", 0),
        ("max_uploads", True),
        ("max_uploads", 1.5),
        ("attr_cache", -1),
        ("entry_cache", float("nan")),
        ("dir_entry_cache", "60"),
        ("cache_size", "many"),
        ("cache_size", "10"),
        ("cache_size", -1),
        ("cache_size", True),
        ("resident", 1),
        ("fuse_fd", 2),
        ("map_owner", "somebody"),
        ("map_owner", "1000"),
        ("map_owner", "1000:"),
        ("map_owner", "-1:0"),
        ("map_owner", "0:4294967295"),
        ("map_owner", 1000),
        ("transport", "rings"),
        ("mode", "copies"),
        ("copy_limit", "some"),
        ("copy_limit", None),
    ],
)
def test_a_wrong_option_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=name) as caught:
        MountOptions(**{name: value})
    assert caught.value.hint


@pytest.mark.parametrize(
    ("given", "bytes_"),
    [
        (0, 0),
        ("0B", 0),
        ("1k", 1024),
        ("1kB", 1000),
        ("2GB", 2 * 10**9),
        ("512M", 512 << 20),
        ("20GiB", 20 << 30),
        ("1.5 G", 3 << 29),
        ("7B", 7),
    ],
)
def test_sizes(given: int | str, bytes_: int) -> None:
    assert MountOptions(cache_size=given).cache_size_bytes == bytes_


def test_resident_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COWFS_RESIDENT", "0")
    assert not MountOptions().is_resident
    monkeypatch.setenv("COWFS_RESIDENT", "1")
    assert MountOptions().is_resident


@pytest.mark.parametrize(("user", "default"), [(0, "none"), (1000, "caller")])
def test_the_owner_that_is_mapped_unless_something_is_said(
    user: int, default: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: user)
    assert MountOptions().resolved().map_owner == default
    assert MountOptions(map_owner="caller").resolved().map_owner == "caller"
    assert MountOptions(map_owner="7:8").mapped_owner == (7, 8)


def test_the_transport_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """For mounts that can use any; what was said in so many words wins."""
    monkeypatch.setenv("COWFS_TRANSPORT", "uring")
    assert MountOptions().wanted_transport == "uring"
    assert MountOptions(transport="device").wanted_transport == "device"
    assert MountOptions(fuse_fd=3).wanted_transport == "auto"
    assert MountOptions(fast_lane=False).wanted_transport == "auto"
    monkeypatch.setenv("COWFS_TRANSPORT", "pigeon")
    with pytest.raises(InvalidInputError, match="COWFS_TRANSPORT"):
        _ = MountOptions().wanted_transport


def test_relative_directories_become_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert MountOptions(cache_dir="c").cache_path == tmp_path / "c"
    assert MountOptions(meta_dir=Path("m")).meta_path == tmp_path / "m"


def test_names() -> None:
    assert names.checked("/mydata") == names.checked("mydata") == "mydata"
    assert names.generated() != names.generated()
    assert names.checked(names.beside("x")).startswith("x-")
    for bad in ("", "/", "a/b", "../x", "cowfs+file:///x/-/y@" + "0" * 64):
        with pytest.raises(InvalidInputError):
            names.checked(bad)


def test_a_long_name_still_has_room_beside_it() -> None:
    longest = "x" * 128
    assert len(names.checked(names.beside(longest))) <= 128


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COWFS_AUTHOR", raising=False)
    without_system(monkeypatch)


@pytest.mark.usefixtures("bare")
def test_author(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "gitconfig"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    assert provenance.author().endswith(f"@{socket.gethostname()}")
    config.write_text("[user]\nname = Ada\nemail = ada@example.org\n")
    assert provenance.author() == "Ada <ada@example.org>"
    config.write_bytes(b'[user]\nname = First\nname = " Ada "\nemail = \xff\n')
    assert provenance.author() == "Ada", "the last one counts, and what is no text does not"
    config.write_text("[user]\nemail = ada@example.org\nname\n")
    assert provenance.author() == "ada@example.org"
    monkeypatch.setenv("COWFS_AUTHOR", "Grace")
    assert provenance.author() == "Grace"
    assert provenance.author("Joan") == "Joan"


@pytest.mark.usefixtures("bare")
def test_author_without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert provenance.author().endswith(f"@{socket.gethostname()}")


@pytest.mark.usefixtures("bare")
def test_produced_by(monkeypatch: pytest.MonkeyPatch) -> None:
    host = {"host": socket.gethostname()}
    assert provenance.produced_by() == host
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_RUN_ID", "7")
    monkeypatch.setenv("GITHUB_JOB", "train")
    assert provenance.produced_by() == {"system": "github-actions", "run": "7", "action": "train", **host}
    monkeypatch.setenv("COWFS_PRODUCED_BY", json.dumps({"system": "cron", "host": "h"}))
    assert provenance.produced_by() == {"system": "cron", "host": "h"}
    assert provenance.produced_by({"run": "1"}) == {"run": "1", **host}


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("text", ["{", "[]", '"x"', '{"run": 1}', '{"run": null}'])
def test_produced_by_that_is_no_table_of_texts(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COWFS_PRODUCED_BY", text)
    with pytest.raises(InvalidInputError):
        provenance.produced_by()
