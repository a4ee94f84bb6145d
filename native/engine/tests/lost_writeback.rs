//! A local disk that loses written bytes: bytes of segments change behind the engine's back. Lost
//! bytes never become a version, a copy or a new checksum, and are never served as other bytes.

mod support;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

use cowfs_base::{Errno, Ino};
use cowfs_engine::Error;
use cowfs_staging::Failures;
use support::World;

/// Overwrites bytes of the segment that holds byte `at` of a file, from there on.
fn lose(world: &World, ino: Ino, at: u64, length: usize) {
    let (_, extents) = world.engine().live_extents(ino).expect("extents");
    let extent = extents
        .iter()
        .find(|extent| extent.offset <= at && at < extent.offset + extent.length);
    let extent = extent.expect("mapped");
    let (segment, offset) = extent.staged.expect("staged");
    let path = world
        .temp
        .path()
        .join(format!("working/staging/{segment:016x}.seg"));
    let file = fs::OpenOptions::new().write(true).open(path);
    file.expect("opens")
        .write_all_at(&vec![0; length], offset + at - extent.offset)
        .expect("overwrites");
}

fn open(world: &World, ino: Ino, flags: i32) -> cowfs_engine::HandleId {
    let opened = world.ask(|engine| engine.open_file(ino, flags));
    opened.expect("opens")
}

/// What a commit reads of a file, extent by extent.
fn commit_reads(world: &World, ino: Ino) -> Result<Vec<u8>, Errno> {
    let engine = world.engine();
    let layer = world.freeze().expect("changed");
    let mut bytes = Vec::new();
    let mut outcome = Ok(());
    for extent in engine.layer_extents(layer, ino).expect("extents") {
        let (segment, offset) = extent.staged.expect("staged");
        let mut part = vec![0; extent.length as usize];
        match engine.read_staged(segment, offset, &mut part) {
            Ok(()) => bytes.extend(part),
            Err(Error::Os(errno)) => outcome = Err(errno),
            Err(error) => panic!("{error}"),
        }
    }
    engine.layer_failed(layer).expect("joins");
    outcome.map(|()| bytes)
}

#[test]
fn a_commit_does_not_read_what_was_lost() {
    let mut world = World::new();
    let ino = world.put("a", &[1; 300_000]);
    let other = world.put("b", &[2; 300_000]);
    assert_eq!(commit_reads(&world, ino), Ok(vec![1; 300_000]));
    lose(&world, ino, 200_000, 1);
    for _ in 0..2 {
        assert_eq!(commit_reads(&world, ino), Err(Errno::EIO));
        assert_eq!(commit_reads(&world, other), Ok(vec![2; 300_000]));
        world.crash();
    }
}

#[test]
fn what_is_lost_is_named() {
    let world = World::new();
    let ino = world.put("a", &[1; 300_000]);
    lose(&world, ino, 200_000, 1);
    assert_eq!(commit_reads(&world, ino), Err(Errno::EIO));
    let (segment, from) = world.engine().live_extents(ino).expect("extents").1[0]
        .staged
        .expect("staged");
    let run = from + 196_608; // of 16 KiB
    let expected = format!(
        "staging segment {segment:016x}: bytes {run} to {}",
        run + 16_384
    );
    let reasons = cowfs_base::faults::take();
    let found = reasons
        .iter()
        .find(|(reason, _)| reason.starts_with(&expected));
    assert!(found.is_some(), "{expected} in {reasons:?}");
    world.engine().lose_unreadable(ino).expect("marks");
    let fh = open(&world, ino, libc::O_RDONLY);
    let read = world.ask(|engine| engine.read_file(fh, 196_608, 10_000));
    assert_eq!(read, Err(Errno::EIO));
    let reasons = cowfs_base::faults::take();
    let is_named = |(reason, _): &(String, u64)| reason.starts_with(&format!("inode {ino}: "));
    assert!(reasons.iter().any(is_named), "{reasons:?}");
}

