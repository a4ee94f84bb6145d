"""cowfs down [FILE]: unmounts what `up` or `apply` of that file has mounted, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cowfs.cli import output
from cowfs.cli.start import tidy_up_when_terminated

if TYPE_CHECKING:
    from cowfs.api.declared.mounting import Outcome


@click.command("down")
@click.argument("file", required=False, type=click.Path())
@click.option("--force", "is_forced", is_flag=True, help="Also while in use; programs that use it get errors.")
@output.json_option
def command(file: str | None, is_forced: bool, as_json: bool) -> None:
    """Unmount what `cowfs up` or `cowfs apply` has mounted of FILE. Uncommitted work is kept.

    FILE itself need not be there any more. Mounts made in other ways are left alone.
    """
    from cowfs.api import targets
    from cowfs.api.declared import loading, mounting

    place = loading.find(file)

    def hears(outcome: Outcome) -> None:
        output.say(as_json, output.outcome_line(outcome))

    tidy_up_when_terminated()
    with targets.out_of_mounts():
        outcomes = mounting.down(place, force=is_forced, hears=hears)
    if not outcomes:
        output.say(as_json, f"Nothing that {place} declares was mounted by it.")
    mounts = [output.outcome(each) for each in outcomes]
    failed = [each.error for each in outcomes if each.error is not None]
    if failed:
        failed[0].details = {**failed[0].details, "mounts": mounts}
        raise failed[0]
    output.emit(as_json, {"file": str(place), "mounts": mounts}, "")
