"""Declarations: volumes, their mount paths, and the stores they are in. They are made in Python or
loaded from a file (`load`), and checked in the same way.

    Declared(
        stores={"main": DeclaredStore(url="s3://data/team")},
        volumes=[DeclaredVolume(name="imagenet", path="/data", store="main", subpath="train")],
    )

A declaration is a value. Making one has no effect and reads nothing but the environment, for
placeholders in names. `declared` has the public class, with its methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    model_validator,
)

from cowfs.api.declared import durations, host_paths, mount_points, placeholders, problems
from cowfs.api.declared.declared_store import AnyStore, DeclaredStore
from cowfs.api.declared.problems import Path as KeyPath
from cowfs.api.declared.problems import Problem, Refused
from cowfs.api.declared.value import Value
from cowfs.base import byte_sizes
from cowfs.base.errors import InvalidInputError
from cowfs.base.hints import Command
from cowfs.control.options import COPY_LIMIT, Mode, Uncommitted
from cowfs.format import keys
from cowfs.format.locator import Locator, is_locator
from cowfs.format.lock_file import LockFile
from cowfs.store import store_names

_BARE = bool | int | float | date
"""The values that a parser makes of a name without quotes that looks like one of these."""


def _names(given: object) -> object:
    """One name, or candidates."""
    is_one = isinstance(given, str | _BARE)
    return (given,) if is_one else tuple(given) if isinstance(given, list) else given


def _text(given: object) -> object:
    if isinstance(given, _BARE):
        raise InvalidInputError(f"{given} is no text", hint=f'Put the name in quotes: "{given}".')
    return given


def _check_source(text: str) -> str:
    """A name with its placeholders filled in: NAME, NAME@TAG, NAME@VERSION, a locator, or a path of
    this machine."""
    filled = placeholders.filled(text)
    if host_paths.is_one(filled):
        if "\0" in filled or ".." in filled.split("/"):
            raise InvalidInputError(f"the path {text!r} has '..' or a NUL in it", hint="Write it out, like /mnt/data.")
    elif filled.startswith((".", "~")):
        raise InvalidInputError(
            f"the path {text!r} is relative", hint="Write it from the root on, like /mnt/data, or as ~/data."
        )
    elif is_locator(filled):
        Locator.parse(filled)
    else:
        keys.check_volume_name(filled.partition("@")[0])
    return text


def _size(given: object) -> object:
    if isinstance(given, str) and byte_sizes.parse_size(given) is None:
        raise InvalidInputError(f"{given!r} is no size", hint=f"Write {byte_sizes.WANTED}.")
    if isinstance(given, int) and not isinstance(given, bool) and given < 0:
        raise InvalidInputError(f"{given} is no size", hint=f"Write {byte_sizes.WANTED}.")
    return given


def _quota(given: object) -> object:
    if given == 0 or (isinstance(given, str) and byte_sizes.parse_size(given) == 0):
        raise InvalidInputError(f"{given!r} leaves no room", hint=f"Write {byte_sizes.WANTED}; no size: no quota.")
    return _size(given)


def _duration(given: object) -> object:
    if isinstance(given, str) and durations.parsed_s(given) is None:
        raise InvalidInputError(f"{given!r} is no duration", hint="Write one like 90s, 45m, 12h, 30d or 2w.")
    return given


def _check_path(text: str) -> str:
    placeholders.require_none(text, "path")
    mount_points.checked(text)
    return text


def _check_subpath(text: str) -> str:
    """Without slashes at its ends."""
    placeholders.require_none(text, "subpath")
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in text:
        raise InvalidInputError(
            f"the subpath {text!r} has '..' or a NUL in it", hint="Write it from the volume's root on."
        )
    return "/".join(parts)


class DeclaredVolume(Value):
    """A volume, or a version of one, and its mount path.

    name        NAME, NAME@TAG, NAME@VERSION or a locator; a directory or file of this machine (/mnt/shared), which the
                path then links to; or a list of candidates: the first usable one is mounted. {node_rank} and other
                placeholders are filled in
    path        the mount path: an absolute path, or ~/…
    store       a name of `stores`; None: the default store
    subpath     mount only this folder of the volume; read-only volumes only
    read_only   mount a version, the last one if none is named; otherwise the volume is mounted writable
    optional    `up` and `apply` go on without it
    mode        "fuse": a mount; "copy": a folder of plain files; "auto": what this machine can
    uncommitted "resume", "discard" or "refuse": what a writable mount does with work left here
    copy_limit  the size limit, in bytes, of a version that may be mounted as a copy
    size        quota of a writable volume (`Store.set_quota`). `apply` sets it, and removes it when it is no longer
                declared
    compress    false: contents of a writable volume are stored uncompressed (`Volume.new`). `apply` sets it; if it is
                not declared, `apply` leaves it unchanged
    idle_delete how long a writable volume may be unused until `clean` deletes it, like "30d"
    """

    name: Annotated[
        tuple[Annotated[str, BeforeValidator(_text), AfterValidator(_check_source)], ...],
        BeforeValidator(_names),
        Field(min_length=1),
    ]
    path: Annotated[str, AfterValidator(_check_path)]
    store: str | None = None
    subpath: Annotated[str, AfterValidator(_check_subpath)] = ""
    read_only: bool = True
    optional: bool = False
    mode: Mode = "auto"
    uncommitted: Uncommitted = "resume"
    copy_limit: Annotated[int | str, BeforeValidator(_size)] = COPY_LIMIT
    size: Annotated[int | str | None, BeforeValidator(_quota)] = None
    compress: bool | None = None
    idle_delete: Annotated[str | None, BeforeValidator(_duration)] = None

    if TYPE_CHECKING:  # the arguments accept more types than the fields store

        def __init__(
            self,
            *,
            name: str | Sequence[str],
            path: str,
            store: str | None = None,
            subpath: str = "",
            read_only: bool = True,
            optional: bool = False,
            mode: Mode = "auto",
            uncommitted: Uncommitted = "resume",
            copy_limit: int | str = COPY_LIMIT,
            size: int | str | None = None,
            compress: bool | None = None,
            idle_delete: str | None = None,
        ) -> None: ...

    @model_validator(mode="after")
    def _are_one(self) -> DeclaredVolume:
        found = list(self._wrong_to_read()) if self.read_only else self._wrong_to_write()
        if self.store is not None:
            located = [index for index, each in enumerate(self.candidates) if is_locator(each)]
            found += [
                Problem(("name", index), "a locator names its own store", "Leave store out.") for index in located
            ]
        found += self._wrong_on_host()
        if found:
            raise Refused(found)
        return self

    def _wrong_to_read(self) -> Iterator[Problem]:
        if self.uncommitted != "resume":
            hint = "Leave it out, or say read_only = false."
            yield Problem(("uncommitted",), "a read-only mount has no uncommitted work", hint)

    def _wrong_to_write(self) -> list[Problem]:
        hint = "Leave read_only = false out, or name the volume."
        versions = [
            index
            for index, each in enumerate(self.candidates)
            if is_locator(each) or ("@" in each and not host_paths.is_one(each))
        ]
        found = [Problem(("name", index), "a version does not change", hint) for index in versions]
        if self.subpath:
            hint = "Leave out subpath, or leave out read_only = false: without it the folder is mounted read-only."
            found.append(Problem(("subpath",), "one folder of a volume cannot be mounted writable", hint))
        return found

    def _wrong_on_host(self) -> Iterator[Problem]:
        for index, each in enumerate(self.candidates):
            if not host_paths.is_one(each):
                continue
            if self.store is not None and all(map(host_paths.is_one, self.candidates)):
                yield Problem(("name", index), "a path of this machine is in no store", "Leave store out.")
            if self.read_only:
                hint = f"Say read_only = false, or copy it into a volume ({Command('upload')})."
                yield Problem(
                    ("name", index), "a path of this machine is linked to, which keeps nobody from writing", hint
                )
            place = host_paths.expanded(each)
            if place == self.mount_path or mount_points.is_below(self.mount_path, place):
                yield Problem(("path",), f"the mount path {self.mount_path} lies in {place}", "Choose another path.")

    @property
    def candidates(self) -> tuple[str, ...]:
        """The names, with their placeholders filled in."""
        return tuple(map(placeholders.filled, self.name))

    @property
    def mount_path(self) -> str:
        return mount_points.checked(self.path)

    @property
    def folder(self) -> str:
        """The subpath, relative to the volume's root; "" for all of it."""
        return self.subpath

    @property
    def size_bytes(self) -> int | None:
        return byte_sizes.parse_size(self.size) if isinstance(self.size, str) else self.size

    @property
    def idle_delete_s(self) -> int | None:
        return durations.parsed_s(self.idle_delete) if self.idle_delete is not None else None


