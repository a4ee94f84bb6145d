//! Which engine answers a call, and which data is missing before one can.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cowfs_base::{Errno, ROOT_INO};
use cowfs_engine::{Caller, Engine, HandleId, InodeRow, Options};
use cowfs_mounted::{Attachment, Error, Missing, Mounted, Result, Target, shown_ino};
use cowfs_survival::Table;

/// The first attachment of a mount.
const OLD: Attachment = 1;
const OLD_ID: &[u8] = b"0a1b2c3d";

/// A directory `d` with a file `f` of as many bytes as `size` says.
fn engine(dir: &Path, size: u64, is_writable: bool) -> Arc<Engine> {
    let row = |ino, mode, size| InodeRow {
        ino,
        mode,
        nlink: 1,
        size,
        ..InodeRow::default()
    };
    let options = Options {
        root: row(ROOT_INO, libc::S_IFDIR | 0o755, 0),
        next_ino: 4,
        cache_dir: dir.join("cache"),
        memory_cache_bytes: 0,
        is_store_near: false,
        staging_dir: is_writable.then(|| dir.join("work")),
        failures_file: None,
        staging_limit_bytes: 0,
        segment_bytes: 1 << 20,
        checkpoint_bytes: cowfs_engine::CHECKPOINT_BYTES,
        after_layer: 0,
        boot_id: String::new(),
    };
    if is_writable {
        std::fs::create_dir_all(dir.join("work")).unwrap();
    }
    let engine = Engine::open(options).unwrap();
    if is_writable {
        engine.recover().unwrap();
    }
    let directory = row(2, libc::S_IFDIR | 0o755, 0);
    let file = row(3, libc::S_IFREG | 0o644, size);
    engine
        .load_directory(ROOT_INO, &[(Box::from(*b"d"), directory)])
        .unwrap();
    engine
        .load_directory(2, &[(Box::from(*b"f"), file)])
        .unwrap();
    if is_writable {
        engine.replay().unwrap();
    }
    Arc::new(engine)
}

fn missing<T: std::fmt::Debug>(outcome: Result<T>) -> Missing {
    match outcome {
        Err(Error::NotResident(missing)) => missing,
        other => panic!("{other:?}"),
    }
}

fn errno<T: std::fmt::Debug>(outcome: Result<T>) -> Errno {
    match outcome {
        Err(Error::Os(errno)) => errno,
        other => panic!("{other:?}"),
    }
}

/// All of a directory, as the kernel asks for it: behind the last cookie, until nothing comes.
fn names(files: &Mounted, fh: HandleId, limit: usize) -> Vec<String> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let entries = files.read_directory(fh, cookie, limit).unwrap();
        let Some(last) = entries.last() else {
            return names;
        };
        cookie = last.cookie;
        let found = entries.into_iter();
        names.extend(found.map(|entry| String::from_utf8(entry.name).unwrap()));
    }
}

#[test]
fn what_is_missing_is_said_step_by_step() {
    let dir = tempfile::tempdir().unwrap();
    let files = Mounted::with_versions(engine(dir.path(), 5, true), false);
    let cowfs = files.lookup(ROOT_INO, b".cowfs").unwrap().ino;
    let versions = files.lookup(cowfs, b"versions").unwrap().ino;
    assert!(
        matches!(missing(files.lookup(versions, OLD_ID)), Missing::Name(name) if name == OLD_ID)
    );
    files.name_version(OLD_ID, Target::Version).unwrap();
    assert!(matches!(
        missing(files.lookup(versions, OLD_ID)),
        Missing::Closed(OLD, id) if id == OLD_ID
    ));
    files.open_version(OLD, OLD_ID, engine(&dir.path().join("old"), 3, false));
    let root = files.lookup(versions, OLD_ID).unwrap().ino;
    let directory = files.lookup(root, b"d").unwrap().ino;
    assert_eq!(files.lookup(directory, b"f").unwrap().size, 3);
    assert_eq!(files.lookup(2, b"f").unwrap().size, 5);
    assert_eq!(shown_ino(root), (1 << 37) + 1);
    assert_ne!(files.generation(root), 0);
    assert_eq!(files.generation(2), 0);
    let fh = files.open_file(files.lookup(directory, b"f").unwrap().ino, libc::O_RDONLY);
    let fh = fh.unwrap();
    assert!(matches!(
        missing(files.read_file(fh, 0, 3)),
        Missing::Of(OLD, cowfs_engine::Missing::Content { ino: 3, .. })
    ));
    files.release(fh).unwrap();
}

