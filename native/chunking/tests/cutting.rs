//! The promise that chunking does not drift, and the properties deduplication rests on.

use cowfs_chunking::AVERAGE_BYTES;
use cowfs_chunking::{Gear, MAX_BYTES, MIN_BYTES, cut_points, cut_points_with, zero_runs};
use fastcdc::v2020::{FastCDC, Normalization, cut_gear, select_masks};
use proptest::prelude::*;

/// splitmix64: the same bytes on every machine, at any time.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Noise with stretches of few distinct bytes, as files have them.
fn content(length: usize, seed: u64) -> Vec<u8> {
    let mut bytes = noise(length, seed);
    for (index, block) in bytes.chunks_mut(300_000).enumerate() {
        match (seed as usize + index) % 4 {
            0 => block.iter_mut().for_each(|byte| *byte &= 1),
            1 => block.fill(index as u8),
            _ => (),
        }
    }
    bytes
}

#[test]
fn cut_points_have_not_drifted() {
    assert_eq!(cut_points(&noise(8 << 20, 42), true), GOLDEN);
}

const GOLDEN: [usize; 15] = [
    200872, 1040563, 1689120, 2274268, 2888957, 3443757, 4293070, 4839047, 5383879, 5959978,
    6209221, 6793531, 7385387, 7931694, 8388608,
];

/// Of the bytes in front of an end a few dozen count. They are looked at wherever the end lies.
#[test]
fn an_end_is_found_at_every_place() {
    let data = noise(1 << 20, 42);
    for block in 1..13 {
        for place in (0..70).chain([2048, 4094, 4095]) {
            let end = MIN_BYTES + block * 4096 + place;
            let moved = &data[GOLDEN[0] - end..];
            assert_eq!(cut_points(moved, true)[0], end);
        }
    }
}

#[test]
fn short_data_is_one_chunk_when_final_and_none_otherwise() {
    for length in [1, MIN_BYTES - 1, MIN_BYTES, MIN_BYTES + 1] {
        let data = vec![7; length];
        assert_eq!(cut_points(&data, true), [length]);
        assert!(cut_points(&data, false).is_empty());
    }
    assert!(cut_points(&[], true).is_empty() && cut_points(&[], false).is_empty());
}

#[test]
fn bytes_without_structure_are_cut_at_the_maximum() {
    for byte in [0, 1, 0x55, 0xff] {
        let data = vec![byte; 2 * MAX_BYTES + 5];
        assert_eq!(cut_points(&data, false), [MAX_BYTES, 2 * MAX_BYTES]);
        assert_eq!(cut_points(&data[..MAX_BYTES], false), [MAX_BYTES]);
        assert!(cut_points(&data[..MAX_BYTES - 1], false).is_empty());
    }
}

#[test]
fn bytes_in_front_leave_most_chunks_as_they_are() {
    let data = noise(24 << 20, 3);
    let before = cut_points(&data, true);
    for inserted in [1, 7, 4096, 100_000] {
        let shifted = [noise(inserted, 9), data.clone()].concat();
        let after: Vec<usize> = cut_points(&shifted, true)
            .into_iter()
            .map(|end| end.wrapping_sub(inserted))
            .collect();
        let same = before
            .iter()
            .position(|end| after.contains(end))
            .expect("never in step again");
        assert!(
            before[same] < 4 << 20,
            "{inserted} bytes in front changed {} bytes",
            before[same]
        );
        assert!(after.ends_with(&before[same..]));
    }
}

