"""Advice on mounts and kept work that need a decision by the user: one `Advice` each, made from the
result of `overview.status`.

A command line, a web page and a notebook show the same text. Commands in it name the store unless
it is the default one. Names and paths are not changed: a caller that writes to a terminal removes
control characters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cowfs.api import hints
from cowfs.api.mounts import kept_work
from cowfs.api.mounts.summaries import DeadMount, MountSummary, WorkingCopySummary
from cowfs.base.hints import Command
from cowfs.base.short_repr import has_card

if TYPE_CHECKING:
    from cowfs.api.mounts.overview import Status

Problem = Literal["no_credentials", "lease_lost", "overtaken", "gone", "elsewhere", "left", "died"]


@has_card
@dataclass(frozen=True)
class Advice:
    """problem: "no_credentials": the store refuses access to the mount; "lease_lost": another
    writer has the volume; "overtaken": another writer has published a version; "gone", "elsewhere":
    the folder of a copy is not visible; "left": a process was gone and its work was
    kept; "died": the daemon has died. text: the problem and possible
    solutions, with commands."""

    problem: Problem
    volume: str
    store_url: str | None
    text: str

    def __str__(self) -> str:
        return f"{self.volume}: {self.text}"


def advise(found: Status) -> list[Advice]:
    """Mounts first, then folders that are not visible, then kept work, then dead mounts."""
    advice = [each for mount in found.mounts for each in _advise_on_mount(mount)]
    advice += [_advise_on_gone(each) for each in found.mounts if each.is_gone and not each.is_read_only]
    advice += [_advise_on_gone(each) for each in found.working_copies if each.is_gone]
    advice += dict.fromkeys(_advise_on_elsewhere(found))
    advice += [
        _advise_on_left(each) for each in found.working_copies if each.has_uncommitted and each.note and not each.pid
    ]
    return advice + [_advise_on_dead(each) for each in found.dead_mounts]


def _advise_on_mount(mount: MountSummary) -> Iterator[Advice]:
    if mount.details is None:
        return
    if (problem := mount.details.credentials_problem) is not None:
        kept = "" if mount.is_read_only else "What is written is kept here meanwhile. "
        again = "Unmount it, and mount it again" if mount.is_read_only else "Mount the volume again"
        text = f"the store is not reached: {problem}. {kept}{again} from a program that has valid credentials"
        yield Advice("no_credentials", mount.volume, mount.store_url, text)
    writer = mount.details.writer
    if writer is not None and writer.lease_lost is not None:
        text = f"{writer.lease_lost}. {_save_or_drop(mount)}"
        yield Advice("lease_lost", mount.volume, mount.store_url, text)
    elif writer is not None and writer.overtaken_by is not None:
        why = kept_work.explain_overtaken(mount.details.version, writer.overtaken_by)
        text = f"{why}; the work here cannot be committed to it any more. {_save_or_drop(mount)}"
        yield Advice("overtaken", mount.volume, mount.store_url, text)


def _save_or_drop(mount: MountSummary) -> str:
    save, drop = Command("fork", mount.volume, "NAME"), Command("unmount", mount.volume, "--discard")
    first = "Save"
    if mount.kind == "scratch":
        path = mount.mount_path
        save, drop = Command("commit", path, "--name", "NAME"), Command("unmount", path)
    elif mount.is_detached:
        end = f"{Command('unmount', mount.volume, '--force')} has ended it (programs get errors then)"
        first = f"Once nobody uses the mount any more, or {end}: save"
    return hints.about(mount.store_url, f"{first} it under another name ({save}), or drop it ({drop})")


def _advise_on_gone(each: MountSummary | WorkingCopySummary) -> Advice:
    text = (
        "the folder of the copy is gone, and with it what was in no version. If it was moved, move it back; else mount the "
        f"volume again ({Command('mount', each.volume, 'PATH')}), or only clean up ({Command('unmount', each.volume, '--discard')})"
    )
    return Advice("gone", each.volume, each.store_url, hints.about(each.store_url, text))


def _advise_on_elsewhere(found: Status) -> Iterator[Advice]:
    here = {each.mount_path for each in found.mounts if not each.is_elsewhere}  # mounts that such a path means instead
    for each in found.mounts:
        if each.is_elsewhere and each.is_read_only and each.mount_path not in here:
            yield _advise_to_forget(each, Command("unmount", each.mount_path, "--force"))
        elif each.is_elsewhere and not each.is_read_only:
            yield _advise_to_forget(each, Command("unmount", each.volume, "--discard", "--force"))
    for kept in found.working_copies:
        if kept.is_elsewhere:
            yield _advise_to_forget(kept, Command("unmount", kept.volume, "--discard", "--force"))


def _advise_to_forget(each: MountSummary | WorkingCopySummary, command: Command) -> Advice:
    text = (
        "a copy was made in another container, and its folder is not to be seen here. If that container is gone, "
        f"{command} forgets the copy, with what is in no version"
    )
    return Advice("elsewhere", each.volume, each.store_url, hints.about(each.store_url, text))


def _advise_on_left(each: WorkingCopySummary) -> Advice:
    go_on, drop = Command("mount", each.volume, "PATH"), Command("unmount", each.volume, "--discard")
    commit = Command("commit", each.volume)
    text = f"{each.note}. Go on with it ({go_on}), publish it ({commit}), or drop it ({drop})"
    return Advice("left", each.volume, each.store_url, hints.about(each.store_url, text))


def _advise_on_dead(dead: DeadMount) -> Advice:
    path, clean_up = dead.mount_path, f"clean up ({Command('unmount', dead.mount_path)})"
    if dead.kind == "scratch":
        text = f"the daemon of the scratch mount {path} has died; what was not committed there is gone. There is only to {clean_up}"
    else:
        kept = "" if dead.is_read_only else "; what was written is kept"
        known = (
            f"{Command('mount', dead.volume, 'PATH')}" if dead.store_url is not None else "its store is not known here"
        )
        text = f"the daemon of {path} has died{kept}. Mount it again ({known}), or only {clean_up}"
    return Advice("died", dead.volume, dead.store_url, hints.about(dead.store_url, text))
