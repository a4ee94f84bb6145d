//! Several processes on one directory, killed at any moment, and a model of the chunks that each
//! may find.

mod support;

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use cowfs_cache::ChunkCache;
use proptest::prelude::*;
use support::{chunk, hash, insert, is_here};

const DIRECTORY: &str = "COWFS_CACHE_TEST_DIRECTORY";

/// Run by the next test, in a process of its own.
#[test]
fn fills_until_it_is_killed() {
    let Ok(dir) = std::env::var(DIRECTORY) else {
        return;
    };
    let cache = ChunkCache::open(Path::new(&dir), 0);
    for number in u64::from(std::process::id()) % 100.. {
        insert(&cache, number % 400);
        if number % 9 == 0 {
            cache.flush();
        }
        if number % 50 == 0 {
            cache.trim(8 << 20);
        }
        for read in number.saturating_sub(5)..number {
            is_here(&cache, read % 400);
        }
    }
}

#[test]
fn processes_that_are_killed_leave_nothing_wrong() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..4 {
        let run = || {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "fills_until_it_is_killed"])
                .env(DIRECTORY, dir.path())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        };
        let mut processes = [run(), run()];
        std::thread::sleep(Duration::from_millis(300 + 70 * round));
        for process in &mut processes {
            assert!(
                process.try_wait().unwrap().is_none(),
                "it found other bytes"
            );
            process.kill().unwrap();
            process.wait().unwrap();
        }
        let cache = ChunkCache::open(dir.path(), 0);
        (0..400).for_each(|number| _ = is_here(&cache, number));
        for number in 0..50 {
            insert(&cache, number);
        }
        drop(cache);
        let cache = ChunkCache::open(dir.path(), 0);
        assert!((0..50).all(|number| is_here(&cache, number)));
    }
}

#[derive(Debug, Clone)]
enum Op {
    Insert(usize, u64),
    /// By all, and all look.
    Flush,
    Keep(usize, u64),
    Read(usize, u64),
    Trim(usize, u64),
    Free(usize, u64),
    Reopen(usize),
    /// A byte of a file is changed, or its end cut off.
    Spoil(prop::sample::Index, prop::sample::Index, bool),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let (cache, number) = (0usize..3, 0u64..40);
    let op = prop_oneof![
        8 => (cache.clone(), number.clone()).prop_map(|(cache, number)| Op::Insert(cache, number)),
        2 => Just(Op::Flush),
        2 => (cache.clone(), number.clone()).prop_map(|(cache, number)| Op::Keep(cache, number)),
        4 => (cache.clone(), number).prop_map(|(cache, number)| Op::Read(cache, number)),
        1 => (cache.clone(), 0u64..4 << 20).prop_map(|(cache, bytes)| Op::Trim(cache, bytes)),
        1 => (cache.clone(), 0u64..1 << 20).prop_map(|(cache, bytes)| Op::Free(cache, bytes)),
        1 => cache.prop_map(Op::Reopen),
        1 => any::<(prop::sample::Index, prop::sample::Index, bool)>().prop_map(|(file, at, cuts)| Op::Spoil(file, at, cuts)),
    ];
    prop::collection::vec(op, 1..120)
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(dir.join("segments")).into_iter().flatten();
    let mut found: Vec<PathBuf> = found.map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn caches_that_share_a_directory_agree_with_a_model(ops in ops()) {
        let dir = tempfile::tempdir().unwrap();
        let open = |number: usize| ChunkCache::open(dir.path(), [0, 1 << 20, 4 << 20][number]);
        let mut caches = [open(0), open(1), open(2)];
        // The chunks that each process must find, as long as none was deleted or damaged.
        let mut sure: HashMap<u64, [bool; 3]> = HashMap::new();
        let mut is_whole = true;
        for op in ops {
            match op {
                Op::Insert(cache, number) => {
                    sure.entry(number).or_default()[cache] = true;
                    // A chunk that cannot be read would be fetched and inserted again and again.
                    // Each damaged copy costs one more; the cache notices some of them only when it
                    // looks again.
                    let is_kept = (0..8).any(|_| {
                        insert(&caches[cache], number);
                        is_here(&caches[cache], number)
                    });
                    prop_assert!(is_kept);
                }
                Op::Flush => {
                    // Other processes notice it when they look, which they do now. A process that
                    // looks later must first write its inserted chunks.
                    caches.iter().for_each(ChunkCache::flush);
                    caches.iter().for_each(|other| _ = other.trim(u64::MAX));
                    for found in sure.values_mut() {
                        *found = [true; 3];
                    }
                }
                Op::Keep(cache, number) => {
                    caches[cache].keep(&hash(number), chunk(number).len() as u64);
                }
                Op::Read(cache, number) => {
                    let is_here = is_here(&caches[cache], number);
                    let is_sure = sure.get(&number).is_some_and(|found| found[cache]);
                    prop_assert!(is_here || !is_sure || !is_whole);
                }
                Op::Trim(cache, bytes) => {
                    is_whole = false;
                    caches[cache].trim(bytes);
                    prop_assert!(caches[cache].held_bytes() <= bytes);
                }
                Op::Free(cache, bytes) => {
                    is_whole = false;
                    caches[cache].free(bytes);
                }
                Op::Reopen(cache) => {
                    caches[cache] = open(cache);
                    for found in sure.values_mut() {
                        found[cache] = false;
                    }
                }
                Op::Spoil(file, at, cuts) => {
                    is_whole = false;
                    let files = files(dir.path());
                    if files.is_empty() {
                        continue;
                    }
                    let file = fs::File::options().read(true).write(true).open(file.get(&files)).unwrap();
                    let length = file.metadata().unwrap().len();
                    if length == 0 {
                        continue;
                    }
                    let at = at.index(length as usize) as u64;
                    if cuts {
                        file.set_len(at).unwrap();
                    } else {
                        let mut byte = [0];
                        file.read_exact_at(&mut byte, at).unwrap();
                        file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
                    }
                }
            }
        }
        for cache in &caches {
            for number in 0..40 {
                is_here(cache, number);
            }
        }
    }
}
