"""Runs the server: which addresses it may have, and what it says when it is ready."""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path

import uvicorn

from cowfs.base import config
from cowfs.blocking import Store
from cowfs.errors import Command, InvalidInputError
from cowfs.web.app import make_app
from cowfs.web.gate import Access
from cowfs.web.shared_links import read_secret
from cowfs.web.users import WRITER, ProxyHeader, UsersFile

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
M_ARENA_MAX = -8  # malloc.h
ARENAS = 2
MEMORY_BYTES = 128 << 20
"""What versions may take that the server has open: each keeps an eighth of it in memory."""
GRACE_S = 5
"""How long answers that are on their way may take once the server ends."""


@dataclass(frozen=True)
class Options:
    """names: under which browsers reach the server, besides its address. users: the file of them.
    trust_header, trusted_proxy: the header with the user's name, and the network of the proxy that
    sets it. admins, role: of its users; role is that of all others."""

    host: str = "127.0.0.1"
    port: int = 8765
    names: Sequence[str] = ()
    users: Path | None = None
    trust_header: str | None = None
    trusted_proxy: str | None = None
    admins: Sequence[str] = ()
    role: str = WRITER
    read_only: bool = False

    @property
    def is_loopback(self) -> bool:
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False


def make_access(options: Options, port: int) -> Access:
    """InvalidInputError: the server would be open to others without knowing them."""
    if options.trust_header is not None and options.trusted_proxy is None:
        raise InvalidInputError(
            "a header is trusted from a proxy alone", hint="Give --trusted-proxy CIDR, the addresses of the proxy."
        )
    if options.admins and options.trust_header is None:
        raise InvalidInputError(
            "--admin is about users of a proxy",
            hint=f"Give --trust-header, too. {Command('web', 'users', 'add')} has --role for users of a file.",
        )
    if options.trust_header is not None and options.users is not None:
        raise InvalidInputError("users come from a file or from a proxy", hint="Give --users or --trust-header.")
    if not options.is_loopback and options.users is None and options.trust_header is None:
        raise InvalidInputError(
            f"at {options.host} others reach the server, and it would not know them",
            hint=f"Give --users FILE ({Command('web', 'users', 'add')}), or --trust-header and --trusted-proxy.",
        )
    users = proxy = trusted = None
    if options.users is not None:
        users = UsersFile(options.users)
        users.list_users()  # a file that cannot be read is found now
    if options.trust_header is not None:
        proxy = ProxyHeader(options.trust_header, frozenset(options.admins), options.role)
    if options.trusted_proxy is not None:
        try:
            trusted = ip_network(options.trusted_proxy)
        except ValueError as error:
            raise InvalidInputError(str(error), hint="Give a network like 10.0.0.5/32.") from None
    names = {each.lower().rstrip(".") for each in (options.host, *options.names)}
    hosts = frozenset(names | LOOPBACK_NAMES if options.is_loopback else names)
    return Access(hosts, f"cowfs-{port}", users, proxy, trusted)


def serve(store: Store, options: Options, tell: Callable[[str], object]) -> None:
    """Serves until a signal ends it. tell: called with the URL to open, once connections are
    accepted."""
    make_access(options, 0)
    _limit_arenas()
    config.limit_memory(MEMORY_BYTES)
    try:
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        listening = socket.create_server((options.host, options.port), family=family)
    except OSError as error:
        raise InvalidInputError(
            f"port {options.port} of {options.host} cannot be used: {error.strerror or error}",
            hint="Give another --port (0: any that is free), or an address of this machine as --host.",
        ) from error
    # asyncio sets it only on sockets that it makes; without it a small answer waits 40 ms for the client's acknowledgement
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with listening:
        port = listening.getsockname()[1]
        access = make_access(options, port)
        read_secret("metrics-token")  # a scraper reads the file before its first request
        settings = uvicorn.Config(
            make_app(store, access, read_only=options.read_only),
            http="h11",
            ws="none",
            lifespan="on",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,  # the peer is who is at the other end: a proxy's word for others counts only as its header
            timeout_graceful_shutdown=GRACE_S,
        )
        host = f"[{options.host}]" if ":" in options.host else options.host
        token = f"login?token={access.token.text}" if access.token is not None else ""
        tell(f"http://{host}:{port}/{token}")
        uvicorn.Server(settings).run(sockets=[listening])


def _limit_arenas() -> None:
    """Fewer arenas of glibc's malloc than threads: a download of 3 GB took the process to 66 MB
    instead of 107, warm (docs/decisions/0024-malloc.md)."""
    with suppress(AttributeError, OSError):  # other C libraries
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, ARENAS)
