"""Cards: values as HTML, for notebooks.

    describe(value)      a dataclass as a Card: its plain fields are facts, its lists and dicts are tables
    render(card)         the HTML: at most MOST_ROWS rows, everything escaped

Nothing here reads anything but the value. Texts come from stores, and so from people who may mean
harm: `visible` shows each character that is not printable as an escape, and `render` escapes what
HTML gives a meaning. Bytes of a name that are not UTF-8 are shown as \\xff. The HTML has no script,
link, image or style sheet. Its colours are those of the page around it, light or dark.
"""

from __future__ import annotations

import html
import re
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, field, fields, is_dataclass
from datetime import datetime
from itertools import chain, islice
from typing import Any

from cowfs.base.byte_sizes import format_size
from cowfs.base.fast_dataclass import dataclass
from cowfs.base.quantities import format_time

MOST_ROWS = 50
MOST_COLUMNS = 12
LEFT_OUT = ("locator", "store_url")
"""Of tables: long, and made of what the other columns show."""
MOST_CHARACTERS = 300
"""Of one cell."""

_LINE = "border-bottom:1px solid rgba(128,128,128,.35)"
_CELL = "text-align:left;vertical-align:top;padding:.15em .8em .15em 0;background:none"
_BOX = "border:1px solid rgba(128,128,128,.5);border-radius:4px;padding:.5em .8em;display:inline-block;max-width:100%;overflow-x:auto"


class Figure(str):
    """A cell that is aligned to the right."""

    __slots__ = ()


class Lines(str):
    """A cell that may have several lines."""

    __slots__ = ()


