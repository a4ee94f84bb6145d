//! Crashes, power losses and damage.

mod support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use cowfs_base::Errno;
use cowfs_engine::{Error, Recovery};
use support::{ROOT, World, root_user};

fn files(world: &World, folder: &str) -> Vec<PathBuf> {
    let folder = world.temp.path().join("working").join(folder);
    let mut files: Vec<_> = fs::read_dir(folder)
        .expect("lists")
        .map(|entry| entry.expect("entry").path())
        .collect();
    files.sort();
    files
}

fn segment_of(world: &World, ino: u64, extent: usize) -> (PathBuf, u64) {
    let (_, extents) = world.engine().live_extents(ino).expect("extents");
    let (segment, offset) = extents[extent].staged.expect("staged");
    (
        world
            .temp
            .path()
            .join(format!("working/staging/{segment:016x}.seg")),
        offset,
    )
}

#[test]
fn a_fresh_working_copy_has_nothing_to_recover() {
    let mut world = World::new();
    assert_eq!(world.crash(), (Recovery::default(), 0));
}

#[test]
fn everything_written_survives_the_daemon() {
    let mut world = World::new();
    world.mkdir("d");
    let ino = world.put("d/f", &[1; 5000]);
    world.write_at("d/f", 100, &[2; 50]).expect("writes");
    world
        .ask(|engine| engine.set_xattr(ino, b"user.a", b"1", 0))
        .expect("sets");
    world
        .ask(|engine| engine.link(ino, ROOT, b"g"))
        .expect("links");
    let before = world.tree();
    let times = world.stat("d/f");
    for _ in 0..3 {
        let (recovery, dropped) = world.crash();
        assert!(
            recovery.records > 0 && !recovery.power_loss && recovery.cut_bytes == 0 && dropped == 0
        );
        assert_eq!(world.tree(), before);
    }
    assert_eq!(world.stat("d/f"), times);
}

#[test]
fn recovery_asks_for_what_the_journal_touches_and_no_more() {
    let mut world = World::new();
    world.mkdir("touched");
    world.mkdir("untouched");
    world.put("touched/old", b"old");
    let untouched = world.put("untouched/file", b"x");
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    world.crash();
    let new = world.put("touched/new", b"new");
    let (recovery, _) = world.crash();
    let touched = world.resolve("touched").expect("exists");
    assert_eq!(recovery.directories, [touched]);
    assert_eq!(recovery.inodes, [touched], "the base has no other");
    assert_eq!(recovery.contents, []);
    assert!(new > touched);
    assert!(!recovery.inodes.contains(&untouched));
    assert_eq!(world.names("touched"), ["old", "new"]);
}

#[test]
fn a_file_that_was_unlinked_while_open_is_gone_after_a_crash() {
    let mut world = World::new();
    let ino = world.put("f", b"x");
    world
        .ask(|engine| engine.open_file(ino, libc::O_RDWR))
        .expect("opens");
    world.unlink("f").expect("unlinks");
    world.crash();
    assert!(world.engine().getattr(ino).is_err());
    let next = world.put("g", b"");
    assert!(next > ino, "its number is not given out again");
}

#[test]
fn after_a_power_loss_bytes_that_never_arrived_are_not_served() {
    let mut world = World::new();
    let ino = world.put("f", &[1; 4000]);
    let fh = world
        .ask(|engine| engine.open_file(ino, libc::O_RDWR))
        .expect("opens");
    world.engine().fsync(fh, false).expect("syncs");
    world.write_at("f", 1000, &[2; 500]).expect("writes");
    world.put("other", &[3; 100]);
    let (segment, offset) = segment_of(&world, ino, 1);
    world.drop_engine();
    fs::File::options()
        .write(true)
        .open(segment)
        .expect("opens")
        .write_all_at(&[0; 500], offset)
        .expect("damages");
    world.boot_id = "boot-2".into();
    let (recovery, dropped) = world.open().expect("recovers");
    assert!(recovery.power_loss);
    assert_eq!(dropped, 1);
    assert_eq!(
        world.get("f"),
        [1; 4000],
        "what was fsynced below shows again"
    );
    assert_eq!(world.get("other"), [3; 100]);
    let before = world.tree();
    world.crash();
    assert_eq!(world.tree(), before, "and once more the same");
}

#[test]
fn covered_bytes_are_kept_until_their_cover_is_committed() {
    let mut world = World::new();
    let ino = world.put("f", &[1; 4000]);
    world.crash();
    world
        .write_at("f", 0, &[2; 4000])
        .expect("covers all of it");
    world.engine().trim_staging(0).expect("trims");
    let (segment, offset) = segment_of(&world, ino, 0);
    world.drop_engine();
    fs::File::options()
        .write(true)
        .open(segment)
        .expect("opens")
        .write_all_at(&[9; 10], offset)
        .expect("damages");
    world.boot_id = "boot-2".into();
    assert_eq!(world.open().expect("recovers").1, 1);
    assert_eq!(world.get("f"), [1; 4000]);
}

