//! A local disk that is really full: a small tmpfs under the working copy, filled through the
//! engine or by others.
//!
//! Removing, truncating, renaming, changing attributes, freezing, committing, closing and opening
//! go on; what adds bytes gets ENOSPC and has changed nothing; when there is room again everything
//! goes on. After each case all of it is there, also after a kill.
//!
//! Each test has a mount namespace of its own, so it needs CAP_SYS_ADMIN.

mod support;

use std::ffi::CString;
use std::fs::File;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use cowfs_base::Errno;
use cowfs_engine::{AttrChange, Punching};
use proptest::prelude::*;
use support::{Base, World, root_user, tree_of};

const SEGMENT: u64 = 256 << 10;
const DISK_MIB: u64 = 8;
const PATHS: [&str; 6] = ["a", "b", "c", "d", "d/a", "d/b"];

/// A world whose working copy is on a disk of its own.
struct SmallDisk(World);

impl Deref for SmallDisk {
    type Target = World;

    fn deref(&self) -> &World {
        &self.0
    }
}

impl DerefMut for SmallDisk {
    fn deref_mut(&mut self) -> &mut World {
        &mut self.0
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        self.0.drop_engine();
        let target = path_of_disk(&self.0);
        // SAFETY: a NUL-terminated string; the mount is this thread's own.
        unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
    }
}

fn path_of_disk(world: &World) -> CString {
    let path = world.temp.path().join("working");
    CString::new(path.to_str().expect("UTF-8")).expect("no NUL")
}

fn small_disk() -> SmallDisk {
    small_disk_with(SEGMENT)
}

fn small_disk_with(segment_bytes: u64) -> SmallDisk {
    let mut world = World::with_segments(Base::empty(), segment_bytes);
    world.drop_engine();
    let path = world.temp.path().join("working");
    std::fs::remove_dir_all(&path).expect("removes");
    std::fs::create_dir(&path).expect("makes");
    let target = path_of_disk(&world);
    let size = CString::new(format!("size={DISK_MIB}m")).expect("no NUL");
    // SAFETY: flags and NUL-terminated strings only; the namespace is this thread's.
    unsafe {
        assert_eq!(libc::unshare(libc::CLONE_NEWNS), 0, "needs CAP_SYS_ADMIN");
        let private = libc::MS_REC | libc::MS_PRIVATE;
        let nothing = std::ptr::null();
        let made = libc::mount(nothing, c"/".as_ptr(), nothing, private, nothing.cast());
        assert_eq!(made, 0, "the namespace is not private");
        let tmpfs = c"tmpfs".as_ptr();
        let mounted = libc::mount(tmpfs, target.as_ptr(), tmpfs, 0, size.as_ptr().cast());
        assert_eq!(mounted, 0, "no tmpfs");
    }
    world.open().expect("opens");
    SmallDisk(world)
}

fn others(world: &World) -> PathBuf {
    world.temp.path().join("working/others")
}

/// Other programs take all free space but for `left` bytes.
fn fill(world: &World, left: u64) {
    let file = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .open(others(world))
        .expect("opens");
    let mut at = file.metadata().expect("exists").len();
    while file.write_all_at(&[7; 4096], at).is_ok() {
        at += 4096;
    }
    file.set_len((at & !4095).saturating_sub(left))
        .expect("shrinks");
}

fn free(world: &World) {
    let _ = std::fs::remove_file(others(world));
}

/// Writes files until there is no room; returns how many.
fn fill_through_the_engine(world: &World, bytes: usize) -> usize {
    let mut number = 0;
    loop {
        let path = format!("f{number}");
        let (parent, name) = world.place(&path).expect("the root");
        let created =
            world.ask(|engine| engine.create(parent, name, 0o644, libc::O_RDWR, &root_user()));
        let written = created.and_then(|(attr, fh)| {
            let written = world.ask(|engine| engine.write(fh, 0, &vec![1; bytes], true));
            world.engine().release(fh).expect("closes");
            world.engine().forget(attr.ino, 1).expect("forgets");
            written
        });
        match written {
            Ok(_) => number += 1,
            Err(errno) => {
                assert_eq!(errno, Errno::ENOSPC);
                return number;
            }
        }
    }
}

