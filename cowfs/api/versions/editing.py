"""Removes, moves and makes files and directories of a volume by NAME:PATH, without a mount: each
call publishes one version, or nothing.

    not mounted here    on top of the newest version (`head_changes`), so beside other writers without a mount
    mounted here        in the mount, as programs do; its commit publishes the changes

A call first finds out all that it will do, so that a wrong path changes nothing. What it finds in a
version, it finds again if another writer has published meanwhile.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cowfs.api import sources, stores
from cowfs.api.access import file_access, path_patterns
from cowfs.api.access.file_access import SessionAccess, TreeAccess
from cowfs.api.access.version_files import files_of
from cowfs.api.access.volume_handle import VolumeHandle
from cowfs.api.files import Entry, ROFiles, RWFiles
from cowfs.api.mounts import mount_transfer
from cowfs.api.sources import Place
from cowfs.api.transfers import uploading, written_volumes
from cowfs.api.transfers.path_errors import NothingThere, errors_of_ours
from cowfs.api.versions import head_changes
from cowfs.api.versions.head_changes import Change
from cowfs.api.versions.located_version import LocatedVersion
from cowfs.base.errors import ConflictError, InvalidInputError
from cowfs.base.hints import Command
from cowfs.base.short_repr import short_repr
from cowfs.version.names import volumes

if TYPE_CHECKING:
    from cowfs.api.transfers.written_volumes import WrittenVolume
    from cowfs.base.ids import VersionId
    from cowfs.version.commit import CommitRequest

SHOWN_PATHS = 3


@short_repr
@dataclass(frozen=True)
class EditReport:
    """What `Store.remove`, `Store.move` or `Store.mkdir` has done to a volume.

    paths: those removed or made, or where the moved ones are now; a directory stands for everything
    below it. locator: of the volume's last version; None before the first. is_new: whether this
    call made it. mount_path: the mount that was changed, whose commit publishes this; None: the
    volume was not mounted here.
    """

    volume: str
    paths: tuple[str, ...]
    locator: str | None
    is_new: bool
    mount_path: str | None = None


@dataclass(frozen=True)
class _Edit:
    """find: the paths that are concerned, or an error, before anything is changed. act: changes one
    of them. afterwards: where it is then. to: the target in the version's message."""

    verb: str
    find: Callable[[ROFiles], list[bytes]]
    act: Callable[[RWFiles, bytes], None]
    afterwards: Callable[[bytes], bytes] = lambda path: path
    to: str = ""


def remove(
    places: Sequence[str],
    store: stores.Named,
    request: CommitRequest,
    *,
    recursive: bool = False,
    missing_ok: bool = False,
    dry_run: bool = False,
) -> EditReport:
    """`Store.remove`."""
    meant = _places(places, removes=True)

    def find(files: ROFiles) -> list[bytes]:
        found = _find(files, meant, missing_ok=missing_ok)
        for path, entry in found.items():
            _require_no_root(path, meant[0].source)
            if entry.type == "directory" and not recursive:
                raise InvalidInputError(
                    f"{meant[0].source}:{entry.path} is a directory",
                    hint="-r (recursive=True) removes directories, with everything in them.",
                )
        return [path for path in found if not _is_below_other(path, found)]

    def act(files: RWFiles, path: bytes) -> None:
        files.remove(path, recursive=recursive)

    return _run(_Edit("Remove", find, act), meant, store, request, dry_run=dry_run)


def move(
    given: Sequence[str], target: str, store: stores.Named, request: CommitRequest, *, dry_run: bool = False
) -> EditReport:
    """`Store.move`."""
    *meant, to = _places([*given, target])
    planned: dict[bytes, bytes] = {}

    def find(files: ROFiles) -> list[bytes]:
        planned.clear()
        found = _find(files, meant)
        into = _target_directory(files, meant, to)
        for path, entry in found.items():
            _require_no_root(path, to.source)
            there = to.path if into is None else _join(into, path.rpartition(b"/")[2])
            _require_movable(to.source, path, there, planned)
            _require_replaceable(files, to.source, entry, there)
            planned[path] = there
        return list(planned)

    def act(files: RWFiles, path: bytes) -> None:
        there = planned[path]
        files.mkdir(there.rpartition(b"/")[0], parents=True, exist_ok=True)
        files.move(path, there)

    edit = _Edit("Move", find, act, lambda path: planned[path], f" to /{os.fsdecode(to.path)}")
    return _run(edit, [*meant, to], store, request, dry_run=dry_run)


