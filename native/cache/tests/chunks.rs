//! The cache on a real directory, damaged, trimmed and shared.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use cowfs_cache::{ChunkCache, Part, Whole};
use proptest::prelude::*;

fn hash(number: u64) -> [u8; 32] {
    let mut hash = [0; 32];
    hash[..8].copy_from_slice(&number.to_be_bytes());
    hash[31] = 1;
    hash
}

/// Files of the segments, those with this ending.
fn segment_files(dir: &Path, ending: &str) -> Vec<PathBuf> {
    let found = fs::read_dir(dir.join("segments")).into_iter().flatten();
    let found = found.map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = found
        .filter(|path| path.extension().is_some_and(|is| is == ending))
        .collect();
    found.sort();
    found
}

fn age(path: &Path, age_s: u64) {
    let before = SystemTime::now() - Duration::from_secs(age_s);
    fs::File::open(path).unwrap().set_modified(before).unwrap();
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 31 % 251) as u8).collect()
}

#[test]
fn what_was_inserted_comes_back_also_in_another_process() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("made/lazily");
    for (number, length) in [(1, 0), (2, 1), (3, 1000), (4, 2 << 20)] {
        let data = bytes(length);
        let writer = ChunkCache::open(&dir, 64 << 20);
        assert!(writer.get(&hash(number), length as u64).is_none());
        writer.insert(&hash(number), &data);
        writer.flush();
        // Another instance has nothing in memory, one without memory reads the disk each time.
        for cache in [
            writer,
            ChunkCache::open(&dir, 64 << 20),
            ChunkCache::open(&dir, 0),
        ] {
            assert!(cache.contains(&hash(number), length as u64));
            for _ in 0..2 {
                let mut part = vec![0; length / 3];
                assert!(cache.read_into(
                    &hash(number),
                    length as u64,
                    length as u64 / 2,
                    &mut part
                ));
                assert_eq!(part, data[length / 2..][..length / 3]);
            }
            assert_eq!(&cache.get(&hash(number), length as u64).unwrap()[..], data);
            let mut too_long = vec![0; length + 1];
            assert!(!cache.read_into(&hash(number), length as u64, 0, &mut too_long));
            assert!(!cache.read_into(&hash(number), length as u64, u64::MAX, &mut [0; 2]));
        }
    }
}

#[test]
fn another_length_is_another_chunk() {
    let dir = tempfile::tempdir().unwrap();
    let cache = ChunkCache::open(dir.path(), 1 << 20);
    cache.insert(&hash(1), &bytes(100));
    for wrong in [0, 99, 101, 108, u64::MAX] {
        assert!(!cache.contains(&hash(1), wrong));
        assert!(!cache.read_into(&hash(1), wrong, 0, &mut []) || wrong == 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_was_damaged_is_given_out(
        length in prop_oneof![0usize..300, Just(100_000usize)],
        at in any::<prop::sample::Index>(),
        kind in 0u8..4,
        is_index in any::<bool>(),
        through_read in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let data = bytes(length);
        {
            let cache = ChunkCache::open(dir.path(), 0);
            cache.insert(&hash(1), &data);
            cache.insert(&hash(2), &data);
        }
        let file = segment_files(dir.path(), if is_index { "index" } else { "data" }).remove(0);
        let mut stored = fs::read(&file).unwrap();
        let at = at.index(stored.len().max(1));
        match kind {
            0 if !stored.is_empty() => stored[at] ^= 1,
            1 => stored.truncate(at),
            2 => stored.push(0),
            _ => stored.fill(0),
        }
        fs::write(&file, &stored).unwrap();
        let cache = ChunkCache::open(dir.path(), 1 << 20);
        for number in [1, 2] {
            let mut buffer = vec![0; length];
            let is_read = if through_read {
                cache.read_into(&hash(number), length as u64, 0, &mut buffer)
            } else {
                cache.get(&hash(number), length as u64).is_some_and(|found| {
                    buffer.copy_from_slice(&found);
                    true
                })
            };
            prop_assert!(!is_read || buffer == data);
            if !is_read {
                cache.insert(&hash(number), &data);
            }
        }
        drop(cache);
        let again = ChunkCache::open(dir.path(), 0);
        for number in [1, 2] {
            let mut buffer = vec![0; length];
            prop_assert!(again.read_into(&hash(number), length as u64, 0, &mut buffer));
            prop_assert!(buffer == data);
        }
    }
}

#[test]
fn without_a_disk_chunks_live_in_memory() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a file");
    fs::write(&file, b"in the way").unwrap();
    let cache = ChunkCache::open(&file.join("cache"), 1 << 20);
    cache.insert(&hash(1), &bytes(1000));
    assert_eq!(&cache.get(&hash(1), 1000).unwrap()[..], bytes(1000));
    assert_eq!(cache.trim(0), 0);
    for number in 2..3000 {
        cache.insert(&hash(number), &bytes(1000));
    }
    assert!(cache.get(&hash(1), 1000).is_none(), "memory has no limit");
}

/// Fills segments of 256 KiB, each with four chunks.
fn fill(dir: &Path, numbers: impl Iterator<Item = u64>) {
    let cache = ChunkCache::open(dir, 0);
    cache.trim(1 << 20); // says how long segments are
    for number in numbers {
        cache.insert(&hash(number), &vec![number as u8; 65_536]);
        if number % 4 == 3 {
            cache.flush();
        }
    }
}

fn left(cache: &ChunkCache, numbers: impl Iterator<Item = u64>) -> Vec<u64> {
    numbers
        .filter(|number| {
            let mut buffer = vec![0; 65_536];
            let is_here = cache.read_into(&hash(*number), 65_536, 0, &mut buffer);
            assert!(!is_here || buffer == vec![*number as u8; 65_536]);
            is_here
        })
        .collect()
}

#[test]
fn trimming_deletes_the_oldest_segments() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), 0..40);
    let segments = segment_files(dir.path(), "data");
    assert_eq!(segments.len(), 10);
    for (number, path) in segments.iter().enumerate() {
        age(path, 7200 - number as u64);
    }
    let cache = ChunkCache::open(dir.path(), 0);
    let held = cache.held_bytes();
    assert!((10 << 18..11 << 18).contains(&held));
    assert_eq!(
        (cache.trim(held), segment_files(dir.path(), "data").len()),
        (0, 10)
    );
    assert!(cache.trim(held - 1) > 0);
    assert_eq!(left(&cache, 0..40), (4..40).collect::<Vec<_>>());
    assert!(cache.free(300_000) > 300_000);
    assert_eq!(left(&cache, 0..40), (12..40).collect::<Vec<_>>());
    assert!(cache.trim(0) > 7 << 18);
    assert_eq!((left(&cache, 0..40), cache.held_bytes()), (vec![], 0));
    assert!(segment_files(dir.path(), "index").is_empty());
}

