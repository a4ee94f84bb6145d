"""Profiles: what was written comes back, and nothing else is taken for one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import zstandard
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from cowfs.errors import CorruptError, UnsupportedFormatError
from cowfs.format import profile
from cowfs.format.profile import MAX_BYTES, MAX_OFFSET, MAX_RANGES, ReadRange
from tests.format.samples import GOLDEN

pytestmark = pytest.mark.quick

PAGE = Path(__file__).parents[2] / "docs" / "format" / "profile.md"
RANGES = [
    ReadRange(b"", 0, 0),
    ReadRange(b"train", 0, 0),
    ReadRange(b"train/7.npy", 0, 131072),
    ReadRange(b"index.bin", 16777216, 65536),
    ReadRange("büro/caf\udce9".encode(errors="surrogateescape"), 0, 65536),
    ReadRange(b"train/7.npy", 1048576, 65536),
]

names = st.binary(min_size=1, max_size=12).map(lambda name: name.replace(b"/", b"-").replace(b"\0", b"0"))
paths = st.lists(names.filter(lambda name: name not in (b".", b"..")), max_size=4).map(b"/".join)
offsets = st.integers(0, MAX_OFFSET - 1)
files = st.tuples(paths, offsets, st.integers(1, 1 << 40)).filter(lambda each: each[1] + each[2] <= MAX_OFFSET)
ranges = st.lists(paths.map(ReadRange) | files.map(lambda each: ReadRange(*each)), max_size=20)


def text_of(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompress(data)


def framed(text: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(text)


def with_check(body: bytes) -> bytes:
    return framed(body + b'{"check":"%s"}\n' % blake3(body).hexdigest().encode())


HEAD = b'{"format":1,"record":"profile"}\n'


@given(ranges)
def test_round_trip(found: list[ReadRange]) -> None:
    assert profile.decode(profile.encode(found), what="x") == found


def test_the_golden_profile_stays_readable() -> None:
    golden = (GOLDEN / "profile.zst").read_bytes()
    assert profile.decode(golden, what="x") == RANGES
    assert text_of(profile.encode(RANGES)) == text_of(golden), "another zstd may compress otherwise"


def test_the_page_shows_it() -> None:
    [shown] = re.findall(r"^```text\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert shown.encode() == text_of((GOLDEN / "profile.zst").read_bytes())


def test_any_damage_is_found() -> None:
    """Some bits of a zstd frame have no meaning: then the lines are the same."""
    data = bytearray((GOLDEN / "profile.zst").read_bytes())
    for at in range(len(data)):
        for bit in range(8):
            data[at] ^= 1 << bit
            try:
                assert profile.decode(bytes(data), what="x") == RANGES
            except CorruptError as error:
                assert error.hint
            data[at] ^= 1 << bit
    whole = bytes(data)
    for other in (*(whole[:length] for length in range(len(whole))), whole + b"\0", b"\0" + whole, whole * 2):
        with pytest.raises(CorruptError):
            profile.decode(other, what="x")
    text = text_of(whole)
    for at in range(len(text)):
        for damaged in (text[:at], text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :], text[:at] + text[at + 1 :]):
            with pytest.raises(CorruptError):
                profile.decode(framed(damaged), what="x")


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_arbitrary_bytes_raise_only_our_errors(data: bytes) -> None:
    for made in (data, framed(data), with_check(data), with_check(HEAD + data), with_check(HEAD + data + b"\n")):
        try:
            assert text_of(profile.encode(profile.decode(made, what="x"))) == text_of(made)
        except (CorruptError, UnsupportedFormatError) as error:
            assert error.hint


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
lines = values | st.lists(st.text("a\udcc3\udca9", max_size=4), min_size=1, max_size=1)


@given(lines)
def test_other_lines_are_refused_by_number(value: object) -> None:
    line = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    data = with_check(HEAD + b'["a"]\n' + line + b"\n")
    try:
        found = profile.decode(data, what="x")
    except CorruptError as error:
        assert "line 3" in str(error)
    else:
        assert text_of(profile.encode(found)) == text_of(data)


@pytest.mark.parametrize(
    "line",
    [
        b'["/a"]',
        b'["a/"]',
        b'["a//b"]',
        b'["."]',
        b'["a/../b"]',
        b'["a\\u0000"]',
        b'["\\ud800"]',
        b'["\\udcc3\\udca9"]',
        b'["' + b"n" * 256 + b'"]',
        b'["a",0]',
        b'["a",0,0]',
        b'["a",-1,5]',
        b'["a",true,5]',
        b'["a",9223372036854775807,1]',
        b'["a", 0, 5]',
        b'["a",0,5.0]',
        b'["\xc3\xbc"]',
        b"[]",
        b"[" * 100_000,
        b"",
    ],
)
def test_what_is_no_range_is_refused(line: bytes) -> None:
    with pytest.raises(CorruptError, match="line 2") as caught:
        profile.decode(with_check(HEAD + line + b"\n"), what="profile.zst")
    assert "profile.zst" in str(caught.value)
    assert "--record" in caught.value.hint


def test_heads() -> None:
    newer = HEAD.replace(b"1", b"2")
    with pytest.raises(UnsupportedFormatError, match="format 2"):
        profile.decode(with_check(newer + b"something new\n"), what="x")
    for head in (b'{"format":1,"record":"export"}\n', b'{"format":1,"more":1,"record":"profile"}\n', b"[]\n", b"\n"):
        with pytest.raises(CorruptError, match="line 1"):
            profile.decode(with_check(head), what="x")


def test_sizes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    for bomb in (framed(bytes(MAX_BYTES + 1)), framed(b"\n" * (MAX_RANGES + 3))):
        with pytest.raises(CorruptError):
            profile.decode(bomb, what="x")
    many = [ReadRange(b"a", at, 1) for at in range(110)]
    monkeypatch.setattr(profile, "MAX_RANGES", 100)
    assert profile.decode(profile.encode(many), what="x") == many[:100]
    monkeypatch.setattr(profile, "MAX_BYTES", 1000)
    some = profile.decode(profile.encode(many), what="x")
    assert some == many[: len(some)]
    assert 50 < len(some) < 100


def test_what_is_below_a_folder() -> None:
    found = [ReadRange(path) for path in (b"", b"a", b"a/b", b"ab", b"c/a")]
    assert [each.path for each in profile.below(found, b"a")] == [b"a", b"a/b"]
    assert list(profile.below(found, b"")) == found
