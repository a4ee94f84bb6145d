"""The JSON API: a table of operations, each with what it takes and answers, so that the OpenAPI
document is made of what is carried out.

An operation gets the request and the members of its JSON body, blocks in a worker thread, and
returns a dataclass of `api_values`; errors become {"error": {kind, message, hint}}.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from cowfs.blocking import MergeReport, PrunePlan
from cowfs.web import api_values as values
from cowfs.web import downloads, live_mounts, operations, pages, plans, shared_links
from cowfs.web.addresses import OWN_STORE, check_name, path_of, query_path
from cowfs.web.answers import give
from cowfs.web.forms import FORM_BYTES, limit_body, spool_body
from cowfs.web.operations import NewFile
from cowfs.web.places import briefly, places_of, version_of
from cowfs.web.users import user_of

PREFIX = "/api/v1"
STORE = "/stores/{store}"
VOLUME = STORE + "/volumes/{name}"
VERSION = VOLUME + "/versions/{version}"
MOST = 10_000
DEFAULT = 1000
BYTES = "application/octet-stream"

Body = Mapping[str, Any]
Run = Callable[[Request, Body], Any]
TEXT = {"type": "string"}
NUMBER = {"type": "integer", "minimum": 1, "maximum": MOST}
PAGE = {"type": "integer", "minimum": 1, "maximum": 100_000_000}
FLAG = {"type": "boolean"}


@dataclass(frozen=True)
class Operation:
    """answer: a dataclass; bytes for a download. query: schema by name; body: the same for members
    of a JSON object, all of which are required but those in `optional`. takes_bytes: the body is a
    file's content."""

    method: str
    path: str
    summary: str
    answer: type
    run: Run
    query: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    body: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    takes_bytes: bool = False


def _find_place(request: Request) -> tuple[str, str]:
    return request.path_params["store"], check_name(request.path_params["name"])


def _session(request: Request, body: Body) -> values.SessionValue:
    user = user_of(request)
    return values.SessionValue(user.name, cast("Any", user.role), request.scope["csrf"])


def _stores(request: Request, body: Body) -> values.Stores:
    places = places_of(request)
    own = values.StoreValue(OWN_STORE, places.own.url, not places.is_writable(OWN_STORE))
    others = [values.StoreValue(each.name, places.store(each.name).url, True) for each in places.list_named()]
    return values.Stores([own, *others])


def _volumes(request: Request, body: Body) -> values.Volumes:
    store = places_of(request).store(request.path_params["store"])
    return values.Volumes(store.volumes(deleted=request.query_params.get("deleted") == "true"))


def _volume(request: Request, body: Body) -> values.Volumes:
    place, name = _find_place(request)
    return values.Volumes([places_of(request).store(place).describe(name).volume])


def _create(request: Request, body: Body) -> values.Done:
    operations.create(places_of(request), user_of(request), body["volume"], place=request.path_params["store"])
    return values.Done(body["volume"])


def _delete(request: Request, body: Body) -> values.Done:
    place, name = _find_place(request)
    operations.delete(places_of(request), user_of(request), place, name, request.query_params.get("confirm", ""))
    return values.Done(name)


def _undelete(request: Request, body: Body) -> values.Done:
    place, name = _find_place(request)
    operations.undelete(places_of(request), user_of(request), place, name)
    return values.Done(name)


def _log(request: Request, body: Body) -> values.Log:
    place, name = _find_place(request)
    version = places_of(request).version(place, name, request.query_params.get("from", "-"))
    path, limit = query_path(request), _limit(request)
    source = f"{name}@{version.id}" + (f":{path}" if path != "/" else "")
    return values.describe_log(places_of(request).store(place).log(source, limit=limit))


def _tags(request: Request, body: Body) -> values.Tags:
    place, name = _find_place(request)
    return values.Tags(name, places_of(request).store(place).tags(name))


def _set_tag(request: Request, body: Body) -> values.Tags:
    place, name = _find_place(request)
    tag, version, move = request.path_params["tag"], body["version"], body.get("move", False)
    done = operations.set_tag(places_of(request), user_of(request), place, name, tag, version, move=move)
    return values.Tags(name, [done])


