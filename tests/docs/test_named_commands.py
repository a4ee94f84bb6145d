"""Commands that documents name in a sentence exist, with their options. The blocks of guide pages
are run by `test_guide`."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from cowfs.cli import commands, main

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs/guide").glob("*.md")),
    *sorted((ROOT / "docs/reference").glob("*.md")),
]
NAMED = re.compile(r"`(cowfs(?: [^`]*)?)`")
OPTION = re.compile(r"--?[a-z][a-z-]*")


@functools.cache
def options(name: str) -> frozenset[str] | None:
    """Of a command; None: there is no such command."""
    group = main.cowfs
    assert isinstance(group, main.LazyGroup)
    if name not in commands.COMMANDS:
        return None
    command = group.get_command(click.Context(group), name)
    assert command is not None
    context = click.Context(command, info_name=name)
    return frozenset(each for param in command.get_params(context) for each in (*param.opts, *param.secondary_opts))


def wrong(text: str) -> str:
    """What is wrong with `text`; "": nothing."""
    words = shlex.split(text.replace("…", ""), comments=True)[1:]
    if not words or words[0].startswith("-"):
        return ""
    known = options(words[0])
    if known is None:
        return f"no command {words[0]}"
    named = [word.split("=")[0] for word in words[1 : words.index("--") if "--" in words else None]]
    missing = [word for word in named if OPTION.fullmatch(word) and word not in known]
    return f"no option {', '.join(missing)}" if missing else ""


def named_commands(page: Path) -> Iterator[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for found in NAMED.findall(text):
        yield " ".join(found.split())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_commands_exist(page: Path) -> None:
    found = {each: wrong(each) for each in named_commands(page)}
    assert {each: what for each, what in found.items() if what} == {}


def test_a_command_or_option_that_does_not_exist_is_found() -> None:
    assert sum(1 for page in PAGES for _ in named_commands(page)) > 100, "the search finds too little"
    assert wrong("cowfs mount data PATH --read-only") == wrong("cowfs gc -y") == ""
    assert wrong("cowfs fetch data") == "no command fetch"
    assert wrong("cowfs mount data --colour") == "no option --colour"
