"""Lock files: the versions that the volumes of a declaring file are locked to. TOML, one line for
each volume, so that git merges what two branches add:

    format = 1
    project = "digits-3fa9c1"                      of the tags that keep these versions
    volumes = [
      {name = "data@v1", store = "main", locator = "cowfs+s3://…/-/data@…", content_id = "content-1:…"},
    ]

name and store are those of the declaring file and make the key of a line; without store the volume
is in the default store. A line whose version could not be tagged ends with `tagged = false`.

Guarantees: equal values have equal bytes. `decode` takes lines in any order, since a merge may
leave them so, ignores unknown keys, and checks each value: others can write the file. Not here:
whether the lock fits the declaring file (`api.declared.fitting`), and files
(`api.declared.lock_files`).
Format: docs/format/lock-file.md.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Any, NoReturn

from cowfs.base import toml
from cowfs.base.errors import CowfsError, InvalidInputError, UnsupportedFormatError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.hints import Command
from cowfs.base.ids import VersionId
from cowfs.format.locator import Locator

FORMAT = 1
PROJECT = re.compile(r"[A-Za-z0-9_-]{1,64}")
_CONTENT_ID = re.compile(r"content-[0-9]{1,3}:[0-9a-f]{64}")
_HEADER = f"# The versions that volumes are locked to. Written by {Command('lock')}: run that, and do not edit it."
_HINT = f"Restore it from version control; of a merge, keep the lines of both sides. Then run {Command('lock')}."
_ESCAPED = re.compile(r'["\\\x00-\x1f\x7f]')


@dataclass(frozen=True)
class LockedVolume:
    """One line. name, store: as in the declaring file. is_tagged: whether a tag keeps the
    version. line: its number in the file; None: it is in no file, or lines are laid out otherwise
    there."""

    name: str
    store: str | None
    locator: Locator
    content_id: str
    is_tagged: bool = True
    line: int | None = field(default=None, compare=False)

    @property
    def version(self) -> VersionId:
        return self.locator.version

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.store or ""


@dataclass(frozen=True)
class LockFile:
    project: str
    volumes: tuple[LockedVolume, ...] = ()

    def encode(self) -> bytes:
        lines = sorted({(*each.key, _line(each)) for each in self.volumes})
        head = [_HEADER, f"format = {FORMAT}", f"project = {_quote(self.project)}", "volumes = ["]
        return "".join(f"{line}\n" for line in (*head, *(line for *_, line in lines), "]")).encode()


def decode(data: bytes, *, what: str) -> LockFile:
    """InvalidInputError naming `what`; UnsupportedFormatError: of a newer cowfs."""
    try:
        found = toml.parse(data.decode())
    except ValueError as error:
        raise InvalidInputError(f"{what} is not a lock file: {error}", hint=_HINT) from None
    number = found.get("format")
    if type(number) is int and number > FORMAT:
        raise UnsupportedFormatError(
            f"{what} has format {number}; this cowfs reads format {FORMAT}", hint="Use a newer cowfs."
        )
    project, volumes = found.get("project"), found.get("volumes")
    if type(number) is not int or number != FORMAT or not isinstance(volumes, list):
        _refuse(what, "it has no format or no volumes")
    if not isinstance(project, str) or not PROJECT.fullmatch(project):
        _refuse(what, "its project is not a name")
    lines = [number for number, line in enumerate(data.split(b"\n"), 1) if line.lstrip().startswith(b"{")]
    places = lines if len(lines) == len(volumes) else [None] * len(volumes)
    return LockFile(
        project,
        tuple(
            _volume(each, place, f"{what}: volumes[{index}]")
            for index, (each, place) in enumerate(zip(volumes, places, strict=True))
        ),
    )


def _volume(found: Any, line: int | None, what: str) -> LockedVolume:
    if not isinstance(found, dict):
        _refuse(what, "it is not a table")
    store, is_tagged = found.get("store"), found.get("tagged", True)
    name, locator, content_id = (found.get(key) for key in ("name", "locator", "content_id"))
    if not isinstance(name, str) or not isinstance(store, str | None) or not isinstance(is_tagged, bool):
        _refuse(what, "name, store or tagged is missing or of another type")
    if not isinstance(content_id, str) or not _CONTENT_ID.fullmatch(content_id):
        _refuse(what, "content_id is not a content id")
    try:
        place = Locator.parse(locator if isinstance(locator, str) else "")
    except CowfsError as error:
        _refuse(what, error.message)
    return LockedVolume(name, store, place, content_id, is_tagged, line)


def _line(volume: LockedVolume) -> str:
    values = {
        "name": volume.name,
        "store": volume.store,
        "locator": str(volume.locator),
        "content_id": volume.content_id,
    }
    said = [f"{key} = {_quote(value)}" for key, value in values.items() if value is not None]
    return f"  {{{', '.join(said if volume.is_tagged else [*said, 'tagged = false'])}}},"


def _quote(text: str) -> str:
    """A basic string of TOML."""
    return '"' + _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + '"'


def _refuse(what: str, why: str) -> NoReturn:
    raise InvalidInputError(f"{what} is not a lock file: {why}", hint=_HINT)
