//! Bytes that were overwritten before any commit: staging's use of the local disk stays bounded,
//! and the remaining bytes read back, also after a kill and after a power loss.

mod support;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cowfs_engine::{AttrChange, Punching};
use support::{Base, World, root_user};

const SEGMENT: u64 = 64 << 10;
const FILE: usize = 100 << 10;
const ROUNDS: u8 = 50;

/// What staging takes on the local disk, files kept for later segments included.
fn staging_bytes(world: &World) -> u64 {
    let folder = world.temp.path().join("working/staging");
    let entries = fs::read_dir(folder).expect("lists");
    entries
        .map(|entry| entry.expect("entry").metadata().expect("exists").len())
        .sum()
}

fn fsync(world: &World, path: &str) {
    let ino = world.resolve(path).expect("exists");
    let engine = world.engine();
    let fh = engine.open_file(ino, libc::O_RDONLY).expect("opens");
    engine.fsync(fh, false).expect("syncs");
    engine.release(fh).expect("closes");
}

/// Overwrites one file again and again in pieces; returns the most that staging took.
fn overwrite(world: &World, syncs: bool, piece: usize) -> u64 {
    let mut most = 0;
    world.put("a", &vec![0; FILE]);
    for round in 1..=ROUNDS {
        for offset in (0..FILE).step_by(piece) {
            let length = piece.min(FILE - offset);
            world
                .write_at("a", offset as u64, &vec![round; length])
                .expect("writes");
            most = most.max(staging_bytes(world));
        }
        if syncs {
            fsync(world, "a");
        }
    }
    most
}

#[test]
fn overwriting_without_a_commit_takes_a_bounded_part_of_the_disk() {
    for syncs in [false, true] {
        for piece in [1000, 4096, 40_000] {
            let mut world = World::with_segments(Base::empty(), SEGMENT);
            let most = overwrite(&world, syncs, piece);
            let bound = 4 * FILE as u64 + 16 * SEGMENT;
            assert!(most <= bound, "{most} bytes, synced: {syncs}, by {piece}");
            let expected = vec![ROUNDS; FILE];
            assert!(world.get("a") == expected);
            world.crash();
            assert!(world.get("a") == expected, "after a kill");
            fsync(&world, "a");
            world.boot_id = "boot-2".into();
            let (recovery, dropped) = world.crash();
            assert!(recovery.power_loss);
            assert_eq!(dropped, 0, "bytes that were overwritten are no loss");
            assert!(world.get("a") == expected, "after a power loss");
        }
    }
}

#[test]
fn what_is_left_of_a_mostly_dead_segment_is_moved() {
    let mut world = World::with_segments(Base::empty(), SEGMENT);
    world.put("churn", b"");
    for number in 0..16_u8 {
        world.put(&format!("kept-{number}"), &vec![number; 1000]);
        for round in 0..8 {
            world
                .write_at("churn", 0, &vec![round; 16_000])
                .expect("writes");
        }
    }
    let before = staging_bytes(&world);
    world.engine().reclaim_staging().expect("reclaims");
    // Nothing more: there is no dead segment left to free.
    assert_eq!(world.engine().reclaim_staging().expect("reclaims"), 0);
    assert!(staging_bytes(&world) <= before);
    let segments = fs::read_dir(world.temp.path().join("working/staging")).expect("lists");
    let names = segments.map(|entry| entry.expect("entry").file_name());
    let count = names
        .filter(|name| name.to_string_lossy().ends_with(".seg"))
        .count();
    assert!(count <= 2, "{count} segments for 32 KB");
    for killed in [false, true] {
        for number in 0..16_u8 {
            let kept = world.get(&format!("kept-{number}"));
            assert!(kept == vec![number; 1000], "killed: {killed}");
        }
        assert!(world.get("churn") == vec![7; 16_000]);
        world.crash();
    }
}

/// A reader that lost its segment to every plan got EIO.
#[test]
fn a_read_ends_though_its_segment_is_removed_whenever_it_has_a_plan() {
    let world = World::with_segments(Base::empty(), 16 << 10);
    let ino = world.put("a", &[1; 10_000]);
    let fh = world.engine().open_file(ino, libc::O_RDWR).expect("opens");
    let (plans, is_nested) = (Arc::new(AtomicUsize::new(0)), AtomicBool::new(false));
    let counted = plans.clone();
    world.interrupt_always_with(move |engine| {
        if is_nested.swap(true, Ordering::AcqRel) {
            return;
        }
        counted.fetch_add(1, Ordering::AcqRel);
        // The second write fills the segment of the first.
        for data in [[2; 10_000], [3; 10_000]] {
            engine.write(fh, 0, &data, true).expect("writes");
        }
        engine.reclaim_staging().expect("reclaims");
        is_nested.store(false, Ordering::Release);
    });
    for _ in 0..20 {
        let read = world.engine().read_file(fh, 0, 10_000).expect("reads");
        assert!(read == [3; 10_000], "what was written last");
    }
    assert!(plans.load(Ordering::Acquire) >= 20);
}

