"""Store URLs and locators: one text each, no credentials, and every damage says what is wrong."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cowfs.base.ids import VersionId
from cowfs.errors import InvalidInputError
from cowfs.format.locator import Locator, is_locator
from cowfs.format.store_url import StoreUrl
from tests.format.samples import VERSION

pytestmark = pytest.mark.quick

HEX = VERSION.hex()
LOCATOR = f"cowfs+file:///dir/-/name@{HEX}"
S3 = "s3://bucket;endpoint=http%3A%2F%2F127.0.0.1%3A8333;region=us-east-1/some/prefix"

segments = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0"), min_size=1, max_size=8).filter(
    lambda s: s not in (".", "..")
)
byte_segments = st.binary(min_size=1, max_size=8).filter(lambda b: b not in (b".", b"..") and not set(b) & set(b"/\0"))
paths = st.lists(segments | st.just("-"), max_size=4).map("/".join)
file_paths = st.lists(byte_segments, max_size=4).map(lambda s: b"/".join(s).decode(errors="surrogateescape"))
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
endpoints = st.sampled_from([None, "http://127.0.0.1:8333", "https://s3.example.org", "http://[::1]:9000/path;a b"])
stores = st.one_of(
    st.builds(StoreUrl, st.just("s3"), names, paths, endpoints, st.sampled_from([None, "us-east-1"])),
    st.builds(StoreUrl, st.just("file"), st.just(""), file_paths),
    st.builds(StoreUrl, st.sampled_from(["gs", "https", "memory"]), names, paths),
    st.builds(StoreUrl, st.sampled_from(["abfs", "az"]), st.just("data@account1.dfs.core.windows.net"), paths),
)
versions = st.binary(min_size=32, max_size=32).map(VersionId)
locators = st.builds(Locator, stores, names, versions)


@given(stores)
def test_store_urls_round_trip(store: StoreUrl) -> None:
    text = str(store)
    assert StoreUrl.parse(text) == store
    assert not set(text) & set("?*[]# \n")
    assert "/-/" not in text


@pytest.mark.parametrize(
    ("text", "endpoint", "path"),
    [
        ("s3://bucket;endpoint=http://h:1/some/prefix", "http://h:1", "some/prefix"),
        ("s3://bucket;endpoint=http://h:1", "http://h:1", ""),
        ("s3://bucket;endpoint=https://H.example;region=auto/p", "https://h.example", "p"),
        ("s3://bucket;region=auto;endpoint=http://[::1]:9000/p", "http://[::1]:9000", "p"),
        ("s3://bucket;endpoint=http://h:1/;region=auto/p", "http://h:1", "p"),
        ("s3://bucket;endpoint=http://h:1//;region=auto", "http://h:1", ""),
        ("s3://bucket;endpoint=http://h:1/;v/p", "http://h:1", ";v/p"),
    ],
)
def test_an_endpoint_need_not_be_encoded(text: str, endpoint: str, path: str) -> None:
    found = StoreUrl.parse(text)
    assert (found.authority, found.endpoint, found.path) == ("bucket", endpoint, path)
    assert StoreUrl.parse(str(found)) == found


@given(
    st.sampled_from(["http://h:1", "http://h:1/", "HTTP://H:1//", "http%3A%2F%2Fh%3A1%2F"]),
    st.booleans(),
    st.lists(st.sampled_from(["", "/", "//"]), min_size=2, max_size=2),
    paths,
)
def test_slashes_around_options_make_no_other_store(
    endpoint: str, is_reversed: bool, slashes: list[str], path: str
) -> None:
    options = [f";endpoint={endpoint}", ";region=auto"]
    if is_reversed:
        options.reverse()
    behind = str(StoreUrl("s3", "bucket", path)).removeprefix("s3://bucket")
    text = f"s3://bucket{slashes[0]}{options[0]}{slashes[1]}{options[1]}{behind}"
    try:
        found = StoreUrl.parse(text)
    except InvalidInputError as error:
        assert any(slashes)
        assert "%3B" in error.hint
    else:
        assert found == StoreUrl("s3", "bucket", path, "http://h:1", "auto")


def test_an_endpoint_that_is_not_encoded_carries_no_password() -> None:
    with pytest.raises(InvalidInputError) as caught:
        StoreUrl.parse("s3://bucket;endpoint=http://key:secret@h:1/p")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["abfs://data@account1/p", "abfs://data@account1.dfs.core.windows.net/p"])
def test_a_container_of_an_azure_account_has_one_url(text: str) -> None:
    assert str(StoreUrl.parse(text)) == "abfs://data@account1.dfs.core.windows.net/p"


@pytest.mark.parametrize(
    "authority", ["data@evil.example.com", "data:key@account1", "@account1", "data@", "a@b@c", "c@a"]
)
def test_azure_urls_name_no_other_server_and_no_key(authority: str) -> None:
    with pytest.raises(InvalidInputError, match="a container has") as refused:
        StoreUrl.parse(f"abfs://{authority}/p")
    assert authority not in str(refused.value)
    assert "CONTAINER@ACCOUNT" in refused.value.hint


@given(locators, st.lists(byte_segments, max_size=4))
def test_locators_round_trip(locator: Locator, path: list[bytes]) -> None:
    text = str(locator)
    assert is_locator(text)
    assert Locator.parse(text) == locator
    assert Locator.parse_with_path(text) == (locator, b"")
    with_path = locator.with_path(b"/".join(path))
    assert Locator.parse_with_path(with_path) == (locator, b"/".join(path))
    assert not set(with_path) & set("?*[]# \n")
    assert with_path.isascii()


@given(st.text())
def test_arbitrary_text_raises_only_our_errors(text: str) -> None:
    for prefix in ("", "s3://", "s3://b;endpoint=", "file:///", "cowfs+", "cowfs+file:///a/-/n@" + HEX + "/"):
        for parse in (StoreUrl.parse, Locator.parse, Locator.parse_with_path):
            with contextlib.suppress(InvalidInputError):
                parse(prefix + text)


@given(locators, st.data())
def test_altered_locators_are_refused_or_mean_themselves(locator: Locator, data: st.DataObject) -> None:
    text = list(str(locator))
    text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.characters())
    with contextlib.suppress(InvalidInputError):
        found, path = Locator.parse_with_path("".join(text))
        assert Locator.parse_with_path(found.with_path(path)) == (found, path)


@given(locators, st.integers(1, 200))
def test_cut_locators_are_refused(locator: Locator, cut: int) -> None:
    text = str(locator)
    with pytest.raises(InvalidInputError):
        Locator.parse(text[:-cut])


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("s3://bucket", "s3://bucket"),
        ("S3://bucket/", "s3://bucket"),
        ("s3a://bucket//a///b/", "s3://bucket/a/b"),
        (
            "s3://b;region=eu-1;endpoint=HTTPS%3a%2f%2fS3.Example.ORG%3a443%2f",
            "s3://b;endpoint=https%3A%2F%2Fs3.example.org;region=eu-1",
        ),
        (
            "s3://b;endpoint=http://127.0.0.1:8333".replace("//127", "%2F%2F127"),
            "s3://b;endpoint=http%3A%2F%2F127.0.0.1%3A8333",
        ),
        ("gcs://bucket/x", "gs://bucket/x"),
        ("local:///srv/a", "file:///srv/a"),
        ("file:///", "file:///"),
        ("file:///srv/a%20b/%2d/%7e", "file:///srv/a%20b/%2D/~"),
        ("file:///srv/-/x", "file:///srv/%2D/x"),
        ("file:///srv/büro", "file:///srv/b%C3%BCro"),
        ("memory://", "memory://"),
        ("memory:///a/b", "memory://a/b"),
        ("https://host:8443/dir", "https://host:8443/dir"),
        (S3, S3),
    ],
)
def test_a_store_has_one_url(text: str, canonical: str) -> None:
    assert str(StoreUrl.parse(text)) == canonical
    assert str(StoreUrl.parse(canonical)) == canonical


@pytest.mark.parametrize(
    "text",
    [
        "s3://AKIAKEY:SECRET@bucket/prefix",
        "s3://AKIAKEY:SEC/RET@bucket/prefix",
        "s3://SECRET@bucket",
        "s3://bucket;secret=SECRET/prefix",
        "s3://bucket;key=AKIAKEY;secret=SECRET",
        "s3://bucket;endpoint=http://h:1/;secret=SECRET/prefix",
        "s3://bucket/;secret=SECRET/prefix",
        "s3://bucket?aws_secret=SECRET",
        "s3://bu$cket;secret=SECRET",
        "s3://bucket;endpoint=http%3A%2F%2Fme%3ASECRET%40host",
        "https://me:SECRET@host/dir",
        "gs://bucket;token=SECRET",
    ],
)
def test_credentials_are_refused_and_not_repeated(text: str) -> None:
    locator = f"cowfs+{text}/-/name@{HEX}"
    for attempt in (lambda: StoreUrl.parse(text), lambda: Locator.parse(locator), lambda: Locator.parse(text)):
        with pytest.raises(InvalidInputError) as caught:
            attempt()
        # The hint names the variable AWS_SECRET_ACCESS_KEY.
        assert "SEC" not in (caught.value.message + caught.value.hint).replace("AWS_SECRET_ACCESS_KEY", "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a store URL"),
        ("bucket/prefix", "not a store URL"),
        ("s3:/bucket", "not a store URL"),
        ("s3://", "does not name a bucket"),
        ("s3:///prefix", "does not name a bucket"),
        ("file://srv/data", "has a host"),
        ("file:///a/../b", r"'\.\.'"),
        ("file:///a/%2E%2e/b", r"'\.\.'"),
        ("file:///a%2Fb", "'a/b'"),
        ("file:///a%00b", "'a"),
        ("file:///a%b", "without two hex digits"),
        ("file:///a*b", r"character '\*'"),
        ("s3://bucket/a b", "character ' '"),
        ("s3://bucket/%ff", "not UTF-8"),
        ("s3://bucket;endpoint=127.0.0.1", "not an http or https URL"),
        ("s3://bucket;endpoint=ftp%3A%2F%2Fx", "not an http or https URL"),
        ("s3://bucket;endpoint=http%3A%2F%2Fx%3A99999", "not a URL"),
        ("s3://bucket;region=", "empty or given twice"),
        ("s3://bucket;region=a;region=b", "empty or given twice"),
        ("s3://bucket;region=us_east", "not the name of a region"),
        ("s3://bucket;endpoint=http%3A%2F%2Fh%3A1/;region=a/p", "is in its path"),
        ("s3://bucket;endpoint=http://h:1/base;region=a/p", "is in its path"),
        ("s3://bucket/;region=a/p", "is in its path"),
        ("s3://bucket/p;endpoint=http://h:1", "is in its path"),
        ("gs://bucket;region=x", "no option 'region'"),
    ],
)
def test_bad_store_urls_say_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        StoreUrl.parse(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("my-dataset", r"does not start with cowfs\+"),
        (f"file:///dir/-/name@{HEX}", r"does not start with cowfs\+"),
        ("cowfs+file:///dir", "no /-/ between store and volume"),
        (f"cowfs+file:///dir/name@{HEX}", "no /-/ between store and volume"),
        ("cowfs+file:///dir/-/name", "no @"),
        (f"cowfs+file:///dir/-/a/b@{HEX}", "no @"),
        (f"cowfs+file:///dir/-/@{HEX}", "not a volume name"),
        (f"cowfs+file:///dir/-/n%41me@{HEX}", "not a volume name"),
        (f"cowfs+file:///dir/-/name@{HEX[:-1]}", "63 digits instead of 64"),
        (f"cowfs+file:///dir/-/name@{HEX}0", "65 digits instead of 64"),
        (f"cowfs+file:///dir/-/name@{HEX[:-1]}g", "character 'g'"),
        (f"cowfs+file:///dir/-/name@{HEX.upper()}", "character 'A'"),
        (f"cowfs+file:///dir/-/name@{HEX[:32]}\n{HEX[32:]}", r"character '\\n'"),
        (f"cowfs+file:///dir/-/name@{HEX}/path", "continues after its version id"),
        (f"cowfs+file://host/dir/-/name@{HEX}", "has a host"),
        (f"cowfs+nothing/-/name@{HEX}", "not a store URL"),
    ],
)
def test_damaged_locators_say_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says) as caught:
        Locator.parse(text)
    assert caught.value.hint


@pytest.mark.parametrize("path", ["../x", "a/../x", "%2e%2e/x", "a%2Fb", "a%00", "a?b", "x*", "%"])
def test_paths_that_leave_or_confuse_are_refused(path: str) -> None:
    with pytest.raises(InvalidInputError):
        Locator.parse_with_path(f"cowfs+file:///dir/-/name@{HEX}/{path}")


@pytest.mark.parametrize("text", [f"{LOCATOR}\n", f" {LOCATOR}\r\n", f"\t{LOCATOR} "])
def test_whitespace_around_a_locator_is_no_part_of_it(text: str) -> None:
    assert is_locator(text)
    assert str(Locator.parse(text)) == LOCATOR


def test_a_path_may_contain_the_divider_and_other_locators() -> None:
    locator = Locator(StoreUrl.from_path("/dir"), "name", VERSION)
    text = f"{locator}/-/b@c/cowfs+x"
    assert Locator.parse_with_path(text) == (locator, b"-/b@c/cowfs+x")


def test_local_paths() -> None:
    assert str(StoreUrl.from_path("/srv//a b/-")) == "file:///srv/a%20b/%2D"
    assert str(StoreUrl.from_path("/")) == "file:///"
    assert str(StoreUrl.from_path("/\udcff")) == "file:///%FF"
    for bad in ("srv", "", "/a/../b"):
        with pytest.raises(InvalidInputError):
            StoreUrl.from_path(bad)
