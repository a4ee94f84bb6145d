//! Random operations on an engine and on a local directory, some on files held open, with freezes, commits, failed commits, crashes and trimming among
//! them: same errors, same trees, and every committed version is the tree as it was at its freeze.

mod support;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use cowfs_base::Errno;
use cowfs_engine::{AttrChange, SEGMENT_BYTES};
use proptest::prelude::*;
use support::{Base, ROOT, Seen, Tree, World, root_user, tree_of};

#[derive(Debug, Clone)]
enum Op {
    Create(Where),
    Mkdir(Where),
    Symlink(Where, u8),
    Write(Where, u16, u16, u8),
    Truncate(Where, u16),
    Chmod(Where, u16),
    Unlink(Where),
    Rmdir(Where),
    Rename(Where, Where, u8),
    Link(Where, Where),
    SetXattr(Where, u8, u8),
    RemoveXattr(Where, u8),
    Open(Where),
    WriteOpen(usize, u16, u16, u8),
    TruncateOpen(usize, u16),
    ReadOpen(usize),
    Close(usize),
    Freeze,
    Commit,
    Fail,
    Crash,
    CrashBehindHead,
    Trim,
    Reclaim,
    /// What can be loaded again leaves memory.
    Evict,
    Checkpoint,
    /// What comes next goes to another segment, so that trimming may take this one.
    NextSegment,
}

/// A path of up to three names out of few, so that operations meet.
#[derive(Debug, Clone)]
struct Where(Vec<u8>);

impl Where {
    fn path(&self) -> String {
        self.0
            .iter()
            .map(|number| char::from(b'a' + number % 4).to_string())
            .collect::<Vec<_>>()
            .join("/")
    }
}

fn place() -> impl Strategy<Value = Where> {
    let depth = prop_oneof![6 => Just(1_usize), 3 => Just(2), 1 => Just(3)];
    depth
        .prop_flat_map(|depth| prop::collection::vec(0_u8..4, depth))
        .prop_map(Where)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => place().prop_map(Op::Create),
        5 => place().prop_map(Op::Mkdir),
        1 => (place(), any::<u8>()).prop_map(|(at, to)| Op::Symlink(at, to)),
        12 => (place(), 0_u16..12_000, 1_u16..9_000, any::<u8>()).prop_map(|(at, offset, length, byte)| Op::Write(at, offset, length, byte)),
        4 => (place(), 0_u16..15_000).prop_map(|(at, size)| Op::Truncate(at, size)),
        // Set-id bits are left out: root's own writes keep them on a local disk, the engine clears them for everybody.
        1 => (place(), 0_u16..0o1777).prop_map(|(at, mode)| Op::Chmod(at, mode)),
        4 => place().prop_map(Op::Unlink),
        2 => place().prop_map(Op::Rmdir),
        8 => (place(), place(), 0_u8..3).prop_map(|(from, to, flags)| Op::Rename(from, to, flags)),
        2 => (place(), place()).prop_map(|(from, to)| Op::Link(from, to)),
        2 => (place(), 0_u8..3, any::<u8>()).prop_map(|(at, name, value)| Op::SetXattr(at, name, value)),
        1 => (place(), 0_u8..3).prop_map(|(at, name)| Op::RemoveXattr(at, name)),
        3 => place().prop_map(Op::Open),
        4 => (any::<usize>(), 0_u16..12_000, 1_u16..9_000, any::<u8>()).prop_map(|(which, offset, length, byte)| Op::WriteOpen(which, offset, length, byte)),
        1 => (any::<usize>(), 0_u16..15_000).prop_map(|(which, size)| Op::TruncateOpen(which, size)),
        4 => any::<usize>().prop_map(Op::ReadOpen),
        1 => any::<usize>().prop_map(Op::Close),
        3 => Just(Op::Freeze),
        2 => Just(Op::Commit),
        1 => Just(Op::Fail),
        2 => Just(Op::Crash),
        1 => Just(Op::CrashBehindHead),
        3 => Just(Op::Trim),
        2 => Just(Op::Reclaim),
        4 => Just(Op::Evict),
        2 => Just(Op::Checkpoint),
        2 => Just(Op::NextSegment),
    ]
}

