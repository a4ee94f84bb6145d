"""What a user means by a store's URL or path; whatever it is, the answer is a store or an error of
ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from cowfs.api import stores
from cowfs.blocking import Volume
from cowfs.errors import CowfsError, InvalidInputError
from cowfs.store import open_store
from cowfs.store.named import place_named
from tests.cli.conftest import home, run
from tests.seaweedfs import SeaweedFS

__all__ = ["home", "run"]

SCHEMES = sorted(
    {*fsspec.available_protocols(), "s3", "oci", "hf", "jfs", "root", "S3", "file", "local", "nonsense", ""}
)
AWS = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_PROFILE",
    "AWS_CONFIG_FILE",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
)

pieces = st.text(st.sampled_from("ab.-:@/;=%?#[]*~ \0é\n"), max_size=8) | st.sampled_from(
    ["host", "h:1", "c@account", "u:p@h", "..", "x.zip", ";endpoint=http://h:1", ";region=x", "[::1]", "\udc80"]
)
urls = st.builds(
    lambda scheme, separator, rest: scheme + separator + "".join(rest),
    st.sampled_from(SCHEMES),
    st.sampled_from(["://", ":", "::s3://", ":/", ""]),
    st.lists(pieces, max_size=5),
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in AWS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.parametrize(
    "text",
    ["gcs://a/b./\udc80/", "s3://b/%FF", "s3://b/\ud800", "s3://b;region=;region=", "s3://b;region=eu;region=eu/p"],
)
def test_what_is_no_url_is_refused_with_a_way_out(text: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        place_named(text)
    assert caught.value.hint


@given(urls)
@settings(max_examples=500, deadline=None)
def test_any_text_is_a_store_or_an_error_of_ours(text: str) -> None:
    """Opening makes no request."""
    try:
        open_store(str(place_named(text))).close()
    except CowfsError as error:
        assert error.kind != "internal"
        assert error.kind == "not_found" or error.hint


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_protocol_of_fsspec_is_a_store_or_an_error_of_ours(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # Google's library would look for its cloud, for 8 s each time
    for rest in ("", "x", "host/path", "host", "/dir", "x.zip", "c@account/p", "user:p4ssw0rd@host/p"):
        try:
            open_store(f"{scheme}://{rest}").close()
        except CowfsError as error:
            assert error.kind != "internal"
            assert "p4ssw0rd" not in str(error)


@pytest.mark.parametrize(
    "mistake", [TypeError("missing 1 required argument: 'fs'"), AttributeError("x"), KeyError("x")]
)
def test_a_class_that_no_url_can_open_is_an_invalid_input(mistake: Exception) -> None:
    class Odd(MemoryFileSystem):  # type: ignore[misc]
        protocol = "odd"
        cachable = False

        def __init__(self, **options: object) -> None:
            raise mistake

    fsspec.register_implementation("odd", Odd, clobber=True)
    with pytest.raises(InvalidInputError, match="odd://") as caught:
        open_store("odd://x/y")
    assert caught.value.hint


@pytest.mark.parametrize("text", ["s3:bucket/prefix", "file:relative", "http:x", "s3//bucket", "GS//bucket/x", ""])
def test_what_looks_like_a_url_is_no_directory(text: str) -> None:
    """`create` would make one, and the user would look for the bucket."""
    with pytest.raises(InvalidInputError):
        place_named(text)
    with pytest.raises(InvalidInputError):
        stores.name(text)


def test_the_account_of_the_environment_becomes_part_of_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """A locator of it leads there from machines that do not have the variable."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "named")
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING", raising=False)
    assert str(place_named("abfs://con/p")) == "abfs://con@named.dfs.core.windows.net/p"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "AccountKey=YWE=;AccountName=connected")
    assert str(place_named("az://con")) == "az://con@connected.dfs.core.windows.net"
    assert str(place_named("abfs://con@mine/p")) == "abfs://con@mine.dfs.core.windows.net/p"
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", "UseDevelopmentStorage=true")  # which decides
    assert str(place_named("abfs://con/p")) == "abfs://con/p"
    monkeypatch.delenv("AZURE_STORAGE_CONNECTION_STRING")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME")
    assert str(place_named("abfs://con/p")) == "abfs://con/p"


def test_paths_are_directories(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert str(place_named("./s3:x")) == f"file://{tmp_path}/s3:x"
    assert str(place_named("plain")) == f"file://{tmp_path}/plain"
    assert str(place_named("~/x")) == f"file://{tmp_path}/home/x"
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(InvalidInputError):
        place_named("plain")
    os.chdir(tmp_path)


def test_an_endpoint_of_the_environment_is_written_into_the_url(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plain = "s3://bucket/prefix"
    written = "s3://bucket;endpoint=http%3A%2F%2F127.0.0.1%3A9000/prefix"
    assert str(place_named(plain)) == plain
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000/")
    assert str(place_named(plain)) == written
    assert "this machine" in stores.endpoint_note(plain)
    assert stores.endpoint_note(written) == ""
    assert str(place_named("s3://bucket;endpoint=https://other/prefix")).startswith("s3://bucket;endpoint=https")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "https://s3.example.org")
    assert place_named(plain).endpoint == "https://s3.example.org"
    monkeypatch.setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true")
    assert str(place_named(plain)) == plain
    for name in AWS:
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "aws").write_text("[profile lab]\nendpoint_url = http://127.0.0.1:9000\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws"))
    assert str(place_named(plain)) == plain
    monkeypatch.setenv("AWS_PROFILE", "lab")
    assert str(place_named(plain)) == written
    monkeypatch.setenv("AWS_ENDPOINT_URL", "not a url")
    with pytest.raises(InvalidInputError, match="endpoint"):
        place_named(plain)


def test_nobody_reads_a_locator_with_the_endpoint_of_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is whole as it stands, and says where it leads."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    opened: list[str] = []

    def note(url: str, **options: Any) -> None:
        opened.append(url)
        raise InvalidInputError("seen")

    monkeypatch.setattr("cowfs.store.open_store", note)
    with pytest.raises(InvalidInputError, match="seen"):
        stores.open_located("s3://bucket/prefix")
    with pytest.raises(InvalidInputError, match="seen"):
        stores.open_store("s3://bucket/prefix")
    assert opened == ["s3://bucket/prefix", "s3://bucket;endpoint=http%3A%2F%2F127.0.0.1%3A9000/prefix"]


def test_the_command_line_names_the_mistake(run: Any) -> None:
    for url in ("", "s3:x", "zip://x.zip", "adl://account/p", "asyncwrapper://x", "s3://b;endpoint=ftp://h/p"):
        said = run("ls", "--store", url, "--json")
        assert said.code == 2, url
        assert json.loads(said.out)["error"]["hint"]


@pytest.mark.s3
def test_locators_made_with_an_endpoint_of_the_environment_lead_there_without_it(
    seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweedfs.credentials.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", seaweedfs.endpoint)
    version = Volume.new("v", store=f"s3://{seaweedfs.bucket}/named").commit("made there")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    assert Volume.from_locator(version.locator).message == "made there"
    code = f"from cowfs.blocking import Volume; print(Volume.from_locator({version.locator!r}).id)"
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert again.stdout.strip() == version.id, again.stderr
