//! What the kernel leaves to the file system, case by case.

mod support;

use cowfs_base::{COUNTED_BYTES, Errno, now_ns};
use cowfs_engine::{
    AttrChange, Caller, HandleId, RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT,
};
use support::{ROOT, World, root_user, user};

fn chmod(world: &World, ino: u64, caller: &Caller, mode: u32) -> u32 {
    let change = AttrChange {
        mode: Some(mode),
        ..AttrChange::default()
    };
    world
        .ask(|engine| engine.setattr(ino, caller, &change))
        .expect("chmod")
        .mode
        & 0o7777
}

fn mode_of(world: &World, ino: u64) -> u32 {
    world
        .ask(|engine| engine.getattr(ino))
        .expect("exists")
        .mode
        & 0o7777
}

#[test]
fn a_sparse_file_counts_as_much_as_in_a_version() {
    let mut world = World::new();
    let change = AttrChange {
        size: Some(i64::MAX as u64),
        ..Default::default()
    };
    for name in ["a", "b", "c"] {
        let ino = world.put(name, b"");
        world
            .ask(|engine| engine.setattr(ino, &root_user(), &change))
            .expect("grows");
    }
    let file_bytes = || world.engine().statfs().expect("answers").0;
    assert_eq!(file_bytes(), 3 * COUNTED_BYTES);
    world.unlink("a").expect("unlinks");
    world.unlink("b").expect("unlinks");
    assert_eq!(file_bytes(), COUNTED_BYTES);
    world.crash();
    assert_eq!(world.engine().statfs().expect("answers").0, COUNTED_BYTES);
}

#[test]
fn names_are_bytes_of_at_most_255() {
    let world = World::new();
    let caller = root_user();
    let long = [b'n'; 255];
    world
        .ask(|engine| engine.mkdir(ROOT, &long, 0o755, &caller))
        .expect("255 bytes are a name");
    world
        .ask(|engine| engine.mkdir(ROOT, b"\xff\xfe", 0o755, &caller))
        .expect("names need not be UTF-8");
    let too_long = [b'n'; 256];
    let mkdir = |name: &[u8]| {
        world
            .ask(|engine| engine.mkdir(ROOT, name, 0o755, &caller))
            .map(drop)
    };
    assert_eq!(mkdir(&too_long), Err(Errno::ENAMETOOLONG));
    assert_eq!(mkdir(b"a/b"), Err(Errno::EINVAL));
    assert_eq!(mkdir(b""), Err(Errno::ENOENT));
    assert_eq!(mkdir(b"."), Err(Errno::EEXIST));
    assert_eq!(
        world.ask(|engine| engine.lookup(ROOT, &too_long)),
        Err(Errno::ENAMETOOLONG)
    );
}

#[test]
fn sticky_directories_protect_entries_of_others() {
    let world = World::new();
    let directory = world.mkdir("tmp");
    chmod(&world, directory, &root_user(), 0o1777);
    let owner = user(1000, 1000);
    for name in [&b"f"[..], b"g"] {
        world
            .ask(|engine| engine.mknod(directory, name, libc::S_IFREG | 0o666, 0, &owner))
            .expect("mknod");
    }
    let stranger = user(1001, 1001);
    let unlink = |caller: &Caller| world.ask(|engine| engine.unlink(directory, b"f", caller));
    assert_eq!(unlink(&stranger), Err(Errno::EPERM));
    let rename = |caller: &Caller| {
        world.ask(|engine| engine.rename(directory, b"f", directory, b"g", 0, caller))
    };
    assert_eq!(rename(&stranger), Err(Errno::EPERM));
    assert_eq!(rename(&owner), Ok(()));
    world
        .ask(|engine| engine.mknod(directory, b"f", libc::S_IFREG | 0o666, 0, &owner))
        .expect("mknod");
    assert_eq!(unlink(&root_user()), Ok(()));
}

