"""Completes the commands in messages and hints with the store that the call was about.

Messages and hints show commands such as `cowfs commit data`. In the default store that names
another volume than the intended one, and the command would act on the wrong volume. So commands
between backticks get the store as an option.
"""

from __future__ import annotations

import re
import shlex

ABOUT_NO_STORE = frozenset({"allow", "apply", "bench", "completion", "down", "status", "up"})
"""Commands about files and about this machine."""

_COMMAND = re.compile(r"`cowfs ([a-z]+)((?: [^`]*)?)`")


def complete(text: str, store_url: str, *, apart: frozenset[str] = frozenset()) -> str:
    """Adds the store to each command in the text that names none, except those in `apart`."""
    option = f" --store {shlex.quote(store_url)}"

    def complete_command(found: re.Match[str]) -> str:
        command, arguments = found[1], found[2]
        names_it = "--store" in arguments or "cowfs+" in arguments or "--help" in arguments
        is_about_names = command == "store" and arguments.split()[:1] != ["accept"]
        is_path = arguments.lstrip(" '").startswith("/")  # of a mount, whose store is known
        if command in ABOUT_NO_STORE | apart or names_it or is_path or is_about_names:
            return found[0]
        return f"`cowfs {command}{arguments}{option}`"

    return _COMMAND.sub(complete_command, text)
