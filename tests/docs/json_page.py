"""Reads docs/reference/json.md: the documents that commands print with --json."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "json.md"

TYPES: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "digits": (str,),
    "list of objects": (list,),
    "list of texts": (list,),
    "number": (int,),
    "object": (dict,),
    "text": (str,),
}
WITHOUT_DOCUMENT = {
    "bench": "a format of its own",
    "completion": "a script",
    "explore": "as `ls` and `tree`",
}


@dataclass(frozen=True)
class Field:
    """type: without "or null"."""

    type: str
    is_nullable: bool
    meaning: str

    def allows(self, value: Any) -> bool:
        if value is None:
            return self.is_nullable
        is_type = isinstance(value, TYPES[self.type]) and isinstance(value, bool) == (self.type == "boolean")
        if self.type == "digits":
            return is_type and value.isdigit() and int(value) > 10**18
        entries = {"list of objects": dict, "list of texts": str}.get(self.type)
        return is_type and (entries is None or all(isinstance(each, entries) for each in value))


Records = dict[str, dict[str, Field]]
"""Record ("" for the document itself) → its fields."""


def read(text: str) -> dict[str, Records]:
    """The documents by their headings, without "cowfs". "The fields of `cowfs ls`" in front of a
    table adds those."""
    found: dict[str, Records] = {}
    same: list[tuple[dict[str, Field], str, str]] = []
    document, record = "", ""
    for line in text.splitlines():
        if line.startswith("## "):
            document, record = line[3:].removeprefix("cowfs "), ""
        elif line.startswith("### "):
            record = line[4:].strip("`")
        elif said := re.match(r"The fields of (?:`(\w+)` of )?`cowfs ([^`]+)`", line):
            same.append((found.setdefault(document, {}).setdefault(record, {}), said[2], said[1] or ""))
        elif row := re.match(r"\| `(\w+)` \| ([^|]+?)( or null)? \|(.*)\|$", line):
            field = Field(row[2], row[3] is not None, row[4].strip())
            found.setdefault(document, {}).setdefault(record, {})[row[1]] = field
    for fields, other, its_record in same:
        fields.update(found[other][its_record])
    return found


DOCUMENTS = read(PAGE.read_text())


def record_of(document: str, name: str, field: Field) -> tuple[str, str] | None:
    """(document, record) that describes the objects in a field; None: their fields are free."""
    if name == "error":
        return "Errors", "error"
    if name in DOCUMENTS[document]:
        return document, name
    if (
        said := re.search(r"\bas of (?:`(\w+)` of )?`cowfs ([^`]+)`", field.meaning)
    ) is None or "object" not in field.type:
        return None
    other, record = said[2], said[1] or name
    return (other, record) if record in DOCUMENTS[other] else (other, "")
