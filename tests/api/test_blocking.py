"""The blocking twin is what the async classes say, and its loop works from anywhere."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading

import pytest

from cowfs import blocking
from cowfs.api.portal import run
from cowfs.errors import InvalidStateError
from tests.api import blocking_twin

pytestmark = pytest.mark.quick


async def thread_name() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


def test_generated_file_is_current() -> None:
    assert blocking_twin.TARGET.read_text() == blocking_twin.render(), "run: python -m tests.api.blocking_twin"


def test_works_inside_a_running_loop() -> None:
    async def notebook_cell() -> str:
        return run(thread_name)

    assert asyncio.run(notebook_cell()) == "cowfs-blocking"


def test_works_in_a_forked_child() -> None:
    code = (
        "import os, sys, anyio\n"
        "from cowfs.api.portal import run\n"
        "async def five(): return await anyio.to_thread.run_sync(lambda: 5)\n"
        "assert run(five) == 5\n"
        "pid = os.fork()\n"
        "assert run(five) == 5\n"
        "if pid: sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, timeout=60).returncode == 0


def test_errors_come_through() -> None:
    with pytest.raises(InvalidStateError):
        _ = blocking.Volume.open("x", store="file:///nowhere").locator


def test_names_are_the_same() -> None:
    import cowfs

    for name in ("Volume", "RWVolume", "ROVolume"):
        asynchronous = {each for each in dir(getattr(cowfs, name)) if not each.startswith("_")}
        assert asynchronous == {each for each in dir(getattr(blocking, name)) if not each.startswith("_")}
