//! Copies that share extents, files without a name, holes.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use cowfs_base::Errno;
use cowfs_engine::{Caller, HandleId};
use support::{Base, ROOT, World, root_user};

fn open(world: &World, path: &str, flags: i32) -> HandleId {
    let ino = world.resolve(path).expect("exists");
    world
        .ask(|engine| engine.open_file(ino, flags))
        .expect("opens")
}

fn copy(
    world: &World,
    from: (&str, u64),
    to: (&str, u64),
    length: u64,
) -> std::result::Result<u64, Errno> {
    let source = open(world, from.0, libc::O_RDONLY);
    let target = open(world, to.0, libc::O_WRONLY);
    let copied =
        world.ask(|engine| engine.copy_range((source, from.1), (target, to.1), length, false));
    for fh in [source, target] {
        world.ask(|engine| engine.release(fh)).expect("closes");
    }
    copied
}

fn staged_and_committed() -> World {
    let mut world = World::new();
    world.put("old", &[1; 300_000]);
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    world.put("new", &[2; 10_000]);
    world.put("copy", b"");
    world
}

#[test]
fn a_copy_of_staged_and_committed_bytes_survives_a_crash_and_a_commit() {
    let mut world = staged_and_committed();
    assert_eq!(
        copy(&world, ("old", 100), ("copy", 0), 1 << 20),
        Ok(299_900)
    );
    assert_eq!(copy(&world, ("new", 0), ("copy", 50), 100), Ok(100));
    let mut expected = vec![1; 299_900];
    expected[50..150].fill(2);
    assert_eq!(world.get("copy"), expected);
    world.write_at("old", 0, &[9; 300_000]).expect("writes");
    world.write_at("new", 0, &[9; 10_000]).expect("writes");
    assert_eq!(world.get("copy"), expected, "a copy is not its source");
    let before = world.tree();
    world.crash();
    assert_eq!(world.tree(), before);
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    assert_eq!(world.tree(), before);
    world.crash();
    assert_eq!(world.tree(), before);
}

#[test]
fn a_copy_brings_the_holes_of_its_source() {
    let world = World::new();
    world.put("holes", b"");
    world.write_at("holes", 8192, b"end").expect("writes");
    world.put("copy", &[7; 20_000]);
    assert_eq!(
        copy(&world, ("holes", 0), ("copy", 0), u64::MAX >> 1),
        Ok(8195)
    );
    let mut expected = vec![7; 20_000];
    expected[..8192].fill(0);
    expected[8192..8195].copy_from_slice(b"end");
    assert_eq!(world.get("copy"), expected);
    assert_eq!(world.stat("copy").blocks, (20_000u64 - 8192).div_ceil(512));
}

#[test]
fn fsynced_bytes_outlive_a_copy_over_them_that_a_power_loss_takes() {
    let mut world = World::new();
    world.put("target", &[1; 10_000]);
    let target = open(&world, "target", libc::O_WRONLY);
    world.engine().fsync(target, false).expect("syncs");
    let segment = world
        .temp
        .path()
        .join("working/staging/0000000000000001.seg");
    let synced = std::fs::metadata(&segment).expect("exists").len() as usize;
    world.put("source", &[2; 10_000]);
    assert_eq!(copy(&world, ("source", 0), ("target", 0), 5_000), Ok(5_000));
    // The journal's pages happen to be written back, the segment's new ones do not.
    world.drop_engine();
    let mut bytes = std::fs::read(&segment).expect("reads");
    bytes[synced..].fill(0);
    std::fs::write(&segment, bytes).expect("damages");
    world.boot_id = "boot-2".into();
    world.open().expect("recovers");
    assert_eq!(world.get("target"), [1; 10_000]);
}

