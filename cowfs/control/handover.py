"""How a mount daemon comes by credentials that a program gave, and by what was read for it already.

    at the start     a `Handover`, as one line behind the specification on the daemon's standard input
    later            FEED on the control socket: a process that can make new ones asks whether they are wanted, and brings them

Never by arguments, the environment, or a file. Nothing here shows a value: neither a repr nor an
error about a line that is none.
"""

from __future__ import annotations

import json
from dataclasses import field

from cowfs.control.typed import from_json, to_json
from cowfs.errors import InvalidInputError
from cowfs.store import Credentials
from cowfs.values import dataclass


@dataclass(frozen=True)
class Handover:
    """How a daemon asks its store. credentials None: with what its environment has.
    credential_process: prints others. is_fed: the process that gives them will make others, too.
    store_key: of an encrypted store, in hexadecimal. known: texts of objects of the store, by key,
    that were read a moment ago. trusted: servers that may see the credentials of the environment,
    as `trust.VARIABLE` has them."""

    credentials: Credentials | None = field(default=None, repr=False)
    path_style: bool | None = None
    credential_process: str | None = field(default=None, repr=False)
    is_fed: bool = False
    store_key: str | None = field(default=None, repr=False)
    known: dict[str, str] = field(default_factory=dict, repr=False)
    trusted: str = ""

    def to_line(self) -> bytes:
        return json.dumps(to_json(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Handover:
        """InvalidInputError: not such a line."""
        try:
            return from_json(cls, json.loads(line))
        except (ValueError, RecursionError):
            raise InvalidInputError(
                "the mount daemon cannot use the credentials it was given",
                hint="They are handed over by Volume.mount of the same version.",
            ) from None


@dataclass(frozen=True)
class Offer:
    """From a process that has credentials. None: it asks whether others are wanted. problem: why it
    has none. is_coming: it was told that they are wanted, and is about to fetch them; the answer to
    this comes at once."""

    credentials: Credentials | None = field(default=None, repr=False)
    problem: str = ""
    is_coming: bool = False


@dataclass(frozen=True)
class Wanted:
    """is_wanted: bring others, now. is_over: never ask again."""

    is_wanted: bool
    is_over: bool
