"""A progress bar for notebooks. IPython shows it, which a notebook has.

    from cowfs.integrations.notebook import ProgressBar

    volume.files.upload("data", "/", progress=ProgressBar())

It is one output of the cell, which changes at most five times a second. A terminal shows the text.
Threads: any; one bar for one call.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from cowfs.rendering import ProgressText, printable

if TYPE_CHECKING:
    from cowfs import Progress


class ProgressBar:
    """A listener for the `progress` argument of calls."""

    def __init__(self) -> None:
        self._text = ProgressText()
        self._output: Any = None

    def __call__(self, progress: Progress) -> None:
        from IPython.display import display

        done, total = _measure(progress)
        if not self._text.is_due(progress) and done != total:
            return
        shown = _Shown(done, total, printable(self._text.describe(progress)))
        if self._output is None:
            self._output = display(shown, display_id=True)
        else:
            self._output.update(shown)


class _Shown:
    def __init__(self, done: int, total: int, text: str) -> None:
        self._done, self._total, self._text = done, total, text

    def __repr__(self) -> str:
        return self._text

    def _repr_html_(self) -> str:
        value = f' value="{self._done}" max="{self._total}"' if self._total else ""
        text = escape(self._text)
        return f'<progress{value} aria-label="progress" style="width:20em;vertical-align:middle"></progress> {text}'


def _measure(progress: Progress) -> tuple[int, int]:
    """Done and in total, of bytes if they are known."""
    if progress.total_bytes:
        return progress.done_bytes, progress.total_bytes
    return progress.done, progress.total