#[test]
fn a_copy_during_the_end_of_a_commit_keeps_its_bytes() {
    let mut world = World::with_segments(Base::empty(), 16 << 10);
    world.put("source", &[3; 60_000]);
    world.put("copy", b"");
    // The segments of the source are not the current one.
    world.put("other", &[1; 16_000]);
    let before = world.get("source");
    let layer = world.freeze().expect("changed");
    let (base, contents) = world.publish(layer);
    world.interrupt_with(move |engine| {
        engine
            .layer_committed(layer, &contents.iter().collect())
            .expect("commits");
        assert!(engine.trim_staging(0).expect("trims") >= 60_000);
    });
    assert_eq!(copy(&world, ("source", 0), ("copy", 0), 60_000), Ok(60_000));
    assert!(!world.was_not_interrupted());
    (world.base, world.after_layer) = (base, layer);
    assert!(world.get("copy") == before);
    world.crash();
    assert!(world.get("copy") == before, "after a crash");
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    assert!(world.get("copy") == before, "after a commit");
}

#[test]
fn what_cannot_be_shared_is_refused() {
    let world = staged_and_committed();
    assert_eq!(copy(&world, ("new", 0), ("new", 5), 10), Err(Errno::EINVAL));
    assert_eq!(copy(&world, ("new", 0), ("new", 5000), 10), Ok(10));
    assert_eq!(copy(&world, ("new", 10_000), ("copy", 0), 10), Ok(0));
    let mapped = open(&world, "new", libc::O_RDWR);
    assert_eq!(
        copy(&world, ("new", 0), ("copy", 0), 10),
        Err(Errno::EOPNOTSUPP)
    );
    world.ask(|engine| engine.release(mapped)).expect("closes");
    let source = open(&world, "new", libc::O_RDONLY);
    world.unlink("new").expect("unlinks");
    let target = open(&world, "copy", libc::O_WRONLY);
    assert_eq!(
        world.ask(|engine| engine.copy_range((source, 0), (target, 0), 10, false)),
        Err(Errno::EOPNOTSUPP)
    );
}

#[test]
fn an_unnamed_file_is_gone_after_a_crash_and_a_named_one_is_whole() {
    let mut world = World::new();
    let caller: Caller = root_user();
    let make = |world: &World| {
        world
            .ask(|engine| engine.create_unnamed(ROOT, 0o640, libc::O_RDWR, &caller))
            .expect("makes")
    };
    let (lost, lost_fh) = make(&world);
    world
        .ask(|engine| engine.write(lost_fh, 0, b"lost", true))
        .expect("writes");
    let (kept, fh) = make(&world);
    assert_eq!((kept.nlink, kept.mode & 0o7777), (0, 0o640));
    world
        .ask(|engine| engine.write(fh, 4096, b"kept", true))
        .expect("writes");
    world
        .ask(|engine| engine.set_xattr(kept.ino, b"user.a", b"1", 0))
        .expect("sets");
    let named = world
        .ask(|engine| engine.link(kept.ino, ROOT, b"named"))
        .expect("links");
    assert_eq!(named.nlink, 1);
    world
        .ask(|engine| engine.write(fh, 4100, b" and more", true))
        .expect("writes");
    let before = world.tree();
    world.crash();
    assert_eq!(world.tree(), before);
    assert_eq!(&world.get("named")[4096..], b"kept and more");
    assert_eq!(
        world.ask(|engine| engine.getattr(lost.ino)).map(drop),
        Err(Errno::ENOENT)
    );
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    assert_eq!(world.tree(), before);
}

#[test]
fn an_unnamed_file_that_is_written_all_the_time_gets_its_name() {
    let mut world = World::new();
    let caller = root_user();
    let (attr, fh) = world
        .ask(|engine| engine.create_unnamed(ROOT, 0o640, libc::O_RDWR, &caller))
        .expect("makes");
    let turns = Arc::new(AtomicU8::new(1));
    let counted = turns.clone();
    world.interrupt_always_with(move |engine| {
        let turn = counted.load(Ordering::Acquire);
        if turn > 0 {
            let outcome = engine.write(fh, 4000, &[turn; 5000], true);
            outcome.expect("writes");
            counted.store(turn + 1, Ordering::Release);
        }
    });
    let named = world.ask(|engine| engine.link(attr.ino, ROOT, b"named"));
    assert_eq!(named.expect("links").nlink, 1);
    assert!(turns.swap(0, Ordering::AcqRel) > 4);
    let before = world.get("named");
    assert_eq!(before.len(), 9000);
    world.crash();
    assert!(world.get("named") == before);
}

