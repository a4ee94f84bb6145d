"""Forms that change a store. Each ends with a redirect to the page that shows the result."""

from __future__ import annotations

from collections.abc import Callable

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from cowfs.web import operations
from cowfs.web.addresses import check_path, path_url, volume_url
from cowfs.web.forms import field, files, read_form
from cowfs.web.operations import NewFile
from cowfs.web.places import places_of
from cowfs.web.users import user_of


async def _redirect_after(target: str, change: Callable[[], object]) -> Response:
    await run_in_threadpool(change)
    return RedirectResponse(target, 303)


async def create(request: Request) -> Response:
    places, user = places_of(request), user_of(request)
    async with read_form(request) as form:
        name = field(form, "name")
    return await _redirect_after(volume_url("-", name), lambda: operations.create(places, user, name))


async def upload(request: Request) -> Response:
    """Files of a form, into the directory `to`."""
    places, user = places_of(request), user_of(request)
    place, name = request.path_params["store"], request.path_params["name"]
    await run_in_threadpool(operations.require_owner, places, user, place, name)  # before the body is read
    async with read_form(request, request.app.state.upload_bytes) as form:
        to = check_path(field(form, "to"))
        new = [
            NewFile(f"{to.rstrip('/')}/{operations.check_file_name(each.filename)}", each.file)
            for each in files(form, "files")
        ]
        made = await run_in_threadpool(operations.upload, places, user, place, name, new, field(form, "message"))
    return RedirectResponse(path_url(place, name, "tree", made.id, to), 303)


async def tag(request: Request) -> Response:
    places, user = places_of(request), user_of(request)
    place, name = request.path_params["store"], request.path_params["name"]
    async with read_form(request) as form:
        wanted, version, move = field(form, "tag"), field(form, "version"), bool(field(form, "move"))
    return await _redirect_after(
        volume_url(place, name),
        lambda: operations.set_tag(places, user, place, name, wanted, version or "-", move=move),
    )


async def untag(request: Request) -> Response:
    places, user = places_of(request), user_of(request)
    place, name = request.path_params["store"], request.path_params["name"]
    async with read_form(request) as form:
        given = field(form, "tag")
    return await _redirect_after(
        volume_url(place, name), lambda: operations.remove_tag(places, user, place, name, given)
    )


async def delete(request: Request) -> Response:
    places, user = places_of(request), user_of(request)
    place, name = request.path_params["store"], request.path_params["name"]
    async with read_form(request) as form:
        typed = field(form, "confirm")
    return await _redirect_after("/", lambda: operations.delete(places, user, place, name, typed))


async def undelete(request: Request) -> Response:
    places, user = places_of(request), user_of(request)
    place, name = request.path_params["store"], request.path_params["name"]
    return await _redirect_after(volume_url(place, name), lambda: operations.undelete(places, user, place, name))
