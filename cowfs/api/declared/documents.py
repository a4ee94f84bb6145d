"""Reads one file that declares volumes as plain values.

    *.toml                     TOML
    *.yml, *.yaml              YAML

Paths in the file (a store's directory, the file of a secret, `root`) are relative to it and are
made absolute here. An error of syntax names the line. This module only checks that the file can be
read; `model` checks the keys, and names each by its path in the document (`stores.main.url`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from cowfs.base import toml
from cowfs.base.errors import InvalidInputError, NotFoundError, unreadable
from cowfs.base.fast_dataclass import dataclass
from cowfs.store.named import scheme_of

LARGEST = 1 << 20
ROOT = "volumes"
"""The `root` of a file that names none."""


@dataclass(frozen=True)
class Document:
    file: Path
    values: dict[str, Any]


def read(file: Path) -> Document:
    data, _ = read_bytes(file)
    return parsed(data, file)


def read_bytes(file: Path) -> tuple[bytes, os.stat_result]:
    """A file's content, and the state of the file that was read.

    NotFoundError, AccessDeniedError, InvalidInputError; UnavailableError: a disk error."""
    try:
        with file.open("rb") as opened:
            data, state = opened.read(LARGEST + 1), os.fstat(opened.fileno())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(
            f"there is no file {file}", hint="Give the path of a cowfs.toml or NAME.cowfs.yml."
        ) from error
    except OSError as error:
        raise unreadable(error, f"{file} cannot be read", hint="Make it readable.") from error
    if len(data) > LARGEST:
        raise _unreadable(file, f"the file is longer than {LARGEST} bytes")
    return data, state


def parsed(data: bytes, file: Path) -> Document:
    """InvalidInputError."""
    kind = "YAML" if file.suffix in (".yml", ".yaml") else "TOML"
    try:
        text = data.decode().replace("\r\n", "\n")
        values = _yaml(text) if kind == "YAML" else toml.parse(text)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _unreadable(file, f"line {line}: a byte that is not UTF-8") from None
    except RecursionError:
        raise _unreadable(file, "values are nested too deeply") from None
    except yaml.MarkedYAMLError as error:  # its text would quote the file, which may hold a secret
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}: " if mark is not None else ""
        said = ", ".join(filter(None, (error.context, error.problem)))
        raise _unreadable(file, f"{place}not valid YAML: {said}") from None
    except (ValueError, OverflowError, yaml.YAMLError) as error:
        raise _unreadable(file, f"not valid {kind}: {error}") from None
    except (LookupError, AttributeError, TypeError):  # PyYAML's, of `!!bool x`
        raise _unreadable(file, f"not valid {kind}: a value does not fit its tag") from None
    if not isinstance(values, dict):
        raise _unreadable(file, "the document is no table of keys")
    return Document(file, _with_whole_paths(values, file.parent))


class _Loader(yaml.SafeLoader):
    """Refuses aliases, which can expand a small file to a huge value, and keys that are given twice
    or are no text."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="aliases are not supported", problem_mark=mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set[str]()
        for key_node, _ in node.value if node.id == "mapping" else ():  # `!!map [a]` is none
            key = self.construct_object(key_node)
            if not isinstance(key, str) or key in seen:
                problem = f"the key {key!r} is there twice" if isinstance(key, str) else "a key that is no text"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _yaml(text: str) -> Any:
    values = yaml.load(text, _Loader)
    return {} if values is None else values


def _unreadable(file: Path, message: str) -> InvalidInputError:
    return InvalidInputError(
        f"{file}: {message}",
        hint="Correct the file.",
        details={"problems": [{"where": str(file), "key": "", "problem": message}]},
    )


def _with_whole_paths(values: dict[str, Any], directory: Path) -> dict[str, Any]:
    values = {**values, "root": _whole_url(values.get("root", ROOT), directory)}
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
