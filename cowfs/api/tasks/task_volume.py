"""What a call of a task mounts, and its notation SOURCE[:PATH][:MODE].

SOURCE is anything that names a volume or a version (`api.sources`), a folder of a version included.
PATH begins with /, ~, ./ or ../ and follows the last colon that such a path follows. An empty PATH
(SOURCE::MODE) or none means a directory of the volume's own. Names of volumes may have placeholders
as in declared volumes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from cowfs.api import sources
from cowfs.api.versions.merge_report import resolver
from cowfs.base.errors import InvalidInputError
from cowfs.base.short_repr import short_repr
from cowfs.control import MountOptions
from cowfs.format.locator import is_locator

if TYPE_CHECKING:
    from cowfs.api.versions.merge_report import Strategy

Mode = Literal["ro", "rw", "fork", "shared", "scratch"]
MODES = get_args(Mode)
OF_A_VOLUME = ("rw", "shared")
"""The modes that publish to the volume that the source names."""
FORKING = ("fork", "shared")
"""The modes that make a volume of their own."""
_PATH = re.compile(r":(?=/(?!/)|~|\.{1,2}/)")
_LIKE_A_MODE = re.compile(r"(.*):([A-Za-z]*)", re.DOTALL)
_NOTATION = "Write SOURCE[:PATH][:MODE], for example base:/data:fork."


@short_repr
@dataclass(frozen=True)
class TaskVolume:
    """A volume that a task mounts.

    source        as for `Volume.version`; for rw and shared the name of a volume, created if it is missing
    path          where it is mounted; None: a directory of the volume's own below ~/cowfs. Calls that run at the same time
                  on one machine need None or different paths, except for ro
    mode          ro: the version, read-only. rw: the volume itself. fork: a new volume that starts from the version. shared: a
                  fork that is merged into the volume at the end and then deleted. scratch: writable, and dropped at the end
    fork_name     for fork and shared; a taken name becomes NAME-<6 hex>. None: made of the names of the volume and the function
    strategy      for shared: how conflicts are resolved, as for `RWVolume.merge`
    options       of the mount
    """

    source: str
    path: str | None = None
    mode: Mode = "ro"
    fork_name: str | None = None
    strategy: Strategy = None
    options: MountOptions | None = None

    def __post_init__(self) -> None:
        if not self.source:
            raise InvalidInputError("a task's volume has no source", hint="Give NAME, NAME@VERSION or a locator.")
        if self.mode not in MODES:
            raise InvalidInputError(f"there is no mode {self.mode!r}", hint=f"Modes are {', '.join(MODES)}.")
        if self.mode in OF_A_VOLUME and (is_locator(self.source) or "@" in self.source or ":" in self.source):
            raise InvalidInputError(
                f"mode {self.mode} publishes to a volume, and {self.source!r} names a version",
                hint="Give the volume's name, or the mode fork for a volume that starts from that version. A path begins "
                "with /, ~, ./ or ../.",
            )
        if self.fork_name is not None and self.mode not in FORKING:
            raise InvalidInputError(
                f"mode {self.mode} makes no fork to be named {self.fork_name!r}", hint="Leave fork_name out."
            )
        if self.strategy is not None and self.mode != "shared":
            raise InvalidInputError(f"mode {self.mode} merges nothing", hint="Leave strategy out, or use mode shared.")
        if self.strategy is not None:
            resolver(self.strategy)
        sources.place(self.source)

    @classmethod
    def parse(cls, text: str) -> TaskVolume:
        """SOURCE[:PATH][:MODE]. InvalidInputError says what is wrong with it."""
        if not isinstance(text, str):
            raise InvalidInputError(f"a task's volume is text or a TaskVolume, not {text!r}", hint=_NOTATION)
        body, mode = _split_mode(text)
        source, path = _split_path(body)
        if not source:
            raise InvalidInputError(f"{text!r} names no volume", hint=_NOTATION)
        return cls(source, path, mode)


def parse_all(given: Sequence[str | TaskVolume]) -> tuple[TaskVolume, ...]:
    """The volumes of a task. InvalidInputError: two of them have the same path, or one a path in
    another, which would become part of that volume; or a volume is written to twice."""
    if isinstance(given, str | TaskVolume):
        raise InvalidInputError(f"volumes is {given!r}", hint=f"Give a list: volumes=[{given!r}].")
    found = tuple(each if isinstance(each, TaskVolume) else TaskVolume.parse(each) for each in given)
    _require_own_paths([each.path for each in found if each.path is not None])
    writers = [each.source for each in found if each.mode == "rw"]
    if twice := next((source for source in writers if writers.count(source) > 1), None):
        raise InvalidInputError(
            f"volume {twice!r} is listed twice with mode rw", hint="List it once: a volume has one writer."
        )
    return found


def _require_own_paths(paths: Sequence[str]) -> None:
    hint = "Give each a path of its own, or none."
    for number, path in enumerate(paths):
        for other in paths[:number]:
            ours, theirs = (os.path.abspath(os.path.expanduser(each)) for each in (path, other))
            if ours == theirs:
                raise InvalidInputError(f"two volumes have the path {path}", hint=hint)
            for inner, outer in ((ours, theirs), (theirs, ours)):
                if inner.startswith(outer.rstrip("/") + "/"):
                    raise InvalidInputError(f"the path {inner} lies in {outer}, the path of another volume", hint=hint)


def _split_mode(text: str) -> tuple[str, Mode]:
    body, colon, last = text.rpartition(":")
    if colon and last in MODES:
        return body, last  # type: ignore[return-value]
    return text, "ro"


def _split_path(body: str) -> tuple[str, str | None]:
    cut = max((found.start() for found in _PATH.finditer(body)), default=-1)
    if cut < 0:
        return body.removesuffix(":"), None
    source, path = body[:cut], body[cut + 1 :]
    if (found := _LIKE_A_MODE.fullmatch(path)) is not None:
        raise InvalidInputError(
            f"there is no mode {found[2]!r}",
            hint=f"Modes are {', '.join(MODES)}. A path with a colon needs TaskVolume(SOURCE, PATH, MODE).",
        )
    return source, path
