"""The application: routes, errors, and the gate before them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio.to_thread import current_default_thread_limiter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect

from cowfs.blocking import Store
from cowfs.errors import CowfsError
from cowfs.web import answers
from cowfs.web.gate import Access, Gate
from cowfs.web.places import Places
from cowfs.web.routes import routes

UPLOAD_BYTES = 16 << 30
WORKERS = 100
"""Requests that read at the same time. Each waits for a store in a thread of its own."""


@asynccontextmanager
async def _with_workers(app: Starlette) -> AsyncIterator[None]:
    current_default_thread_limiter().total_tokens = WORKERS
    yield


def make_app(store: Store, access: Access, *, read_only: bool = False, upload_bytes: int = UPLOAD_BYTES) -> Starlette:
    """upload_bytes: the most that one upload may have."""
    app = Starlette(
        routes=routes(),
        middleware=[Middleware(Gate, access=access)],
        exception_handlers={
            CowfsError: answers.on_cowfs_error,
            OSError: answers.on_path_error,
            HTTPException: answers.on_http_error,
            ClientDisconnect: answers.on_disconnect,
        },
        lifespan=_with_workers,
    )
    app.state.places = Places(store, read_only=read_only)
    app.state.access = access
    app.state.upload_bytes = upload_bytes
    return app
