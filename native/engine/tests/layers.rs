//! Freezing, committing and joining layers while writers go on.

mod support;

use cowfs_base::Errno;
use cowfs_engine::{AttrChange, Error, ExtentRow, FileRows, Record, SmallContent};
use support::{Base, ROOT, World, read_all, root_user, tree_of};

#[test]
fn nothing_changed_is_no_layer() {
    let mut world = World::new();
    assert_eq!(world.freeze(), None);
    assert!(!world.engine().is_dirty().expect("says"));
    world.put("f", b"x");
    assert!(world.engine().is_dirty().expect("says"));
    let layer = world.freeze().expect("changed");
    assert!(
        world.engine().is_dirty().expect("says"),
        "frozen is not committed"
    );
    assert!(
        matches!(world.engine().freeze(), Err(Error::Os(Errno::EBUSY))),
        "one at a time"
    );
    world.commit(layer);
    assert!(!world.engine().is_dirty().expect("says"));
    assert_eq!(world.freeze(), None);
}

#[test]
fn a_layer_is_as_it_was_at_the_freeze() {
    let mut world = World::new();
    world.mkdir("d");
    world.put("d/kept", b"kept");
    world.put("d/changed", b"before");
    world.put("d/removed", b"removed");
    let shrunk = world.put("d/shrunk", &[7; 10_000]);
    world
        .ask(|engine| engine.set_xattr(shrunk, b"user.a", b"before", 0))
        .expect("sets");
    let then = world.tree();
    let layer = world.freeze().expect("changed");
    world.put("d/changed", b"afterwards");
    world.unlink("d/removed").expect("unlinks");
    world.put("d/new", b"new");
    world.write_at("d/kept", 2, b"PT").expect("writes");
    world
        .ask(|engine| engine.set_xattr(shrunk, b"user.a", b"after", 0))
        .expect("sets");
    let change = cowfs_engine::AttrChange {
        size: Some(10),
        ..Default::default()
    };
    world
        .ask(|engine| engine.setattr(shrunk, &root_user(), &change))
        .expect("truncates");
    let directory = world.resolve("d").expect("exists");
    world
        .ask(|engine| engine.rename(ROOT, b"d", ROOT, b"e", 0, &root_user()))
        .expect("renames");
    let now = world.tree();
    assert_eq!(world.resolve("e"), Ok(directory));
    world.commit(layer);
    assert_eq!(tree_of(&world.base), then);
    assert_eq!(world.tree(), now);
    let layer = world.freeze().expect("changed since");
    assert_eq!(
        world
            .engine()
            .layer_removed(layer, 0, usize::MAX)
            .expect("removed")
            .len(),
        1
    );
    world.commit(layer);
    assert_eq!(tree_of(&world.base), now);
    assert_eq!(
        world.base.inodes.len(),
        now.len(),
        "no row is left of what was removed"
    );
}

#[test]
fn committed_ranges_get_their_chunks_and_keep_staged_bytes_as_a_cache() {
    let mut world = World::new();
    let ino = world.put("f", &[1; 9000]);
    let layer = world.freeze().expect("changed");
    world.write_at("f", 4000, &[2; 1000]).expect("writes");
    world.commit(layer);
    let (_, extents) = world.engine().live_extents(ino).expect("extents");
    assert!(extents.iter().all(|extent| extent.staged.is_some()));
    let uncommitted: Vec<_> = extents
        .iter()
        .filter(|extent| extent.chunk.is_none())
        .collect();
    assert_eq!(
        uncommitted
            .iter()
            .map(|extent| (extent.offset, extent.length))
            .collect::<Vec<_>>(),
        [(4000, 1000)]
    );
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    // Another segment takes the next bytes only after a restart: then the old one may go.
    world.crash();
    assert_eq!(
        world.get("f"),
        [vec![1; 4000], vec![2; 1000], vec![1; 4000]].concat()
    );
}

