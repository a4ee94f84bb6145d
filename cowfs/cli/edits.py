"""The results of `cowfs rm`, `mv` and `mkdir`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cowfs.cli import output

if TYPE_CHECKING:
    from cowfs.blocking import EditReport


def tell(done: EditReport, said: str, *, is_dry: bool, as_json: bool) -> int:
    """Returns the exit code. said: what has been done, for people. Prints the locator, or the mount
    that was changed; for a dry run the paths."""
    if is_dry:
        output.emit(as_json, done, "\n".join(map(output.name, done.paths)))
        return output.plan_code(bool(done.paths))
    if done.mount_path is None:
        output.say(as_json, said)
        output.emit(as_json, done, done.locator or "")
        return 0
    output.say(as_json, said + (output.in_mount(done.mount_path) if done.paths else ""))
    output.emit(as_json, done, done.mount_path)
    return 0