#[test]
fn a_version_with_an_open_file_is_not_closed() {
    let dir = tempfile::tempdir().unwrap();
    let files = Mounted::with_versions(engine(dir.path(), 5, true), false);
    files.name_version(OLD_ID, Target::Version).unwrap();
    files.open_version(OLD, OLD_ID, engine(&dir.path().join("old"), 3, false));
    let root = (u64::from(OLD) << 48) | ROOT_INO;
    let fh = files.open_directory(root).unwrap();
    assert_eq!(names(&files, fh, 100), [".", "..", "d"]);
    assert!(!files.close_version(OLD));
    assert_eq!(files.open_versions(), [OLD]);
    files.release_directory(fh).unwrap();
    assert!(files.close_version(OLD));
    assert!(files.open_versions().is_empty());
    assert!(matches!(
        missing(files.getattr(root)),
        Missing::Closed(OLD, _)
    ));
    files.forget(root, 3).unwrap();
    files.open_version(OLD, OLD_ID, engine(&dir.path().join("again"), 3, false));
    assert_eq!(files.getattr(root).unwrap().ino, root);
}

#[test]
fn nothing_beside_the_volume_is_changed() {
    let dir = tempfile::tempdir().unwrap();
    let files = Mounted::with_versions(engine(dir.path(), 5, true), false);
    files.name_version(OLD_ID, Target::Version).unwrap();
    files.open_version(OLD, OLD_ID, engine(&dir.path().join("old"), 3, false));
    let old = |ino: u64| (u64::from(OLD) << 48) | ino;
    let cowfs = files.lookup(ROOT_INO, b".cowfs").unwrap().ino;
    for number in [old(ROOT_INO), old(3), cowfs, cowfs + 1] {
        assert!(matches!(files.own(number), Err(Error::Os(Errno::EROFS))));
        assert!(matches!(
            files.own_parent(number, b"a"),
            Err(Error::Os(Errno::EROFS))
        ));
        assert_eq!(errno(files.own_source(number)), Errno::EXDEV);
    }
    for flags in [libc::O_RDWR, libc::O_WRONLY, libc::O_TRUNC] {
        assert_eq!(errno(files.open_file(old(3), flags)), Errno::EROFS);
    }
    assert!(matches!(
        files.own_parent(ROOT_INO, b".cowfs"),
        Err(Error::Os(Errno::EROFS))
    ));
    assert!(
        files.own_parent(2, b".cowfs").is_ok(),
        "in another directory"
    );
    let alone = Mounted::new(files.engine().clone());
    assert!(alone.own_parent(ROOT_INO, b".cowfs").is_ok());
    assert_eq!(errno(alone.lookup(ROOT_INO, b".cowfs")), Errno::ENOENT);
    assert_eq!(errno(alone.getattr(cowfs)), Errno::EBADF);
}

#[test]
fn the_root_lists_it_where_it_is_to_and_the_volume_has_none() {
    let dir = tempfile::tempdir().unwrap();
    let own = engine(dir.path(), 5, true);
    let files = Mounted::with_versions(own.clone(), true);
    let fh = files.open_directory(ROOT_INO).unwrap();
    assert_eq!(names(&files, fh, 100), [".", "..", "d", ".cowfs"]);
    assert_eq!(names(&files, fh, 1), [".", "..", "d", ".cowfs"]);
    files.release_directory(fh).unwrap();
    own.mkdir(ROOT_INO, b".cowfs", 0o755, &Caller::default())
        .unwrap();
    let fh = files.open_directory(ROOT_INO).unwrap();
    assert_eq!(names(&files, fh, 100), [".", "..", "d", ".cowfs"]);
    assert_eq!(files.lookup(ROOT_INO, b".cowfs").unwrap().ino, 4);
    assert!(files.own_parent(ROOT_INO, b".cowfs").is_ok());
    let below = files.open_directory(2).unwrap();
    assert_eq!(names(&files, below, 100), [".", "..", "f"]);
}

