"""What every request passes before a handler sees it, and every answer on its way out.

    Host        must be a name of this server: a page of another site that points its own name here is refused (421)
    user        from the session's cookie, or from the header that only the proxy may set
    token       every POST, PUT and DELETE carries the session's token, in the URL or in X-CSRF-Token (403)
    Origin      of such requests, if there is one, must be this server (403)
    answer      may run scripts, styles and images of this server alone; types are as stated; in no frame

The token stands in the URL, so that it is checked before the body of an upload is read, and for
every route alike. Handlers find `user` and `csrf` in the request's scope.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address
from urllib.parse import parse_qs, quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cowfs.errors import Command, CowfsError
from cowfs.web import metrics
from cowfs.web.answers import refuse
from cowfs.web.sessions import FailedLogins, OneTimeToken, Sessions, make_secret
from cowfs.web.users import ADMIN, ProxyHeader, User, UsersFile

Network = IPv4Network | IPv6Network
_log = logging.getLogger(__name__)
SAFE = ("GET", "HEAD", "OPTIONS")
OPEN_TO_ALL = ("/login", "/static/", "/s/")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}
LOCAL_ADMIN = User("local", ADMIN, None)
"""Who has the link that the server printed: the user whose process it is."""


class Access:
    """How users are known. One of users and proxy, or neither: a server on loopback, whose one-time
    token makes the session of its user."""

    def __init__(
        self,
        hosts: frozenset[str],
        cookie: str,
        users: UsersFile | None = None,
        proxy: ProxyHeader | None = None,
        trusted: Network | None = None,
    ) -> None:
        """hosts: names of this server. trusted: addresses of the proxy."""
        self.hosts = hosts
        self.cookie = cookie
        self.users = users
        self.proxy = proxy
        self.trusted = trusted
        self.token = OneTimeToken() if users is None and proxy is None else None
        self.sessions = Sessions()
        self.failed = FailedLogins()
        self.requests = metrics.Requests()
        self._secret = make_secret().encode()

    def find(self, scope: Scope, headers: Headers) -> tuple[User | None, str]:
        """The user of a request and the token of their session."""
        if self.proxy is not None:
            named = self.proxy.find(headers.getlist(self.proxy.header)) if self.is_proxy(scope) else None
            return named, "" if named is None else hmac.digest(self._secret, named.name.encode(), hashlib.sha256).hex()
        session = self.sessions.find(cookies(headers).get(self.cookie, ""))
        if session is None:
            return None, ""
        if self.users is None:
            return LOCAL_ADMIN, session.csrf
        has_same_password = session.password_hash == self.users.find_hash(session.user)
        return (self.users.find(session.user) if has_same_password else None), session.csrf

    def is_secure(self, scope: Scope, headers: Headers) -> bool:
        """Whether the browser came over TLS, as the proxy that ends it says."""
        return self.is_proxy(scope) and headers.get("x-forwarded-proto") == "https"

    def is_proxy(self, scope: Scope) -> bool:
        try:
            return self.trusted is not None and ip_address(peer(scope).partition("%")[0]) in self.trusted
        except ValueError:
            return False


def peer(scope: Scope) -> str:
    """The address at the other end of the connection."""
    return scope["client"][0] if scope.get("client") else ""


def cookies(headers: Headers) -> Mapping[str, str]:
    return cookie_parser("; ".join(headers.getlist("cookie")))


class Gate:
    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._access.requests.note(scope["method"], message["status"])
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            else:
                self._access.requests.sent_bytes += len(message.get("body", b""))
            await send(message)

        scope["user"], scope["csrf"] = None, ""
        try:
            refusal = self._refuse(scope)
        except CowfsError as error:  # of the file of users
            _log.error("%s. %s", error, error.hint)
            refusal = refuse(scope, 503, "the server cannot find out who you are", "Its log says why.")
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refuse(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if len(headers.getlist("host")) != 1 or _host_name(headers["host"]) not in self._access.hosts:
            return refuse(
                scope, 421, "this server has another name", f"{Command('web', '--name', 'NAME')} gives it one."
            )
        scope["user"], scope["csrf"] = self._access.find(scope, headers)
        is_open = scope["path"].startswith(OPEN_TO_ALL)
        if scope["path"] == "/metrics" and scope["user"] is None and metrics.is_scraper(headers):
            return None
        if scope["user"] is None and not is_open:
            return self._ask_to_log_in(scope)
        if scope["method"] in SAFE:
            return None
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != headers["host"]:
            return refuse(scope, 403, "the request comes from a page of another server")
        if not is_open and not _has_token(scope, headers):
            return refuse(scope, 403, "the request lacks the token of your session", "Load the page again.")
        return None

    def _ask_to_log_in(self, scope: Scope) -> Response:
        if self._access.proxy is not None:
            return refuse(scope, 403, "the proxy has not said who you are", "Come through the proxy.")
        if scope["path"].startswith(("/api/", "/metrics")) or scope["method"] not in SAFE:
            return refuse(scope, 401, "you are not logged in")
        return RedirectResponse(f"/login?next={quote(scope['path'])}", 303)


def _has_token(scope: Scope, headers: Headers) -> bool:
    asked = parse_qs(scope["query_string"].decode("latin-1")).get("csrf", [""])[0]
    given = headers.get("x-csrf-token") or asked
    return bool(scope["csrf"]) and hmac.compare_digest(given.encode(), scope["csrf"].encode())


def _host_name(host: str) -> str:
    """Of a Host header, without its port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""
