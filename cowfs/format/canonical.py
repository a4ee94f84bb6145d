"""Canonical JSON: one value, one sequence of bytes; the notation of manifests and records.

RFC 8259 JSON in UTF-8, and of everything it leaves open one choice: object keys sorted by code
point, none twice; no space between tokens; integers only, -2⁶³ … 2⁶⁴-1, no fraction, exponent or
-0; in strings only `"`, `\\` and U+0000 to U+001F are escaped, as \\b \\t \\n \\f \\r where those
exist, else as \\u00xx in lower case; no unpaired surrogates.

Guarantees: `decode(encode(x)) == x`; `decode` accepts only bytes that `encode` would give, so that
what a hash names has one reading. Nesting is limited to MAX_DEPTH and size to MAX_BYTES before any
value is built upon. Not here: which fields a record has (`fields`, `records`, `manifest`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from cowfs.base.errors import CorruptError, InvalidInputError

MAX_BYTES = 64 << 20
MAX_DEPTH = 16
MIN_INTEGER = -(1 << 63)
MAX_INTEGER = (1 << 64) - 1


def encode(obj: Mapping[str, Any]) -> bytes:
    """InvalidInputError for what canonical JSON cannot say (floats, integers beyond 64 bits, text
    that is not UTF-8)."""
    _check(obj, MAX_DEPTH)
    text = json.dumps(obj, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            "text that is not valid Unicode cannot be stored", hint="Messages, authors and labels are UTF-8 text."
        ) from error
    if len(data) > MAX_BYTES:
        raise InvalidInputError(f"a record of {len(data)} bytes is too large; the limit is {MAX_BYTES}")
    return data


def decode(data: bytes, *, what: str) -> dict[str, Any]:
    """CorruptError naming `what` unless data is exactly what `encode` would give."""
    if len(data) > MAX_BYTES:
        raise CorruptError(f"{what} has {len(data)} bytes; the limit is {MAX_BYTES}")
    try:
        found = json.loads(
            data.decode(), object_pairs_hook=_unique, parse_float=_refuse_number, parse_constant=_refuse_number
        )
        if not isinstance(found, dict):
            raise ValueError("not an object")
        same = encode(found) == data
    except (ValueError, RecursionError, InvalidInputError) as error:
        raise CorruptError(f"{what} is not canonical JSON: {_reason(error)}") from error
    if not same:
        raise CorruptError(f"{what} is not canonical JSON: the same value is written differently")
    return found


def _check(value: object, depth: int) -> None:
    """Refuses what json.dumps would accept or mend silently."""
    if isinstance(value, str | bool) or value is None:
        return
    if depth == 0:
        raise InvalidInputError(f"values nested more than {MAX_DEPTH} deep cannot be stored")
    if isinstance(value, int):
        if not MIN_INTEGER <= value <= MAX_INTEGER:
            raise InvalidInputError(f"{value:#x} does not fit into 64 bits")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InvalidInputError(f"{key!r} is not a text key")
            _check(item, depth - 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _check(item, depth - 1)
    else:
        raise InvalidInputError(f"a {type(value).__name__} cannot be stored in canonical JSON")


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise InvalidInputError(f"a {type(value).__name__} cannot be stored in canonical JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"{text[:32]} is not an integer")


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "nested too deep"
    if isinstance(error, UnicodeDecodeError):
        return f"not UTF-8 at byte {error.start}"
    return str(error)
