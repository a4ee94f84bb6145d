"""Settings that are wrong are refused, or told of, and never passed over."""

from __future__ import annotations

import errno
import logging
import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cowfs.api import hints
from cowfs.api.mounts import mount_paths
from cowfs.base import config, log
from cowfs.base.errors import (
    AccessDeniedError,
    CowfsError,
    InvalidInputError,
    UnavailableError,
    from_local_disk,
    unusable,
)
from cowfs.blocking import Volume
from cowfs.machine import scratch_directories, state
from cowfs.store.credentials import unlocking

pytestmark = pytest.mark.quick

NOT_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be somebody else than a directory's owner")
WITHOUT_OVERRIDE = ["/usr/bin/setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]
"""Root that is subject to permissions."""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("COWFS_STORE", raising=False)
    path = tmp_path / "cowfs" / "config.toml"
    path.parent.mkdir()
    return path


def test_an_unknown_key_is_refused(file: Path) -> None:
    file.write_text('stor = "/somewhere/else"\n')
    with pytest.raises(InvalidInputError, match="unknown key: stor") as caught:
        config.default_store()
    assert "store_timeout" in caught.value.hint


def test_a_store_that_is_no_text_is_refused(file: Path) -> None:
    file.write_text("store = 5\n")
    with pytest.raises(InvalidInputError, match="is 5"):
        config.default_store()


def test_known_keys_count(file: Path) -> None:
    file.write_text('store = "/volumes"\nstore_timeout = 7\ntrusted_endpoints = ["https://a"]\n')
    assert config.default_store() == "/volumes"
    assert config.store_timeout_s() == 7
    assert config.load_endpoints() == ["https://a"]


@pytest.mark.parametrize("wanted", ["loud", "5"])
def test_an_unknown_log_level_is_told_of(
    wanted: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COWFS_LOG", wanted)
    root = logging.getLogger("cowfs")
    before = root.handlers[:], root.level, root.propagate
    try:
        log.configure()
        assert root.level == logging.WARNING
    finally:
        root.handlers[:], root.level, root.propagate = before
    assert f"COWFS_LOG is '{wanted}'" in capsys.readouterr().err


@pytest.mark.parametrize(("level", "shown"), [("", "cowfs: told\n"), ("warning", " WARNING cowfs.test: told\n")])
def test_a_command_tells_in_its_own_form_unless_a_log_was_asked_for(
    level: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COWFS_LOG", level)
    root = logging.getLogger("cowfs")
    before = root.handlers[:], root.level, root.propagate
    try:
        log.configure(is_command=True)
        log.get("test").warning("told")
    finally:
        root.handlers[:], root.level, root.propagate = before
    assert capsys.readouterr().err.endswith(shown)


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's number that has no name on this machine, and no HOME."""

    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in [name for name in os.environ if name == "HOME" or name.startswith(("COWFS_", "XDG_"))]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("directory", "instead"),
    [
        (config.config_file, "XDG_CONFIG_HOME"),
        (config.default_store, "COWFS_STORE"),
        (config.cache_dir, "COWFS_CACHE_DIR"),
        (config.state_dir, "COWFS_STATE_DIR"),
        (mount_paths.default_root, "give a path"),
    ],
)
@pytest.mark.usefixtures("homeless")
def test_who_has_no_home_is_told_what_to_set(directory: Callable[[], object], instead: str) -> None:
    with pytest.raises(AccessDeniedError, match="has no home directory") as caught:
        directory()
    assert "HOME" in caught.value.hint
    assert instead in caught.value.hint


@pytest.mark.usefixtures("homeless")
def test_without_a_home_a_store_that_is_named_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert config.store_timeout_s() == config.STORE_TIMEOUT_S
    assert config.load_endpoints() == []
    assert not hints.is_default("file:///x")
    monkeypatch.setenv("COWFS_STATE_DIR", "~/state")
    with pytest.raises(AccessDeniedError, match="has no home directory"):
        config.state_dir()
    for name in ("STATE", "CACHE"):
        monkeypatch.setenv(f"COWFS_{name}_DIR", str(tmp_path / name))
    store = (tmp_path / "store").as_uri()
    Volume.new("data", store=store).finalize()
    assert list(Volume.version("data", store=store).files.ls()) == []
    with pytest.raises(CowfsError):
        Volume.version("data", store="s3://none/none?endpoint=http://127.0.0.1:1")


@NOT_ROOT
def test_a_machine_without_a_temporary_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with pytest.raises(AccessDeniedError) as caught:
        config.runtime_dir()
    assert "XDG_RUNTIME_DIR" in caught.value.hint
    with pytest.raises(AccessDeniedError) as caught:
        config.temporary_dir()
    assert "TMPDIR" in caught.value.hint


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EUCLEAN])
@pytest.mark.parametrize(
    "reads",
    [
        lambda path: config.list_directory(path.parent),
        config.is_there,
        lambda path: config.load_endpoints(),
        scratch_directories.sweep,
        state.load,
        unlocking.of_file,
    ],
)
def test_a_disk_that_fails_is_no_matter_of_permissions(
    file: Path, monkeypatch: pytest.MonkeyPatch, reads: Callable[[Path], object], number: int
) -> None:
    def fails(*of: object, **named: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("builtins.open", fails)
    for call in ("iterdir", "stat", "read_bytes"):
        monkeypatch.setattr(Path, call, fails)
    with pytest.raises(UnavailableError, match=os.strerror(number)) as caught:
        reads(file)
    assert "disk" in caught.value.hint
    assert "owner" not in caught.value.hint


@pytest.mark.parametrize("tell", [from_local_disk, unusable])
def test_a_place_on_a_disk_that_fails_is_told_of(tell: Callable[..., CowfsError]) -> None:
    error = tell(OSError(errno.EIO, os.strerror(errno.EIO), "/place/file"), "it cannot be written", elsewhere="move.")
    assert isinstance(error, UnavailableError)
    assert "/place/file" in error.message
    assert "disk" in error.hint


def test_a_runtime_directory_that_is_gone_and_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after the last logout: only the system makes it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/proc/none/run")
    assert config.runtime_dir() == tmp_path / f"cowfs-{os.getuid()}"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    assert config.runtime_dir() == tmp_path / "run" / "cowfs"
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "run", config.runtime_dir())] == [0o700, 0o700]
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "file"))
    with pytest.raises(AccessDeniedError, match="cannot be used"):
        config.runtime_dir()


