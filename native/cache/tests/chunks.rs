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

fn path(dir: &Path, hash: &[u8; 32]) -> PathBuf {
    let name: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    dir.join(&name[..2]).join(name)
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
    fn damage_is_a_miss_and_is_cleared_away(
        length in prop_oneof![0usize..300, Just(100_000usize)],
        at in any::<prop::sample::Index>(),
        kind in 0u8..4,
        through_read in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let data = bytes(length);
        ChunkCache::open(dir.path(), 0).insert(&hash(1), &data);
        let file = path(dir.path(), &hash(1));
        let mut stored = fs::read(&file).unwrap();
        let whole = stored.len();
        let at = at.index(whole);
        match kind {
            0 => stored[at] ^= 1,
            1 => stored.truncate(at),
            2 => stored.push(0),
            _ => stored.fill(0),
        }
        fs::write(&file, &stored).unwrap();
        let cache = ChunkCache::open(dir.path(), 1 << 20);
        let mut buffer = vec![0; length];
        if through_read {
            prop_assert!(!cache.read_into(&hash(1), length as u64, 0, &mut buffer));
        } else {
            prop_assert!(cache.get(&hash(1), length as u64).is_none());
        }
        prop_assert!(!file.exists() || stored.len() != whole);
        cache.insert(&hash(1), &data);
        prop_assert!(ChunkCache::open(dir.path(), 0).read_into(&hash(1), length as u64, 0, &mut buffer));
        prop_assert_eq!(buffer, data);
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

#[test]
fn trimming_deletes_the_oldest_and_what_died_processes_left() {
    let dir = tempfile::tempdir().unwrap();
    let cache = ChunkCache::open(dir.path(), 0);
    let now = SystemTime::now();
    let set_age = |file: &Path, age_s: u64| {
        fs::File::open(file)
            .unwrap()
            .set_modified(now - Duration::from_secs(age_s))
            .unwrap();
    };
    for number in 0..10u64 {
        cache.insert(&hash(number), &bytes(988));
        set_age(&path(dir.path(), &hash(number)), 7200 - number);
    }
    let subdir = path(dir.path(), &hash(0)).parent().unwrap().to_path_buf();
    for (name, age_s) in [
        (".1.1.new", 7200),
        (".2.2.new", 5),
        ("somebody else's", 7200),
    ] {
        fs::write(subdir.join(name), b"x").unwrap();
        set_age(&subdir.join(name), age_s);
    }
    // Used just now, so not old any more.
    let mut buffer = [0; 10];
    assert!(cache.read_into(&hash(0), 988, 5, &mut buffer));

    assert_eq!(cache.trim(10_000), 0);
    assert!(
        !subdir.join(".1.1.new").exists()
            && subdir.join(".2.2.new").exists()
            && subdir.join("somebody else's").exists()
    );
    assert_eq!(cache.trim(4_500), 6_000);
    let left: Vec<u64> = (0..10)
        .filter(|number| cache.contains(&hash(*number), 988))
        .collect();
    assert_eq!(left, [0, 7, 8, 9]);
    assert_eq!(cache.trim(0), 4_000);
    assert!(!cache.read_into(&hash(0), 988, 5, &mut buffer));
}

#[test]
fn chunks_whole_files_and_blocks_are_one_account() {
    let dir = tempfile::tempdir().unwrap();
    let cache = ChunkCache::open(dir.path(), 0);
    let now = SystemTime::now();
    for number in 0..30u64 {
        let name: String = hash(number).iter().map(|b| format!("{b:02x}")).collect();
        let place = ["", "whole", "blocks"][number as usize % 3];
        let folder = dir.path().join(place).join(&name[..2]);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(&name), bytes(1000)).unwrap();
        let file = fs::File::open(folder.join(&name)).unwrap();
        file.set_modified(now - Duration::from_secs(7200 - number))
            .unwrap();
    }
    let left = || {
        let places = ["", "whole", "blocks"].map(|place| dir.path().join(place));
        let folders = places
            .into_iter()
            .flat_map(|place| fs::read_dir(place).unwrap());
        let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
        let files = files.filter(|file| file.as_ref().unwrap().file_name().len() == 64);
        files.count() as u64
    };
    assert_eq!((cache.trim(30_000), left()), (0, 30));
    // All of one age go together, whatever they are, and room is made for what comes next.
    assert_eq!((cache.trim(16_000), left()), (15_000, 15));
    assert_eq!((cache.trim(16_000), left()), (0, 15));
    assert_eq!((cache.free(1), left()), (1000, 14));
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
                    if i % 50 == 0 {
                        cache.trim(1_000_000);
                    }
                }
            });
        }
    });
}

#[test]
fn open_files_are_bounded() {
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
    let data = bytes(70_000);
    for number in 0..300 {
        cache.insert(&hash(number), &data);
        assert!(cache.read_into(&hash(number), 70_000, 10, &mut [0; 10]));
    }
    let prefix = dir.path().canonicalize().unwrap();
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let count = open
        .filter(|fd| {
            fs::read_link(fd.as_ref().unwrap().path()).is_ok_and(|to| to.starts_with(&prefix))
        })
        .count();
    assert!(count <= 128, "{count} open files");
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
    // Damaged: found out on the way, and nothing is left behind.
    let second = path(dir.path(), &hash(2));
    let good = fs::read(&second).unwrap();
    fs::write(&second, vec![0; good.len()]).unwrap();
    let fresh = ChunkCache::open(dir.path(), 0);
    assert!(fresh.may_assemble(&whole) && !fresh.assemble(&whole));
    assert_eq!(files(), 0);
    fs::write(&second, &good).unwrap();
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