#[test]
fn a_file_that_lost_its_name_gets_none() {
    let world = World::new();
    world.put("f", b"x");
    let fh = open(&world, "f", libc::O_RDONLY);
    let ino = world.resolve("f").expect("exists");
    world.unlink("f").expect("unlinks");
    assert_eq!(
        world.ask(|engine| engine.link(ino, ROOT, b"g")).map(drop),
        Err(Errno::ENOENT)
    );
    world.ask(|engine| engine.release(fh)).expect("closes");
}

#[test]
fn room_is_asked_for_where_there_are_holes_only() {
    let mut world = World::new();
    world.staging_limit_bytes = 1 << 20;
    world.crash();
    world.put("f", &[5; 700_000]);
    let fh = open(&world, "f", libc::O_WRONLY);
    let allocate = |length| world.ask(|engine| engine.allocate(fh, 0, length, 0, true));
    assert_eq!(allocate(700_000), Ok(()), "it is all there");
    assert_eq!(allocate(900_000), Ok(()), "the rest fits");
    assert_eq!(allocate(1_200_000), Err(Errno::ENOSPC));
    assert_eq!(world.stat("f").size, 900_000);
}

#[test]
fn holes_are_made_and_found() {
    let mut world = World::new();
    world.put("f", &[5; 12_288]);
    let fh = open(&world, "f", libc::O_WRONLY);
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let allocate = |world: &World, offset, length, mode| {
        world.ask(|engine| engine.allocate(fh, offset, length, mode, true))
    };
    assert_eq!(allocate(&world, 4096, 4096, punch), Ok(()));
    assert_eq!(allocate(&world, 20_000, 10, punch), Ok(()));
    assert_eq!(world.stat("f").size, 12_288);
    let seek = |offset, whence| world.ask(|engine| engine.seek(fh, offset, whence));
    assert_eq!(seek(0, libc::SEEK_HOLE), Ok(4096));
    assert_eq!(seek(4096, libc::SEEK_DATA), Ok(8192));
    assert_eq!(seek(8192, libc::SEEK_HOLE), Ok(12_288));
    assert_eq!(seek(12_288, libc::SEEK_DATA), Err(Errno::ENXIO));
    assert_eq!(
        allocate(&world, 0, 20_000, libc::FALLOC_FL_KEEP_SIZE),
        Ok(())
    );
    assert_eq!(world.stat("f").size, 12_288);
    assert_eq!(allocate(&world, 0, 20_000, 0), Ok(()));
    assert_eq!(
        allocate(&world, 12_000, 12_000, libc::FALLOC_FL_ZERO_RANGE),
        Ok(())
    );
    assert_eq!(
        allocate(&world, 0, 4096, libc::FALLOC_FL_COLLAPSE_RANGE),
        Err(Errno::EOPNOTSUPP)
    );
    assert_eq!(allocate(&world, 0, 1 << 62, 0), Err(Errno::ENOSPC));
    let mapped = open(&world, "f", libc::O_RDWR);
    assert_eq!(
        seek(4096, libc::SEEK_DATA),
        Ok(4096),
        "stores to it may still be in the kernel"
    );
    world.ask(|engine| engine.release(mapped)).expect("closes");
    let mut expected = vec![0; 24_000];
    expected[..4096].fill(5);
    expected[8192..12_000].fill(5);
    assert_eq!(world.get("f"), expected);
    world.crash();
    assert_eq!(world.get("f"), expected);
}