#[test]
fn a_torn_tail_is_cut_and_told() {
    let mut world = World::new();
    world.put("f", b"x");
    let before = world.tree();
    world.put("torn", b"");
    world.drop_engine();
    let journal = files(&world, "journal").pop().expect("a journal");
    let length = fs::metadata(&journal).expect("exists").len();
    fs::File::options()
        .write(true)
        .open(&journal)
        .expect("opens")
        .set_len(length - 3)
        .expect("cuts");
    let (recovery, _) = world.open().expect("recovers");
    assert!(recovery.cut_bytes > 0);
    // The record before the torn one: `torn` exists, its opening truncation does not matter; `f` is
    // whole.
    assert_eq!(world.get("f"), b"x");
    assert!(world.tree().len() <= before.len() + 1);
}

#[test]
fn a_file_is_replaced_whole_or_not_at_all() {
    let journal = |world: &World| files(world, "journal").pop().expect("a journal");
    let length = |world: &World| fs::metadata(journal(world)).expect("exists").len();
    for (old, new) in [(9000, 70), (70, 9000), (5000, 5000), (9000, 0)] {
        let (old, new) = (vec![1; old], vec![2; new]);
        let mut cut_bytes = 0;
        loop {
            let mut world = World::new();
            world.put("f", &old);
            let before = length(&world);
            world.replace("f", &new).expect("replaces");
            assert_eq!(world.get("f"), new);
            world.drop_engine();
            let left = length(&world) - cut_bytes;
            let file = fs::File::options().write(true).open(journal(&world));
            file.expect("opens").set_len(left).expect("cuts");
            world.open().expect("recovers");
            let wanted = if cut_bytes == 0 { &new } else { &old };
            assert!(world.get("f") == *wanted, "{cut_bytes} bytes were cut off");
            if left == before {
                break;
            }
            cut_bytes += 1;
        }
    }
}

#[test]
fn damage_in_the_middle_is_refused_and_touches_nothing() {
    let mut world = World::new();
    for number in 0..20 {
        world.put(&format!("f{number}"), b"x");
    }
    world.drop_engine();
    let journal = files(&world, "journal").pop().expect("a journal");
    let mut bytes = fs::read(&journal).expect("reads");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(&journal, &bytes).expect("damages");
    assert!(matches!(world.open(), Err(Error::JournalCorrupt(_))));
    assert_eq!(fs::read(&journal).expect("reads"), bytes);
    assert!(!files(&world, "staging").is_empty(), "every file is kept");
}

#[test]
fn a_missing_segment_costs_what_was_in_it_and_no_more() {
    let mut world = World::new();
    let lost = world.put("lost", &[1; 9000]);
    let partly = world.put("partly", &[2; 9000]);
    let layer = world.freeze().expect("changed");
    world.put("lost", &[3; 9000]);
    world.write_at("partly", 4000, &[4; 100]).expect("writes");
    world.commit(layer);
    let gone = segment_of(&world, lost, 0).0;
    world.crash();
    world.put("kept", &[5; 9000]);
    world.write_at("partly", 8000, &[6; 100]).expect("writes");
    world.drop_engine();
    fs::remove_file(gone).expect("removes");
    let open = |world: &World, path: &str| {
        let ino = world.resolve(path).expect("exists");
        let fh = world.ask(|engine| engine.open_file(ino, libc::O_RDWR));
        fh.expect("opens")
    };
    let read = |world: &World, path: &str, offset: u64, size: usize| {
        let fh = open(world, path);
        world.ask(|engine| engine.read_file(fh, offset, size))
    };
    // Once more, and after a power loss, which passes over records without bytes.
    for boot in ["boot-1", "boot-1", "boot-2", "boot-2"] {
        world.boot_id = boot.into();
        world.open().expect("recovers");
        let files = world.engine().lost_files().expect("says");
        assert_eq!(files, [(lost, 9000), (partly, 100)]);
        assert_eq!(world.get("kept"), [5; 9000]);
        assert_eq!(read(&world, "lost", 0, 1), Err(Errno::EIO));
        assert_eq!(read(&world, "partly", 3999, 2), Err(Errno::EIO));
        assert_eq!(read(&world, "partly", 0, 4000), Ok(vec![2; 4000]));
        assert_eq!(read(&world, "partly", 4100, 3900), Ok(vec![2; 3900]));
        assert_eq!(read(&world, "partly", 8000, 100), Ok(vec![6; 100]));
        let fh = open(&world, "partly");
        let synced = world.ask(|engine| engine.fsync(fh, false));
        assert_eq!(synced, Err(Errno::EIO));
        let target = open(&world, "kept");
        let source = {
            let engine = world.engine();
            engine.open_file(lost, libc::O_RDONLY).expect("opens")
        };
        let copied = world.ask(|engine| engine.copy_range((source, 0), (target, 0), 9000, false));
        assert!(copied.is_err(), "{copied:?}");
    }
    let names = world.engine().names_of(&[lost, partly]).expect("says");
    assert_eq!(names.len(), 2);
    // Overwritten and removed, they are as any other.
    world.write_at("partly", 3900, &[7; 300]).expect("writes");
    assert_eq!(world.engine().lost_files().expect("says"), [(lost, 9000)]);
    world.unlink("lost").expect("unlinks");
    assert!(world.engine().lost_files().expect("says").is_empty());
    let fh = open(&world, "partly");
    world.engine().fsync(fh, false).expect("syncs");
    let before = world.tree();
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    assert_eq!(world.tree(), before);
    world.crash();
    assert_eq!(world.tree(), before);
}

