"""The daemon's socket protocol: one JSON object a line, both ways, over a Unix stream socket.

    request   {"op": NAME, ARGUMENT: …, …}
    reply     zero or more {"progress": {…}} and {"waiting": WORDS}, then one {"result": …} or
              {"error": {kind, message, hint, details}}

WORDS describe the wait for the store; "" means that it has ended.

A message longer than a line travels in pieces, one a line, {"piece": TEXT}, and ends with
{"pieces": HOW MANY}: the concatenated texts are the message.

A connection carries any number of requests, one after the other. Lines end with "\\n" and have at
most LINE_LIMIT_BYTES, messages MESSAGE_LIMIT_BYTES. A longer one, a line that is not a JSON object,
or an end in the middle of a line or message breaks the connection. Both ends belong to the same
user on the same machine, so nothing is versioned or encrypted, credentials included; nothing is
trusted either.
"""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Iterable
from typing import Any

from cowfs.base.errors import InvalidInputError
from cowfs.control.typed import to_json

LINE_LIMIT_BYTES = 1 << 20
PIECE_BYTES = 256 << 10
"""The text in one piece of a long message: escaping doubles quotation marks and backslashes."""
MESSAGE_LIMIT_BYTES = 1 << 28
"""Enough for a comparison of a million paths."""
OTHER_BYTES = 1 << 16
"""Reserved in a message for everything except its list of items."""


def fitting(items: Iterable[object]) -> int:
    """How many items, from the first on, fit in a message."""
    left_bytes, count = MESSAGE_LIMIT_BYTES - OTHER_BYTES, 0
    for each in items:
        left_bytes -= len(json.dumps(to_json(each))) + len(", ")
        if left_bytes < 0:
            break
        count += 1
    return count


class LineSocket:
    """A connected socket that sends and receives JSON objects as lines. One thread at a time per
    direction."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray()

    def send(self, message: dict[str, Any]) -> None:
        """OSError when the other side is gone."""
        text = json.dumps(message, default=str)
        if len(text) < LINE_LIMIT_BYTES:
            self._connection.sendall(text.encode() + b"\n")
            return
        if len(text) > MESSAGE_LIMIT_BYTES:
            raise InvalidInputError(
                f"a message of {len(text)} bytes is too long", hint=f"The limit is {MESSAGE_LIMIT_BYTES}."
            )
        pieces = [text[at : at + PIECE_BYTES] for at in range(0, len(text), PIECE_BYTES)]
        for piece in pieces:
            self._connection.sendall(json.dumps({"piece": piece}).encode() + b"\n")
        self._connection.sendall(json.dumps({"pieces": len(pieces)}).encode() + b"\n")

    def wait(self, timeout_s: float) -> bool:
        """Whether there is something to receive, or an end, by then."""
        if self._buffer:
            return True
        waiter = select.poll()
        waiter.register(self._connection, select.POLLIN)
        return bool(waiter.poll(timeout_s * 1000))

    def receive(self) -> dict[str, Any] | None:
        """The next object, None at a clean end. InvalidInputError for anything else."""
        pieces: list[str] = []
        left_bytes = MESSAGE_LIMIT_BYTES
        while (line := self._line()) is not None:
            message = _decode(line)
            if isinstance(piece := message.get("piece"), str):
                pieces.append(piece)
                left_bytes -= len(piece)
                if left_bytes < 0:
                    raise _garbage(f"a message is longer than {MESSAGE_LIMIT_BYTES} bytes")
            elif not pieces:
                return message
            elif message != {"pieces": len(pieces)}:
                raise _garbage("a long message lacks pieces")
            else:
                return _decode("".join(pieces))
        if pieces:
            raise _garbage("it ends in the middle of a message")
        return None

    def _line(self) -> bytes | None:
        end = -1
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched >= LINE_LIMIT_BYTES:
                raise _garbage(f"a line is longer than {LINE_LIMIT_BYTES} bytes")
            data = self._connection.recv(65536)
            if not data:
                if self._buffer:
                    raise _garbage("it ends in the middle of a line")
                return None
            self._buffer += data
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return line

    def close(self) -> None:
        self._connection.close()


def _decode(text: bytes | str) -> dict[str, Any]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _garbage("a line is not JSON") from error
    if not isinstance(message, dict):
        raise _garbage("a line is not a JSON object")
    return message


def _garbage(reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"the control connection carries no valid message: {reason}", hint="Use cowfs' own client."
    )