#[test]
fn every_part_of_a_cut_extent_is_checked() {
    for at in [0, 5_000, 39_999, 50_000, 99_999] {
        let world = World::new();
        let ino = world.put("a", &[1; 100_000]);
        world.write_at("a", 40_000, &[3; 5_000]).expect("writes");
        lose(&world, ino, at, 1);
        assert_eq!(commit_reads(&world, ino), Err(Errno::EIO), "byte {at}");
    }
}

#[test]
fn a_copy_keeps_the_checksum_of_what_was_written() {
    let mut world = World::new();
    let ino = world.put("a", &[1; 100_000]);
    let copy = world.put("copy", b"");
    lose(&world, ino, 60_000, 10);
    let (from, to) = (
        open(&world, ino, libc::O_RDONLY),
        open(&world, copy, libc::O_WRONLY),
    );
    // Sharing reads the runs at both ends only; losses between them are found later.
    let copied = world.ask(|engine| engine.copy_range((from, 100), (to, 0), 99_000, false));
    assert!(matches!(copied, Ok(99_000) | Err(Errno::EIO)));
    if copied.is_ok() {
        assert_eq!(commit_reads(&world, copy), Err(Errno::EIO));
        world.crash();
        assert_eq!(commit_reads(&world, copy), Err(Errno::EIO));
    }
}

#[test]
fn reclaiming_moves_what_is_there_and_leaves_what_is_lost() {
    let mut world = World::with_segments(support::Base::empty(), 20 << 10);
    let bad = world.put("bad", &[1; 2000]);
    world.put("filler", &[3; 14_400]);
    let good = world.put("good", &[2; 2000]);
    world.unlink("filler").expect("unlinks");
    world.put("next", &[4; 16_000]);
    lose(&world, bad, 10, 10);
    let staged =
        |world: &World, ino| world.engine().live_extents(ino).expect("extents").1[0].staged;
    let before = (staged(&world, bad), staged(&world, good));
    world.engine().reclaim_staging().expect("reclaims");
    assert_eq!(staged(&world, bad), before.0, "moved under a new checksum");
    assert_ne!(staged(&world, good), before.1, "not moved");
    for _ in 0..2 {
        assert_eq!(commit_reads(&world, bad), Err(Errno::EIO));
        assert_eq!(commit_reads(&world, good), Ok(vec![2; 2000]));
        world.crash();
    }
}

#[test]
fn what_an_earlier_process_wrote_is_not_served_when_it_is_lost() {
    let mut world = World::new();
    let ino = world.put("a", b"");
    for at in 0..10 {
        let written = world.write_at("a", at * 10_000, &[1; 10_000]);
        written.expect("writes");
    }
    world.crash();
    lose(&world, ino, 50_000, 1);
    let fh = open(&world, ino, libc::O_RDWR);
    let is_read = |at| {
        let found = world.ask(|engine| engine.read_file(fh, at, 1000));
        found.map(|bytes| bytes == [1; 1000])
    };
    assert_eq!(is_read(0), Ok(true));
    assert_eq!(is_read(50_000), Err(Errno::EIO));
    assert_eq!(is_read(49_500), Err(Errno::EIO));
    world.write_at("a", 40_000, &[1; 30_000]).expect("writes");
    assert_eq!(is_read(50_000), Ok(true));
}

#[test]
fn fsync_does_not_succeed_over_lost_bytes_of_an_earlier_process() {
    let mut world = World::new();
    let bad = world.put("bad", &[1; 100_000]);
    let good = world.put("good", &[2; 100_000]);
    world.crash();
    lose(&world, bad, 50_000, 1);
    let fsync = |world: &World, ino| {
        let fh = open(world, ino, libc::O_RDONLY);
        let outcome = world.ask(|engine| engine.fsync(fh, false));
        world.ask(|engine| engine.release(fh)).expect("closes");
        outcome
    };
    for _ in 0..2 {
        assert_eq!(fsync(&world, bad), Err(Errno::EIO));
        assert_eq!(fsync(&world, good), Ok(()));
        assert!(world.engine().sync().is_err());
    }
    world.put("new", b"after it");
    assert_eq!(fsync(&world, world.resolve("new").expect("exists")), Ok(()));
    world.unlink("bad").expect("unlinks");
    world.engine().reclaim_staging().expect("reclaims");
    world.engine().sync().expect("nothing that is lost is left");
}

