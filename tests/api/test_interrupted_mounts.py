"""Ctrl-C in mount() and unmount(): whatever it interrupts, the next call has not to wait for
anything that the interrupted one has left, nor to fail, also while its traceback is kept, as an
interactive Python keeps it."""

from __future__ import annotations

import _thread
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import pytest

from cowfs import apart
from cowfs.api import prepared
from cowfs.blocking import ROVolume, RWVolume, Volume
from cowfs.errors import CowfsError
from cowfs.machine import registry, reservation, sharing
from tests.api.conftest import place
from tests.interrupt import Interrupt

__all__ = ["place"]

pytestmark = pytest.mark.usefixtures("place")

MODULES = (
    "contextlib",
    "cowfs.apart",
    "cowfs.api.copies",
    "cowfs.api.launch",
    "cowfs.api.mount_paths",
    "cowfs.api.mounts",
    "cowfs.api.new_mounts",
    "cowfs.api.ro_volume",
    "cowfs.api.rw_volume",
    "cowfs.api.used_mount",
    "cowfs.control.client",
    "cowfs.machine.lock",
    "cowfs.machine.reservation",
    "cowfs.machine.sharing",
)
DENSE, SPARSE = 10, 7  # all of so many lines, and one of so many behind them, so that the test is short
Mode = Literal["fuse", "copy"]


@pytest.mark.parametrize("mode", ["fuse", "copy"])
@pytest.mark.parametrize("kind", ["volume", "version"])
@pytest.mark.parametrize("what", ["mount", "unmount"])
def test_after_an_interruption_nothing_has_to_be_waited_for(
    what: str, kind: str, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[object]()
    monkeypatch.setattr(reservation, "PATIENCE_S", 0.0)
    monkeypatch.setattr(reservation, "TURN_S", 1.0)
    monkeypatch.setattr(reservation, "_tell", lambda *about: waits.append(about))
    made = Volume.new("data", strict=True)
    made.files.write("file", b"content")
    version = made.finalize()
    kept = list[BaseException]()
    held_before = {*sharing._held}
    number = 1
    while True:
        vol: RWVolume | ROVolume = Volume.open("data") if kind == "volume" else Volume.version(version.locator)
        if what == "unmount":
            vol.mount(mode=mode)
        call: Callable[[], object] = partial(vol.mount, mode=mode) if what == "mount" else vol.unmount
        interrupt = Interrupt(number, MODULES, kept.append)
        with interrupt:
            call()
        path = vol.mount(mode=mode)
        assert (path / "file").read_bytes() == b"content", f"interrupted before line {number}"
        vol.unmount()
        assert not waits, f"interrupted before line {number}"
        assert {*sharing._held} <= held_before, f"interrupted before line {number}"
        assert not registry.list_mounts(), f"interrupted before line {number}"
        if not interrupt.is_over:
            break
        number += 1 if number < DENSE else SPARSE
    assert number > DENSE


def test_an_interrupted_mount_ends_its_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    started = list[Any]()
    spawn = prepared.spawn

    def spawned(*arguments: Any) -> Any:
        process = spawn(*arguments)
        started.append(process)
        _thread.interrupt_main()
        return process

    monkeypatch.setattr(prepared, "spawn", spawned)
    vol = Volume.new("data", strict=True)
    with pytest.raises(KeyboardInterrupt):
        vol.mount()
    [process] = started
    assert process.poll() is not None
    assert not vol.is_mounted
    monkeypatch.undo()


def test_who_waits_for_a_turn_heeds_an_interruption() -> None:
    began = threading.Event()

    def wait() -> None:
        with reservation.turn("what", _begins(began), doing="does it"):
            pytest.fail("somebody else has it")

    def interrupt() -> None:
        began.wait()
        _thread.interrupt_main()

    with reservation.turn("what", lambda: False, doing="does it"):
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            apart.run(wait)


def _begins(event: threading.Event) -> Callable[[], bool]:
    def is_needless() -> bool:
        event.set()
        return False

    return is_needless


def test_a_listener_of_a_mount_may_ask_the_volume(tmp_path: Path) -> None:
    vol = Volume.new("data", strict=True)
    for number in range(3000):
        vol.files.write(f"{number}", b"content")
    vol.finalize()
    again, heard = Volume.open("data"), list[bool]()
    again.mount(mode="copy", progress=lambda _: heard.append(again.is_mounted))
    again.unmount()
    assert heard


@pytest.mark.parametrize("end", ["unmount", "mount", "discard", "finalize"])
def test_the_handler_of_a_signal_may_end_files_while_a_call_of_theirs_is_under_way(end: str) -> None:
    vol = Volume.new("data", strict=True)
    vol.files.write("file", b"content")
    vol.commit()
    is_ended = False

    def look(*_: object) -> None:
        nonlocal is_ended
        sys.setprofile(None)
        getattr(vol, end)()
        is_ended = True

    def called(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_globals["__name__"] == "cowfs.session.files":
            look()

    sys.setprofile(called)
    try:
        with suppress(CowfsError, OSError):
            vol.files.read("file")
    finally:
        sys.setprofile(None)
    assert is_ended
    if end in ("unmount", "mount"):
        vol.unmount()
