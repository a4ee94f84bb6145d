"""A version's index as a file, and the tree that such a file shows: `ROVolume.export_index` and
`IndexFile`. Names, sizes and times; no contents."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from cowfs.api.files import TYPES, Entry
from cowfs.api.versions import cards
from cowfs.api.versions.comparing import open_index_of
from cowfs.base import config
from cowfs.base.errors import InvalidInputError
from cowfs.version.named_changes import join_path

if TYPE_CHECKING:
    from cowfs.api.files import FilePath
    from cowfs.api.versions.located_version import LocatedVersion
    from cowfs.api.versions.version_tree import VersionTree
    from cowfs.format.manifest import Stats
    from cowfs.index import Index, InodeRow
    from cowfs.index import index_file as files


def export(version: LocatedVersion, path: Path) -> None:
    """`ROVolume.export_index`. The file appears when it is whole."""
    from cowfs.index.index_file import write_index_file

    if version.folder:
        raise InvalidInputError(f"{version.locator} is one folder", hint="Export the index of the whole version.")
    whole = version.resolve()
    fd, temporary = tempfile.mkstemp(dir=path.absolute().parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "wb") as file, open_index_of(whole) as index:
            write_index_file(index.blocks, whole.named, whole.read_manifest(), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


class IndexFile:
    """A file that `cowfs index export` wrote: the version and its tree, without its store. Has the
    fields of `ROVolume`, and `ls` and `stat` in `files`. Close it, or use it in a `with` block.

    InvalidInputError: it is no index file. CorruptError: it is damaged. Errors of the disk are
    Python's.
    """

    is_pruned = False
    is_resolved = True

    def __init__(self, path: str | os.PathLike[str]) -> None:
        from cowfs.index.index_file import IndexFile as Opened

        self._opened: files.IndexFile = Opened(Path(path), cache_dir=config.cache_dir())
        self.files = IndexedFiles(self._opened.index)
        """Its tree."""

    @property
    def locator(self) -> str:
        return str(self._opened.locator)

    @property
    def name(self) -> str:
        """The volume's name."""
        return self._opened.locator.volume

    @property
    def id(self) -> str:
        return self._opened.locator.version.hex()

    @property
    def message(self) -> str:
        return self._opened.manifest.message

    @property
    def author(self) -> str:
        return self._opened.manifest.author

    @property
    def created(self) -> datetime:
        """When the version was committed; UTC, to the microsecond."""
        return datetime.fromtimestamp(self.created_ns / 1e9, UTC)

    @property
    def created_ns(self) -> int:
        """When the version was committed, in nanoseconds since 1970."""
        return self._opened.manifest.created_ns

    @property
    def labels(self) -> Mapping[str, str]:
        return dict(self._opened.manifest.labels)

    @property
    def parents(self) -> list[str]:
        """Version ids."""
        return [parent.hex() for parent in self._opened.manifest.parents]

    @property
    def stats(self) -> Stats:
        return self._opened.manifest.stats

    def tree(self, path: str | os.PathLike[str] = "/", *, depth: int = 2, limit: int = 200) -> VersionTree:
        """As `ROVolume.tree`."""
        from cowfs.api.versions import version_tree

        return version_tree.look_at(self.files, self.locator, path, depth, limit)

    def close(self) -> None:
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"IndexFile({self.name}@{self.id[:12]})"

    def _repr_html_(self) -> str:
        return cards.show_version(self)


class IndexedFiles:
    """The tree of an index. root: the folder whose tree it is, without slashes at its ends."""

    def __init__(self, index: Index, root: bytes = b"") -> None:
        self._index = index
        self._root = root

    def ls(self, path: FilePath | Entry = "/", recursive: bool = False) -> Iterator[Entry]:
        """The entries of a directory, by name; for anything else, its own entry. recursive: include
        everything below, each directory before its contents. Links are not followed.
        FileNotFoundError."""
        entry = self.stat(path)
        if entry.type != "directory":
            yield entry
            return
        waiting = [self._list(os.fsencode(entry.path))]
        while waiting:
            found = next(waiting[-1], None)
            if found is None:
                waiting.pop()
                continue
            yield found
            if recursive and found.type == "directory":
                waiting.append(self._list(os.fsencode(found.path)))

    def stat(self, path: FilePath | Entry = "/") -> Entry:
        """The entry at a path; links are not followed. FileNotFoundError."""
        given = os.fsencode(path.path if isinstance(path, Entry) else path).strip(b"/")
        ino = self._index.find(join_path(self._root, given))
        row = self._index.inode(ino) if ino is not None else None
        if row is None:
            raise FileNotFoundError(2, os.strerror(2), os.fsdecode(b"/" + given))
        return _entry(b"/" + given, row)

    def _list(self, directory: bytes) -> Iterator[Entry]:
        above = directory.rstrip(b"/") + b"/"
        ino = self._index.find(join_path(self._root, directory.strip(b"/")))
        pages = self._index.directory_pages(ino) if ino is not None else iter(())
        for page in pages:
            for name, row in page:
                yield _entry(above + name, row)


def _entry(path: bytes, row: InodeRow) -> Entry:
    from cowfs.version.publish.tree_changes import MODE, MTIME, SIZE, TARGET

    kind = TYPES.get(stat.S_IFMT(row[MODE]), "special")
    return Entry(
        path=os.fsdecode(path),
        name=os.fsdecode(path.rpartition(b"/")[2]),
        type=kind,
        mode=row[MODE],
        size=row[SIZE],
        mtime_ns=row[MTIME],
        target=os.fsdecode(row[TARGET]) if kind == "symlink" else None,
    )
