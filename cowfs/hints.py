"""What a user is told to run next is about the store that the call was about.

Messages and hints name commands by what they do: `cowfs commit data`. In the default store that is
another volume than in the one that is meant, and what ran there would be done to the wrong one. So
commands between backticks get that store.
"""

from __future__ import annotations

import re
import shlex

ABOUT_NO_STORE = frozenset({"apply", "bench", "completion", "down", "status", "up"})
"""Commands of files and of this machine."""

_COMMAND = re.compile(r"`cowfs ([a-z]+)((?: [^`]*)?)`")


def complete(text: str, store_url: str, *, apart: frozenset[str] = frozenset()) -> str:
    """The text, with the store in each command that does not name one, but for those apart."""
    option = f" --store {shlex.quote(store_url)}"

    def completed(found: re.Match[str]) -> str:
        command, arguments = found[1], found[2]
        names_it = "--store" in arguments or "cowfs+" in arguments or "--help" in arguments
        is_path = arguments.lstrip(" '").startswith("/")  # of a mount, which knows its store
        if command in ABOUT_NO_STORE | apart or names_it or is_path:
            return found[0]
        return f"`cowfs {command}{arguments}{option}`"

    return _COMMAND.sub(completed, text)
