"""Builds one `Declared` from files and the environment.

    volumes     the file that is named (-f FILE, COWFS_DECLARED); else the nearest cowfs.toml or *.cowfs.yml, upwards from
                the working directory; else the user's own, <config home>/cowfs/volumes.toml
    stores      of that file; then stores that only the user's own file has; then the other stores with a name on this
                machine (`store.store_names`); then the environment:
                COWFS_STORES__<name>__<key> sets that key of that store

The user's file thus provides stores for every project, and its volumes are mounted only where no
project declares any.

A file that is merely found is used only if it and its directory belong to this user or to root, and
neither a group nor others may write to them. It makes no server trusted: its statements about a
server count like those of a locator, and only a file that the user names counts as the user's own
(`store.credentials.trust`). It runs no command (`targets`), and mounts nothing outside its
directory (`found_files`). A file counts as named if the user has allowed it with its present
content (`machine.allowed`). The lock file beside it (`lock_files`) is read with it, so that a plan
is applied with the lock that it was made with.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from cowfs.api.declared import documents, lock_files, problems
from cowfs.api.declared.declared_store import SECRETS
from cowfs.api.declared.documents import Document
from cowfs.api.declared.model import Declaration, set_lock, set_manifest, set_origin
from cowfs.api.declared.problems import Path as KeyPath
from cowfs.base import config
from cowfs.base.errors import AccessDeniedError, InvalidInputError, NotFoundError
from cowfs.base.hints import Command
from cowfs.machine import allowed
from cowfs.store import store_names

NAMES = "cowfs.toml, *.cowfs.yml or *.cowfs.yaml"
NAMED = (
    f"{Command('apply', '-f', 'FILE')}, {Command('up', 'FILE')}, {Command('down', 'FILE')}, "
    f"{Command('clean', '-f', 'FILE')}, Declared.load(FILE)"
)
VARIABLE = "COWFS_DECLARED"
PREFIX = "COWFS_STORES__"
FLAGS = ("path_style",)

D = TypeVar("D", bound=Declaration)


def load(path: str | os.PathLike[str] | None, kind: type[D]) -> D:
    """The declaration, as an instance of `kind`. NotFoundError: no file declares any."""
    file = find(path)
    data, state = documents.read_bytes(file)
    is_named = path is not None or bool(os.environ.get(VARIABLE)) or file == user_file()
    if not is_named and not (is_named := allowed.is_allowed(file, data)):
        _require_unwritable(file, state, file)
        _require_unwritable(file.parent, file.parent.stat(), file)
    content = allowed.content_of(data)
    declared = _check(documents.parsed(data, file), _own(file), kind, content, is_named=is_named)
    _add_lock(declared, file, is_named=is_named)
    return declared


def load_manifest(path: str | os.PathLike[str], root: str | os.PathLike[str] | None, kind: type[D]) -> D:
    """The volumes that another program's file lists: strings in `volumes` of its table `main`. Its
    other keys are ignored. root: the directory of their mount paths."""
    file = find(path)
    document = documents.read(file)
    main = document.values.get("main")
    volumes = main.get("volumes") if isinstance(main, dict) else None
    if not isinstance(volumes, list) or not all(isinstance(each, str) for each in volumes):
        raise InvalidInputError(
            f"{file} has no list of names at main.volumes",
            hint='In TOML: [main], then volumes = ["NAME", "STORE/NAME"].',
        )
    place = file.parent / documents.ROOT if root is None else os.path.abspath(os.path.expanduser(root))
    document = Document(file, {"volumes": volumes, "root": os.fspath(place)})
    declared = _check(document, _own(file), kind, "", is_named=True)
    set_manifest(declared)
    _add_lock(declared, file, is_named=True)
    return declared


def _add_lock(declared: Declaration, file: Path, *, is_named: bool) -> None:
    path = lock_files.path_of(file)
    if (found := lock_files.read(path)) is None:
        return
    lock, state = found
    if not is_named:
        _require_unwritable(path, state, file)
    set_lock(declared, lock)


def find(path: str | os.PathLike[str] | None = None) -> Path:
    """The absolute path of the file that declares volumes here. A named file need not exist."""
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


def parsed(data: bytes, file: Path, kind: type[D]) -> D:
    """As `load`, from bytes that are not in a file yet, without the user's own file."""
    return _check(documents.parsed(data, file), None, kind, "", is_named=True)


