"""Removes credentials from texts that other libraries and servers wrote.

Every message of `cowfs.base.errors` and every line of the log passes through `redact`. Errors of
other libraries are shown by `describe_error`, never by their repr, which may hold the request with
all its headers.

    headers                         Authorization: …        also Cookie, X-Amz-…, X-Goog-…, X-Ms-…, X-Api-Key, and any repr of headers
    schemes                         Bearer …, Basic …, AWS4-HMAC-SHA256 …
    URLs                            user information and the query: signatures and SAS tokens stand there
    assignments                     secret=…, token=…, sig=…, AccountKey=…, "password": …
    values of the environment       of variables whose names denote credentials, wherever the values occur
    hidden values                   passed to `hide`: credentials of a store, the last KEPT of them

It may hide too much; it is idempotent. It cannot recognise a secret of any other form.
"""

from __future__ import annotations

import json
import os
import re
from collections import deque
from functools import lru_cache
from typing import Any

HIDDEN = "…"
SHORTEST = 8  # length of a value that is searched for everywhere: shorter ones would hide ordinary words
MOST_CHARACTERS = 300
KEPT = 256
"""How many hidden values are searched for: rotating credentials accumulate."""

_HEADER = r"(?:proxy-)?authorization|(?:set-)?cookie|x-(?:amz|goog|ms)-[\w-]+|x-api-key|x-auth-token|api-key"
_SECRET = r"(?:[\w-]*(?:secret|token|passw(?:or)?d|passphrase|api[-_]?key|access[-_]?key|account[-_]?key|signature)[\w-]*|sig)"
_CONTAINER = r"[a-z0-9$-]{1,63}@[a-z0-9]{3,24}\.(?:dfs|blob)\.core\.windows\.net\b"  # of Azure: no user information
_RULES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        (r"headers=(?:<[^>]*>+|\{[^}]*\}|\[[^\]]*\])", rf"headers={HIDDEN}"),
        (r"<CIMultiDict[^>]*>+", HIDDEN),
        (
            rf"""({_HEADER})(['"]?\s*[:=]\s*['"]?)[^'"\r\n]+""",
            rf"\1\2{HIDDEN}",
        ),
        (r"\b(bearer|basic|sharedkey|sharedkeylite)\s+[\w+/=.:~-]{6,}", rf"\1 {HIDDEN}"),
        (r"\bAWS4-HMAC-SHA256[^'\"\r\n]*", HIDDEN),
        (rf"\b([a-z][a-z0-9+.-]*://)(?!{_CONTAINER})[^/\s@'\"<>]+@", rf"\1{HIDDEN}@"),
        (r"\b([a-z][a-z0-9+.-]*://[^\s'\"<>?]+)\?[^\s'\"<>)]*", rf"\1?{HIDDEN}"),
        (rf"\b({_SECRET})=(['\"]?)[^\s&'\",;]+", rf"\1=\2{HIDDEN}"),
        (rf"""(['"]{_SECRET}['"]\s*:\s*['"])[^'"]*""", rf"\1{HIDDEN}"),
    )
)
_VARIABLE = re.compile(
    r"SECRET|TOKEN|PASSWORD|PASSPHRASE|PASSWD|CREDENTIAL|CONNECTION_STRING|_SAS|(?:ACCESS|ACCOUNT|STORAGE|API)_?KEY$|^FSSPEC_"
)
_PLACE = re.compile(r"_(?:FILE|PATH|DIR|URI|URL)$|^GOOGLE_APPLICATION_CREDENTIALS$")


class _Given:
    """A hidden value; neither its own repr nor that of a container shows it."""

    __slots__ = ("value",)

    def __init__(self, value: str) -> None:
        self.value = value


_given: deque[_Given] = deque(maxlen=KEPT)


def hide(*values: str) -> None:
    """Redacts these values in all later messages. Values shorter than SHORTEST are ignored."""
    known = {each.value for each in list(_given)}
    _given.extend(_Given(value) for value in values if len(value) >= SHORTEST and value not in known)


def redact(text: str) -> str:
    """`text` without known credentials and without anything that looks like one."""
    if not text:
        return text
    given = {each.value for each in list(_given)}
    for value in (*sorted(given, key=len, reverse=True), *_environment_secrets()):
        if value in text:
            text = text.replace(value, HIDDEN)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def describe_error(error: BaseException) -> str:
    """Class name and first line of another library's error."""
    lines = str(error).strip().splitlines()
    text = redact(lines[0])[:MOST_CHARACTERS] if lines else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@lru_cache(maxsize=1024)
def holds_credential(variable: str) -> bool:
    """Whether an environment variable of this name holds a credential."""
    return _VARIABLE.search(variable) is not None and _PLACE.search(variable) is None


def _environment_secrets() -> list[str]:
    found: set[str] = set()
    for name in filter(holds_credential, os.environ):
        if value := os.environ.get(name):
            found.update(leaf for leaf in _leaves(value) if len(leaf) >= SHORTEST and leaf != HIDDEN)
    return sorted(found, key=len, reverse=True)


def _leaves(value: str) -> list[str]:
    """The strings in a value that may be a JSON document, as fsspec's variables are, and the words
    in those strings."""
    if not value.startswith(("{", "[")):
        return [value]
    try:
        waiting: list[Any] = [json.loads(value)]
    except ValueError:
        return [value]
    found: list[str] = []
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
        elif isinstance(each, str):
            found += [each, *each.split()]
    return found
