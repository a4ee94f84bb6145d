"""The store in suggested commands: cowfs commit data means the default store, so a command about
another one names it."""

from __future__ import annotations


def name_store(text: str, store_url: str | None) -> str:
    """The text, in which each `cowfs.errors.Command` that means a store names this one. store_url
    None: the default store, which they need not name."""
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
