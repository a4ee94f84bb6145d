"""How a mount ends whose engine was found half changed."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cowfs.daemon.mappings import Mappings
from cowfs.daemon.process import Daemon
from cowfs.errors import InvalidStateError

pytestmark = pytest.mark.quick


def test_notices_return_before_the_server_stops() -> None:
    """A notice returns when the kernel's writes have been answered: without a server its thread
    would sleep past kill -9. No engine can be broken from outside, so this one only says so."""
    order: list[str] = []
    under_way, is_answered = threading.Event(), threading.Event()

    def notice(ino: int) -> None:
        under_way.set()
        assert is_answered.wait(60)
        order.append("the notice returned")

    engine: Any = SimpleNamespace(is_broken=lambda: True, writable_handles=lambda: [1])
    mappings = Mappings(engine, cast(Any, None), notice)
    daemon = Daemon.__new__(Daemon)
    daemon._server = cast(Any, SimpleNamespace(stop=lambda: order.append("the server was stopped")))
    flushing = threading.Thread(target=mappings.flush)
    flushing.start()
    assert under_way.wait(60)
    watch = threading.Thread(target=lambda: daemon._look_after(cast(Any, SimpleNamespace(engine=engine)), mappings))
    watch.start()
    watch.join(0.3)
    assert order == []
    is_answered.set()
    for thread in (flushing, watch):
        thread.join(60)
    assert order == ["the notice returned", "the server was stopped"]
    with pytest.raises(InvalidStateError):
        mappings.flush()
