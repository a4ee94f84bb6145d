"""The cards of volumes, versions and what relates them, for notebooks. `cowfs.base.cards` makes the
HTML, and the cards of all other values.

Cards show what an object knows already. Nothing is requested, read from a disk or asked of a mount.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from cowfs.base.byte_sizes import format_size
from cowfs.base.cards import MOST_ROWS, Card, Figure, Lines, Table, render, say
from cowfs.base.quantities import format_time

if TYPE_CHECKING:
    from cowfs.api.access.volume_handle import Known
    from cowfs.format.manifest import Stats
    from cowfs.version.named_changes import Change


class Version(Protocol):
    """As `ROVolume`, blocking or async, or `IndexFile`."""

    @property
    def is_resolved(self) -> bool: ...
    @property
    def is_pruned(self) -> bool: ...
    @property
    def locator(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def author(self) -> str: ...
    @property
    def created_ns(self) -> int: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def parents(self) -> list[str]: ...
    @property
    def stats(self) -> Stats: ...


def show_version(version: Version, folder: str = "") -> str:
    title = f"{version.name}@{version.id[:12]}{f':{folder}' if folder else ''}"
    if version.is_pruned:
        return render(Card(title, note="It is not in the store: it was deleted, or was never copied to it."))
    stats = version.stats
    facts = {
        "message": Lines(version.message),
        "author": version.author,
        "created": format_time(version.created_ns, to_the_second=True),
        "labels": say(version.labels),
        "size": f"{format_size(stats.bytes)} in {stats.files:,} files, {stats.directories:,} directories",
        "parents": ", ".join(each[:12] for each in version.parents),
        "locator": version.locator,
    }
    return render(Card(title, {name: text for name, text in facts.items() if text}))


def show_versions(versions: Sequence[Version], title: str, tags: Mapping[str, Sequence[str]] | None = None) -> str:
    """tags: of the versions, by id."""
    rows = [_describe_version(each, (tags or {}).get(each.id, ())) for each in versions[:MOST_ROWS]]
    columns = ("version", "created", "message", "author", "labels", "files", "size", "tags")
    used = [number for number in range(len(columns)) if any(row[number] for row in rows)]
    cells = [[row[number] for number in used] for row in rows]
    return render(Card(title, tables=[Table([columns[number] for number in used], cells, len(versions))]))


def _describe_version(version: Version, tags: Sequence[str]) -> list[str]:
    if version.is_pruned:
        return [version.id[:12], "", "not here", "", "", "", "", ", ".join(tags)]
    if not version.is_resolved:
        return [repr(version), "", "", "", "", "", "", ""]
    return [
        version.id[:12],
        format_time(version.created_ns, to_the_second=True),
        version.message.partition("\n")[0],
        version.author,
        say(version.labels),
        Figure(f"{version.stats.files:,}"),
        Figure(format_size(version.stats.bytes)),
        ", ".join(tags),
    ]


def show_changes(changes: Collection[Change], title: str = "") -> str:
    counts = Counter(each.kind for each in changes)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
    rows = [
        (
            each.kind,
            each.path if each.old_path in (None, each.path) else f"{each.old_path} → {each.path}",
            each.type,
            ", ".join(each.what),
            Figure(format_size(each.old_size)) if each.old_size is not None else "",
            Figure(format_size(each.size)) if each.size is not None else "",
        )
        for each, _ in zip(changes, range(MOST_ROWS), strict=False)
    ]
    table = Table(("", "path", "type", "what", "old size", "size"), rows, len(changes))
    note = f"{len(changes):,} changes{f': {kinds}' if kinds else ''}"
    return render(Card(title or note, tables=[table] if rows else [], note=note if title else ""))


def show_volume(
    name: str, store_url: str | None, locator: str | None, mount_path: str | None, known: Known | None, state: str
) -> str:
    """known: what the volume's last `status` said. state: why it has no more to show."""
    facts = {
        "store": store_url or "",
        "last version": locator or "",
        "mounted at": mount_path or "",
        "uncommitted": _describe_work(known) if known is not None else "",
        "state": state,
    }
    return render(Card(f"volume {name}", {name: text for name, text in facts.items() if text}))


def _describe_work(known: Known) -> str:
    return f"{known.work} ({format_time(known.time_ns, to_the_second=True)})"