#[test]
fn a_file_appended_to_has_no_more_extents_than_its_staged_bytes_need() {
    const ROUNDS: u64 = 6;
    const APPENDS: u64 = 20;
    let mut world = World::with_segments(Base::empty(), 64 << 10);
    let ino = world.put("log", b"");
    let mut text = Vec::new();
    for round in 0..ROUNDS {
        for _ in 0..APPENDS {
            let line = [round as u8 + 1; 8];
            world
                .write_at("log", text.len() as u64, &line)
                .expect("writes");
            text.extend(line);
            // Its bytes lie between those of the log, and fill a segment in each round.
            world.put("other", &[1; 5000]);
        }
        let layer = world.freeze().expect("changed");
        world.commit(layer);
        world.engine().trim_staging(0).expect("trims");
    }
    let (_, extents) = world.engine().live_extents(ino).expect("extents");
    let most = ROUNDS + 2 * APPENDS;
    assert!(extents.len() as u64 <= most, "{} extents", extents.len());
    assert_eq!(world.base.extents[&ino].len() as u64, ROUNDS, "rows");
    assert_eq!(world.get("log"), text);
}

#[test]
fn a_run_of_zeros_becomes_a_hole() {
    let mut world = World::new();
    let ino = world.put("f", &[vec![1; 3000], vec![0; 6000], vec![2; 10]].concat());
    let before = world.get("f");
    let layer = world.freeze().expect("changed");
    world.write_at("f", 3500, &[0; 100]).expect("writes");
    world.commit(layer);
    assert_eq!(world.get("f"), before);
    assert_eq!(
        world.engine().getattr(ino).expect("exists").blocks,
        (3000_u64 + 100 + 10).div_ceil(512)
    );
}

#[test]
fn what_is_allocated_is_known_before_the_extents_are() {
    let mut world = World::new();
    let ino = world.put("f", &[1; 5000]);
    world
        .write_at("f", 1 << 30, &[2; 3000])
        .expect("writes far behind");
    let blocks = world.stat("f").blocks;
    assert_eq!(blocks, 8000_u64.div_ceil(512));
    let layer = world.freeze().expect("changed");
    // What the layer counts is as it was frozen.
    world.write_at("f", 100_000, &[3; 1000]).expect("writes");
    world.commit(layer);
    let later = world.open_read_only();
    later
        .load_directory(ROOT, &world.base.directory(ROOT))
        .expect("loads");
    assert_eq!(later.getattr(ino).expect("exists").blocks, blocks);
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    let mode = AttrChange {
        mode: Some(0o600),
        ..AttrChange::default()
    };
    world
        .ask(|engine| engine.setattr(ino, &root_user(), &mode))
        .expect("changes the row alone");
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    assert_eq!(world.base.inodes[&ino].mapped_bytes, 9000);
}

#[test]
fn a_failed_layer_is_part_of_the_next() {
    let mut world = World::new();
    world.put("kept", b"1");
    let layer = world.freeze().expect("changed");
    world.put("later", b"2");
    world.unlink("kept").expect("unlinks");
    world.put("kept", b"3");
    world.engine().layer_failed(layer).expect("joins");
    assert!(
        matches!(
            world.engine().layer_inodes(layer, 0, usize::MAX),
            Err(Error::Os(Errno::EINVAL))
        ),
        "it is gone"
    );
    let now = world.tree();
    let next = world.freeze().expect("changed");
    assert!(next > layer);
    assert_eq!(
        world
            .engine()
            .layer_removed(next, 0, usize::MAX)
            .expect("removed"),
        [],
        "the first `kept` was never in a version"
    );
    world.commit(next);
    assert_eq!(tree_of(&world.base), now);
}

