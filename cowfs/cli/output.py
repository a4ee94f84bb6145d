"""How commands speak: results on stdout, as text or as one JSON document; everything else on stderr.

Also the options every command has, and how times and tables are shown to people.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from cowfs.api import sizes
from cowfs.errors import InvalidInputError

F = TypeVar("F", bound=Callable[..., Any])


def common_options(function: F) -> F:
    """--store and --json."""
    return click.option(
        "--store", metavar="URL", callback=_named, help="The store; default: COWFS_STORE, or a directory of yours."
    )(json_option(function))


def json_option(function: F) -> F:
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")(function)


def _named(context: click.Context, parameter: click.Parameter, url: str | None) -> str | None:
    """A store that the user names is the user's own (`store.trust`); one that ends with the command is of no use."""
    chosen = url or os.environ.get("COWFS_STORE", "")
    if chosen.lower().startswith("memory:"):
        raise InvalidInputError(
            f"{chosen} lives in one process: nothing would be left of it when this command ends",
            hint="Use a directory (file:///…) or an object store.",
        )
    if url is not None:
        from cowfs.api import stores

        stores.name(url)
    return url


def emit(as_json: bool, record: dict[str, Any], text: str) -> None:
    """The result of a command: `record` with --json, else `text` (nothing when it is empty)."""
    if as_json:
        click.echo(json.dumps(record, default=str))
    elif text:
        click.echo(text)


def say(as_json: bool, text: str) -> None:
    """A word to a person, on stderr; programs that asked for JSON need none."""
    if not as_json:
        click.echo(text, err=True)


class Progress:
    """Shows the progress of a commit or a mount on a terminal, nothing anywhere else. Called from any one thread."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()
        self._width = 0

    def __call__(self, event: dict[str, Any]) -> None:
        if not self._is_shown:
            return
        done, total = event.get("done_bytes") or 0, event.get("total_bytes") or 0
        text = str(event.get("stage", ""))
        if total:
            text += f" {sizes.shown(done)} of {sizes.shown(total)}"
        elif event.get("total"):
            text += f" {event.get('done', 0):,} of {event['total']:,}"
        click.echo("\r" + text.ljust(self._width), nl=False, err=True)
        self._width = len(text)

    def close(self) -> None:
        if self._width:
            click.echo("\r" + " " * self._width + "\r", nl=False, err=True)
            self._width = 0


def time(time_ns: int) -> str:
    """Local time to the minute."""
    return datetime.fromtimestamp(time_ns / 1e9, UTC).astimezone().strftime("%Y-%m-%d %H:%M")


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns under a header; the last one is not padded."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = []
    for row in [header, *rows]:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def printable(text: str) -> str:
    """Text from a store without control characters: a message must not drive the terminal."""
    return "".join(character if character.isprintable() else " " for character in text)