#[test]
fn a_listing_has_the_names_that_were_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let files = Mounted::with_versions(engine(dir.path(), 5, true), false);
    let cowfs = files.lookup(ROOT_INO, b".cowfs").unwrap().ino;
    let fh = files.open_directory(cowfs).unwrap();
    assert_eq!(names(&files, fh, 100), [".", "..", "versions"]);
    let versions = files.lookup(cowfs, b"versions").unwrap().ino;
    assert!(matches!(
        missing(files.open_directory(versions)),
        Missing::Names
    ));
    files
        .list_versions(vec![
            (OLD_ID.to_vec(), Target::Version),
            (b"tag".to_vec(), Target::Id(OLD_ID.to_vec())),
        ])
        .unwrap();
    let fh = files.open_directory(versions).unwrap();
    assert_eq!(names(&files, fh, 100), [".", "..", "tag", "0a1b2c3d"]);
    let link = files.lookup(versions, b"tag").unwrap();
    assert_eq!(files.readlink(link.ino).unwrap(), OLD_ID);
    assert_eq!(files.getattr(link.ino).unwrap().size, OLD_ID.len() as u64);
    assert!(files.is_only_named(link.ino) && !files.is_only_named(versions));
    assert_eq!(errno(files.getattr(link.ino + 1)), Errno::ESTALE);
    assert_eq!(errno(files.readlink(versions)), Errno::EINVAL);
    assert!(files.may_move(link.ino) && files.may_move(versions) && !files.may_move(ROOT_INO));
    assert!(
        matches!(missing(files.open_directory(versions)), Missing::Names),
        "once"
    );
    std::thread::sleep(Duration::from_millis(2100));
    assert!(matches!(
        missing(files.lookup(versions, b"tag")),
        Missing::Name(_)
    ));
    files.release_directory(fh).unwrap();
    files.release_directory(fh).unwrap();
}

/// Names of so many versions.
fn ids(numbers: std::ops::Range<u32>) -> Vec<(Vec<u8>, Target)> {
    let name = |number: u32| format!("{number:08x}").into_bytes();
    numbers
        .map(|number| (name(number), Target::Version))
        .collect()
}

const VERSIONS_MAX: u32 = 0xffff - (1 << 11);

#[test]
fn a_number_goes_to_another_version_when_the_kernel_refers_to_nothing_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let files = Mounted::with_versions(engine(dir.path(), 5, true), false);
    let cowfs = files.lookup(ROOT_INO, b".cowfs").unwrap().ino;
    let versions = files.lookup(cowfs, b"versions").unwrap().ino;
    files.name_version(OLD_ID, Target::Version).unwrap();
    assert!(files.open_version(OLD, OLD_ID, engine(&dir.path().join("old"), 3, false)));
    let root = files.lookup(versions, OLD_ID).unwrap().ino;
    let generation = files.generation(root);
    files.lookup(root, b"d").unwrap();
    let fh = files.open_directory(root).unwrap();
    let mut listed = Vec::new();
    let mut list = |name: &[u8], _, attr: &cowfs_base::Attr| {
        if name == b"d" {
            listed.push(attr.ino);
        }
        true
    };
    files.list_directory(fh, 0, true, &mut list).unwrap();
    files.release_directory(fh).unwrap();
    assert!(files.close_version(OLD));
    // All numbers are in use, and all but this one are given to others.
    files.list_versions(ids(0..VERSIONS_MAX)).unwrap();
    let is_known = |files: &Mounted| match missing(files.lookup(versions, OLD_ID)) {
        Missing::Closed(OLD, _) => true,
        Missing::Name(_) => false,
        other => panic!("{other:?}"),
    };
    assert!(is_known(&files), "an entry is referred to");
    files.forget(root, 1).unwrap();
    files.forget(listed[0], 1).unwrap();
    files.list_versions(ids(0..VERSIONS_MAX)).unwrap();
    assert!(is_known(&files), "an entry is referred to once more");
    files.forget(listed[0], 1).unwrap();
    files.list_versions(ids(1..VERSIONS_MAX + 1)).unwrap();
    assert!(!is_known(&files));
    assert!(!files.open_version(OLD, OLD_ID, engine(&dir.path().join("late"), 3, false)));
    assert_ne!(
        files.generation(root),
        generation,
        "it is another version now"
    );
}