def mkdir(places: Sequence[str], store: stores.Named, request: CommitRequest, *, parents: bool = False) -> EditReport:
    """`Store.mkdir`."""
    meant = _places(places)

    def find(files: ROFiles) -> list[bytes]:
        found: dict[bytes, None] = {}
        for place in meant:
            missing = _missing(files, place.path)
            if not parents and not missing:
                raise ConflictError(
                    f"{place.source}:/{os.fsdecode(place.path)} is there already",
                    hint="-p (parents=True) accepts a directory that is there.",
                )
            if not parents and missing[0] != place.path and missing[0] not in found:
                raise InvalidInputError(
                    f"{place.source}:/{os.fsdecode(missing[0])} does not exist",
                    hint="-p (parents=True) makes the directories above, too.",
                )
            found |= dict.fromkeys(missing)
        return list(found)

    def act(files: RWFiles, path: bytes) -> None:
        files.mkdir(path)

    return _run(_Edit("Make", find, act), meant, store, request)


# -- one volume, one version


def _run(
    edit: _Edit, places: Sequence[Place], store: stores.Named, request: CommitRequest, *, dry_run: bool = False
) -> EditReport:
    volume = written_volumes.find(places[0], store)
    name = volume.target.name
    with errors_of_ours(name, sources.listing_hint(places[0]), within=name):
        if volume.entry is not None:
            return _edit_mount(edit, volume, request, dry_run=dry_run)
        if dry_run:
            found = edit.find(_newest(volume))
            return EditReport(name, _list_afterwards(edit, found), _locator(volume, volume.head.version), False)
        return _publish(edit, volume, request)


def _publish(edit: _Edit, volume: WrittenVolume, request: CommitRequest) -> EditReport:
    target, head, done = volume.target, volume.head, list[bytes]()
    if not (expected := edit.find(_newest(volume))):
        return EditReport(target.name, (), _locator(volume, head.version), False)

    def apply(files: RWFiles) -> None:
        done[:] = edit.find(files)
        for path in done:
            edit.act(files, path)

    if not request.message:
        request = replace(request, message=_printable(f"{edit.verb} {_summary(expected)}{edit.to}"))
    base = head_changes.publish(target.store, target.name, head.version, [Change((), apply)], request)
    return EditReport(target.name, _list_afterwards(edit, done), _locator(volume, base.version_id), bool(done))


def _edit_mount(edit: _Edit, volume: WrittenVolume, request: CommitRequest, *, dry_run: bool) -> EditReport:
    from cowfs.session.mounted_files import MountedFiles

    entry, target = volume.entry, volume.target
    assert entry is not None
    uploading.require_nothing_given(entry.volume, entry, request)
    with mount_transfer.opened(entry) as root, MountedFiles(root.path, root.fileno()) as tree:
        handle = VolumeHandle(target.store.storage or target.store.url, target.name, "existing")
        files = RWFiles(TreeAccess(tree), handle)
        found = edit.find(files)
        for path in () if dry_run else found:
            edit.act(files, path)
    locator = _locator(volume, volume.head.version)
    return EditReport(target.name, _list_afterwards(edit, found), locator, False, entry.mount_path)


def _newest(volume: WrittenVolume) -> ROFiles:
    """The files of the version that was found; none before the first one."""
    store, name = volume.target.store, volume.target.name
    if volume.head.version is None:
        held = file_access.of_version(store, name, None, b"")
        return ROFiles(SessionAccess(lambda: held), VolumeHandle.of_head(store, volume.head).committed_version)
    return files_of(LocatedVersion(volumes.locator(store.objects, name, volume.head.version), storage=store.storage))


def _locator(volume: WrittenVolume, version: VersionId | None) -> str | None:
    if version is None:
        return None
    return str(volumes.locator(volume.target.store.objects, volume.target.name, version))


def _list_afterwards(edit: _Edit, paths: Sequence[bytes]) -> tuple[str, ...]:
    return tuple("/" + os.fsdecode(edit.afterwards(path)) for path in paths)


def _summary(paths: Sequence[bytes]) -> str:
    """Names a few paths, and counts the others."""
    shown = ", ".join(f"/{os.fsdecode(path)}" for path in paths[:SHOWN_PATHS])
    return shown if len(paths) <= SHOWN_PATHS else f"{shown} and {len(paths) - SHOWN_PATHS} more"


def _printable(text: str) -> str:
    """A message is text, and a name any bytes."""
    return text.encode(errors="backslashreplace").decode()


# -- paths