#[test]
fn readers_of_a_segment_that_another_process_deletes_miss() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), 0..8);
    let (reader, other) = (
        ChunkCache::open(dir.path(), 0),
        ChunkCache::open(dir.path(), 0),
    );
    assert_eq!(left(&reader, 0..8).len(), 8);
    other.free(1 << 30);
    assert!(left(&reader, 0..8).is_empty());
    reader.insert(&hash(3), &[3; 65_536]);
    reader.flush();
    other.trim(1 << 20);
    assert_eq!(left(&other, 0..8), [3]);
}

#[test]
fn a_segment_that_is_deleted_under_its_writer_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let (writer, other) = (
        ChunkCache::open(dir.path(), 4 << 20),
        ChunkCache::open(dir.path(), 0),
    );
    for number in 0..20 {
        writer.insert(&hash(number), &vec![number as u8; 65_536]);
    }
    assert!(other.free(1 << 30) > 0);
    for number in 20..40 {
        writer.insert(&hash(number), &vec![number as u8; 65_536]);
    }
    writer.flush();
    other.trim(1 << 30);
    let found = left(&other, 0..40);
    assert!(found.contains(&39) && !found.contains(&0));
}

#[test]
fn threads_insert_and_flush_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let cache = ChunkCache::open(dir.path(), 4 << 20);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let cache = &cache;
            scope.spawn(move || {
                for number in (0..400).map(|number| number * 4 + thread) {
                    cache.insert(&hash(number), &bytes(3000));
                    cache.flush();
                    assert!(cache.get(&hash(number), 3000).unwrap()[..] == bytes(3000));
                }
            });
        }
    });
    let other = ChunkCache::open(dir.path(), 0);
    assert!((0..1600).all(|number| other.contains(&hash(number), 3000)));
}

#[test]
fn two_writers_never_share_a_segment() {
    let dir = tempfile::tempdir().unwrap();
    let writers = [0, 1].map(|_| ChunkCache::open(dir.path(), 1 << 20));
    for number in 0..40u64 {
        let data = vec![number as u8; 200_000]; // more than half of a slab
        writers[number as usize % 2].insert(&hash(number), &data);
    }
    drop(writers);
    let cache = ChunkCache::open(dir.path(), 0);
    for number in 0..40u64 {
        let found = cache.get(&hash(number), 200_000).unwrap();
        assert!(found.iter().all(|byte| *byte == number as u8));
    }
}

