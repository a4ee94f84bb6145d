"""Changes of a store, for pages and for the JSON API alike: who may make them is decided here.

    making a volume                           writers and admins; the maker becomes its owner
    files, tags, delete, undelete             the volume's owner and admins
    all of it                                 not in a store that is only read

A volume that is mounted is not changed (409): its mount would not see it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from typing import BinaryIO, NamedTuple

from starlette.exceptions import HTTPException

from cowfs.blocking import ROVolume, RWFiles, Store, Tag
from cowfs.errors import LeaseHeldError
from cowfs.web.addresses import OWN_STORE, check_name, check_path
from cowfs.web.places import Places, briefly
from cowfs.web.users import User

LONGEST_NAME = 255
PIECE_BYTES = 1 << 20


class NewFile(NamedTuple):
    """path: from the root. content: read from its beginning, perhaps several times."""

    path: str
    content: BinaryIO


@briefly
def require_owner(places: Places, user: User, place: str, name: str, *, is_deleted: bool = False) -> Store:
    """403, with the owner's name: the user may not change the volume. NotFoundError: there is
    none."""
    store = places.require_writable(place)
    if is_deleted:
        owner = next((each.owner for each in store.volumes(deleted=True) if each.name == name), "")
    else:
        owner = store.describe(check_name(name)).volume.owner
    if not user.may_change(owner):
        whose = f"belongs to {owner}" if owner else "has no owner, so it belongs to admins"
        raise HTTPException(403, f"volume {name} {whose}; you are {user.name}, a {user.role}")
    return store


def create(places: Places, user: User, name: str, *, place: str = OWN_STORE) -> None:
    store = places.require_writable(place)
    if not user.may_write:
        raise HTTPException(403, f"{user.name} is a {user.role}, and makes no volumes")
    store.create(check_name(name), owner=user.owner)


def upload(places: Places, user: User, place: str, name: str, files: Sequence[NewFile], message: str) -> ROVolume:
    """Publishes a version with the files; a file of the same name is replaced. Missing directories
    are made. The version is the newest one afterwards. ConflictError: another writer has changed
    the same files meanwhile. LeaseHeldError: the volume is mounted."""
    store = require_owner(places, user, place, name)
    if not files:
        raise HTTPException(400, "no file was sent")
    if len({new.path for new in files}) != len(files):
        raise HTTPException(400, "two of the files have the same name")
    changes = store.changes(name)
    for new in files:
        changes.add([os.fsencode(new.path)[1:]], _write(new))
    changes.publish(message, author=user.owner)
    return places.version(place, name)


def _write(new: NewFile) -> Callable[[RWFiles], None]:
    def write(files: RWFiles) -> None:
        files.mkdir(new.path.rpartition("/")[0] or "/", parents=True, exist_ok=True)
        new.content.seek(0)
        with files.open(new.path, "wb") as file:
            shutil.copyfileobj(new.content, file, PIECE_BYTES)

    return write


def check_file_name(name: str | None) -> str:
    """400 unless a file of a directory can have that name. Browsers send no directories."""
    if not name or name in (".", "..") or "/" in name or "\0" in name or len(os.fsencode(name)) > LONGEST_NAME:
        raise HTTPException(400, f"{name!r} cannot be the name of a file")
    return name


def check_file_path(text: str) -> str:
    path = check_path(text)
    check_file_name(path.rpartition("/")[2])
    return path


def set_tag(places: Places, user: User, place: str, name: str, tag: str, version: str, *, move: bool) -> Tag:
    require_owner(places, user, place, name)
    return places.version(place, name, version).tag(check_name(tag, "tag"), move=move)


def remove_tag(places: Places, user: User, place: str, name: str, tag: str) -> Tag:
    return require_owner(places, user, place, name).untag(name, check_name(tag, "tag"))


def delete(places: Places, user: User, place: str, name: str, typed: str) -> None:
    """400: `typed` is not the name. 409: it is mounted, or has uncommitted work on this machine."""
    store = require_owner(places, user, place, name)
    if typed != name:
        raise HTTPException(400, f"type the name {name} in full to delete the volume")
    mounted = store.describe(name).volume.writer
    if mounted is not None:  # also by this process' user, whose mount `delete` would only warn of
        raise LeaseHeldError(f"volume {name} is mounted by {mounted}", hint="Unmount it first.")
    store.delete(name)
    places.forget(place, name)


def undelete(places: Places, user: User, place: str, name: str) -> bool:
    """Whether it was deleted."""
    return require_owner(places, user, place, check_name(name), is_deleted=True).undelete(name)
