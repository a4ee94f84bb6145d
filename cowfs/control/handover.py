"""Passes a program's credentials, and objects read on its behalf, to a mount daemon.

    at the start     a `Handover`, as one line after the specification on the daemon's standard input
    later            FEED on the control socket: a process that can make new ones asks whether they are wanted, and sends them

Never by arguments, the environment, or a file. Nothing here shows a value: neither a repr nor an
error about an invalid line.
"""

from __future__ import annotations

import json
from dataclasses import field

from cowfs.base.errors import InvalidInputError
from cowfs.base.fast_dataclass import dataclass
from cowfs.control.typed import from_json, to_json
from cowfs.store import Credentials


@dataclass(frozen=True)
class Handover:
    """How a daemon accesses its store. credentials None: use those of its environment.
    credential_process: a command that prints new ones. is_fed: the process that provides them will
    provide new ones, too. store_key: of an encrypted store, in hexadecimal. known: texts of objects
    of the store, by key, that were just read. trusted: servers that may get the credentials of the
    environment, in the format of `trust.VARIABLE`."""

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
    """Sent by a process that has credentials. None: it asks whether new ones are wanted. problem:
    why it has none. is_coming: it knows that new ones are wanted, and is about to fetch them; this
    message is answered at once."""

    credentials: Credentials | None = field(default=None, repr=False)
    problem: str = ""
    is_coming: bool = False


@dataclass(frozen=True)
class Wanted:
    """is_wanted: send new ones, now. is_over: never ask again."""

    is_wanted: bool
    is_over: bool
