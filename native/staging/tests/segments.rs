//! Segments on a real file system: appended bytes read back, limits hold, numbers are not used
//! twice.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;

use cowfs_staging::{Location, SEGMENT_BYTES, Staging, crc_of};
use proptest::prelude::*;

const ENOSPC: i32 = 28;
const EIO: i32 = 5;

/// Reads appended bytes, after noting their checksum as recovery does from the journal: a segment
/// of an earlier process is read against it.
fn read(staging: &Staging, location: Location, length: usize) -> Vec<u8> {
    staging.note(
        location.segment,
        location.offset,
        length as u64,
        location.crc,
    );
    let mut bytes = vec![0; length];
    staging
        .read_at(location.segment, location.offset, &mut bytes)
        .unwrap();
    bytes
}

fn sync_all(staging: &Staging) {
    for (segment, _) in staging.segments() {
        staging.sync(segment).unwrap();
    }
}

#[test]
fn appended_bytes_read_back_also_in_the_next_process() {
    let dir = tempfile::tempdir().unwrap();
    let staging = Staging::open(&dir.path().join("deep/er"), 0, SEGMENT_BYTES).unwrap();
    assert_eq!(
        (staging.segments(), staging.current_segment()),
        (vec![], None)
    );
    let small = staging.append(b"hello").unwrap();
    let page = staging.append(&[9; 4096]).unwrap();
    let next_page = staging.append(&[8; 8192]).unwrap();
    assert_eq!(
        (small.offset, page.offset, next_page.offset),
        (0, 4096, 8192)
    );
    assert_eq!(small.crc, crc32c::crc32c(b"hello"));
    assert_eq!(staging.segments(), [(small.segment, 16384)]);
    assert_eq!(staging.current_segment(), Some(small.segment));
    staging.sync(small.segment).unwrap();
    drop(staging);

    let staging = Staging::open(&dir.path().join("deep/er"), 0, SEGMENT_BYTES).unwrap();
    assert_eq!(staging.segments(), [(small.segment, 16384)]);
    assert_eq!(read(&staging, small, 5), b"hello");
    assert_eq!(read(&staging, next_page, 8192), [8; 8192]);
    sync_all(&staging);
    let fresh = staging.append(b"again").unwrap();
    assert!(
        fresh.segment > small.segment,
        "an old segment was appended to"
    );
}

#[test]
fn reading_what_is_not_there_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let staging = Staging::open(dir.path(), 0, SEGMENT_BYTES).unwrap();
    let location = staging.append(b"hello").unwrap();
    let mut buffer = [0; 6];
    for (segment, offset) in [
        (location.segment, 0),
        (location.segment, 1 << 40),
        (location.segment + 1, 0),
    ] {
        let error = staging.read_at(segment, offset, &mut buffer).unwrap_err();
        // An error number, or the reason why the written bytes are lost.
        assert!(matches!(error.raw_os_error(), None | Some(EIO)), "{error}");
    }
    assert_eq!(
        staging.sync(location.segment + 1).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    staging.remove(location.segment + 1).unwrap();
}

#[test]
fn verify_tells_whole_bytes_from_others() {
    let dir = tempfile::tempdir().unwrap();
    let staging = Staging::open(dir.path(), 0, SEGMENT_BYTES).unwrap();
    let data: Vec<u8> = (0..3_000_000u32).map(|i| i as u8).collect();
    let at = staging.append(&data).unwrap();
    let length = data.len() as u64;
    assert!(
        staging
            .verify(at.segment, at.offset, length, at.crc)
            .unwrap()
    );
    assert!(staging.verify(at.segment, at.offset, 0, 0).unwrap());
    assert!(
        !staging
            .verify(at.segment, at.offset, length, at.crc ^ 1)
            .unwrap()
    );
    assert!(
        !staging
            .verify(at.segment, at.offset, length + 1, at.crc)
            .unwrap()
    );
    assert!(!staging.verify(at.segment, u64::MAX, 2, at.crc).unwrap());
    assert!(!staging.verify(at.segment, 0, u64::MAX, at.crc).unwrap());
    assert!(
        !staging
            .verify(at.segment + 1, at.offset, length, at.crc)
            .unwrap()
    );
    std::fs::OpenOptions::new()
        .write(true)
        .open(dir.path().join(format!("{:016x}.seg", at.segment)))
        .unwrap()
        .set_len(2_000_000)
        .unwrap();
    assert!(
        !staging
            .verify(at.segment, at.offset, length, at.crc)
            .unwrap()
    );
}

