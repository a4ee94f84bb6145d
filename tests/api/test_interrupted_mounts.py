"""Ctrl-C in mount() and unmount(): whatever it interrupts, the next call has not to wait for
anything that the interrupted one has left, nor to fail, also while its traceback is kept, as an
interactive Python keeps it."""

from __future__ import annotations

import _thread
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import pytest

from cowfs.api.mounts import prepared
from cowfs.api.mounts.prepared import signal_all
from cowfs.api.mounts.targets import Mounted
from cowfs.base import clock, interruptible
from cowfs.blocking import ROVolume, RWVolume, Volume
from cowfs.control import live_mount
from cowfs.errors import ConflictError, CowfsError
from cowfs.machine import registry, reservation, sharing
from cowfs.store.backends.s3 import s3_by_obstore
from tests.api.conftest import place
from tests.interrupt import interrupts

__all__ = ["place"]

pytestmark = pytest.mark.usefixtures("place")

MODULES = (
    "contextlib",
    "cowfs.base.interruptible",
    "cowfs.api.mounts.folder",
    "cowfs.api.mounts.fuse",
    "cowfs.api.mounts.launch",
    "cowfs.api.mounts.mount_paths",
    "cowfs.api.mounts.new_folders",
    "cowfs.api.mounts.new_mounts",
    "cowfs.api.ro_volume",
    "cowfs.api.rw_volume",
    "cowfs.api.mounts.used_mount",
    "cowfs.control.client",
    "cowfs.folders.lost_folders",
    "cowfs.folders.making",
    "cowfs.folders.mounted_folders",
    "cowfs.folders.work_left",
    "cowfs.machine.lock",
    "cowfs.machine.reservation",
    "cowfs.machine.sharing",
)
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
    for interrupt in interrupts(MODULES, kept.append, dense=10, sparse=7):
        vol: RWVolume | ROVolume = Volume.open("data") if kind == "volume" else Volume.version(version.locator)
        if what == "unmount":
            vol.mount(mode=mode)
        call: Callable[[], object] = partial(vol.mount, mode=mode) if what == "mount" else vol.unmount
        with interrupt:
            call()
        path = vol.mount(mode=mode)
        assert (path / "file").read_bytes() == b"content", f"interrupted before line {interrupt.number}"
        vol.unmount()
        assert not waits, f"interrupted before line {interrupt.number}"
        assert {*sharing._held} <= held_before, f"interrupted before line {interrupt.number}"
        assert not registry.list_mounts(), f"interrupted before line {interrupt.number}"
    assert interrupt.number > 10


def test_an_interrupted_mount_ends_its_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    started = list[Any]()
    spawn = prepared.spawn

    def spawned(*arguments: Any, **options: Any) -> Any:
        process = spawn(*arguments, **options)
        started.append(process)
        os.kill(os.getpid(), signal.SIGINT)  # the daemon may be ready before who only looks now and then hears of it
        return process

    monkeypatch.setattr(prepared, "spawn", spawned)
    vol = Volume.new("data", strict=True)
    with pytest.raises(KeyboardInterrupt):
        vol.mount()
    [process] = started
    assert not signal_all(process, None)
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
            interruptible.run(wait)


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


@pytest.mark.parametrize("end", ["finalize", "discard", "unmount"])
def test_who_is_interrupted_before_the_daemon_is_asked_has_the_mount_as_before(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    vol = Volume.new("data", strict=True)
    path = vol.mount()
    (path / "file").write_text("content")
    ask, asked = live_mount._ask, list[str]()

    def interrupted(entry: Any, operation: Any, *arguments: Any, **named: Any) -> Any:
        if operation.name in ("unmount", "discard") and not asked:
            asked.append(operation.name)
            _thread.interrupt_main()
            while interruptible.is_wanted():
                clock.sleep_s(0.01)
            interruptible.require_wanted()
        return ask(entry, operation, *arguments, **named)

    monkeypatch.setattr(live_mount, "_ask", interrupted)
    with pytest.raises(KeyboardInterrupt):
        getattr(vol, end)()
    assert len(asked) == 1
    assert not sharing._ending
    other = Volume.open("data")
    assert other.mount() == path
    assert (path / "file").read_text() == "content"
    other.unmount()
    vol.unmount()
    assert not registry.list_mounts()


def test_a_refused_unmount_keeps_its_volume_no_longer_than_its_error() -> None:
    vol = Volume.new("data", strict=True)
    path = vol.mount()
    with (path / "file").open("w"), pytest.raises(ConflictError):
        vol.unmount()
    is_gone = weakref.ref(vol)
    gc.disable()
    try:
        del vol
        assert is_gone() is None
    finally:
        gc.enable()
    other = Volume.open("data")
    other.mount()
    other.unmount()
    assert not registry.list_mounts()


LOGS = """
import logging, os, signal, sys
from cowfs.blocking import Volume
class Stream:
    def write(self, text):  # while logging holds the handler's lock
        if "mine" in text:
            os.kill(os.getpid(), signal.SIGTERM)
        sys.stdout.write(text)
    def flush(self):
        pass
logging.basicConfig(level=logging.INFO, stream=Stream())
first, second = Volume.new("data", strict=True), Volume.open("data")
first.mount()
second.mount()
signal.signal(signal.SIGTERM, lambda *_: first.unmount())
logging.getLogger("mine").info("mine")
second.unmount()
"""

ENDS = """
from cowfs.blocking import Volume
class Data:
    def __init__(self):
        self.vol = Volume.new("data", strict=True)
        self.vol.mount()
    def __del__(self):
        self.vol.unmount()
data = Data()
"""


@pytest.mark.parametrize(("program", "said"), [(LOGS, "stays mounted: others share it"), (ENDS, "")])
def test_what_works_apart_needs_nothing_that_its_caller_may_hold(program: str, said: str) -> None:
    """A lock of `logging`, or the interpreter, which is about to end."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=environment, check=True
    )
    assert said in done.stdout
    for entry in registry.list_mounts():  # the interpreter may have been too far
        Mounted(entry).unmount()


def test_a_request_that_nobody_waits_for_ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_by_obstore, "CLOSING_S", 0.1)
    is_asked, is_over = threading.Event(), threading.Event()

    def request() -> None:
        is_asked.set()
        is_over.wait()

    def interrupt() -> None:
        is_asked.wait()
        _thread.interrupt_main()

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        interruptible.run(partial(s3_by_obstore._run_off_main_thread, request))
    is_over.set()


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
