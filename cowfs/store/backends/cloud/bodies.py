"""Bodies of requests that aiohttp sends and of answers that it receives, and how long it waits.

A body is passed on in pieces, and the kernel is configured to buffer few unsent bytes. So a piece
that the kernel has accepted is almost sent.
"""

from __future__ import annotations

import asyncio
import socket
from typing import cast

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from fsspec.asyn import sync
from fsspec.implementations.http import HTTPFileSystem

from cowfs.store.contract import AcceptsSize

CONNECT_S = 5
SILENCE_S = 60
LONGEST_S = 3600
PIECE_BYTES = 64 << 10
"""Of a body: each must be taken within SILENCE_S."""
_UNSENT_BYTES = 128 << 10


async def read_body(answer: aiohttp.ClientResponse, accepts: AcceptsSize) -> bytes:
    """All of it, as long as `accepts` does."""
    accepts(answer.content_length or 0)
    pieces, size = [], 0
    async for piece in answer.content.iter_any():
        pieces.append(piece)
        accepts(size := size + len(piece))
    return b"".join(pieces)


def get_whole(files: HTTPFileSystem, url: str, accepts: AcceptsSize) -> bytes:
    """As fsspec's `cat_file`, as long as `accepts` does."""

    async def get() -> bytes:
        session = await files.set_session()
        async with session.get(files.encode_url(url), **files.kwargs) as answer:
            files._raise_not_found_for_status(answer, url)
            return await read_body(answer, accepts)

    return cast("bytes", sync(files.loop, get))


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