#[test]
fn what_comes_and_goes_within_a_layer_is_not_told() {
    let world = World::new();
    world.put("stays", b"x");
    for number in 0..100 {
        let name = format!("temporary-{number}");
        world.put(&name, b"y");
        world.unlink(&name).expect("unlinks");
    }
    let layer = world.freeze().expect("changed");
    let engine = world.engine();
    assert_eq!(
        engine
            .layer_entries(layer, (0, b""), usize::MAX)
            .expect("entries")
            .len(),
        1
    );
    assert_eq!(
        engine
            .layer_inodes(layer, 0, usize::MAX)
            .expect("inodes")
            .len(),
        2,
        "the root and the file"
    );
    assert_eq!(
        engine.layer_removed(layer, 0, usize::MAX).expect("removed"),
        []
    );
}

#[test]
fn a_commit_must_name_every_file_with_rows_that_can_be() {
    let world = World::new();
    world.put("a", b"a");
    let layer = world.freeze().expect("changed");
    let engine = world.engine();
    assert!(matches!(
        engine.layer_committed(layer, &FileRows::default()),
        Err(Error::Os(Errno::EINVAL))
    ));
    assert!(matches!(
        engine.layer_committed(layer + 1, &FileRows::default()),
        Err(Error::Os(Errno::EINVAL))
    ));
    let (_, mut contents) = world.publish(layer);
    let mut and_another = contents.clone();
    and_another.push((ROOT, 0, Vec::new()));
    assert!(
        matches!(
            engine.layer_committed(layer, &and_another.iter().collect()),
            Err(Error::Os(Errno::EINVAL))
        ),
        "a file that is not in the layer"
    );
    let row: &mut ExtentRow = &mut contents[0].2[0];
    row.skip = 1;
    assert!(
        matches!(
            engine.layer_committed(layer, &contents.iter().collect()),
            Err(Error::Os(Errno::EINVAL))
        ),
        "more than its chunk has"
    );
    assert_eq!(
        engine
            .layer_contents(layer, 0, usize::MAX)
            .expect("still frozen")
            .len(),
        1
    );
}

#[test]
fn a_committed_journal_is_let_go() {
    let mut world = World::new();
    world.put("a", b"a");
    let layer = world.freeze().expect("changed");
    world.put("b", b"b");
    world.commit(layer);
    let folder = world.temp.path().join("working/journal");
    let open: Vec<_> = std::fs::read_dir("/proc/self/fd")
        .expect("lists")
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|path| path.starts_with(&folder))
        .collect();
    assert_eq!(
        open.len(),
        1,
        "no sync waits for a removed journal: {open:?}"
    );
}

#[test]
fn trimming_takes_only_what_no_uncommitted_layer_needs() {
    let mut world = World::new();
    world.put("a", &[1; 5000]);
    world.crash();
    world.put("b", &[2; 5000]);
    assert_eq!(
        world.engine().trim_staging(0).expect("trims"),
        0,
        "nothing is committed"
    );
    let layer = world.freeze().expect("changed");
    assert_eq!(
        world.engine().trim_staging(0).expect("trims"),
        0,
        "frozen is not committed"
    );
    world.commit(layer);
    assert_eq!(
        world.engine().trim_staging(1 << 40).expect("trims"),
        0,
        "within the limit"
    );
    assert!(
        world.engine().trim_staging(0).expect("trims") >= 5000,
        "the segment of the first run"
    );
    assert_eq!(
        (world.get("a"), world.get("b")),
        (vec![1; 5000], vec![2; 5000])
    );
}

#[test]
fn files_kept_for_later_segments_count_as_what_is_committed_does() {
    const SEGMENT: u64 = 64 << 10;
    let mut world = World::with_segments(Base::empty(), SEGMENT);
    let staging = world.temp.path().join("working/staging");
    let ends = |end: &str| -> Vec<u64> {
        let entries = std::fs::read_dir(&staging).expect("lists");
        let files = entries.map(|entry| entry.expect("entry"));
        files
            .filter(|file| file.file_name().to_string_lossy().ends_with(end))
            .map(|file| file.metadata().expect("exists").len())
            .collect()
    };
    for segments in [0, 1, 2, 4, 20] {
        let most = segments * SEGMENT;
        for round in 0..12 {
            world.put("a", b"");
            for piece in 0..4 {
                let bytes = vec![round; SEGMENT as usize / 2];
                world
                    .write_at("a", piece * SEGMENT / 2, &bytes)
                    .expect("writes");
            }
            let layer = world.freeze().expect("changed");
            world.commit(layer);
            world.engine().trim_staging(most).expect("trims");
            let held = ends(".seg").iter().chain(&ends(".spare")).sum::<u64>();
            // And the segment that takes appends.
            assert!(held <= most + SEGMENT, "{held} of {most}");
            let kept = world.engine().committed_staged_bytes().expect("says");
            assert!(kept <= most, "{kept} of {most}");
        }
        let spares = ends(".spare").len() as u64;
        assert!(spares <= segments / 2 && (spares > 0) == (segments > 1));
    }
}