fn set(world: &World, path: &str, change: &AttrChange) -> Result<(), Errno> {
    let ino = world.resolve(path)?;
    let caller = root_user();
    world
        .ask(|engine| engine.setattr(ino, &caller, change))
        .map(drop)
}

fn truncate(world: &World, path: &str) -> Result<(), Errno> {
    let size = Some(0);
    set(
        world,
        path,
        &AttrChange {
            size,
            ..AttrChange::default()
        },
    )
}

fn chmod(world: &World, path: &str, mode: u32) -> Result<(), Errno> {
    let mode = Some(mode);
    set(
        world,
        path,
        &AttrChange {
            mode,
            ..AttrChange::default()
        },
    )
}

fn rename(world: &World, from: &str, to: &str) -> Result<(), Errno> {
    let (parent, name) = world.place(from)?;
    let (new_parent, new_name) = world.place(to)?;
    world.ask(|engine| engine.rename(parent, name, new_parent, new_name, 0, &root_user()))
}

fn mkdir(world: &World, path: &str) -> Result<(), Errno> {
    let (parent, name) = world.place(path)?;
    let made = world.ask(|engine| engine.mkdir(parent, name, 0o755, &root_user()))?;
    world.ask(|engine| engine.forget(made.ino, 1))
}

#[test]
fn a_full_disk_can_be_left_and_goes_on_when_there_is_room() {
    let mut world = small_disk();
    mkdir(&world, "d").expect("mkdir");
    let count = fill_through_the_engine(&world, 10_000);
    assert!(count > 400, "{count} files in 8 MiB");
    fill(&world, 0);
    // The journal may have a page that is not full yet.
    let refused = (0..100).find_map(|number| mkdir(&world, &format!("e{number}")).err());
    assert_eq!(refused, Some(Errno::ENOSPC));

    world.unlink("f0").expect("rm");
    truncate(&world, "f1").expect("truncate");
    chmod(&world, "f2", 0o600).expect("chmod");
    rename(&world, "f3", "d/f3").expect("rename");
    let before = world.tree();
    world.crash();
    assert_eq!(world.tree(), before, "after a kill");
    world.unlink("f4").expect("rm after a kill");
    let layer = world.freeze().expect("something changed");
    chmod(&world, "f5", 0o600).expect("chmod beside a commit");
    world.commit(layer);
    let before = world.tree();
    world.engine().close().expect("closes");
    world.drop_engine();
    world.open().expect("opens");
    assert_eq!(world.tree(), before);

    free(&world);
    for number in 5..count {
        world.unlink(&format!("f{number}")).expect("rm");
    }
    mkdir(&world, "d/e").expect("there is room");
    let again = fill_through_the_engine(&world, 10_000);
    assert!(again > 400, "{again} files, {count} the first time");
}

#[test]
fn removing_files_makes_room_without_a_commit() {
    for syncs in [false, true] {
        let world = small_disk();
        let count = fill_through_the_engine(&world, 30_000);
        if syncs {
            world.engine().sync().expect("syncs");
        }
        for number in (0..count).filter(|number| number % 20 != 0) {
            world.unlink(&format!("f{number}")).expect("rm");
        }
        world.put("new", &vec![3; 2 << 20]);
        for number in (0..count).step_by(20) {
            assert!(world.get(&format!("f{number}")) == vec![1; 30_000]);
        }
    }
}

#[test]
fn half_of_what_filled_the_disk_makes_room_without_room_for_copies() {
    for syncs in [false, true] {
        let mut world = small_disk_with(4 << 20);
        let count = fill_through_the_engine(&world, 30_000);
        fill(&world, 0);
        if syncs {
            world.engine().sync().expect("syncs");
        }
        for number in (0..count).filter(|number| number % 2 == 1) {
            world.unlink(&format!("f{number}")).expect("rm");
        }
        world.put("new", &vec![3; 2 << 20]);
        world.boot_id = "boot-2".into();
        for kind in ["mounted", "after a power loss that took nothing"] {
            assert!(world.get("new") == vec![3; 2 << 20], "{kind}");
            for number in (0..count).step_by(2) {
                assert!(
                    world.get(&format!("f{number}")) == vec![1; 30_000],
                    "{kind}"
                );
            }
            let (_, dropped) = world.crash();
            assert_eq!(dropped, 0);
        }
        let before = world.tree();
        let layer = world.freeze().expect("changed");
        world.commit(layer);
        assert_eq!(tree_of(&world.base), before);
    }
}

