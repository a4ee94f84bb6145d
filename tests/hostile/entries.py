"""What a hostile neighbour may put in the place of an entry, and the canary that nothing may touch.

link         a symbolic link to the canary: a file for a file, a directory for a directory
other link   a link to the canary of the other kind
nowhere      a link to nothing
loop         a link to itself
pipe         a named pipe: who opens it waits
huge         a sparse file of 30 GB
directory    an empty directory; file: an empty file
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

HUGE_BYTES = 30 << 30
_OLD_NS = 1_700_000_000_000_000_000  # older than whatever is swept by age


class Canary:
    """A directory and a file outside of the tree, old and private. `files`: names that are put into
    the directory besides, such as those that a sweep would take for its own."""

    def __init__(self, place: Path, *files: str) -> None:
        self.place = place
        self.directory, self.file = place / "directory", place / "file"
        (self.directory / "deep" / "er").mkdir(parents=True)
        for path in (self.file, *(self.directory / name for name in ("thesis.tex", "deep/er/notes", *files))):
            path.write_bytes(b"precious")
        for path in [*place.rglob("*"), place]:
            path.chmod(0o700 if path.is_dir() else 0o600)
        for path in [*place.rglob("*"), place]:
            os.utime(path, ns=(_OLD_NS, _OLD_NS))
        self._before = self._look()

    def changes(self) -> list[str]:
        """What differs from the beginning."""
        now, before = self._look(), self._before
        differing = (path for path in sorted({*now, *before}) if now.get(path) != before.get(path))
        return [f"{path}: {before.get(path)} -> {now.get(path)}" for path in differing]

    def _look(self) -> dict[str, tuple[object, ...]]:
        found = dict[str, tuple[object, ...]]()
        for path in [self.place, *self.place.rglob("*")]:
            seen = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(seen.st_mode) else b""
            found[str(path)] = (oct(seen.st_mode), seen.st_uid, seen.st_nlink, seen.st_mtime_ns, content)
            os.utime(path, ns=(_OLD_NS, seen.st_mtime_ns), follow_symlinks=False)
        return found


def _link(path: Path, canary: Canary, was_directory: bool) -> None:
    path.symlink_to(canary.directory if was_directory else canary.file)


def _huge(path: Path, canary: Canary, was_directory: bool) -> None:
    path.touch()
    os.truncate(path, HUGE_BYTES)


KINDS: dict[str, Callable[[Path, Canary, bool], None]] = {
    "link": _link,
    "pipe": lambda path, canary, was_directory: os.mkfifo(path),
    "huge": _huge,
    "directory": lambda path, canary, was_directory: path.mkdir(),
    "other link": lambda path, canary, was_directory: _link(path, canary, not was_directory),
    "nowhere": lambda path, canary, was_directory: path.symlink_to("nowhere"),
    "loop": lambda path, canary, was_directory: path.symlink_to(path.name),
    "file": lambda path, canary, was_directory: path.touch(),
}
"""Those that have done harm come first."""


def entries_of(tree: Path) -> list[str]:
    """Each directory and each file, relative to the tree."""
    return sorted(str(path.relative_to(tree)) for path in tree.rglob("*"))


@contextmanager
def replaced(tree: Path, entry: str, kind: str, canary: Canary, away: Path) -> Iterator[None]:
    """`entry` is set aside at `away` and something else stands in its place. What came there
    meanwhile goes at the end; an entry that is new stays away."""
    path = tree / entry
    was_directory = path.is_dir()
    is_there = os.path.lexists(path)
    if is_there:
        path.rename(away)
    KINDS[kind](path, canary, was_directory)
    try:
        yield
    finally:
        if os.path.lexists(path):
            if path.is_dir() and not path.is_symlink():
                _remove(path)
            else:
                path.unlink()
        if is_there:
            away.rename(path)


def _remove(directory: Path) -> None:
    for name in os.listdir(directory):
        path = directory / name
        if path.is_dir() and not path.is_symlink():
            _remove(path)
        else:
            path.unlink()
    directory.rmdir()