#[test]
fn trimming_leaves_what_an_unlinked_open_file_holds() {
    let mut world = World::new();
    world.staging_limit_bytes = 1 << 20;
    world.crash();
    let open = |path: &str, bytes: &[u8]| {
        let ino = world.put(path, bytes);
        world
            .ask(|engine| engine.open_file(ino, libc::O_RDWR))
            .expect("opens")
    };
    let (never_named, once_named) = (open("a", &[1; 5000]), open("b", &[2; 5000]));
    world.unlink("a").expect("unlinks");
    let layer = world.freeze().expect("changed");
    world.unlink("b").expect("unlinks");
    world
        .ask(|engine| engine.write(once_named, 100, &[3; 50], true))
        .expect("writes");
    world.commit(layer);
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    let too_much = world.ask(|engine| engine.write(never_named, 9000, &[0; 2 << 20], true));
    assert_eq!(too_much, Err(Errno::ENOSPC), "and closes the segment");
    world.engine().trim_staging(0).expect("trims");
    let read = |fh| {
        world
            .ask(|engine| engine.read_file(fh, 0, 1 << 20))
            .expect("reads")
    };
    assert_eq!(read(never_named), [1; 5000]);
    assert_eq!(
        read(once_named),
        [vec![2; 100], vec![3; 50], vec![2; 4850]].concat()
    );
}

#[test]
fn committed_bytes_do_not_depend_on_their_segments() {
    let mut world = World::new();
    let ino = world.put("f", &[1; 5000]);
    world.crash();
    let fh = world
        .ask(|engine| engine.open_file(ino, libc::O_RDWR))
        .expect("opens");
    let layer = world.freeze().expect("changed");
    let (_, version) = world
        .engine()
        .layer_contents(layer, 0, usize::MAX)
        .expect("contents")[0];
    let row = ExtentRow {
        offset: 0,
        length: 5000,
        chunk: world.base.add_chunk(&[1; 5000]),
        skip: 0,
    };
    // A disk that loses them; nothing has opened the file since the crash.
    for entry in std::fs::read_dir(world.temp.path().join("working/staging")).expect("lists") {
        let path = entry.expect("entry").path();
        if path.extension().is_some_and(|end| end == "seg") {
            std::fs::remove_file(path).expect("removes");
        }
    }
    let engine = world.engine();
    assert!(engine.sync().is_err(), "frozen is not committed");
    assert!(engine.fsync(fh, false).is_err());
    let contents = [(ino, version, vec![row])];
    engine
        .layer_committed(layer, &contents.iter().collect())
        .expect("committed");
    engine.sync().expect("nothing waits for them");
    engine.fsync(fh, false).expect("nor does the file");
    assert_eq!(world.get("f"), [1; 5000], "from its chunk");
}

#[test]
fn a_full_staging_makes_room_out_of_committed_bytes() {
    let mut world = World::new();
    world.staging_limit_bytes = 1 << 20;
    world.crash();
    world.put("a", &[1; 600_000]);
    let second = vec![2; 600_000];
    world.put("b", b"");
    assert_eq!(world.write_at("b", 0, &second), Err(Errno::ENOSPC));
    assert_eq!(
        world.get("b"),
        b"",
        "a write that failed has written nothing"
    );
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    world.crash();
    assert_eq!(world.write_at("b", 0, &second), Ok(()));
    assert_eq!((world.get("a"), world.get("b")), (vec![1; 600_000], second));
}

