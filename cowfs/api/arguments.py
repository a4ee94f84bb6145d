"""Checks arguments of public methods, for callers without a type checker. Errors are raised before
anything is done."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, SupportsIndex

from cowfs.api.declared import durations
from cowfs.base.errors import InvalidInputError
from cowfs.control import MountOptions
from cowfs.control.typed import field_types
from cowfs.version.commit import ProgressListener

_NUMBER = re.compile(r"[0-9]{1,10}(\.[0-9]{1,9})?")


def mount_options(given: MountOptions | None, tuning: Mapping[str, Any]) -> MountOptions:
    """Combines a value of options with the options passed by name."""
    if not isinstance(given, MountOptions | None):
        raise InvalidInputError(
            f"options is {given!r}", hint="Give a MountOptions, or name options one by one: mount(resident=True)."
        )
    known = field_types(MountOptions)
    for name in tuning:
        if name not in known:
            raise InvalidInputError(f"a mount has no option {name!r}", hint=f"There are: {', '.join(sorted(known))}.")
    return replace(given or MountOptions(), **tuning)


def limit(given: object) -> None:
    if given is not None and not _is_count(given):
        raise InvalidInputError(f"limit is {given!r}", hint="Give a whole number, 0 or more; None for all.")


def require_path(given: object) -> None:
    if given is not None and not isinstance(given, str | os.PathLike):
        raise InvalidInputError(f"path is {given!r}", hint="Give the path as text; a number of versions is limit=N.")


def byte_range(offset: object, length: object) -> None:
    if not _is_count(offset):
        raise InvalidInputError(f"offset is {offset!r}", hint="Give a whole number of bytes, 0 or more.")
    if length is not None and not _is_count(length):
        raise InvalidInputError(f"length is {length!r}", hint="Give a whole number of bytes; None: to the end.")


def wait_s(given: object) -> float:
    """The seconds of a `wait`; 0.0 for None."""
    return 0.0 if given is None else seconds("wait", given)


def seconds(name: str, given: object) -> float:
    """Seconds as a number, as text (a command line's number is one), or in the notation of
    `durations`."""
    found: object = given
    if isinstance(given, str):
        found = float(given) if _NUMBER.fullmatch(given) else durations.parsed_s(given)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= durations.LONGEST_S:
        raise InvalidInputError(f"{name} is {given!r}", hint='Give seconds, or a duration like "150s" or "5m".')
    return float(found)


def one_of(name: str, given: object, allowed: Sequence[str]) -> None:
    if given not in allowed:
        raise InvalidInputError(f"{name} is {given!r}", hint=f"Use one of {', '.join(allowed)}.")


def listener(given: ProgressListener | None) -> ProgressListener:
    """The listener that receives progress; a default that ignores it if the caller passes none."""
    if given is None:
        return lambda _: None
    if not callable(given):
        raise InvalidInputError(f"progress is {given!r}", hint="Give a function that takes a cowfs.Progress.")
    return given


def store(given: object) -> str | None:
    """A store's name, URL or directory, as text; None for the default store. A path stays one: with
    a slash it is no name."""
    text = given
    if isinstance(given, os.PathLike):
        text = path if isinstance(path := os.fspath(given), str) and "/" in path else os.path.join(".", path)
    if not isinstance(text, str | None):
        raise InvalidInputError(
            f"store is {given!r}",
            hint="Give the name of a store, a URL, the path of a directory, or a cowfs.storage.Storage.",
        )
    return text


def _is_count(given: object) -> bool:
    """Whether it is an integer of 0 or more, of any type: numpy has integers of its own."""
    if isinstance(given, bool) or not isinstance(given, SupportsIndex):
        return False
    return operator.index(given) >= 0
