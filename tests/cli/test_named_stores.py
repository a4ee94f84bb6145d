"""A store that has a name on this machine, wherever a store or a source is given."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cowfs.base import config
from cowfs.blocking import ROVolume, Store, Volume
from cowfs.errors import InvalidInputError, InvalidStateError, ReadOnlyError
from cowfs.storage import Storage
from tests.cli.conftest import Run
from tests.cli.test_json import check


@pytest.fixture(autouse=True)
def near(home: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of the store named near, with a version of volume data."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.chdir(home)
    assert run("store", "add", "near", str(home / "near-store")).code == 0
    volume = Store("near").create("data")
    volume.files.write("file", b"near\n")
    volume.finalize()
    return (home / "near-store").as_uri()


def test_a_name_stands_wherever_a_store_is_given(run: Run, home: Path, near: str) -> None:
    assert Store("near").url == near
    assert Store("near") == Store(near)
    assert Storage("near").url == near
    assert Volume.open("data", store="near").resolve().store_url == near
    assert run("ls", "--store", "near").code == 0
    run("create", "mine")
    assert run("push", "near/data", "./other", "--as", "copy").code == 0
    assert run("pull", "data", "near").code == 0
    assert Volume.version("data").files.read("file") == b"near\n"
    assert Store().push("data", "near").is_new is False
    assert run("repair", "--from", "near", "--dry-run").code == 0


def test_a_path_object_is_a_path(home: Path) -> None:
    assert Store(Path("near")).url == (home / "near").as_uri()


@pytest.mark.parametrize(
    "command",
    [
        ("create", "x", "--store", "mirror"),
        ("push", "near/data", "mirror"),
        ("repair", "--from", "mirror", "--dry-run"),
    ],
)
def test_a_bare_word_never_makes_a_directory(run: Run, home: Path, command: tuple[str, ...]) -> None:
    run("create", "mine")
    refused = run(*command)
    assert refused.code == 2
    assert "no store is named 'mirror'" in refused.err
    assert "./mirror" in refused.err
    assert not (home / "mirror").exists()


def test_a_source_may_be_in_a_named_store(run: Run, home: Path) -> None:
    assert run("cat", "near/data:file").out == "near\n"
    assert run("cat", "near/data@{0}:file").out == "near\n"
    assert run("log", "near/data").code == 0
    assert "file" in run("ls", "near/data").out
    assert run("cp", "near/data:file", "copied").code == 0
    assert (home / "copied").read_text() == "near\n"
    assert Volume.version("near/data").files.read("file") == b"near\n"
    other = run("log", "near/data", "--store", str(home / "elsewhere"))
    assert other.code == 2
    assert run("log", "near/data", "--store", "near").code == 0
    assert run("log", "far/data").code == 2


def test_a_local_path_with_a_colon_stays_one(run: Run, home: Path) -> None:
    (home / "logs").mkdir()
    (home / "logs" / "at:10").write_text("local\n")
    run("create", "mine")
    assert run("cp", "logs/at:10", "mine:log").code == 0
    assert run("cat", "mine:log").out == "local\n"


@pytest.mark.parametrize(
    "command",
    [
        ("create", "near/x"),
        ("delete", "near/data", "-y"),
        ("mount", "near/data", "at"),
        ("cp", "file", "near/data:file"),
        ("upload", "up", "near/data"),
        ("commit", "near/data"),
    ],
)
def test_a_target_is_named_without_its_store(run: Run, home: Path, command: tuple[str, ...]) -> None:
    (home / "file").write_text("x")
    (home / "up").mkdir()
    refused = run(*command)
    assert refused.code != 0
    assert "--store near" in refused.err


def test_a_read_only_store_serves_versions_and_takes_none(run: Run, home: Path) -> None:
    shutil.copytree(home / "near-store", home / "copy")  # this process has not opened it
    url = (home / "copy").as_uri()
    assert run("store", "add", "builtin", url, "--read-only").code == 0
    document = json.loads(run("store", "ls", "--json").out)
    check("store ls", document)
    listed = document["stores"]
    assert listed[0] == {"store_name": "builtin", "store_url": url, "is_read_only": True}
    assert run("cat", "builtin/data:file").out == "near\n"
    refused = run("create", "x", "--store", url)
    assert refused.code == ReadOnlyError.exit_code
    assert "cowfs store ls`" in refused.err


def test_hints_show_the_name(run: Run) -> None:
    missing = run("log", "none", "--store", "near")
    assert "`cowfs ls --store near`" in missing.err
    assert "`cowfs ls --store near`" in run("log", "near/none").err
    assert "`cowfs log data --store near`" in run("show", "near/data@none").err
    assert "`cowfs ls --store near`" in run("mount", "near/none@{0}", "at").err


def test_a_path_after_a_slash_is_explained(run: Run) -> None:
    for command in ("ls", "cat", "log"):
        refused = run(command, "data/dir/file")
        assert refused.code == 2
        assert "its path dir/file is data:dir/file" in refused.err, command
    for command in ("rm", "mkdir"):
        assert "such as data:dir/file;" in run(command, "data/dir/file").err, command
    for path in ("./data", "/data", "~/data"):
        refused = run("ls", path)
        assert f"cowfs: '{path}' is a path, not a volume's name" in refused.err
        assert "`cowfs status`" in refused.err


def test_a_version_in_a_named_store_can_be_mounted() -> None:
    version = Store().to_mount("near/data@{0}")
    assert isinstance(version, ROVolume)
    assert version.files.read("file") == b"near\n"


def test_a_finalized_volume_is_opened_again_in_its_store(near: str) -> None:
    volume = Store("near").create("ended")
    volume.finalize()
    with pytest.raises(InvalidStateError) as caught:
        volume.commit()
    assert f"Volume.open('ended', store={near!r})" in caught.value.hint


def test_a_store_with_credentials_is_named_in_the_file(home: Path) -> None:
    config.config_file().write_text('[stores]\nr2 = {preset = "local", path = "%s"}\n' % (home / "preset"))
    assert Store("r2").url == (home / "preset").as_uri()
    with pytest.raises(InvalidInputError, match="settings of its own"):
        Storage("r2")
