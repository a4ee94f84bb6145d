//! Descriptors: bytes written without an fsync take a bounded number of them, and a process at its
//! limit can still write.
//!
//! One test only: the limit is the whole process's.

use std::fs::File;

use cowfs_staging::{Location, Staging};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const SEGMENT: u64 = 64 << 10;
const SEGMENTS: usize = 400;

fn limit_descriptors(most: u64) {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(most);
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

fn open_below(dir: &std::path::Path) -> usize {
    let prefix = dir.canonicalize().unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let links = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|to| to.starts_with(&prefix)).count()
}

fn expect_all_there(staging: &Staging, written: &[Location]) {
    for (number, location) in written.iter().enumerate() {
        let mut bytes = vec![0; SEGMENT as usize];
        staging
            .read_at(location.segment, location.offset, &mut bytes)
            .unwrap();
        assert!(bytes == vec![number as u8; SEGMENT as usize]);
    }
}

#[test]
fn unsynced_segments_take_few_descriptors_and_their_limit_stops_nobody() {
    let dir = tempfile::tempdir().unwrap();
    limit_descriptors(64);
    let staging = Staging::open(dir.path(), 0, SEGMENT).unwrap();
    let append = |number: usize| {
        staging
            .append(&vec![number as u8; SEGMENT as usize])
            .unwrap()
    };
    let mut written: Vec<Location> = (0..SEGMENTS).map(append).collect();
    let open = open_below(dir.path());
    assert!(open <= 64 / 8 + 1, "{open} open files, none of them synced");
    expect_all_there(&staging, &written);

    // Other code has taken every other descriptor.
    let others: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(others.len() > 30);
    written.extend((SEGMENTS..2 * SEGMENTS).map(append));
    expect_all_there(&staging, &written);
    for (segment, _) in staging.segments() {
        staging.sync(segment).unwrap();
        assert!(staging.is_synced(segment));
    }
    drop(others);
    limit_descriptors(1024);
}
