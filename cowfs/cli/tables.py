"""Tables for people: columns under a header, numbers to the right.

On a terminal, a table leaves out columns that do not fit, so that its lines do not wrap. Elsewhere
it has all of its columns and all of their text.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Sequence

NUMBERS = frozenset({"BYTES", "FILES", "LINKED", "PID", "SHARED", "SIZE", "STORED", "UNIQUE", "UPLOADED", "VERSIONS"})
"""Headers of columns that are aligned to the right."""
LAST_COLUMN = 30
"""Characters that a last column which may be cut should have on a terminal."""
_SIZE = re.compile(r"([\d.,]+) (B|[KMGT]iB)")
_GAP = 2


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, without: Sequence[str] = (), is_cut: bool = False
) -> str:
    """The last column is not padded. without: columns to leave out on a narrow terminal, in this
    order. is_cut: the last column is cut where the terminal ends, which is shown; otherwise a text
    wraps that is too long even without these columns."""
    units = [_unit_width(row[column] for row in rows) for column in range(len(header))]
    shown = [list(header)]
    shown += [
        [_align_unit(cell, units[at]) if header[at] in NUMBERS else cell for at, cell in enumerate(row)] for row in rows
    ]
    widths = [max(width(row[column]) for row in shown) for column in range(len(header))]
    columns = list(range(len(header)))
    if (terminal := terminal_width()) is not None:
        room = terminal - sum(widths[:-1]) - _GAP * (len(widths) - 1)  # for the last column
        optional = [header.index(name) for name in without if name in header]
        wanted = _measure_wanted(shown, room + sum(widths[at] + _GAP for at in optional), is_cut=is_cut)
        while optional and room < wanted:
            columns.remove(left_out := optional.pop(0))
            room += widths[left_out] + _GAP
        if is_cut:
            shown = [[*row[:-1], cut(row[-1], room)] for row in shown]
    lines = []
    for row in shown:
        cells = [_pad(row[at], widths[at], is_number=header[at] in NUMBERS) for at in columns[:-1]]
        line = (" " * _GAP).join([*cells, row[-1]])
        lines.append(line if row[-1] else line.rstrip())  # a name may end with a space
    return "\n".join(lines)


def cut(text: str, columns: int, *, at_start: bool = False) -> str:
    """Text of at most so many columns of a terminal; "…" stands for what is cut at its end, or at
    its start."""
    if width(text) <= columns:
        return text
    from rich.cells import set_cell_size  # slow to load

    kept = max(columns - 1, 0)
    if at_start:
        return "…" + set_cell_size(text[::-1], kept)[::-1].lstrip()
    return set_cell_size(text, kept).rstrip() + "…"


def width(text: str) -> int:
    """The columns of a terminal that a text takes: characters of East Asia take two."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # slow to load

    return cell_len(text)


def terminal_width() -> int | None:
    """None: no terminal reads what this command prints."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _measure_wanted(rows: Sequence[Sequence[str]], most: int, *, is_cut: bool) -> int:
    """The room that the last column should have. most: what it can have; a text that is longer
    wraps in any case, and so is no reason to leave out columns."""
    lasts = [width(row[-1]) for row in rows]
    return min(max(lasts), LAST_COLUMN) if is_cut else max((each for each in lasts if each <= most), default=0)


def _pad(text: str, columns: int, *, is_number: bool) -> str:
    spaces = " " * (columns - width(text))
    return spaces + text if is_number else text + spaces


def _unit_width(cells: Iterable[str]) -> int:
    return max((len(size[2]) for cell in cells if (size := _SIZE.fullmatch(cell))), default=0)


def _align_unit(cell: str, width: int) -> str:
    """A size whose unit takes as much room as every other one of its column."""
    size = _SIZE.fullmatch(cell)
    return cell if size is None else f"{size[1]} {size[2]:<{width}}"
