"""Who hears how far a commit is."""

from __future__ import annotations

import threading

from cowfs.control import StoreWait
from cowfs.daemon.audience import Audience
from cowfs.version.commit import Progress

WATCHDOG_S = 60


def test_who_waits_for_a_commit_hears_how_far_it_is() -> None:
    audience, commits = Audience(), threading.Lock()
    first: list[Progress | StoreWait] = []
    second: list[Progress | StoreWait] = []
    heard, finished = threading.Event(), threading.Event()

    def hear(event: Progress | StoreWait) -> None:
        second.append(event)
        heard.set()

    def wait_and_commit() -> None:
        with audience.listen(hear), commits:
            audience.tell(Progress("files", 5, 5))
            audience.end()
        finished.set()

    with audience.listen(first.append), commits:
        audience.tell(Progress("files", 1, 9))
        threading.Thread(target=wait_and_commit, daemon=True).start()
        assert heard.wait(WATCHDOG_S), "at once, also if nothing more happens for a while"
        audience.tell(Progress("files", 9, 9))
        audience.end()
    assert finished.wait(WATCHDOG_S)
    assert first == [Progress("files", 1, 9), Progress("files", 9, 9)]
    assert second == [*first, Progress("files", 5, 5)]


def test_nobody_hears_of_a_commit_that_is_over() -> None:
    audience = Audience()
    heard: list[Progress | StoreWait] = []
    with audience.listen(heard.append):
        audience.tell(Progress("index"))
        audience.end()
    with audience.listen(heard.append):
        pass
    audience.tell(Progress("index"))
    assert len(heard) == 1


def test_who_joins_hears_what_is_waited_for_and_when_that_is_over() -> None:
    audience = Audience()
    first: list[Progress | StoreWait] = []
    second: list[Progress | StoreWait] = []
    with audience.listen(first.append):
        audience.wait("waiting")
        with audience.listen(second.append):
            audience.wait("")
    with audience.listen(second.append):
        pass
    assert first == second == [StoreWait("waiting"), StoreWait("")]
