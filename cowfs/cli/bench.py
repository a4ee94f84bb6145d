"""cowfs bench DIR: measures cowfs beside the local disk and whatever else it finds to compare with.

Prints the tables; --output also keeps them, with every sample and plots. Fails when a result was wrong, never for a speed.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import click

from cowfs.cli import output
from cowfs.errors import CowfsError


@click.command("bench")
@click.argument("directory", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--quick", is_flag=True, help="A few megabytes, to see that everything works.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="How often, for the median.")
@click.option("--minutes", type=float, metavar="N", help="Leave out what of later rounds would take longer.")
@click.option("--only", "systems", multiple=True, metavar="SYSTEM", help="Only this system; may be given again.")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Only this group of workloads; the same.")
@click.option("--juicefs", type=click.Path(), help="The juicefs program. [on PATH]")
@click.option("--passthrough-hp", type=click.Path(), help="libfuse's passthrough_hp. [on PATH]")
@click.option("--do-nothing", type=click.Path(), help="The repository's do_nothing server. [on PATH]")
@click.option("--note", default="", help="A remark for the report.")
@click.option("--output", "place", type=click.Path(path_type=Path), help="Write results, tables and plots there.")
@output.common_options
def command(directory: Path, place: Path | None, store: str | None, as_json: bool, **choice: Any) -> None:
    """Measure cowfs in DIR, on a local disk with a few gigabytes to spare. Takes minutes."""
    from benchmarks import runner
    from cowfs.bench import report

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing stays mounted
    results = runner.run(directory, store=store, say=lambda text: output.say(as_json, text), **choice)
    if place is not None:
        report.write(results, place, command="cowfs bench")
    output.emit(as_json, results.to_json(), f"{report.about(results, 'cowfs bench')}\n\n{report.tables(results)}")
    if results.failures:
        first = results.failures[0]
        raise CowfsError(
            f"{len(results.failures)} failed; the first: {first['system']}, {first['group']}: {first['message']}",
            hint="Nothing of this is a matter of speed: a system did not do the work, or gave a wrong result.",
        )
