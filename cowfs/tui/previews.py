"""The beginning of a file as text for the terminal. Reads at most PREVIEW_BYTES, an image of at
most IMAGE_BYTES, or of Parquet the description and the first pages of each column. Control
characters are escaped."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.text import Text

from cowfs.rendering import format_size, printable

if TYPE_CHECKING:
    from cowfs.blocking import Entry, ROVolume

PREVIEW_BYTES = 64 << 10
IMAGE_BYTES = 16 << 20
READ_BYTES = 1 << 20
"""Parquet is read in such pieces: otherwise whole columns of a row group."""
IMAGE_PIXELS = 64_000_000
"""Larger images are not decoded: a small file may claim a size that fills the memory."""
IMAGE_COLUMNS = 96
ROWS = 20
IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp")
HALF_BLOCK = "▀"


def preview(version: ROVolume, entry: Entry) -> Text:
    """The text to show for a file."""
    name = entry.name.lower()
    if entry.type != "file":
        return Text(printable(entry.target or entry.type))
    if name.endswith(IMAGES) and entry.size <= IMAGE_BYTES:
        return _image(version.files.read(entry))
    if name.endswith(".parquet"):
        return _parquet(version, entry)
    return _text(version.files.read(entry, 0, PREVIEW_BYTES), entry.size)


def _text(data: bytes, size: int) -> Text:
    if b"\0" in data:
        return Text(f"{format_size(size)} that are not text")
    lines = data.decode("utf-8", "replace").splitlines()
    shown = Text("\n".join(printable(line.expandtabs()) for line in lines))
    if size > len(data):
        shown.append(f"\n… the first {format_size(len(data))} of {format_size(size)}", "dim")
    return shown


def _image(data: bytes) -> Text:
    try:
        from PIL import Image
    except ImportError:
        return Text("Pictures need Pillow: pip install 'cowfs-volumes[tui]'")
    try:
        with Image.open(io.BytesIO(data)) as opened:
            if opened.width * opened.height > IMAGE_PIXELS:
                return Text(f"{opened.width} by {opened.height} pixels are too many to show")
            title = f"{opened.format}, {opened.width} by {opened.height}\n"
            columns = min(opened.width, IMAGE_COLUMNS)
            rows = max(2, round(opened.height * columns / opened.width))
            pixels = opened.convert("RGB").resize((columns, rows + rows % 2))
    except Exception as error:  # noqa: BLE001 - a decoder fails in many ways at files that are damaged
        return Text(f"not a picture that can be shown: {printable(str(error))}")
    shown = Text(title)
    for row in range(0, pixels.height, 2):
        for column in range(pixels.width):
            upper, lower = (_rgb(pixels.getpixel((column, at))) for at in (row, row + 1))
            shown.append(HALF_BLOCK, f"{upper} on {lower}")
        shown.append("\n")
    return shown


def _rgb(pixel: object) -> str:
    assert isinstance(pixel, tuple)
    return "#{:02x}{:02x}{:02x}".format(*pixel)


def _parquet(version: ROVolume, entry: Entry) -> Text:
    try:
        import pyarrow.parquet
    except ImportError:
        return Text("Parquet needs pyarrow: pip install pyarrow")
    try:
        with version.files.open(entry) as file:
            table = pyarrow.parquet.ParquetFile(file, pre_buffer=False, buffer_size=READ_BYTES)
            head = next(table.iter_batches(batch_size=ROWS), None)
            rows = head.to_pylist() if head is not None else []
            names = table.schema_arrow.names
            said = f"{table.metadata.num_rows:,} rows, {len(names)} columns\n"
    except pyarrow.ArrowException as error:
        return Text(f"not Parquet: {printable(str(error))}")
    lines = [" | ".join(names), *(" | ".join(_cell(row[name]) for name in names) for row in rows)]
    return Text(said + "\n".join(printable(line) for line in lines))


def _cell(value: object) -> str:
    return str(value)[:40]
