"""Lists the classes that exist twice, async and blocking."""

from __future__ import annotations

from cowfs.api import asynchronous
from cowfs.api.declared import asynchronous as declared
from cowfs.api.twins.one_type import twin_of


def list_twins() -> list[tuple[type, type]]:
    """The public classes that are async and blocking, as pairs in this order. Each pair is one type
    to `isinstance`, `issubclass`, `match` and `functools.singledispatch`. A registry that looks up
    `type(value)` needs an entry for both classes of a pair."""
    found = [getattr(module, name) for module in (asynchronous, declared) for name in module.__all__]
    return [(each, twin_of(each)) for each in found if isinstance(each, type)]