#[test]
fn what_a_dead_process_left_is_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let insert = |numbers: std::ops::Range<u64>| {
        let cache = ChunkCache::open(dir.path(), 0);
        numbers.for_each(|number| cache.insert(&hash(number), &bytes(9000)));
    };
    insert(0..2);
    let index = segment_files(dir.path(), "index").remove(0);
    // Its last record is torn.
    let whole = fs::read(&index).unwrap();
    fs::write(&index, &whole[..whole.len() - 1]).unwrap();
    insert(1..4);
    assert_eq!(segment_files(dir.path(), "index"), [index]);
    let cache = ChunkCache::open(dir.path(), 0);
    for number in 0..4 {
        assert!(cache.get(&hash(number), 9000).unwrap()[..] == bytes(9000));
    }
}

#[test]
fn chunks_of_the_earlier_format_are_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let chunk = dir.path().join("ab").join("ab".repeat(32));
    fs::create_dir_all(chunk.parent().unwrap()).unwrap();
    fs::write(&chunk, b"x").unwrap();
    fs::write(dir.path().join("ab/mine"), b"x").unwrap();
    ChunkCache::open(dir.path(), 0).trim(1 << 30);
    assert!(!chunk.exists() && dir.path().join("ab/mine").exists());
}

#[test]
fn whole_files_and_blocks_are_in_the_same_account() {
    let dir = tempfile::tempdir().unwrap();
    let cache = ChunkCache::open(dir.path(), 0);
    for number in 0..30u64 {
        let name: String = hash(number).iter().map(|b| format!("{b:02x}")).collect();
        let place = ["whole", "blocks"][number as usize % 2];
        let folder = dir.path().join(place).join(&name[..2]);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(&name), bytes(1000)).unwrap();
        age(&folder.join(&name), 7200 - number);
    }
    let left = || {
        let places = ["whole", "blocks"].map(|place| dir.path().join(place));
        let folders = places
            .into_iter()
            .flat_map(|place| fs::read_dir(place).unwrap());
        let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
        let files = files.filter(|file| file.as_ref().unwrap().file_name().len() == 64);
        files.count() as u64
    };
    assert_eq!((cache.trim(30_000), left()), (0, 30));
    // Everything of one age goes in its order, and room is made for the next chunks.
    assert_eq!((cache.trim(16_000), left()), (15_000, 15));
    assert_eq!((cache.trim(16_000), left()), (0, 15));
    assert_eq!((cache.free(1), left()), (1000, 14));
    // Chunks read once go before used ones, down to an eighth.
    fill(dir.path(), 0..4);
    assert!(cache.trim(16_000) > 1 << 18);
    assert_eq!(left(), 14);
    assert_eq!((cache.trim(0), left()), (14_000, 0));
}

#[test]
fn threads_and_instances_share_a_directory_that_is_trimmed_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let dir = dir.path();
            scope.spawn(move || {
                let cache = ChunkCache::open(dir, 200_000);
                for i in 0..600u64 {
                    let number = (i * 7 + thread) % 40;
                    let data = vec![number as u8; 1000 + number as usize * 4000];
                    let length = data.len() as u64;
                    let mut part = vec![0; 500];
                    if cache.read_into(&hash(number), length, 400, &mut part) {
                        assert_eq!(part, vec![number as u8; 500]);
                    } else {
                        cache.insert(&hash(number), &data);
                    }
                    if let Some(found) = cache.get(&hash(number), length) {
                        assert_eq!(&found[..], data);
                    }
                    if i % 20 == 0 {
                        cache.flush();
                    }
                    if i % 50 == 0 {
                        cache.trim(1_000_000);
                    }
                }
            });
        }
    });
}

#[test]
fn open_segments_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let before = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let limit = |current| {
        let limit = rustix::process::Rlimit {
            current,
            maximum: before.maximum,
        };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    };
    limit(Some(512));
    let cache = ChunkCache::open(dir.path(), 0);
    limit(before.current);
    fill(dir.path(), 0..600);
    assert_eq!(left(&cache, 0..600).len(), 600);
    let prefix = dir.path().canonicalize().unwrap();
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let count = open
        .filter(|fd| {
            fs::read_link(fd.as_ref().unwrap().path()).is_ok_and(|to| to.starts_with(&prefix))
        })
        .count();
    assert!(count <= 128 && count > 100, "{count} open files");
}

