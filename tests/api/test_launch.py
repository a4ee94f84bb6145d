"""Starting daemons: what they inherit, and what becomes of those that never get ready."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cowfs.api import launch, prepared
from cowfs.api.prepared import prepare
from cowfs.blocking import Volume
from cowfs.control import MountOptions, MountSpec
from cowfs.control.messages import Ready
from cowfs.control.typed import to_json
from cowfs.errors import InvalidInputError, MountFailedError
from cowfs.ids import VersionId
from cowfs.machine import registry
from cowfs.version.commit import Progress

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


@pytest.mark.mount
@pytest.mark.usefixtures("place")
def test_a_daemon_that_was_started_before_is_taken_or_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    spawn = prepared.spawn

    def spawned(*arguments: Any) -> subprocess.Popen[bytes]:
        started.append(spawn(*arguments))
        return started[-1]

    monkeypatch.setattr(prepared, "spawn", spawned)
    volume = Volume.new("early")
    with prepare():
        volume.mount()
    assert [process.pid for process in started] == [registry.list_mounts()[0].pid]
    volume.unmount()
    with prepare():
        monkeypatch.setenv("COWFS_SPIN", "0")
        volume.mount()
    assert [process.pid for process in started[2:]] == [registry.list_mounts()[0].pid]
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
    script = script.replace("READY", json.dumps(to_json(READY)))
    monkeypatch.setattr(sys, "executable", program(tmp_path, script))
    events: list[Progress] = []
    started = launch.start(spec(tmp_path), progress=events.append, ready_timeout_s=2.5)
    os.kill(started.pid, signal.SIGKILL)
    assert started.ready == READY
    assert events == [Progress("replay", done, 6) for done in range(1, 7)]


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
