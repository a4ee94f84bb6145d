"""Two versions compared, or a version and what is in none (`work`): opens their indexes, and says
what differs in the words of `Change`.

No mount, no session, no lease; file contents are not read. Versions of two stores are compared by
path and content, since numbers of files mean nothing elsewhere; those of an encrypted store only
with each other, since its chunks have names of their own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from cowfs import config
from cowfs.api import copied_stores, sources, stores
from cowfs.api.changes import Change
from cowfs.api.ro_volume import ROVolume
from cowfs.errors import InvalidInputError
from cowfs.format.locator import is_locator
from cowfs.values import dataclass
from cowfs.version import named_changes
from cowfs.version.named_changes import joined

if TYPE_CHECKING:
    from cowfs.api.rw_volume import RWVolume
    from cowfs.format.manifest import Manifest
    from cowfs.index import Index

PATCHED_BYTES = 1 << 20


@dataclass(frozen=True)
class Compared:
    """Two versions, or folders of them, by their locators; or a version and a volume as it is now.
    old None: before the first version."""

    old: ROVolume | None
    new: ROVolume | RWVolume
    changes: list[Change]


def changes(
    old: ROVolume, new: ROVolume, path: str | os.PathLike[str] = "/", *, times: bool = False, renames: bool = True
) -> list[Change]:
    """`ROVolume.diff`."""
    from cowfs.version.differences import at, compare, neither_has

    below = sources.place(f":{os.fspath(path)}").path
    from_folder, to_folder = (os.fsencode(version.folder) for version in (old, new))
    if (old.id, from_folder) == (new.id, to_folder):
        if there := joined(from_folder, below):
            with _index(old.to_read(), old.to_compare()) as index:
                if at(index, there) is None:
                    raise neither_has(there)
        return []
    with _index(old.to_read(), old.to_compare()) as a, _index(new.to_read(), new.to_compare()) as b:
        found = compare(
            a,
            b,
            shared=_shared(old, new, a, b),
            path=joined(from_folder, below),
            new_path=joined(to_folder, below),
            times=times,
            renames=renames,
        )
    return [named_changes.named(each, len(from_folder), len(to_folder)) for each in found]


def compared(
    old: str, new: str, paths: Sequence[str], named: stores.Named, *, times: bool = False, renames: bool = True
) -> Compared:
    """SOURCE[:PATH] of the command line; paths: only what is there or below."""
    before, after = _version(old, named), _version(new, named)
    found = {
        change for path in paths or ("/",) for change in changes(before, after, path, times=times, renames=renames)
    }
    return Compared(before, after, _in_order(found))


def compared_with_work(
    old: str, new: str | None, paths: Sequence[str], named: stores.Named, *, times: bool = False, renames: bool = True
) -> Compared:
    """What is in no version, too. old: SOURCE[:PATH], new: NAME; new None: old is NAME[:PATH], and
    compared with what the work stands on."""
    from cowfs.api import work
    from cowfs.api.volume import Volume

    place = sources.place(old)
    volume = Volume.open(_name(old if new is None else new), store=named).resolve()
    given = _version(old, named) if new is not None else None
    above = place.path if new is None else b""
    found: set[Change] = set()
    version = given
    for path in paths or ("/",):
        done = work.compared(volume, given, joined(above, sources.place(f":{path}").path), times=times, renames=renames)
        found.update(done.changes)
        if given is None and done.version is not None:
            version = volume._ro(done.version)
    return Compared(version, volume, _in_order(found))


def _name(text: str) -> str:
    """Of a volume, for what only a volume has."""
    place = sources.place(text)
    if "@" in place.source or is_locator(text):
        raise InvalidInputError(
            f"{text} is a version, and has no uncommitted work", hint="Give two versions, or the NAME of a volume."
        )
    return place.source


def _in_order(changes: Iterable[Change]) -> list[Change]:
    return sorted(changes, key=lambda each: (os.fsencode(each.path), each.kind != "removed"))


def patch(two: Compared, change: Change) -> str | None:
    """How the lines of a small text file differ, as a unified diff; "" when there are no lines to
    show, None: it is no small text."""
    import difflib

    before = _text(two.old, change.old_path if change.old_type == "file" else None, change.old_size)
    after = _text(two.new, change.path if change.type == "file" and change.kind != "removed" else None, change.size)
    if before is None or after is None:
        return None
    old_name = f"a{change.old_path}" if change.old_path is not None else "/dev/null"
    new_name = f"b{change.path}" if change.kind != "removed" else "/dev/null"
    lines = difflib.unified_diff(before, after, old_name, new_name)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _text(version: ROVolume | RWVolume | None, path: str | None, size: int | None) -> list[str] | None:
    from cowfs.api import work

    if path is None or version is None:
        return []
    if size is None or size > PATCHED_BYTES:
        return None
    data = version.files.read(path) if isinstance(version, ROVolume) else work.read(version, path)
    if b"\0" in data:
        return None
    try:
        return data.decode().splitlines(keepends=True)
    except UnicodeDecodeError:
        return None


def _version(text: str, named: stores.Named) -> ROVolume:
    place = sources.place(text)
    found = sources.find(place.source, named)
    return ROVolume(found.locator(), folder=place.path, storage=found.store.storage).resolve()


def _index(store: stores.OpenStore, manifest: Manifest) -> Index:
    """A version's, to be closed."""
    from cowfs.index import open_index
    from cowfs.store.packs import PackReader

    return open_index(store.objects, PackReader(store.objects), manifest.index, cache_dir=config.cache_dir())


def _shared(old: ROVolume, new: ROVolume, a: Index, b: Index) -> int:
    """Inode numbers below it mean one file in both."""
    from cowfs.ids import VersionId
    from cowfs.version.ancestry import Ancestry

    store, other = old.to_read(), new.to_read()
    if not copied_stores.is_same(store, other):
        _require_plain(store, other)
        return 0
    older, newer = VersionId.from_hex(old.id), VersionId.from_hex(new.id)
    ancestry = Ancestry(store.objects)
    common = ancestry.numbered_alike(older, newer)
    if common in (older, newer):
        return (a if common == older else b).next_ino
    manifest = ancestry.manifest(common) if common is not None else None
    if manifest is None:
        return 0
    with _index(store, manifest) as base:
        return base.next_ino


def _require_plain(*opened_stores: stores.OpenStore) -> None:
    from cowfs.format.sealing import PLAIN
    from cowfs.store.sealed import sealing_of

    for each in opened_stores:
        if sealing_of(each.objects) is not PLAIN:
            raise InvalidInputError(
                f"{each.url} is encrypted: its versions can only be compared with each other",
                hint="Compare two versions of that store; or download both, and compare the directories.",
            )
