"""Two versions compared: opens their indexes, and says what differs in the words of `Change`.

No mount, no session, no lease; file contents are not read. Versions of two stores are compared by
path and content, since numbers of files mean nothing elsewhere; those of an encrypted store only
with each other, since its chunks have names of their own.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cowfs import config
from cowfs.api import sources, stores
from cowfs.api.changes import Change
from cowfs.api.ro_volume import ROVolume
from cowfs.errors import InvalidInputError

if TYPE_CHECKING:
    from cowfs.format.manifest import Manifest
    from cowfs.index import Index, InodeRow
    from cowfs.version.differences import Difference

TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}
PATCHED_BYTES = 1 << 20


@dataclass(frozen=True)
class Compared:
    """Two versions, or folders of them, by their locators."""

    old: ROVolume
    new: ROVolume
    changes: list[Change]


def changes(
    old: ROVolume, new: ROVolume, path: str | os.PathLike[str] = "/", *, times: bool = False, renames: bool = True
) -> list[Change]:
    """`ROVolume.diff`."""
    from cowfs.version.differences import compare

    below = sources.place(f":{os.fspath(path)}").path
    from_folder, to_folder = (os.fsencode(version.folder) for version in (old, new))
    if (old.id, from_folder) == (new.id, to_folder):
        return []
    with _index(old.to_read(), old.to_compare()) as a, _index(new.to_read(), new.to_compare()) as b:
        found = compare(
            a,
            b,
            shared=_shared(old, new, a, b),
            path=_joined(from_folder, below),
            new_path=_joined(to_folder, below),
            times=times,
            renames=renames,
        )
    return [_change(each, len(from_folder), len(to_folder)) for each in found]


def compared(
    old: str, new: str, paths: Sequence[str], named: stores.Named, *, times: bool = False, renames: bool = True
) -> Compared:
    """SOURCE[:PATH] of the command line; paths: only what is there or below."""
    before, after = _version(old, named), _version(new, named)
    found = {
        change for path in paths or ("/",) for change in changes(before, after, path, times=times, renames=renames)
    }
    return Compared(before, after, sorted(found, key=lambda each: (os.fsencode(each.path), each.kind != "removed")))


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


def _text(version: ROVolume, path: str | None, size: int | None) -> list[str] | None:
    if path is None:
        return []
    if size is None or size > PATCHED_BYTES:
        return None
    data = version.files.read(path)
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
    if store.record.store_id != other.record.store_id:
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


def _change(found: Difference, of_old: int, of_new: int) -> Change:
    is_gone = found.new is None
    row = found.old if is_gone else found.new
    assert row is not None
    return Change(
        kind=found.kind,
        path=_path(found.path, of_old if is_gone else of_new),
        old_path=_path(found.old_path, of_old) if found.old_path is not None else None,
        type=_type(row),
        old_type=_type(found.old) if found.old is not None else None,
        what=tuple(sorted(found.what)),
        size=found.new[6] if found.new is not None else None,
        old_size=found.old[6] if found.old is not None else None,
        added_bytes=found.added_bytes,
        removed_bytes=found.removed_bytes,
    )


def _type(row: InodeRow) -> str:
    return TYPES.get(stat.S_IFMT(row[1]), "special")


def _path(path: bytes, folder: int) -> str:
    return "/" + os.fsdecode(path[folder:].lstrip(b"/"))


def _joined(folder: bytes, path: bytes) -> bytes:
    return b"/".join(filter(None, (folder, path)))
