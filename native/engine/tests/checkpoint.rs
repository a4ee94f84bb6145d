//! Checkpoints: a checkpoint means the same as its logs, even if operations run while it is made,
//! and wherever it is cut short.

mod support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use cowfs_engine::{AttrChange, Engine};
use support::{Base, ROOT, World, root_user};

fn files(world: &World) -> Vec<String> {
    let entries = fs::read_dir(world.temp.path().join("working/journal")).expect("lists");
    let mut names: Vec<String> = entries
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .into_string()
                .expect("text")
        })
        .map(|name| name.trim_start_matches('0').to_owned())
        .collect();
    names.sort();
    names
}

fn journal_bytes(world: &World) -> u64 {
    let entries = fs::read_dir(world.temp.path().join("working/journal")).expect("lists");
    entries
        .map(|entry| entry.expect("entry").metadata().expect("exists").len())
        .sum()
}

fn checkpoint_path(world: &World) -> PathBuf {
    let entries = fs::read_dir(world.temp.path().join("working/journal")).expect("lists");
    entries
        .map(|entry| entry.expect("entry").path())
        .find(|path| path.extension().is_some_and(|end| end == "ckpt"))
        .expect("there is a checkpoint")
}

/// Something of everything, on a base version that has half of it.
fn varied() -> World {
    let mut world = World::new();
    world.mkdir("d");
    world.mkdir("gone");
    world.put("d/kept", &[1; 5000]);
    world.put("d/removed", &[2; 5000]);
    world.put("d/replaced", &[3; 5000]);
    world.put("gone/inside", &[4; 10]);
    let ino = world.put("attributed", b"x");
    world
        .ask(|engine| engine.set_xattr(ino, b"user.old", b"old", 0))
        .expect("sets");
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    world.write_at("d/kept", 1000, &[5; 100]).expect("writes");
    world.unlink("d/removed").expect("unlinks");
    world.unlink("gone/inside").expect("unlinks");
    world
        .ask(|engine| engine.rmdir(ROOT, b"gone", &root_user()))
        .expect("removes");
    let (directory, other) = (world.resolve("d").expect("exists"), b"other");
    world.put("new", &[6; 9000]);
    world
        .ask(|engine| engine.rename(ROOT, b"new", directory, b"replaced", 0, &root_user()))
        .expect("renames");
    world
        .ask(|engine| engine.symlink(directory, other, b"target", &root_user()))
        .expect("links");
    world
        .ask(|engine| engine.remove_xattr(ino, b"user.old"))
        .expect("removes");
    world
        .ask(|engine| engine.set_xattr(ino, b"user.new", &[7; 3000], 0))
        .expect("sets");
    let big = world.put("sparse", &[8; 10]);
    for number in 0..1000_u64 {
        world
            .write_at("sparse", number * 20, &[9; 3])
            .expect("writes");
    }
    let change = AttrChange {
        size: Some(100_000),
        mode: Some(0o600),
        ..AttrChange::default()
    };
    world
        .ask(|engine| engine.setattr(big, &root_user(), &change))
        .expect("changes");
    world
}

#[test]
fn a_checkpoint_says_what_the_logs_said() {
    let mut world = varied();
    let before = world.tree();
    let times = world.stat("d/replaced");
    assert!(world.engine().checkpoint().expect("made"));
    assert_eq!(files(&world), ["2.ckpt", "3.log"]);
    assert_eq!(world.tree(), before);
    for boot in ["boot-1", "boot-2"] {
        world.drop_engine();
        world.boot_id = boot.into();
        let (recovery, dropped) = world.open().expect("recovers");
        assert_eq!((recovery.cut_bytes, dropped), (0, 0));
        assert_eq!(world.tree(), before);
        assert_eq!(world.stat("d/replaced"), times);
    }
    let layer = world.freeze().expect("still changed");
    world.commit(layer);
    assert_eq!(support::tree_of(&world.base), before);
    assert!(!world.engine().is_dirty().expect("says"));
    assert!(!files(&world).iter().any(|name| name.ends_with("ckpt")));
}

#[test]
fn what_is_written_while_a_checkpoint_is_made_stays_in_the_log() {
    let mut world = varied();
    world.interrupt_with(|engine| {
        let (attr, fh) = engine
            .create(ROOT, b"late", 0o644, libc::O_RDWR, &root_user())
            .expect("creates");
        engine.write(fh, 0, &[1; 100], true).expect("writes");
        engine.release(fh).expect("closes");
        engine.forget(attr.ino, 1).expect("forgets");
        engine
            .unlink(ROOT, b"attributed", &root_user())
            .expect("unlinks");
        let sparse = engine.lookup(ROOT, b"sparse").expect("exists").ino;
        let fh = engine.open_file(sparse, libc::O_RDWR).expect("opens");
        engine.write(fh, 50, &[0xee; 5000], true).expect("writes");
        engine.release(fh).expect("closes");
        engine.forget(sparse, 1).expect("forgets");
    });
    assert!(world.engine().checkpoint().expect("made"));
    let after = world.tree();
    assert!(after.contains_key(std::path::Path::new("/late")));
    world.crash();
    assert_eq!(world.tree(), after);
    assert!(world.engine().checkpoint().expect("made"));
    world.crash();
    assert_eq!(world.tree(), after);
}

