"""cowfs doctor: checks what cowfs needs on this machine, each with ok, warn or fail and what to do.

    fail    cowfs cannot work as asked: the command exits with the code of the first one's kind
    warn    it works, but slower or for fewer users

Leaves nothing behind: what it writes to try a place out it deletes again. It initialises no store.
"""

from __future__ import annotations

import click

from cowfs.cli import output
from cowfs.cli.checks import FAIL, OK, Check

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}


@click.command("doctor")
@output.common_options
def command(store: str | None, as_json: bool) -> int:
    """Check what mounting needs, and say what to do."""
    from cowfs.cli import machine_checks, store_checks

    found: list[Check] = []
    for check in [*machine_checks.ALL, *store_checks.all_of(store)]:
        found.append(check())
        if not as_json:
            _show(found[-1])
    failed = [check for check in found if check.state == FAIL]
    if as_json:
        record = {"checks": [check.to_record() for check in found], "ok": not failed}
        output.emit(as_json, record, "")
    return failed[0].exit_code if failed else 0


def _show(check: Check) -> None:
    click.echo(f"{click.style(check.state.ljust(4), fg=_COLOURS[check.state])}  {check.name}: {check.message}")
    if check.state != OK and check.hint:
        click.echo(f"      hint: {check.hint}")
