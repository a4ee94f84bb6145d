//! Numbered chunks, for tests that fill a cache and check the remaining ones.

use cowfs_cache::ChunkCache;

/// Bytes that look like a hash, and differ for each number.
pub fn hash(number: u64) -> [u8; 32] {
    std::array::from_fn(|place| {
        let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed.rotate_left(place as u32 * 7) >> 24) as u8
    })
}

pub fn chunk(number: u64) -> Vec<u8> {
    let length = [10, 3000, 70_000, 200_000][number as usize % 4] + number as usize;
    (0..length)
        .map(|at| (at as u64 * 7 + number * 131) as u8)
        .collect()
}

/// Whether the chunk is here; never with other bytes than its own.
pub fn is_here(cache: &ChunkCache, number: u64) -> bool {
    let expected = chunk(number);
    let mut found = vec![0; expected.len()];
    let is_here = cache.read_into(&hash(number), expected.len() as u64, 0, &mut found);
    assert!(
        !is_here || found == expected,
        "chunk {number} has other bytes"
    );
    is_here
}

pub fn insert(cache: &ChunkCache, number: u64) {
    cache.insert(&hash(number), &chunk(number));
}
