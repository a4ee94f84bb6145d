"""How other processes reach the supervisor of their user.

Its directory is private to the user (`config.runtime_dir`). It holds the supervisor's socket, and
the lock that the running supervisor has.
"""

from __future__ import annotations

import os
import socket
import struct

from cowfs.supervisor import wire

SOCKET = "supervisor.sock"
LOCK = "supervisor.lock"
ANSWER_S = 10.0
RESTART_S = 600.0
"""A replay may take minutes."""


def find(directory: str) -> socket.socket | None:
    """A connection to the supervisor that runs; None without one."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.settimeout(ANSWER_S)
        connection.connect(os.path.join(directory, SOCKET))
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise
    return connection


def peer(connection: socket.socket) -> tuple[int, int]:
    """Process id and user id of the other side. The first is 0 if it is in a pid namespace that is
    not visible here."""
    size = struct.calcsize("3i")
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, uid


def restart(directory: str, registration: str, arguments: list[str], variables: dict[str, str]) -> str:
    """Starts the mount's daemon anew, with this program. Returns why it was not, and another one
    like before serves the mount; "": it was. OSError: the supervisor does not answer."""
    if (connection := find(directory)) is None:
        return "its supervisor is gone"
    with connection:
        connection.settimeout(RESTART_S)
        wire.send(connection, {"restart": registration, "arguments": arguments, "variables": variables})
        answer = wire.receive(connection)
        if answer is None:
            return "its supervisor is gone"
        return str(answer[0].get("failed", ""))


def forget(directory: str, registration: str) -> bool:
    """The mount is not kept any more. Returns whether it was. OSError: the supervisor does not
    answer."""
    if (connection := find(directory)) is None:
        return False
    with connection:
        wire.send(connection, {"forget": registration})
        answer = wire.receive(connection)
        return answer is not None and answer[0].get("forgotten") is True