/// Fewer dead bytes than a sixteenth of each segment, in many places or in one.
#[test]
fn little_that_is_removed_on_a_full_disk_shows_and_makes_room() {
    let free_bytes = |world: &World| world.engine().statfs().expect("answers").2;
    for every in [20, usize::MAX] {
        let mut world = small_disk_with(4 << 20);
        world.put("first", &[1; 8192]);
        let count = fill_through_the_engine(&world, 30_000);
        let full_bytes = free_bytes(&world);
        let gone: Vec<usize> = (1..count).step_by(every).collect();
        for number in &gone {
            world.unlink(&format!("f{number}")).expect("rm");
        }
        let dead_bytes = gone.len() * 6 * 4096;
        let shown_bytes = (free_bytes(&world) - full_bytes) as usize;
        assert!(
            shown_bytes >= dead_bytes / 2,
            "{shown_bytes} of {dead_bytes} show"
        );
        world.put("new", &vec![3; shown_bytes / 2]);
        let before = world.tree();
        world.crash();
        assert_eq!(world.tree(), before, "after a kill");
    }
}

/// What a pass has punched is not dead any more, and parts of blocks never are.
#[test]
fn nothing_is_punched_twice() {
    let world = small_disk_with(4 << 20);
    for number in 0..200 {
        world.put(&format!("f{number}"), &vec![1; 10_000]);
    }
    for number in (0..200).step_by(2) {
        world.unlink(&format!("f{number}")).expect("rm");
    }
    let punch = || world.engine().punch_staging(Punching::Thorough);
    assert!(punch().expect("punches") > 0);
    let journal_bytes = journal_bytes(&world);
    assert_eq!(punch().expect("looks"), 0);
    assert_eq!(
        self::journal_bytes(&world),
        journal_bytes,
        "nothing was mapped again"
    );
}

fn journal_bytes(world: &World) -> u64 {
    let folder = world.temp.path().join("working/journal");
    let entries = std::fs::read_dir(folder).expect("lists");
    entries
        .map(|entry| entry.expect("entry").metadata().expect("exists").len())
        .sum()
}

#[derive(Debug, Clone)]
enum Op {
    Mkdir(usize),
    Write(usize, u32, u32, u8),
    Truncate(usize),
    Chmod(usize, u32),
    Unlink(usize),
    Rename(usize, usize),
    SetXattr(usize, u16),
    RemoveXattr(usize),
    /// All but so many bytes.
    Fill(u16),
    Free,
    Freeze,
    Commit,
    Fail,
    Trim,
    Reclaim,
    Punch,
    Crash,
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let path = || 0..PATHS.len();
    prop_oneof![
        2 => path().prop_map(Op::Mkdir),
        8 => (path(), 0_u32..600_000, 1_u32..400_000, 1_u8..=255).prop_map(|(at, offset, length, byte)| Op::Write(at, offset, length, byte)),
        2 => path().prop_map(Op::Truncate),
        2 => (path(), 0_u32..0o777).prop_map(|(at, mode)| Op::Chmod(at, mode)),
        2 => path().prop_map(Op::Unlink),
        2 => (path(), path()).prop_map(|(from, to)| Op::Rename(from, to)),
        1 => (path(), 0_u16..5000).prop_map(|(at, length)| Op::SetXattr(at, length)),
        1 => path().prop_map(Op::RemoveXattr),
        3 => any::<u16>().prop_map(Op::Fill),
        2 => Just(Op::Free),
        2 => Just(Op::Freeze),
        2 => Just(Op::Commit),
        1 => Just(Op::Fail),
        1 => Just(Op::Trim),
        1 => Just(Op::Reclaim),
        2 => Just(Op::Punch),
        2 => Just(Op::Crash),
        1 => Just(Op::Reopen),
    ]
}

/// What adds bytes.
fn grow(world: &World, op: &Op) -> Result<(), Errno> {
    match op {
        Op::Mkdir(at) => mkdir(world, PATHS[*at]),
        Op::Write(at, offset, length, byte) => {
            let (parent, name) = world.place(PATHS[*at])?;
            let caller = root_user();
            let (attr, fh) =
                world.ask(|engine| engine.create(parent, name, 0o644, libc::O_RDWR, &caller))?;
            let data = vec![*byte; *length as usize];
            let written = world.ask(|engine| engine.write(fh, u64::from(*offset), &data, true));
            world.ask(|engine| engine.release(fh))?;
            world.ask(|engine| engine.forget(attr.ino, 1))?;
            written.map(drop)
        }
        Op::SetXattr(at, length) => {
            let ino = world.resolve(PATHS[*at])?;
            let value = vec![7; usize::from(*length)];
            world.ask(|engine| engine.set_xattr(ino, b"user.x", &value, 0))
        }
        _ => Ok(()),
    }
}

