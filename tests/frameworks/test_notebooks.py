"""Cards, and calls that were not awaited, in a real kernel (`make test-integrations`)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbclient
import pytest

CELLS = {
    "import asyncio\nfrom cowfs import Store, Volume\nvolume = Volume.open('v', create=True)": None,
    "volume.commit('never')": "<RWVolume.commit() was not awaited: write `await` before it>",
    "Store().log('v')": "<Store.log() was not awaited: write `await` before it>",
    "Volume.version('v')": "<Volume.version() was not awaited: write `await` before it>",
    "(await volume.commit('one')).message": "'one'",
    "(await asyncio.gather(volume.has_changes(), volume.history()))[0]": "False",
    "(await asyncio.create_task(Volume.version('v'))).message": "'one'",
    "volume.files.ls()": "<an async iterator: write `async for item in …`, or `[item async for item in …]`>",
    "[each async for each in volume.files.ls()]": "[]",
    "asyncio.sleep(0)": "<coroutine object sleep at 0x",
    "first = volume.history(); [each.message for each in await first]": "['one']",
    "first": "<coroutine object RWVolume.history at 0x",
    "volume": "RWVolume('v', store=",
    "async def mine(): ...\nmine()": "<coroutine object mine at 0x",
}


EXAMPLE = Path(__file__).parents[2] / "docs" / "guide" / "looking.ipynb"
SHOWN = ("volume", "first", "tree", "changes", "history", "difference", "plan", "overview")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for variable, value in {
        "HOME": tmp_path / "home",
        "COWFS_CACHE_DIR": tmp_path / "cache",
        "COWFS_STATE_DIR": tmp_path / "state",
        "XDG_RUNTIME_DIR": tmp_path / "run",
        "COWFS_STORE": (tmp_path / "store").as_uri(),
        "JUPYTER_PLATFORM_DIRS": 1,
    }.items():
        monkeypatch.setenv(variable, str(value))
    (tmp_path / "run").mkdir(mode=0o700)
    (tmp_path / "home").mkdir()
    return tmp_path


def test_a_call_that_was_not_awaited_says_so(place: Path) -> None:
    from nbformat import v4

    notebook = v4.new_notebook(cells=[v4.new_code_cell(each) for each in CELLS])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute(cwd=os.fspath(place))
    for cell in notebook.cells:
        shown = [_text(each) for each in cell.outputs]
        wanted = CELLS[cell.source]
        assert (not shown) if wanted is None else any(each.startswith(wanted) for each in shown), (cell.source, shown)


def test_the_example_shows_cards_and_shows_them_again_without_the_store(place: Path) -> None:
    from nbformat import read, v4, write

    notebook = read(EXAMPLE, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    gone = f"import os\nos.rename({str(place / 'store')!r}, {str(place / 'away')!r})"
    again = [gone, *(f"{name}  # again" for name in SHOWN)]
    notebook.cells += [v4.new_code_cell(each) for each in again]
    write(notebook, place / "looking.ipynb")
    execute = [sys.executable, "-m", "nbconvert", "--execute", "--inplace", "looking.ipynb"]
    subprocess.run(execute, cwd=place, check=True, timeout=300)
    done = read(place / "looking.ipynb", as_version=4)
    cards = {cell.source: [_html(each) for each in cell.outputs] for cell in done.cells if cell.cell_type == "code"}
    before = {source.splitlines()[-1]: shown for source, shown in cards.items()}
    for name in SHOWN:
        shown = cards[f"{name}  # again"]
        assert [each[:5] for each in shown] == ["<div "], name
        if name != "volume":  # its work was dropped in between
            assert shown == before[name][-1:], name
    (uploaded,) = [shown for source, shown in cards.items() if "ProgressBar()" in source]
    assert uploaded[0].startswith("<progress ")
    assert re.search("uncommitted: 1 file, 7 B", before["volume"][-1])


def _html(output: Any) -> str:
    return str(output.get("data", {}).get("text/html", ""))


def _text(output: Any) -> str:
    return str(output.get("data", {}).get("text/plain", ""))
