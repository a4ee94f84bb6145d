"""From files and the environment to one `Declared`.

    volumes     the file that is named (-f FILE, COWFS_DECLARED); else the nearest cowfs.toml or *.cowfs.yml, upwards from
                the working directory; else the user's own, <config home>/cowfs/volumes.toml
    stores      of that file, and those of the user's own file that it has not; then the environment:
                COWFS_STORES__<name>__<key> sets that key of that store

So the user's file gives stores to every project, and its volumes are mounted only where no project
declares any.

A file that is merely found is used only if it belongs to this user or to root, and nobody else may
write to it. It makes no server a trusted one: what it says of a server is like a locator's word,
and only a file that the user names is the user's own (`store.trust`). Nor does it run a command
(`targets`).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from cowfs import config
from cowfs.api.declared import documents, problems
from cowfs.api.declared.documents import Document
from cowfs.api.declared.model import Declared
from cowfs.api.declared.store import SECRETS
from cowfs.api.declared.toml_lines import Path as KeyPath
from cowfs.errors import AccessDeniedError, InvalidInputError, NotFoundError

NAMES = "cowfs.toml, *.cowfs.yml or *.cowfs.yaml"
NAMED = "`cowfs apply -f FILE`, `cowfs up FILE`, `cowfs down FILE`, Declared.load(FILE)"
VARIABLE = "COWFS_DECLARED"
PREFIX = "COWFS_STORES__"
FLAGS = ("path_style",)

Where = Callable[[KeyPath], str]


def load(path: str | os.PathLike[str] | None = None) -> Declared:
    """What is declared; NotFoundError when nothing is."""
    file = find(path)
    is_named = path is not None or bool(os.environ.get(VARIABLE)) or file == user_file()
    return _checked(documents.read(file), _own(file), is_named=is_named)


def find(path: str | os.PathLike[str] | None = None) -> Path:
    """The file that declares volumes here, by its whole path. A named one need not exist."""
    named = os.fspath(path) if path is not None else os.environ.get(VARIABLE) or None
    if named is not None:
        return Path(os.path.abspath(os.path.expanduser(named)))
    if (found := _nearest(Path.cwd())) is not None:
        return found
    if config.is_there(own := user_file()):
        return own
    raise NotFoundError(
        f"no file declares volumes here: neither {NAMES} in {Path.cwd()} or above it, nor {own}",
        hint=f"Write one (docs/guide/declared.md), or name it: {NAMED}.",
    )


def user_file() -> Path:
    return config.config_file().with_name("volumes.toml")


def parsed(data: bytes, file: Path) -> Declared:
    """As `load`, of bytes that are no file yet, without the user's own file."""
    return _checked(documents.parsed(data, file), None, is_named=True)


def _nearest(directory: Path) -> Path | None:
    for place in (directory, *directory.parents):
        found = [each for each in _entries(place) if _is_ours(each)]
        if len(found) > 1:
            raise InvalidInputError(
                f"{place} has several files that declare volumes: {', '.join(each.name for each in found)}",
                hint=f"Name one of them: {NAMED}.",
            )
        if found:
            _require_own(found[0])
            return found[0]
    return None


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:  # a directory above that may only be passed through
        return []


def _is_ours(path: Path) -> bool:
    return (path.name == "cowfs.toml" or path.name.endswith((".cowfs.yml", ".cowfs.yaml"))) and path.is_file()


def _require_own(file: Path) -> None:
    found = file.stat()
    if found.st_uid not in (os.getuid(), 0) or found.st_mode & stat.S_IWOTH:
        whose = "may be written by anybody" if found.st_uid in (os.getuid(), 0) else f"belongs to user {found.st_uid}"
        raise AccessDeniedError(
            f"{file} {whose}: it is not used unless you name it",
            hint=f"If you trust it, name it: {NAMED}; or {VARIABLE}={file}.",
        )


def _own(file: Path) -> Document | None:
    """The user's file, unless it is the file itself."""
    own = user_file()
    if file == own or not config.is_there(own):
        return None
    return documents.read(own)


def _checked(document: Document, own: Document | None, *, is_named: bool) -> Declared:
    values = dict(document.values)
    places: dict[KeyPath, Where] = {}
    values["stores"] = _merged_stores(values.get("stores", {}), own, places)
    values["stores"] = _with_environment(values["stores"], places)

    def where(path: KeyPath) -> str:
        for count in range(len(path), 0, -1):
            if path[:count] in places:
                return places[path[:count]](path)
        return document.where(path)

    try:
        declared = Declared.model_validate(values)
    except ValidationError as error:
        raise problems.raised(problems.found_in(error, Declared.keys_at), where) from None
    declared._file = document.file
    if not is_named:  # others are of the user's own file, or of the environment
        declared._named_stores = frozenset(str(path[1]) for path in places if path[2:] in ((), ("url",), ("endpoint",)))
    return declared


def _merged_stores(stores: Any, own: Document | None, places: dict[KeyPath, Where]) -> Any:
    others = own.values.get("stores", {}) if own is not None else {}
    if own is None or not isinstance(stores, dict) or not isinstance(others, dict):
        return stores
    for name in others.keys() - stores.keys():
        places["stores", name] = own.where
    return {**others, **stores}


def _with_environment(stores: Any, places: dict[KeyPath, Where]) -> Any:
    if not isinstance(stores, dict):
        return stores
    stores = dict(stores)
    for variable in sorted(os.environ):
        if not variable.startswith(PREFIX):
            continue
        spoken, _, key = variable.removeprefix(PREFIX).partition("__")
        name, key = _name_of(spoken, stores), key.lower()
        before = stores.get(name, {})
        before = {"url": before} if isinstance(before, str) else before
        if isinstance(before, dict):
            stores[name] = {**before, key: _value_of(variable, key)}
            places["stores", name, key] = _said_by(variable)
            if not before:
                places["stores", name] = _said_by(variable)
    return stores


def _name_of(spoken: str, stores: dict[str, Any]) -> str:
    """The store that is meant: variables have upper case letters by custom, and no "-"."""
    same = (name for name in stores if name.upper().replace("-", "_") == spoken)
    return next(same, spoken.lower())


def _value_of(variable: str, key: str) -> object:
    if key in SECRETS:
        return {"env": variable}
    text = os.environ[variable]
    return text.lower() in ("1", "true", "yes") if key in FLAGS else text


def _said_by(variable: str) -> Where:
    return lambda _: f"environment variable {variable}"