#[test]
fn a_full_limit_is_enospc_at_the_call_and_ends_when_space_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let staging = Staging::open(dir.path(), 1 << 20, SEGMENT_BYTES).unwrap();
    assert!(staging.free_bytes() <= 1 << 20);
    let first = staging.append(&vec![1; 700 << 10]).unwrap();
    assert_eq!(
        staging
            .append(&vec![2; 400 << 10])
            .unwrap_err()
            .raw_os_error(),
        Some(ENOSPC)
    );
    assert_eq!(
        staging
            .append(&vec![2; 65 << 20])
            .unwrap_err()
            .raw_os_error(),
        Some(ENOSPC)
    );
    assert_eq!(staging.segments(), [(first.segment, 700 << 10)]);
    assert_eq!(
        staging.current_segment(),
        None,
        "a full segment can't be removed"
    );
    let second = staging.append(&vec![3; 200 << 10]).unwrap();
    staging.remove(first.segment).unwrap();
    let third = staging.append(&vec![4; 700 << 10]).unwrap();
    assert_eq!(read(&staging, second, 200 << 10), vec![3; 200 << 10]);
    assert_eq!(read(&staging, third, 700 << 10), vec![4; 700 << 10]);
    assert!(staging.free_bytes() <= 124 << 10);
    // What another process left counts as well.
    drop(staging);
    let staging = Staging::open(dir.path(), 1 << 20, SEGMENT_BYTES).unwrap();
    assert_eq!(
        staging
            .append(&vec![5; 200 << 10])
            .unwrap_err()
            .raw_os_error(),
        Some(ENOSPC)
    );
    staging.append(&vec![5; 50 << 10]).unwrap();
}

#[test]
fn long_writes_get_a_segment_and_leave_the_current_one() {
    let dir = tempfile::tempdir().unwrap();
    let staging = Staging::open(dir.path(), 0, SEGMENT_BYTES).unwrap();
    let small = staging.append(b"small").unwrap();
    let long = staging
        .append(&vec![7; SEGMENT_BYTES as usize + 1])
        .unwrap();
    let behind = staging.append(b"behind").unwrap();
    assert_eq!(
        (small.segment, small.offset + 5),
        (behind.segment, behind.offset)
    );
    assert_eq!((long.segment, long.offset), (small.segment + 1, 0));
    let full = staging.append(&vec![6; SEGMENT_BYTES as usize]).unwrap();
    assert_eq!(full.segment, long.segment + 1);
    assert!(
        staging
            .verify(long.segment, 0, SEGMENT_BYTES + 1, long.crc)
            .unwrap()
    );
    assert_eq!(staging.append(b"x").unwrap().segment, full.segment + 1);
}

#[test]
fn a_removed_number_never_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut seen = HashSet::new();
    for _ in 0..4 {
        let staging = Staging::open(dir.path(), 0, SEGMENT_BYTES).unwrap();
        for _ in 0..3 {
            let location = staging.append(b"x").unwrap();
            assert!(seen.insert(location.segment));
            staging.remove(location.segment).unwrap();
            assert_eq!(
                (staging.segments(), staging.current_segment()),
                (vec![], None)
            );
        }
    }
}

#[test]
fn space_of_closed_segments_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let staging = Staging::open(dir.path(), 0, SEGMENT_BYTES).unwrap();
    let small = staging.append(b"small").unwrap();
    staging.append(&vec![0; SEGMENT_BYTES as usize]).unwrap();
    let found = std::fs::metadata(dir.path().join(format!("{:016x}.seg", small.segment))).unwrap();
    assert!(
        found.blocks() * 512 < 1 << 20,
        "{} blocks for 5 bytes",
        found.blocks()
    );
}

