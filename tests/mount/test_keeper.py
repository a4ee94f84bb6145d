"""What a mount does by itself: it uploads quiet files before anybody commits, and keeps its lease."""

from __future__ import annotations

import os
import time

import pytest

from cowfs.store import leases
from tests.mount.daemons import Mount, Place

pytestmark = [pytest.mark.mount, pytest.mark.slow]

PATIENCE_S = 120


def test_quiet_files_are_uploaded_before_the_commit(place: Place, mount: Mount) -> None:
    data = os.urandom(20 << 20)
    (mount.path / "f").write_bytes(data)
    end = time.monotonic() + PATIENCE_S
    while mount.call("status")["uploaded_bytes"] < len(data):
        assert time.monotonic() < end, mount.call("status")
        time.sleep(0.5)
    assert mount.call("status")["is_dirty"], "uploaded is not committed"
    result = mount.call("commit")
    assert result["stats"]["added_bytes"] == len(data)
    reader = place.mount("v", version=result["version"], cache_dir=str(place.root / "c" / "empty"))
    assert (reader.path / "f").read_bytes() == data


def test_the_lease_is_renewed_while_the_mount_lives(place: Place, mount: Mount) -> None:
    taken = leases.read(place.store, "v")
    assert taken is not None
    time.sleep(leases.HEARTBEAT_S + 5)
    found = leases.read(place.store, "v")
    assert found is not None
    assert (found.state, found.epoch) == ("held", taken.epoch)
    assert found.heartbeat_age_s < leases.HEARTBEAT_S
