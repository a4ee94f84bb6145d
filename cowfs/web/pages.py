"""Pages that only read. Each is a function of the request; templates have the same names."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from cowfs.base import clock
from cowfs.blocking import Diff, Entry, ROVolume, Store, VersionLog
from cowfs.errors import NotFoundError
from cowfs.rendering import draw_graph
from cowfs.web.addresses import NEWEST, OWN_STORE, check_name, path_of, query_path
from cowfs.web.answers import show
from cowfs.web.places import places_of, version_of
from cowfs.web.previews import preview
from cowfs.web.users import user_of

ENTRIES_SHOWN = 500
VERSIONS_SHOWN = 50
FOUND_SHOWN = 500
CHANGES_SHOWN = 2000
SEARCH_S = 20.0
PATCH_LINES = 5000


def volumes(request: Request) -> Response:
    """The volumes of a store; `?deleted=1`: deleted ones that can be brought back."""
    places, place = places_of(request), request.path_params.get("store", OWN_STORE)
    store, is_of_deleted = places.store(place), bool(request.query_params.get("deleted"))
    try:
        found = store.volumes(deleted=is_of_deleted)
    except NotFoundError:
        if place != OWN_STORE or store.was_used:
            raise
        found = []  # the first volume makes it
    return show(
        request,
        "volumes.html",
        store=place,
        url=store.url,
        volumes=[] if is_of_deleted else found,
        deleted=found if is_of_deleted else None,
        may_create=places.is_writable(place) and user_of(request).may_write,
        user_may=lambda owner: places.is_writable(place) and user_of(request).may_change(owner),
    )


def stores(request: Request) -> Response:
    return show(request, "stores.html", stores=places_of(request).list_named())


def volume(request: Request) -> Response:
    """A volume: its record, its history as a graph, its tags."""
    places, place, name = places_of(request), request.path_params["store"], check_name(request.path_params["name"])
    store = places.store(place)
    details = store.describe(name)
    start = request.query_params.get("from", "")
    source = f"{name}@{check_name(start, 'version')}" if start else name
    found = store.log(source, limit=VERSIONS_SHOWN + 1)
    return show(
        request,
        "volume.html",
        store=place,
        details=details,
        volume=details.volume,
        tags=store.tags(name),
        may_change=places.is_writable(place) and user_of(request).may_change(details.volume.owner),
        **history_rows(found, VERSIONS_SHOWN),
    )


def history_rows(found: VersionLog, limit: int) -> dict[str, Any]:
    """Versions beside the graph of their parents; `older` begins the next page."""
    shown, rest = found.versions[:limit], found.versions[limit:]
    by_id = {each.id: each for each in shown}
    drawn = draw_graph({each.id: [] if each.is_pruned else each.parents for each in shown})
    rows = [(each.lanes, by_id[each.version], found.names[each.version]) for each in drawn]
    return {"rows": rows, "older": rest[0].id if rest else None, "changes": found.changes}


def tree(request: Request) -> Response:
    """A directory, page by page, or a file with its beginning."""
    version, path = version_of(request), path_of(request)
    at: dict[str, Any] = {
        "store": request.path_params["store"],
        "version": version,
        "path": path,
        "above": _list_above(path),
    }
    entry = version.files.stat(path, follow=False)
    if entry.type == "symlink" or entry.type == "special":
        return show(request, "file.html", **at, entry=entry, preview=None)
    if entry.type == "file":
        return show(request, "file.html", **at, entry=entry, preview=preview(version, entry))
    entries = sorted(version.files.ls(path), key=lambda each: each.type != "directory")
    number = _number(request.query_params.get("page", "1"))
    pages = max(1, -(-len(entries) // ENTRIES_SHOWN))
    if number > pages:
        raise HTTPException(404, f"the directory has {pages} pages")
    start = (number - 1) * ENTRIES_SHOWN
    return show(
        request,
        "directory.html",
        **at,
        entries=entries[start : start + ENTRIES_SHOWN],
        total=len(entries),
        page=number,
        pages=pages,
        may_upload=places_of(request).is_writable(at["store"]) and user_of(request).may_write and path.isprintable(),
    )


def _number(text: str) -> int:
    if not text.isdecimal() or not 0 < len(text) < 10 or int(text) == 0:
        raise HTTPException(400, "a page has a number from 1 on")
    return int(text)


def _list_above(path: str) -> list[tuple[str, str]]:
    """The directories above a path and itself: (name, path)."""
    parts = [each for each in path.split("/") if each]
    return [(name, "/" + "/".join(parts[: index + 1])) for index, name in enumerate(parts)]


def find(request: Request) -> Response:
    version, path = version_of(request), path_of(request)
    wanted = request.query_params.get("q", "")
    found, is_whole = search(version, path, wanted, FOUND_SHOWN) if wanted else ([], True)
    return show(
        request,
        "found.html",
        store=request.path_params["store"],
        version=version,
        path=path,
        wanted=wanted,
        found=found,
        is_whole=is_whole,
    )


def search(version: ROVolume, path: str, wanted: str, limit: int) -> tuple[list[Entry], bool]:
    """Entries below a path with that text in their name, or whose name matches the pattern; whether
    these are all. It ends after SEARCH_S."""
    pattern = wanted if any(each in wanted for each in "*?[") else f"*{wanted}*"
    found, end_s = list[Entry](), clock.monotonic_s() + SEARCH_S
    for entry in version.files.ls(path, recursive=True):
        if fnmatchcase(entry.name, pattern):
            if len(found) == limit:
                return found, False
            found.append(entry)
        if clock.monotonic_s() > end_s:
            return found, False
    return found, True


def path_log(request: Request) -> Response:
    """The versions that changed a path."""
    version, path = version_of(request), path_of(request)
    store = places_of(request).store(request.path_params["store"])
    found = store.log(f"{version.name}@{version.id}:{path}", limit=VERSIONS_SHOWN)
    return show(
        request,
        "path_log.html",
        store=request.path_params["store"],
        version=version,
        path=path,
        **history_rows(found, VERSIONS_SHOWN),
    )


def diff(request: Request) -> Response:
    """The paths at which two versions differ; of one path, its text as a patch."""
    store, name, old, new = find_compared(request)
    path = query_path(request)
    found = compare(store, old, new, path)
    lines, is_cut = None, False
    if path != "/":
        pieces = islice(_patch_lines(found), PATCH_LINES + 1)
        lines = list(pieces)
        is_cut = len(lines) > PATCH_LINES
    return show(
        request,
        "diff.html",
        store=request.path_params["store"],
        name=name,
        old=old,
        new=new,
        path=path,
        changes=found.changes[:CHANGES_SHOWN],
        total=len(found.changes),
        lines=lines[:PATCH_LINES] if lines is not None else None,
        is_cut=is_cut,
    )


def find_compared(request: Request) -> tuple[Store, str, ROVolume, ROVolume]:
    """The two versions of `?old=&new=`. old: the first parent of the new one if it is left out."""
    places, place, name = places_of(request), request.path_params["store"], check_name(request.path_params["name"])
    new = places.version(place, name, request.query_params.get("new", NEWEST))
    given = request.query_params.get("old")
    if not given and not new.parents:
        raise HTTPException(400, "this is a first version: there is nothing to compare it with")
    return places.store(place), name, places.version(place, name, given or new.parents[0]), new


def compare(store: Store, old: ROVolume, new: ROVolume, path: str) -> Diff:
    """One path: with renames as removed and added, as a patch needs them."""
    paths = (path,) if path != "/" else ()
    return store.diff(f"{old.name}@{old.id}", f"{new.name}@{new.id}", paths, renames=path == "/")


def _patch_lines(found: Diff) -> Any:
    for part in found.patch():
        yield from part.decode("utf-8", "replace").splitlines()
