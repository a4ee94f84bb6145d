"""Bodies of requests that aiohttp sends, and how long it waits.

A body is handed over in pieces, and the kernel is told to keep little of it that was not sent, so
that a piece taken is a piece on its way.
"""

from __future__ import annotations

import asyncio
import socket

import aiohttp
from aiohttp.abc import AbstractStreamWriter

CONNECT_S = 5
SILENCE_S = 60
LONGEST_S = 3600
PIECE_BYTES = 64 << 10
"""Of a body: each must be taken within SILENCE_S."""
_UNSENT_BYTES = 128 << 10


class WatchedBody(aiohttp.Payload):
    """A request's body, handed over piece by piece: TimeoutError when the connection takes none for
    SILENCE_S."""

    def __init__(self, body: bytes | bytearray) -> None:
        super().__init__(body)
        self._size = len(body)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return bytes(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        transport = getattr(writer, "transport", None)
        connection = transport and transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        body = memoryview(self._value)[:content_length]
        for start in range(0, len(body), PIECE_BYTES):
            async with asyncio.timeout(SILENCE_S):
                await writer.write(body[start : start + PIECE_BYTES])
                await writer.drain()
