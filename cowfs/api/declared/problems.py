"""Collects all problems of a declaration, each with the path of its key.

pydantic reports problems of single fields; checks between fields raise `Refused`. All of them
become one InvalidInputError with a line for each. A value at the place of a secret is never
repeated in a message.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pydantic import ValidationError

from cowfs.base.errors import CowfsError, InvalidInputError
from cowfs.base.fast_dataclass import dataclass

MOST_SHOWN = 20
Path = tuple[str | int, ...]
"""The keys and indexes that lead to a value, from the document's root."""


@dataclass(frozen=True)
class Problem:
    """path: of the key or element, from the document's root."""

    path: Path
    message: str
    hint: str = ""


class Refused(ValueError):
    """Raised by a check that involves several fields; pydantic passes it on."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("; ".join(each.message for each in problems))
        self.problems = problems


def found_in(error: ValidationError, keys_at: Callable[[Path], Iterable[str]]) -> list[Problem]:
    """keys_at: the keys that a table at that path may have."""
    return [problem for each in error.errors(include_input=False, include_url=False) for problem in _of(each, keys_at)]


def _of(error: Any, keys_at: Callable[[Path], Iterable[str]]) -> Iterator[Problem]:
    path: Path = tuple(error["loc"])
    kind, cause = error["type"], error.get("ctx", {}).get("error")
    if isinstance(cause, Refused):
        yield from (Problem((*path, *each.path), each.message, each.hint) for each in cause.problems)
    elif isinstance(cause, CowfsError):
        yield Problem(path, cause.message, cause.open_hint)
    elif kind in ("extra_forbidden", "unexpected_keyword_argument"):
        known = sorted(keys_at(path[:-1]))
        yield Problem(path, f"unknown key {path[-1]!r}", near(str(path[-1]), known, "Keys"))
    elif kind == "missing":
        yield Problem(path, "is missing")
    elif kind == "tuple_type" and path == ("volumes",):
        yield Problem(
            path, "is not a list", "Begin each volume with [[volumes]], in YAML with a dash; name and path follow."
        )
    elif cause is not None:
        yield Problem(path, str(cause))
    else:
        yield Problem(path, f"{error['msg'][:1].lower()}{error['msg'][1:]}")


def near(name: str, known: Iterable[str], title: str) -> str:
    """A hint that suggests the most similar known name."""
    known = list(known)
    close = difflib.get_close_matches(name, known, 1)
    meant = f"Did you mean {close[0]!r}? " if close else ""
    return f"{meant}{title}: {', '.join(known) or 'none'}."


def label(path: Path) -> str:
    """volumes[0].path"""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def raised(problems: list[Problem], where: Callable[[Path], str]) -> InvalidInputError:
    """One error for all problems. where: the prefix of each line, for example the file."""
    lines = [
        ": ".join(filter(None, (where(each.path), label(each.path), each.message))) for each in problems[:MOST_SHOWN]
    ]
    if len(problems) > MOST_SHOWN:
        lines.append(f"and {len(problems) - MOST_SHOWN} more")
    hints = list(dict.fromkeys(each.hint for each in problems if each.hint))
    records = [{"where": where(each.path), "key": label(each.path), "problem": each.message} for each in problems]
    return InvalidInputError("\n".join(lines), hint=" ".join(hints[:3]), details={"problems": records})