#[test]
fn files_of_idle_segments_are_closed() {
    let dir = tempfile::tempdir().unwrap();
    let staging = Staging::open(dir.path(), 0, SEGMENT_BYTES).unwrap();
    let first = staging.append(b"1").unwrap().segment;
    drop(staging);
    for number in 1..400u64 {
        std::fs::write(
            dir.path().join(format!("{:016x}.seg", first + number)),
            number.to_le_bytes(),
        )
        .unwrap();
    }
    let staging = Staging::open(dir.path(), 0, SEGMENT_BYTES).unwrap();
    let mut buffer = [0; 8];
    for _ in 0..2 {
        for number in 1..400u64 {
            staging.note(first + number, 0, 8, crc_of(&number.to_le_bytes()));
            staging.read_at(first + number, 0, &mut buffer).unwrap();
            assert_eq!(u64::from_le_bytes(buffer), number);
        }
    }
    let prefix = dir.path().canonicalize().unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let ours = open.filter(|fd| {
        std::fs::read_link(fd.as_ref().unwrap().path()).is_ok_and(|to| to.starts_with(&prefix))
    });
    let count = ours.count();
    assert!(count <= 130, "{count} open files");
}

#[test]
fn many_threads_append_sync_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let staging = Staging::open(dir.path(), 0, SEGMENT_BYTES).unwrap();
    let ranges = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..6u8 {
            let (staging, ranges) = (&staging, &ranges);
            scope.spawn(move || {
                for i in 0..300usize {
                    let length = (i * 7919 + usize::from(thread) * 104_729) % 200_000;
                    let data = vec![thread ^ i as u8; length];
                    let at = staging.append(&data).unwrap();
                    if i % 50 == 0 {
                        staging.sync(at.segment).unwrap();
                    }
                    assert_eq!(read(staging, at, length), data);
                    ranges
                        .lock()
                        .unwrap()
                        .push((at.segment, at.offset, length as u64, at.crc));
                }
            });
        }
    });
    sync_all(&staging);
    let mut ranges = ranges.into_inner().unwrap();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        assert!(
            pair[0].0 < pair[1].0 || pair[0].1 + pair[0].2 <= pair[1].1,
            "{pair:?} overlap"
        );
    }
    let again = Staging::open(dir.path(), 0, SEGMENT_BYTES).unwrap();
    assert!(ranges.iter().all(|&(segment, offset, length, crc)| {
        again.verify(segment, offset, length, crc).unwrap()
    }));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Appends, removals and restarts beside a model that keeps every byte.
    #[test]
    fn staging_behaves_like_a_list_of_writes(
        limit in prop_oneof![Just(0u64), Just(300_000u64)],
        steps in prop::collection::vec((0u8..10, 0usize..90_000), 1..60),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let mut staging = Staging::open(dir.path(), limit, SEGMENT_BYTES).unwrap();
        let mut written: Vec<(Location, Vec<u8>)> = Vec::new();
        for (index, (action, size)) in steps.into_iter().enumerate() {
            match action {
                0 => { drop(staging); staging = Staging::open(dir.path(), limit, SEGMENT_BYTES).unwrap(); }
                1 => if let Some((segment, _)) = staging.segments().first().copied() {
                    staging.remove(segment).unwrap();
                    written.retain(|(location, _)| location.segment != segment);
                },
                _ => {
                    let data = vec![index as u8 + 1; size];
                    match staging.append(&data) {
                        Ok(location) => written.push((location, data)),
                        Err(error) => prop_assert!(limit > 0 && error.raw_os_error() == Some(ENOSPC)),
                    }
                }
            }
            let held: u64 = staging.segments().iter().map(|(_, bytes)| bytes).sum();
            prop_assert!(limit == 0 || held <= limit);
        }
        for (location, data) in &written {
            prop_assert_eq!(&read(&staging, *location, data.len()), data);
        }
    }
}

/// Files of removed segments, by name.
fn spares(dir: &std::path::Path) -> Vec<String> {
    let names = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".spare")).collect()
}

#[test]
fn a_removed_segments_file_is_used_again_under_another_number() {
    const SHORT: u64 = 64 << 10;
    let dir = tempfile::tempdir().unwrap();
    let staging = Staging::open(dir.path(), 0, SHORT).unwrap();
    let old = staging.append(&[1; SHORT as usize]).unwrap();
    let next = staging.append(&[2; SHORT as usize]).unwrap();
    staging.remove(old.segment).unwrap();
    assert_eq!(spares(dir.path()).len(), 1);
    let new = staging.append(&[3; 8192]).unwrap();
    assert!(spares(dir.path()).is_empty());
    assert!(new.segment > next.segment);
    assert_eq!(
        staging
            .read_at(old.segment, 0, &mut [0; 1])
            .unwrap_err()
            .raw_os_error(),
        Some(EIO)
    );
    assert_eq!(read(&staging, new, 8192), [3; 8192]);
    // The old segment's bytes there belong to neither number: no record of either is valid for
    // them.
    let rest = SHORT - 8192;
    let crc = crc32c::crc32c(&vec![1; rest as usize]);
    assert!(!staging.verify(old.segment, 8192, rest, crc).unwrap());
    assert!(!staging.verify(new.segment, 0, SHORT, old.crc).unwrap());
    staging.sync(new.segment).unwrap();
}

