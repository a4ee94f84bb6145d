"""Messages between a mount daemon and its supervisor: one JSON object each, on a Unix socket that
keeps messages apart (SOCK_SEQPACKET), with descriptors beside it (SCM_RIGHTS).

    from a daemon      keep       these descriptors, in the order of `KEPT`, are a mount; start its daemon again when it dies
                       start      another `start`, in place of the one before
                       progress   it is still being opened
                       ready      it serves the mount
                       error      why it cannot serve
                       end        it ends, or need not be started again: nothing is kept any more
    from any process   forget     as `end`, for the mount with that id
                       restart    ends the daemon of the mount with that id, and starts the next one with these `arguments` and
                                  `variables`; if that one does not serve the mount, one like the one before
    answers            {"kept": pid of the supervisor} or {"refused": reason}; {"forgotten": whether it was kept};
                       {"restarted": pid of the daemon} or {"failed": reason}

A daemon that is started again has the kept descriptors under the numbers of `KEPT`, and the socket
as standard output.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from typing import Any

KEPT = {"start": 0, "log": 2, "device": 3, "table": 4, "lock": 5}
"""start: what the daemon reads from its standard input, behind a line for the supervisor
({"arguments": […], "environment": {…}}). log: its standard error. device: the mounted /dev/fuse.
table: the survival table. lock: of the working copy."""
GO_ON = "go-on"
"""What a daemon is started with that goes on with a mount."""
GIVEN_UP = "given-up"
"""The same for a program that takes the mount off; then the reason."""
MESSAGE_BYTES = 1 << 16


def send(connection: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    data = json.dumps(message, default=str).encode()
    if descriptors:
        socket.send_fds(connection, [data], descriptors)
    else:
        connection.send(data)


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """None: the other side has hung up, or sent something else, whose descriptors are closed."""
    try:
        flags = socket.MSG_CMSG_CLOEXEC
        data, descriptors, truncated, _ = socket.recv_fds(connection, MESSAGE_BYTES, len(KEPT), flags)
    except ConnectionError:
        return None
    try:
        message = json.loads(data)
    except (ValueError, RecursionError):
        message = None
    if isinstance(message, dict) and not truncated & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        return message, descriptors
    for descriptor in descriptors:
        os.close(descriptor)
    return None
