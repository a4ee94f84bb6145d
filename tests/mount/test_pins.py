"""What a mount holds against collections: a pin while it lives, a hold while uncommitted work stays
on this machine."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cowfs.format import keys
from cowfs.format.records import PinRecord
from cowfs.machine import state as states
from cowfs.machine.working_copy import WorkingCopy
from cowfs.maintain.collect.roots import RootReader
from tests.format.samples import GOLDEN
from tests.mount.daemons import Mount, Place
from tests.mount.preload import SLOW_UMOUNT, Switch

pytestmark = pytest.mark.mount


def pins(place: Place) -> list[PinRecord]:
    return [pin.record for pin in RootReader(place.store).pins()]


def test_uncommitted_work_holds_what_it_stands_on_until_it_is_committed(place: Place, mount: Mount) -> None:
    (mount.path / "base").write_text("committed")
    mount.commit()
    (mount.path / "f").write_text("kept")
    assert [pin.kind for pin in pins(place)] == ["writer"]
    mount.unmount()
    (hold,) = pins(place)
    assert (hold.kind, hold.lifetime_s, hold.volume, hold.number) == ("hold", None, "v", 2)
    again = place.mount("v")
    assert [pin.kind for pin in pins(place)] == ["writer"]
    again.unmount(commit=True)
    assert pins(place) == []


def test_discarded_work_holds_nothing(place: Place, mount: Mount) -> None:
    (mount.path / "f").write_text("in vain")
    mount.call("discard", force=False)
    mount.wait_clean_end()
    assert pins(place) == []


def test_discarded_work_holds_nothing_however_late_it_is_said(place: Place, tmp_path: Path) -> None:
    """The mount is gone before the thread that took it down says what becomes of the work."""
    switch = Switch(SLOW_UMOUNT, tmp_path)
    mount = place.start(place.spec(), environment=switch.environment)
    (mount.path / "f").write_text("in vain")
    switch.on()
    asked = threading.Thread(target=lambda: mount.call("discard", force=False))
    asked.start()
    while not switch.is_reached:
        time.sleep(0.01)
    time.sleep(1)  # in which a session that did not wait would be closed
    switch.off()
    asked.join(60)
    mount.wait_clean_end()
    assert pins(place) == []
    assert not place.working_copy().exists


def test_a_working_copy_with_the_pin_of_an_earlier_cowfs_is_mounted(place: Place, mount: Mount) -> None:
    (mount.path / "f").write_text("kept")
    assert mount.spec.working_copy is not None
    mount.unmount()
    old = f"pins/{'ab' * 16}"
    place.store.delete([info.key for info in place.store.list(keys.PINS)])
    place.store.put(old, (GOLDEN / "pin.json").read_bytes())
    state_path = WorkingCopy(Path(mount.spec.working_copy)).state_path
    states.store(state_path, replace(states.load(state_path), pin=old))
    again = place.mount("v")
    assert (again.path / "f").read_text() == "kept"
    assert [(pin.kind, pin.volume) for pin in pins(place)] == [("writer", "v")]
    assert place.store.size(old) is None
    again.unmount(commit=True)
