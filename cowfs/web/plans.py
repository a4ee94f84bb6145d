"""Plans that are shown and not carried out: what pruning, a collection and a merge would do."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from cowfs.blocking import GcReport, MergeReport, PrunePlan, Store
from cowfs.errors import ConflictError, InvalidStateError
from cowfs.web.addresses import OWN_STORE, check_name
from cowfs.web.answers import show
from cowfs.web.places import places_of

RULES = ("last", "hourly", "daily", "weekly", "monthly", "yearly")
PATHS_SHOWN = 1000


def plan_prune(store: Store, name: str, asked: dict[str, str]) -> PrunePlan:
    """By the rules given, or those saved in the volume. 400: a number is none."""
    rules: dict[str, Any] = {each: _number(asked[each]) for each in RULES if asked.get(each)}
    if asked.get("within"):
        rules["within"] = asked["within"]
    return store.plan_prune(name, **rules)


def plan_merge(request: Request, place: str, name: str, source: str) -> MergeReport:
    """Of the newest version of the volume `source`, or a version of it (VOLUME@VERSION).
    ConflictError: they have no version in common."""
    other, _, version = source.partition("@")
    branch = places_of(request).version(place, check_name(other), version or "-")
    try:
        return places_of(request).store(place).merge(name, [branch], dry_run=True)
    except InvalidStateError as error:  # of these volumes, not of the store
        raise ConflictError(error.message, hint=error.hint) from error


def plan_gc(store: Store) -> GcReport:
    return store.gc(dry_run=True)


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise HTTPException(400, f"{text!r} is no number of versions to keep")
    return int(text)


def prune(request: Request) -> Response:
    place, name = request.path_params["store"], check_name(request.path_params["name"])
    store, asked = places_of(request).store(place), dict(request.query_params)
    is_asked = bool(asked) or bool(store.retention(name))
    plan = plan_prune(store, name, asked) if is_asked else None
    return show(request, "prune.html", store=place, name=name, plan=plan, rules=RULES, asked=asked)


def gc(request: Request) -> Response:
    store = places_of(request).store(OWN_STORE)
    return show(request, "gc.html", report=plan_gc(store), url=store.url)


def merge(request: Request) -> Response:
    place, name = request.path_params["store"], check_name(request.path_params["name"])
    source = request.query_params.get("from", "")
    report = plan_merge(request, place, name, source) if source else None
    return show(request, "merge.html", store=place, name=name, source=source, report=report, limit=PATHS_SHOWN)
