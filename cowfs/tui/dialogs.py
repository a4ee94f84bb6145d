"""Small screens over another one. Escape closes each of them without a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option


class Help(ModalScreen[None]):
    """Shows a text: help, or the beginning of a file."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape,q,question_mark", "dismiss", "Close")]

    def __init__(self, shown: str | Text, title: str = "Keys") -> None:
        super().__init__(classes="dialog")
        self._shown = shown if isinstance(shown, Text) else Text(shown)
        self._title = title

    def compose(self) -> ComposeResult:
        with VerticalScroll() as scroll:
            scroll.border_title = Content(self._title)
            yield Static(self._shown, id="shown")


class Ask(ModalScreen[str | None]):
    """Asks for a line of text."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss", "Close")]

    def __init__(self, question: str, given: str = "") -> None:
        super().__init__(classes="dialog")
        self._question = question
        self._given = given

    def compose(self) -> ComposeResult:
        yield Input(self._given, placeholder=self._question)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value or None)


class Choose(ModalScreen[str | None]):
    """A list of (key, line); the result is the key of the chosen line."""

    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss", "Close")]

    def __init__(self, title: str, lines: Sequence[tuple[str, str]]) -> None:
        super().__init__(classes="dialog")
        self._title = title
        self._lines = lines

    def compose(self) -> ComposeResult:
        keys = dict.fromkeys(key for key, _ in self._lines)
        texts = dict(self._lines)
        chosen = OptionList(*(Option(Text(texts[key]), id=f"o{at}") for at, key in enumerate(keys)))
        chosen.border_title = Content(self._title)
        self._keys = list(keys)
        yield chosen

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._keys[event.option_index])