#[test]
fn spares_are_few_count_as_used_and_make_room() {
    const SHORT: u64 = 64 << 10;
    let dir = tempfile::tempdir().unwrap();
    let staging = Staging::open(dir.path(), 10 * SHORT, SHORT).unwrap();
    let full = [1; SHORT as usize];
    let segments: Vec<_> = (0..9).map(|_| staging.append(&full).unwrap()).collect();
    for location in &segments[..8] {
        staging.remove(location.segment).unwrap();
    }
    assert_eq!(spares(dir.path()).len(), 4);
    assert_eq!(staging.free_bytes(), 9 * SHORT);
    // Longer than a segment, so that no spare will do: they go.
    staging.append(&vec![2; 8 * SHORT as usize]).unwrap();
    assert!(spares(dir.path()).is_empty());
    staging.remove(segments[8].segment).unwrap();
    assert_eq!(staging.remove_spares(), 0, "it was the current one");
    drop(staging);
    std::fs::write(dir.path().join("0000000000000001.spare"), b"left").unwrap();
    Staging::open(dir.path(), 0, SHORT).unwrap();
    assert!(spares(dir.path()).is_empty());
}

#[test]
fn what_a_killed_process_had_allocated_in_advance_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let staging = Staging::open(dir.path(), 0, SEGMENT_BYTES).unwrap();
    let place = staging.append(&[1; 5000]).unwrap();
    let path = dir.path().join(format!("{:016x}.seg", place.segment));
    let allocated = || path.metadata().unwrap().blocks() * 512;
    assert!(allocated() > 1 << 20);
    std::mem::forget(staging);
    let staging = Staging::open(dir.path(), 0, SEGMENT_BYTES).unwrap();
    assert_eq!(allocated(), 8192);
    assert_eq!(read(&staging, place, 5000), [1; 5000]);
}

/// Two numbers of one file: live bytes of one number must not be punched as dead bytes of the
/// other.
#[test]
fn a_file_with_two_numbers_is_neither_punched_nor_numbered_again() {
    let dir = tempfile::tempdir().unwrap();
    let staging = Staging::open(dir.path(), 0, SEGMENT_BYTES).unwrap();
    let first = staging.append(&[1; 65_536]).unwrap();
    let second = staging.append(&[2; 65_536]).unwrap();
    assert_eq!(first.segment, second.segment);
    staging.seal_current();
    let again = staging.link_again(first.segment).unwrap().expect("linked");
    for number in [first.segment, again] {
        assert_eq!(staging.link_again(number).unwrap(), None);
        staging.punch_all_but(number, &[(0, 65_536)]).unwrap();
        assert_eq!(read(&staging, first, 65_536), [1; 65_536]);
        assert_eq!(read(&staging, second, 65_536), [2; 65_536]);
    }
    staging.remove(first.segment).unwrap();
    let occupied_bytes = staging.occupied_bytes(again);
    staging.punch_all_but(again, &[(0, 65_536)]).unwrap();
    assert!(staging.occupied_bytes(again) < occupied_bytes);
    assert!(staging.link_again(again).unwrap().is_some());
}

#[test]
fn a_sum_that_ends_behind_all_offsets_is_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let staging = Staging::open(dir.path(), 0, SEGMENT_BYTES).unwrap();
    let at = staging.append(b"hello").unwrap();
    drop(staging);
    let staging = Staging::open(dir.path(), 0, SEGMENT_BYTES).unwrap();
    staging.note(at.segment, u64::MAX - 1, 10, 0);
    staging.note(at.segment, at.offset, 5, at.crc);
    let mut buffer = [0; 5];
    staging
        .read_checked(at.segment, at.offset, &mut buffer)
        .unwrap();
    assert_eq!(&buffer, b"hello");
}