#[test]
fn a_setgid_directory_hands_down_its_group() {
    let world = World::new();
    let directory = world.mkdir("shared");
    let change = AttrChange {
        gid: Some(500),
        ..AttrChange::default()
    };
    world
        .ask(|engine| engine.setattr(directory, &root_user(), &change))
        .expect("chown");
    chmod(&world, directory, &root_user(), 0o2777);
    let caller = user(1000, 1000);
    let file = world
        .ask(|engine| engine.mknod(directory, b"f", libc::S_IFREG | 0o644, 0, &caller))
        .expect("mknod");
    let below = world
        .ask(|engine| engine.mkdir(directory, b"d", 0o755, &caller))
        .expect("mkdir");
    assert_eq!((file.gid, below.gid), (500, 500));
    assert_eq!((file.mode & 0o2000, below.mode & 0o2000), (0, 0o2000));
}

#[test]
fn set_id_bits_go_when_they_must() {
    let world = World::new();
    let ino = world.put("f", b"x");
    let outsider = Caller {
        uid: 1000,
        gid: 7,
        groups: Some(vec![7]),
        ..Caller::default()
    };
    assert_eq!(
        chmod(&world, ino, &outsider, 0o6755),
        0o4755,
        "not of the group: no setgid"
    );
    let unknown_groups = Caller {
        uid: 1000,
        gid: 7,
        groups: None,
        ..Caller::default()
    };
    assert_eq!(
        chmod(&world, ino, &unknown_groups, 0o6755),
        0o6755,
        "the kernel has decided"
    );
    world.write_at("f", 0, b"y").expect("writes");
    assert_eq!(mode_of(&world, ino), 0o755, "a write clears both");
    assert_eq!(chmod(&world, ino, &root_user(), 0o6745), 0o6745);
    let nothing = AttrChange::default();
    world
        .ask(|engine| engine.setattr(ino, &root_user(), &nothing))
        .expect("chown(-1, -1)");
    assert_eq!(
        mode_of(&world, ino),
        0o2745,
        "setgid without group execute is no privilege"
    );
    let directory = world.mkdir("d");
    chmod(&world, directory, &root_user(), 0o6755);
    let chown = AttrChange {
        uid: Some(3),
        gid: Some(4),
        ..AttrChange::default()
    };
    world
        .ask(|engine| engine.setattr(directory, &root_user(), &chown))
        .expect("chown");
    assert_eq!(
        mode_of(&world, directory),
        0o6755,
        "directories keep theirs"
    );
    chmod(&world, ino, &root_user(), 0o4755);
    let truncate = AttrChange {
        size: Some(0),
        ..AttrChange::default()
    };
    world
        .ask(|engine| engine.setattr(ino, &user(1000, 1000), &truncate))
        .expect("truncate");
    assert_eq!(mode_of(&world, ino), 0o755);
}

/// What happens from here on has a later time.
fn next_tick() {
    let before_ns = now_ns();
    while now_ns() == before_ns {
        std::thread::yield_now();
    }
}

#[test]
fn times_move_as_on_a_local_disk() {
    let world = World::new();
    let directory = world.mkdir("d");
    let ino = world.put("d/f", b"x");
    let old = AttrChange {
        atime_ns: Some(1),
        mtime_ns: Some(2),
        ..AttrChange::default()
    };
    let reset = |ino| {
        world
            .ask(|engine| engine.setattr(ino, &root_user(), &old))
            .expect("utimens")
    };
    let before = reset(ino);
    assert_eq!((before.atime_ns, before.mtime_ns), (1, 2));
    assert_eq!(world.get("d/f"), b"x");
    let read = world.stat("d/f");
    assert_eq!(
        (read.atime_ns, read.mtime_ns, read.ctime_ns),
        (1, 2, before.ctime_ns),
        "reading changes no time"
    );
    reset(directory);
    next_tick();
    chmod(&world, ino, &root_user(), 0o600);
    let changed = world.stat("d/f");
    assert_eq!(changed.mtime_ns, 2);
    assert!(changed.ctime_ns > before.ctime_ns);
    assert_eq!(
        world.stat("d").mtime_ns,
        2,
        "chmod of a child is none of its directory's business"
    );
    world.write_at("d/f", 0, b"y").expect("writes");
    assert!(world.stat("d/f").mtime_ns > 2);
    world
        .ask(|engine| engine.link(ino, directory, b"g"))
        .expect("link");
    assert!(world.stat("d").mtime_ns > 2);
    reset(directory);
    let linked = world.stat("d/f").ctime_ns;
    next_tick();
    world.unlink("d/g").expect("unlink");
    assert!(world.stat("d").mtime_ns > 2);
    assert!(world.stat("d/f").ctime_ns > linked);
}

