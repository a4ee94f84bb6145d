"""What doctor says of a machine's settings."""

from __future__ import annotations

import math
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from cowfs.api.doctor import machine, store_checks, task_systems
from cowfs.blocking import Volume
from cowfs.errors import AccessDeniedError
from cowfs.machine import kernel
from cowfs.store import open_store
from tests.faulty_store import Fault, FaultyStore

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(("setting", "state"), [("0\n", "warn"), ("200000\n", "ok"), ("", "ok"), (None, "ok")])
def test_halt_polling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str | None, state: str) -> None:
    path = tmp_path / "guest_halt_poll_ns"
    if setting is not None:
        path.write_text(setting)
    monkeypatch.setattr(kernel, "GUEST_HALT_POLL_NS", path)
    check = machine.halt_polling()
    assert check.state == state
    assert (str(path) in check.hint) is (state == "warn")


@pytest.mark.parametrize(("version", "state"), [(0x030B00F0, "ok"), (0x030C01F0, "warn"), (0x030C03F0, "ok")])
def test_a_python_that_pip_refuses(monkeypatch: pytest.MonkeyPatch, version: int, state: str) -> None:
    monkeypatch.setattr(sys, "hexversion", version)
    assert machine.python().state == state


def test_the_other_server_is_needed_only_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without libfuse3 the import of pyfuse3 fails."""
    monkeypatch.setitem(sys.modules, "pyfuse3", None)
    monkeypatch.delenv("COWFS_FAST_LANE", raising=False)
    assert machine.pyfuse3().state == "ok"
    monkeypatch.setenv("COWFS_FAST_LANE", "0")
    check = machine.pyfuse3()
    assert (check.state, check.kind) == ("fail", "mount_failed")
    assert "cowfs-volumes[pyfuse3]" in check.hint


def test_flyte_must_find_cowfs(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry(value: str) -> None:
        points = [metadata.EntryPoint("cowfs", value, "flyte.plugins.types")] if value else []
        monkeypatch.setattr(metadata, "entry_points", lambda **_: points)

    assert task_systems.all_of() == (task_systems.flyte,)
    entry("cowfs.integrations.flyte:register")
    assert task_systems.flyte().state == "ok"
    for broken in ("", "cowfs.integrations.flyte:gone", "cowfs.integrations.gone:register"):
        entry(broken)
        check = task_systems.flyte()
        assert (check.state, "make build" in check.hint) == ("warn", True)
    entry("cowfs.integrations.flyte:register")
    monkeypatch.setattr("flyte.__version__", "2.10.0")
    check = task_systems.flyte()
    assert (check.state, "cowfs-volumes[flyte]" in check.hint) == ("warn", True)

    def find_none(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", find_none)
    assert task_systems.all_of() == ()


@pytest.mark.parametrize(("refused", "state"), [("delete", "warn"), ("put", "fail")])
def test_a_store_that_may_be_written_to_and_not_cleared(
    place: Path, monkeypatch: pytest.MonkeyPatch, refused: str, state: str
) -> None:
    monkeypatch.setenv("COWFS_STORE", (place / "store").as_uri())
    Volume.new("data").resolve()
    found = FaultyStore(open_store((place / "store").as_uri()))
    found.inject(Fault.FAIL, refused, times=math.inf, error=AccessDeniedError("no"))
    monkeypatch.setattr(store_checks, "open_store", lambda _: found)
    check = {check.name: check for check in (look() for look in store_checks.all_of(None))}["store writable"]
    assert check.state == state
    assert ("s3:DeleteObject" in check.hint) is (refused == "delete")


@pytest.mark.mount
@pytest.mark.parametrize(("size", "state"), [("64m", "warn"), ("3m", "fail")])
def test_a_store_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str, state: str) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", disk], check=True)
    try:
        Volume.new("data", store=disk / "store").resolve()
        if state == "fail":
            (disk / "rest").write_bytes(bytes(5 << 19))
        checks = {check().name: check() for check in store_checks.all_of(str(disk / "store"))}
        assert checks["room in the store"].state == state
        assert checks["room in the store"].hint
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
