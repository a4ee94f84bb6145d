"""Processes that share a mount, and the last of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cowfs.machine import registry, sharing
from cowfs.machine.registry import MountEntry

pytestmark = pytest.mark.quick


class User:
    """An object that uses a mount."""


USER = User()


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MountEntry:
    monkeypatch.setenv("COWFS_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    return registry.register(
        registry.new_id(),
        mount_path=tmp_path / "m",
        socket=Path("/run/x.sock"),
        store_url="file:///store",
        store_id="00" * 16,
        volume="data",
        version_id=None,
        read_only=False,
        working_copy=Path("/w"),
    )


def other(code: str) -> subprocess.Popen[str]:
    """Another process, which does it and then waits to be ended."""
    prelude = "import sys\nfrom cowfs.machine import registry, sharing\nentry = registry.list_mounts()[0]\nuser = sys\n"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", f"{prelude}print({code}, flush=True)\nsys.stdin.readline()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None
    process.said = process.stdout.readline().strip()  # type: ignore[attr-defined]
    return process


def test_who_shares_a_mount_keeps_it_from_being_ended(entry: MountEntry) -> None:
    assert sharing.join(entry, USER)
    assert sharing.join(entry, USER), "once is enough"
    with other("sharing.join(entry, user)") as sharer:
        assert sharer.said == "True"  # type: ignore[attr-defined]
        assert not sharing.is_last(entry, USER)
        assert not sharing.is_last(entry, USER), "asking makes it no sharer again"
        sharer.kill()
    assert sharing.is_last(entry, USER)
    with other("sharing.join(entry, user)") as late:
        assert late.said == "False", "it is being ended"  # type: ignore[attr-defined]
        late.kill()
    sharing.forget(entry)
    with other("sharing.join(entry, user)") as again:
        assert again.said == "True"  # type: ignore[attr-defined]
        again.kill()


def test_objects_of_a_process_share_a_mount_as_long_as_somebody_has_them(entry: MountEntry) -> None:
    second, third = User(), User()
    for user in (USER, second, third):
        assert sharing.join(entry, user)
    assert not sharing.is_last(entry, USER)
    assert not sharing.is_last(entry, USER)
    assert sharing.users(entry) == {second, third}
    del third, user
    assert sharing.is_last(entry, second)
    assert not sharing.join(entry, USER), "it is being ended"
    sharing.keep(entry)
    assert sharing.join(entry, USER)
    sharing.forget(entry)


def test_nothing_is_kept_of_mounts_that_others_have_ended(entry: MountEntry) -> None:
    assert sharing.join(entry, USER)
    registry.unregister(entry)
    assert not sharing.join(entry, USER)
    assert sharing._held == {}
    assert sharing.is_last(entry, USER)


def test_asking_who_else_shares_gives_up_nothing(entry: MountEntry) -> None:
    assert not sharing.holds(entry)
    assert sharing.join(entry, USER)
    with other("sharing.join(entry, user)") as sharer:
        assert not sharing.is_alone(entry)
        assert set(sharing.others(entry)) <= {sharer.pid}
        with other("sharing.is_alone(entry)") as third:
            assert third.said == "False"  # type: ignore[attr-defined]
            third.kill()
        sharer.kill()
    with other("sharing.is_alone(entry)") as third:
        assert third.said == "False", "this process shares it as before"  # type: ignore[attr-defined]
        third.kill()
    assert sharing.is_alone(entry)
    sharing.keep(entry)
    with other("sharing.join(entry, user)") as late:
        assert late.said == "True"  # type: ignore[attr-defined]
        late.kill()
