//! A disk that takes no more. The limit is of the whole process, so this test has one of its own.

mod support;

use std::fs;

use cowfs_cache::ChunkCache;
use support::{insert, is_here};

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
