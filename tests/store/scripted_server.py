"""An HTTP server that answers each request as a test says: for what a real S3 server does only when
it breaks."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import BinaryIO, Self


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""


# Bytes to send, and whether the connection stays open.
Answer = tuple[bytes, bool]


def response(status: str, body: bytes = b"", *, claimed_length: int | None = None) -> bytes:
    length = len(body) if claimed_length is None else claimed_length
    return f"HTTP/1.1 {status}\r\nContent-Length: {length}\r\nContent-Type: application/xml\r\n\r\n".encode() + body


STORED = b'HTTP/1.1 200 OK\r\nETag: "' + b"1" * 32 + b'"\r\nContent-Length: 0\r\n\r\n'
"""What a PUT is answered."""


class ScriptedServer:
    """`requests` lists what arrived. `answer` runs on the connection's thread.

    take: reads a body of so many bytes, as slowly as a test wants; buffer_bytes: what the kernel
    may take in its place.
    """

    def __init__(
        self,
        answer: Callable[[Request], Answer],
        *,
        take: Callable[[BinaryIO, int], bytes] = lambda stream, length: stream.read(length),
        buffer_bytes: int | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._answer = answer
        self._take = take
        self._listener = socket.socket()
        if buffer_bytes is not None:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(128)
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self._listener = tls.wrap_socket(self._listener, server_side=True, do_handshake_on_connect=False)
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self.requests: list[Request] = []

    @property
    def endpoint(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for open_socket in (self._listener, *self._connections):
            with suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as stream:
                while line := stream.readline():
                    method, target, _ = line.decode().split()
                    length, headers = 0, {}
                    while (header := stream.readline().strip()) != b"":
                        name, _, value = header.partition(b":")
                        headers[name.decode().lower()] = value.strip().decode()
                        if name.lower() == b"content-length":
                            length = int(value)
                    request = Request(method, target, self._take(stream, length), headers)
                    self.requests.append(request)
                    data, stays_open = self._answer(request)
                    connection.sendall(data)
                    if not stays_open:
                        return
        except (OSError, ValueError):
            return
