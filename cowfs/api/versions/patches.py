"""The differences between two versions, as a patch that `git apply` and `patch -p1` accept.

    diff --git a/OLD b/NEW          as git writes it: additions, removals, modes, renames, then hunks
    # cowfs: PATH: …                content outside the patch format; both programs skip such lines

A patch contains regular files of text up to `PATCHED_BYTES`, links, renames of files, and the
executable bit. It has no other permissions, owners, extended attributes, times, directories without
a file in them, hard links or special files, and no contents that are large or have a NUL. Text is
split at "\\n" alone and kept byte for byte, whichever its encoding.

Removals come first, so that a directory is gone before a file takes its name: `git apply` accepts
that, GNU patch rejects the file. A renamed directory is not expressed as such: its files are
removed and added.
"""

from __future__ import annotations

import difflib
import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cowfs.api.access.version_files import files_of
from cowfs.api.versions.changes import Change
from cowfs.api.versions.located_version import LocatedVersion
from cowfs.base.errors import PurgedError
from cowfs.base.fast_dataclass import dataclass

if TYPE_CHECKING:
    from cowfs.api.access.volume_handle import VolumeHandle
    from cowfs.api.versions.named_comparisons import Diff

PATCHED_BYTES = 1 << 20
_MOST_PAIRS = 1_000_000
"""The limit for `difflib`, which takes minutes to days beyond it: such a file is replaced as a
whole."""
_NO_END = b"\\ No newline at end of file\n"
_ESCAPES = {7: b"\\a", 8: b"\\b", 9: b"\\t", 10: b"\\n", 11: b"\\v", 12: b"\\f", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}


@dataclass(frozen=True)
class _Side:
    """One path in one version. mode: git's; content: a file's bytes, or a link's target. content
    None: a patch cannot express it. is_purged: its bytes were purged."""

    path: bytes
    type: str
    mode: str
    permissions: int
    content: bytes | None
    is_purged: bool = False


def of(two: Diff) -> Iterator[bytes]:
    """The parts of the patch, each of whole lines. The comparison must be made without renames of
    directories."""
    before, after = _reader(two.old), _reader(two.new)
    moved = [each for each in two.changes if each.kind != "removed"]
    gone = [each for each in two.changes if each.kind == "removed"]
    with_files = _directories_with_files(two.changes)
    for change in [*gone, *moved]:
        old = _side(before, change.old_path, change.old_type, change.old_size)
        new = _side(after, change.path if change.kind != "removed" else None, change.type, change.size)
        yield from _of_change(change, old, new, with_files)


def _directories_with_files(changes: Sequence[Change]) -> set[tuple[bool, str]]:
    """(is removed, path) of the directories that a patch creates or removes with their contents."""
    found = set()
    for each in changes:
        if each.type != "directory":
            above = each.path.rpartition("/")[0]
            while above and (each.kind == "removed", above) not in found:
                found.add((each.kind == "removed", above))
                above = above.rpartition("/")[0]
    return found


def _of_change(
    change: Change, old: _Side | None, new: _Side | None, with_files: set[tuple[bool, str]]
) -> Iterator[bytes]:
    unsaid = list(_unsaid(change, old, new, with_files))
    if unsaid:
        yield b"# cowfs: %b: not in this patch: %b\n" % (_quote(os.fsencode(change.path)), ", ".join(unsaid).encode())
    old, new = _patchable(old), _patchable(new)
    if old is not None and new is not None:
        if old.content is None or new.content is None:
            if old.type == new.type:
                yield from _compare(old, new)  # its name and mode, if these differ
            return
        if old.type != new.type or (new.type == "symlink" and old.content != new.content):
            yield from _remove_lines(old)
            yield from _add_lines(new)
        else:
            yield from _compare(old, new)
    elif old is not None and old.content is not None:
        yield from _remove_lines(old)
    elif new is not None and new.content is not None:
        yield from _add_lines(new)


def _unsaid(change: Change, old: _Side | None, new: _Side | None, with_files: set[tuple[bool, str]]) -> Iterator[str]:
    for side in {side.type: side for side in (old, new) if side is not None}.values():
        is_implied = side.type == "directory" and (side is old, change.path) in with_files
        if (
            side.type not in ("file", "symlink")
            and not is_implied
            and (old is None or new is None or old.type != new.type)
        ):
            yield f"a {side.type} {'removed' if side is old else 'added'}"
    has_content = change.kind in ("added", "removed") or "content" in change.what or "type" in change.what
    files = [side for side in (old, new) if side is not None and side.type == "file"]
    if has_content and any(side.is_purged for side in files):
        yield "content (purged)"
    elif has_content and any(side.content is None for side in files):
        yield f"content (binary or larger than {PATCHED_BYTES >> 20} MiB)"
    if new is not None and _has_unsaid_mode(old, new):
        yield f"mode {new.permissions:o}"
    yield from (each for each in change.what if each in ("owner", "xattrs", "names", "device"))
    if change.what == ("mtime",):
        yield "time of modification"


