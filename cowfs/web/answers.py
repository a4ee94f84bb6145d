"""Answers: pages from templates, JSON, and what an error becomes.

Templates escape every value. Characters that are not printable, and bytes of names that are not
UTF-8, are shown as backslash sequences, so that names that differ look different.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from cowfs.errors import CowfsError
from cowfs.rendering import first_line, format_size, format_time
from cowfs.web import addresses

STATUS = {
    "invalid_input": 400,
    "not_found": 404,
    "conflict": 409,
    "lease_held": 409,
    "lease_lost": 409,
    "invalid_state": 409,
    "read_only": 403,
    "purged": 410,
    "no_space": 507,
    "unsupported_format": 501,
    "access_denied": 502,
    "corrupt": 502,
    "source_changed": 502,
    "unavailable": 503,
}
"""By kind of error; 500 for others. 502: the server is all right, and its store is not."""
RETRY_S = "5"


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("cowfs.web"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_finish,
    )
    made.filters.update(
        size=format_size,
        time=format_time,
        first_line=first_line,
        query=addresses.encode_query,
        quote=addresses.quote_path,
    )
    made.globals.update(path_url=addresses.path_url, volume_url=addresses.volume_url)
    return made


def visible(text: str) -> str:
    """Text in which nothing is hidden, and which can be encoded."""
    if text.isprintable():
        return text
    return "".join(
        each
        if each.isprintable()
        else f"\\x{ord(each) - 0xDC00:02x}"
        if 0xDC80 <= ord(each) <= 0xDCFF
        else ascii(each)[1:-1]
        for each in text
    )


def _finish(value: Any) -> Any:
    return visible(value) if type(value) is str else "" if value is None else value


def show(scope: Scope | Request, template: str, status: int = 200, **values: Any) -> HTMLResponse:
    user, csrf = scope.get("user"), scope.get("csrf", "")
    text = environment().get_template(template).render(user=user, csrf=csrf, **values)
    return HTMLResponse(text, status)


def give(record: Mapping[str, Any], status: int = 200) -> Response:
    """A JSON document. Names that are not UTF-8 have surrogates, as in the output of commands."""
    return Response(json.dumps(record), status, media_type="application/json")


def refuse(
    scope: Scope | Request, status: int, message: str, hint: str = "", kind: str = "refused", **headers: str
) -> Response:
    """An error, as JSON for the API and as a page for others."""
    hint = hint.replace("\0", "")  # where commands have the option --store, which these do not need
    path = scope["path"] if not isinstance(scope, Request) else scope.url.path
    if path.startswith("/api/"):
        answer = give({"error": {"kind": kind, "message": visible(message), "hint": visible(hint)}}, status)
    else:
        answer = show(scope, "error.html", status, code=status, message=message, hint=hint)
    for name, value in headers.items():
        answer.headers[name.replace("_", "-")] = value
    return answer


async def on_cowfs_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, CowfsError)
    status = STATUS.get(error.kind, 500)
    if error.kind == "invalid_state" and request.method in ("GET", "HEAD"):
        status = 503  # of the store: who only reads is in no conflict
    retry = {"retry_after": RETRY_S} if status == 503 else {}
    return refuse(request, status, error.message, error.hint, error.kind, **retry)


async def on_path_error(request: Request, error: Exception) -> Response:
    """Of a path of a version: FileNotFoundError and its like."""
    assert isinstance(error, OSError)
    name = f": {error.filename}" if isinstance(error.filename, str) else ""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return refuse(request, 404, f"nothing is there{name}", kind="not_found")
    is_wrong = error.errno in (errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP)
    return refuse(request, 400 if is_wrong else 502, f"{error.strerror}{name}")


async def on_disconnect(request: Request, error: Exception) -> Response:
    """Nobody gets this: the client went away while it sent."""
    return Response(status_code=400)


async def on_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = {404: "not_found", 400: "invalid_input"}.get(error.status_code, "refused")
    return refuse(request, error.status_code, error.detail, kind=kind, **(error.headers or {}))