#[test]
fn a_layer_that_is_being_committed_keeps_its_bytes() {
    let mut world = World::with_segments(Base::empty(), SEGMENT);
    world.put("a", &vec![1; FILE]);
    let layer = world.freeze().expect("something changed");
    overwrite(&world, true, 4096);
    world.engine().reclaim_staging().expect("reclaims");
    world.commit(layer);
    let ino = world.resolve("a").expect("exists");
    assert!(
        world.base.bytes_of(ino) == vec![1; FILE],
        "as it was frozen"
    );
    assert!(world.get("a") == vec![ROUNDS; FILE]);
    world.crash();
    assert!(world.get("a") == vec![ROUNDS; FILE]);
}

/// A commit leaves no record. What records behind the committed layer say of its bytes counts in a
/// replay, though all of them have chunks by then.
#[test]
fn what_a_checkpoint_beside_a_commit_names_is_there_after_a_kill() {
    for segments in [1, 8] {
        let mut world = World::with_segments(Base::empty(), SEGMENT);
        world.put("a", b"");
        for offset in (0..segments * SEGMENT).step_by(SEGMENT as usize) {
            let bytes = vec![1; SEGMENT as usize];
            world.write_at("a", offset, &bytes).expect("writes");
        }
        let layer = world.freeze().expect("something changed");
        world.write_at("a", 0, &[2; 10]).expect("writes");
        assert!(world.engine().checkpoint().expect("made"));
        world.commit(layer);
        let before = world.tree();
        let freed_bytes = world.engine().reclaim_staging().expect("reclaims");
        // If there is something to gain, another checkpoint says which bytes have chunks.
        assert!(freed_bytes >= (segments - 1) * SEGMENT);
        world.crash();
        assert!(world.tree() == before);
    }
}

#[test]
fn bytes_that_were_copied_away_and_back_during_their_commit_stay() {
    let mut world = World::with_segments(Base::empty(), SEGMENT);
    world.put("a", &vec![1; FILE]);
    world.put("copy", b"");
    let layer = world.freeze().expect("something changed");
    copy(&world, "a", "copy");
    let change = AttrChange {
        size: Some(0),
        ..AttrChange::default()
    };
    let a = world.resolve("a").expect("exists");
    let cut = world.ask(|engine| engine.setattr(a, &root_user(), &change));
    cut.expect("cuts");
    copy(&world, "copy", "a");
    world.unlink("copy").expect("unlinks");
    world.commit(layer);
    world.engine().reclaim_staging().expect("reclaims");
    world.crash();
    assert!(world.get("a") == vec![1; FILE]);
}

fn copy(world: &World, from: &str, to: &str) {
    let open = |path, flags| {
        let ino = world.resolve(path).expect("exists");
        let fh = world.ask(|engine| engine.open_file(ino, flags));
        fh.expect("opens")
    };
    let (source, target) = (open(from, libc::O_RDONLY), open(to, libc::O_WRONLY));
    let copied =
        world.ask(|engine| engine.copy_range((source, 0), (target, 0), FILE as u64, false));
    assert_eq!(copied, Ok(FILE as u64));
    for fh in [source, target] {
        world.ask(|engine| engine.release(fh)).expect("closes");
    }
}

#[test]
fn files_without_a_name_are_bounded_too() {
    let world = World::with_segments(Base::empty(), SEGMENT);
    let ino = world.put("a", b"x");
    let engine = world.engine();
    let fh = engine.open_file(ino, libc::O_RDWR).expect("opens");
    world.unlink("a").expect("unlinks");
    for round in 0..ROUNDS {
        engine
            .write(fh, 0, &vec![round; FILE / 2], true)
            .expect("writes");
        assert!(staging_bytes(&world) <= 20 * SEGMENT);
    }
    let read = engine.read_file(fh, 0, FILE).expect("reads");
    assert!(read == vec![ROUNDS - 1; FILE / 2]);
}