type Outcome = Result<(), Errno>;

/// The same operations on the local file system.
struct Local(tempfile::TempDir);

impl Local {
    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn run(&self, op: &Op) -> std::io::Result<()> {
        match op {
            Op::Create(at) => fs::File::create_new(self.at(&at.path())).map(drop),
            Op::Mkdir(at) => fs::create_dir(self.at(&at.path())),
            Op::Symlink(at, to) => {
                std::os::unix::fs::symlink(format!("to-{to}"), self.at(&at.path()))
            }
            Op::Write(at, offset, length, byte) => {
                let file = fs::File::options().write(true).open(self.file(at)?)?;
                file.write_all_at(&vec![*byte; usize::from(*length)], u64::from(*offset))
            }
            Op::Truncate(at, size) => fs::File::options()
                .write(true)
                .open(self.file(at)?)?
                .set_len(u64::from(*size)),
            Op::Chmod(at, mode) => {
                let path = self.existing(at)?;
                fs::set_permissions(path, fs::Permissions::from_mode(u32::from(*mode)))
            }
            Op::Unlink(at) => {
                let path = self.at(&at.path());
                // remove_file on a directory is unlink(2), as wanted.
                fs::remove_file(path)
            }
            Op::Rmdir(at) => fs::remove_dir(self.at(&at.path())),
            Op::Rename(from, to, flags) => rename_with_flags(
                &self.at(&from.path()),
                &self.at(&to.path()),
                u32::from(*flags),
            ),
            Op::Link(from, to) => fs::hard_link(self.at(&from.path()), self.at(&to.path())),
            Op::SetXattr(at, name, value) => {
                let value = vec![*value; usize::from(*value)];
                set_xattr(&self.existing(at)?, &format!("user.{name}"), &value)
            }
            Op::RemoveXattr(at, name) => remove_xattr(&self.existing(at)?, &format!("user.{name}")),
            _ => Ok(()),
        }
    }

    /// The path, unless it names a symbolic link: the engine is asked about inodes and follows none.
    fn existing(&self, at: &Where) -> std::io::Result<PathBuf> {
        let path = self.at(&at.path());
        match fs::symlink_metadata(&path)?.is_symlink() {
            true => Err(std::io::Error::from_raw_os_error(libc::ELOOP)),
            false => Ok(path),
        }
    }

    fn file(&self, at: &Where) -> std::io::Result<PathBuf> {
        let path = self.existing(at)?;
        match fs::symlink_metadata(&path)?.is_dir() {
            true => Err(std::io::Error::from_raw_os_error(libc::EISDIR)),
            false => Ok(path),
        }
    }

    fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        let mut open = vec![self.0.path().to_path_buf()];
        while let Some(path) = open.pop() {
            let found = fs::symlink_metadata(&path).expect("exists");
            let bytes = if found.is_symlink() {
                fs::read_link(&path)
                    .expect("target")
                    .into_os_string()
                    .into_encoded_bytes()
            } else if found.is_dir() {
                open.extend(
                    fs::read_dir(&path)
                        .expect("lists")
                        .map(|entry| entry.expect("entry").path()),
                );
                Vec::new()
            } else {
                fs::read(&path).expect("reads")
            };
            let xattrs = if found.is_symlink() {
                Default::default()
            } else {
                xattrs(&path)
            };
            let inside = Path::new("/").join(path.strip_prefix(self.0.path()).expect("inside"));
            tree.insert(
                inside,
                Seen {
                    mode: found.mode(),
                    nlink: found.nlink() as u32,
                    bytes,
                    xattrs,
                },
            );
        }
        tree
    }
}

fn c_path(path: &Path) -> std::ffi::CString {
    std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("no NUL")
}

fn checked(outcome: i64) -> std::io::Result<usize> {
    if outcome < 0 {
        Err(std::io::Error::last_os_error())
    } else {
        Ok(outcome as usize)
    }
}

