"""What a commit is asked for, what it stands on, and how far it is.

Plain values: importing them brings neither engine nor index along, so that programs which only use
volumes stay light.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from cowfs.errors import InvalidInputError
from cowfs.ids import VersionId
from cowfs.values import dataclass

if TYPE_CHECKING:
    from cowfs.format.manifest import Manifest


GIVABLE = frozenset({"message", "author", "labels"})


@dataclass(frozen=True)
class CommitRequest:
    """What a commit says about itself. produced_by keys: system, run, action, output, host.

    given: what of GIVABLE somebody said for this commit; the rest is what the environment says, or
    what a program filled in.
    """

    message: str = ""
    author: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    produced_by: Mapping[str, str] = field(default_factory=dict)
    given: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not self.given <= GIVABLE:
            raise InvalidInputError(f"{', '.join(sorted(self.given - GIVABLE))} cannot be given to a commit")

    def says_more_than(self, manifest: Manifest) -> bool:
        """Whether something was given that the version does not say: then a commit of the same tree
        makes a version too."""
        return any(getattr(self, name) != getattr(manifest, name) for name in self.given)


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far something is that takes long. 0 in `total` or `total_bytes`: not known.

    stage   of a commit "files", then "index"; of a mount with uncommitted work "load", then "replay"
    done    files or records, of `total`; done_bytes: bytes written since the last commit, of `total_bytes`
    """

    stage: str
    done: int = 0
    total: int = 0
    done_bytes: int = 0
    total_bytes: int = 0


ProgressListener = Callable[[Progress], None]


@dataclass(frozen=True)
class Base:
    """What the working copy stands on: head number and the version it names (None: a volume without
    versions)."""

    head_number: int
    version_id: VersionId | None
    manifest: Manifest | None
