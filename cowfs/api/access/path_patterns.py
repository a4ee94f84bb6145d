"""Patterns in SOURCE:PATH: `data:/images/*.png`, with the wildcards of `files.glob`.

A path that exists under exactly that name means itself, whatever characters it contains. Any other
path with wildcards is a pattern; one that matches nothing is an error, as in most shells.
"""

from __future__ import annotations

import os

from cowfs.api import sources
from cowfs.api.files import Entry, ROFiles
from cowfs.api.sources import Place
from cowfs.api.transfers import shell_patterns
from cowfs.api.transfers.path_errors import NothingThere
from cowfs.base.errors import NotFoundError


def is_pattern(files: ROFiles, path: bytes) -> bool:
    """Whether the path has wildcards, and nothing has it as its name."""
    if not shell_patterns.has_wildcards(path):
        return False
    with NothingThere():
        files.stat(path, follow=False)
        return False
    return True


def find_matches(files: ROFiles, place: Place) -> list[Entry]:
    """The entries that the place's pattern matches, by path, without the root; only directories if
    it ends in a slash. NotFoundError: none."""
    matched = (each for each in files.glob(place.path) if each.path.strip("/"))
    found = [each for each in matched if each.type == "directory" or not place.is_directory]
    if not found:
        raise NotFoundError(
            f"nothing in {place.source} matches {os.fsdecode(place.path)!r}", hint=sources.listing_hint(place)
        )
    return sorted(found, key=lambda each: os.fsencode(each.path))
