"""cowfs doctor: checks what cowfs needs on this machine, each with ok, warn or fail and what to do.

Exits with the code of the first failure's kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cowfs.cli import output

if TYPE_CHECKING:
    from cowfs.blocking import Check

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command("doctor")
@output.common_options
def command(store: str | None, as_json: bool) -> int:
    """Check the requirements of mounts, and suggest repairs."""
    from cowfs.blocking import Store

    found: list[Check] = []
    for check in Store(store).doctor():
        found.append(check)
        if not as_json:
            _show(check)
    failed = [check for check in found if check.state == "fail"]
    if as_json:
        record = {"checks": [check.to_record() for check in found], "is_ok": not failed}
        output.emit(as_json, record, "")
    return failed[0].exit_code if failed else 0


def _show(check: Check) -> None:
    click.echo(f"{click.style(check.state.ljust(4), fg=_COLOURS[check.state])}  {check.name}: {check.message}")
    if check.state != "ok" and check.hint:
        click.echo(f"      hint: {check.hint}")
