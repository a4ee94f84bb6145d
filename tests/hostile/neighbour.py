"""A neighbour that is as fast as can be: whatever this process makes in a tree is exchanged for a
link to the canary the moment the system call that made it returns.

A thread that spins on the tree wins such a race now and then; this one wins each race that it
enters. `chance` of the calls are met. What was made is kept beside the tree.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

_rename, _symlink, _lstat = os.rename, os.symlink, os.lstat


def move_in(tree: Path, canary_directory: str, canary_file: str, away: Path, *, chance: float, seed: int) -> None:
    """For the rest of this process."""
    choice, numbers = random.Random(seed), itertools.count()

    def swap(path: str, is_directory: bool) -> None:
        if not path.startswith(f"{tree}/") or choice.random() >= chance:
            return
        try:
            _rename(path, away / str(next(numbers)))
            _symlink(canary_directory if is_directory else canary_file, path)
        except OSError:
            return

    def met(name: str, at: int, fd_name: str, is_directory: Callable[[Any], bool | None]) -> None:
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            path = _full(arguments[at], options.get(fd_name))
            result = real(*arguments, **options)
            if (kind := is_directory(arguments)) is not None:
                swap(path, kind)
            return result

        setattr(os, name, call)

    met("mkdir", 0, "dir_fd", lambda _: True)
    met("link", 1, "dst_dir_fd", lambda _: False)
    met("rename", 1, "dst_dir_fd", lambda _: False)
    met("replace", 1, "dst_dir_fd", lambda _: False)
    met("open", 0, "dir_fd", lambda arguments: False if arguments[1] & os.O_CREAT else None)


def _full(path: Any, dir_fd: int | None) -> str:
    name = os.fsdecode(path) if not isinstance(path, int) else ""
    return name if dir_fd is None else os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), name)
