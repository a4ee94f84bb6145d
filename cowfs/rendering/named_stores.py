"""The store in suggested commands: `cowfs commit data` means the default store, so a command about
another one names it."""

from __future__ import annotations


def name_store(text: str, store_url: str | None) -> str:
    """The text, with the store added as an option to each command in it (between backticks) that
    names none. store_url None, or the default store: unchanged."""
    from cowfs.api import hints

    return hints.about(store_url, text)


def is_default_store(store_url: str) -> bool:
    """Whether commands that name no store are about this one."""
    from cowfs.api import hints

    return hints.is_default(store_url)


def store_option(store_url: str) -> str:
    """What commands about this store pass to --store: its name, if it has one on this machine, else
    its URL; "" for the default store."""
    from cowfs.api import hints

    return hints.option(store_url)
