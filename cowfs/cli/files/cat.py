"""cowfs cat SOURCE:PATH: prints files, without a mount. With --json the contents are base64 in the
single document, which is held in memory."""

from __future__ import annotations

import sys
from base64 import b64encode
from contextlib import closing
from typing import TYPE_CHECKING, cast

import click

from cowfs.cli import completing, output

if TYPE_CHECKING:
    from collections.abc import Generator


@click.command("cat")
@click.argument("places", nargs=-1, required=True, metavar="SOURCE:PATH...", shell_complete=completing.places)
@output.common_options
def command(places: tuple[str, ...], store: str | None, as_json: bool) -> None:
    """Print files of a volume's last version (NAME:PATH), of another one (NAME@TAG:PATH,
    NAME@VERSION:PATH) or of a LOCATOR/PATH. No mount is needed."""
    from cowfs.blocking import Store

    opened = Store(store)
    if as_json:
        found = [(place, b"".join(opened.read(place))) for place in places]
        contents = [{"source": place, "base64": b64encode(data).decode()} for place, data in found]
        output.emit(as_json, {"contents": contents}, "")
        return
    for place in places:
        with closing(cast("Generator[bytes]", opened.read(place))) as pieces:
            for piece in pieces:
                with output.to_stdout():
                    sys.stdout.buffer.write(piece)
    with output.to_stdout():
        sys.stdout.buffer.flush()
