"""The application. Errors of cowfs are shown as notices with their hints."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from textual.app import App

from cowfs.blocking import IndexFile, ROVolume, Store
from cowfs.errors import CowfsError
from cowfs.rendering import printable
from cowfs.tui.version import VersionScreen
from cowfs.tui.volumes import VolumesScreen

T = TypeVar("T")


class Explorer(App[None]):
    """store: of the volumes to list; None: there is only `version`. version: shown first; None: the
    list of volumes. path: the path to open in it."""

    TITLE = "cowfs"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #versions { width: 58; scrollbar-size-horizontal: 0; border-right: solid $primary; }
    #entries { width: 1fr; }
    #card { width: 42; padding: 0 1; border-left: solid $primary; overflow-y: auto; }
    .dialog { align: center middle; }
    .dialog > * { width: 80%; max-height: 80%; border: solid $primary; background: $surface; padding: 0 1; }
    """

    def __init__(self, store: Store | None, version: ROVolume | IndexFile | None = None, path: str = "/") -> None:
        super().__init__()
        self.store = store
        self._version = version
        self._path = path

    def on_mount(self) -> None:
        if self.store is not None:
            self.push_screen(VolumesScreen(self.store))
        if self._version is not None:
            self.push_screen(VersionScreen(self.store, self._version, self._path))

    def request(self, read: Callable[[], T], show: Callable[[T], object]) -> None:
        """Calls `read` in a thread, and `show` with its result in the application. Must be called
        in the application."""

        def run() -> None:
            try:
                result = read()
            except (CowfsError, OSError) as error:
                self.call_from_thread(self.tell_error, error)
                return
            self.call_from_thread(show, result)

        self.run_worker(run, thread=True, exit_on_error=False)

    def tell_error(self, error: CowfsError | OSError) -> None:
        hint = error.hint if isinstance(error, CowfsError) and error.hint else ""
        message = error.message if isinstance(error, CowfsError) else str(error)
        self.notify(printable(hint), title=printable(message), severity="error", markup=False)