def _has_unsaid_mode(old: _Side | None, new: _Side) -> bool:
    """Whether the mode cannot be expressed: a patch has two modes for a file, 644 and 755."""
    if new.type == "symlink" or (old is not None and old.type == new.type and old.permissions == new.permissions):
        return False
    involved = {side.permissions for side in (old, new) if side is not None and side.type == new.type}
    return new.type != "file" or not involved <= {0o644, 0o755}


def _patchable(side: _Side | None) -> _Side | None:
    return side if side is not None and side.type in ("file", "symlink") else None


# -- as git writes it


def _compare(old: _Side, new: _Side) -> Iterator[bytes]:
    header = b""
    if old.mode != new.mode:
        header += b"old mode %b\nnew mode %b\n" % (old.mode.encode(), new.mode.encode())
    if old.path != new.path:
        header += b"rename from %b\nrename to %b\n" % (_quote(old.path), _quote(new.path))
    has_lines = old.content is not None and new.content is not None and old.content != new.content
    if header or has_lines:
        yield _title(old.path, new.path) + header
    if has_lines:
        yield from _hunks(old.content or b"", new.content or b"", b"a/" + old.path, b"b/" + new.path)


def _remove_lines(old: _Side) -> Iterator[bytes]:
    yield _title(old.path, old.path) + b"deleted file mode %b\n" % old.mode.encode()
    yield from _hunks(old.content or b"", b"", b"a/" + old.path, None)


def _add_lines(new: _Side) -> Iterator[bytes]:
    yield _title(new.path, new.path) + b"new file mode %b\n" % new.mode.encode()
    yield from _hunks(b"", new.content or b"", None, b"b/" + new.path)


def _title(old: bytes, new: bytes) -> bytes:
    return b"diff --git %b %b\n" % (_quote(b"a/" + old), _quote(b"b/" + new))


def _hunks(before: bytes, after: bytes, old_name: bytes | None, new_name: bytes | None) -> Iterator[bytes]:
    if before == after:
        return
    names = (_quote(name) if name is not None else b"/dev/null" for name in (old_name, new_name))
    yield b"--- %b\n+++ %b\n" % (*names,)
    old, new = _lines(before), _lines(after)
    if _pairs(old, new) > _MOST_PAIRS:
        lines = [b"@@ -1,%d +1,%d @@\n" % (len(old), len(new))]
        lines += [b"-" + each for each in old] + [b"+" + each for each in new]
    else:  # without difflib's own names, which quote nothing
        lines = list(difflib.diff_bytes(difflib.unified_diff, old, new))[2:]
    for line in lines:
        yield line if line.endswith(b"\n") else line + b"\n" + _NO_END


def _pairs(old: list[bytes], new: list[bytes]) -> int:
    """The number of pairs of equal lines that `difflib` compares: it skips lines that are frequent
    in a long file."""
    counts = Counter(new)
    popular = len(new) // 100 + 1 if len(new) >= 200 else len(new)
    return sum(found for line in old if (found := counts[line]) <= popular)


def _lines(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _quote(name: bytes) -> bytes:
    """The name quoted as in C, as git does it, if it has a control character, a quote, a backslash
    or bytes that are not UTF-8. Spaces are quoted, too, because GNU patch ends a name at a
    space."""
    if all(byte > 32 and byte not in b'\x7f"\\' for byte in name) and _is_text(name):
        return name
    shown = (_ESCAPES.get(byte) or (b"%c" % byte if 32 <= byte < 127 else b"\\%03o" % byte) for byte in name)
    return b'"%b"' % b"".join(shown)


def _is_text(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


# -- reading


@dataclass(frozen=True)
class _Reader:
    """mode_and_target: st_mode of the entry at a path, and the target if it is a link."""

    read: Callable[[str], bytes]
    mode_and_target: Callable[[str], tuple[int, str | None]]


def _reader(version: LocatedVersion | VolumeHandle | None) -> _Reader | None:
    from cowfs.api.mounts import work

    if version is None:
        return None
    if not isinstance(version, LocatedVersion):
        return _Reader(partial(work.read, version), partial(work.mode_and_target, version))
    files = files_of(version)

    def mode_and_target(path: str) -> tuple[int, str | None]:
        found = files.stat(path, follow=False)
        return found.mode, found.target

    return _Reader(files.read, mode_and_target)


def _side(version: _Reader | None, path: str | None, type: str | None, size: int | None) -> _Side | None:
    if path is None or version is None or type is None:
        return None
    named = os.fsencode(path.strip("/"))
    mode, target = version.mode_and_target(path)
    permissions = stat.S_IMODE(mode)
    if type == "symlink":
        return _Side(named, type, "120000", 0o777, os.fsencode(target or ""))
    content, is_purged = None, False
    if type == "file" and size is not None and size <= PATCHED_BYTES:
        try:
            content = version.read(path)
        except PurgedError:
            is_purged = True
    if content is not None and b"\0" in content:
        content = None
    return _Side(named, type, "100755" if permissions & 0o100 else "100644", permissions, content, is_purged)