def test_the_runtime_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `sudo -E` leaves it: root could write there, and the user could not any more."""
    theirs = tmp_path / "run"
    theirs.mkdir(mode=0o700)
    os.chown(theirs, 65534, 65534)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(theirs))
    with pytest.raises(AccessDeniedError, match="private directory of user 65534") as caught:
        config.runtime_dir()
    assert "Unset XDG_RUNTIME_DIR" in caught.value.hint
    assert list(theirs.iterdir()) == []


@NOT_ROOT
@pytest.mark.parametrize("kind", ["STATE", "CACHE", "DATA"])
def test_root_leaves_nothing_in_the_directories_of_a_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As `sudo -E` and `su` name them. A directory that was named for cowfs may be anybody's."""
    directory = {"STATE": config.state_dir, "CACHE": config.cache_dir, "DATA": config.data_dir}[kind]
    variable = f"XDG_{kind}_HOME"
    monkeypatch.delenv(f"COWFS_{kind}_DIR", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    monkeypatch.delenv("SUDO_UID", raising=False)
    assert directory() == tmp_path / "cowfs"
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv(variable, str(tmp_path / "none" / "yet"))
    assert directory() == tmp_path / "none" / "yet" / "cowfs"
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(AccessDeniedError, match="is of user 65534, and this is root"):
        directory()
    monkeypatch.delenv("SUDO_UID")
    assert directory() == tmp_path / "none" / "yet" / "cowfs", "a container's home, it may be"
    monkeypatch.setenv(variable, str(tmp_path))
    (tmp_path / "cowfs").mkdir()
    assert directory() == tmp_path / "cowfs"
    os.chown(tmp_path / "cowfs", 65534, 65534)
    with pytest.raises(AccessDeniedError, match="is of user 65534, and this is root"):
        directory()
    if kind != "DATA":
        monkeypatch.setenv(f"COWFS_{kind}_DIR", str(tmp_path / "cowfs"))
        assert directory().is_relative_to(tmp_path / "cowfs")


@NOT_ROOT
@pytest.mark.parametrize("variable", ["COWFS_STATE_DIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME"])
@pytest.mark.parametrize("command", [["status"], ["ls"], ["commit", "data"], ["mount", "data", "m"]])
def test_a_directory_that_may_not_be_read_is_told_of(tmp_path: Path, variable: str, command: list[str]) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(tmp_path / "home"),
        "COWFS_STATE_DIR": str(tmp_path / "state"),
        "COWFS_CACHE_DIR": str(tmp_path / "c"),
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "COWFS_STORE": (tmp_path / "store").as_uri(),
    }
    if variable == "XDG_CONFIG_HOME":
        environment.pop("COWFS_STORE")
        environment["XDG_DATA_HOME"] = str(tmp_path / "data")
    cowfs = [sys.executable, "-m", "cowfs.cli"]
    subprocess.run([*cowfs, "create", "data"], env=environment, check=True, capture_output=True)
    closed = tmp_path / "closed"
    closed.mkdir()
    closed.chmod(0)
    environment[variable] = str(closed)
    done = subprocess.run(
        [*WITHOUT_OVERRIDE, *cowfs, *command], env=environment, capture_output=True, text=True, cwd=tmp_path
    )
    assert "Traceback" not in done.stderr
    assert "eport this" not in done.stderr
    is_of_no_use = (variable, command[0]) in {("XDG_RUNTIME_DIR", "status"), ("XDG_RUNTIME_DIR", "ls")} or (
        command[0] == "ls" and variable == "COWFS_STATE_DIR"
    )
    if not is_of_no_use and (variable, command[0]) != ("XDG_CONFIG_HOME", "status"):
        assert done.returncode == AccessDeniedError.exit_code, done.stderr
        assert str(closed) in done.stderr
        assert "hint:" in done.stderr
