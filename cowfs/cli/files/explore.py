"""cowfs explore: looks at a store or a version in the terminal (`cowfs.tui`). Without a terminal it
prints what `ls` and `tree` print."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from cowfs.cli import completing, output
from cowfs.errors import Command, InvalidInputError, InvalidStateError, NotFoundError

if TYPE_CHECKING:
    from cowfs.blocking import ROVolume, Store
    from cowfs.tui.app import Explorer


@click.command("explore")
@click.argument("source", required=False, metavar="[SOURCE[:PATH]|MOUNT_PATH]", shell_complete=completing.volumes)
@click.option("--from-file", metavar="FILE", help="Show the tree in FILE, which `cowfs index export` wrote.")
@output.common_options
def command(source: str | None, from_file: str | None, store: str | None, as_json: bool) -> None:
    """Look at the volumes of a store, or at SOURCE (NAME, NAME@TAG, NAME@VERSION, a LOCATOR, or the
    path of a mount): its versions, its tree, what differs between versions. `?` shows the keys.
    Nothing is mounted, and contents are read only on request.

    Without a terminal, and with --json, print the volumes as `ls` does, or the tree of SOURCE."""
    from cowfs.blocking import Store

    is_printed = as_json or not (sys.stdin.isatty() and sys.stdout.isatty())
    if from_file is not None:
        _explore_file(from_file, source, is_printed=is_printed, as_json=as_json)
        return
    opened = Store(store)
    version, path = None, "/"
    if source is not None:
        opened, version, path = _find(source, opened)
    if is_printed:
        _print(opened, version, path, as_json=as_json)
    else:
        _explorer()(opened, version, path).run()


def _explore_file(file: str, source: str | None, *, is_printed: bool, as_json: bool) -> None:
    from cowfs.blocking import IndexFile
    from cowfs.rendering import draw_tree

    if source is not None:
        raise InvalidInputError("--from-file has a version of its own", hint="Leave out SOURCE.")
    try:
        opened = IndexFile(file)
    except FileNotFoundError as error:
        hint = f"{Command('index', 'export', 'SOURCE', 'FILE')} writes such a file."
        raise NotFoundError(f"{file} does not exist", hint=hint) from error
    with opened as version:
        if is_printed:
            entries = list(version.files.ls("/", recursive=True))
            record = {"locator": version.locator, "path": "", "entries": entries}
            output.emit(as_json, record, "\n".join([output.name(version.locator), *draw_tree(entries, output.name)]))
        else:
            _explorer()(None, version).run()


def _explorer() -> type[Explorer]:
    try:
        from cowfs.tui.app import Explorer
    except ImportError as error:
        raise InvalidStateError(
            f"the explorer needs the package {error.name}",
            hint=f"pip install 'cowfs-volumes[tui]'. {Command('tree', 'SOURCE')} prints the tree without it.",
        ) from error
    return Explorer


def _find(source: str, store: Store) -> tuple[Store, ROVolume, str]:
    from cowfs import mounts
    from cowfs.blocking import Store

    if os.path.isdir(source) and ("/" in source or source in (".", "..")):
        here = os.path.realpath(source)
        for each in mounts.status().mounts:
            inside = os.path.relpath(here, os.path.realpath(each.mount_path))
            if inside == "." or not inside.startswith(".."):
                store = Store(each.store_url)
                name = each.volume if each.version is None or not each.is_read_only else f"{each.volume}@{each.version}"
                return store, store.version(name).resolve(), "/" if inside == "." else f"/{inside}"
        raise InvalidInputError(
            f"{source} is not below a mount of cowfs", hint=f"{Command('status')} lists the mounts of this machine."
        )
    found = store.version(source).resolve()
    if found.folder:
        return store, store.version(f"{found.name}@{found.id}").resolve(), f"/{found.folder}"
    return store, found, "/"


def _print(store: Store, version: ROVolume | None, path: str, *, as_json: bool) -> None:
    from cowfs.cli.files import tree
    from cowfs.cli.volumes import ls

    context = click.get_current_context()
    if version is None:
        context.invoke(ls.command, store=store.url, as_json=as_json)
    else:
        context.invoke(tree.command, place=f"{version.locator}:{path}", as_json=as_json)
