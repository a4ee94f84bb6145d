"""A relay to a server on this machine that can fall silent: connections stay open, new ones are
accepted, and nothing comes back any more. As a dropped network looks to a client."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from types import TracebackType
from typing import Self

PIECE_BYTES = 65_536


class SilentRelay:
    """has_swallowed: something was sent since it fell silent, by either side."""

    def __init__(self, port: int, *, silent_after_bytes: int | None = None) -> None:
        """silent_after_bytes: it falls silent when clients have sent, or got, so many."""
        self._to_port = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._silent_after_bytes = silent_after_bytes
        self._relayed_bytes = 0
        self._is_silent = threading.Event()
        self._is_over = threading.Event()
        self._threads: list[threading.Thread] = []
        self.has_swallowed = threading.Event()

    @property
    def port(self) -> int:
        port: int = self._listening.getsockname()[1]
        return port

    def fall_silent(self) -> None:
        self._is_silent.set()

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()
        self._listening.close()

    def _start(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._is_over.is_set():
            if select.select([self._listening], [], [], 0.05)[0]:
                self._start(self._relay, self._listening.accept()[0])

    def _relay(self, client: socket.socket) -> None:
        with (
            client,
            socket.create_connection(("127.0.0.1", self._to_port)) as server,
            # Either side may close with bytes unread, as a client that gives up does.
            contextlib.suppress(ConnectionResetError, BrokenPipeError),
        ):
            other = {client: server, server: client}
            while not self._is_over.is_set():
                for ready in select.select([client, server], [], [], 0.05)[0]:
                    data = ready.recv(PIECE_BYTES)
                    if not data:
                        return
                    self._count(len(data))
                    if self._is_silent.is_set():
                        self.has_swallowed.set()
                        continue
                    other[ready].sendall(data)

    def _count(self, length: int) -> None:
        self._relayed_bytes += length
        if self._silent_after_bytes is not None and self._relayed_bytes > self._silent_after_bytes:
            self._is_silent.set()