fn rename_with_flags(from: &Path, to: &Path, flags: u32) -> std::io::Result<()> {
    let (from, to) = (c_path(from), c_path(to));
    // SAFETY: both are NUL-terminated strings that outlive the call.
    let outcome = unsafe {
        libc::renameat2(
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            flags,
        )
    };
    checked(outcome.into()).map(drop)
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) -> std::io::Result<()> {
    let (path, name) = (c_path(path), c_path(Path::new(name)));
    // SAFETY: strings are NUL-terminated, the value's length is its own.
    let outcome = unsafe {
        libc::setxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    checked(outcome.into()).map(drop)
}

fn remove_xattr(path: &Path, name: &str) -> std::io::Result<()> {
    let (path, name) = (c_path(path), c_path(Path::new(name)));
    // SAFETY: both are NUL-terminated strings that outlive the call.
    checked(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) }.into()).map(drop)
}

fn xattrs(path: &Path) -> std::collections::BTreeMap<Vec<u8>, Vec<u8>> {
    let path = c_path(path);
    let mut names = vec![0_u8; 4096];
    // SAFETY: the buffer has the length that is passed.
    let length =
        checked(
            unsafe { libc::listxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) }
                as i64,
        )
        .expect("lists");
    let names = names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| name.starts_with(b"user."));
    let value = |name: &[u8]| {
        let name = std::ffi::CString::new(name).expect("no NUL");
        let mut value = vec![0_u8; 4096];
        // SAFETY: the buffer has the length that is passed.
        let outcome = unsafe {
            libc::getxattr(
                path.as_ptr(),
                name.as_ptr(),
                value.as_mut_ptr().cast(),
                value.len(),
            )
        };
        value.truncate(checked(outcome as i64).expect("has a value"));
        value
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
}

/// The operation on the engine, refusing symbolic links where `Local` does.
fn run(world: &World, op: &Op) -> Outcome {
    let caller = root_user();
    let existing = |at: &Where| {
        let ino = world.resolve(&at.path())?;
        let mode = world.ask(|engine| engine.getattr(ino))?.mode;
        if mode & libc::S_IFMT == libc::S_IFLNK {
            Err(Errno::ELOOP)
        } else {
            Ok(ino)
        }
    };
    let setattr = |ino, change: AttrChange| {
        world
            .ask(|engine| engine.setattr(ino, &caller, &change))
            .map(drop)
    };
    match op {
        Op::Create(at) => {
            let path = at.path();
            let (parent, name) = world.place(&path)?;
            let flags = libc::O_RDWR | libc::O_EXCL;
            let (attr, fh) =
                world.ask(|engine| engine.create(parent, name, 0o644, flags, &caller))?;
            world.ask(|engine| engine.release(fh))?;
            world.ask(|engine| engine.forget(attr.ino, 1))
        }
        Op::Mkdir(at) => {
            let path = at.path();
            let (parent, name) = world.place(&path)?;
            let attr = world.ask(|engine| engine.mkdir(parent, name, 0o755, &caller))?;
            world.ask(|engine| engine.forget(attr.ino, 1))
        }
        Op::Symlink(at, to) => {
            let path = at.path();
            let (parent, name) = world.place(&path)?;
            let target = format!("to-{to}");
            let attr =
                world.ask(|engine| engine.symlink(parent, name, target.as_bytes(), &caller))?;
            world.ask(|engine| engine.forget(attr.ino, 1))
        }
        Op::Write(at, offset, length, byte) => {
            existing(at)?;
            world.write_at(
                &at.path(),
                u64::from(*offset),
                &vec![*byte; usize::from(*length)],
            )
        }
        Op::Truncate(at, size) => setattr(
            existing(at)?,
            AttrChange {
                size: Some(u64::from(*size)),
                ..AttrChange::default()
            },
        ),
        Op::Chmod(at, mode) => setattr(
            existing(at)?,
            AttrChange {
                mode: Some(u32::from(*mode)),
                ..AttrChange::default()
            },
        ),
        Op::Unlink(at) => world.unlink(&at.path()),
        Op::Rmdir(at) => {
            let path = at.path();
            let (parent, name) = world.place(&path)?;
            world.ask(|engine| engine.rmdir(parent, name, &caller))
        }
        Op::Rename(from, to, flags) => {
            let (from, to) = (from.path(), to.path());
            let (parent, name) = world.place(&from)?;
            let (new_parent, new_name) = world.place(&to)?;
            world.ask(|engine| {
                engine.rename(
                    parent,
                    name,
                    new_parent,
                    new_name,
                    u32::from(*flags),
                    &caller,
                )
            })
        }
        Op::Link(from, to) => {
            let ino = world.resolve(&from.path())?;
            let to = to.path();
            let (parent, name) = world.place(&to)?;
            world.ask(|engine| engine.link(ino, parent, name))?;
            world.ask(|engine| engine.forget(ino, 1))
        }
        Op::SetXattr(at, name, value) => {
            let (ino, name) = (existing(at)?, format!("user.{name}"));
            let value = vec![*value; usize::from(*value)];
            world.ask(|engine| engine.set_xattr(ino, name.as_bytes(), &value, 0))
        }
        Op::RemoveXattr(at, name) => {
            let (ino, name) = (existing(at)?, format!("user.{name}"));
            world.ask(|engine| engine.remove_xattr(ino, name.as_bytes()))
        }
        _ => Ok(()),
    }
}