#[test]
fn journals_and_segments_of_committed_layers_go() {
    let mut world = World::new();
    world.put("f", &[1; 100]);
    let layer = world.freeze().expect("changed");
    world.put("g", &[2; 100]);
    world.commit(layer);
    assert_eq!(files(&world, "journal").len(), 1);
    let before = world.tree();
    let (recovery, _) = world.crash();
    assert!(recovery.records > 0);
    assert_eq!(world.tree(), before);
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    world.drop_engine();
    world.open().expect("opens");
    assert_eq!(world.crash(), (Recovery::default(), 0));
    let names: Vec<_> = files(&world, "staging")
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "seg"))
        .collect();
    assert!(names.is_empty(), "{names:?}");
    assert_eq!(world.tree(), before);
}

#[test]
fn numbers_are_not_given_out_twice_after_a_crash() {
    let mut world = World::new();
    let first = world.put("a", b"");
    world.unlink("a").expect("unlinks");
    world.crash();
    let second = world.put("b", b"");
    assert!(second > first);
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    assert!(world.base.next_ino > second);
}

#[test]
fn the_number_of_a_file_without_a_name_is_not_given_out_again() {
    let mut world = World::new();
    let make = |world: &World| {
        let caller = root_user();
        let made = world.ask(|engine| engine.create_unnamed(ROOT, 0o600, libc::O_RDWR, &caller));
        made.expect("makes").0.ino
    };
    let first = make(&world);
    assert!(!world.engine().is_dirty().expect("says"));
    world.crash();
    let second = make(&world);
    assert!(second > first);
    let layer = {
        world.put("f", b"x");
        world.freeze().expect("changed")
    };
    let third = make(&world);
    world.commit(layer);
    world.crash();
    assert!(world.put("g", b"") > third);
    assert_eq!(world.names(""), ["f", "g"]);
}

#[test]
fn changes_wait_for_the_replay() {
    let mut world = World::new();
    world.put("f", b"x");
    world.drop_engine();
    let engine = world.open_unreplayed();
    let outcome = engine.mkdir(ROOT, b"d", 0o755, &root_user());
    assert!(matches!(outcome, Err(Error::Os(cowfs_base::Errno::EINVAL))));
    drop(engine);
    world.open().expect("recovers");
    assert_eq!(world.get("f"), b"x");
}

#[test]
fn commits_that_keep_failing_make_no_new_files() {
    let mut world = World::new();
    world.put("f", b"1");
    let first = world.freeze().expect("changed");
    world.engine().layer_failed(first).expect("joins");
    let journals = files(&world, "journal");
    for _ in 0..20 {
        let layer = world.freeze().expect("not committed yet");
        assert_eq!(
            layer, first,
            "nothing has changed since: the same layer again"
        );
        world.engine().layer_failed(layer).expect("joins");
    }
    assert_eq!(files(&world, "journal"), journals);

    let layer = world.freeze().expect("not committed yet");
    world.put("g", b"2"); // while the commit runs
    let before = world.tree();
    world.commit(layer);
    assert_eq!(world.tree(), before);
    world.crash();
    assert_eq!(world.tree(), before);

    let layer = world
        .freeze()
        .expect("what came back from the crash is not committed");
    world.commit(layer);
    assert!(world.freeze().is_none());
    world.crash();
    assert_eq!(world.tree(), before);
}

#[test]
fn the_last_logs_are_truncated_to_their_lengths_before_they_are_read() {
    let mut world = World::new();
    for name in ["a", "b", "c"] {
        world.crash();
        world.put(name, b"bytes");
    }
    world.drop_engine();
    let logs = files(&world, "journal");
    let bytes = || -> Vec<_> {
        logs.iter()
            .map(|log| fs::read(log).expect("reads"))
            .collect()
    };
    let before = bytes();
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    for log in &logs {
        let file = fs::File::options().write(true).open(log).expect("opens");
        file.set_modified(long_ago).expect("set");
    }
    drop(world.open_unreplayed());
    // A truncation waits for an append under way, and sets the time.
    let was_truncated = |log: &PathBuf| {
        let status = fs::metadata(log).expect("is there");
        status.modified().expect("a time") != long_ago
    };
    let truncated: Vec<bool> = logs.iter().map(was_truncated).collect();
    let untouched = logs.len() - 2;
    assert!((0..logs.len()).all(|log| truncated[log] == (log >= untouched)));
    assert_eq!(bytes(), before);
}
