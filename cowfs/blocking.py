"""cowfs without async: the same names and arguments, without await. For scripts, threads and
notebooks.

Importing this is cheap: each name is loaded when it is first used.
"""

import importlib

from cowfs import HOMES

__all__ = list(HOMES)


def __getattr__(name: str) -> object:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = HOMES[name]
    found = getattr(importlib.import_module(home if isinstance(home, str) else home[1]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
