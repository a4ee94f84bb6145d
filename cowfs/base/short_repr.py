"""How results are shown: a repr of one line for those that may hold thousands of items, or dozens
of fields, and a card in notebooks (`cowfs.base.cards`).

    @short_repr
    @dataclass(frozen=True)
    class Report: …

    Report(locator='cowfs+s3://…@91f1', is_new=True, paths=[MergedPath(path='/a', kind='added'), … 812 in all])

Fields that are None, empty or at their default are left out. A value longer than LONGEST is
shortened. The fields themselves have everything. `@has_card` gives a card alone, to a dataclass
whose own repr is short.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

T = TypeVar("T")

LONGEST = 160
"""Characters of one value."""
MOST_ITEMS = 3


def short_repr(kind: type[T]) -> type[T]:
    """For dataclasses, above their decorator."""
    kind.__repr__ = _describe  # type: ignore[method-assign]
    return has_card(kind)


def has_card(kind: type[T]) -> type[T]:
    """For dataclasses, above their decorator."""
    kind._repr_html_ = _render  # type: ignore[attr-defined]
    return kind


class ShownList(list[T]):
    """A list of results: a table in notebooks."""

    def _repr_html_(self) -> str:
        from cowfs.base import cards

        kinds = " and ".join(sorted({type(each).__name__ for each in self}))
        table = [cards.tabulate(self)] if self else []
        return cards.render(cards.Card(f"{len(self):,} {kinds}".rstrip(), tables=table))


def _render(self: Any) -> str:
    from cowfs.base import cards  # programs without a notebook do not load it

    return cards.render(cards.describe(self))


def _describe(self: Any) -> str:
    values = [(each, getattr(self, each.name)) for each in fields(self) if each.repr]
    told = [f"{each.name}={shorten(value)}" for each, value in values if not _is_usual(each, value)]
    return f"{type(self).__qualname__}({', '.join(told)})"


def _is_usual(field: Field[Any], value: object) -> bool:
    if value is None or (isinstance(value, Collection) and not value):
        return True
    return field.default is not MISSING and bool(value == field.default)


def shorten(value: object) -> str:
    """The repr of a value, or its beginning."""
    if isinstance(value, str) and len(value) > LONGEST:
        return repr(f"{value[: LONGEST // 2]}…{value[-LONGEST // 4 :]}")
    if isinstance(value, Collection) and not isinstance(value, str | bytes):
        return _shorten_items(value)
    if callable(value):
        return "…"
    text = repr(value)
    return text if len(text) <= LONGEST else f"<{type(value).__name__}>"


def _shorten_items(value: Collection[object]) -> str:
    if len(value) <= MOST_ITEMS and len(text := repr(value)) <= LONGEST:
        return text
    begin, end = "{}" if isinstance(value, Mapping | set | frozenset) else "[]"
    first = next(iter(value))
    shown = f"{first!r}: {value[first]!r}" if isinstance(value, Mapping) else repr(first)
    return f"{begin}{f'{shown}, ' if len(shown) <= LONGEST else ''}… {len(value):,} in all{end}"
