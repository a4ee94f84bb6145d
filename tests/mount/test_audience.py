"""Who hears how far a commit is."""

from __future__ import annotations

import threading

from cowfs.daemon.audience import Audience
from cowfs.version.commit import Progress

WATCHDOG_S = 60


def test_who_waits_for_a_commit_hears_how_far_it_is() -> None:
    audience, commits = Audience(), threading.Lock()
    first: list[Progress] = []
    second: list[Progress] = []
    heard, finished = threading.Event(), threading.Event()

    def hear(progress: Progress) -> None:
        second.append(progress)
        heard.set()

    def wait_and_commit() -> None:
        with audience.joined(hear), commits:
            audience.tell(Progress("files", 5, 5))
            audience.end()
        finished.set()

    with audience.joined(first.append), commits:
        audience.tell(Progress("files", 1, 9))
        threading.Thread(target=wait_and_commit, daemon=True).start()
        assert heard.wait(WATCHDOG_S), "at once, also if nothing more happens for a while"
        audience.tell(Progress("files", 9, 9))
        audience.end()
    assert finished.wait(WATCHDOG_S)
    assert [progress.done for progress in first] == [1, 9]
    assert [progress.done for progress in second] == [1, 9, 5]


def test_nobody_hears_of_a_commit_that_is_over() -> None:
    audience = Audience()
    heard: list[Progress] = []
    with audience.joined(heard.append):
        audience.tell(Progress("index"))
        audience.end()
    with audience.joined(heard.append):
        pass
    audience.tell(Progress("index"))
    assert len(heard) == 1