#[test]
fn renames_obey_their_flags() {
    let world = World::new();
    let caller = root_user();
    world.put("a", b"a");
    world.put("b", b"b");
    let rename = |from: &[u8], to: &[u8], flags| {
        world.ask(|engine| engine.rename(ROOT, from, ROOT, to, flags, &caller))
    };
    assert_eq!(rename(b"a", b"b", RENAME_NOREPLACE), Err(Errno::EEXIST));
    assert_eq!(rename(b"a", b"c", RENAME_EXCHANGE), Err(Errno::ENOENT));
    assert_eq!(rename(b"a", b"b", RENAME_EXCHANGE), Ok(()));
    assert_eq!(
        (world.get("a"), world.get("b")),
        (b"b".to_vec(), b"a".to_vec())
    );
    for unknown in [3, 6, 8] {
        assert_eq!(rename(b"a", b"b", unknown), Err(Errno::EINVAL));
    }
    world.mkdir("d");
    world.put("d/f", b"");
    assert_eq!(
        rename(b"a", b"d", RENAME_EXCHANGE),
        Ok(()),
        "a file and a directory may change places"
    );
    assert_eq!(world.stat("").nlink, 3);
    assert_eq!(world.names("a"), ["f"]);
}

#[test]
fn a_rename_may_leave_a_whiteout() {
    let mut world = World::new();
    world.mkdir("d");
    world.put("d/f", b"kept");
    world.put("e", b"gone");
    let rename = |world: &World, from: &[u8], to: &[u8], flags| {
        let caller = user(1000, 7);
        world.ask(|engine| engine.rename(ROOT, from, ROOT, to, flags, &caller))
    };
    let both = RENAME_WHITEOUT | RENAME_NOREPLACE;
    assert_eq!(rename(&world, b"d", b"e", both), Err(Errno::EEXIST));
    assert_eq!(rename(&world, b"d", b"new", both), Ok(()));
    assert_eq!(rename(&world, b"e", b"g", RENAME_WHITEOUT), Ok(()));
    world.crash();
    let mut names = world.names("");
    names.sort();
    assert_eq!(names, ["d", "e", "g", "new"]);
    assert_eq!(
        (world.get("new/f"), world.get("g")),
        (b"kept".to_vec(), b"gone".to_vec())
    );
    let left = world.stat("d");
    assert_eq!((left.mode, left.rdev, left.nlink), (libc::S_IFCHR, 0, 1));
    assert_eq!((left.uid, left.gid), (1000, 7));
    assert_eq!(world.stat("").nlink, 3, "the directory is there once");
}

#[test]
fn a_file_without_a_name_lives_as_long_as_somebody_holds_it() {
    let mut world = World::new();
    world.put("f", b"kept");
    let ino = world.resolve("f").expect("exists");
    let fh = world
        .ask(|engine| engine.open_file(ino, libc::O_RDWR))
        .expect("opens");
    world.unlink("f").expect("unlinks");
    assert_eq!(
        world
            .ask(|engine| engine.getattr(ino))
            .expect("is there")
            .nlink,
        0
    );
    world
        .ask(|engine| engine.write(fh, 4, b" and written", true))
        .expect("writes");
    let bytes = world
        .ask(|engine| engine.read_file(fh, 0, 100))
        .expect("reads");
    assert_eq!(bytes, b"kept and written");
    assert_eq!(
        world.ask(|engine| engine.link(ino, ROOT, b"g")).map(drop),
        Err(Errno::ENOENT)
    );
    let layer = world.freeze().expect("the root changed");
    assert!(
        world
            .engine()
            .layer_contents(layer, 0, usize::MAX)
            .expect("contents")
            .is_empty(),
        "it is in no version"
    );
    world.commit(layer);
    world.engine().trim_staging(0).expect("trims");
    assert_eq!(
        world
            .ask(|engine| engine.read_file(fh, 0, 100))
            .expect("reads"),
        b"kept and written"
    );
    world.ask(|engine| engine.release(fh)).expect("closes");
    assert_eq!(
        world.ask(|engine| engine.getattr(ino)).map(drop),
        Err(Errno::ENOENT)
    );
}

