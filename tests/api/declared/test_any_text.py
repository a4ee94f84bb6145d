"""Any text is a declaration, or an error that names the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cowfs.api.declared import documents, loading
from cowfs.api.declared.declared import Declared
from cowfs.errors import InvalidInputError

pytestmark = pytest.mark.quick


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
def test_any_text_is_a_declaration_or_an_error_that_names_the_file(text: str, name: str) -> None:
    try:
        loading.parsed(text.encode(errors="surrogatepass"), Path("/project") / name, Declared)
    except InvalidInputError as error:
        assert {each["where"] for each in error.details["problems"]} == {f"/project/{name}"}
        assert error.hint or error.message


@given(st.binary(max_size=60), st.sampled_from(["cowfs.toml", "a.cowfs.yml"]))
def test_any_bytes_are_a_document_or_an_error_that_names_the_file(data: bytes, name: str) -> None:
    try:
        documents.parsed(data, Path("/project") / name)
    except InvalidInputError as error:
        assert error.message.startswith(f"/project/{name}:")
