"""Text for people: sizes, counts, times, progress, and the store in commands that are suggested.

The command line, a web page and a notebook share it, so that all of them show the same text.
Nothing here makes a request. Threads: any; a `ProgressText` belongs to one.
"""

from __future__ import annotations

from cowfs.base.byte_sizes import format_size
from cowfs.base.log import configure as show_log
from cowfs.base.quantities import count
from cowfs.rendering.named_stores import is_default_store, name_store, store_option
from cowfs.rendering.progress import ProgressText
from cowfs.rendering.text import format_time, printable
from cowfs.rendering.watching import watch

__all__ = [
    "ProgressText",
    "count",
    "format_size",
    "format_time",
    "is_default_store",
    "name_store",
    "printable",
    "show_log",
    "store_option",
    "watch",
]
