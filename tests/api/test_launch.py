"""Starting daemons: what they inherit, and what becomes of those that never get ready."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cowfs
from cowfs.api.mounts import launch, prepared
from cowfs.api.mounts.prepared import prepare
from cowfs.base import config
from cowfs.base.ids import VersionId
from cowfs.blocking import Volume
from cowfs.control import MountOptions, MountSpec
from cowfs.control.messages import Ready
from cowfs.control.typed import to_json
from cowfs.errors import InvalidInputError, MountFailedError
from cowfs.machine import registry
from cowfs.version.commit import Progress

WAIT_S = 120
SET_CHILD_SUBREAPER = 36  # PR_… of linux/prctl.h
READY = Ready(7, "0123456789abcdef", "/run/x.sock", "/mnt", VersionId(bytes(32)), 2, 0, 0, 0, ("lost",), None)


def spec(root: Path, **fields: object) -> MountSpec:
    values: dict[str, object] = {
        "store_url": (root / "store").as_uri(),
        "volume": "data",
        "mode": "rw",
        "source": "data",
        "mount_path": str(root / "mnt" / "data"),
        "options": MountOptions(cache_dir=root / "cache").resolved(),
        "registration": registry.new_id(),
        "socket": str(root / "run" / "x.sock"),
        "log": str(root / "log"),
        "working_copy": str(root / "working"),
    }
    return MountSpec(**{**values, **fields})  # type: ignore[arg-type]


def program(root: Path, text: str) -> str:
    path = root / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.quick
@pytest.mark.parametrize("last_words", ["echo out of luck >&2; exit 3", "echo '{}'; echo out of luck >&2; exit 3"])
def test_a_daemon_that_dies_is_reported_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last_words: str
) -> None:
    monkeypatch.setattr(sys, "executable", program(tmp_path, last_words))
    with pytest.raises(MountFailedError, match="exit status 3") as caught:
        launch.start(spec(tmp_path))
    assert "out of luck" in caught.value.hint
    with prepare(), pytest.raises(MountFailedError, match="exit status 3") as caught:
        launch.start(spec(tmp_path))
    assert "out of luck" in caught.value.hint


@pytest.mark.quick
@pytest.mark.parametrize(
    "variable",
    [
        *("AWS_CA_BUNDLE", "AWS_SHARED_CREDENTIALS_FILE", "SSL_CERT_DIR", "COWFS_STATE_DIR"),
        *("FSSPEC_CONFIG_DIR", "XDG_RUNTIME_DIR"),
    ],
)
@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_daemon_finds_the_files_that_its_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, is_prepared: bool
) -> None:
    """It has another working directory."""
    (tmp_path / "own").write_text("found\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, "own")
    monkeypatch.setattr(sys, "executable", program(tmp_path, f'cat "${variable}" >&2; exit 3'))
    with prepare(is_wanted=is_prepared), pytest.raises(MountFailedError) as caught:
        launch.start(spec(tmp_path))
    assert caught.value.hint.endswith("ends: found")


@pytest.mark.quick
def test_paths_of_a_daemons_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SSL_CERT_DIR", f"/etc/certs:own:{tmp_path}")
    monkeypatch.setenv("COWFS_STATE_DIR", "~/state")
    monkeypatch.setenv("AWS_CONFIG_FILE", "")
    monkeypatch.setenv("PYTHONPATH", "own:")
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    home = str(Path(cowfs.__file__).parents[1])
    made = prepared.environment()
    assert made["SSL_CERT_DIR"] == f"/etc/certs:{tmp_path}/own:{tmp_path}"
    assert (made["COWFS_STATE_DIR"], made["AWS_CONFIG_FILE"]) == ("~/state", "")
    assert made["PYTHONPATH"] == f"{tmp_path}/own:{home}"
    assert "AWS_CA_BUNDLE" not in made
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert prepared.environment()["PYTHONPATH"] == f"own:{home}"


@pytest.mark.quick
@pytest.mark.parametrize("variable", ["XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"])
@pytest.mark.parametrize("is_relative", [False, True])
def test_a_daemon_has_the_directories_of_its_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, is_relative: bool
) -> None:
    """A relative one does not count, for either."""
    for name in ("COWFS_STATE_DIR", "COWFS_CACHE_DIR", "COWFS_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(variable, "own" if is_relative else str(tmp_path / "own"))
    monkeypatch.chdir(tmp_path)
    before = _directories()
    for name, value in prepared.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir("/")
    assert _directories() == before


def _directories() -> list[Path]:
    return [config.config_file(), config.data_dir(), config.cache_dir(), config.state_dir()]


@pytest.mark.mount
@pytest.mark.usefixtures("place")
def test_a_daemon_that_was_started_before_is_taken_or_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    spawn = prepared.spawn

    def spawned(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(spawn(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(prepared, "spawn", spawned)
    volume = Volume.new("early")
    with prepare():
        volume.mount()
    assert len(started) == 1
    volume.unmount()
    with prepare():
        monkeypatch.setenv("COWFS_SPIN", "0")
        volume.mount()
    assert len(started) == 3
    assert started[1].returncode == -signal.SIGKILL, "it did not have the environment of the moment"
    volume.unmount()
    with pytest.raises(KeyboardInterrupt), prepare():
        raise KeyboardInterrupt
    assert started[3].returncode == -signal.SIGKILL


@pytest.mark.quick
def test_a_daemon_that_is_never_ready_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid_file = tmp_path / "pid"
    monkeypatch.setattr(sys, "executable", program(tmp_path, f"echo $$ > {pid_file}; cat > /dev/null; exec sleep 600"))
    with pytest.raises(MountFailedError, match="not ready in time"):
        launch.start(spec(tmp_path), ready_timeout_s=0.5)
    assert not Path(f"/proc/{pid_file.read_text().strip()}").exists()


@pytest.mark.quick
def test_a_daemon_that_makes_progress_has_all_the_time_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than the silence that is waited for in all, with words in between."""
    script = """
cat > /dev/null
for done in 1 2 3 4 5 6; do echo '{"progress": {"stage": "replay", "done": '$done', "total": 6}}'; sleep 0.5; done
echo '{"ready": READY}'
exec sleep 600 >&-
"""
    script = script.replace("READY", json.dumps(to_json(READY)).replace('"pid": 7', """"pid": '$$'"""))
    monkeypatch.setattr(sys, "executable", program(tmp_path, script))
    events: list[Progress] = []
    started = launch.start(spec(tmp_path), progress=events.append, ready_timeout_s=2.5)
    os.kill(started.pid, signal.SIGKILL)
    assert replace(started.ready, pid=READY.pid) == READY
    assert events == [Progress("replay", done, 6) for done in range(1, 7)]