#[test]
fn numbers_that_the_kernel_refers_to_are_not_given_out() {
    let dir = tempfile::tempdir().unwrap();
    let files = Mounted::with_versions(engine(dir.path(), 5, true), false);
    files.list_versions(ids(0..VERSIONS_MAX)).unwrap();
    for number in 1..=VERSIONS_MAX {
        files
            .entry_delivered(u64::from(number) << 48 | ROOT_INO)
            .unwrap();
    }
    assert_eq!(
        errno(files.name_version(OLD_ID, Target::Version)),
        Errno(libc::ENFILE)
    );
    assert_eq!(
        errno(files.list_versions(ids(1..VERSIONS_MAX + 1))),
        Errno(libc::ENFILE)
    );
    let root = 77 << 48 | ROOT_INO;
    files.forget(root, 1).unwrap();
    files.name_version(OLD_ID, Target::Version).unwrap();
    assert!(files.open_version(77, OLD_ID, engine(&dir.path().join("old"), 3, false)));
    assert_eq!(
        errno(files.getattr((VERSIONS_MAX as u64 + 1) << 48 | 1)),
        Errno::ESTALE
    );
}

/// The next process on a mount gets requests with handles that the one before gave out.
#[test]
fn handles_of_an_earlier_process_are_taken_as_they_stand() {
    let dir = tempfile::tempdir().unwrap();
    let files = Mounted::with_versions(engine(dir.path(), 5, true), true);
    let cowfs = files.lookup(ROOT_INO, b".cowfs").unwrap().ino;
    let fh = files.open_directory(ROOT_INO).unwrap().fh;
    let again = Mounted::with_versions(engine(&dir.path().join("again"), 5, true), true);
    let handle = |ino, fh| HandleId { ino, fh };
    let root = handle(ROOT_INO, fh);
    assert_eq!(names(&again, root, 1), [".", "..", "d", ".cowfs"]);
    assert_eq!(names(&again, handle(cowfs, 9), 1), [".", "..", "versions"]);
    let versions = handle(cowfs + 1, 9);
    assert!(matches!(
        missing(again.read_directory(versions, 0, 9)),
        Missing::Names
    ));
    again.list_versions(ids(0..9)).unwrap();
    let listed = names(&again, versions, 2);
    again.release_directory(versions).unwrap();
    // A listing goes on where it was, whatever came meanwhile.
    again.list_versions(ids(0..20)).unwrap();
    let entries = again.read_directory(versions, 0, 3).unwrap();
    again.release_directory(versions).unwrap();
    again.list_versions(ids(0..9)).unwrap();
    let rest = again
        .read_directory(versions, entries[2].cookie, 99)
        .unwrap();
    assert!(
        rest.iter()
            .all(|entry| { listed.contains(&String::from_utf8(entry.name.clone()).unwrap()) })
    );
    for id in [root, handle(cowfs, 9), versions] {
        again.release_directory(id).unwrap();
    }
}

/// The whole id of a version.
fn whole(number: u32) -> Vec<u8> {
    format!("{number:064x}").into_bytes()
}

