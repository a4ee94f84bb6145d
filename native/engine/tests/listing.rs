//! Listings while their directory changes: every entry once, and an end.

mod support;

use std::collections::BTreeMap;

use support::{ROOT, World, root_user};

const FILES: u64 = 100;

/// Reads a directory to its end in small pieces; `between` is called with each entry. Names by how
/// often they came.
fn list(world: &World, between: impl Fn(&[u8], u64)) -> BTreeMap<u64, u64> {
    let engine = world.engine();
    let fh = engine.open_directory(ROOT).expect("opens");
    let (mut cookie, mut seen) = (0, BTreeMap::new());
    loop {
        let entries = engine.read_directory(fh, cookie, 7).expect("lists");
        let Some(last) = entries.last() else { break };
        cookie = last.cookie;
        for entry in &entries {
            if entry.name != b"." && entry.name != b".." {
                *seen.entry(entry.attr.ino).or_insert(0) += 1;
                between(&entry.name, entry.attr.ino);
            }
        }
    }
    engine.release_directory(fh).expect("closes");
    seen
}

fn world() -> World {
    let world = World::new();
    for number in 0..FILES {
        world.put(&format!("{number}"), b"");
    }
    world
}

fn rename(world: &World, from: &[u8], to: &[u8]) {
    let caller = root_user();
    let engine = world.engine();
    engine
        .rename(ROOT, from, ROOT, to, 0, &caller)
        .expect("renames");
}

#[test]
fn entries_that_are_renamed_when_they_are_listed_come_once() {
    let world = world();
    let seen = list(&world, |name, _| {
        rename(&world, name, &[name, b"_"].concat())
    });
    assert_eq!(seen.len() as u64, FILES);
    assert!(seen.values().all(|times| *times == 1));
}

#[test]
fn entries_that_are_renamed_before_and_behind_the_reader_come_once() {
    let world = world();
    let seen = list(&world, |_, ino| {
        // Each time another one, near and far, ahead and behind.
        let engine = world.engine();
        let fh = engine.open_directory(ROOT).expect("opens");
        let all = engine.read_directory(fh, 0, 1000).expect("lists");
        engine.release_directory(fh).expect("closes");
        let entry = &all[2 + (ino as usize * 37) % (all.len() - 2)];
        rename(&world, &entry.name, &[&entry.name[..], b"+"].concat());
    });
    assert_eq!(seen.len() as u64, FILES);
    assert!(seen.values().all(|times| *times == 1), "{seen:?}");
}

#[test]
fn entries_made_meanwhile_come_after_a_rewind() {
    let world = world();
    let engine = world.engine();
    let fh = engine.open_directory(ROOT).expect("opens");
    let count = |cookie| {
        let entries = engine.read_directory(fh, cookie, 100_000);
        entries.expect("lists").len() as u64
    };
    let first = engine.read_directory(fh, 0, 10).expect("lists");
    for number in 0..FILES {
        world.put(&format!("new-{number}"), b"");
    }
    assert_eq!(count(first[9].cookie), FILES + 2 - 10);
    assert_eq!(count(0), 2 * FILES + 2);
}