ENDS_ALL_ITS_CHILDREN = """
import os, signal
from pathlib import Path
from cowfs.blocking import Volume

Volume.version("shared").mount()
parents = {}
for stat in Path("/proc").glob("[0-9]*/stat"):
    pid, _, rest = stat.read_text().partition(" (")
    parents[int(pid)] = int(rest.rpartition(") ")[2].split()[1])
own = {os.getpid()}
while more := {pid for pid, parent in parents.items() if parent in own} - own:
    own |= more
for pid in own - {os.getpid()}:
    os.kill(pid, signal.SIGKILL)
print(len(own) - 1)
os._exit(0)
"""


@pytest.mark.mount
@pytest.mark.usefixtures("place")
def test_a_program_that_ends_all_its_children_ends_no_mount_of_others() -> None:
    """As Ray and joblib do with workers."""
    volume = Volume.new("shared")
    volume.files.write("file", b"content")
    volume.finalize()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", ENDS_ALL_ITS_CHILDREN], env=environment, check=True, timeout=WAIT_S)
    with Volume.version("shared") as version:
        assert (version.path / "file").read_bytes() == b"content"
        assert version._started is None, "it is the one that was there"


@pytest.mark.mount
@pytest.mark.usefixtures("place")
def test_the_parent_of_all_orphans_reaps_its_daemons() -> None:
    """The first process of a container."""
    program = f"""
import ctypes
import os, time
from cowfs.blocking import Volume
assert ctypes.CDLL(None).prctl({SET_CHILD_SUBREAPER}, 1, 0, 0, 0) == 0
volume = Volume.new("data")
volume.mount()
pid = volume._handle.started.pid
volume.unmount()
while os.path.exists(f"/proc/{{pid}}"):
    time.sleep(0.01)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=WAIT_S)


@pytest.mark.quick
def test_a_descriptor_that_is_not_open_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="999"):
        launch.start(spec(tmp_path, options=MountOptions(cache_dir=tmp_path, fuse_fd=999).resolved()))


@pytest.mark.mount
def test_daemons_inherit_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither open files nor the modules beside a user's script: a file called select.py is not the
    daemon's select."""
    (place / "select.py").write_text("raise RuntimeError('not yours')")
    monkeypatch.syspath_prepend(str(place))
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        volume = Volume.new("inherits")
        volume.mount()
        pid = registry.list_mounts()[0].pid
        ours = os.readlink(f"/proc/self/fd/{writer}")
        theirs = {os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}
        assert ours not in theirs
        assert os.getsid(pid) != os.getsid(0)
        volume.unmount()
    finally:
        os.close(reader)
        os.close(writer)