#[test]
fn the_kernel_s_references_keep_an_inode() {
    let world = World::new();
    let attr = world
        .ask(|engine| engine.mknod(ROOT, b"f", libc::S_IFREG | 0o644, 0, &root_user()))
        .expect("mknod");
    world
        .ask(|engine| engine.lookup(ROOT, b"f"))
        .expect("looks up");
    world.unlink("f").expect("unlinks");
    world
        .ask(|engine| engine.forget(attr.ino, 1))
        .expect("forgets");
    assert!(world.ask(|engine| engine.getattr(attr.ino)).is_ok());
    world
        .ask(|engine| engine.forget(attr.ino, 1))
        .expect("forgets");
    assert_eq!(
        world.ask(|engine| engine.getattr(attr.ino)).map(drop),
        Err(Errno::ENOENT)
    );
}

#[test]
fn a_removed_directory_that_is_open_is_empty_and_takes_nothing() {
    let world = World::new();
    let ino = world.mkdir("d");
    let fh = world
        .ask(|engine| engine.open_directory(ino))
        .expect("opens");
    world
        .ask(|engine| engine.rmdir(ROOT, b"d", &root_user()))
        .expect("removes");
    assert!(
        world
            .ask(|engine| engine.read_directory(fh, 0, 10))
            .expect("lists")
            .is_empty()
    );
    let mkdir = world.ask(|engine| engine.mkdir(ino, b"x", 0o755, &root_user()));
    assert_eq!(mkdir.map(drop), Err(Errno::ENOENT));
    assert_eq!(
        world
            .ask(|engine| engine.getattr(ino))
            .expect("is there")
            .nlink,
        0
    );
    world
        .ask(|engine| engine.release_directory(fh))
        .expect("closes");
}

#[test]
fn a_write_goes_to_its_offset_also_through_a_handle_that_appends() {
    let world = World::new();
    let ino = world.put("log", b"0123456789");
    let fh = world
        .ask(|engine| engine.open_file(ino, libc::O_RDWR | libc::O_APPEND))
        .expect("opens");
    world
        .ask(|engine| engine.write(fh, 2, b"mapped", true))
        .expect("writes");
    assert_eq!(world.get("log"), b"01mapped89");
}

#[test]
fn allocated_ranges_count_as_blocks_until_they_are_cut_off_or_punched() {
    const KEEP_SIZE: i32 = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP_SIZE;
    let mut world = World::new();
    world.put("f", b"");
    let allocate = |world: &World, mode, offset, length| {
        let ino = world.resolve("f").expect("exists");
        let fh = world
            .ask(|engine| engine.open_file(ino, libc::O_RDWR))
            .expect("opens");
        world
            .ask(|engine| engine.allocate(fh, offset, length, mode, false))
            .expect("allocates");
        world.ask(|engine| engine.release(fh)).expect("closes");
    };
    let truncate = |world: &World, size| {
        let ino = world.resolve("f").expect("exists");
        let change = AttrChange {
            size: Some(size),
            ..AttrChange::default()
        };
        world
            .ask(|engine| engine.setattr(ino, &root_user(), &change))
            .expect("cuts");
    };
    let seen = |world: &World| (world.stat("f").size, world.stat("f").blocks);

    allocate(&world, 0, 0, 1 << 20);
    assert_eq!(seen(&world), (1 << 20, 2048));
    allocate(&world, KEEP_SIZE, 1 << 20, 1 << 20);
    assert_eq!(seen(&world), (1 << 20, 4096));
    world.write_at("f", 4096, &[1; 8192]).expect("writes");
    allocate(&world, 0, 0, 65536);
    assert_eq!(seen(&world), (1 << 20, 4096), "data counts once");
    allocate(&world, PUNCH, 8192, 8192);
    assert_eq!(seen(&world), (1 << 20, 4096 - 16));
    allocate(&world, libc::FALLOC_FL_ZERO_RANGE, 0, 16384);
    assert_eq!(seen(&world), (1 << 20, 4096));
    world.crash();
    assert_eq!(seen(&world), (1 << 20, 4096), "after a replay");
    world.engine().checkpoint().expect("checkpoints");
    world.crash();
    assert_eq!(seen(&world), (1 << 20, 4096), "after a checkpoint");
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    assert_eq!(seen(&world), (1 << 20, 4096), "after a commit");
    truncate(&world, 1 << 20);
    assert_eq!(
        seen(&world),
        (1 << 20, 2048),
        "what lies behind the end is given back"
    );
    truncate(&world, 4096);
    assert_eq!(seen(&world), (4096, 8));
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    world.crash();
    assert_eq!(seen(&world), (4096, 0), "a version keeps data alone");
}

