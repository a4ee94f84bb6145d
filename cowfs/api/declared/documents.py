"""Reads one file that declares volumes: its values, and the line of each.

    *.toml                     TOML
    *.yml, *.yaml              YAML

Paths in the file (a store's directory, the file of a secret) are relative to it and are made
absolute here. Every error names the file and a line. This module only checks that the file can be
read; `model` checks the keys.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

from cowfs.api.declared import toml_lines, yaml_tree
from cowfs.api.declared.toml_lines import Lines
from cowfs.api.declared.toml_lines import Path as KeyPath
from cowfs.base.errors import InvalidInputError, NotFoundError, unreadable
from cowfs.base.fast_dataclass import dataclass
from cowfs.store.named import scheme_of

LARGEST = 1 << 20


@dataclass(frozen=True)
class Document:
    file: Path
    values: dict[str, Any]
    lines: Lines

    def where(self, path: KeyPath) -> str:
        """FILE:LINE of that key, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.file}:{self.lines.get(path, 1)}"


def read(file: Path) -> Document:
    return parsed(read_bytes(file), file)


def read_bytes(file: Path) -> bytes:
    """NotFoundError, AccessDeniedError, InvalidInputError; UnavailableError: a disk error."""
    try:
        with file.open("rb") as opened:
            data = opened.read(LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(
            f"there is no file {file}", hint="Give the path of a cowfs.toml or NAME.cowfs.yml."
        ) from error
    except OSError as error:
        raise unreadable(error, f"{file} cannot be read", hint="Make it readable.") from error
    if len(data) > LARGEST:
        raise _unreadable(file, 1, f"the file is longer than {LARGEST} bytes")
    return data


def parsed(data: bytes, file: Path) -> Document:
    """InvalidInputError."""
    try:
        text = data.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise _unreadable(file, data.count(b"\n", 0, error.start) + 1, "a byte that is not UTF-8") from None
    try:
        values, lines = _yaml(text, file) if file.suffix in (".yml", ".yaml") else _toml(text, file)
    except RecursionError:
        raise _unreadable(file, 1, "values are nested too deeply") from None
    if not isinstance(values, dict):
        raise _unreadable(file, lines.get((), 1), "the document is no table of keys")
    return Document(file, _with_whole_paths(values, file.parent), lines)


def _toml(text: str, file: Path) -> tuple[dict[str, Any], Lines]:
    try:
        return tomllib.loads(text), toml_lines.lines_of(text)
    except ValueError as error:
        place = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
        said = str(error)[: place.start()] if place is not None else str(error)
        line = (
            int(place[1])
            if place is not None and place[1]
            else _last_line(text)
            if place is not None
            else _line_of(text)
        )
        raise _unreadable(file, line, f"not valid TOML: {said}") from None


def _last_line(text: str) -> int:
    return text.rstrip("\n").count("\n") + 1


def _line_of(text: str) -> int:
    """The line of an error without a position in tomllib: a number with too many digits."""
    lines = text.split("\n")
    for count in range(1, len(lines)):
        try:
            tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue
        except ValueError:
            return count
    return len(lines)


def _yaml(text: str, file: Path) -> tuple[Any, Lines]:
    try:
        values, lines = yaml_tree.parsed(text)
    except yaml_tree.YamlError as error:
        raise _unreadable(file, error.line or 1, f"not valid YAML: {error}") from None
    return ({} if values is None else values), lines


def _unreadable(file: Path, line: int, message: str) -> InvalidInputError:
    where = f"{file}:{line}"
    return InvalidInputError(
        f"{where}: {message}",
        hint="Correct the file.",
        details={"problems": [{"where": where, "key": "", "problem": message}]},
    )


def _with_whole_paths(values: dict[str, Any], directory: Path) -> dict[str, Any]:
    stores = values.get("stores")
    if not isinstance(stores, dict):
        return values
    return {**values, "stores": {name: _whole(store, directory) for name, store in stores.items()}}


def _whole(store: Any, directory: Path) -> Any:
    if isinstance(store, str):
        return _whole_url(store, directory)
    if not isinstance(store, dict):
        return store
    found = {key: _whole_file(value, directory) for key, value in store.items()}
    for key in {"url", "path"} & found.keys():
        found[key] = _whole_url(found[key], directory)
    return found


def _whole_url(url: Any, directory: Path) -> Any:
    if not isinstance(url, str) or not url or url.startswith("~") or scheme_of(url):
        return url
    return os.path.normpath(directory / url)


def _whole_file(value: Any, directory: Path) -> Any:
    if isinstance(value, dict) and isinstance(value.get("file"), str) and value["file"]:
        return {**value, "file": str(directory / os.path.expanduser(value["file"]))}
    return value
