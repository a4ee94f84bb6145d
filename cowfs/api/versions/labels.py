"""Labels of versions: what a caller may give, and conditions that select versions by them.

    commit(labels={"split": "train", "loss": 0.25, "step": 1000, "best": True})
    history(labels="loss<0.5")         history(labels=["best=true", "step>=1000"])

A manifest stores each value as text. A number is stored as JSON writes it (`0.25`, `1000`), and a
bool as `true` or `false`. Reading labels therefore returns texts.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal, InvalidOperation
from numbers import Integral, Real
from typing import TypeAlias

from cowfs.base.errors import InvalidInputError

Labels: TypeAlias = "Mapping[str, str | int | float | bool]"
"""Labels to store: texts, numbers and bools by key."""
Conditions: TypeAlias = "Labels | Iterable[str] | str"
"""Conditions that all have to hold: texts (KEY=VALUE, KEY<NUMBER, KEY<=NUMBER, KEY>NUMBER,
KEY>=NUMBER), or a mapping from keys to values that have to be equal."""

Test: TypeAlias = Callable[[Mapping[str, str]], bool]

_CONDITION = re.compile(r"(?P<key>.+?)(?P<sign><=|>=|<|>|=)(?P<value>.*)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_COMPARE: dict[str, Callable[[Decimal, Decimal], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def as_texts(labels: Labels | None) -> dict[str, str]:
    """Converts labels to their stored form. InvalidInputError: a key or a value cannot be
    stored."""
    if labels is None:
        return {}
    if not isinstance(labels, Mapping):
        raise InvalidInputError(f"labels is {labels!r}", hint='Give a dict: {"loss": 0.25}.')
    given: Mapping[object, object] = labels  # type: ignore[assignment]
    for key in given:
        if not isinstance(key, str) or not key:
            raise InvalidInputError(f"labels has a key that is no text: {key!r}", hint="Give each label a name.")
    return {str.__str__(key): _as_text(key, value) for key, value in labels.items()}


def _as_text(key: str, value: object) -> str:
    value = take_item(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        if math.isfinite(number := float(value)):
            return repr(number)
        raise InvalidInputError(
            f"label {key!r} is {number}, which is no finite number",
            hint="Leave it out, or give it as a text: str(value).",
        )
    raise InvalidInputError(
        f"label {key!r} is {value!r}, of type {type(value).__name__}",
        hint="A label is a text, an int, a finite float or a bool. Convert it: float(value), str(value).",
    )


def take_item(value: object) -> object:
    """The number or bool in a value of numpy or torch; anything else is returned unchanged."""
    if not hasattr(value, "item"):
        return value
    try:
        item: object = value.item()
    except (RuntimeError, TypeError, ValueError):  # it has none, or several
        return value
    return item


def make_test(conditions: Conditions) -> Test:
    """A function that tells whether a version's labels meet all conditions. InvalidInputError: a
    condition cannot be understood."""
    if isinstance(conditions, Mapping):
        wanted = as_texts(conditions)
        return lambda labels: all(labels.get(key) == value for key, value in wanted.items())
    texts = [conditions] if isinstance(conditions, str) else conditions
    try:
        tests = [_test_of(each) for each in texts]
    except TypeError:
        raise _no_condition(conditions) from None
    return lambda labels: all(test(labels) for test in tests)


def _test_of(text: object) -> Test:
    found = _CONDITION.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise _no_condition(text)
    key, sign, value = found.groups()
    if sign == "=":
        return lambda labels: labels.get(key) == value
    if (bound := _number(value)) is None:
        raise InvalidInputError(
            f"{value!r} is no number, in the condition {text!r}",
            hint="Write KEY=VALUE for a text, KEY<NUMBER for a number.",
        )
    compare = _COMPARE[sign]

    def test(labels: Mapping[str, str]) -> bool:
        number = _number(labels.get(key, ""))
        return number is not None and compare(number, bound)

    return test


def _number(text: str) -> Decimal | None:
    """None: the text is no number."""
    if _NUMBER.fullmatch(text.strip()) is None:
        return None
    try:
        return Decimal(text.strip())
    except InvalidOperation:  # its exponent has too many digits
        return None


def _no_condition(given: object) -> InvalidInputError:
    return InvalidInputError(
        f"{given!r} is no condition on labels",
        hint="Write KEY=VALUE, KEY<NUMBER, KEY<=NUMBER, KEY>NUMBER or KEY>=NUMBER, in a shell between quotes.",
    )
