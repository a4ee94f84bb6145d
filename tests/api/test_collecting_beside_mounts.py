"""A collection asks the mounts of its own machine, and waits for those that do not answer."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from cowfs.api.access import file_session
from cowfs.api.upkeep import collecting, local_writers
from cowfs.blocking import Store, Volume
from cowfs.machine import registry
from cowfs.maintain.collect import collecting as maintain_collecting
from tests.api.conftest import place
from tests.cli.test_gc import age

__all__ = ["place"]

pytestmark = [pytest.mark.mount, pytest.mark.usefixtures("place")]


def make_garbage(*, is_old: bool) -> None:
    """A pruned version, and no writer that is left."""
    for _ in range(2):
        Volume.open("data", create=True).files.write("file", os.urandom(100_000))
        Volume.open("data").commit()
    file_session._end_all()
    Store().prune(Store().plan_prune("data", last=1))
    if is_old:
        age(2 * 3600)


def mount() -> Path:
    """An idle mount, which reads no list before its next heartbeat, in a minute."""
    work = Volume.open("work", create=True)
    path = work.mount()
    (path / "file").write_text("here")
    work.commit()
    return Path(path)


def test_an_idle_mount_is_not_waited_for() -> None:
    make_garbage(is_old=True)
    mount()
    said: list[str] = []
    plan = Store().plan_gc(say=said.append)
    assert plan.report.freed_versions == 1
    done = plan.apply(say=said.append)
    assert (done.is_done, said, done.freed_bytes > 100_000) == (True, [], True)
    Volume.open("work").unmount()


def test_nobody_is_asked_while_everything_is_too_young(monkeypatch: pytest.MonkeyPatch) -> None:
    make_garbage(is_old=False)
    mount()
    monkeypatch.setattr(local_writers.LocalWriters, "ask", lambda *_: pytest.fail("a writer is asked"))
    said: list[str] = []
    plan = Store().plan_gc(say=said.append)
    done = plan.apply(say=said.append)
    assert (done.is_done, said, done.freed_bytes) == (True, [], 0)
    assert done.young_bytes > 100_000
    Volume.open("work").unmount()


def test_a_mount_that_does_not_answer_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing that it may use is deleted. The next collection continues."""
    make_garbage(is_old=True)
    path = mount()
    plan = Store().plan_gc()
    pid = registry.list_mounts()[0].pid
    monkeypatch.setattr(local_writers, "TIMEOUT_S", 0.5)
    monkeypatch.setattr(maintain_collecting, "PAUSE_S", 0.01)
    init = maintain_collecting.Collection.__init__
    assert init.__kwdefaults__ is not None
    monkeypatch.setitem(init.__kwdefaults__, "wait_s", 1.0)
    said: list[str] = []
    os.kill(pid, signal.SIGSTOP)
    try:
        done = plan.apply(say=said.append)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (done.is_done, [each.volume for each in done.waits_for]) == (False, ["work"])
    assert said[0].startswith("waiting for ")
    assert Volume.version("data").files.read("file")
    assert collecting.gc(None, dry_run=False, plan=None).is_done
    assert (path / "file").read_text() == "here"
    Volume.open("work").unmount()
