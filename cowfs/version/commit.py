"""What a commit is asked for, and what it stands on.

Plain values: importing them brings neither engine nor index along, so that programs which only use volumes stay light.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cowfs.ids import VersionId

if TYPE_CHECKING:
    from cowfs.format.manifest import Manifest


@dataclass(frozen=True)
class CommitRequest:
    """What a commit says about itself. produced_by keys: system, run, action, output, host."""

    message: str = ""
    author: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    produced_by: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Base:
    """What the working copy stands on: head number and the version it names (None: a volume without versions)."""

    head_number: int
    version_id: VersionId | None
    manifest: Manifest | None
