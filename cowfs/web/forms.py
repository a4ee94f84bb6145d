"""What browsers send in forms. Files of a form, past SPOOL_BYTES of each, and the body of an upload
go to the disk as they arrive, at most the server's limit."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import BinaryIO, cast

from python_multipart.multipart import parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.types import Message

FORM_BYTES = 64 << 10
FILES = 200
"""In a form. Each may hold SPOOL_BYTES of memory and an open file."""
FIELDS = 16
SPOOL_BYTES = 32 << 10


def limit_body(request: Request, limit: int) -> Request:
    """The request, whose body ends with 413 past so many bytes."""
    seen = 0
    if int(request.headers.get("content-length", "0")) > limit:
        raise HTTPException(413, f"more than {limit} bytes were sent")

    async def receive() -> Message:
        nonlocal seen
        message = await request.receive()
        seen += len(message.get("body", b""))
        if seen > limit:
            raise HTTPException(413, f"more than {limit} bytes were sent")
        return message

    return Request(request.scope, receive)


class _Parts(MultiPartParser):
    """Reads a body of parts. MultiPartException: it lacks its end, so its last part may be cut."""

    spool_max_size = SPOOL_BYTES
    is_whole = False

    def on_end(self) -> None:
        self.is_whole = True

    async def parse(self) -> FormData:
        self.stream = self._read_whole(self.stream)
        return await super().parse()

    async def _read_whole(self, pieces: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        async for piece in pieces:
            yield piece
        if not self.is_whole:
            raise MultiPartException("the form ends before its closing boundary")


@asynccontextmanager
async def read_form(request: Request, limit: int = FORM_BYTES) -> AsyncIterator[FormData]:
    """The form, whose files are closed at the end. 400: it is cut, or has too many parts."""
    body = limit_body(request, limit)
    if parse_options_header(body.headers.get("content-type"))[0] == b"multipart/form-data":
        parts = _Parts(body.headers, body.stream(), max_files=FILES, max_fields=FIELDS, max_part_size=FORM_BYTES)
        try:
            form = await parts.parse()
        except MultiPartException as error:
            raise HTTPException(400, error.message) from None
    else:
        form = await body.form(max_files=0, max_fields=FIELDS, max_part_size=FORM_BYTES)
    try:
        yield form
    finally:
        await form.close()


def field(form: FormData, name: str) -> str:
    """The text of a field; "" without it."""
    found = form.get(name, "")
    return found if isinstance(found, str) else ""


def files(form: FormData, name: str) -> list[UploadFile]:
    """The files of a field. A browser sends one without a name if none was chosen."""
    return [each for each in form.getlist(name) if isinstance(each, UploadFile) and each.filename]


@asynccontextmanager
async def spool_body(request: Request, limit: int) -> AsyncIterator[BinaryIO]:
    """The body as a file."""
    with tempfile.TemporaryFile(prefix="cowfs-web-") as file:
        async for piece in limit_body(request, limit).stream():
            await run_in_threadpool(file.write, piece)
        yield cast("BinaryIO", file)
