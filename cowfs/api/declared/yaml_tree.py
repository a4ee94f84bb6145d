"""A YAML document as plain values, with the line of each key and element.

PyYAML's safe loader reads it node by node, since only nodes have lines. An error with the line
refuses: a duplicate key (PyYAML uses the last one), a key that is no text, a tag that is not one of
YAML's own, several documents in one file, and aliases that would expand a small file to a huge
value.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import yaml

from cowfs.api.declared.toml_lines import Lines, Path

MOST_VALUES = 20_000
DEEPEST = 40


class YamlError(Exception):
    """line: from 1; None: unknown."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.line = line


def parsed(text: str) -> tuple[Any, Lines]:
    """The document's value (None when it is empty) and its lines; YamlError."""
    loader, line_of = None, _line_counter(text)
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        builder = _Builder(loader, line_of)
        return (builder.value(node, (), 0) if node is not None else None), builder.lines
    except yaml.reader.ReaderError as error:
        before = text[: error.position] if isinstance(error.position, int) else ""
        raise YamlError(f"a character that YAML does not allow: {error.reason}", before.count("\n") + 1) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlError(_describe(error), line_of(mark) if mark is not None else None) from None
    finally:
        if loader is not None:
            loader.dispose()


def _line_counter(text: str) -> Callable[[yaml.Mark], int]:
    """Counts lines as editors do. YAML also ends a line at other characters."""
    ends = [found.start() for found in re.finditer("\n", text)]
    return lambda mark: bisect_left(ends, mark.index) + 1


def _describe(error: yaml.MarkedYAMLError) -> str:
    """The error without its surrounding text, which may hold a secret."""
    return ", ".join(part for part in (error.context, error.problem) if part)


class _Builder:
    def __init__(self, loader: yaml.SafeLoader, line_of: Callable[[yaml.Mark], int]) -> None:
        self._loader = loader
        self._line_of = line_of
        self._count = 0
        self.lines: Lines = {}

    def value(self, node: yaml.Node, path: Path, depth: int) -> Any:
        line = self._line_of(node.start_mark)
        self._count += 1
        if self._count > MOST_VALUES or depth > DEEPEST:
            raise YamlError("too many or too deeply nested values", line)
        self.lines.setdefault(path, line)
        if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
            return [self.value(each, (*path, index), depth + 1) for index, each in enumerate(node.value)]
        if not isinstance(node, yaml.ScalarNode):
            raise YamlError(f"the tag {node.tag} is not understood here", line)
        return self._scalar(node, line)

    def _mapping(self, node: yaml.MappingNode, path: Path, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = self._line_of(key_node.start_mark)
            key = self._scalar(key_node, line) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                raise YamlError("a key that is no text", line)
            if key in found:
                raise YamlError(f"the key {key!r} is there twice", line)
            self.lines[(*path, key)] = line
            found[key] = self.value(value_node, (*path, key), depth + 1)
        return found

    def _scalar(self, node: yaml.ScalarNode, line: int) -> Any:
        if node.tag == "tag:yaml.org,2002:merge":
            return node.value  # "<<", which is refused as an unknown key
        try:
            return self._loader.construct_object(node)
        except (ValueError, OverflowError) as error:  # a date like 2026-13-45, a number of too many digits
            raise YamlError(f"a value that cannot be read: {error}", line) from None