def _remove_tag(request: Request, body: Body) -> values.Tags:
    place, name = _find_place(request)
    done = operations.remove_tag(places_of(request), user_of(request), place, name, request.path_params["tag"])
    return values.Tags(name, [done])


def _diff(request: Request, body: Body) -> values.Changes:
    store, _, old, new = pages.find_compared(request)
    found = pages.compare(store, old, new, query_path(request))
    return values.Changes(found.old_locator, found.new_locator, found.changes)


def _version(request: Request, body: Body) -> values.Version:
    return values.describe(version_of(request))


def _entries(request: Request, body: Body) -> values.Entries:
    version, limit, page = version_of(request), _limit(request), _number(request, "page", 1)
    found = list(version.files.ls(path_of(request)))
    start = (page - 1) * limit
    return values.Entries(version.id, found[start : start + limit], len(found), True)


def _find(request: Request, body: Body) -> values.Entries:
    version, wanted = version_of(request), request.query_params.get("q", "")
    found, is_whole = pages.search(version, path_of(request), wanted, _limit(request))
    return values.Entries(version.id, found, len(found), is_whole)


def _file(request: Request, body: Body) -> Response:
    return downloads.raw(request)


def _plan_prune(request: Request, body: Body) -> PrunePlan:
    place, name = _find_place(request)
    return plans.plan_prune(places_of(request).store(place), name, dict(request.query_params))


def _plan_gc(request: Request, body: Body) -> values.GcPlanValue:
    found = plans.plan_gc(places_of(request).store(request.path_params["store"]))
    return values.GcPlanValue(**{each.name: getattr(found, each.name) for each in fields(values.GcPlanValue)})


def _plan_merge(request: Request, body: Body) -> MergeReport:
    place, name = _find_place(request)
    return plans.plan_merge(request, place, name, request.query_params.get("from", ""))


def _mounts(request: Request, body: Body) -> values.Mounts:
    return live_mounts.read()


def _links(request: Request, body: Body) -> values.Links:
    return values.Links(shared_links.list_visible(request))


def _make_link(request: Request, body: Body) -> values.Links:
    hours = body.get("hours", shared_links.DEFAULT_HOURS)
    place, path = body["store_name"], body.get("path", "/")
    made = shared_links.make(request, place, body["volume"], body["version"], path, hours)
    return values.Links([made])


def _revoke(request: Request, body: Body) -> values.Revoked:
    shared_links.revoke(request, request.path_params["id"])
    return values.Revoked(request.path_params["id"])


