"""The page that begins a session: by name and password, or by the one-time token of a server on
loopback."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from cowfs.errors import Command
from cowfs.web.answers import refuse, show
from cowfs.web.gate import Access, cookies, peer
from cowfs.web.sessions import SESSION_S

LONGEST_FORM = 8 << 10


def _access(request: Request) -> Access:
    found: Access = request.app.state.access
    return found


async def form(request: Request) -> Response:
    access = _access(request)
    given = request.query_params.get("token")
    if access.token is not None and given is not None:
        if not access.token.use(given):
            return refuse(request, 403, "this link was used before", f"Start {Command('web')} again for another one.")
        return _begin(request, "local", "/")
    if request.scope["user"] is not None:
        return RedirectResponse("/", 303)
    return show(
        request,
        "login.html",
        has_users=access.users is not None,
        next=_own(request.query_params.get("next")),
        problem="",
    )


async def log_in(request: Request) -> Response:
    access, address = _access(request), peer(request.scope)
    if access.users is None:
        return refuse(request, 404, "this server has no passwords")
    if wait_s := access.failed.wait_s(address):
        return refuse(request, 429, "too many failed logins", f"Wait {wait_s} s.", retry_after=str(wait_s))
    if not 0 < int(request.headers.get("content-length", "0")) <= LONGEST_FORM:
        return refuse(request, 413, "the form is too long")
    given = await request.form(max_files=0, max_fields=4)
    name, password = str(given.get("name", "")), str(given.get("password", ""))
    access.failed.note(address)  # before the check: requests at the same time do not get more tries
    password_hash = access.users.find_hash(name)  # before the check: of a later change the session knows nothing
    user = await run_in_threadpool(access.users.verify, name, password)
    target = _own(str(given.get("next", "/")))
    if user is None:
        return show(request, "login.html", 403, has_users=True, next=target, problem="Name or password is wrong.")
    access.failed.take_back(address)
    return _begin(request, user.name, target, password_hash)


async def log_out(request: Request) -> Response:
    access = _access(request)
    access.sessions.end(cookies(request.headers).get(access.cookie, ""))
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(access.cookie)
    return answer


def _begin(request: Request, user: str, target: str, password_hash: str = "") -> Response:
    access = _access(request)
    answer = RedirectResponse(target, 303)
    is_secure = access.is_secure(request.scope, request.headers)
    answer.set_cookie(
        access.cookie,
        access.sessions.begin(user, password_hash),
        max_age=SESSION_S,
        httponly=True,
        samesite="strict",
        secure=is_secure,
    )
    return answer


def _own(target: str | None) -> str:
    """A path of this server; another site's URL becomes the first page."""
    return target if target and target.startswith("/") and not target.startswith(("//", "/\\")) else "/"
