"""`dataclass`, for values that stay inside cowfs: made in a quarter of the time.

`dataclasses` compiles six functions for each frozen class, 0.8 ms of it. A command or a daemon has
130 such classes, which was a third of the time that it took to start. Here only `__init__` is
compiled; the others are shared. What `dataclasses` does with its classes (`fields`, `replace`,
`asdict`) works with these as well.

The type checker enforces that `frozen` values are not changed; nothing does at run time. Classes of
the public API use `dataclasses` itself, since their users may have no type checker.
"""

from __future__ import annotations

import dataclasses
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, eq=True, kw_only=False, slots=False):
        """As `dataclasses.dataclass`."""

        def convert(cls: type) -> type:
            own = vars(cls)
            has_own = {name for name in ("__repr__", "__eq__", "__hash__") if own.get(name) is not None}
            cls = dataclasses.dataclass(cls, repr=False, eq=False, kw_only=kw_only, slots=slots)
            fields = dataclasses.fields(cls)
            if "__repr__" not in has_own:
                cls.__repr__ = _repr
            if eq and "__eq__" not in has_own:
                cls.__eq__ = _eq_by([field.name for field in fields if field.compare])
            if eq and "__hash__" not in has_own:
                names = [field.name for field in fields if (field.compare if field.hash is None else field.hash)]
                cls.__hash__ = _hash_by(names) if frozen else None
            return cls

        return convert if cls is None else convert(cls)


def _repr(self: Any) -> str:
    told = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({told})"


def _eq_by(names: list[str]) -> Any:
    values = _values_of(names)

    def equal(self: Any, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    return equal


def _hash_by(names: list[str]) -> Any:
    values = _values_of(names)

    def compute_hash(self: Any) -> int:
        return hash(values(self))

    return compute_hash


def _values_of(names: list[str]) -> Any:
    return attrgetter(*names) if names else lambda value: ()
