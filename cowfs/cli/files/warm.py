"""cowfs warm SOURCE[:PATH]: fetches a version's contents into this machine's cache."""

from __future__ import annotations

import dataclasses

import click

from cowfs.cli import completing, output
from cowfs.cli.start import tidy_up_when_terminated
from cowfs.rendering import format_size


@click.command("warm")
@click.argument("source", metavar="SOURCE[:PATH]", shell_complete=completing.volumes)
@click.option("--cache-dir", type=click.Path(), help="The cache; mounts find it there if they are given the same.")
@click.option("--cache-size", metavar="SIZE", help="Most the cache directory may hold, like 20GiB.")
@click.option(
    "--replay", type=click.Path(), metavar="FILE", help="Fetch what this profile has (cowfs mount --record), no more."
)
@output.progress_option
@output.common_options
def command(
    source: str,
    cache_dir: str | None,
    cache_size: str | None,
    replay: str | None,
    progress_style: str,
    store: str | None,
    as_json: bool,
) -> None:
    """Fetch the contents of a version, or of PATH in it, into this machine's cache, where every
    mount of it finds them. SOURCE is NAME (its last version), NAME@TAG, NAME@VERSION or a locator.
    Prints the version's locator.

    Cached contents are not fetched again: to continue an interrupted command, repeat it. It may run
    beside mounts. If the cache is too small for all of it, the rest is left out.
    """
    from cowfs.blocking import Store

    tidy_up_when_terminated()
    with output.progress(progress_style) as progress:
        done = Store(store).warm(
            source,
            cache_dir=cache_dir,
            cache_size=cache_size,
            replay=replay,
            progress=progress,
        )
    said = f"Fetched {format_size(done.fetched_bytes)}; {format_size(done.found_bytes)} were there"
    if not done.is_complete:
        said += (
            ". The cache has no room for the rest: free space, give --cache-size, or warm a part of it (SOURCE:PATH)"
        )
    output.say(as_json, said)
    output.emit(as_json, dataclasses.asdict(done), done.locator)
