//! A disk that runs full in the middle of operations: an append to the journal or to staging fails
//! with a part of it written.
//!
//! The process's file size limit stands in for the disk: a write across it is cut short and the
//! next one fails. A failed operation has changed nothing, in memory or on disk. Later operations
//! work, and are complete after a crash. One test only: the limit applies to the whole process.

mod support;

use std::fs;

use cowfs_base::Errno;
use cowfs_engine::{AttrChange, Error};
use proptest::prelude::*;
use support::{ROOT, World, root_user, tree_of};

const PATHS: [&str; 5] = ["a", "b", "d", "d/a", "d/b"];

#[derive(Debug, Clone)]
enum Op {
    Create(usize),
    Mkdir(usize),
    OpenTruncated(usize),
    Write(usize, u16, u16, u8),
    Truncate(usize, u16),
    Unlink(usize),
    Rename(usize, usize, u32),
    Link(usize, usize),
    SetXattr(usize, u16),
    Freeze,
    Commit,
    Fail,
    Trim,
    /// The room is its file's and the new log's.
    Checkpoint,
    Crash,
}

fn op() -> impl Strategy<Value = Op> {
    let path = || 0..PATHS.len();
    prop_oneof![
        4 => path().prop_map(Op::Create),
        2 => path().prop_map(Op::Mkdir),
        1 => path().prop_map(Op::OpenTruncated),
        6 => (path(), 0_u16..4000, 1_u16..3000, 1_u8..=255).prop_map(|(at, offset, length, byte)| Op::Write(at, offset, length, byte)),
        2 => (path(), 0_u16..6000).prop_map(|(at, size)| Op::Truncate(at, size)),
        2 => path().prop_map(Op::Unlink),
        3 => (path(), path(), 0_u32..3).prop_map(|(from, to, flags)| Op::Rename(from, to, flags)),
        1 => (path(), path()).prop_map(|(from, to)| Op::Link(from, to)),
        1 => (path(), 0_u16..2000).prop_map(|(at, length)| Op::SetXattr(at, length)),
        2 => Just(Op::Freeze),
        2 => Just(Op::Commit),
        1 => Just(Op::Fail),
        1 => Just(Op::Trim),
        3 => Just(Op::Checkpoint),
        2 => Just(Op::Crash),
    ]
}

/// Files cannot grow beyond so many bytes; None: no limit.
fn limit_file_size(bytes: Option<u64>) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls get a valid struct; only the soft limit changes.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit), 0);
        limit.rlim_cur = bytes.unwrap_or(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
}

fn largest_journal_bytes(world: &World) -> u64 {
    let folder = world.temp.path().join("working/journal");
    let sizes = fs::read_dir(folder)
        .expect("lists")
        .map(|entry| entry.expect("entry").metadata().expect("exists").len());
    sizes.max().expect("a journal")
}

