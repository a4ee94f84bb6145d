"""The mounts of this machine with live figures: a page, and server-sent events that renew it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

from anyio import sleep
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from cowfs import mounts
from cowfs.blocking import MountSummary
from cowfs.web.answers import show
from cowfs.web.api_values import Mounts, MountValue, to_json

EVERY_S = 2.0


def read() -> Mounts:
    return Mounts([_describe(each) for each in mounts.status().mounts])


def _describe(mount: MountSummary) -> MountValue:
    details, writer = mount.details, mount.writer
    waiting = details.waiting if details is not None else None
    return MountValue(
        mount.mount_path,
        mount.volume,
        mount.store_url,
        mount.version,
        mount.state,
        mount.work,
        mount.kind,
        mount.pid,
        mount.since_ns,
        mount.has_uncommitted,
        memory_bytes=details.memory_bytes if details is not None else None,
        uploaded_bytes=writer.uploaded_bytes if writer is not None else None,
        waiting_requests=waiting.requests if waiting is not None else None,
        oldest_request_s=waiting.oldest_s if waiting is not None else None,
    )


def page(request: Request) -> Response:
    return show(request, "mounts.html", mounts=read().mounts)


def events(request: Request) -> Response:
    """One event with all mounts every EVERY_S, until the client leaves."""

    async def tell() -> AsyncIterator[str]:
        while True:
            found = await run_in_threadpool(read)
            yield f"data: {json.dumps(to_json(found))}\n\n"
            await sleep(EVERY_S)

    return StreamingResponse(tell(), media_type="text/event-stream")
