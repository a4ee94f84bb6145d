"""A file system, as far as `local_files` sees it, that takes names for one which others tell apart,
as those of Windows and macOS do. Names are kept as they are folded."""

from __future__ import annotations

import errno
import os
import unicodedata
from typing import Any

import pytest

from cowfs.native.local import open_beneath
from cowfs.transfer import local_files

CALLS = frozenset({"link", "mkdir", "open", "readlink", "rename", "rmdir", "stat", "symlink", "unlink", "utime"})


def fold(patch: pytest.MonkeyPatch, *, refuses: bytes = b"") -> None:
    """refuses: no file can be made whose name has it."""
    patch.setattr(local_files, "os", _Calls(refuses))
    patch.setattr(local_files, "open_beneath", lambda root, path, flags: open_beneath(root, _folded(path), flags))


class _Calls:
    """The module `os`."""

    def __init__(self, refuses: bytes) -> None:
        self._refuses = refuses

    def __getattr__(self, name: str) -> Any:
        called = getattr(os, name)
        if name not in CALLS:
            return called

        def folding(*paths: Any, **named: Any) -> Any:
            if self._refuses and isinstance(paths[0], bytes) and self._refuses in paths[0]:
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
            return called(*map(_folded, paths), **named)

        return folding


def _folded(given: Any) -> Any:
    """Absolute paths are the test's."""
    if not isinstance(given, bytes) or given.startswith(b"/"):
        return given
    text = unicodedata.normalize("NFKD", given.decode(errors="surrogateescape")).replace("\xad", "").casefold()
    return b"/".join((each.rstrip(". ") or each).encode(errors="surrogateescape") for each in text.split("/"))