def _places(texts: Sequence[str], *, removes: bool = False) -> list[Place]:
    """Places of one volume. InvalidInputError: a path of this machine, or several volumes.
    ReadOnlyError: several sources, and one of them is a version."""
    found = []
    for text in texts:
        if not sources.is_place(text):
            raise _no_place(text, removes=removes)
        found.append(sources.place(text))
    if len({place.source for place in found}) > 1:
        if (version := next((each.source for each in found if sources.names_version(each.source)), None)) is not None:
            raise written_volumes.never_changes(version)
        raise InvalidInputError(
            f"{found[0].source} and {next(each.source for each in found if each.source != found[0].source)} are two volumes",
            hint=f"One call makes one version of one volume. {Command('cp')} copies from one to another (Store().copy()).",
        )
    return found


def _no_place(text: str, *, removes: bool) -> InvalidInputError:
    bare = text.strip("/")
    if "/" in bare or not bare or os.path.lexists(text):
        name, _, path = text.partition("/")
        such = f", such as {name}:{path}" if name.strip(".~") and path else ""
        return InvalidInputError(
            f"{text!r} is a path of this machine",
            hint=f"Give NAME:PATH, a path in a volume{such}; {Command('cp')} (Store().copy()) copies into one and out of it.",
        )
    deletes = f" {Command('delete', bare)} (Store().delete()) deletes a volume." if removes else ""
    return InvalidInputError(f"{text!r} is no path in a volume", hint=f"Give NAME:PATH, such as {bare}:file.{deletes}")


def _find(files: ROFiles, places: Sequence[Place], *, missing_ok: bool = False) -> dict[bytes, Entry]:
    """The entries of the places by path; a link stands for itself."""
    found: dict[bytes, Entry] = {}
    for place in places:
        if path_patterns.is_pattern(files, place.path):
            if missing_ok and not any(files.glob(place.path)):
                continue
            found |= {os.fsencode(each.path).lstrip(b"/"): each for each in path_patterns.find_matches(files, place)}
        elif missing_ok:
            with NothingThere():
                found[place.path] = files.stat(place.path, follow=False)
        else:
            found[place.path] = files.stat(place.path, follow=False)
    return found


def _missing(files: ROFiles, path: bytes) -> list[bytes]:
    """The directories to make so that this one exists, from the top. NotADirectoryError: something
    else is in its place."""
    above, found = b"", list[bytes]()
    for name in filter(None, path.split(b"/")):
        above = _join(above, name)
        if found or not files.exists(above):
            found.append(above)
        elif files.stat(above).type != "directory":
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), "/" + os.fsdecode(above))
    return found


def _target_directory(files: ROFiles, given: Sequence[Place], to: Place) -> bytes | None:
    """The directory that the sources are moved into; None: the target is a name of its own."""
    if files.exists(to.path) and files.stat(to.path).type == "directory":
        return to.path
    is_several = len(given) > 1 or any(path_patterns.is_pattern(files, place.path) for place in given)
    return to.path if to.is_directory or is_several else None


def _require_movable(source: str, path: bytes, there: bytes, planned: Mapping[bytes, bytes]) -> None:
    """planned: the earlier moves."""
    one, other = (f"{source}:/{os.fsdecode(each)}" for each in (path, there))
    if there == path:
        raise InvalidInputError(f"{one} is at its target already", hint="Give another target.")
    if (there + b"/").startswith(path + b"/"):
        raise InvalidInputError(f"{one} cannot be moved into itself, to {other}", hint="Give another target.")
    if there in planned.values():
        raise InvalidInputError(
            f"two of the sources would be {other}", hint="Move them one by one, each under a name of its own."
        )
    if _is_below_other(path, planned):
        raise InvalidInputError(f"{one} moves along with a directory above it", hint="Leave it out, or name it first.")


def _require_replaceable(files: ROFiles, source: str, entry: Entry, there: bytes) -> None:
    """What a rename checks at its target. OSError as there."""
    present, is_directory = None, entry.type == "directory"
    with NothingThere():
        present = files.stat(there, follow=False)
    if present is None:
        return
    if is_directory != (present.type == "directory"):
        problem = errno.ENOTDIR if is_directory else errno.EISDIR
        raise OSError(problem, os.strerror(problem), present.path)
    if is_directory and any(files.ls(there)):
        raise InvalidInputError(
            f"{source}:{present.path} is a directory with something in it",
            hint="Give another target, or remove what is there.",
        )


def _require_no_root(path: bytes, source: str) -> None:
    if not path:
        raise InvalidInputError(
            f"{source}: is the root of volume {source}, which stays",
            hint=f"{Command('rm', '-r', f'{source}:/*')} empties it, {Command('delete', source)} (Store().delete()) deletes the volume.",
        )


def _is_below_other(path: bytes, found: Container[bytes]) -> bool:
    parts = path.split(b"/")
    return any(b"/".join(parts[:end]) in found for end in range(1, len(parts)))


def _join(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name
