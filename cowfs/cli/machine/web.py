"""cowfs web: serves pages about a store (`cowfs.web`). cowfs web users add | remove | ls: manages
the file of users."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cowfs.cli import output
from cowfs.errors import Command, InvalidInputError, InvalidStateError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

ROLES = ("viewer", "writer", "admin")
_TAKES = {"add": 1, "remove": 1, "ls": 0}


@click.command("web")
@click.argument("words", nargs=-1, metavar="[users add NAME | users remove NAME | users ls]")
@click.option("--host", default="127.0.0.1", help="The address to listen at. [127.0.0.1]")
@click.option("--port", default=8765, type=click.IntRange(0, 65535), help="0: any that is free. [8765]")
@click.option("--name", "names", multiple=True, metavar="HOST", help="A name that browsers reach it by. Repeatable.")
@click.option("--users", type=click.Path(path_type=Path), metavar="FILE", help="The file of users and passwords.")
@click.option("--trust-header", metavar="HEADER", help="The header in which a proxy names the user.")
@click.option("--trusted-proxy", metavar="CIDR", help="The only addresses that may set that header.")
@click.option(
    "--admin", "admins", multiple=True, metavar="USER", help="A user of the header who may do all. Repeatable."
)
@click.option("--role", type=click.Choice(ROLES), help="Of other users of the header, or of a user to add. [writer]")
@click.option("--read-only", is_flag=True, help="Change nothing, whoever asks.")
@output.common_options
def command(
    words: tuple[str, ...],
    host: str,
    port: int,
    names: tuple[str, ...],
    users: Path | None,
    trust_header: str | None,
    trusted_proxy: str | None,
    admins: tuple[str, ...],
    role: str | None,
    read_only: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Show the store's volumes in a browser: versions, files, differences; and change them.

    On loopback it prints a link that works once and makes you its admin. At any other address it
    needs users: of a file (--users), or named by a proxy (--trust-header). TLS is the proxy's.

    users add, remove, ls: change and list the users of the file --users. A password is asked for,
    or read from standard input.
    """
    if words:
        _manage_users(words, users, role, as_json=as_json)
        return
    from cowfs.blocking import Store

    serving = _serving()
    options = serving.Options(
        host, port, names, users, trust_header, trusted_proxy, admins, role=role or ROLES[1], read_only=read_only
    )

    def tell(url: str) -> None:
        output.emit(as_json, {"address": url}, url)
        sys.stdout.flush()

    serving.serve(Store(store), options, tell)


def _manage_users(words: tuple[str, ...], file: Path | None, role: str | None, *, as_json: bool) -> None:
    if words[0] != "users" or len(words) < 2 or words[1] not in _TAKES or len(words) != 2 + _TAKES[words[1]]:
        raise InvalidInputError(
            f"{' '.join(words)} is no action", hint="Actions: users add NAME, users remove NAME, users ls."
        )
    if file is None:
        raise InvalidInputError("the file of users is missing", hint="Give --users FILE.")
    _serving()
    from cowfs.web.users import UsersFile

    found = UsersFile(file)
    if words[1] == "add":
        found.add(words[2], role, _password())
    elif words[1] == "remove":
        found.remove(words[2])
    listed = found.list_users()
    output.emit(
        as_json,
        {"users": [{"user": name, "role": each} for name, each in listed.items()]},
        output.table(("USER", "ROLE"), list(listed.items())) if words[1] == "ls" else _tell(words[2], listed),
    )


def _tell(name: str, listed: Mapping[str, str]) -> str:
    return f"{name} is a user now, with the role {listed[name]}" if name in listed else f"Removed user {name}"


def _password() -> str:
    if sys.stdin.isatty():
        given: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return given
    return sys.stdin.readline().rstrip("\n")


def _serving() -> ModuleType:
    try:
        from cowfs.web import serving
    except ImportError as error:
        raise InvalidStateError(
            f"the web server needs the package {error.name}",
            hint=f"pip install 'cowfs-volumes[web]'. {Command('explore')} shows a store in the terminal.",
        ) from error
    return serving
