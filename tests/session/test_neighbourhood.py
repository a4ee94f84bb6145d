"""How much comes along with a miss."""

from __future__ import annotations

import pytest

from cowfs.session.residency.neighbourhood import (
    FIRST_BYTES,
    LARGE_BYTES,
    MOST_BYTES,
    PACKS_MAX,
    SMALL_BYTES,
    Neighbourhoods,
)

pytestmark = pytest.mark.quick


def missed(near: Neighbourhoods, start: int, length: int = 1000, pack: int = 1, pack_end: int = 64 << 20) -> int:
    """As who fetches it all."""
    _, company = near.company(pack, start, start + length, length)
    if company:
        end = min(start + length + company, pack_end)
        near.brought(pack, end, is_last=end == pack_end)
    return company


def test_a_walk_brings_twice_as_much_each_time_and_goes_on_in_the_next_pack() -> None:
    near = Neighbourhoods()
    at, found = 0, []
    while at < 64 << 20:
        found.append(missed(near, at))
        at += 1000 + found[-1]
    assert found == [0, *(FIRST_BYTES << n for n in range(5)), MOST_BYTES, MOST_BYTES, MOST_BYTES]
    assert missed(near, 0, pack=2) == MOST_BYTES
    assert missed(near, 0, pack=3) == 0, "one walk, one inheritance"


def test_readers_at_random_bring_as_much_as_ever() -> None:
    near = Neighbourhoods()
    places = [40 << 20, 9 << 20, 30 << 20, 2 << 20, 50 << 20]
    assert [missed(near, at) for at in places] == [0] + [FIRST_BYTES] * 4
    near = Neighbourhoods()
    assert [missed(near, at, SMALL_BYTES) for at in places] == [0] * 5, "files of that size are read alone"
    assert missed(near, places[-1] + SMALL_BYTES, SMALL_BYTES) == FIRST_BYTES, "unless they are read in order"
    assert missed(near, places[-1] + 2 * SMALL_BYTES + FIRST_BYTES, LARGE_BYTES) == 0


def test_a_walk_goes_on_after_a_stray_or_two() -> None:
    near = Neighbourhoods()
    for at in (0, 1000):
        missed(near, at)
    assert [missed(near, 30 << 20), missed(near, 40 << 20)] == [FIRST_BYTES] * 2
    assert missed(near, 2000 + FIRST_BYTES) == 2 * FIRST_BYTES


def test_packs_that_were_read_long_ago_are_forgotten() -> None:
    near = Neighbourhoods()
    for pack in range(PACKS_MAX + 1):
        missed(near, 0, pack=pack)
    assert missed(near, 1000, pack=1) == FIRST_BYTES
    assert missed(near, 1000, pack=0) == 0