#[test]
fn allocated_ranges_without_end_take_bounded_memory() {
    let world = World::new();
    let ino = world.put("f", b"");
    let fh = world
        .ask(|engine| engine.open_file(ino, libc::O_RDWR))
        .expect("opens");
    for number in 0..5000 {
        let allocated = world.ask(|engine| engine.allocate(fh, number * 8192, 4096, 0, false));
        allocated.expect("allocates");
    }
    assert_eq!(world.stat("f").blocks, 1024 * 8);
    world.engine().release(fh).expect("closes");
}

#[test]
fn sizes_end_where_an_off_t_does() {
    let world = World::new();
    let ino = world.put("f", b"x");
    let max = i64::MAX as u64;
    let truncate = |size| {
        let change = AttrChange {
            size: Some(size),
            ..AttrChange::default()
        };
        world
            .ask(|engine| engine.setattr(ino, &root_user(), &change))
            .map(|attr| attr.size)
    };
    assert_eq!(truncate(max + 1), Err(Errno::EFBIG));
    assert_eq!(truncate(max), Ok(max));
    assert_eq!(world.write_at("f", max, b"x"), Err(Errno::EFBIG));
    assert_eq!(world.write_at("f", u64::MAX, b"x"), Err(Errno::EFBIG));
    assert_eq!(world.write_at("f", max - 1, b"x"), Ok(()));
    assert_eq!(world.stat("f").blocks, 1, "holes take no blocks");
    let directory = world.mkdir("d");
    let change = AttrChange {
        size: Some(0),
        ..AttrChange::default()
    };
    assert_eq!(
        world
            .ask(|engine| engine.setattr(directory, &root_user(), &change))
            .map(drop),
        Err(Errno::EISDIR)
    );
}

#[test]
fn xattrs_have_their_rules() {
    let world = World::new();
    let file = world.put("f", b"");
    let link = world
        .ask(|engine| engine.symlink(ROOT, b"l", b"f", &root_user()))
        .expect("symlink")
        .ino;
    let set = |ino, name: &[u8], value: &[u8], flags| {
        world.ask(|engine| engine.set_xattr(ino, name, value, flags))
    };
    assert_eq!(set(file, b"user.a", b"1", 2), Err(Errno::ENODATA));
    assert_eq!(set(file, b"user.a", b"1", 1), Ok(()));
    assert_eq!(set(file, b"user.a", b"2", 1), Err(Errno::EEXIST));
    assert_eq!(set(file, b"user.a", b"2", 3), Err(Errno::EINVAL));
    assert_eq!(
        set(file, b"system.posix_acl_access", b"", 0),
        Err(Errno::EOPNOTSUPP)
    );
    assert_eq!(set(link, b"user.a", b"1", 0), Err(Errno::EPERM));
    assert_eq!(set(link, b"trusted.a", b"1", 0), Ok(()));
    assert_eq!(
        set(file, &[&b"user."[..], &[b'n'; 251]].concat(), b"", 0),
        Err(Errno::ERANGE)
    );
    assert_eq!(set(file, b"user.big", &[0; 65536], 0), Ok(()));
    assert_eq!(set(file, b"user.big", &[0; 65537], 0), Err(Errno::E2BIG));
    assert_eq!(
        world.ask(|engine| engine.list_xattrs(file)).expect("lists"),
        [b"user.a".to_vec(), b"user.big".to_vec()]
    );
    assert_eq!(
        world.ask(|engine| engine.remove_xattr(file, b"user.a")),
        Ok(())
    );
    assert_eq!(
        world.ask(|engine| engine.remove_xattr(file, b"user.a")),
        Err(Errno::ENODATA)
    );
    let long = |number: u32| format!("user.{number:0>250}").into_bytes();
    for number in 0..255 {
        assert_eq!(set(file, &long(number), b"", 0), Ok(()));
    }
    assert_eq!(set(file, &long(255), b"", 0), Err(Errno::ENOSPC));
    assert_eq!(set(file, &long(0), b"again", 0), Ok(()));
    assert_eq!(
        world.ask(|engine| engine.get_xattr(file, b"user.a")),
        Err(Errno::ENODATA)
    );
}