/// Files of a server of the mount with this table, and `.cowfs/versions`.
fn served(dir: &Path, memory: &OwnedFd) -> (Mounted, u64) {
    let files = Mounted::with_versions(engine(dir, 5, true), false);
    let table = Table::open(memory.as_fd(), 0x1_0000_0077).unwrap();
    files.keep_attachments(Arc::new(table));
    let cowfs = files.lookup(ROOT_INO, b".cowfs").unwrap().ino;
    assert_eq!(files.generation(cowfs), 0x77);
    let versions = files.lookup(cowfs, b"versions").unwrap().ino;
    (files, versions)
}

#[test]
fn the_next_server_knows_which_attachment_was_which_version() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Table::allocate().unwrap();
    let (files, versions) = served(&dir.path().join("one"), &memory);
    for number in [7, 8, 9] {
        files.name_version(&whole(number), Target::Version).unwrap();
    }
    files.name_version(b"tag", Target::Id(whole(9))).unwrap();
    let link = files.lookup(versions, b"tag").unwrap().ino;
    let eight = (2 << 48) | ROOT_INO;
    let generations = [eight, link].map(|node| files.generation(node));
    files.entry_delivered(eight).unwrap();
    drop(files);
    let (files, versions) = served(&dir.path().join("other"), &memory);
    // Whatever is asked for first.
    files.name_version(&whole(10), Target::Version).unwrap();
    assert_eq!(
        [eight, link].map(|node| files.generation(node)),
        generations
    );
    assert_eq!(files.readlink(link).unwrap(), whole(9));
    files.name_version(b"other", Target::Id(whole(9))).unwrap();
    assert_eq!(files.lookup(versions, b"other").unwrap().ino, link);
    let Missing::Closed(2, id) = missing(files.getattr(eight)) else {
        panic!("another version")
    };
    assert_eq!(id, whole(8));
    assert!(files.open_version(2, &id, engine(&dir.path().join("eight"), 3, false)));
    assert_eq!(files.getattr(eight).unwrap().ino, eight);
    assert!(matches!(
        missing(files.lookup(versions, &whole(10))),
        Missing::Closed(4, _)
    ));
    for number in [1, 5] {
        // The kernel never referred to it, or it never was.
        let status = files.getattr((number << 48) | ROOT_INO);
        assert_eq!(errno(status), Errno::ESTALE);
    }
    let name = files.name_version(OLD_ID, Target::Version);
    assert_eq!(errno(name), Errno::EINVAL, "no table can keep it");
}

#[test]
fn a_number_that_an_earlier_server_gave_out_stays_with_its_version() {
    let dir = tempfile::tempdir().unwrap();
    let memory = Table::allocate().unwrap();
    let (files, _) = served(&dir.path().join("one"), &memory);
    files.name_version(&whole(7), Target::Version).unwrap();
    let first = (1 << 48) | ROOT_INO;
    files.entry_delivered(first).unwrap();
    drop(files);
    let (files, versions) = served(&dir.path().join("other"), &memory);
    let all = |numbers: std::ops::Range<u32>| {
        let names = numbers.map(|number| (whole(number), Target::Version));
        files.list_versions(names.collect())
    };
    all(8..7 + VERSIONS_MAX).unwrap();
    // The kernel refers to none of the others.
    files.name_version(b"tag", Target::Id(whole(8))).unwrap();
    let link = files.lookup(versions, b"tag").unwrap().ino;
    files.entry_delivered(link).unwrap();
    files.forget(link, 1).unwrap();
    all(9 + VERSIONS_MAX..10 + VERSIONS_MAX).unwrap();
    assert_eq!(files.readlink(link).unwrap(), whole(8));
    assert!(matches!(missing(files.getattr(first)), Missing::Closed(1, id) if id == whole(7)));
    files.forget(link, 1).unwrap();
    all(20_000_000..20_000_000 + VERSIONS_MAX - 1).unwrap();
    let target = files.readlink(link);
    assert_ne!(target.unwrap_or_default(), whole(8), "it was forgotten");
    drop(files);
    let kept = Table::open(memory.as_fd(), 1).unwrap().attachments();
    assert_eq!((kept[0].number, kept[0].id[31]), (1, 7));
    assert_eq!(kept.len(), 1, "the others were only listed, or forgotten");
}