#[test]
fn a_failed_sync_is_remembered_and_its_segment_is_left() {
    let mut world = World::new();
    let ino = world.put("a", &[1; 100_000]);
    let (_, extents) = world.engine().live_extents(ino).expect("extents");
    let (segment, _) = extents[0].staged.expect("staged");
    world.drop_engine();
    // As the process that met the failure leaves it.
    Failures::open(vec![world.temp.path().join("failed-syncs")], "boot-1").note_segment(segment);
    world.open().expect("opens");
    let fh = open(&world, ino, libc::O_RDONLY);
    let fsync = || world.ask(|engine| engine.fsync(fh, false));
    assert!(
        fsync().is_err(),
        "a sync that failed succeeds after a restart"
    );
    assert!(fsync().is_err());
    // Intact bytes move to another segment, where they can be synced.
    world
        .engine()
        .reclaim_when_due(Duration::from_secs(600))
        .expect("reclaims");
    let (_, extents) = world.engine().live_extents(ino).expect("extents");
    assert_ne!(extents[0].staged.expect("staged").0, segment);
    assert_eq!(fsync(), Ok(()));
    assert!(!world.temp.path().join("failed-syncs").exists());
    let before = world.tree();
    world.crash();
    assert_eq!(world.tree(), before);
}

#[test]
fn a_journal_that_could_not_be_synced_is_written_anew() {
    let mut world = World::new();
    world.put("a", &[1; 1000]);
    let log = world
        .temp
        .path()
        .join("working/journal/0000000000000001.log");
    let inode = fs::metadata(&log).expect("there").ino();
    world.drop_engine();
    Failures::open(vec![world.temp.path().join("failed-syncs")], "boot-1").note_journal();
    world.open().expect("opens");
    assert_ne!(fs::metadata(&log).expect("there").ino(), inode);
    assert_eq!(world.get("a"), [1; 1000]);
    world.engine().sync().expect("syncs");
    assert!(!world.temp.path().join("failed-syncs").exists());
}

/// The journal's log of this process.
fn log_descriptor(world: &World) -> i32 {
    let folder = world.temp.path().join("working/journal");
    let open = fs::read_dir("/proc/self/fd").expect("lists");
    let found = open.filter_map(|entry| {
        let entry = entry.ok()?;
        let target = fs::read_link(entry.path()).ok()?;
        let number = entry.file_name().to_str()?.parse().ok()?;
        let is_log = target.extension().is_some_and(|end| end == "log");
        (is_log && target.starts_with(&folder)).then_some((target, number))
    });
    found.max().expect("is open").1
}

/// For the time of a call, replaces the log's descriptor by one that cannot be synced: the disk
/// fails under fdatasync.
fn while_the_log_cannot_be_synced(world: &World, call: impl FnOnce()) {
    let log = log_descriptor(world);
    let mut pipe = [0; 2];
    // SAFETY: all of them are descriptors of this process, and no other thread uses this engine
    // meanwhile.
    unsafe {
        assert_eq!(libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC), 0);
        let kept = libc::dup(log);
        assert!(kept >= 0 && libc::dup2(pipe[1], log) == log);
        call();
        assert_eq!(libc::dup2(kept, log), log);
        for fd in [kept, pipe[0], pipe[1]] {
            libc::close(fd);
        }
    }
}