#[test]
fn quiet_files_are_those_with_staged_bytes_nobody_writes() {
    let mut world = World::new();
    let ino = world.put("f", b"x");
    world.put("empty", b"");
    assert_eq!(
        world
            .engine()
            .quiet_files(u64::MAX, (0, 0), 10)
            .expect("lists"),
        []
    );
    let quiet = world.engine().quiet_files(0, (0, 0), 10).expect("lists");
    let (version, _) = world.engine().live_extents(ino).expect("extents");
    let found = quiet.iter().find(|((_, quiet), _)| *quiet == ino);
    assert_eq!(found.map(|(_, version)| *version), Some(version));
    world.write_at("f", 0, b"y").expect("writes");
    assert_ne!(
        world.engine().live_extents(ino).expect("extents").0,
        version,
        "the version moves with every write"
    );
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    assert_eq!(
        world.engine().quiet_files(0, (0, 0), 10).expect("lists"),
        []
    );
}

#[test]
fn quiet_files_come_oldest_first_and_in_parts_of_any_size() {
    let world = World::new();
    let inos: Vec<_> = (0..10).map(|n| world.put(&format!("f{n}"), b"x")).collect();
    world.write_at("f3", 0, b"y").expect("writes");
    let expected: Vec<_> = [0, 1, 2, 4, 5, 6, 7, 8, 9, 3].map(|n| inos[n]).into();
    for limit in [1, 3, 10, 100] {
        let mut seen = Vec::new();
        let mut after = (0, 0);
        loop {
            let part = world.engine().quiet_files(0, after, limit).expect("lists");
            let Some((last, _)) = part.last() else { break };
            after = *last;
            seen.extend(part.iter().map(|((_, ino), _)| *ino));
        }
        assert_eq!(seen, expected, "{limit} at a time");
    }
}

#[test]
fn growing_files_are_long_written_lately_and_without_a_chunk_at_their_beginning() {
    let mut world = World::new();
    let (long, short) = (
        world.put("long", &[1; 4096]),
        world.put("short", &[1; 4095]),
    );
    let growing = |world: &World, least, recent_ns, most| {
        let mut found = world
            .engine()
            .growing_files(least, recent_ns, most, 10)
            .expect("lists");
        found.sort_unstable();
        found
    };
    assert_eq!(growing(&world, 4096, u64::MAX, 9), [long]);
    assert_eq!(growing(&world, 4095, u64::MAX, 9), [long, short]);
    assert_eq!(growing(&world, 4095, 0, 9), []);
    assert_eq!(
        world.engine().staged_bytes().expect("has staging"),
        4096 + 4095
    );
    world
        .write_at("short", 9, b"second extent")
        .expect("writes");
    assert_eq!(growing(&world, 4095, u64::MAX, 2), [long]);
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    world.write_at("long", 4096, b"more").expect("writes");
    world.write_at("short", 0, b"other").expect("writes");
    assert_eq!(growing(&world, 4095, u64::MAX, 9), [short]);
}

#[test]
fn writable_handles_are_those_that_may_be_mapped_writable() {
    let world = World::new();
    let (a, b) = (world.put("a", b""), world.put("b", b""));
    let open = |ino, flags| {
        world
            .ask(|engine| engine.open_file(ino, flags))
            .expect("opens")
    };
    open(a, libc::O_RDWR);
    let second = open(a, libc::O_RDWR);
    open(b, libc::O_WRONLY);
    assert_eq!(world.engine().writable_handles(), [a]);
    world.engine().release(second).expect("closes");
    assert_eq!(world.engine().writable_handles(), [a]);
}

