"""cowfs bench DIR: measures a directory beside the local disk, and prints a table.

It fails if a result is wrong, never because something is slow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cowfs.cli import output
from cowfs.cli.start import tidy_up_when_terminated
from cowfs.errors import CowfsError


@click.command("bench")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--local", type=click.Path(exists=True, file_okay=False), help="Where the local disk is. [TMPDIR]")
@click.option("--quick", is_flag=True, help="A few megabytes, to see that everything works.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="How often, for the median.")
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="GROUP",
    help="Only these workloads: files, files4 (the same, 4 at once), large or sqlite; may be given again.",
)
@output.json_option
def command(directory: Path, as_json: bool, **choice: Any) -> None:
    """Measure DIR, a mounted volume or any other directory, beside the local disk. Takes minutes
    and a gigabyte."""
    from cowfs import bench

    tidy_up_when_terminated()
    results = bench.run(directory, say=lambda text: output.say(as_json, text), **choice)
    output.emit(as_json, results.to_json(), bench.text(results))
    if results.failures:
        first = results.failures[0]
        raise CowfsError(
            f"{len(results.failures)} failed; the first: {first['system']}, {first['group']}: {first['message']}",
            hint="This is not about speed: a file system did not do the work, or gave a wrong result.",
        )
