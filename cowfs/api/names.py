"""Names of volumes that cowfs makes up: for a volume without one, and beside one that is taken."""

from __future__ import annotations

from cowfs import clock
from cowfs.errors import InvalidInputError
from cowfs.format import keys
from cowfs.format.locator import is_locator

LONGEST = 128


def checked(name: str) -> str:
    """The name as stores know it. A leading slash is dropped: volume("/mydata") and
    volume("mydata") are one."""
    if not isinstance(name, str):
        raise InvalidInputError(f"a volume's name is text, not {name!r}", hint="Give a name like 'my-dataset'.")
    if is_locator(name):
        raise InvalidInputError(
            f"{name} is a locator, not a volume's name", hint="Open it with Volume.from_locator, and fork it to write."
        )
    if "@" in name:
        raise InvalidInputError(
            f"{name!r} means a version, not a volume",
            hint="A version is read with Volume.version(…); to write, leave the @ out, or fork it (`cowfs fork NAME@TAG NEW`, fork()).",
        )
    if name.startswith((".", "~")) or "/" in name.strip("/"):
        raise InvalidInputError(
            f"{name!r} is a path, not a volume's name",
            hint="Give a name like 'my-dataset'; `cowfs status` says what is mounted where.",
        )
    return keys.check_volume_name(name.removeprefix("/"))


def generated() -> str:
    return f"volume-{clock.random_bytes(4).hex()}"


def beside(name: str) -> str:
    """Another name for a volume whose name is taken: tasks are retried and must not fail on their
    own traces."""
    return f"{name[: LONGEST - 7]}-{clock.random_bytes(3).hex()}"
