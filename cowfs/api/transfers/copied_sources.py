"""The sources of a copy: whose paths they are, and which ones a version's places name.

A name without a colon is a path of this machine. Several sources, and what a pattern matches, go
into the target under their own names, so these must differ.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from cowfs.api import sources, stores
from cowfs.api.access import path_patterns
from cowfs.api.access.file_access import TreeAccess
from cowfs.api.files import TYPES, ROFiles
from cowfs.api.sources import Place
from cowfs.api.transfers import local_paths
from cowfs.api.transfers.path_errors import errors_of_ours
from cowfs.base.errors import CowfsError, InvalidInputError
from cowfs.base.hints import Command
from cowfs.format import keys
from cowfs.version.names import volumes

if TYPE_CHECKING:
    from cowfs.api.versions.located_version import LocatedVersion
    from cowfs.session.opened_file import FileTree
    from cowfs.transfer.links import Links


def are_of_volume(given: Sequence[str], target: str, store: stores.Named) -> bool:
    """Whether the sources are of a volume; otherwise they are of this machine, and the target is a
    volume's. InvalidInputError: neither, or sources of two places."""
    if not given:
        raise InvalidInputError("there is nothing to copy", hint="Give a source.")
    of_volume = [each for each in given if sources.is_place(each)]
    if not of_volume and not sources.is_place(target):
        raise _both_local(given, target, store)
    if of_volume and len(of_volume) < len(given):
        raise InvalidInputError(
            f"{of_volume[0]} is in a volume, and {next(each for each in given if each not in of_volume)} on this machine",
            hint="All sources of one copy are of this machine, or of one volume or version.",
        )
    if len(named := {sources.place(each).source: each for each in of_volume}) > 1:
        raise InvalidInputError(
            f"{' and '.join(list(named)[:2])} are two sources", hint="Copy from one volume or version at a time."
        )
    return bool(of_volume)


def _both_local(given: Sequence[str], target: str, store: stores.Named) -> InvalidInputError:
    """Names without a colon are paths of this machine. Most likely one of them was meant as a
    volume."""
    volume = next((each for each in (target, *given) if _is_volume(each, store)), None)
    if volume is not None:
        words = [f"{each}:" if each == volume else each for each in (*given, target)]
        return InvalidInputError(
            f"{volume!r} without a colon is a path of this machine, although there is a volume {volume}",
            hint=f"The volume's files are {volume}:, one of them is {volume}:PATH: {Command('cp', *words)}.",
        )
    bare = next((each for each in (*given, target) if "/" not in each), "NAME")
    return InvalidInputError(
        f"{given[0]!r} and {target!r} are paths of this machine here",
        hint=f"Write SOURCE:PATH for a volume's files, {bare}: for all of them. For two local paths there is cp.",
    )


def _is_volume(name: str, store: stores.Named) -> bool:
    with suppress(CowfsError):
        volumes.read_head(stores.open_store(store).objects, keys.check_volume_name(name))
        return True
    return False


def find(tree: Links, places: Sequence[Place]) -> tuple[dict[bytes, bytes], bool]:
    """The paths of the sources in the tree of their version by name, and whether each goes into
    the target under its name. A link that a place names is followed; one that a pattern matches is
    copied."""
    from cowfs.transfer import links

    files = ROFiles(TreeAccess(cast("FileTree", tree)), _no_version)  # only names are read
    is_gathered, found = len(places) > 1, dict[bytes, bytes]()
    for place in places:
        with errors_of_ours(place.source, sources.listing_hint(place), within=place.source):
            is_pattern = path_patterns.is_pattern(files, place.path)
            is_gathered |= is_pattern
            matched = path_patterns.find_matches(files, place) if is_pattern else ()
            for path in [os.fsencode(each.path).lstrip(b"/") for each in matched] or [place.path]:
                at = path if is_pattern else links.follow(tree, path)
                shown, name = f"{place.source}:{os.fsdecode(path)}", path.rpartition(b"/")[2]
                if stat.S_IFMT(tree.stat(at).mode) not in TYPES:
                    raise local_paths.not_copied(shown)
                if is_gathered:
                    local_paths.require_own_name(name, shown, found)
                found[name] = at
    return found, is_gathered


def _no_version() -> LocatedVersion:
    raise AssertionError("only names are read")