#[test]
fn special_files_and_long_links_are_kept() {
    let mut world = World::new();
    let make = |name: &[u8], kind, rdev| {
        world
            .ask(|engine| engine.mknod(ROOT, name, kind | 0o600, rdev, &root_user()))
            .expect("mknod")
    };
    make(b"fifo", libc::S_IFIFO, 0);
    make(b"socket", libc::S_IFSOCK, 0);
    assert_eq!(make(b"null", libc::S_IFCHR, 0x103).rdev, 0x103);
    let symlink = |target: &[u8]| {
        world
            .ask(|engine| engine.symlink(ROOT, b"link", target, &root_user()))
            .map(|attr| attr.size)
    };
    assert_eq!(symlink(&[b'x'; 4096]), Err(Errno::ENAMETOOLONG));
    assert_eq!(symlink(b""), Err(Errno::ENOENT));
    assert_eq!(symlink(&[b'x'; 4095]), Ok(4095));
    let before = world.tree();
    world.crash();
    assert_eq!(world.tree(), before);
    assert_eq!(world.stat("null").rdev, 0x103);
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    assert_eq!(support::tree_of(&world.base), before);
}

#[test]
fn a_handle_says_how_its_file_was_opened() {
    let world = World::new();
    let ino = world.put("f", b"x");
    let fh = world
        .ask(|engine| engine.open_file(ino, libc::O_RDONLY))
        .expect("opens");
    assert_eq!(
        world.ask(|engine| engine.write(fh, 0, b"y", true)),
        Err(Errno::EBADF),
        "opened for reading"
    );
    assert_eq!(world.ask(|engine| engine.release(fh)), Ok(()));
    assert!(!world.engine().has_handles());
    world.engine().close().expect("closes");
    assert_eq!(
        world.ask(|engine| engine.getattr(ROOT)).map(drop),
        Err(Errno::EBADF)
    );
}

