"""The values of a commit: its request, its base, its progress.

Plain values: importing them loads neither engine nor index, so programs that only use volumes stay
light.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from cowfs.base.errors import InvalidInputError
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.ids import VersionId

if TYPE_CHECKING:
    from cowfs.format.manifest import Manifest


GIVABLE = frozenset({"message", "author", "labels"})


@dataclass(frozen=True)
class CommitRequest:
    """The description of a commit. produced_by keys: system, workflow, run, action, attempt,
    output, host.

    given: the fields of GIVABLE that the caller set for this commit; the others come from the
    environment or from a program's defaults. write_id: of the head that it puts, in hex, by which a
    caller that got no answer asks again; "": any.
    """

    message: str = ""
    author: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    produced_by: Mapping[str, str] = field(default_factory=dict)
    given: frozenset[str] = frozenset()
    write_id: str = ""

    def __post_init__(self) -> None:
        if not self.given <= GIVABLE:
            raise InvalidInputError(f"{', '.join(sorted(self.given - GIVABLE))} cannot be given to a commit")

    def fill_message(self, message: str) -> CommitRequest:
        """The same with that message, if it has none."""
        return self if self.message else dataclasses.replace(self, message=message)

    def describe_left_out(self) -> str:
        """How a hint begins that asks to leave out what was given."""
        return f"Leave {' and '.join(f'the {name}' for name in sorted(self.given, reverse=True))} out"

    def says_more_than(self, manifest: Manifest) -> bool:
        """Whether a given field is missing in the version: then a commit of the same tree makes a
        version, too."""
        return any(getattr(self, name) != getattr(manifest, name) for name in self.given)


FROZEN = "frozen"
"""Reported only to the caller of the commit. A copy (a mount without FUSE) never reports it."""


@dataclasses.dataclass(frozen=True)
class Progress:
    """Progress of a long operation. 0 in `total` or `total_bytes`: not known.

    stage   of a commit "frozen", when later writes are no longer in the version, then "files", then "index"; of a mount
            with uncommitted work "load", then "replay"; of a mount that waits for another writer "wait"
    done    files, records or seconds, of `total`; done_bytes: bytes written since the last commit, of `total_bytes`
    """

    stage: str
    done: int = 0
    total: int = 0
    done_bytes: int = 0
    total_bytes: int = 0


ProgressListener = Callable[[Progress], None]


@dataclass(frozen=True)
class Base:
    """The base of the working copy: head number and the version it names (None: a volume without
    versions). head_check: of the head's record, None if it was not read."""

    head_number: int
    version_id: VersionId | None
    manifest: Manifest | None
    head_check: str | None = field(default=None, compare=False, repr=False)
