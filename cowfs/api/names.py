"""Names of volumes: checks those that a user gives, and generates others for a volume without a
name and for a name that is taken."""

from __future__ import annotations

from cowfs.base import clock
from cowfs.base.errors import InvalidInputError
from cowfs.base.hints import Command
from cowfs.format import keys
from cowfs.format.locator import is_locator
from cowfs.store import store_names

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
            hint=f"A version is read with Volume.version(…); to write, leave the @ out, or fork it "
            f"({Command('fork', 'NAME@TAG', 'NEW')}, fork()).",
        )
    store, rest = store_names.split_name(name)
    if store is not None and store_names.has_store(store):
        raise with_its_store(store, rest)
    if name.startswith((".", "~")) or "/" in name.strip("/"):
        raise InvalidInputError(
            f"{name!r} is a path, not a volume's name",
            hint=f"Give a name like 'my-dataset'; {Command('status')} says what is mounted where.",
        )
    return keys.check_volume_name(name.removeprefix("/"))


def with_its_store(store: str, name: str) -> InvalidInputError:
    """STORE/NAME where a volume is made or written to."""
    return InvalidInputError(
        f"{store}/{name} is a source, to be read; what is written to is named without its store",
        hint=f"Give {name} with --store {store} (store={store!r}, Store({store!r})).",
    )


def generated() -> str:
    return f"volume-{clock.random_bytes(4).hex()}"


def beside(name: str) -> str:
    """Another name for a volume whose name is taken. Retried tasks must not fail on their own
    leftovers."""
    return f"{name[: LONGEST - 7]}-{clock.random_bytes(3).hex()}"


def require_none(name: str | None) -> None:
    """For mounts that are no scratch: their volume has a name."""
    if name is not None:
        raise InvalidInputError(
            f"only a scratch mount is committed under a name, {name!r} here",
            hint="Commit without a name, and fork the version.",
        )
