"""URLs that lead nowhere get an error that says what to do; opening loads only what it needs."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from cowfs.errors import AccessDeniedError, InvalidInputError
from cowfs.format.locator import Locator
from cowfs.format.store_url import StoreUrl
from cowfs.store import open_store
from cowfs.version.names.volumes import volume_names

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("url", ["nonsense://bucket/x", "://x", "s3://", "s3://key:secret@bucket/x"])
def test_bad_urls(url: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        open_store(url)
    assert caught.value.hint
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("gs://bucket/prefix", "gcsfs", "cowfs-volumes[gcs]"),
        ("abfs://container@account/prefix", "adlfs", "cowfs-volumes[azure]"),
    ],
)
def test_a_missing_package_is_named(url: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for missing in (package, f"{package}.core"):
        monkeypatch.setitem(sys.modules, missing, None)
    for module in ("azure", "gcs"):
        monkeypatch.delitem(sys.modules, f"cowfs.store.backends.cloud.{module}", raising=False)
    with pytest.raises(InvalidInputError, match="is not installed") as caught:
        open_store(url)
    assert f"pip install '{extra}'" in caught.value.hint


@pytest.mark.parametrize("protocol", ["sftp", "ssh", "ftp", "smb", "webhdfs", "github", "zip", "simplecache"])
def test_protocols_that_cannot_hold_a_store_are_refused_at_parsing(protocol: str) -> None:
    with pytest.raises(InvalidInputError, match=protocol) as caught:
        StoreUrl.parse(f"{protocol}://host/dir")
    assert "file:///" in caught.value.hint


def test_locators_open_known_protocols_only() -> None:
    for protocol in ("oss", "hf", "lakefs", "nonsense"):
        with pytest.raises(InvalidInputError, match=protocol):
            Locator.parse(f"cowfs+{protocol}://host/dir/-/v@{'0' * 64}")
    assert Locator.parse(f"cowfs+https://host/dir/-/v@{'0' * 64}").store.protocol == "https"


def test_what_a_package_takes_from_the_url_is_passed() -> None:
    made: list[str] = []

    class Hosted(MemoryFileSystem):  # type: ignore[misc]
        protocol = "hosted"
        cachable = False

        def __init__(self, host: str, **options: object) -> None:
            super().__init__(**options)
            made.append(host)

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return "/" + path.removeprefix("hosted://").lstrip("/")

        @staticmethod
        def _get_kwargs_from_urls(path: str) -> dict[str, str]:
            return {"host": path.partition("://")[2].partition("/")[0]}

    fsspec.register_implementation("hosted", Hosted, clobber=True)
    store = open_store("hosted://server.example/some/where")
    store.put("key", b"x")
    assert made == ["server.example"]
    assert [info.key for info in store.list("")] == ["key"]
    store.delete(["key"])


def test_a_constructor_that_wants_credentials_says_so() -> None:
    class Guarded(MemoryFileSystem):  # type: ignore[misc]
        protocol = "guarded"
        cachable = False

        def __init__(self, **options: object) -> None:
            raise ValueError("Must provide either a connection_string or account_name with credentials!!")

    fsspec.register_implementation("guarded", Guarded, clobber=True)
    with pytest.raises(AccessDeniedError, match="account_name") as caught:
        open_store("guarded://container/x")
    assert "AZURE_STORAGE_ACCOUNT_NAME" in caught.value.hint


def test_a_list_costs_what_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred volumes of many versions: their names cost some listings a volume, not one of
    everything."""
    store = open_store("memory://listed/x")
    for volume in range(100):
        for number in range(20):
            store.put(f"volumes/v{volume:03}/head/{number:04}", b"")
    seen: list[int] = []
    real = MemoryFileSystem.ls

    def ls(self: object, path: str, detail: bool = True, **options: object) -> Any:
        found = real(self, path, detail=detail, **options)
        seen.append(len(found))
        return found

    monkeypatch.setattr(MemoryFileSystem, "ls", ls)
    assert volume_names(store) == [f"v{volume:03}" for volume in range(100)]
    assert len(seen) <= 4 * 101
    seen.clear()
    assert [info.key for info in store.list("volumes/v050/head/", limit=1)] == ["volumes/v050/head/0000"]
    assert len(seen) == 1
    assert store.list("volumes/v0500/") == []
    store.delete(info.key for info in store.list(""))


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
