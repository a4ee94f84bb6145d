"""The volumes of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Header

from cowfs.blocking import Store, VolumeSummary
from cowfs.rendering import format_size, format_time, printable
from cowfs.tui.dialogs import Help

if TYPE_CHECKING:
    from cowfs.tui.app import Explorer

COLUMNS = ("VOLUME", "SIZE", "FILES", "CHANGED", "OWNER", "WRITER")
HELP = "enter  open the volume\nr      read the list again\nq      leave"


class VolumesScreen(Screen[None]):
    BINDINGS: ClassVar[list[BindingType]] = [
        ("r", "refresh_list", "Read again"),
        ("question_mark", "help", "Help"),
        ("q", "app.quit", "Leave"),
    ]

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store

    def compose(self) -> ComposeResult:
        yield Header()
        yield DataTable[str](id="volumes", cursor_type="row")
        yield Footer()

    def on_mount(self) -> None:
        self.sub_title = printable(self._store.url)
        self.query_one(DataTable).add_columns(*COLUMNS)
        self.action_refresh_list()

    def action_refresh_list(self) -> None:
        cast("Explorer", self.app).request(self._store.volumes, self._show)

    def action_help(self) -> None:
        self.app.push_screen(Help(HELP))

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        from cowfs.tui.version import VersionScreen

        name = str(event.row_key.value)
        explorer = cast("Explorer", self.app)
        explorer.request(
            lambda: self._store.version(name).resolve(),
            lambda version: self.app.push_screen(VersionScreen(self._store, version)),
        )

    def _show(self, found: list[VolumeSummary]) -> None:
        table = self.query_one(DataTable)
        table.clear()
        for each in found:
            state = (each.problem or "no version yet") if each.version is None else format_size(each.bytes)
            table.add_row(
                printable(each.name),
                Text(printable(state)),
                str(each.files),
                format_time(each.changed_ns) if each.changed_ns else "",
                Text(printable(each.owner)),
                Text(printable(each.writer or "")),
                key=each.name,
            )
        table.focus()