#[test]
fn whole_files_are_assembled_from_what_is_here_and_trimmed_with_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let cache = ChunkCache::open(dir.path(), 0);
    let part = |number, offset, length, skip| Part {
        offset,
        length,
        hash: hash(number),
        raw_len: 300_000,
        skip,
    };
    let parts = vec![part(1, 0, 300_000, 0), part(2, 400_000, 100_000, 50_000)];
    let whole = Whole::new(1 << 20, parts.clone());
    let files = || {
        let all = fs::read_dir(dir.path().join("whole")).into_iter().flatten();
        all.flat_map(|first| fs::read_dir(first.unwrap().path()).unwrap())
            .count()
    };
    cache.insert(&hash(1), &bytes(300_000));
    assert!(!cache.may_assemble(&whole) && !cache.assemble(&whole));
    cache.insert(&hash(2), &bytes(300_000));
    cache.flush();
    // Damaged: found out on the way, and nothing is left behind.
    let data = segment_files(dir.path(), "data").remove(0);
    let good = fs::read(&data).unwrap();
    let mut bad = good.clone();
    bad[400_000] ^= 1;
    fs::write(&data, bad).unwrap();
    let fresh = ChunkCache::open(dir.path(), 0);
    assert!(fresh.may_assemble(&whole) && !fresh.assemble(&whole));
    assert_eq!(files(), 0);
    fs::write(&data, &good).unwrap();
    let fresh = ChunkCache::open(dir.path(), 0);
    assert!(fresh.assemble(&whole) && fresh.assemble(&whole));
    let mut expected = vec![0; 1 << 20];
    expected[..300_000].copy_from_slice(&bytes(300_000));
    expected[400_000..500_000].copy_from_slice(&bytes(300_000)[50_000..150_000]);
    let mut found = Vec::new();
    std::io::Read::read_to_end(&mut fresh.whole(&whole).unwrap(), &mut found).unwrap();
    assert!(found == expected);
    for other in [
        Whole::new((1 << 20) + 1, parts.clone()),
        Whole::new(1 << 20, parts[..1].to_vec()),
        Whole::new(
            1 << 20,
            vec![parts[0].clone(), part(2, 400_000, 100_000, 50_001)],
        ),
    ] {
        assert!(fresh.whole(&other).is_none());
    }
    let mut kept = fresh.whole(&whole).unwrap();
    assert!(fresh.trim(0) >= 1 << 20);
    assert_eq!(files(), 0);
    assert!(fresh.whole(&whole).is_none());
    found.clear();
    std::io::Read::read_to_end(&mut kept, &mut found).unwrap();
    assert!(found == expected, "who has it open keeps it");
}

#[test]
fn a_whole_file_that_was_damaged_is_not_handed_out() {
    let dir = tempfile::tempdir().unwrap();
    let parts = vec![Part {
        offset: 0,
        length: 300_000,
        hash: hash(1),
        raw_len: 300_000,
        skip: 0,
    }];
    let whole = Whole::new(300_000, parts);
    let cache = ChunkCache::open(dir.path(), 0);
    cache.insert(&hash(1), &bytes(300_000));
    cache.flush();
    let file = || {
        let mut found = fs::read_dir(dir.path().join("whole"))
            .unwrap()
            .flat_map(|first| fs::read_dir(first.unwrap().path()).unwrap())
            .map(|entry| entry.unwrap().path());
        (found.next(), found.next())
    };
    assert!(!cache.is_unchecked(&whole) && cache.assemble(&whole));
    let (Some(path), None) = file() else {
        panic!("one file")
    };
    // Who assembled it, or has checked it, hands it out.
    assert!(cache.whole(&whole).is_some());
    let other = ChunkCache::open(dir.path(), 0);
    assert!(other.is_unchecked(&whole) && other.whole(&whole).is_none());
    assert!(other.assemble(&whole) && !other.is_unchecked(&whole));
    assert!(other.whole(&whole).is_some());
    let damages: [fn(&mut Vec<u8>); 4] = [
        |data| data[150_000] ^= 1,
        |data| data[299_999] ^= 1,
        |data| data.truncate(299_000),
        |data| data.push(0),
    ];
    for damage in damages {
        let mut data = fs::read(&path).unwrap();
        damage(&mut data);
        fs::write(&path, data).unwrap();
        let other = ChunkCache::open(dir.path(), 0);
        assert!(other.whole(&whole).is_none());
        assert!(other.assemble(&whole), "anew");
        let mut found = Vec::new();
        std::io::Read::read_to_end(&mut other.whole(&whole).unwrap(), &mut found).unwrap();
        assert!(found == bytes(300_000));
    }
    // Its chunks are gone.
    fs::remove_dir_all(dir.path().join("segments")).unwrap();
    let other = ChunkCache::open(dir.path(), 0);
    assert!(!other.may_assemble(&whole) && other.assemble(&whole));
    fs::write(&path, vec![0; 300_000]).unwrap();
    let other = ChunkCache::open(dir.path(), 0);
    assert!(other.is_unchecked(&whole) && !other.assemble(&whole));
    assert!(other.whole(&whole).is_none() && file().0.is_none());
    // One without a sum, of an earlier format, is not handed out, but counts.
    let earlier = path.with_extension("");
    fs::write(&earlier, bytes(300_000)).unwrap();
    let other = ChunkCache::open(dir.path(), 0);
    assert!(!other.is_unchecked(&whole) && !other.assemble(&whole));
    assert!(other.held_bytes() >= 300_000 && other.trim(0) >= 300_000);
    assert!(file().0.is_none());
}
