"""What IPython and Jupyter show for a call that was not awaited.

    In [1]: volume.mount()
    Out[1]: <RWVolume.mount() was not awaited: write `await` before it>

The calls are coroutines and async generators of Python as before, so that tasks can be made of
them. IPython is given a printer for these two types, which passes those of other libraries on. That
is done when the async classes are loaded in a shell; without a shell nothing is loaded.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import AsyncGeneratorType, CodeType, CoroutineType
from typing import Any

Printer = Callable[[Any, Any, bool], None]


def register_printers(own: Callable[[CodeType], bool]) -> None:
    """Tells the running shell, if there is one. own: whether the code of a coroutine is that of an
    async twin."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None:
        return
    formatter = shell.display_formatter.formatters["text/plain"]
    for kind, describe in ((CoroutineType, _describe_call), (AsyncGeneratorType, _describe_iterator)):
        before = formatter.for_type(kind)
        if not getattr(before, "is_of_cowfs", False):
            formatter.for_type(kind, _make_printer(describe, before, own))


def _make_printer(
    describe: Callable[[Any], tuple[CodeType, str]], before: Printer | None, own: Callable[[CodeType], bool]
) -> Printer:
    def show(value: Any, printer: Any, cycle: bool) -> None:
        code, text = describe(value)
        if text and own(code):
            printer.text(text)
        elif before is not None:
            before(value, printer, cycle)
        else:
            printer.text(repr(value))

    show.is_of_cowfs = True  # type: ignore[attr-defined]
    return show


def _describe_call(call: CoroutineType[Any, Any, Any]) -> tuple[CodeType, str]:
    is_new = inspect.getcoroutinestate(call) == inspect.CORO_CREATED
    text = f"<{call.__qualname__}() was not awaited: write `await` before it>" if is_new else ""
    return call.cr_code, text


def _describe_iterator(iterator: AsyncGeneratorType[Any, Any]) -> tuple[CodeType, str]:
    return iterator.ag_code, "<an async iterator: write `async for item in …`, or `[item async for item in …]`>"