def _nearest(directory: Path) -> Path | None:
    for place in (directory, *directory.parents):
        found = [each for each in _entries(place) if _is_ours(each)]
        if len(found) > 1:
            raise InvalidInputError(
                f"{place} has several files that declare volumes: {', '.join(each.name for each in found)}",
                hint=f"Name one of them: {NAMED}.",
            )
        if found:
            return found[0]
    return None


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:  # a directory above that may be searched but not read
        return []


def _is_ours(path: Path) -> bool:
    return (path.name == "cowfs.toml" or path.name.endswith((".cowfs.yml", ".cowfs.yaml"))) and path.is_file()


def _require_unwritable(path: Path, state: os.stat_result, file: Path) -> None:
    if others := _others_who_may_write(state):
        raise AccessDeniedError(
            f"{path} {others}: {'it' if path == file else file} is not used unless you name or allow it",
            hint=f"If you trust it, allow it as it is now: {Command('allow', file)}. Or name it: {NAMED}; "
            f"or {VARIABLE}={file}.",
        )


def _others_who_may_write(found: os.stat_result) -> str:
    """Other users with write permission, in words; "" if only this user and root have it. A group
    counts, since its members are not known here. In a sticky directory others cannot replace a file
    of this user."""
    if found.st_uid not in (os.getuid(), 0):
        return f"belongs to user {found.st_uid}"
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return ""
    if found.st_mode & stat.S_IWOTH:
        return "may be written by anybody"
    return f"may be written by the group {found.st_gid}" if found.st_mode & stat.S_IWGRP else ""


def _own(file: Path) -> Document | None:
    """The user's file, unless it is the file itself."""
    own = user_file()
    if file == own or not config.is_there(own):
        return None
    return documents.read(own)


def _check(document: Document, own: Document | None, kind: type[D], content: str, *, is_named: bool) -> D:
    values = dict(document.values)
    places: dict[KeyPath, str] = {}
    stores = values.get("stores", {})
    if document.file == user_file():
        stores = _without_access(stores)
    values["stores"] = _merge_stores(stores, own, places)
    values["stores"] = _with_environment(values["stores"], places)

    def where(path: KeyPath) -> str:
        found = (places[path[:count]] for count in range(len(path), 0, -1) if path[:count] in places)
        return next(found, str(document.file))

    try:
        declared = kind.model_validate(values)
    except ValidationError as error:
        raise problems.raised(problems.found_in(error, kind.keys_at), where) from None
    named = None
    if not is_named:  # the others are in the user's own file or in the environment
        named = frozenset(str(path[1]) for path in places if path[2:] in ((), ("url",), ("endpoint",)))
    set_origin(declared, document.file, content, named)
    return declared


def _merge_stores(stores: Any, own: Document | None, places: dict[KeyPath, str]) -> Any:
    """The stores of the file, then those of the user's own file, then the others that have a name
    on this machine."""
    others = _without_access(own.values.get("stores", {})) if own is not None else {}
    if not isinstance(stores, dict) or not isinstance(others, dict):
        return stores
    named = {each.name: each for each in store_names.list_stores()}
    if own is not None:
        for name in others.keys() - stores.keys():
            places["stores", name] = str(own.file)
    for name in named.keys() - others.keys() - stores.keys():
        places["stores", name] = "cowfs store ls"
    known = {
        name: {**each.settings, **({"url": each.url} if "url" in each.settings else {})} for name, each in named.items()
    }
    return {**known, **others, **stores}


def _without_access(stores: Any) -> Any:
    """Without `read_only`, which sets how a store with a name on this machine is opened."""
    if not isinstance(stores, dict):
        return stores
    return {
        name: {key: each[key] for key in each if key != "read_only"} if isinstance(each, dict) else each
        for name, each in stores.items()
    }


def _with_environment(stores: Any, places: dict[KeyPath, str]) -> Any:
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
            places["stores", name, key] = place = f"environment variable {variable}"
            if not before:
                places["stores", name] = place
    return stores


def _name_of(spoken: str, stores: dict[str, Any]) -> str:
    """The store that a variable means. By convention variables are upper-case and have no "-"."""
    same = (name for name in stores if name.upper().replace("-", "_") == spoken)
    return next(same, spoken.lower())


def _value_of(variable: str, key: str) -> object:
    if key in SECRETS:
        return {"env": variable}
    text = os.environ[variable]
    return text.lower() in ("1", "true", "yes") if key in FLAGS else text