/// More than all operations of a case write.
const LIMIT_BYTES: u64 = 4 << 20;

/// A frozen layer and the tree as it was then.
type Frozen = Option<(u64, Tree)>;

fn run_layer_op(world: &mut World, local: &Local, frozen: &mut Frozen, op: &Op) {
    match op {
        Op::Freeze if frozen.is_none() => {
            *frozen = world.freeze().map(|layer| (layer, local.tree()))
        }
        Op::Commit => {
            if let Some((layer, then)) = frozen.take() {
                world.commit(layer);
                assert_eq!(
                    tree_of(&world.base),
                    then,
                    "the version is the tree at its freeze"
                );
                assert_eq!(
                    without_root_mode(world.tree()),
                    without_root_mode(local.tree()),
                    "what was written since is still there"
                );
            }
        }
        Op::Fail => {
            if let Some((layer, _)) = frozen.take() {
                world.engine().layer_failed(layer).expect("joins");
            }
        }
        Op::Crash => {
            *frozen = None;
            world.crash();
        }
        Op::CrashBehindHead => {
            if let Some((layer, _)) = frozen.take() {
                world.base = world.publish(layer).0;
                world.after_layer = layer;
                world.crash();
            }
        }
        Op::Trim => drop(world.engine().trim_staging(0).expect("trims")),
        Op::Reclaim => drop(world.engine().reclaim_staging().expect("reclaims")),
        Op::Evict => drop(world.engine().evict(0).expect("evicts")),
        Op::Checkpoint => drop(world.engine().checkpoint().expect("checkpoints")),
        Op::NextSegment => {
            let engine = world.engine();
            let (attr, fh) = world
                .ask(|engine| engine.create(ROOT, b"big", 0o600, libc::O_RDWR, &root_user()))
                .expect("creates");
            // A segment that cannot take a write is closed.
            let outcome =
                world.ask(|engine| engine.write(fh, 0, &vec![0; LIMIT_BYTES as usize + 1], true));
            assert_eq!(outcome, Err(Errno::ENOSPC));
            world.unlink("big").expect("unlinks");
            engine.release(fh).expect("closes");
            engine.forget(attr.ino, 1).expect("forgets");
        }
        _ => {}
    }
}

/// A file held open on both sides: engine handle, inode, local file. What becomes of its names does not matter to it.
type Held = (u64, u64, fs::File);

