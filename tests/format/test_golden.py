"""Golden objects: bytes that exist in the world decode to the same values for good, and any damage
to them is found."""

from __future__ import annotations

import contextlib

import pytest

from cowfs.errors import CorruptError, CowfsError
from tests.format.samples import GOLDEN, SAMPLES, Sample

each_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.file)


def golden(sample: Sample) -> bytes:
    return (GOLDEN / sample.file).read_bytes()


@pytest.mark.quick
@each_sample
def test_decodes_to_the_expected_value(sample: Sample) -> None:
    assert sample.decode(golden(sample)) == sample.expected
    sample.verify(golden(sample))


@pytest.mark.quick
@each_sample
def test_encodes_to_the_same_bytes(sample: Sample) -> None:
    assert sample.encode() == golden(sample)


@pytest.mark.quick
def test_every_golden_file_has_its_sample() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {sample.file for sample in SAMPLES} | {
        "text.zst",
        "profile.zst",
        "lock.toml",
    }


@each_sample
def test_every_flipped_bit_is_found_or_harmless(sample: Sample) -> None:
    """A few bits of a zstd frame have no meaning: what comes out of such a pack is still exactly
    what went in."""
    data = bytearray(golden(sample))
    whole = sample.verify(bytes(data))
    harmless = 0
    for at in range(len(data)):
        for bit in range(8):
            data[at] ^= 1 << bit
            try:
                assert sample.verify(bytes(data)) == whole
                harmless += 1
            except CorruptError:
                pass
            data[at] ^= 1 << bit
    assert harmless <= (8 if sample.file in ("data.pack", "index.pack") else 0)


@each_sample
def test_every_truncation_and_extension_is_found(sample: Sample) -> None:
    data = golden(sample)
    for damaged in (*(data[:length] for length in range(len(data))), data + b"\0", data + b" ", b"\0" + data, data * 2):
        with pytest.raises(CorruptError):
            sample.verify(damaged)


@each_sample
def test_unverified_damage_never_escapes_as_another_error(sample: Sample) -> None:
    data = bytearray(golden(sample))
    for at in range(len(data)):
        for value in (0, 1, 0x22, 0x7F, 0x80, 0xFF, data[at] ^ 1):
            kept, data[at] = data[at], value
            with contextlib.suppress(CowfsError):
                sample.decode(bytes(data))
            data[at] = kept
