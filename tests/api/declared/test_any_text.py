"""Any text is a declaration, or an error that names file and line; lines are found for all that is
there."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cowfs.api.declared import documents, loading, toml_lines, yaml_tree
from cowfs.api.declared.declared import Declared
from cowfs.errors import InvalidInputError
from tests.api.declared.test_files import SAME, lines_of

pytestmark = pytest.mark.quick


def paths_in(value: Any, path: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return {path} | {each for key, below in items for each in paths_in(below, (*path, key))}


KEY = st.sampled_from(["a", "b-c", '"q.\\n\\u0041"', "'l.\"'", "1"])
SCALAR = st.sampled_from(
    [
        "1",
        "-0x1F",
        "1.5e3",
        "inf",
        "true",
        "1979-05-27 07:32:00",
        "07:32:00",
        '"a\\"]}#"',
        "'b\\'",
        '"""x\n"y""z\\""""""',
        "'''\nq''r'''''",
        '""',
        "''",
    ]
)
GAP = st.sampled_from(["", " ", "\t", "\n", " # ]}\n\n"])


@st.composite
def arrays(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    parts = draw(st.lists(st.builds("{}{}{}".format, GAP, inner, GAP), max_size=3))
    return f"[{','.join(parts)}{draw(st.sampled_from(['', ','])) if parts else draw(GAP)}]"


@st.composite
def tables(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    pair = st.builds("{}={}".format, KEY, inner) | st.builds("{}.{} = {}".format, KEY, KEY, inner)
    return "{" + ", ".join(draw(st.lists(pair, max_size=2))) + "}"


VALUE = st.recursive(SCALAR, lambda inner: arrays(inner) | tables(inner), max_leaves=6)
STATEMENT = st.one_of(
    st.builds("[{}]".format, KEY),
    st.builds("[ {} . {} ] # x".format, KEY, KEY),
    st.builds("[[{}]]".format, KEY),
    st.builds("[[{}.{}]]".format, KEY, KEY),
    st.builds("{} = {}".format, KEY, VALUE),
    st.builds("{}.{} = {}".format, KEY, KEY, VALUE),
    st.just(""),
)


@given(st.lists(STATEMENT, max_size=8).map("\n".join))
@example("[[a]]\n[a.b]\nc=1\n[[a]]\n[[a.d]]\n")
def test_lines_are_found_for_all_that_tomllib_finds(text: str) -> None:
    try:
        value = tomllib.loads(text)
    except ValueError:
        return
    lines = toml_lines.lines_of(text)
    assert set(lines) == paths_in(value) - {()}
    for path, line in lines.items():
        key = path[-1]
        if isinstance(key, str) and key.isalnum():
            assert key in text.split("\n")[line - 1]


WORD = st.sampled_from(
    [
        *["volumes", "stores", "[[volumes]]", "[stores]", "name", "path", "store", "read_only", "size", "main", "url"],
        *['"a"', '"/data"', '"/tmp/x"', '"1G"', '"s3://b"', "true", "false", "1", "{node_rank}"],
        *[
            "=",
            "[",
            "]",
            "{",
            "}",
            ",",
            "-",
            ":",
            "\n",
            "\n",
            "\t",
            "\x00",
            '"',
            "'",
            "#",
            "&",
            "*",
            "!",
            "|",
            ">",
            "<<:",
            "?",
        ],
    ]
)


@given(st.one_of(st.text(), st.lists(WORD, max_size=25).map(" ".join)), st.sampled_from(["cowfs.toml", "a.cowfs.yml"]))
@example("volumes = [{name='a', path='/a'}]", "cowfs.toml")
@example("\r0", "a.cowfs.yml")  # YAML ends a line there, editors do not
@example("\u2028\n\x85 a: [", "a.cowfs.yml")
def test_any_text_is_a_declaration_or_an_error_with_a_line(text: str, name: str) -> None:
    lines = text.replace("\r\n", "\n").count("\n") + 1
    try:
        loading.parsed(text.encode(errors="surrogatepass"), Path("/project") / name, Declared)
    except InvalidInputError as error:
        for where in lines_of(error):
            file, line = where.split(":")
            assert file == name
            assert 1 <= int(line) <= lines
        assert error.hint or error.message


@given(st.binary(max_size=60), st.sampled_from(["cowfs.toml", "a.cowfs.yml"]))
def test_any_bytes_are_a_document_or_an_error_with_a_line(data: bytes, name: str) -> None:
    try:
        documents.parsed(data, Path("/project") / name)
    except InvalidInputError as error:
        assert error.message.startswith(f"/project/{name}:")


def test_yaml_lines() -> None:
    values, lines = yaml_tree.parsed(SAME)
    assert set(lines) == paths_in(values)
    assert lines["volumes", 1, "path"] == 4
    assert lines["stores", "near"] == 12
