"""Links that let anyone who has them read one file or one version (`/s/…`), until they expire or
are revoked.

    <state directory>/web/secret       random: the last part of each link is made with it
    <state directory>/web/links.json   the links that count: a link that is not there is revoked

Both are files of the server's user alone, in a private directory, and last longer than the server.
A link is ID.CODE, and CODE the HMAC of ID. Writers and admins make links; they are revoked by who
made them and by admins. Threads and processes: any; a lock orders changes.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from cowfs.base import clock, config, private_directories
from cowfs.web import downloads
from cowfs.web.addresses import check_path, path_of, quote_path
from cowfs.web.answers import show
from cowfs.web.api_values import LinkValue
from cowfs.web.forms import field, read_form
from cowfs.web.places import places_of
from cowfs.web.users import ADMIN, UsersFile, user_of

DEFAULT_HOURS = 24
MOST_HOURS = 24 * 366
HOURS = {"type": "integer", "minimum": 1, "maximum": MOST_HOURS}
LINKS = 10_000
FILE_BYTES = 16 << 20
HOUR_NS = 3600 * 10**9


def make(request: Request, place: str, volume: str, version: str, path: str, hours: int) -> LinkValue:
    """403: the user is a viewer. NotFoundError, FileNotFoundError: there is no such version or
    path."""
    user = user_of(request)
    if not user.may_write:
        raise HTTPException(403, f"{user.name} is a {user.role}, and makes no links")
    places_of(request).require_changes()
    found = places_of(request).version(place, volume, version)
    path = check_path(path)
    if path != "/" and found.files.stat(path).type != "file":
        raise HTTPException(400, "a link leads to a file or a whole version")
    until_ns = clock.now_ns() + hours * HOUR_NS
    made = LinkValue(clock.random_bytes(8).hex(), "", place, volume, found.id, path, user.name, until_ns)
    with _change() as links:
        if len(links) >= LINKS:
            raise HTTPException(409, "there are too many links; revoke some")
        links.append({**_to_record(made), "store_url": places_of(request).store(place).url})
    return replace(made, url=_url(made.id))


def list_visible(request: Request) -> list[LinkValue]:
    """The links that the user may revoke and that have not expired."""
    user = user_of(request)
    found = [each for _, each in _load() if user.role == ADMIN or each.created_by == user.name]
    return [replace(each, url=_url(each.id)) for each in found]


def revoke(request: Request, id: str) -> None:
    """404: there is no such link, or it is another user's."""
    if not any(each.id == id for each in list_visible(request)):
        raise HTTPException(404, f"there is no link {id!r}")
    with _change() as links:
        links[:] = [each for each in links if each["id"] != id]


def follow(request: Request) -> Response:
    """What a link leads to: a file; of a version, its directories, files and archives."""
    id, _, code = request.path_params["token"].partition(".")
    if not hmac.compare_digest(code.encode(), _code(id).encode()):
        raise HTTPException(404, "this link does not count (any more)")
    places = places_of(request)
    found = next((each for each in _load() if each[1].id == id), None)
    if found is None or places.store(found[1].store).url != found[0]:
        raise HTTPException(404, "this link does not count (any more)")
    link = found[1]
    users: UsersFile | None = request.app.state.access.users
    if users is not None and not ((maker := users.find(link.created_by)) and maker.may_write):
        raise HTTPException(404, "this link does not count (any more)")
    version = places.version(link.store, link.volume, link.version)
    if link.path != "/":
        return downloads.send_file(request, version, link.path)
    path = path_of(request)
    entry = version.files.stat(path)
    if entry.type == "file":
        return downloads.send_file(request, version, path)
    if (kind := request.query_params.get("as")) in ("tar", "zip"):
        return downloads.send_archive(request, version, path, kind)
    entries = list(version.files.ls(path))
    base = f"/s/{request.path_params['token']}"
    rows = [(each, f"{base}/{quote_path(each.path)}") for each in entries]
    return show(request, "shared.html", link=link, path=path, here=f"{base}/{quote_path(path)}", rows=rows)


def page(request: Request) -> Response:
    return show(request, "links.html", links=list_visible(request))


async def make_by_form(request: Request) -> Response:
    async with read_form(request) as form:
        store, volume, version = (field(form, name) for name in ("store", "volume", "version"))
        path, hours = os.fsdecode(unquote_to_bytes(field(form, "path"))), field(form, "hours") or str(DEFAULT_HOURS)
    if not (hours.isascii() and hours.isdecimal()) or not 1 <= int(hours[:9]) <= MOST_HOURS:
        raise HTTPException(400, f"a link lasts 1 to {MOST_HOURS} hours")
    await run_in_threadpool(make, request, store, volume, version, path, int(hours[:9]))
    return RedirectResponse("/links", 303)


async def revoke_by_form(request: Request) -> Response:
    await run_in_threadpool(revoke, request, request.path_params["id"])
    return RedirectResponse("/links", 303)


def _url(id: str) -> str:
    return f"/s/{id}.{_code(id)}"


def _code(id: str) -> str:
    return hmac.digest(read_secret("secret"), id.encode("utf-8", "surrogateescape"), hashlib.sha256).hex()


def read_secret(name: str) -> bytes:
    """64 hex digits of a file of the state directory, which the first call makes."""
    path = _directory() / name
    if not path.exists():
        with tempfile.NamedTemporaryFile(dir=path.parent) as file:  # of mode 0600
            file.write(clock.random_bytes(32).hex().encode())
            file.flush()
            os.fsync(file.fileno())
            with suppress(FileExistsError):  # made by another process at the same moment
                os.link(file.name, path)
    return path.read_bytes()


def _directory() -> Path:
    found = config.state_subdirectory("web")
    private_directories.make(found)
    return found


def _load() -> list[tuple[str, LinkValue]]:
    """Links that have not expired, without `url`, each with the URL of its store."""
    now_ns = clock.now_ns()
    return [(each["store_url"], _from_record(each)) for each in _read(_directory()) if int(each["until_ns"]) > now_ns]


def _read(directory: Path) -> list[dict[str, Any]]:
    try:
        with open(directory / "links.json", "rb") as file:
            found: list[dict[str, Any]] = json.loads(file.read(FILE_BYTES))
    except FileNotFoundError:
        return []
    return found


@contextmanager
def _change() -> Iterator[list[dict[str, Any]]]:
    """The links, to be changed in the block; expired ones are dropped. 409: there are too many."""
    directory = _directory()
    with open(directory / "links.lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        now_ns = clock.now_ns()
        links = [each for each in _read(directory) if int(each["until_ns"]) > now_ns]
        yield links
        if len(data := json.dumps(links).encode()) > FILE_BYTES:
            raise HTTPException(409, "there are too many links; revoke some")
        made = directory / "links.new"
        with open(made, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(made, directory / "links.json")


def _to_record(link: LinkValue) -> dict[str, Any]:
    return {name: value for name, value in vars(link).items() if name != "url"}


def _from_record(record: dict[str, Any]) -> LinkValue:
    fields = {name: value for name, value in record.items() if name != "store_url"}
    return LinkValue(url="", **fields)
