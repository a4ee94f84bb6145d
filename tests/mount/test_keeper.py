"""What a mount does by itself: it uploads quiet files before anybody commits, keeps its lease, and
its journal short."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import pytest

from cowfs.store.refs import leases
from tests.mount.daemons import Mount, Place

pytestmark = [pytest.mark.mount, pytest.mark.slow]

PATIENCE_S = 120
CHECKPOINT_BYTES = 64 << 20  # native/engine/src/layers/checkpoint.rs


def test_quiet_files_are_uploaded_before_the_commit(place: Place, mount: Mount) -> None:
    data = os.urandom(20 << 20)
    (mount.path / "f").write_bytes(data)
    end = time.monotonic() + PATIENCE_S
    while mount.call("status")["writer"]["uploaded_bytes"] < len(data):
        assert time.monotonic() < end, mount.call("status")
        time.sleep(0.5)
    assert mount.call("status")["writer"]["is_dirty"], "uploaded is not committed"
    result = mount.call("commit")
    assert result["stats"]["added_bytes"] == len(data)
    reader = place.mount("v", version=result["version"], cache_dir=str(place.root / "c" / "empty"))
    assert (reader.path / "f").read_bytes() == data


def test_the_lease_is_renewed_while_the_mount_lives(place: Place, mount: Mount) -> None:
    (mount.path / "uncommitted").write_bytes(b"work")
    taken = leases.read(place.store, "v")
    assert taken is not None
    time.sleep(leases.HEARTBEAT_S + 5)
    found = leases.read(place.store, "v")
    assert found is not None
    assert (found.state, found.epoch) == ("held", taken.epoch)
    assert found.heartbeat_age_s < leases.HEARTBEAT_S


def journal_files(mount: Mount) -> dict[str, int]:
    journal = Path(mount.spec.working_copy or "") / "journal"
    sizes = {}
    for path in journal.iterdir():
        with suppress(FileNotFoundError):
            sizes[path.name] = path.stat().st_size
    return sizes


def test_a_long_journal_is_replaced_by_a_checkpoint_and_survives_a_kill(place: Place, mount: Mount) -> None:
    (mount.path / "kept").write_bytes(b"from before the checkpoints")
    file = mount.path / "f"
    file.write_bytes(b"x")
    end = time.monotonic() + PATIENCE_S
    turn = 0
    # Long attributes make long records: 64 MiB of journal are 1,100 of them.
    while not any(name.endswith(".ckpt") for name in journal_files(mount)):
        assert time.monotonic() < end, journal_files(mount)
        turn += 1
        os.setxattr(file, "user.turn", b"%d" % turn + bytes(60_000))
    while sum(journal_files(mount).values()) > CHECKPOINT_BYTES:
        assert time.monotonic() < end, journal_files(mount)
        time.sleep(0.2)
    (mount.path / "behind").write_bytes(b"what the log behind it has")
    mount.kill()
    again = place.mount("v")
    assert (again.path / "kept").read_bytes() == b"from before the checkpoints"
    assert (again.path / "behind").read_bytes() == b"what the log behind it has"
    assert os.getxattr(again.path / "f", "user.turn") == b"%d" % turn + bytes(60_000)
    again.unmount(commit=True)
