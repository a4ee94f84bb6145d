"""The names of the tags that keep locked versions from being pruned (`cowfs lock`).

    lock.PROJECT.<12 hex>     the digits begin the version's id; PROJECT is that of the lock file (docs/format/lock-file.md)

Each locked version has a tag of its own, which stays when the lock moves to another version: older
commits of the project name the old one. `cowfs lock --release` removes the tags of versions that
the lock file no longer names.
"""

from __future__ import annotations

import re

from cowfs.base.ids import VersionId
from cowfs.format.lock_file import PROJECT

_DIGITS = 12
_TAG = re.compile(rf"lock\.({PROJECT.pattern})\.[0-9a-f]{{{_DIGITS}}}")


def lock_tag(project: str, version: VersionId) -> str:
    return f"lock.{project}.{version.hex()[:_DIGITS]}"


def parse_project(name: str) -> str | None:
    """The project whose lock file needs the tag; None: it is no tag of a lock."""
    found = _TAG.fullmatch(name)
    return found[1] if found is not None else None
