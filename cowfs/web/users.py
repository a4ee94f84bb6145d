"""Who uses the server, and what they may do.

    viewer    reads
    writer    reads, makes volumes, and changes and deletes their own ones
    admin     changes and deletes any

The owner of a volume is who made it. Volumes that were not made through this server have the owner
that `cowfs` recorded. A user of that name may change them; otherwise they belong to admins.

The file of users has a line for each: NAME ROLE HASH (Argon2). Lines that begin with # are
comments; changes keep them where they are. A change counts from the next request on. Threads: any.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from argon2 import PasswordHasher
from argon2.exceptions import Argon2Error, InvalidHashError
from starlette.requests import Request

from cowfs.base import clock
from cowfs.errors import AccessDeniedError, Command, InvalidInputError, NotFoundError, from_local_disk

VIEWER, WRITER, ADMIN = ROLES = ("viewer", "writer", "admin")
FILE_BYTES = 1 << 20
LONGEST_PASSWORD = 1024
_NAME = re.compile(r"(?!#)[^\s:\x00-\x1f\x7f\ud800-\udfff]{1,128}")
_hasher = PasswordHasher()
_hashing = Lock()  # a hash takes 64 MiB: one at a time


@dataclass(frozen=True)
class User:
    """owner: what volumes record that this user makes; None: what `cowfs` records."""

    name: str
    role: str
    owner: str | None

    @property
    def may_write(self) -> bool:
        return self.role in (WRITER, ADMIN)

    def may_change(self, owner: str) -> bool:
        """Whether the user may change and delete the volume of that owner."""
        return self.role == ADMIN or (self.role == WRITER and bool(owner) and owner == self.owner)


def user_of(request: Request) -> User:
    """Who asks, as the gate has found out."""
    found: User = request.scope["user"]
    return found


class UsersFile:
    """A file of users. It is read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._mutex = Lock()
        self._seen: tuple[int, ...] = ()
        self._lines: list[bytes] = []
        self._users: dict[str, tuple[str, str]] = {}
        self._nobody = _hasher.hash(clock.random_bytes(16).hex())

    def list_users(self) -> dict[str, str]:
        """The role of each user. InvalidInputError: a line is wrong. AccessDeniedError: others can
        write to the file."""
        return {name: role for name, (role, _) in sorted(self._read().items())}

    def find(self, name: str) -> User | None:
        found = self._read().get(name)
        return None if found is None else User(name, found[0], name)

    def find_hash(self, name: str) -> str:
        """Of the user's password; it is another one after each `add`. "" without the user."""
        return self._read().get(name, ("", ""))[1]

    def verify(self, name: str, password: str) -> User | None:
        """The user, if the password is right. It takes as long for a name that is not there."""
        found = self._read().get(name)
        with _hashing:
            try:
                _hasher.verify(found[1] if found is not None else self._nobody, password[:LONGEST_PASSWORD])
            except (Argon2Error, InvalidHashError):
                return None
        return self.find(name)

    def add(self, name: str, role: str | None, password: str) -> None:
        """Adds a user, or gives them another password and role. role None: they keep theirs; a new
        one is a writer."""
        if not _NAME.fullmatch(name):
            raise InvalidInputError(
                f"{name!r} is no name of a user", hint="A name has no spaces and no colon, and does not begin with #."
            )
        if role is not None and role not in ROLES:
            raise InvalidInputError(f"{role!r} is no role", hint=f"Roles: {', '.join(ROLES)}.")
        if not password or len(password) > LONGEST_PASSWORD:
            raise InvalidInputError(
                "the password is empty or too long", hint=f"Give one of 1 to {LONGEST_PASSWORD} characters."
            )
        with _hashing:
            hashed = _hasher.hash(password)
        with self._change():
            if self.path.exists():
                known = self._read()
            else:
                known, self._lines, self._seen = {}, [], ()
            self._replace(name, f"{name} {role or known.get(name, (WRITER,))[0]} {hashed}")

    def remove(self, name: str) -> None:
        """NotFoundError: there is no such user."""
        with self._change():
            if name not in self._read():
                raise NotFoundError(
                    f"{self.path} has no user {name!r}",
                    hint=f"{Command('web', 'users', 'ls', '--users', self.path)} lists them.",
                )
            self._replace(name, None)

    @contextmanager
    def _change(self) -> Iterator[None]:
        """One process at a time, so that none undoes the change of another. Then the directory is
        synced: a user who was removed is not back after a power loss."""
        try:
            directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise from_local_disk(error, f"{self.path} cannot be written") from error
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            yield
            os.fsync(directory)
        finally:
            os.close(directory)

    def _read(self) -> dict[str, tuple[str, str]]:
        with self._mutex:
            try:
                descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError as error:
                hint = f"{Command('web', 'users', 'add')} makes the file of --users."
                raise NotFoundError(f"{self.path} does not exist", hint=hint) from error
            except OSError as error:
                raise from_local_disk(error, f"{self.path} cannot be read") from error
            with os.fdopen(descriptor, "rb") as file:
                found = os.fstat(descriptor)
                if found.st_uid not in (os.geteuid(), 0) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                    raise AccessDeniedError(
                        f"others can write to {self.path}", hint=f"chmod 600 {self.path}, if you trust what is in it."
                    )
                seen = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
                if seen != self._seen:
                    data = file.read(FILE_BYTES + 1)
                    self._lines, self._users = data.splitlines(), self._parse(data)
                    self._seen = seen
            return self._users

    def _parse(self, data: bytes) -> dict[str, tuple[str, str]]:
        if len(data) > FILE_BYTES:
            raise InvalidInputError(f"{self.path} is larger than {FILE_BYTES >> 20} MiB", hint="Remove lines.")
        found = {}
        for number, line in enumerate(data.splitlines(), 1):
            words = _words(line)
            if not words:
                continue
            if len(words) != 3 or words[1] not in ROLES or not words[2].startswith("$argon2"):
                raise InvalidInputError(
                    f"line {number} of {self.path} is not NAME ROLE HASH",
                    hint=f"{Command('web', 'users', 'add')} writes such lines. Roles: {', '.join(ROLES)}.",
                )
            found[words[0]] = (words[1], words[2])
        return found

    def _replace(self, name: str, line: str | None) -> None:
        """Writes the file as it was read, with this line for the user; None: with none."""
        is_of_user = [_words(each)[:1] == [name] for each in self._lines]
        kept = [each for each, is_one in zip(self._lines, is_of_user, strict=True) if not is_one]
        if line is not None:
            at = is_of_user.index(True) if True in is_of_user else len(kept)
            kept.insert(at, line.encode())
        self._write(b"".join(each + b"\n" for each in kept))

    def _write(self, data: bytes) -> None:
        try:
            with tempfile.NamedTemporaryFile("wb", dir=self.path.parent, prefix=".users-", delete=False) as file:
                try:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                    os.replace(file.name, self.path)
                except BaseException:
                    os.unlink(file.name)
                    raise
        except OSError as error:
            raise from_local_disk(error, f"{self.path} cannot be written") from error


def _words(line: bytes) -> list[str]:
    """None of a comment."""
    text = line.decode("utf-8", "replace")
    return [] if text.startswith("#") else text.split()


@dataclass(frozen=True)
class ProxyHeader:
    """A header in which a proxy names the user. role: of users that are not among admins."""

    header: str
    admins: frozenset[str] = frozenset()
    role: str = WRITER

    def find(self, values: list[str]) -> User | None:
        """The user whom the header names; None unless it is there once."""
        if len(values) != 1 or not _NAME.fullmatch(values[0]):
            return None
        return User(values[0], ADMIN if values[0] in self.admins else self.role, values[0])
