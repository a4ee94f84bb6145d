//! A disk that takes no more. The limit is of the whole process, so this test has one of its own.

use std::fs;

use cowfs_cache::ChunkCache;

/// Bytes that look like a hash, and differ for each number.
fn hash(number: u64) -> [u8; 32] {
    std::array::from_fn(|place| {
        let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed.rotate_left(place as u32 * 7) >> 24) as u8
    })
}

fn chunk(number: u64) -> Vec<u8> {
    let length = [10, 3000, 70_000, 200_000][number as usize % 4] + number as usize;
    (0..length)
        .map(|at| (at as u64 * 7 + number * 131) as u8)
        .collect()
}

/// Whether the chunk is here; never with other bytes than its own.
fn is_here(cache: &ChunkCache, number: u64) -> bool {
    let expected = chunk(number);
    let mut found = vec![0; expected.len()];
    let is_here = cache.read_into(&hash(number), expected.len() as u64, 0, &mut found);
    assert!(
        !is_here || found == expected,
        "chunk {number} has other bytes"
    );
    is_here
}

fn insert(cache: &ChunkCache, number: u64) {
    cache.insert(&hash(number), &chunk(number));
}

#[test]
fn a_full_disk_costs_what_was_not_written_yet() {
    let dir = tempfile::tempdir().unwrap();
    let cache = ChunkCache::open(dir.path(), 4 << 20);
    (0..20).for_each(|number| insert(&cache, number));
    cache.flush();
    // Files cannot grow beyond this: as on a full disk, some bytes of a batch are written and then
    // none.
    let segment = fs::read_dir(dir.path().join("segments")).unwrap();
    let longest = segment
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .max();
    let limited = limit_files(longest.unwrap() + 100_000);
    (20..200).for_each(|number| insert(&cache, number));
    cache.flush();
    assert!(is_here(&cache, 199), "what came last is in memory");
    let other = ChunkCache::open(dir.path(), 0);
    assert!((0..20).all(|number| is_here(&other, number)));
    (20..200).for_each(|number| _ = is_here(&other, number));
    drop(limited);
    (200..220).for_each(|number| insert(&cache, number));
    cache.flush();
    other.trim(1 << 30);
    assert!(
        (200..220)
            .chain(0..20)
            .all(|number| is_here(&other, number))
    );
    (0..220).for_each(|number| _ = is_here(&other, number));
}

struct Limited(rustix::process::Rlimit);

fn limit_files(bytes: u64) -> Limited {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // SAFETY: no handler is set, the signal of too long a file is ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let before = getrlimit(Resource::Fsize);
    let limit = Rlimit {
        current: Some(bytes),
        maximum: before.maximum,
    };
    setrlimit(Resource::Fsize, limit).unwrap();
    Limited(before)
}

impl Drop for Limited {
    fn drop(&mut self) {
        rustix::process::setrlimit(rustix::process::Resource::Fsize, self.0).unwrap();
    }
}