fn run(world: &mut World, frozen: &mut Option<u64>, op: &Op) -> Result<(), Errno> {
    let caller = root_user();
    match op {
        Op::Create(at) => {
            let (parent, name) = world.place(PATHS[*at])?;
            let flags = libc::O_RDWR | libc::O_EXCL;
            let (attr, fh) =
                world.ask(|engine| engine.create(parent, name, 0o644, flags, &caller))?;
            world.ask(|engine| engine.release(fh))?;
            world.ask(|engine| engine.forget(attr.ino, 1))
        }
        Op::Mkdir(at) => {
            let (parent, name) = world.place(PATHS[*at])?;
            let attr = world.ask(|engine| engine.mkdir(parent, name, 0o755, &caller))?;
            world.ask(|engine| engine.forget(attr.ino, 1))
        }
        Op::OpenTruncated(at) => {
            let ino = world.resolve(PATHS[*at])?;
            let fh = world.ask(|engine| engine.open_file(ino, libc::O_WRONLY | libc::O_TRUNC))?;
            world.ask(|engine| engine.release(fh))
        }
        Op::Write(at, offset, length, byte) => world.write_at(
            PATHS[*at],
            u64::from(*offset),
            &vec![*byte; usize::from(*length)],
        ),
        Op::Truncate(at, size) => {
            let ino = world.resolve(PATHS[*at])?;
            let change = AttrChange {
                size: Some(u64::from(*size)),
                ..AttrChange::default()
            };
            world
                .ask(|engine| engine.setattr(ino, &caller, &change))
                .map(drop)
        }
        Op::Unlink(at) => world.unlink(PATHS[*at]),
        Op::Rename(from, to, flags) => {
            let (parent, name) = world.place(PATHS[*from])?;
            let (new_parent, new_name) = world.place(PATHS[*to])?;
            world.ask(|engine| engine.rename(parent, name, new_parent, new_name, *flags, &caller))
        }
        Op::Link(from, to) => {
            let ino = world.resolve(PATHS[*from])?;
            let (parent, name) = world.place(PATHS[*to])?;
            world.ask(|engine| engine.link(ino, parent, name))?;
            world.ask(|engine| engine.forget(ino, 1))
        }
        Op::SetXattr(at, length) => {
            let ino = world.resolve(PATHS[*at])?;
            let value = vec![7; usize::from(*length)];
            world.ask(|engine| engine.set_xattr(ino, b"user.x", &value, 0))
        }
        Op::Freeze if frozen.is_none() => {
            *frozen = world.ask(|engine| engine.freeze())?;
            Ok(())
        }
        Op::Fail => match frozen.take() {
            Some(layer) => world.ask(|engine| engine.layer_failed(layer)),
            None => Ok(()),
        },
        Op::Trim => world.ask(|engine| engine.trim_staging(0)).map(drop),
        Op::Checkpoint => world.ask(|engine| engine.checkpoint()).map(drop),
        _ => Ok(()),
    }
}

/// Runs the operation while journals can grow by `room` bytes only, and looks at what became of it.
fn check_op(world: &mut World, frozen: &mut Option<u64>, op: &Op, room: Option<u64>) {
    let before = world.tree();
    let limit = match op {
        // Written from its start, and cut short at any place.
        Op::Checkpoint => room.map(|room| room * 4),
        _ => room.map(|room| largest_journal_bytes(world) + room),
    };
    limit_file_size(limit);
    let outcome = run(world, frozen, op);
    limit_file_size(None);
    if outcome.is_err() {
        assert_eq!(
            world.tree(),
            before,
            "{op:?}: {outcome:?} changed something"
        );
    }
    match op {
        Op::Commit => {
            if let Some(layer) = frozen.take() {
                world.commit(layer);
            }
        }
        Op::Crash => {
            *frozen = None;
            world.drop_engine();
            limit_file_size(limit);
            let refused = world.open();
            limit_file_size(None);
            if let Err(error) = refused {
                assert!(matches!(error, Error::Os(Errno::EFBIG)), "{error}");
                world.open().expect("opens once there is room");
            }
            assert_eq!(world.tree(), before, "after a crash");
        }
        _ => {}
    }
}

fn check(ops: &[(Op, Option<u64>)]) {
    let mut world = World::new();
    world
        .ask(|engine| engine.mkdir(ROOT, b"d", 0o755, &root_user()))
        .expect("mkdir");
    let mut frozen = None;
    for (op, room) in ops {
        check_op(&mut world, &mut frozen, op, *room);
    }
    let before = world.tree();
    world.crash();
    assert_eq!(world.tree(), before, "after a crash");
    if let Some(layer) = world.freeze() {
        world.commit(layer);
    }
    assert_eq!(tree_of(&world.base), before, "after a commit");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_fails_on_a_full_disk_has_changed_nothing(ops in prop::collection::vec((op(), prop::option::of(0_u64..400)), 1..60)) {
        // SAFETY: ignoring a signal needs no handler.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        check(&ops);
    }
}

/// More by COWFS_MODEL_CASES, for a long run by hand.
fn cases() -> u32 {
    std::env::var("COWFS_MODEL_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(100)
}
