"""What a user is told to run next is about the store that the call was about.

Messages and hints name commands by what they do: `cowfs commit data`. In the default store that is
another volume than in the one that a user named, and what ran there would be done to the wrong one.
So every command between backticks gets that store, where it is not the default one.
"""

from __future__ import annotations

import re
import shlex

from cowfs.api import stores
from cowfs.errors import CowfsError

ABOUT_NO_STORE = frozenset({"apply", "bench", "completion", "down", "status", "up"})
"""Commands of files and of this machine."""

_COMMAND = re.compile(r"`cowfs ([a-z]+)((?: [^`]*)?)`")


def about(store_url: str | None, text: str) -> str:
    """The text, with the store in each command that does not name one. None: the default one."""
    if store_url is None or _is_default(store_url):
        return text
    option = f" --store {shlex.quote(store_url)}"

    def completed(found: re.Match[str]) -> str:
        command, arguments = found[1], found[2]
        names_it = "--store" in arguments or "cowfs+" in arguments or "--help" in arguments
        is_path = arguments.lstrip(" '").startswith("/")  # of a mount, which knows its store
        if command in ABOUT_NO_STORE or names_it or is_path:
            return found[0]
        return f"`cowfs {command}{arguments}{option}`"

    return _COMMAND.sub(completed, text)


def opening(name: str, store_url: str | None) -> str:
    """How a program opens that volume."""
    if store_url is None or _is_default(store_url):
        return f"Volume.open({name!r})"
    return f"Volume.open({name!r}, store={store_url!r})"


def _is_default(url: str) -> bool:
    try:
        return stores.canonical_url(url) == stores.canonical_url()
    except CowfsError:  # one of them is no store: that is what the user is told of
        return False
