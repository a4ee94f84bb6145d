"""Commands in hints and notes, each with a place for the store.

A command such as `cowfs commit data` means the default store unless it names one. In another store
it would act on a volume that merely has the same name. The code that writes a hint rarely knows how
the user names the store, so a command that takes one ends with SLOT, and `insert_store` puts the
option there where the text is shown:

    Command("commit", "data")         `cowfs commit data`      →  `cowfs commit data --store near`
    Command("commit", "/mnt/data")    the mount knows its store, so there is no slot
    Command("status")                 is about this machine: no slot

Until then the text is an ordinary string: f-strings, pickle and JSON keep its slots.
`CowfsError.hint` and the log (`cowfs.base.log`) show none.
"""

from __future__ import annotations

import os
import shlex

SLOT = "\0"
"""No name, path or URL contains it."""

ABOUT_NO_STORE = frozenset(
    {"allow", "apply", "bench", "clean", "completion", "down", "k8s", "lock", "restart", "status", "up"}
)
"""Commands about files and about this machine."""

OF_TWO_STORES = frozenset({"pull", "push"})
"""Their hints name both stores."""

_PLACEHOLDER = "…"


class Command:
    """A command of the command line, as text between backticks. verb: the subcommand, or an option
    of `cowfs` itself. into: the file that its output is redirected to."""

    __slots__ = ("arguments", "into", "verb")

    def __init__(self, verb: str, *arguments: str | os.PathLike[str], into: str | None = None) -> None:
        self.verb = verb
        self.arguments = tuple(os.fspath(each) for each in arguments)
        self.into = into

    @property
    def takes_store(self) -> bool:
        """Whether it is still to be said which store it means."""
        if self.verb.startswith("-") or self.verb in ABOUT_NO_STORE | OF_TWO_STORES:
            return False
        if self.verb == "store" and self.arguments[:1] in (("add",), ("ls",), ("remove",)):  # about names of stores
            return False
        if any(each in ("--store", "--help") or each.startswith("cowfs+") for each in self.arguments):
            return False
        target = next((each for each in self.arguments if not each.startswith("-")), "")
        return not target.startswith("/")

    def __str__(self) -> str:
        words = ["cowfs", self.verb, *(each if each == _PLACEHOLDER else shlex.quote(each) for each in self.arguments)]
        output = f" > {shlex.quote(self.into)}" if self.into is not None else ""
        return f"`{' '.join(words)}{SLOT if self.takes_store else ''}{output}`"


def insert_store(text: str, store: str) -> str:
    """The text as it is shown. store: what --store gets in its commands; "": they need no store."""
    return text.replace(SLOT, f" --store {shlex.quote(store)}" if store else "")
