"""Text for people: sizes, counts, times, progress, and the store in commands that are suggested;
for programs, the names of fields in JSON.

The command line, a web page and a notebook share it, so that all of them show the same text.
Nothing here makes a request. Threads: any; a `ProgressText` belongs to one.
"""

from __future__ import annotations

from cowfs.base.byte_sizes import format_size
from cowfs.base.log import configure as show_log
from cowfs.base.quantities import count, format_time, natural_key
from cowfs.base.tree_drawing import draw_tree
from cowfs.rendering.graph import draw as draw_graph
from cowfs.rendering.json_fields import fields_of, json_names
from cowfs.rendering.named_stores import is_default_store, name_store, store_option
from cowfs.rendering.progress import ProgressText
from cowfs.rendering.text import first_line, printable, printable_lines
from cowfs.rendering.versions import describe_version, name_version
from cowfs.rendering.watching import watch

__all__ = [
    "ProgressText",
    "count",
    "describe_version",
    "draw_graph",
    "draw_tree",
    "fields_of",
    "first_line",
    "format_size",
    "format_time",
    "is_default_store",
    "json_names",
    "name_store",
    "name_version",
    "natural_key",
    "printable",
    "printable_lines",
    "show_log",
    "store_option",
    "watch",
]