#[test]
fn a_checkpoint_cures_a_journal_whose_sync_has_failed() {
    for is_committing in [false, true] {
        let mut world = World::new();
        let ino = world.put("a", &[1; 1000]);
        let layer = is_committing.then(|| world.freeze().expect("changed"));
        world.put("b", &[2; 1000]);
        let fh = open(&world, ino, libc::O_RDWR);
        assert!(!world.engine().checkpoint_when_due().expect("is short"));
        while_the_log_cannot_be_synced(&world, || {
            assert!(world.engine().sync().is_err());
        });
        // The kernel would say now that all is well.
        assert!(world.engine().sync().is_err());
        world
            .ask(|engine| engine.write(fh, 0, b"later", true))
            .expect("writes");
        assert!(world.ask(|engine| engine.fsync(fh, false)).is_err());
        assert!(world.temp.path().join("failed-syncs").exists());
        assert!(world.engine().checkpoint_when_due().expect("cures"));
        assert_eq!(world.ask(|engine| engine.fsync(fh, false)), Ok(()));
        world.engine().sync().expect("syncs");
        assert!(!world.engine().checkpoint_when_due().expect("is cured"));
        if let Some(layer) = layer {
            world.commit(layer);
        }
        let before = world.tree();
        world.engine().sync().expect("syncs");
        for boot in ["boot-1", "boot-2"] {
            world.boot_id = boot.into();
            world.crash();
            assert_eq!(world.tree(), before, "{boot}, commit: {is_committing}");
            world.engine().sync().expect("syncs");
        }
        assert!(!world.temp.path().join("failed-syncs").exists());
    }
}

#[test]
fn a_checkpoint_cures_a_journal_that_could_not_be_written_anew() {
    let mut world = World::new();
    world.put("a", &[1; 1000]);
    world.drop_engine();
    Failures::open(vec![world.temp.path().join("failed-syncs")], "boot-1").note_journal();
    let obstacle = world
        .temp
        .path()
        .join("working/journal/0000000000000001.new");
    std::os::unix::fs::symlink("/nowhere/at/all", &obstacle).expect("links");
    world.open().expect("opens");
    world.put("b", &[2; 1000]);
    assert!(world.engine().sync().is_err());
    assert!(world.engine().checkpoint_when_due().expect("cures"));
    world.engine().sync().expect("syncs");
    assert!(!world.temp.path().join("failed-syncs").exists());
    let before = world.tree();
    world.crash();
    assert_eq!(world.tree(), before);
}

#[test]
fn what_was_synced_is_not_lost_with_what_came_later() {
    let mut world = World::new();
    let synced = world.put("synced", &[1; 3000]);
    let fh = open(&world, synced, libc::O_RDONLY);
    world.ask(|engine| engine.fsync(fh, false)).expect("syncs");
    world.ask(|engine| engine.release(fh)).expect("closes");
    let later = world.put("later", &[2; 3000]);
    lose(&world, later, 0, 3000);
    for _ in 0..2 {
        assert_eq!(commit_reads(&world, synced), Ok(vec![1; 3000]));
        assert_eq!(commit_reads(&world, later), Err(Errno::EIO));
        world.crash();
    }
}

#[test]
fn a_segment_that_cannot_be_opened_for_now_is_not_lost() {
    let mut world = World::new();
    let ino = world.put("a", &[1; 100_000]);
    world.crash();
    let staging = world.temp.path().join("working/staging");
    let away = world.temp.path().join("away");
    fs::rename(&staging, &away).expect("moves");
    fs::create_dir(&staging).expect("makes");
    for entry in fs::read_dir(&away).expect("lists") {
        fs::create_dir(staging.join(entry.expect("entry").file_name())).expect("makes");
    }
    let outcome = world.ask(|engine| engine.lose_unreadable(ino));
    fs::remove_dir_all(&staging).expect("removes");
    fs::rename(&away, &staging).expect("moves");
    assert_eq!(outcome, Err(Errno::EISDIR));
    assert_eq!(world.engine().lost_files().expect("looks"), vec![]);
    assert_eq!(world.get("a"), [1; 100_000]);
}