#[test]
fn overwriting_for_ever_keeps_a_short_journal_and_a_quick_recovery() {
    let mut world = World::new();
    world.drop_engine();
    world.checkpoint_bytes = 64 << 10;
    world.open().expect("opens");
    let ino = world.put("db", &[0; 64]);
    let fh = world
        .ask(|engine| engine.open_file(ino, libc::O_WRONLY))
        .expect("opens");
    // 86,400,000 writes, a thousandth of everything.
    for number in 0..86_400_u64 {
        let at = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 25;
        let engine = world.engine();
        engine
            .write(fh, at * 64, &number.to_le_bytes(), true)
            .expect("writes");
        // The keeper asks once a second.
        if number % 100 == 0 {
            engine.checkpoint_when_due().expect("checkpoints");
            assert!(journal_bytes(&world) <= 256 << 10);
        }
    }
    let before = world.get("db");
    let (recovery, _) = world.crash();
    assert!(recovery.records < 2000, "{} records", recovery.records);
    assert_eq!(world.get("db"), before);
}

/// The journal that a day may leave behind.
const DAY_BYTES: u64 = 256 << 20;

/// With everything as it is in earnest; 86,400,000 writes take a quarter of an hour or more in
/// release.
#[test]
#[ignore = "takes long; DAY_SECONDS says how much of a day"]
fn a_day_of_a_thousand_writes_a_second_leaves_a_short_journal() {
    let seconds = std::env::var("DAY_SECONDS").map_or(86_400, |text| text.parse().expect("number"));
    let mut world = World::new();
    let inos = ["a", "b", "c", "d"].map(|name| world.put(name, &[0; 1 << 20]));
    let open = |ino| world.ask(|engine| engine.open_file(ino, libc::O_WRONLY));
    let handles = inos.map(|ino| open(ino).expect("opens"));
    let (mut number, mut most, mut checkpoints) = (0_u64, 0, 0);
    for second in 0..seconds {
        for _ in 0..1000 {
            number += 1;
            let place = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
            let fh = handles[place as usize % 4];
            world
                .engine()
                .write(fh, place / 4 * 64, &number.to_le_bytes(), true)
                .expect("writes");
        }
        world.put(&format!("made-{second}"), &number.to_le_bytes());
        if second >= 100 {
            world
                .unlink(&format!("made-{}", second - 100))
                .expect("unlinks");
        }
        // As the keeper's threads do.
        let engine = world.engine();
        most = most.max(journal_bytes(&world));
        checkpoints += u64::from(engine.checkpoint_when_due().expect("checkpoints"));
        engine
            .reclaim_when_due(std::time::Duration::ZERO)
            .expect("reclaims");
        if second % 3600 == 0 {
            eprintln!(
                "hour {}: at most {most}, {checkpoints} checkpoints",
                second / 3600
            );
        }
    }
    eprintln!("{number} writes: at most {most} bytes of journal, {checkpoints} checkpoints");
    assert!(most <= DAY_BYTES, "{most} bytes");
    let before = world.tree();
    let begun = std::time::Instant::now();
    let (recovery, _) = world.crash();
    eprintln!("{} records in {:?}", recovery.records, begun.elapsed());
    assert_eq!(world.tree(), before);
}

#[test]
fn an_orderly_end_leaves_little_to_replay() {
    let mut world = World::new();
    assert!(!world.engine().checkpoint_before_close().expect("is empty"));
    let ino = world.put("db", &[0; 64]);
    let fh = world
        .ask(|engine| engine.open_file(ino, libc::O_WRONLY))
        .expect("opens");
    while journal_bytes(&world) <= 2 << 20 {
        let engine = world.engine();
        engine.write(fh, 0, &[1; 64], true).expect("writes");
    }
    assert!(world.engine().checkpoint_before_close().expect("is made"));
    let (recovery, _) = world.crash();
    assert!(recovery.records < 10, "{} records", recovery.records);
    assert_eq!(world.get("db"), [1; 64]);
}

#[test]
fn a_working_copy_without_changes_needs_no_records() {
    let mut world = World::new();
    let unnamed =
        world.ask(|engine| engine.create_unnamed(ROOT, 0o600, libc::O_RDWR, &root_user()));
    let ino = unnamed.expect("creates").0.ino;
    assert!(world.engine().checkpoint().expect("made"));
    let (recovery, _) = world.crash();
    assert_eq!(recovery.records, 0);
    let next = world.put("g", b"");
    assert!(next > ino, "no number is given out twice");
}

