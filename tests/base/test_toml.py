"""What is refused before the parser works on it, and what is not."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from cowfs.api.declared import documents
from cowfs.base import config, toml
from cowfs.errors import InvalidInputError
from cowfs.format import lock_file

pytestmark = pytest.mark.quick

LONG = "a" + ".a" * 4000


@pytest.mark.parametrize(
    "text",
    [
        f"{LONG} = 1",
        f"[{LONG}]",
        f"[[{LONG}]]",
        f"a = [{{{LONG} = 1}}]",
        LONG,
        LONG.replace(".", " \t. "),
        LONG.replace("a", '"a.\\""'),
        LONG.replace("a", "'a#'"),
        f"a = '''x'''''\n{LONG} = 1",
        f'a = """x\\""" # " \\\\"""""\n{LONG} = 1',
        f"a = 'x' # '''\n{LONG} = 1",
        f'a = "\\"" # """\r\n{LONG} = 1',
    ],
)
def test_a_key_of_many_parts_is_refused_before_it_costs_memory(text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"line [12]: a key of more than 16 parts"):
            toml.parse(text)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_dots_in_strings_and_comments_are_no_parts() -> None:
    whole = ".".join("abcdefghijklmnop")
    text = f"""# {LONG}
{whole} = 1
'{LONG}' = "x\\"{LONG}" # it's {LONG}
c = '''
'{LONG}'''''
d = '{LONG}\\' # {LONG}
e = ["{LONG}", 1.5, 1979-05-27T07:32:00.5]
"""
    text += f'f = """\n""{LONG}\\"""{LONG}"""""\n'
    found = toml.parse(text)
    assert found[LONG] == f'x"{LONG}'
    assert (found["c"], found["d"]) == (f"'{LONG}''", f"{LONG}\\")
    assert found["f"] == f'""{LONG}"""{LONG}""'
    with pytest.raises(ValueError, match="line 1: a key of more"):
        toml.parse(f"{whole}.q = 1")


def test_every_reader_of_toml_refuses_such_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("COWFS_STORE", raising=False)
    (tmp_path / "cowfs").mkdir()
    (tmp_path / "cowfs" / "config.toml").write_text(f"{LONG} = 1\n")
    data = f"format = 1\nproject = 'p'\nvolumes = []\n{LONG} = 1\n".encode()
    for read in (
        config.default_store,
        lambda: lock_file.decode(data, what="the lock"),
        lambda: documents.parsed(data, tmp_path / "cowfs.toml"),
    ):
        with pytest.raises(InvalidInputError, match="a key of more than 16 parts"):
            read()
