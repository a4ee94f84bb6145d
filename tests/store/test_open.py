"""URLs that lead nowhere get an error that says what to do; opening loads only what it needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cowfs.errors import InvalidInputError
from cowfs.store import open_store

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("url", ["nonsense://bucket/x", "://x", "s3://", "s3://key:secret@bucket/x"])
def test_bad_urls(url: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_store(url)
    assert caught.value.hint
    assert "secret" not in str(caught.value)


def test_a_missing_package_is_named() -> None:
    with pytest.raises(InvalidInputError, match="gs://") as caught:
        open_store("gs://bucket/prefix")
    assert "gcsfs" in caught.value.hint


def test_a_directory_store_loads_no_client_of_another() -> None:
    program = (
        "import sys, tempfile; from cowfs.store import initialize, open_store\n"
        "with tempfile.TemporaryDirectory() as path: initialize(open_store(path))\n"
        "print(sorted({'fsspec', 's3fs', 'aiobotocore', 'aiohttp', 'trio', 'apsw'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_memory_is_one_store_for_each_path() -> None:
    one, two = open_store("memory://one/x"), open_store("memory://one/y")
    one.put("key", b"x")
    assert two.list("") == []
    assert open_store("memory://one/x").get("key") == b"x"