#[test]
fn a_commit_in_flight_keeps_its_logs_and_those_behind_it_are_replaced() {
    for commits in [true, false] {
        let mut world = varied();
        let layer = world.freeze().expect("changed");
        world.put("later", &[1; 3000]);
        world.write_at("d/kept", 0, &[2; 3]).expect("writes");
        world.unlink("d/other").expect("unlinks");
        assert!(world.engine().checkpoint().expect("made"));
        let before = world.tree();
        assert_eq!(files(&world), ["2.log", "3.ckpt", "4.log"]);
        if commits {
            world.commit(layer);
            assert_eq!(files(&world), ["3.ckpt", "4.log"]);
        } else {
            world.engine().layer_failed(layer).expect("joins");
        }
        world.engine().trim_staging(0).expect("trims");
        world.crash();
        assert_eq!(world.tree(), before);
        world.put("latest", b"x");
        let before = world.tree();
        assert!(world.engine().checkpoint().expect("made"));
        assert_eq!(files(&world).len(), 2);
        world.crash();
        assert_eq!(world.tree(), before);
    }
}

#[test]
fn a_commit_does_not_wait_for_a_checkpoint() {
    let world = varied();
    let before = world.tree();
    std::thread::scope(|scope| {
        let (stopped, stop) = std::sync::mpsc::channel();
        world.interrupt_with(move |engine: &Engine| {
            stopped.send(()).expect("heard");
            while engine.waiting_commits() == 0 {
                std::thread::yield_now();
            }
        });
        let world = &world;
        let frozen = scope.spawn(move || {
            stop.recv().expect("told");
            world.engine().freeze().expect("freezes").expect("changed")
        });
        assert!(!world.engine().checkpoint().expect("gives way"));
        let layer = frozen.join().expect("no panic");
        assert!(!files(world).iter().any(|name| name.contains("ckpt")));
        world.engine().layer_failed(layer).expect("joins");
    });
    assert_eq!(world.tree(), before);
}

/// Where a checkpoint may be cut short. The first one passes; the second replaces it and two logs.
const CRASH_POINTS: [&str; 9] = [
    "checkpoint-begun:2",
    "checkpoint-half:5",
    "checkpoint-half:8",
    "checkpoint-written:2",
    "checkpoint-synced:2",
    "checkpoint-named:2",
    "checkpoint-replacing:2",
    "checkpoint-replacing:4",
    "checkpoint-done:2",
];

#[test]
#[ignore = "the child process of a_process_that_dies_in_a_checkpoint_loses_nothing"]
fn checkpoint_until_killed() {
    let world = varied();
    assert!(world.engine().checkpoint().expect("made"));
    world.put("after", &[3; 100]);
    let layer = world.freeze().expect("changed");
    world.engine().layer_failed(layer).expect("joins");
    world.put("later", &[4; 100]);
    let place = PathBuf::from(std::env::var("CHECKPOINT_DIR").expect("the parent says"));
    fs::write(place.join("tree"), format!("{:#?}", world.tree())).expect("writes");
    // A killed process does not remove its temporary directory.
    std::os::unix::fs::symlink(world.temp.path().join("working"), place.join("working"))
        .expect("links");
    world.engine().checkpoint().expect("dies in it");
}

#[test]
fn a_process_that_dies_in_a_checkpoint_loses_nothing() {
    for point in CRASH_POINTS {
        let mut world = varied();
        let place = world.temp.path().join("child");
        fs::create_dir(&place).expect("makes");
        let outcome = Command::new(std::env::current_exe().expect("known"))
            .args(["--exact", "checkpoint_until_killed", "--ignored"])
            .env("CHECKPOINT_DIR", &place)
            .env("COWFS_FAILPOINT", point)
            .stdout(Stdio::null())
            .status()
            .expect("starts");
        assert_eq!(outcome.signal(), Some(libc::SIGKILL), "{point}");
        let expected = fs::read_to_string(place.join("tree")).expect(point);
        world.drop_engine();
        fs::remove_dir_all(world.temp.path().join("working")).expect("removes");
        let left = fs::read_link(place.join("working")).expect("was linked");
        fs::rename(&left, world.temp.path().join("working")).expect("moves");
        fs::remove_dir_all(left.parent().expect("a temporary directory")).expect("removes");
        for boot in ["boot-1", "boot-2"] {
            world.boot_id = boot.into();
            let (recovery, dropped) = world.open().expect("recovers");
            assert_eq!((recovery.cut_bytes, dropped), (0, 0), "{point}");
            assert_eq!(format!("{:#?}", world.tree()), expected, "{point}");
            assert!(!files(&world).iter().any(|name| name.ends_with("new")));
            world.drop_engine();
        }
    }
}