def _expand_name(text: str, root: object, index: int) -> dict[str, object]:
    """The volume that NAME, STORE/NAME, either with @TAG or @VERSION, or a locator declares by
    itself: read-only, at root/NAME or root/STORE/NAME."""
    path = ("volumes", index)
    if not isinstance(root, str):
        raise Refused([Problem(path, f"{text!r} has no mount path", 'Give root = "DIRECTORY", or name and path.')])
    if host_paths.is_one(text):
        raise Refused([Problem(path, f"{text!r} is a path of this machine", "Give it a table with name and path.")])
    store, name = (None, text) if is_locator(text) else store_names.split_name(text)
    volume = Locator.parse(text).volume if is_locator(text) else name.partition("@")[0]
    return {"name": name, "path": "/".join(filter(None, (root.rstrip("/"), store, volume))), "store": store}


class Declaration(Value):
    """Volumes and the stores they are in, as values: `Declared` without its methods. root: the
    directory of the mount paths of volumes that are declared by a name alone."""

    volumes: Annotated[tuple[DeclaredVolume, ...], BeforeValidator(_names)] = ()
    stores: dict[str, AnyStore] = Field(default_factory=dict)
    root: str | None = None
    _file: Path | None = PrivateAttr(None)
    _content: str = PrivateAttr("")
    _named_stores: frozenset[str] | None = PrivateAttr(None)
    _lock: LockFile | None = PrivateAttr(None)
    _is_manifest: bool = PrivateAttr(False)

    @model_validator(mode="before")
    @classmethod
    def _expand_names(cls, given: Any) -> Any:
        volumes = given.get("volumes") if isinstance(given, Mapping) else None
        if not isinstance(volumes, list | tuple):
            return given
        root = given.get("root")
        return {
            **given,
            "volumes": [
                _expand_name(each, root, index) if isinstance(each, str) else each for index, each in enumerate(volumes)
            ],
        }

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if found := [*self._wrong_stores(), *self._wrong_places()]:
            raise Refused(found)
        return self

    @classmethod
    def keys_at(cls, path: KeyPath) -> list[str]:
        if not path:
            return list(cls.model_fields)
        return DeclaredVolume.keys_at(path[2:]) if path[0] == "volumes" else DeclaredStore.keys_at(path[2:])

    @property
    def file(self) -> Path | None:
        """The file it was loaded from; None for one made in Python."""
        return self._file

    @property
    def is_merely_found(self) -> bool:
        """Whether its file was found upwards from the working directory, and the user has neither
        named nor allowed it (`cowfs allow FILE`). Such a file mounts below its own directory only.
        """
        return self._named_stores is not None

    def is_named(self, store: str) -> bool:
        """Whether the user has named that store: in Python, in the environment, in the user's own
        file, or in a file that the user named or allowed. False if only a file that was merely
        found defines it."""
        return self._named_stores is None or store in self._named_stores

    def _wrong_stores(self) -> list[Problem]:
        return [
            Problem(
                ("volumes", index, "store"),
                f"there is no store {each.store!r}",
                problems.near(each.store, self.stores, "Declared stores"),
            )
            for index, each in enumerate(self.volumes)
            if each.store is not None and each.store not in self.stores
        ]

    def _wrong_places(self) -> list[Problem]:
        found = list(self._find_duplicates())
        seen, inside = set[str](), dict[str, str]()  # inside: a directory → the first path below it
        for index, path in enumerate(each.mount_path for each in self.volumes):
            above = mount_points.directories_above(path)
            clash = next((each for each in (path, *above) if each in seen), inside.get(path))
            if clash is not None:
                what = "is declared twice" if clash == path else f"and {clash} lie one in the other"
                found.append(Problem(("volumes", index, "path"), f"the mount path {path} {what}", "Give each its own."))
            seen.add(path)
            for each in above:
                inside.setdefault(each, path)
        return found

    def _find_duplicates(self) -> Iterator[Problem]:
        """A volume has one writer. Candidates of two entries may overlap: each is used where the
        other is not."""
        seen = set[tuple[str | None, str]]()
        for index, each in enumerate(self.volumes):
            if each.read_only or len(each.name) > 1 or host_paths.is_one(each.candidates[0]):
                continue
            if (key := (each.store, each.candidates[0])) in seen:
                hint = "A volume has one writer: mount it once, or read-only."
                yield Problem(("volumes", index, "name"), f"{key[1]} is declared twice to be written to", hint)
            seen.add(key)


def set_origin(declaration: Declaration, file: Path | None, content: str, named: frozenset[str] | None) -> None:
    """content: the hash of the file's bytes. named: the stores that the user has named elsewhere;
    None: the file itself was named."""
    declaration._file, declaration._content, declaration._named_stores = file, content, named


def set_lock(declaration: Declaration, lock: LockFile | None) -> None:
    declaration._lock = lock


def set_manifest(declaration: Declaration) -> None:
    """Its file is another program's, and named by --manifest."""
    declaration._is_manifest = True


def file_option(declaration: Declaration) -> list[str]:
    """What commands are given to use the same file; nothing if they find it."""
    if declaration.is_merely_found or declaration.file is None:
        return []
    return ["--manifest" if declaration._is_manifest else "-f", str(declaration.file)]


def lock_of(declaration: Declaration) -> LockFile | None:
    """The lock beside its file, as it was when the declaration was loaded; None: there was none."""
    return declaration._lock


def content_of(declaration: Declaration) -> str:
    """The hash of the bytes of its file; empty for a declaration that was made in Python."""
    return declaration._content