_LIMIT = {"limit": NUMBER}
_RULES: dict[str, dict[str, Any]] = {**dict.fromkeys(plans.RULES, NUMBER), "within": TEXT}
OPERATIONS = (
    Operation("GET", "/session", "The user, and the token for changes", values.SessionValue, _session),
    Operation("GET", "/stores", "The stores that are shown", values.Stores, _stores),
    Operation("GET", STORE + "/volumes", "The volumes of a store", values.Volumes, _volumes, {"deleted": FLAG}),
    Operation("POST", STORE + "/volumes", "Make a volume", values.Done, _create, body={"volume": TEXT}),
    Operation("GET", STORE + "/gc", "What a collection would delete", values.GcPlanValue, _plan_gc),
    Operation("GET", VOLUME, "One volume", values.Volumes, _volume),
    Operation("DELETE", VOLUME, "Delete a volume; confirm: its name", values.Done, _delete, {"confirm": TEXT}),
    Operation("POST", VOLUME + "/undelete", "Bring a deleted volume back", values.Done, _undelete),
    Operation(
        "GET",
        VOLUME + "/log",
        "A version and its ancestors; path: those that changed it",
        values.Log,
        _log,
        {"from": TEXT, "path": TEXT, **_LIMIT},
    ),
    Operation("GET", VOLUME + "/tags", "The tags of a volume", values.Tags, _tags),
    Operation(
        "PUT",
        VOLUME + "/tags/{tag}",
        "Tag a version",
        values.Tags,
        _set_tag,
        body={"version": TEXT, "move": FLAG},
        optional=frozenset({"move"}),
    ),
    Operation("DELETE", VOLUME + "/tags/{tag}", "Remove a tag", values.Tags, _remove_tag),
    Operation(
        "GET",
        VOLUME + "/diff",
        "The paths at which two versions differ",
        values.Changes,
        _diff,
        {"old": TEXT, "new": TEXT, "path": TEXT},
    ),
    Operation("GET", VOLUME + "/prune", "What pruning would remove", PrunePlan, _plan_prune, _RULES),
    Operation("GET", VOLUME + "/merge", "What a merge would do", MergeReport, _plan_merge, {"from": TEXT}),
    Operation("GET", VERSION, "One version; - is the newest", values.Version, _version),
    Operation(
        "GET",
        VERSION + "/entries/{path}",
        "The entries of a directory",
        values.Entries,
        _entries,
        {"page": PAGE, **_LIMIT},
    ),
    Operation("GET", VERSION + "/find/{path}", "Entries by name", values.Entries, _find, {"q": TEXT, **_LIMIT}),
    Operation("GET", VERSION + "/file/{path}", "The content of a file", bytes, _file),
    Operation("GET", "/mounts", "The mounts of this machine", values.Mounts, _mounts),
    Operation("GET", "/links", "Links that let others read", values.Links, _links),
    Operation(
        "POST",
        "/links",
        "Make a link to a file or a version",
        values.Links,
        _make_link,
        body={"store_name": TEXT, "volume": TEXT, "version": TEXT, "path": TEXT, "hours": shared_links.HOURS},
        optional=frozenset({"path", "hours"}),
    ),
    Operation("DELETE", "/links/{id}", "Revoke a link", values.Revoked, _revoke),
    Operation(
        "PUT",
        VOLUME + "/files/{path}",
        "Write a file as a new version",
        values.Version,
        lambda request, body: None,
        {"message": TEXT},
        takes_bytes=True,
    ),
)


def _number(request: Request, name: str, default: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal()) or len(text) > 9 or int(text) == 0:
        raise HTTPException(400, f"{name} is a number from 1 on")
    return int(text)


def _limit(request: Request) -> int:
    return min(_number(request, "limit", DEFAULT), MOST)


async def _read_body(request: Request, operation: Operation) -> Body:
    if not operation.body:
        return {}
    data = await limit_body(request, FORM_BYTES).body()
    try:
        found = json.loads(data)
    except ValueError:
        raise HTTPException(400, "the body is not JSON") from None
    if not isinstance(found, dict):
        raise HTTPException(400, "the body is not an object")
    kinds: dict[str, type] = {"string": str, "boolean": bool, "integer": int}
    for name, schema in operation.body.items():
        if name not in found:
            if name in operation.optional:
                continue
            raise HTTPException(400, f"{name} is missing")
        value = found[name]
        if type(value) is not kinds[schema["type"]]:
            raise HTTPException(400, f"{name} is no {schema['type']}")
        if isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
            raise HTTPException(400, f"{name} is out of range")
    if unknown := found.keys() - operation.body.keys():
        raise HTTPException(400, f"{min(unknown)} is unknown")
    return found


async def _write_file(request: Request) -> Response:
    places, user = places_of(request), user_of(request)
    place, name = _find_place(request)
    path = operations.check_file_path(path_of(request))
    await run_in_threadpool(operations.require_owner, places, user, place, name)
    message = request.query_params.get("message", "")
    async with spool_body(request, request.app.state.upload_bytes) as content:
        new = [NewFile(path, content)]
        made = await run_in_threadpool(operations.upload, places, user, place, name, new, message)
    return give(values.to_json(values.describe(made)))


def _answer_with(operation: Operation) -> Callable[[Request], Any]:
    run = briefly(operation.run) if operation.method == "GET" else operation.run

    async def answer(request: Request) -> Response:
        body = await _read_body(request, operation)
        found = await run_in_threadpool(run, request, body)
        return found if isinstance(found, Response) else give(await run_in_threadpool(values.to_json, found))

    return answer


def routes() -> list[BaseRoute]:
    return [
        Route(
            PREFIX + each.path.replace("{path}", "{path:rest}"),
            _write_file if each.takes_bytes else _answer_with(each),
            methods=[each.method],
        )
        for each in OPERATIONS
    ]
