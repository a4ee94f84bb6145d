"""The daemon's socket protocol: one JSON object a line, both ways, over a Unix stream socket.

    request   {"op": NAME, ARGUMENT: …, …}
    reply     zero or more {"progress": {…}}, then one {"result": …} or {"error": {kind, message, hint, details}}

A connection carries any number of requests, one after the other. Lines end with "\\n" and have at
most LINE_LIMIT_BYTES; a longer one, a line that is not a JSON object, or an end in the middle of a
line breaks the connection. Both ends are the same user on the same machine: nothing here is
versioned or secret, and nothing is trusted either.
"""

from __future__ import annotations

import json
import socket
from typing import Any

from cowfs.errors import InvalidInputError

LINE_LIMIT_BYTES = 1 << 20


class LineSocket:
    """A connected socket that sends and receives JSON objects as lines. One thread at a time per
    direction."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = bytearray()

    def send(self, message: dict[str, Any]) -> None:
        """OSError when the other side is gone."""
        line = json.dumps(message, default=str).encode() + b"\n"
        if len(line) > LINE_LIMIT_BYTES:
            raise InvalidInputError(
                f"a message of {len(line)} bytes is too long", hint=f"The limit is {LINE_LIMIT_BYTES}."
            )
        self._connection.sendall(line)

    def receive(self) -> dict[str, Any] | None:
        """The next object, None at a clean end. InvalidInputError for anything else."""
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
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _garbage("a line is not JSON") from error
        if not isinstance(message, dict):
            raise _garbage("a line is not a JSON object")
        return message

    def close(self) -> None:
        self._connection.close()


def _garbage(reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"the control connection carries no valid message: {reason}", hint="Use cowfs' own client."
    )
