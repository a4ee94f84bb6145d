"""Shell completion of arguments: names of volumes, paths of mounts, local files.

A person waits for it, so a store that does not answer within PATIENCE_S offers nothing, and at most
MOST names are listed. Errors are never shown: the line being typed stays as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import click
from click.shell_completion import CompletionItem

from cowfs.errors import CowfsError

PATIENCE_S = 3.0
MOST = 100


def volumes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in _names(context, incomplete)]


def mounts_and_volumes(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """An argument that contains a slash or begins with a dot is a path."""
    if incomplete.startswith(".") or "/" in incomplete[1:]:
        return directories(context, parameter, incomplete)
    paths = [CompletionItem(path) for path in _mounts() if path.startswith(incomplete)]
    if incomplete.startswith("/"):
        return paths or directories(context, parameter, incomplete)
    return [*volumes(context, parameter, incomplete), *paths]


def places(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """NAME: of a volume, else local files."""
    is_local = not incomplete or incomplete.startswith((".", "/", "~")) or ":" in incomplete
    found = [] if is_local else [CompletionItem(f"{name}:") for name in _names(context, incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


def stores(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of stores, then directories."""

    def look() -> list[str]:
        from cowfs import storage

        return [each.name for each in storage.list_stores()]

    names = [CompletionItem(name) for name in _run_in_time(look) if name.startswith(incomplete)]
    return [*names, *directories(context, parameter, incomplete)]


def directories(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(incomplete, type="dir")]


def _names(context: click.Context, incomplete: str) -> list[str]:
    store = context.params.get("store")

    def look() -> list[str]:
        from cowfs.blocking import Store

        return Store(store).names(start=incomplete, limit=MOST)

    return _run_in_time(look)


def _mounts() -> list[str]:
    def look() -> list[str]:
        from cowfs import mounts

        return mounts.mount_paths()

    return _run_in_time(look)


def _run_in_time(look: Callable[[], list[str]]) -> list[str]:
    found: list[str] = []

    def run() -> None:
        try:
            found.extend(look())
        except (CowfsError, OSError):
            return

    thread = threading.Thread(target=run, daemon=True)  # the process does not wait for it when it ends
    thread.start()
    thread.join(PATIENCE_S)
    return [] if thread.is_alive() else found
