"""One volume: its versions on the left, the tree of the chosen one, and the entry under the cursor
on the right. Directories are read when they are opened."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Header, Static, Tree
from textual.widgets.tree import TreeNode

from cowfs.blocking import Change, Entry, IndexFile, ROVolume, Store, StoredReport, VersionLog
from cowfs.rendering import count, format_size, format_time, printable
from cowfs.tui.dialogs import Ask, Choose, Help
from cowfs.tui.previews import preview

if TYPE_CHECKING:
    from cowfs.tui.app import Explorer

HISTORY_LIMIT = 200
"""So many versions are read at first; each costs a request."""
ENTRIES_SHOWN = 5000
"""More entries of one directory are left out of the tree; the find dialog reaches them."""
FOUND_LIMIT = 500
HELP = """\
enter      open or close a directory
[  ]       the older, the newer version, at the same path
m          mark this version; d then compares with it
d          what differs from the marked version, or from the version before
/          find by name in the whole version (*.png)
h          the versions that changed this path
v          view the beginning of the file
s          download the file or directory
y          copy the locator of this path
b          stored and unique bytes of this version (reads all indexes)
escape     back
q          leave"""


class VersionScreen(Screen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        ("left_square_bracket", "older", "Older"),
        ("right_square_bracket", "newer", "Newer"),
        ("m", "mark", "Mark"),
        ("d", "compare", "Diff"),
        ("slash", "find", "Find"),
        ("h", "path_history", "History"),
        ("v", "view", "View"),
        ("s", "save", "Download"),
        ("y", "copy_locator", "Copy locator"),
        ("b", "stored_bytes", "Bytes"),
        ("question_mark", "help", "Help"),
        ("escape", "back", "Back"),
        ("q", "app.quit", "Leave"),
    ]

    def __init__(self, store: Store | None, version: ROVolume | IndexFile, path: str = "/") -> None:
        super().__init__()
        self.version = version
        self._store = store
        self._path = path
        self._versions: list[ROVolume | IndexFile] = []
        self._tags: dict[str, list[str]] = {}
        """By version id."""
        self._marked: ROVolume | None = None

    @property
    def explorer(self) -> Explorer:
        return cast("Explorer", self.app)

    def compose(self) -> ComposeResult:
        yield Header()
        with Horizontal():
            yield DataTable[str](id="versions", cursor_type="row", show_header=False)
            yield Tree[Entry | None]("/", id="entries")
            yield Static(id="card")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one(DataTable).add_columns("version", "time", "message")
        self._open(self.version)
        newest, store = self.version, self._store
        if isinstance(newest, IndexFile) or store is None:
            self._show_history([newest])
        else:
            source = f"{newest.name}@{newest.id}"
            self.explorer.request(lambda: store.log(source, limit=HISTORY_LIMIT), self._show_log)

    # -- versions

    def _show_log(self, found: VersionLog) -> None:
        self._tags = {version: each.tag_names for version, each in found.names.items()}
        self._show_history(found.versions)
        self._show_card(self._current())

    def _show_history(self, found: Sequence[ROVolume | IndexFile]) -> None:
        self._versions = list(found)
        table = self.query_one(DataTable)
        table.clear()
        for each in found:
            time, message = ("", "not here") if each.is_pruned else (format_time(each.created_ns), each.message)
            said = Text(printable(message.partition("\n")[0]))
            if tags := self._tags.get(each.id):
                said = Text(printable(", ".join(tags)), "bold") + Text("  ") + said
            table.add_row(each.id[:12], time, said, key=each.id)
        self._show_place()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        self._go(next(each for each in self._versions if each.id == event.row_key.value))

    def action_back(self) -> None:
        if self._store is None:  # of an index file: no list of volumes lies below
            self.app.exit()
        else:
            self.app.pop_screen()

    def action_older(self) -> None:
        self._step(+1)

    def action_newer(self) -> None:
        self._step(-1)

    def _step(self, by: int) -> None:
        ids = [each.id for each in self._versions]
        at = ids.index(self.version.id) + by if self.version.id in ids else -1
        if 0 <= at < len(ids):
            self._go(self._versions[at])
        else:
            self.notify("There is no further version." if ids else "The versions are still being read.")

    def _go(self, version: ROVolume | IndexFile) -> None:
        if version.is_pruned:
            self.notify("This version is not in the store.", severity="warning")
            return
        self._path = self._current_path()
        self._open(version)
        self._show_card(None)

    def _open(self, version: ROVolume | IndexFile) -> None:
        self.version = version
        tree = self.query_one("#entries", Tree)
        tree.clear()
        tree.root.data = None
        self._show_place()
        tree.root.expand()
        tree.focus()

    def _show_place(self) -> None:
        self.sub_title = f"{printable(self.version.name)}@{self.version.id[:12]}"
        ids = [each.id for each in self._versions]
        if self.version.id in ids:
            self.query_one(DataTable).move_cursor(row=ids.index(self.version.id))

    def action_mark(self) -> None:
        self._marked = self._require_store() or self._marked
        self.notify(f"{self.version.id[:12]} is marked.")

    def action_compare(self) -> None:
        new = self._require_store()
        if new is None:
            return
        ids = [each.id for each in self._versions]
        at = ids.index(new.id) + 1 if new.id in ids else len(ids)
        older = (each for each in self._versions[at:] if isinstance(each, ROVolume) and not each.is_pruned)
        old = self._marked or next(older, None)
        if old is None or old.id == new.id:
            self.notify("There is no other version to compare with: mark one with m.")
            return
        title = f"{old.id[:12]} → {new.id[:12]}"
        self.explorer.request(lambda: list(old.diff(new)), lambda found: self._show_changes(title, found))

    def _show_changes(self, title: str, found: list[Change]) -> None:
        lines = [(each.path, f"{each.kind:8} {printable(_name_paths(each))}") for each in found]
        if not lines:
            self.notify(f"{title}: no difference.")
            return
        self.app.push_screen(Choose(f"{title}: {count(len(found), 'path')}", lines), self._reveal_if)

    def action_path_history(self) -> None:
        path, version = self._current_path(), self._require_store()
        if version is not None:
            self.explorer.request(
                lambda: version.history(path, limit=HISTORY_LIMIT), lambda found: self._show_path_history(path, found)
            )

    def _show_path_history(self, path: str, found: list[ROVolume]) -> None:
        lines = [
            (
                each.id,
                f"{each.id[:12]}  {format_time(each.created_ns)}  {printable(each.message.partition(chr(10))[0])}",
            )
            for each in found
        ]

        def go(chosen: str | None) -> None:
            if chosen is not None:
                self._go(next(each for each in found if each.id == chosen))

        self.app.push_screen(Choose(f"versions that changed {printable(path)}", lines), go)

    # -- the tree

    def on_tree_node_expanded(self, event: Tree.NodeExpanded[Entry | None]) -> None:
        node = event.node
        if not node.children:
            version, path = self.version, node.data.path if node.data is not None else "/"
            self.explorer.request(
                lambda: list(version.files.ls(path)), lambda found: self._show_entries(version, node, found)
            )

    def _show_entries(self, version: ROVolume | IndexFile, node: TreeNode[Entry | None], found: list[Entry]) -> None:
        if version is not self.version or node.children:
            return  # another version is shown by now
        for each in found[:ENTRIES_SHOWN]:
            node.add(_label(each), data=each, allow_expand=each.type == "directory")
        if len(found) > ENTRIES_SHOWN:
            node.add_leaf(Text(f"… {len(found) - ENTRIES_SHOWN} more", "dim"))
        self._go_on_to_path(node)

    def _go_on_to_path(self, node: TreeNode[Entry | None]) -> None:
        """Opens the directories on the way to the wanted path, and moves the cursor there."""
        for child in node.children:
            if child.data is None:
                continue
            if child.data.path == self._path:
                tree = self.query_one("#entries", Tree)
                self.call_after_refresh(tree.move_cursor, child)
                self._path = "/"
                return
            if child.data.type == "directory" and self._path.startswith(child.data.path + "/"):
                child.expand()
                return

    def _reveal_if(self, path: str | None) -> None:
        if path is not None:
            self._path = path
            self._open(self.version)

    def on_tree_node_highlighted(self, event: Tree.NodeHighlighted[Entry | None]) -> None:
        self._show_card(event.node.data)

    def _current(self) -> Entry | None:
        node = self.query_one("#entries", Tree).cursor_node
        return node.data if node is not None and isinstance(node.data, Entry) else None

    def _current_path(self) -> str:
        entry = self._current()
        return entry.path if entry is not None else "/"

    def _show_card(self, entry: Entry | None) -> None:
        version = self.version
        rows = [
            ("version", version.id[:12]),
            *([("tags", ", ".join(tags))] if (tags := self._tags.get(version.id)) else []),
            ("made", format_time(version.created_ns)),
            ("by", version.author),
            ("message", version.message),
            *((f"label {name}", text) for name, text in version.labels.items()),
            ("files", f"{version.stats.files}, {format_size(version.stats.bytes)}"),
        ]
        if entry is not None:
            rows += [
                ("", ""),
                ("path", entry.path),
                ("type", entry.type),
                ("size", f"{entry.size} bytes"),
                ("mode", f"{stat.filemode(entry.mode)} ({stat.S_IMODE(entry.mode):04o})"),
                ("changed", format_time(entry.mtime_ns)),
                *([("target", entry.target)] if entry.target is not None else []),
            ]
        text = "\n".join(f"{name:<9}{printable(value)}" if name else "" for name, value in rows)
        self.query_one("#card", Static).update(Text(text))

    # -- requests

    def _require_store(self) -> ROVolume | None:
        """The version, if its store is there; else says that it is not."""
        if isinstance(self.version, ROVolume):
            return self.version
        self.notify("An index file has names, sizes and times only.", severity="warning")
        return None

    def action_find(self) -> None:
        self.app.push_screen(Ask("name, or a pattern like *.png"), self._find)

    def _find(self, name: str | None) -> None:
        if name is None:
            return
        files = self.version.files

        def find() -> list[Entry]:
            found = (each for each in files.ls("/", recursive=True) if fnmatchcase(each.name, name))
            return list(islice(found, FOUND_LIMIT + 1))

        self.explorer.request(find, lambda found: self._show_found(name, found))

    def _show_found(self, name: str, found: list[Entry]) -> None:
        if not found:
            self.notify(f"Nothing is named {printable(name)}.", markup=False)
            return
        more = "more than " if len(found) > FOUND_LIMIT else ""
        shown = found[:FOUND_LIMIT]
        lines = [(each.path, printable(each.path)) for each in shown]
        self.app.push_screen(Choose(f"{more}{count(len(shown), 'entry')}", lines), self._reveal_if)

    def action_view(self) -> None:
        version, entry = self._require_store(), self._current()
        if version is not None and entry is not None and entry.type != "directory":
            self.explorer.request(
                lambda: preview(version, entry), lambda shown: self.app.push_screen(Help(shown, printable(entry.path)))
            )

    def action_save(self) -> None:
        path, version = self._current_path(), self._require_store()
        if version is None:
            return

        def save(to: str | None) -> None:
            if to is not None:
                self.explorer.request(
                    lambda: version.files.download(path, to),
                    lambda report: self.notify(f"Downloaded to {printable(to)}.", markup=False),
                )

        self.app.push_screen(Ask("download to", f"./{path.rpartition('/')[2] or version.name}"), save)

    def action_copy_locator(self) -> None:
        path = self._current_path()
        locator = self.version.locator + (path if path != "/" else "")
        self.app.copy_to_clipboard(locator)
        self.notify(printable(locator), title="Copied", markup=False)

    def action_stored_bytes(self) -> None:
        version, store = self._require_store(), self._store
        if version is not None and store is not None:
            self.notify("Reading the indexes of all versions …")
            self.explorer.request(lambda: store.stored_bytes(version.locator), self._show_stored)

    def _show_stored(self, report: StoredReport) -> None:
        for each in report.groups:
            said = f"{format_size(each.stored_bytes)} stored, {format_size(each.unique_bytes)} unique"
            self.notify(said, title=self.version.id[:12])

    def action_help(self) -> None:
        self.app.push_screen(Help(HELP))


def _label(entry: Entry) -> Text:
    mark = "/" if entry.type == "directory" else f" → {entry.target}" if entry.target is not None else ""
    label = Text(printable(entry.name + mark))
    if entry.type == "file":
        label.append(f"  {format_size(entry.size)}", "dim")
    return label


def _name_paths(change: Change) -> str:
    return f"{change.old_path} → {change.path}" if change.kind == "renamed" else change.path