/// What adds none.
fn leave(world: &World, op: &Op) -> Result<(), Errno> {
    match op {
        Op::Truncate(at) => truncate(world, PATHS[*at]),
        Op::Chmod(at, mode) => chmod(world, PATHS[*at], *mode),
        Op::Unlink(at) => world.unlink(PATHS[*at]),
        Op::Rename(from, to) => rename(world, PATHS[*from], PATHS[*to]),
        Op::RemoveXattr(at) => {
            let ino = world.resolve(PATHS[*at])?;
            world.ask(|engine| engine.remove_xattr(ino, b"user.x"))
        }
        _ => Ok(()),
    }
}

fn check_op(world: &mut World, frozen: &mut Option<u64>, op: &Op) {
    let before = world.tree();
    if grow(world, op).is_err() && !matches!(op, Op::Write(..)) {
        // A write may have made its file.
        assert_eq!(world.tree(), before, "{op:?} failed and changed something");
    }
    let left = leave(world, op);
    assert_ne!(left, Err(Errno::ENOSPC), "{op:?} is kept from leaving");
    match op {
        Op::Fill(left) => fill(world, u64::from(*left)),
        Op::Free => free(world),
        Op::Freeze if frozen.is_none() => *frozen = world.freeze(),
        Op::Commit => {
            if let Some(layer) = frozen.take() {
                world.commit(layer);
            }
        }
        Op::Fail => {
            if let Some(layer) = frozen.take() {
                world.engine().layer_failed(layer).expect("joins");
            }
        }
        Op::Trim => drop(world.engine().trim_staging(0).expect("trims")),
        Op::Reclaim => drop(world.engine().reclaim_staging().expect("reclaims")),
        Op::Punch => drop(
            world
                .engine()
                .punch_staging(Punching::Thorough)
                .expect("punches"),
        ),
        Op::Crash => {
            *frozen = None;
            let before = world.tree();
            world.crash();
            assert_eq!(world.tree(), before, "after a kill");
        }
        Op::Reopen if frozen.is_none() => {
            let before = world.tree();
            world.engine().close().expect("closes");
            world.crash();
            assert_eq!(world.tree(), before, "opened again");
        }
        _ => {}
    }
}

fn check(ops: &[Op]) {
    let mut world = small_disk();
    mkdir(&world, "d").expect("mkdir");
    let mut frozen = None;
    for op in ops {
        check_op(&mut world, &mut frozen, op);
    }
    let before = world.tree();
    world.crash();
    assert_eq!(world.tree(), before, "after a kill");
    if let Some(layer) = world.freeze() {
        world.commit(layer);
    }
    assert_eq!(tree_of(&world.base), before, "after a commit");
    free(&world);
    for path in PATHS.iter().rev() {
        let _ = world.unlink(path);
    }
    world.put("z", &vec![1; 1 << 20]);
}

/// Opened again, it has claimed no segment numbers yet, and that takes a block.
#[test]
fn a_disk_that_was_full_when_opened_has_its_dead_parts_punched() {
    let mut world = small_disk();
    mkdir(&world, "d").expect("mkdir");
    world.put("a", &[1]);
    world.put("b", &[2; 100_000]);
    world.put("b", &[3; 300_000]);
    fill(&world, 4332);
    world.engine().close().expect("closes");
    world.crash();
    assert!(
        world
            .engine()
            .punch_staging(Punching::Thorough)
            .expect("punches")
            > 0
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_full_disk_keeps_nobody_from_leaving(ops in prop::collection::vec(op(), 1..60)) {
        check(&ops);
    }
}

/// More by COWFS_MODEL_CASES, for a long run by hand.
fn cases() -> u32 {
    let cases = std::env::var("COWFS_MODEL_CASES").ok();
    cases.and_then(|cases| cases.parse().ok()).unwrap_or(30)
}
