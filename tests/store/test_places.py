"""Which place lies in which, however their URLs are spelled."""

from __future__ import annotations

import pytest

from cowfs.format.store_url import StoreUrl
from cowfs.store import nesting
from cowfs.store.nesting import path_within


@pytest.fixture(autouse=True)
def no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/dev/null")


def within(place: str, other: str) -> str | None:
    return path_within(StoreUrl.parse(place), StoreUrl.parse(other))


@pytest.mark.quick
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://b/p", "s3a://b//p/"),
        ("s3://b/p", "s3://b;region=eu-west-1/p"),
        ("s3://b/p", "s3://b;endpoint=https://s3.eu-west-1.amazonaws.com/p"),
        ("s3://b;endpoint=http://host:9000/p", "s3://b;endpoint=http%3A%2F%2FHOST%3A9000%2F/p/"),
        ("s3://b;endpoint=http://localhost:9000/p", "s3://b;endpoint=http%3A%2F%2F%5B%3A%3A1%5D%3A9000/p"),
        ("s3://b;endpoint=http://127.0.0.1:9000/p", "s3://b;endpoint=http://localhost:9000/p"),
        ("s3://b;endpoint=http://host/p", "s3://b;endpoint=https://host./p"),
        ("gs://b/p", "gcs://b/p"),
        ("az://c/p", "abfs://c@account/p"),
        ("abfss://c@account.blob.core.windows.net/p", "abfs://c@account/p"),
        ("memory://b/p", "memory:///b/p"),
        ("file:///b/p", "local:///b//p/"),
    ],
)
def test_one_place(one: str, other: str) -> None:
    assert (within(one, other), within(other, one)) == ("", "")
    assert within(f"{one}/x/y", other) == "x/y"
    assert within(one, f"{other}/x") is None


@pytest.mark.quick
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://b/pp", "s3://b/p"),
        ("s3://bb/p", "s3://b"),
        ("s3://b", "gs://b"),
        ("s3://b;endpoint=http://host:9000/p", "s3://b;endpoint=http://host:9001/p"),
        ("s3://b;endpoint=http://host:9000/p", "s3://b/p"),
        ("abfs://c@account/p", "abfs://c@another/p"),
        ("memory://bb/p", "memory://b"),
    ],
)
def test_two_places(one: str, other: str) -> None:
    assert (within(one, other), within(other, one)) == (None, None)


@pytest.mark.quick
def test_urls_of_one_place() -> None:
    assert nesting.is_one("abfs://c/p", "abfs://c@account.dfs.core.windows.net/p")
    assert not nesting.is_one("abfs://c/p", "abfs://c@account/p/q")
    assert not nesting.is_one("file:///a", "file:///b")


@pytest.mark.quick
def test_an_endpoint_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://host:9000/")
    assert within("s3://b;endpoint=http://host:9000/p", "s3://b") == "p"
    assert within("s3://b;endpoint=https://s3.amazonaws.com/p", "s3://b") is None
