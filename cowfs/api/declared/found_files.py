"""The rights of a declaring file that was merely found. Another user may have written it, and this
user may never have read it.

    taken     mounts below the file's own directory; stores there, and stores of a server
    asked     a mount anywhere else; a directory store or a secret's file elsewhere; {env.NAME} in a name, which
              the store's server sees; to drop uncommitted work; to delete idle volumes

Requests of the second kind need the file to be named, or allowed (`cowfs allow FILE`,
`machine.allowed`). Paths are compared after symbolic links have been resolved, including links in a
clone. `require_allowed` checks all of this before any store is opened, `checked_place` checks one
mount just before it is made, and the daemon compares the path once more before it mounts.

Not here: the check of the file's owner and permissions (`loading`), commands and credentials
(`targets`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from cowfs.api import stores
from cowfs.api.declared import host_paths, mount_points, placeholders
from cowfs.api.declared.declared_store import DeclaredStore
from cowfs.api.declared.model import Declaration, DeclaredVolume, content_of
from cowfs.base.errors import InvalidInputError
from cowfs.base.hints import Command
from cowfs.format.store_url import StoreUrl
from cowfs.machine import allowed, registry

UNALLOWED = "unallowed_file"
"""Key of the file in the error's details. The key `content` has its hash (`machine.allowed`)."""


def require_allowed(declared: Declaration, *, mounts: bool, deletes: bool = False) -> None:
    """InvalidInputError: the file was merely found, and requests more than such a file may have.
    mounts: its volumes are to be mounted. deletes: those with `idle_delete` are to be deleted."""
    if not declared.is_merely_found:
        return
    asked = [*_of_volumes(declared, mounts=mounts), *_of_stores(declared)]
    if deletes:
        asked += [
            f"it deletes volume {each.candidates[0]}" for each in declared.volumes if each.idle_delete is not None
        ]
    if asked:
        raise _refusal(declared, asked, deletes=deletes)


def checked_place(declared: Declaration, path: str, *, is_link: bool) -> str:
    """The path of the mount with all links resolved; for is_link, the path at which the link itself
    is made. InvalidInputError as in `require_allowed`."""
    place = _place(path, is_link=is_link)
    if declared.is_merely_found and not _is_below(place, declared):
        raise _refusal(declared, [_list_mounted(path, place)])
    return place


def makes_below(declared: Declaration, path: str) -> Path | None:
    """The directory below which missing parents of this mount path are made: that of the file, and
    that of `root`, if a file that the user names has one elsewhere."""
    if declared.file is None:
        return None
    root = Path(declared.root or "").expanduser()
    is_at_root = Path(path).is_relative_to(root) and not root.is_relative_to(declared.file.parent)
    return root.parent if is_at_root and not declared.is_merely_found else declared.file.parent


def _of_volumes(declared: Declaration, *, mounts: bool) -> Iterator[str]:
    for volume in declared.volumes:
        place = _place(volume.mount_path, is_link=_is_linked(volume))
        if mounts and not _is_below(place, declared):
            yield _list_mounted(volume.mount_path, place)
        if mounts and volume.uncommitted == "discard":
            yield f"it drops uncommitted work of volume {volume.candidates[0]}"
    for variable in sorted(placeholders.variables(each.name for each in declared.volumes)):
        yield f"it tells the store the value of {variable}"


def _is_linked(volume: DeclaredVolume) -> bool:
    """Whether the path is the link by which one of the volume's host paths is mounted."""
    sources = filter(host_paths.is_one, volume.candidates)
    return any(host_paths.is_linked(each, volume.mount_path) for each in sources)


def _of_stores(declared: Declaration) -> Iterator[str]:
    for name, store in declared.stores.items():
        if declared.is_named(name) or not isinstance(store, DeclaredStore):
            continue
        place = StoreUrl.parse(stores.canonical_url(store.without_secrets()))
        if place.protocol == "file" and not _is_below(directory := os.path.realpath(f"/{place.path}"), declared):
            yield f"it opens the store {directory}"
        for path in store.secret_files():
            if not _is_below(os.path.realpath(path), declared):
                yield f"it reads a secret from {path}"


def _place(path: str, *, is_link: bool) -> str:
    if is_link:
        return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    return registry.canonical(path)


def _is_below(place: str, declared: Declaration) -> bool:
    assert declared.file is not None
    return mount_points.is_below(place, os.path.realpath(declared.file.parent))


def _list_mounted(path: str, place: str) -> str:
    return f"it mounts at {path}" + (f", which leads to {place}" if place != path else "")


def _refusal(declared: Declaration, asked: list[str], *, deletes: bool = False) -> InvalidInputError:
    assert declared.file is not None
    file = declared.file
    commands = [Command("clean", "-f", file)] if deletes else [Command("up", file), Command("apply", "-f", file)]
    return InvalidInputError(
        f"{declared.file} was merely found, and {'; '.join(asked)}",
        hint=f"Read it. If you trust it, allow it as it is now: {Command('allow', file)}. Or name it: "
        f"{', '.join(map(str, commands))}, Declared.load({str(file)!r}).",
        details={UNALLOWED: str(declared.file), "content": content_of(declared), "asked": asked},
    )


def allow_content(file: Path, content: str) -> None:
    """content: the hash of the content that the user has seen, from the refusal's details."""
    allowed.allow(file, content)
