"""Names of stores, as a user gives them on one machine: `Store("near")`, `--store near`,
`near/VOLUME`.

    file, in <config home>/cowfs   written by                  holds
    config.toml, [stores]          hand                        stores as declared volumes have them, and read_only
    volumes.toml, [stores]         hand                        the same; this file may declare volumes, too
    stores.toml                    `cowfs store add, remove`   url and read_only

    near = "s3://bucket/prefix"
    builtin = {url = "https://example.org/store", read_only = true}

A name in several files means the entry of the first. Declared volumes may use all of these names.
A relative path in these files is relative to their directory. A text without a slash and a scheme
is a name and never a directory: `./near` is one. Nothing is written to a read-only store, however
its URL is given.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from cowfs.base import config
from cowfs.base.errors import ConflictError, CowfsError, InvalidInputError, NotFoundError, unusable
from cowfs.base.hints import Command
from cowfs.format.store_url import StoreUrl
from cowfs.store.named import place_named, scheme_of

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True)
class NamedStore:
    """An entry of the table. settings: as of a declared store, without read_only. is_ours: in the
    file that `add_store` writes."""

    name: str
    settings: Mapping[str, Any]
    read_only: bool = False
    is_ours: bool = False

    @property
    def is_url(self) -> bool:
        """Whether the URL is all that the entry says of the store."""
        return set(self.settings) == {"url"}

    @property
    def url(self) -> str:
        """The URL as the entry has it, a directory as a whole path; of a preset, its name."""
        url = self.settings.get("url")
        if not isinstance(url, str):
            return f"preset {self.settings.get('preset')}"
        return url if scheme_of(url) else os.path.join(config.config_file().parent, os.path.expanduser(url))


def is_name(text: str) -> bool:
    """Whether text is the name of a store, and neither a URL nor a path."""
    return bool(text) and "/" not in text and not text.startswith((".", "~")) and scheme_of(text) is None


def split_name(text: str) -> tuple[str | None, str]:
    """STORE/VOLUME..., taken apart at its first slash. None: text names no store."""
    name, slash, rest = text.partition("/")
    return (name, rest) if slash and rest and "@" not in name and is_name(name) else (None, text)


def list_stores() -> list[NamedStore]:
    """By name. InvalidInputError: one of the files is wrong."""
    by_hand, ours = config.named_stores()
    found = [_parse(name, entry, is_ours=False) for name, entry in by_hand.items()]
    found += [_parse(name, entry, is_ours=True) for name, entry in ours.items() if name not in by_hand]
    return sorted(found, key=lambda each: each.name)


def find_store(name: str) -> NamedStore:
    """InvalidInputError: no store has that name."""
    stores = {each.name: each for each in list_stores()}
    if name in stores:
        return stores[name]
    import difflib  # slow to load, and for this message alone

    near = difflib.get_close_matches(name, stores, 1)
    meant = f"Did you mean {near[0]}? " if near else ""
    raise InvalidInputError(
        f"no store is named {name!r}",
        hint=f"{meant}Write ./{name} for a directory. {Command('store', 'add', name, 'URL')} names a store, "
        f"{Command('store', 'ls')} lists those "
        f"that have a name; by hand they are in [stores] of {config.config_file()}.",
    )


def has_store(name: str) -> bool:
    """Whether a store has that name, as far as the files can be read."""
    try:
        return any(each.name == name for each in list_stores())
    except CowfsError:
        return False


def add_store(name: str, url: str, *, read_only: bool = False) -> NamedStore:
    """Names the store at a URL or in a directory; no request is made. ConflictError: another store
    has that name."""
    _check_name(name)
    if is_name(url):
        raise InvalidInputError(f"{url!r} is neither a URL nor a path", hint=f"Write ./{url} for a directory.")
    added = NamedStore(name, {"url": str(place_named(url))}, read_only, is_ours=True)
    with _turn():
        before = {each.name: each for each in list_stores()}
        if before.get(name, added) != added:
            raise ConflictError(
                f"{name!r} names another store: {before[name].url}",
                hint=f"Choose another name, or {Command('store', 'remove', name)} first.",
            )
        _write([each for each in before.values() if each.is_ours and each.name != name] + [added])
    return added


def remove_store(name: str) -> NamedStore:
    """Forgets a name; the store stays as it is. NotFoundError: no store has it."""
    with _turn():
        stores = {each.name: each for each in list_stores()}
        found = stores.get(name)
        if found is None:
            raise NotFoundError(
                f"no store is named {name!r}", hint=f"{Command('store', 'ls')} lists those that have a name."
            )
        if not found.is_ours:
            raise InvalidInputError(
                f"{name!r} was named by hand", hint=f"Remove it from [stores] of {config.config_file()}."
            )
        _write([each for each in stores.values() if each.is_ours and each.name != name])
    return found


def name_of(url: str) -> str | None:
    """The name of the store at a canonical URL; None: it has none, or its entry is more than a
    URL."""
    try:
        stores = list_stores()
    except CowfsError:  # a name is only shown; the error is raised where a store is opened
        return None
    return next((each.name for each in stores if each.is_url and _canonical(each) == url), None)


def is_read_only(url: StoreUrl) -> bool:
    """Whether a user has named the store at this URL as read-only. InvalidInputError: the table
    cannot be read, so that it is not known."""
    return any(each.read_only and _canonical(each) == str(url) for each in list_stores())


def _canonical(named: NamedStore) -> str | None:
    try:
        place = place_named(named.url)
        given = {key: named.settings[key] for key in ("endpoint", "region") if key in named.settings}
        return str(StoreUrl.parse(str(replace(place, **given))))
    except (CowfsError, TypeError):
        return None


def _parse(name: str, entry: object, *, is_ours: bool) -> NamedStore:
    settings = {"url": entry} if isinstance(entry, str) else entry
    where = config.stores_file() if is_ours else config.config_file()
    if not isinstance(settings, dict):
        raise InvalidInputError(
            f"store {name} in {where} is {entry!r}",
            hint='Write name = "URL", or name = {url = "URL", read_only = true}.',
        )
    _check_name(name)
    read_only = settings.get("read_only", False)
    if not isinstance(read_only, bool) or (read_only and not isinstance(settings.get("url"), str)):
        raise InvalidInputError(
            f"store {name} in {where} has read_only = {read_only!r}", hint="Write true or false, beside a url."
        )
    return NamedStore(name, {key: settings[key] for key in settings if key != "read_only"}, read_only, is_ours)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or not is_name(name):
        raise InvalidInputError(
            f"{name!r} cannot name a store",
            hint="Use letters, digits, '_', '-' and '.', at most 64, without a dot first.",
        )


@contextmanager
def _turn() -> Iterator[None]:
    """Makes processes that read, change and write the file take turns. Otherwise one of two names
    that are added at the same time is lost."""
    from cowfs.machine import reservation  # only for changes

    file = config.stores_file()
    with reservation.turn(str(file), lambda: False, doing="changes the names of stores"):
        yield


def _write(stores: list[NamedStore]) -> None:
    path = config.stores_file()
    lines = [f"# Written by {Command('store', 'add')} and {Command('store', 'remove')}."]
    for each in sorted(stores, key=lambda each: each.name):
        lines += ["", f"[{_quote(each.name)}]", f"url = {_quote(each.url)}"]
        lines += ["read_only = true"] if each.read_only else []
    new = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text("\n".join(lines) + "\n")
        os.replace(new, path)
    except OSError as error:
        raise unusable(error, f"{path} cannot be written", elsewhere="set XDG_CONFIG_HOME.") from error


def _quote(text: str) -> str:
    """A basic string of TOML."""
    escaped = "".join(
        f"\\u{ord(each):04x}" if each in '"\\' or ord(each) < 32 or ord(each) == 127 else each for each in text
    )
    return f'"{escaped}"'