/// Ends of chunks as the crate finds them, one byte after the other.
fn cut_points_by_the_crate(numbers: &[u64], data: &[u8]) -> Vec<usize> {
    let (strict, relaxed) = select_masks(AVERAGE_BYTES, Normalization::Level2);
    let shifted: Vec<u64> = numbers.iter().map(|number| number << 1).collect();
    let (mut ends, mut end) = (Vec::new(), 0);
    while end < data.len() {
        let sizes = (MIN_BYTES, AVERAGE_BYTES, MAX_BYTES);
        let (doubly_strict, doubly_relaxed) = (strict << 1, relaxed << 1);
        end += cut_gear(
            &data[end..],
            sizes.0,
            sizes.1,
            sizes.2,
            strict,
            relaxed,
            doubly_strict,
            doubly_relaxed,
            numbers,
            &shifted,
        )
        .1;
        ends.push(end);
    }
    ends
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cut_points_are_those_of_the_crate(length in 0usize..8 << 20, seed in any::<u64>()) {
        let data = content(length, seed);
        let found = FastCDC::with_level(&data, MIN_BYTES, AVERAGE_BYTES, MAX_BYTES, Normalization::Level2);
        let theirs: Vec<usize> = found.map(|chunk| chunk.offset + chunk.length).collect();
        prop_assert_eq!(cut_points(&data, true), theirs);
    }

    // Numbers with few bits make ends of most places, others of none.
    #[test]
    fn whatever_the_table_says(length in 0usize..4 << 20, seed in any::<u64>(), bits in any::<u64>(), more in any::<u64>()) {
        let table: Vec<u8> = noise(2048, seed).as_chunks::<8>().0.iter()
            .flat_map(|number| (u64::from_be_bytes(*number) & (bits | more) & 0x00ff_ffff_ffff_ffff).to_be_bytes())
            .collect();
        let numbers: Vec<u64> = table.as_chunks::<8>().0.iter().map(|number| u64::from_be_bytes(*number)).collect();
        let gear = Gear::from_bytes(table[..].try_into().expect("2048 bytes"));
        let data = content(length, seed);
        prop_assert_eq!(cut_points_with(&gear, &data, true), cut_points_by_the_crate(&numbers, &data));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn chunks_cover_the_data_within_the_bounds(length in 0usize..8 << 20, seed in any::<u64>()) {
        let data = content(length, seed);
        let ends = cut_points(&data, true);
        prop_assert_eq!(ends.last().copied().unwrap_or(0), length);
        let mut start = 0;
        for (index, &end) in ends.iter().enumerate() {
            prop_assert!(end - start <= MAX_BYTES);
            prop_assert!(end - start >= MIN_BYTES || index + 1 == ends.len());
            start = end;
        }
    }

    #[test]
    fn pieces_give_the_same_cuts_as_the_whole(seed in any::<u64>(), pieces in prop::collection::vec(1usize..3 << 20, 1..6)) {
        let data = content(pieces.iter().sum(), seed);
        let (mut ends, mut known) = (Vec::new(), 0);
        for piece in &pieces {
            known += piece;
            let start = ends.last().copied().unwrap_or(0);
            ends.extend(cut_points(&data[start..known], false).into_iter().map(|end| start + end));
        }
        let start = ends.last().copied().unwrap_or(0);
        ends.extend(cut_points(&data[start..], true).into_iter().map(|end| start + end));
        prop_assert_eq!(ends, cut_points(&data, true));
    }
}

/// The obvious way.
fn zero_runs_by_byte(data: &[u8], minimum: usize) -> Vec<(usize, usize)> {
    let mut runs = Vec::new();
    let mut start = 0;
    for end in 0..=data.len() {
        if end == data.len() || data[end] != 0 {
            if end - start >= minimum.max(1) {
                runs.push((start, end - start));
            }
            start = end + 1;
        }
    }
    runs
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn zero_runs_are_found_as_a_byte_by_byte_search_finds_them(
        parts in prop::collection::vec((any::<bool>(), 0usize..400), 0..20),
        minimum in 0usize..300,
    ) {
        let data: Vec<u8> = parts.iter().flat_map(|(zero, length)| std::iter::repeat_n(u8::from(!zero), *length)).collect();
        prop_assert_eq!(zero_runs(&data, minimum), zero_runs_by_byte(&data, minimum));
    }
}

/// A table of the test's own, as a store's key would give one.
fn gear(seed: u64) -> Gear {
    Gear::from_bytes(noise(2048, seed).as_slice().try_into().unwrap())
}

#[test]
fn cut_points_with_a_key_have_not_drifted() {
    assert_eq!(
        cut_points_with(&gear(7), &noise(8 << 20, 42), true),
        GOLDEN_WITH_A_KEY
    );
}

const GOLDEN_WITH_A_KEY: [usize; 14] = [
    548415, 1378434, 1928691, 2561398, 3168827, 3802959, 4361428, 5175172, 5725753, 6406219,
    6964191, 7662561, 8185675, 8388608,
];

#[test]
fn another_key_cuts_elsewhere() {
    let data = noise(32 << 20, 5);
    let plain = cut_points(&data, true);
    let one = cut_points_with(&gear(1), &data, true);
    let other = cut_points_with(&gear(2), &data, true);
    let shared = |a: &[usize], b: &[usize]| a.iter().filter(|end| b.contains(end)).count();
    assert_eq!(shared(&plain, &one), 1, "the end of the data alone");
    assert_eq!(shared(&one, &other), 1, "the end of the data alone");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn with_a_key_sizes_hold_and_more_bytes_move_no_final_end(
        length in 1usize..(6 << 20), known in 0usize..(6 << 20), seed in any::<u64>(),
    ) {
        let (data, gear) = (content(length, seed), gear(seed));
        let ends = cut_points_with(&gear, &data, true);
        prop_assert_eq!(*ends.last().unwrap(), length);
        let mut start = 0;
        for &end in &ends {
            prop_assert!(end - start <= MAX_BYTES && (end - start >= MIN_BYTES || end == length));
            start = end;
        }
        let settled = cut_points_with(&gear, &data[..known.min(length)], false);
        prop_assert!(ends.starts_with(&settled));
    }
}
