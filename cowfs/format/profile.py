"""Profiles: the ranges of a version that a job read, in the order of first reading; for warming a
cache before the next job.

    {"format":1,"record":"profile"}
    ["train/7.npy",0,131072]           bytes of a file: path, offset, length
    ["train"]                          the entries of a directory
    {"check":"<BLAKE3 of the lines before, hex>"}

JSON lines, as one zstd frame. A line names a path and not its content, so a profile serves any
version; it is a hint, and a replay skips paths that a version does not have. Paths begin at the
version's root; bytes that are not UTF-8 are written as the surrogates U+DC80 to U+DCFF.

Guarantees: `decode(encode(x)) == x`. `decode` raises, naming the line, for any text that `encode`
does not produce, and reads no more than MAX_BYTES of lines and MAX_RANGES of them.
Not here: files (`session.profiles.replaying`, `session.profiles.recording`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import islice
from typing import Any, NamedTuple, NoReturn

import zstandard
from blake3 import blake3

from cowfs.base.errors import CorruptError, UnsupportedFormatError
from cowfs.base.hints import Command

MAX_BYTES = 256 << 20
MAX_RANGES = 1 << 20
MAX_OFFSET = (1 << 63) - 1
NAME_BYTES = 255
PATHS_MAX = 10_000
FORMAT = 1
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_HEAD = {"format": FORMAT, "record": "profile"}
_HINT = f"Record it anew: {Command('mount', 'SOURCE', 'PATH', '--record', 'FILE')}, and unmount when the job is done."


class ReadRange(NamedTuple):
    """Bytes of the file at `path`; length 0: the entries of the directory there. The path is
    relative to the version's root, which is b""."""

    path: bytes
    offset: int = 0
    length: int = 0


def encode(ranges: Iterable[ReadRange]) -> bytes:
    """The first MAX_RANGES ranges, as far as MAX_BYTES of lines hold them."""
    body = bytearray(_line(_HEAD))
    most_bytes = MAX_BYTES - len(_check(b""))
    for each in islice(ranges, MAX_RANGES):
        path = each.path.decode(errors="surrogateescape")
        line = _line([path, each.offset, each.length] if each.length else [path])
        if len(body) + len(line) > most_bytes:
            break
        body += line
    body += _check(body)
    return zstandard.ZstdCompressor(level=3).compress(body)


def decode(data: bytes, *, what: str) -> list[ReadRange]:
    """CorruptError naming `what` and the line; UnsupportedFormatError: of a newer cowfs."""
    body = _body(data, what)
    count = body.count(b"\n")
    if count > MAX_RANGES + 2:
        raise CorruptError(f"{what} has more than {MAX_RANGES} lines", hint=_HINT)
    first = body[: body.find(b"\n") + 1]
    head = _parse_json(first, what, 1)
    if not isinstance(head, dict) or head.get("record") != "profile":
        _refuse(what, 1, "it is not a profile")
    end = body.rfind(b"\n", 0, -1) + 1
    if end == 0 or body[end:] != _check(memoryview(body)[:end]):
        _refuse(what, max(count, 1), "its end is missing, or it was changed")
    if (found := head.get("format")) != FORMAT:  # only now: damage must not look like a newer format
        raise UnsupportedFormatError(
            f"{what} has format {found!r:.32}; this cowfs reads {FORMAT}", hint="Use a newer cowfs, or record it anew."
        )
    if first != _line(_HEAD):
        _refuse(what, 1, "it has another head")
    lines = islice(BytesIO(body), 1, count - 1)
    paths: dict[str, bytes] = {}
    return [_range(line, paths, what, number) for number, line in enumerate(lines, 2)]


def below(ranges: Iterable[ReadRange], folder: bytes) -> Iterator[ReadRange]:
    """The ranges of the entry at `folder`, and of the entries below it."""
    start = folder + b"/"
    return (each for each in ranges if not folder or each.path == folder or each.path.startswith(start))


def _body(data: bytes, what: str) -> bytes:
    """The content of the frame; data behind it is refused."""
    try:
        size_bytes = zstandard.get_frame_parameters(data).content_size
        if not 0 < size_bytes <= MAX_BYTES:
            raise zstandard.ZstdError("it does not say how long it is, or is too long")
        found = zstandard.ZstdDecompressor().decompress(data, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise CorruptError(f"{what} is not a profile: {error}", hint=_HINT) from error
    return found


def _range(line: bytes, paths: dict[str, bytes], what: str, number: int) -> ReadRange:
    """paths: paths that were read before, so that a repeated one is in memory once."""
    offset = length = 0
    match value := _parse_json(line, what, number):
        case [str(text)]:
            pass
        case [str(text), int(offset), int(length)] if _is_range(offset, length):
            pass
        case _:
            _refuse(what, number, "it is neither a path nor a path with offset and length")
    if _line(value) != line:
        _refuse(what, number, "it is written differently")
    if (path := paths.get(text)) is None:
        if len(paths) >= PATHS_MAX:
            paths.clear()
        path = paths[text] = _path(text, what, number)
    return ReadRange(path, offset, length)


def _is_range(offset: int, length: int) -> bool:
    is_bool = isinstance(offset, bool) or isinstance(length, bool)
    return not is_bool and 0 <= offset < offset + length <= MAX_OFFSET


def _path(text: str, what: str, number: int) -> bytes:
    try:
        path = text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        _refuse(what, number, "its path is not text")
    if path.decode(errors="surrogateescape") != text:
        _refuse(what, number, "its path is written differently")
    names = path.split(b"/") if path else []
    if any(name in (b"", b".", b"..") or b"\0" in name or len(name) > NAME_BYTES for name in names):
        _refuse(what, number, "its path is not possible in a volume")
    return path


def _parse_json(line: bytes, what: str, number: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        _refuse(what, number, "it is not JSON")


def _line(value: object) -> bytes:
    return _encode(value).encode() + b"\n"


def _check(body: bytes | bytearray | memoryview) -> bytes:
    return _line({"check": blake3(body).hexdigest()})


def _refuse(what: str, number: int, reason: str) -> NoReturn:
    raise CorruptError(f"{what} is not a profile, or is damaged: line {number}: {reason}", hint=_HINT)
