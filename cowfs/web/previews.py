"""What a page shows of a file: the beginning of a text, an image, or that it is neither."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cowfs.blocking import Entry, ROVolume
from cowfs.rendering import printable
from cowfs.web.downloads import image_type

PREVIEW_BYTES = 64 << 10
IMAGE_BYTES = 32 << 20


@dataclass(frozen=True)
class Preview:
    """lines: of a text. is_cut: there is more of it."""

    kind: Literal["text", "image", "binary"]
    lines: list[str]
    is_cut: bool


def preview(version: ROVolume, entry: Entry) -> Preview:
    data = version.files.read(entry, 0, PREVIEW_BYTES)
    if image_type(data) is not None and entry.size <= IMAGE_BYTES:
        return Preview("image", [], is_cut=False)
    if b"\0" in data:
        return Preview("binary", [], is_cut=False)
    lines = [printable(line.expandtabs()) for line in data.decode("utf-8", "replace").split("\n")]
    return Preview("text", lines, is_cut=entry.size > len(data))
