"""Which function answers which URL."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from cowfs.web import api, downloads, live_mounts, logins, metrics, openapi, pages, plans, shared_links, writing
from cowfs.web.places import briefly

AT = "/v/{store}/{name}"
PATH = "{version}/{path:rest}"


def _page(path: str, show: Callable[[Request], Response]) -> Route:
    return Route(path, briefly(show))


def routes() -> list[BaseRoute]:
    return [
        _page("/", pages.volumes),
        Route("/login", logins.form, methods=["GET"]),
        Route("/login", logins.log_in, methods=["POST"]),
        Route("/logout", logins.log_out, methods=["POST"]),
        _page("/stores", pages.stores),
        _page("/stores/{store}", pages.volumes),
        Route("/volumes", writing.create, methods=["POST"]),
        _page("/gc", plans.gc),
        Route("/mounts", live_mounts.page),
        Route("/mounts/events", live_mounts.events),
        Route("/metrics", metrics.page),
        _page("/links", shared_links.page),
        Route("/links", shared_links.make_by_form, methods=["POST"]),
        Route("/links/{id}/revoke", shared_links.revoke_by_form, methods=["POST"]),
        _page("/s/{token}", shared_links.follow),
        _page("/s/{token}/{path:rest}", shared_links.follow),
        Route("/api", openapi.page),
        Route(api.PREFIX + "/openapi.json", openapi.document),
        *api.routes(),
        _page(AT, pages.volume),
        _page(AT + "/prune", plans.prune),
        _page(AT + "/merge", plans.merge),
        Route(AT + "/upload", writing.upload, methods=["POST"]),
        Route(AT + "/tag", writing.tag, methods=["POST"]),
        Route(AT + "/untag", writing.untag, methods=["POST"]),
        Route(AT + "/delete", writing.delete, methods=["POST"]),
        Route(AT + "/undelete", writing.undelete, methods=["POST"]),
        _page(AT + "/diff", pages.diff),
        _page(AT + "/tree/" + PATH, pages.tree),
        _page(AT + "/find/" + PATH, pages.find),
        _page(AT + "/log/" + PATH, pages.path_log),
        _page(AT + "/raw/" + PATH, downloads.raw),
        _page(AT + "/{kind:archive}/" + PATH, downloads.archive),
        Mount("/static", StaticFiles(packages=[("cowfs.web", "static")])),
    ]
