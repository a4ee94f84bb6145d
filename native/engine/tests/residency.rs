//! Data that is not in memory: which requests name it, which state wins, and which rows are
//! refused.

mod support;

use std::ops::Range;

use cowfs_base::{ChunkHash, Errno};
use cowfs_engine::{
    AttrChange, ChunkRef, ContentRows, Error, ExtentRow, InodeRow, Missing, XattrPair,
};
use support::{Base, ROOT, World, root_user};

/// A version with a directory `d` that holds a file `f` of 40 chunks of 1 MiB.
fn large() -> (Base, u64, u64) {
    let mut base = Base::empty();
    let directory = InodeRow {
        ino: 2,
        mode: libc::S_IFDIR | 0o755,
        nlink: 2,
        ..InodeRow::default()
    };
    let file = InodeRow {
        ino: 3,
        mode: libc::S_IFREG | 0o644,
        nlink: 1,
        size: 40 << 20,
        mapped_bytes: 40 << 20,
        ..InodeRow::default()
    };
    base.entries.insert((ROOT, b"d".to_vec()), 2);
    base.entries.insert((2, b"f".to_vec()), 3);
    let row = |number: u64, base: &mut Base| ExtentRow {
        offset: number << 20,
        length: 1 << 20,
        chunk: base.add_chunk(&vec![number as u8; 1 << 20]),
        skip: 0,
    };
    let rows = (0..40).map(|number| row(number, &mut base)).collect();
    base.extents.insert(3, rows);
    base.inodes.extend([(2, directory), (3, file)]);
    base.next_ino = 4;
    (base, 2, 3)
}