#[test]
fn a_version_reads_back_through_another_engine() {
    let mut world = World::new();
    let bytes: Vec<u8> = (0..20_000_u32)
        .map(|number| (number * 7 / 13) as u8)
        .collect();
    let ino = world.put("f", &bytes);
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    assert_eq!(world.base.bytes_of(ino), bytes);
    let other = World::on(world.base.clone());
    assert_eq!(other.resolve("f"), Ok(ino));
    assert_eq!(read_all(other.engine(), &other.base, ino), bytes);
    other.write_at("f", 5, b"fork").expect("writes");
    assert_eq!(other.get("f")[5..9], *b"fork");
    assert_eq!(world.get("f"), bytes, "a fork is another world");
}

#[test]
fn small_files_come_together_up_to_one_that_is_none() {
    let world = World::new();
    let inos: Vec<_> = (1..6_u8)
        .map(|n| world.put(&format!("f{n}"), &vec![n; usize::from(n) * 1000]))
        .collect();
    let large = world.put("large", &[9; 70_000]);
    let last = world.put("last", b"last");
    let layer = world.freeze().expect("changed");
    world.put("f4", b"written since");
    let files = |after, limit, stored: &[&FileRows]| {
        let engine = world.engine();
        engine
            .layer_small_files(layer, after, limit, stored)
            .expect("reads")
    };
    let found = files(0, 10, &[]);
    let numbers: Vec<_> = found.files.iter().map(|file| file.ino).collect();
    assert_eq!(numbers, inos, "in order, and not the large one");
    for (n, file) in (1..).zip(&found.files) {
        let SmallContent::Staged { offset, at, length } = file.content else {
            panic!("{file:?} is staged");
        };
        assert_eq!(offset, 0);
        assert_eq!(found.bytes[at..at + length], vec![n as u8; n * 1000]);
    }
    assert_eq!(files(0, 2, &[]).files.len(), 2);
    assert!(files(inos[4], 10, &[]).files.is_empty());
    let behind = files(large, 10, &[]);
    assert_eq!(behind.files[0].ino, last);
    assert_eq!(behind.bytes, b"last");

    let (mut older, mut stored) = (FileRows::default(), FileRows::default());
    older.put(large, u64::MAX, &[]);
    let versions = world.engine().layer_contents(layer, 0, 10).expect("lists");
    let version = versions
        .iter()
        .find(|file| file.0 == large)
        .expect("there")
        .1;
    stored.put(large, version, &[]);
    let all = files(0, 10, &[&older, &stored]);
    assert_eq!(all.files.len(), 7);
    let record = Record::of(large, version, &[]);
    assert_eq!(all.files[5].content, SmallContent::Stored(record));

    let live = world
        .engine()
        .live_small_files(&[last, inos[3], large, inos[1]]);
    let live = live.expect("reads");
    assert_eq!(live.files.len(), 2);
    assert_eq!(live.files[1].ino, inos[3]);
    assert_eq!(live.bytes.len(), "lastwritten since".len());
}

#[test]
fn directories_have_numbers_side_by_side_which_no_earlier_layer_knows_of() {
    let mut world = World::new();
    let mut numbers = Vec::new();
    for place in 0..100 {
        numbers.push(world.mkdir(&format!("d{place}")));
        world.put(&format!("d{place}/f"), b"x");
    }
    let together = numbers.windows(2).filter(|pair| pair[1] == pair[0] + 1);
    assert_eq!(together.count(), 97, "three runs: 16, 32, 64");
    for ends in [World::crash as fn(&mut World) -> _, |world: &mut World| {
        let layer = world.freeze().expect("changed");
        let frozen_next = world.engine().layer_next_ino(layer).expect("says");
        assert!(world.mkdir("meanwhile") >= frozen_next);
        world.commit(layer);
        world.crash()
    }] {
        ends(&mut world);
        let name = format!("after {}", numbers.len());
        let next = world.mkdir(&name);
        assert!(next > *numbers.iter().max().expect("some"), "{next}");
        numbers.push(next);
        numbers.push(world.put(&format!("{name}/f"), b"x"));
        assert!(numbers[numbers.len() - 1] > next);
    }
}