#[test]
fn bytes_that_were_fsynced_go_only_when_what_replaced_them_is_durable() {
    let world = World::with_segments(Base::empty(), SEGMENT);
    for syncs in [false, true] {
        world.put("a", &vec![1; FILE]);
        if syncs {
            fsync(&world, "a");
        }
        world.put("a", &vec![2; 2 * FILE]);
        assert!(!world.engine().is_durable().expect("says"));
        assert!(world.engine().reclaim_staging().expect("reclaims") > 0);
        // Bytes that were never promised need no sync, and are never written to the disk.
        assert_eq!(world.engine().is_durable().expect("says"), syncs);
    }
}

/// So many extents are counted under one lock, with segments as short as here.
const BATCH: usize = 2;

#[test]
fn everybody_goes_on_while_extents_are_counted() {
    let world = World::with_segments(Base::empty(), SEGMENT);
    let extents = 500;
    let ino = world.put("a", b"");
    for number in 0..extents as u64 {
        world
            .write_at("a", number * 200, &[number as u8; 100])
            .expect("writes");
    }
    let fh = world.ask(|engine| engine.open_file(ino, libc::O_RDWR));
    let (fh, turns) = (fh.expect("opens"), Arc::new(AtomicUsize::new(0)));
    let counted = turns.clone();
    world.interrupt_always_with(move |engine| {
        let turn = counted.fetch_add(1, Ordering::Relaxed) % extents;
        // In another thread: no other thread may hold the locks that it needs.
        std::thread::scope(|scope| {
            let written = scope.spawn(|| {
                engine.write_at_once(fh, turn as u64 * 200 + 100, &[turn as u8; 100], true)
            });
            assert_eq!(written.join().expect("no panic").expect("writes"), 100);
        });
    });
    world.engine().reclaim_staging().expect("reclaims");
    let turns = turns.load(Ordering::Relaxed);
    assert!(turns >= extents / BATCH, "{turns} turns");
    let bytes = world.get("a");
    for turn in 0..extents.min(turns) {
        assert!(bytes[turn * 200 + 100..][..100] == [turn as u8; 100]);
    }
}

/// Bytes that move during the count, from a file still to be counted to a counted one, have not
/// died.
#[test]
fn bytes_that_are_copied_while_extents_are_counted_stay() {
    for punches in [false, true] {
        let mut world = World::with_segments(Base::empty(), SEGMENT);
        let target = world.put("target", b"");
        let between = ["0", "1", "2", "3"].map(|name| world.put(name, b""));
        assert!(between.iter().all(|ino| *ino > target));
        let source = world.put("source", &[1; 30_000]);
        world.put("dead", b"");
        for _ in 0..3 {
            world.write_at("dead", 0, &[2; 30_000]).expect("writes");
        }
        for name in ["0", "1", "2", "3"] {
            world.put(name, &[3; 10]);
        }
        world.unlink("dead").expect("unlinks");
        let open = |ino, flags| world.ask(|engine| engine.open_file(ino, flags));
        let from = open(source, libc::O_RDONLY).expect("opens");
        let to = open(target, libc::O_WRONLY).expect("opens");
        world.interrupt_with(move |engine| {
            let copied = engine.copy_range((from, 0), (to, 0), 30_000, true);
            assert_eq!(copied.expect("copies"), 30_000);
            let change = AttrChange {
                size: Some(0),
                ..AttrChange::default()
            };
            engine.setattr(source, &root_user(), &change).expect("cuts");
        });
        let engine = world.engine();
        let freed = if punches {
            engine.punch_staging(Punching::Thorough)
        } else {
            engine.reclaim_staging()
        };
        freed.expect("frees");
        assert!(!world.was_not_interrupted());
        assert!(world.get("target") == vec![1; 30_000]);
        world.crash();
        assert!(world.get("target") == vec![1; 30_000]);
    }
}

/// Programs ask for room before they write.
#[test]
fn the_room_of_a_removed_file_shows_at_once() {
    let mut world = World::new();
    world.segment_bytes = SEGMENT;
    world.staging_limit_bytes = 4 * SEGMENT;
    world.crash();
    let free_bytes = |world: &World| world.engine().statfs().expect("answers").2;
    world.put("large", &[1; 3 * SEGMENT as usize]);
    world.put("small", b"stays");
    assert!(free_bytes(&world) < SEGMENT, "little is free");
    world.unlink("large").expect("goes");
    assert!(free_bytes(&world) >= 3 * SEGMENT, "its room is there");
    world.put("other", &[2; 3 * SEGMENT as usize]);
    assert!(free_bytes(&world) < SEGMENT, "and is taken");
    assert_eq!(world.get("small"), b"stays");
}