@dataclass(frozen=True)
class Table:
    """rows: the first ones of `total`, each with a text for each column."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    total: int
    title: str = ""


@dataclass(frozen=True)
class Card:
    title: str
    facts: Mapping[str, str] = field(default_factory=dict)
    tables: Sequence[Table] = ()
    text: Sequence[str] = ()
    """Lines of fixed width."""
    note: str = ""


# -- HTML


def render(card: Card) -> str:
    facts = "".join(
        f'<tr><th scope="row" style="{_CELL};font-weight:normal;opacity:.75">{_cell(name)}</th>'
        f'<td style="{_CELL};white-space:normal;overflow-wrap:anywhere">{_cell(text)}</td></tr>'
        for name, text in card.facts.items()
    )
    parts = [f'<div style="font-weight:bold">{_cell(card.title)}</div>']
    if facts:
        parts.append(f'<table style="border:none;margin:.3em 0 0"><tbody>{facts}</tbody></table>')
    left = MOST_ROWS - len(card.facts)
    for table in card.tables:
        shown = table.rows[: max(left, 0)]
        left -= len(shown)
        parts.append(_table(table, shown))
    if card.text:
        lines = "\n".join(map(_cell, card.text[: max(left, 0)]))
        parts.append(f'<pre style="margin:.3em 0 0;background:none;color:inherit">{lines}</pre>')
    if card.note:
        parts.append(_aside(card.note))
    return f'<div style="{_BOX}">{"".join(parts)}</div>'


def _table(table: Table, rows: Sequence[Sequence[str]]) -> str:
    title = f'<caption style="text-align:left;caption-side:top">{_cell(table.title)}</caption>' if table.title else ""
    heads = "".join(f'<th scope="col" style="{_CELL};{_LINE}">{_cell(each)}</th>' for each in table.columns)
    body = "".join(f"<tr>{''.join(map(_data, row))}</tr>" for row in rows)
    more = _aside(f"… {table.total - len(rows):,} more") if table.total > len(rows) else ""
    return (
        f'<table style="border-collapse:collapse;margin:.5em 0 0">{title}'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{more}"
    )


def _data(text: str) -> str:
    side = "text-align:right;" if isinstance(text, Figure) else ""
    return f'<td style="{_CELL};{side}white-space:pre-wrap;overflow-wrap:anywhere">{_cell(text)}</td>'


def _aside(text: str) -> str:
    return f'<div style="opacity:.75">{_cell(text)}</div>'


def _cell(text: str) -> str:
    lines = text.splitlines() if isinstance(text, Lines) else [text]
    return "<br>".join(html.escape(visible(line)) for line in lines)


def visible(text: str) -> str:
    """The text without characters that are not printable: those that change the line or the
    direction of writing, and bytes that are not UTF-8, are shown as escapes. At most
    MOST_CHARACTERS."""
    shown = "".join(map(_visible, text[: MOST_CHARACTERS + 1]))
    return shown if len(text) <= MOST_CHARACTERS else f"{shown[:MOST_CHARACTERS]}…"


def _visible(character: str) -> str:
    if character.isprintable():
        return character
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


# -- dataclasses


def describe(value: Any) -> Card:
    """Fields that are None, empty or at their default are left out, as in the repr."""
    pairs = [(each, getattr(value, each.name)) for each in _plain_fields(value)]
    facts: dict[str, str] = {}
    tables = []
    for each, found in pairs:
        if _is_usual(each, found):
            continue
        if is_dataclass(found) and not isinstance(found, type):
            facts |= {name: _say(name, inner) for name, inner in _flatten(found).items() if inner not in (None, "")}
        elif isinstance(found, Collection) and not isinstance(found, str | bytes):
            tables.append(tabulate(found, title=_words(each.name)))
        else:
            facts[_words(each.name)] = _say(each.name, found)
    return Card(type(value).__name__, facts, tables)


def tabulate(items: Collection[Any], *, title: str = "") -> Table:
    """Of equal items: dataclasses, the pairs of a mapping, or other values."""
    if isinstance(items, Mapping):
        pairs = islice(items.items(), MOST_ROWS)
        return Table(("", ""), [(say(key), say(each)) for key, each in pairs], len(items), title)
    shown = list(islice(items, MOST_ROWS))
    if not all(is_dataclass(each) for each in shown):
        return Table(("",), [(say(each),) for each in shown], len(items), title)
    rows = [_flatten(each) for each in shown]
    names = list(dict.fromkeys(chain.from_iterable(rows)))
    told = [name for name in names if any(row.get(name) not in (None, False, "", [], {}) for row in rows)]
    told = [name for name in told if name not in LEFT_OUT] or told
    columns = told[:MOST_COLUMNS]
    cells = [[_say(name, row.get(name)) for name in columns] for row in rows]
    return Table([_words(name) for name in columns], cells, len(items), title)


def _flatten(value: Any) -> dict[str, Any]:
    """The fields by name, with those of a dataclass in a field in its place."""
    found: dict[str, Any] = {}
    for each in _plain_fields(value):
        inner = getattr(value, each.name)
        is_nested = is_dataclass(inner) and not isinstance(inner, type)
        found |= (
            {sub.name: getattr(inner, sub.name) for sub in _plain_fields(inner)} if is_nested else {each.name: inner}
        )
    return found


def _plain_fields(value: Any) -> Iterable[Field[Any]]:
    return (each for each in fields(value) if each.repr and not each.name.startswith("_"))


def _is_usual(each: Field[Any], value: object) -> bool:
    if value is None or callable(value) or (isinstance(value, Collection) and not value):
        return True
    return each.default is not MISSING and bool(value == each.default)


def say(value: object) -> str:
    """A value in a cell."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return Figure(f"{value:,}")
    if isinstance(value, float):
        return Figure(f"{value:g}")
    if isinstance(value, datetime):
        return value.astimezone().isoformat(" ", "seconds")
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={each}" for key, each in islice(value.items(), MOST_COLUMNS))
    if isinstance(value, Collection) and not isinstance(value, bytes):
        more = ", …" if len(value) > MOST_COLUMNS else ""
        return ", ".join(str(say(each)) for each in islice(value, MOST_COLUMNS)) + more
    if is_dataclass(value) and not isinstance(value, type):
        pairs = ((each, getattr(value, each.name)) for each in _plain_fields(value))
        return " ".join(_say(each.name, found) for each, found in pairs if not _is_usual(each, found))
    return repr(value)


def _say(name: str, value: object) -> str:
    """With the unit that the field's name gives."""
    if isinstance(value, int) and not isinstance(value, bool):
        if name.endswith(("bytes", "size")):
            return Figure(format_size(value))
        if name.endswith("_ns"):
            return format_time(value) if value else "-"
        if name == "mode":
            return stat.filemode(value)
    if name in ("version", "id") and isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value):
        return value[:12]
    return say(value)


def _words(name: str) -> str:
    return name.removesuffix("_ns").replace("_", " ")
