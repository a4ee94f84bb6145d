"""The paths at which a declared volume may be mounted. `checked` checks the text alone: the path
may not exist yet, and the volume may be mounted on another machine.
Just before a mount, `check_place` applies the same rules to the path with the symbolic links of
this machine resolved.

    refused    a relative path; "..", a NUL
               the system's directories themselves: / /root /tmp /opt /var /home …
               paths below directories of installed programs or of the kernel: /usr /etc /proc …
    taken      anything else, so also /tmp/x, /opt/data, /home/me/data; ~/x is below the home directory

The mount itself reports problems that only the machine can detect (a directory that is not empty).
"""

from __future__ import annotations

import os
from pathlib import PurePosixPath

from cowfs.base.errors import InvalidInputError

ITSELF = ("/", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/var", "/var/lib", "/var/tmp")  # noqa: S108
"""Refused themselves; paths below them are allowed."""
WHOLE = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/sbin", "/sys", "/usr")
"""Refused, with all paths below."""


def checked(text: str) -> str:
    """The path, normalised; InvalidInputError."""
    path = os.path.expanduser(text) if text.startswith("~/") else text
    if not path.startswith("/"):
        raise InvalidInputError(
            f"the mount path {text!r} is relative", hint="Write it from the root on, like /data, or as ~/data."
        )
    if "\0" in path or ".." in path.split("/"):
        raise InvalidInputError(f"the mount path {text!r} has '..' or a NUL in it", hint="Write it out, like /data.")
    path = os.path.normpath("/" + path.lstrip("/"))
    _judge(path, f"the mount path {path}", os.path.normpath(os.path.expanduser("~")))
    return path


def check_place(path: str, place: str) -> None:
    """place: the path with its links resolved. InvalidInputError."""
    leads = f" leads to {place}, which" if place != path else ""
    _judge(place, f"the mount path {path}{leads}", os.path.realpath(os.path.expanduser("~")))


def _judge(path: str, subject: str, home: str) -> None:
    above = next((each for each in WHOLE if is_below(path, each)), None)
    if path in (*ITSELF, *WHOLE) or above is not None:
        what = f"is below {above}" if above is not None else "is a directory of the system"
        raise InvalidInputError(
            f"{subject} {what}: programs need what is there",
            hint="Mount on a directory of your own, like /data or /mnt/data.",
        )
    if path == home:
        raise InvalidInputError(f"{subject} is your home directory", hint="Mount below it, like ~/data.")


def directories_above(path: str) -> list[str]:
    """Of a checked path, from its own directory to the root."""
    return [str(each) for each in PurePosixPath(path).parents]


def is_below(path: str, other: str) -> bool:
    return path.startswith(other.rstrip("/") + "/")
