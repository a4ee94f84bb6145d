"""Records which declaring files found by a search the user has allowed, and with which content.

    <state dir>/declared/<24 hex>.allowed     "<BLAKE3 of the content, in hex>  <path>\\n"; the hex is of the file's path

There is one record for each file: allowing a file again replaces its record, and a file that has
changed is no longer allowed. The content that the caller has read is what counts, so replacing a
file after it was read gains nothing. Format: docs/format/applied.md.
"""

from __future__ import annotations

import os
from pathlib import Path

from blake3 import blake3

from cowfs.base import private_directories
from cowfs.base.errors import unusable
from cowfs.machine import applied
from cowfs.machine.state import replace_durably


def content_of(data: bytes) -> str:
    return blake3(data).hexdigest()


def allow(file: Path, content: str) -> None:
    """content: the result of `content_of` for the text that the user has seen."""
    path = place_of(file)
    try:
        private_directories.make(path.parent)
        replace_durably(path, f"{content}  ".encode() + os.fsencode(os.path.realpath(file)) + b"\n")
    except OSError as error:
        raise unusable(error, f"{path} cannot be written", elsewhere=applied.ELSEWHERE) from error


def is_allowed(file: Path, data: bytes) -> bool:
    """A record that is missing or cannot be read allows nothing."""
    try:
        recorded = place_of(file).read_bytes()
    except OSError:
        return False
    return recorded.split(b" ")[0] == content_of(data).encode()


def place_of(file: Path) -> Path:
    return applied.place_of(file).with_suffix(".allowed")