#[test]
fn a_damaged_checkpoint_is_refused_and_every_file_kept() {
    let mut world = varied();
    assert!(world.engine().checkpoint().expect("made"));
    world.put("behind", b"it");
    let before = world.tree();
    world.drop_engine();
    let path = checkpoint_path(&world);
    let whole = fs::read(&path).expect("reads");
    let damages = [whole.len() / 2, 20, whole.len() - 1, 170];
    for at in damages {
        let file = fs::File::options().write(true).open(&path).expect("opens");
        file.write_all_at(&[!whole[at]], at as u64)
            .expect("damages");
        let listed = files(&world);
        let error = world.open().expect_err("is refused").to_string();
        assert!(error.contains("is damaged at byte"), "{error}");
        assert_eq!(files(&world), listed);
        file.write_all_at(&[whole[at]], at as u64).expect("mends");
    }
    fs::write(path.with_extension("ckpt.new"), b"cut short").expect("writes");
    world.open().expect("recovers");
    assert!(!files(&world).iter().any(|name| name.ends_with("new")));
    assert_eq!(world.tree(), before);
}

#[test]
fn the_log_behind_a_checkpoint_must_be_there_and_go_on_where_it_says() {
    let mut world = varied();
    assert!(world.engine().checkpoint().expect("made"));
    world.put("behind", b"it");
    world.put("behind2", b"it");
    world.drop_engine();
    let log = checkpoint_path(&world).with_file_name(format!("{:016x}.log", 3));
    let whole = fs::read(&log).expect("reads");
    fs::remove_file(&log).expect("removes");
    let error = world.open().expect_err("is refused").to_string();
    assert!(error.contains("layer 3 is missing"), "{error}");
    // Its first record is gone, the others are whole.
    let first = 32 + u32::from_le_bytes(whole[128..132].try_into().expect("four")) as usize;
    fs::write(&log, [&whole[..128], &whole[128 + first..]].concat()).expect("writes");
    for boot in ["boot-1", "boot-2"] {
        world.boot_id = boot.into();
        let outcome = world.open();
        assert!(outcome.is_err() || boot == "boot-2");
    }
}

#[test]
fn logs_that_come_back_after_a_power_loss_are_ignored_and_removed() {
    let mut world = varied();
    let journal = world.temp.path().join("working/journal");
    let old: Vec<(PathBuf, Vec<u8>)> = fs::read_dir(&journal)
        .expect("lists")
        .map(|entry| entry.expect("entry").path())
        .map(|path| (path.clone(), fs::read(path).expect("reads")))
        .collect();
    world.unlink("sparse").expect("unlinks");
    assert!(world.engine().checkpoint().expect("made"));
    let before = world.tree();
    let listed = files(&world);
    world.drop_engine();
    for (path, bytes) in old {
        fs::write(path, bytes).expect("comes back");
    }
    world.open().expect("recovers");
    assert_eq!(world.tree(), before);
    assert_eq!(files(&world)[..2], listed[..2]);
}

/// Made by an engine that knew no checkpoints, with three logs: two layers whose commits failed,
/// and what came afterwards.
#[test]
fn a_working_copy_from_before_checkpoints_is_recovered() {
    let golden = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/golden/before-checkpoints"
    );
    for boot in ["boot-1", "boot-2"] {
        let mut world = World::with_segments(Base::empty(), 8 << 10);
        world.drop_engine();
        for part in ["journal", "staging"] {
            let place = world.temp.path().join("working").join(part);
            fs::remove_dir_all(&place).expect("removes");
            fs::create_dir(&place).expect("makes");
            for entry in fs::read_dir(format!("{golden}/{part}")).expect("lists") {
                let entry = entry.expect("entry");
                fs::copy(entry.path(), place.join(entry.file_name())).expect("copies");
            }
        }
        world.boot_id = boot.into();
        let (recovery, dropped) = world.open().expect("recovers");
        assert_eq!(recovery.power_loss, boot == "boot-2");
        assert_eq!((recovery.cut_bytes, dropped), (0, 0));
        let kept = [
            &[1; 1000][..],
            &[5; 100],
            &[1; 3900],
            &[0; 15_000],
            &[6; 10],
        ]
        .concat();
        assert_eq!(world.get("d/kept"), kept);
        assert_eq!(world.get("second"), kept);
        assert_eq!(world.get("d/replaced"), [7; 4000]);
        assert_eq!(world.get("small"), b"a few bytes");
        let before = world.tree();
        assert_eq!(before.len(), 7);
        assert!(world.engine().checkpoint().expect("made"));
        assert_eq!(files(&world).len(), 2);
        world.crash();
        assert_eq!(world.tree(), before);
        let layer = world.freeze().expect("changed");
        world.commit(layer);
        assert_eq!(support::tree_of(&world.base), before);
    }
}