fn missing<T: std::fmt::Debug>(outcome: cowfs_engine::Result<T>) -> Missing {
    match outcome {
        Err(Error::NotResident(missing)) => missing,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_call_names_what_it_lacks() {
    let (base, directory, file) = large();
    let world = World::on(base);
    let engine = world.engine();
    assert!(matches!(
        missing(engine.lookup(ROOT, b"d")),
        Missing::Directory(ROOT)
    ));
    engine
        .load_directory(ROOT, &world.base.directory(ROOT))
        .expect("loads");
    engine.lookup(ROOT, b"d").expect("is there");
    assert!(matches!(
        missing(engine.lookup(directory, b"f")),
        Missing::Directory(2)
    ));
    assert!(matches!(
        missing(engine.rmdir(ROOT, b"d", &root_user())),
        Missing::Directory(2)
    ));
    engine
        .load_directory(directory, &world.base.directory(directory))
        .expect("loads");
    let fh = engine
        .open_file(file, libc::O_RDWR)
        .expect("opening needs no content");
    assert!(matches!(
        missing(engine.read_file(fh, 5, 10)),
        Missing::Content {
            ino: 3,
            wanted: Range { start: 5, end: 15 }
        }
    ));
    assert!(matches!(
        missing(engine.write(fh, 0, b"x", true)),
        Missing::Content {
            ino: 3,
            wanted: Range { start: 0, end: 0 }
        }
    ));
    assert_eq!(
        engine
            .read_file(fh, 40 << 20, 10)
            .expect("behind the end there is nothing to load"),
        b""
    );
}

#[test]
fn what_a_sequential_reader_will_want_is_named() {
    let (base, _, file) = large();
    let world = World::on(base);
    world.resolve("d/f").expect("exists");
    let engine = world.engine();
    engine
        .load_content(file, &world.base.extents_of(file), &[])
        .expect("loads");
    let rows = world.base.extents_of(file);
    let fh = engine.open_file(file, libc::O_RDONLY).expect("opens");
    let ask = |offset| match missing(engine.read_file(fh, offset, 4096)) {
        Missing::Chunks { needed, .. } => assert_eq!(needed.len(), 1),
        other => panic!("{other:?}"),
    };
    // A jump, and reads far apart: nothing. Then it goes on where it was, and again.
    for offset in [30 << 20, 7 << 20, 20 << 20, 0] {
        ask(offset);
    }
    engine.cache_chunk(&rows[2].chunk.hash, &vec![1; 1 << 20]);
    ask(4096);
    let hashes = |range: std::ops::Range<usize>| -> Vec<_> {
        rows[range].iter().map(|row| row.chunk.hash).collect()
    };
    let named = engine.next_ahead().expect("is open");
    assert_eq!(
        named.iter().map(|chunk| chunk.hash).collect::<Vec<_>>(),
        [hashes(0..2), hashes(3..3)].concat(),
        "2 MiB, without the chunk that is here"
    );
    ask((1 << 20) + 5000);
    let named = engine.next_ahead().expect("is open");
    assert_eq!(
        named.iter().map(|chunk| chunk.hash).collect::<Vec<_>>(),
        hashes(3..10),
        "8 MiB, what is new of it"
    );
    ask(5 << 20);
    ask(9 << 20);
    let named = engine.next_ahead().expect("is open");
    assert_eq!(
        named.iter().map(|chunk| chunk.hash).collect::<Vec<_>>(),
        hashes(9..40),
        "of a long window all shares at once, since nobody else reads"
    );
    engine.release(fh).expect("releases");
    engine.close().expect("closes");
    assert!(engine.next_ahead().is_none());
}

#[test]
fn overwriting_and_truncating_fetch_no_chunk() {
    let (base, _, file) = large();
    let world = World::on(base);
    world.resolve("d/f").expect("exists");
    let engine = world.engine();
    engine
        .load_content(file, &world.base.extents_of(file), &[])
        .expect("loads");
    let fh = engine.open_file(file, libc::O_RDWR).expect("opens");
    engine.write(fh, 500, b"here", true).expect("writes");
    let change = cowfs_engine::AttrChange {
        size: Some(1 << 20),
        ..Default::default()
    };
    engine
        .setattr(file, &root_user(), &change)
        .expect("truncates");
    assert_eq!(engine.read_file(fh, 500, 4).expect("reads"), b"here");
    let (_, extents) = engine.live_extents(file).expect("extents");
    let skips: Vec<_> = extents
        .iter()
        .map(|extent| (extent.offset, extent.skip, extent.chunk.is_some()))
        .collect();
    assert_eq!(skips, [(0, 0, true), (500, 0, false), (504, 504, true)]);
}

#[test]
fn truncating_to_nothing_needs_no_content() {
    let (base, _, file) = large();
    let world = World::on(base);
    world.resolve("d/f").expect("exists");
    world
        .engine()
        .open_file(file, libc::O_WRONLY | libc::O_TRUNC)
        .expect("opens");
    assert_eq!(world.get("d/f"), b"");
    world
        .engine()
        .load_content(file, &world.base.extents_of(file), &[])
        .expect("comes too late");
    assert_eq!(world.get("d/f"), b"");
    let layer = world.freeze().expect("changed");
    assert_eq!(
        world
            .engine()
            .layer_contents(layer, 0, usize::MAX)
            .expect("contents")
            .len(),
        1
    );
}

#[test]
fn memory_wins_over_rows() {
    let (base, directory, file) = large();
    let world = World::on(base);
    let engine = world.engine();
    engine.load_inode(&world.base.inodes[&file]).expect("loads");
    let change = cowfs_engine::AttrChange {
        mode: Some(0o600),
        ..Default::default()
    };
    engine
        .setattr(file, &root_user(), &change)
        .expect("changes");
    assert_eq!(world.stat("d/f").mode & 0o777, 0o600);
    world.unlink("d/f").expect("unlinks");
    engine
        .load_directory(directory, &world.base.directory(directory))
        .expect("comes too late");
    assert_eq!(world.resolve("d/f"), Err(Errno::ENOENT));
    engine
        .load_content(file, &world.base.extents_of(file), &[])
        .expect("a content nobody needs any more");
}

#[test]
fn rows_that_cannot_be_are_refused() {
    let (base, directory, file) = large();
    let world = World::on(base);
    let engine = world.engine();
    world.resolve("d").expect("exists");
    let good = world.base.inodes[&file].clone();
    let refused = |outcome: cowfs_engine::Result<()>| {
        assert!(matches!(outcome, Err(Error::Os(Errno::EIO))), "{outcome:?}")
    };
    refused(engine.load_inode(&InodeRow {
        mode: 0o644,
        ..good.clone()
    }));
    refused(engine.load_inode(&InodeRow {
        ino: 0,
        ..good.clone()
    }));
    refused(engine.load_inode(&InodeRow {
        size: u64::MAX,
        ..good.clone()
    }));
    for name in [&b""[..], b".", b"..", b"a/b", b"nul\0", &[b'n'; 256]] {
        let entries = [(name.into(), good.clone())];
        refused(engine.load_directory(directory, &entries).map(drop));
    }
    let loop_entry = [(b"self"[..].into(), world.base.inodes[&directory].clone())];
    refused(engine.load_directory(directory, &loop_entry).map(drop));
    engine
        .load_directory(directory, &world.base.directory(directory))
        .expect("loads");
    let chunk = ChunkRef {
        hash: ChunkHash([1; 32]),
        pack: 1,
        offset: 0,
        stored_length: 10,
        raw_length: 10,
        codec: 0,
    };
    let row = ExtentRow {
        offset: 0,
        length: 10,
        chunk,
        skip: 0,
    };
    refused(engine.load_content(
        file,
        &[ExtentRow {
            length: 0,
            ..row.clone()
        }],
        &[],
    ));
    refused(engine.load_content(
        file,
        &[ExtentRow {
            skip: 1,
            ..row.clone()
        }],
        &[],
    ));
    refused(engine.load_content(
        file,
        &[ExtentRow {
            offset: u64::MAX,
            ..row.clone()
        }],
        &[],
    ));
    // Less than the inode's row counts, or data that the row denies: as from a version without the
    // file.
    refused(engine.load_content(file, &[], &[]));
    refused(engine.load_content(file, &[row], &[]));
    let rows = world.base.extents_of(file);
    let xattr = (b"user.a"[..].into(), b"1"[..].into());
    refused(engine.load_content(file, &rows, &[xattr]));
    engine.load_content(file, &rows, &[]).expect("loads");
}

#[test]
fn a_directory_in_two_others_is_refused_with_the_reason() {
    let (mut base, directory, _) = large();
    let row = base.inodes[&directory].clone();
    let other = InodeRow {
        ino: 4,
        ..row.clone()
    };
    base.entries.insert((ROOT, b"e".to_vec()), 4);
    base.inodes.insert(4, other);
    base.next_ino = 5;
    let world = World::on(base);
    world.resolve("d").expect("exists");
    world.resolve("e").expect("exists");
    let outcome = world.engine().load_directory(4, &[(b"d"[..].into(), row)]);
    assert!(matches!(outcome, Err(Error::Os(Errno::EIO))), "{outcome:?}");
    let reasons = cowfs_base::faults::take();
    let reason = format!("directory {directory} cannot be in directories {ROOT} and 4");
    assert!(
        reasons.iter().any(|(said, _)| *said == reason),
        "{reasons:?}"
    );
}

#[test]
fn neighbours_come_as_far_as_they_fit() {
    let (base, directory, file) = large();
    let world = World::on(base);
    let engine = world.engine();
    let rows = world.base.extents_of(file);
    let load = |contents: &[ContentRows]| engine.load_contents(contents).expect("loads");
    let is_there = || !engine.absent_chunks(file, 0, 1).is_empty();
    load(&[(file, rows.clone(), Vec::new())]);
    engine
        .load_directory(ROOT, &world.base.directory(ROOT))
        .expect("loads");
    engine
        .load_directory(directory, &world.base.directory(directory))
        .expect("loads");
    let xattr: XattrPair = (b"user.a"[..].into(), b"1"[..].into());
    load(&[(file, Vec::new(), Vec::new())]);
    load(&[(file, rows[1..].to_vec(), Vec::new())]);
    load(&[(file, rows.clone(), vec![xattr])]);
    assert!(!is_there(), "none of that is the file's");
    load(&[
        (directory, rows.clone(), Vec::new()),
        (file + 1000, rows.clone(), Vec::new()),
        (file, rows, Vec::new()),
    ]);
    assert!(is_there(), "others that do not fit are left out");
}

#[test]
fn files_that_lost_their_name_unread_are_told_to_a_commit() {
    let (base, directory, file) = large();
    let world = World::on(base);
    let kept = world.resolve("d/f").expect("exists");
    let engine = world.engine();
    assert!(engine.nameless_without_content().expect("says").is_empty());
    let fh = engine.open_file(kept, libc::O_RDONLY).expect("opens");
    engine
        .unlink(directory, b"f", &root_user())
        .expect("unlinks");
    assert_eq!(engine.nameless_without_content().expect("says"), [file]);
    engine
        .load_content(file, &world.base.extents_of(file), &[])
        .expect("loads");
    assert!(engine.nameless_without_content().expect("says").is_empty());
    engine.release(fh).expect("closes");
}

#[test]
fn a_hundred_thousand_entries_are_listed_once_each_while_others_go() {
    let world = World::new();
    let directory = world.mkdir("big");
    for number in 0..100_000 {
        let name = format!("entry-{number:06}");
        world
            .engine()
            .mknod(
                directory,
                name.as_bytes(),
                libc::S_IFREG | 0o644,
                0,
                &root_user(),
            )
            .expect("mknod");
    }
    let fh = world.engine().open_directory(directory).expect("opens");
    let (mut seen, mut cookie, mut removed) = (Vec::new(), 0, 0);
    loop {
        let part = world
            .engine()
            .read_directory(fh, cookie, 1000)
            .expect("lists");
        let Some(last) = part.last() else { break };
        cookie = last.cookie;
        for entry in part.iter().filter(|entry| !entry.name.starts_with(b".")) {
            seen.push(entry.name.clone());
            if entry.name.last().is_some_and(|digit| digit % 3 != 0) {
                world
                    .engine()
                    .unlink(directory, &entry.name, &root_user())
                    .expect("unlinks");
                removed += 1;
            }
        }
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 100_000);
    assert!(removed > 50_000);
    assert_eq!(world.names("big").len(), 100_000 - removed);
}

#[test]
fn directories_without_entries_are_found_until_there_are_none() {
    let (base, directory, _) = large();
    let world = World::on(base);
    let engine = world.engine();
    assert_eq!(engine.unloaded_directories().expect("says"), [ROOT]);
    let root_entries = world.base.directory(ROOT);
    let below = engine.load_directory(ROOT, &root_entries).expect("loads");
    assert_eq!(below, [directory]);
    assert_eq!(engine.unloaded_directories().expect("says"), [directory]);
    let again = engine
        .load_directory(ROOT, &root_entries)
        .expect("is here already");
    assert!(again.is_empty());
    let below = engine
        .load_directory(directory, &world.base.directory(directory))
        .expect("loads");
    assert!(below.is_empty());
    assert!(engine.unloaded_directories().expect("says").is_empty());
}

#[test]
fn a_file_that_grows_before_its_extents_are_here_takes_no_more_room() {
    let (base, _, file) = large();
    let world = World::on(base);
    let before = world.stat("d/f").blocks;
    let longer = AttrChange {
        size: Some(1 << 40),
        ..AttrChange::default()
    };
    let grown = world
        .engine()
        .setattr(file, &root_user(), &longer)
        .expect("needs no extents");
    assert_eq!((grown.size, grown.blocks), (1 << 40, before));
    assert_eq!(world.engine().getattr(file).expect("exists").blocks, before);
}

/// Its row is in the layer, its content is not: the version has the content from before, and the
/// row must count it.
#[test]
fn a_cold_file_that_is_emptied_while_its_row_is_committed_stays_whole_in_the_version() {
    let (base, _, file) = large();
    let mut world = World::on(base);
    world.ask(|engine| engine.lookup(2, b"f")).expect("exists");
    let touch = AttrChange {
        mode: Some(0o600),
        ..AttrChange::default()
    };
    let touched = |engine: &cowfs_engine::Engine| engine.setattr(file, &root_user(), &touch);
    world.ask(touched).expect("needs no content");
    let layer = world.freeze().expect("changed");
    let before = world.base.extents_of(file);
    world.put("d/f", b"new");
    world.commit(layer);
    assert_eq!(world.base.inodes[&file].mapped_bytes, 40 << 20);
    assert_eq!(world.base.extents_of(file), before);
    assert_eq!(world.get("d/f"), b"new");
}