/// The next process on a mount gets requests with handles that the one before gave out.
#[test]
fn a_handle_of_an_earlier_process_is_taken_as_it_stands() {
    let mut world = World::new();
    let ino = world.put("f", b"before");
    world.mkdir("d");
    let open = |flags| {
        world
            .ask(|engine| engine.open_file(ino, flags))
            .expect("opens")
    };
    let (reads, writes, both) = (
        open(libc::O_RDONLY),
        open(libc::O_WRONLY),
        open(libc::O_RDWR),
    );
    let lists = world
        .ask(|engine| engine.open_directory(ROOT))
        .expect("opens");
    world.crash();
    let written = world.ask(|engine| engine.write(writes, 0, b"behind", false));
    assert_eq!(written, Ok(6));
    assert_eq!(
        world.ask(|engine| engine.write(reads, 0, b"x", false)),
        Err(Errno::EBADF)
    );
    let read = world.ask(|engine| engine.read_file(reads, 0, 10));
    assert_eq!(read.expect("reads"), b"behind");
    assert!(world.engine().writable_handles().is_empty());
    assert_eq!(world.ask(|engine| engine.fsync(both, false)), Ok(()));
    assert_eq!(world.engine().writable_handles(), [ino]);
    let entries = world.ask(|engine| engine.read_directory(lists, 0, 10));
    assert_eq!(entries.expect("lists").len(), 4);
    // It cannot be of another kind, or of an inode that is gone.
    let of = |ino| HandleId { ino, ..lists };
    assert_eq!(
        world.ask(|engine| engine.read_directory(of(ino), 0, 10)),
        Err(Errno::EBADF)
    );
    let gone = HandleId { ino: 1000, ..reads };
    assert_eq!(
        world.ask(|engine| engine.read_file(gone, 0, 1)),
        Err(Errno::ENOENT)
    );
    // One that was not used is closed as well.
    let unused = open_again(&world, ino);
    world.crash();
    for handle in [reads, writes, both, unused] {
        assert_eq!(world.ask(|engine| engine.release(handle)), Ok(()));
    }
    assert_eq!(world.ask(|engine| engine.release_directory(lists)), Ok(()));
    assert!(!world.engine().has_handles());
}

fn open_again(world: &World, ino: u64) -> HandleId {
    let opened = world.ask(|engine| engine.open_file(ino, libc::O_RDWR));
    opened.expect("opens")
}

#[test]
fn a_read_only_engine_refuses_every_change() {
    let mut world = World::new();
    let ino = world.put("f", b"x");
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    let engine = world.open_read_only();
    let caller = root_user();
    let ask = |outcome: cowfs_engine::Result<()>| match outcome {
        Err(cowfs_engine::Error::Os(errno)) => errno,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        ask(engine.mkdir(ROOT, b"d", 0o755, &caller).map(drop)),
        Errno::EROFS
    );
    assert_eq!(ask(engine.unlink(ROOT, b"f", &caller)), Errno::EROFS);
    assert_eq!(
        ask(engine.open_file(ino, libc::O_WRONLY).map(drop)),
        Errno::EROFS
    );
    assert_eq!(ask(engine.freeze().map(drop)), Errno::EROFS);
    assert_eq!(support::tree(&engine, &world.base), world.tree());
}

#[test]
fn a_node_of_no_known_type_is_refused_and_never_journaled() {
    let mut world = World::new();
    let masking = Caller {
        umask: libc::S_IFMT,
        ..root_user()
    };
    for kind in [0o030000, 0o170000] {
        let made = world.ask(|engine| engine.mknod(ROOT, b"f", kind | 0o600, 0, &root_user()));
        assert_eq!(made.map(|attr| attr.ino), Err(Errno::EINVAL));
    }
    let made = world.ask(|engine| engine.mknod(ROOT, b"f", libc::S_IFREG | 0o600, 0, &masking));
    assert_eq!(made.map(|attr| attr.mode), Ok(libc::S_IFREG | 0o600));
    world.crash();
    assert_eq!(world.names(""), ["f"]);
}

#[test]
fn nothing_is_renamed_to_dot_or_dot_dot() {
    let world = World::new();
    world.put("f", b"");
    for name in [&b"."[..], b".."] {
        let renamed = world.ask(|engine| engine.rename(ROOT, b"f", ROOT, name, 0, &root_user()));
        assert_eq!(renamed, Err(Errno::EINVAL));
    }
    assert_eq!(world.names(""), ["f"]);
}

#[test]
fn an_append_goes_to_the_end_that_there_is() {
    let world = World::new();
    let ino = world.put("f", b"one");
    let fh = world
        .ask(|engine| engine.open_file(ino, libc::O_WRONLY))
        .expect("opens");
    let append = |data: &[u8]| world.ask(|engine| engine.append(fh, data, true));
    assert_eq!(append(b"two"), Ok(6));
    world
        .ask(|engine| engine.write(fh, 8, b"x", true))
        .expect("writes");
    assert_eq!(append(b"three"), Ok(14));
    assert_eq!(world.get("f"), b"onetwo\0\0xthree");
}
