"""A mount whose session, descriptor and lane are in the test's own hands: no daemon.

Only other processes may use its files: a page fault on a mount that this process serves could wait
for itself.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cowfs.control import MountSpec
from cowfs.daemon.lane import FastLane, Handshake
from cowfs.daemon.request_server import CacheTimes
from cowfs.machine import mount_table, mounting
from cowfs.session.looks import Looks
from cowfs.session.opening import open_session
from cowfs.session.session import Session
from tests.mount.daemons import WAIT_S, Place


class Served:
    """From construction the path is mounted; `serve` starts a lane, `device_fd` is a copy of the
    descriptor that stays open."""

    def __init__(self, place: Place, spec: MountSpec) -> None:
        self.spec = spec
        self.path = Path(spec.mount_path)
        self.path.mkdir(exist_ok=True)
        options = mounting.options(spec.volume, read_only=spec.mode == "ro", allow_other=None)
        self.device_fd = mounting.mount(spec.mount_path, options)
        self._mount = mounting.verify(spec.mount_path, read_only=spec.mode == "ro")
        self._stack = ExitStack()
        self.session = self.open()
        self.lane: FastLane | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        mount_table.abort(self._mount)
        mounting.unmount(self._mount, lazy=True)
        if self.lane is not None:
            self.lane.close(0)
        self._stack.close()
        os.close(self.device_fd)

    def open(self) -> Session:
        """Opens the session, anew if it was open: as a daemon that is started again."""
        self._stack.close()
        self.session = open_session(self.spec, self._stack, threading.Event())
        return self.session

    def connect(self, handshake: Handshake | None = None, **parts: Any) -> FastLane:
        looks = Looks(self.session, is_listed=False)
        self._stack.callback(looks.close)
        usual = {"load_rows": looks.load_rows, "load_chunks": looks.load_chunks}
        return FastLane(
            looks.engine,
            os.dup(self.device_fd),
            CacheTimes(0, 0, 0),
            relieve=self.session.room.relieve,
            handshake=handshake,
            **{**usual, **parts},
        )

    def serve(self, handshake: Handshake | None = None, **parts: Any) -> Handshake:
        """Starts a lane; what it agreed on with the kernel, or goes on from."""
        self.lane = lane = self.connect(handshake, **parts)
        lane.start()
        assert lane.wait_until_ready(WAIT_S)
        assert lane.handshake is not None
        return lane.handshake

    def wait_for_requests(self) -> None:
        """Until the kernel has at least one request that nobody has read."""
        readable = select.poll()
        readable.register(self.device_fd, select.POLLIN)
        assert readable.poll(WAIT_S * 1000), "nobody asks for anything"


class Program:
    """Another process, run step by step: each `step` is a line of Python, and gives what it
    prints."""

    LOOP = "import os, sys\nfor line in sys.stdin: exec(line); sys.stdout.flush()"

    def __init__(self, directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", self.LOOP],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PLACE": str(directory)},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    def begin(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def end(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def step(self, line: str) -> str:
        self.begin(line)
        return self.end()