fn run_on_open(world: &World, local: &Local, held: &mut Vec<Held>, op: &Op) {
    let pick = |which: usize| held.get(which % held.len().max(1));
    match op {
        Op::Open(at) => {
            let Ok(path) = local.file(at) else { return };
            let opened = fs::File::options().read(true).write(true).open(path);
            let ino = world.resolve(&at.path()).expect("exists here too");
            let fh = world.ask(|engine| engine.open_file(ino, libc::O_RDWR));
            held.push((fh.expect("opens"), ino, opened.expect("opens")));
        }
        Op::WriteOpen(which, offset, length, byte) => {
            let Some((fh, _, file)) = pick(*which) else {
                return;
            };
            let (offset, bytes) = (u64::from(*offset), vec![*byte; usize::from(*length)]);
            file.write_all_at(&bytes, offset).expect("writes");
            let written = world.ask(|engine| engine.write(*fh, offset, &bytes, true));
            assert_eq!(written, Ok(bytes.len()));
        }
        Op::TruncateOpen(which, size) => {
            let Some((_, ino, file)) = pick(*which) else {
                return;
            };
            let size = u64::from(*size);
            file.set_len(size).expect("truncates");
            let change = AttrChange {
                size: Some(size),
                ..AttrChange::default()
            };
            let outcome = world.ask(|engine| engine.setattr(*ino, &root_user(), &change));
            assert_eq!(outcome.map(|attr| attr.size), Ok(size));
        }
        Op::ReadOpen(which) => {
            let Some((fh, ino, file)) = pick(*which) else {
                return;
            };
            let found = file.metadata().expect("exists");
            let mut bytes = vec![0; found.len() as usize];
            file.read_exact_at(&mut bytes, 0).expect("reads");
            let read = world.ask(|engine| engine.read_file(*fh, 0, 1 << 20));
            assert!(read == Ok(bytes), "the bytes of an open file");
            let attr = world.ask(|engine| engine.getattr(*ino)).expect("exists");
            assert_eq!(u64::from(attr.nlink), found.nlink());
        }
        Op::Close(which) if !held.is_empty() => {
            let (fh, _, _) = held.swap_remove(which % held.len());
            world.ask(|engine| engine.release(fh)).expect("closes");
        }
        Op::Crash | Op::CrashBehindHead => held.clear(),
        _ => {}
    }
}

/// Modes of the roots differ by the umask and are not the engine's.
fn without_root_mode(mut tree: Tree) -> Tree {
    tree.get_mut(Path::new("/")).expect("a root").mode = 0;
    tree
}

fn check(ops: &[Op], segment_bytes: u64) {
    let mut world = World::with_segments(Base::empty(), segment_bytes);
    world.staging_limit_bytes = LIMIT_BYTES;
    world.crash();
    let local = Local(tempfile::tempdir().expect("a temporary directory"));
    let root_mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(local.0.path(), root_mode).expect("chmod");
    let mut frozen: Frozen = None;
    let mut held = Vec::new();
    for (number, op) in ops.iter().enumerate() {
        let expected = local.run(op).map_err(Errno::from);
        assert_eq!(run(&world, op), expected, "operation {number}: {op:?}");
        run_layer_op(&mut world, &local, &mut frozen, op);
        run_on_open(&world, &local, &mut held, op);
    }
    assert_eq!(
        without_root_mode(world.tree()),
        without_root_mode(local.tree())
    );
    world.crash();
    assert_eq!(
        without_root_mode(world.tree()),
        without_root_mode(local.tree()),
        "after a crash"
    );
    if let Some(layer) = world.freeze() {
        world.commit(layer);
    }
    assert_eq!(
        without_root_mode(tree_of(&world.base)),
        without_root_mode(local.tree()),
        "after a commit"
    );
    assert!(!world.engine().is_dirty().expect("says"));
    world.engine().trim_staging(0).expect("trims");
    assert_eq!(
        without_root_mode(world.tree()),
        without_root_mode(local.tree()),
        "from chunks alone"
    );
}

/// Short ones fill up, so that they are left to be reclaimed and their files to be used again.
fn segment_bytes() -> impl Strategy<Value = u64> {
    prop_oneof![Just(16 << 10), Just(SEGMENT_BYTES)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_engine_is_a_local_directory_with_versions(ops in prop::collection::vec(op(), 1..120), segment_bytes in segment_bytes()) {
        check(&ops, segment_bytes);
    }
}

/// More by COWFS_MODEL_CASES, for a long run by hand.
fn cases() -> u32 {
    std::env::var("COWFS_MODEL_CASES")
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(150)
}
