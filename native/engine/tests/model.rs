//! Random operations on an engine and on a local directory, some on files held open, with freezes, commits, failed commits, crashes and trimming among
//! them: same errors, same trees, and every committed version is the tree as it was at its freeze.
//!
//! The engine starts cold: what it works on was committed before, nothing of it is in memory, and little of it gets there
//! before files are opened, unlinked, replaced and committed over. Some cases have so little room for staged bytes that writes
//! fail; such an operation has changed nothing. Ends of commits and trims also come between the halves of other operations,
//! and rows of an old version late.

#[path = "model/engine.rs"]
mod engine;
#[path = "model/local.rs"]
mod local;
#[path = "model/passes.rs"]
mod passes;
mod support;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use cowfs_base::{Errno, Ino};
use cowfs_engine::{AttrChange, ExtentRow, SEGMENT_BYTES, XattrPair};
use local::Local;
use proptest::prelude::*;
use support::cases::run_cases;
use support::{Base, Tree, World, root_user, tree_of};

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
    /// Bytes of the first file to the second: (from, to, how many).
    Copy(Where, Where, (u16, u16, u16)),
    /// A copy, and something else between its halves.
    During(Between, Where, Where, (u16, u16, u16)),
    Punch(Where, u16, u16),
    /// For writing, too, or not: of what may be mapped writable nothing is shared.
    Open(Where, bool),
    /// A file without a name.
    OpenUnnamed(Where),
    LinkOpen(usize, Where),
    CopyOpen(usize, usize, (u16, u16, u16)),
    /// Somebody asks for the content of an open file, and the rows are under way.
    StartLoad(usize),
    EndLoad,
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
    /// Bytes that move from one file to another during a pass.
    MoveInPass(Where, Where, (u16, u16, u16), bool),
    /// What can be loaded again leaves memory.
    Evict,
    Checkpoint,
    /// Everything is committed, and mounted again.
    Remount,
    /// All there is is compared, and in memory from then on.
    Look,
    /// What comes next goes to another segment, so that trimming may take this one.
    NextSegment,
}

/// What happens between the halves of an operation.
#[derive(Debug, Clone, Copy)]
enum Between {
    EndOfCommit,
    Trim,
    Reclaim,
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
        8 => (place(), place(), range()).prop_map(|(from, to, range)| Op::Copy(from, to, range)),
        4 => (between(), place(), place(), range()).prop_map(|(between, from, to, range)| Op::During(between, from, to, range)),
        3 => (place(), 0_u16..12_000, 1_u16..9_000).prop_map(|(at, offset, length)| Op::Punch(at, offset, length)),
        6 => (place(), any::<bool>()).prop_map(|(at, writable)| Op::Open(at, writable)),
        2 => place().prop_map(Op::OpenUnnamed),
        2 => (any::<usize>(), place()).prop_map(|(which, at)| Op::LinkOpen(which, at)),
        2 => (any::<usize>(), any::<usize>(), range()).prop_map(|(from, to, range)| Op::CopyOpen(from, to, range)),
        2 => any::<usize>().prop_map(Op::StartLoad),
        2 => Just(Op::EndLoad),
        4 => (any::<usize>(), 0_u16..12_000, 1_u16..9_000, any::<u8>()).prop_map(|(which, offset, length, byte)| Op::WriteOpen(which, offset, length, byte)),
        1 => (any::<usize>(), 0_u16..15_000).prop_map(|(which, size)| Op::TruncateOpen(which, size)),
        5 => any::<usize>().prop_map(Op::ReadOpen),
        1 => any::<usize>().prop_map(Op::Close),
        6 => Just(Op::Freeze),
        7 => Just(Op::Commit),
        1 => Just(Op::Fail),
        1 => Just(Op::Crash),
        1 => Just(Op::CrashBehindHead),
        3 => Just(Op::Trim),
        2 => Just(Op::Reclaim),
        3 => (place(), place(), range(), any::<bool>()).prop_map(|(from, to, range, punches)| Op::MoveInPass(from, to, range, punches)),
        4 => Just(Op::Evict),
        2 => Just(Op::Checkpoint),
        1 => Just(Op::Remount),
        1 => Just(Op::Look),
        2 => Just(Op::NextSegment),
    ]
}

fn between() -> impl Strategy<Value = Between> {
    prop_oneof![
        4 => Just(Between::EndOfCommit),
        1 => Just(Between::Trim),
        1 => Just(Between::Reclaim),
    ]
}

fn range() -> impl Strategy<Value = (u16, u16, u16)> {
    (0_u16..9_000, 0_u16..9_000, 1_u16..12_000)
}

type Outcome = Result<(), Errno>;

/// An operation, but for its place, and the place.
type OpAt = (&'static [u8], fn(Where) -> Op);

/// More than all operations of a case write.
const LIMIT_BYTES: u64 = 4 << 20;
/// Less than many cases write without a commit.
const NARROW_LIMIT_BYTES: u64 = 64 << 10;

/// What is there at first: else most operations would find nothing to work on.
const POPULATION: [OpAt; 10] = [
    (&[0], Op::Mkdir),
    (&[0, 1], Op::Create),
    (&[0, 1], |at| Op::Write(at, 0, 7000, 1)),
    (&[1], Op::Create),
    (&[1], |at| Op::Write(at, 0, 9000, 2)),
    (&[1], |at| Op::SetXattr(at, 1, 9)),
    (&[2], Op::Create),
    (&[2], |at| Op::Write(at, 3000, 8000, 3)),
    (&[3], Op::Create),
    (&[3], |at| Op::Write(at, 0, 5000, 4)),
];

/// A frozen layer and the tree as it was then.
type Frozen = Option<(u64, Tree)>;

/// A file held open on both sides. What becomes of its names does not matter to it.
struct Held {
    fh: u64,
    ino: Ino,
    file: fs::File,
    is_writable: bool,
}

/// Rows on their way from a version.
type Late = (Ino, Vec<ExtentRow>, Vec<XattrPair>);

/// Both sides, and what is going on.
struct Model {
    world: World,
    local: Local,
    frozen: Frozen,
    held: Vec<Held>,
    late: Vec<Late>,
}

impl Model {
    /// Cold, on what `before` has made.
    fn new(before: &[Op], segment_bytes: u64, limit_bytes: u64) -> Model {
        let mut model = Model {
            world: World::with_segments(Base::empty(), segment_bytes),
            local: Local::new(),
            frozen: None,
            held: Vec::new(),
            late: Vec::new(),
        };
        model.world.staging_limit_bytes = LIMIT_BYTES;
        model.world.crash();
        for (at, what) in POPULATION {
            model.run(&what(Where(at.into())));
        }
        before.iter().for_each(|op| model.run(op));
        model.world.staging_limit_bytes = limit_bytes;
        model.remount();
        model
    }

    fn run(&mut self, op: &Op) {
        let committing = match op {
            Op::During(between, ..) => self.put_between(*between),
            _ => None,
        };
        let outcome = engine::run(&self.world, op);
        self.end_commit(committing);
        if outcome == Err(Errno::ENOSPC) {
            assert!(self.world.staging_limit_bytes < LIMIT_BYTES, "{op:?}");
            return;
        }
        let expected = self.local.run(op).map_err(Errno::from);
        assert_eq!(outcome, expected, "{op:?}");
        self.run_layer_op(op);
        self.run_on_open(op);
    }

    /// `between` happens in the next operation; what `end_commit` needs if it is the end of a commit.
    fn put_between(&mut self, between: Between) -> Option<Committing> {
        match between {
            Between::EndOfCommit => {
                if self.frozen.is_none() {
                    self.fill_segment();
                    self.run_layer_op(&Op::Freeze);
                }
                let (layer, then) = self.frozen.take()?;
                self.world.load_nameless();
                let (base, contents) = self.world.publish(layer);
                // What is asked for in the meantime may be in the new version already.
                self.world.base.chunks = base.chunks.clone();
                let rows = contents.clone();
                self.world.interrupt_with(move |engine| {
                    engine.layer_committed(layer, &rows).expect("commits");
                    engine.trim_staging(0).expect("trims");
                });
                Some((layer, then, base, contents))
            }
            Between::Trim => {
                let trim = |engine: &cowfs_engine::Engine| drop(engine.trim_staging(0));
                self.world.interrupt_with(trim);
                None
            }
            Between::Reclaim => {
                let reclaim = |engine: &cowfs_engine::Engine| drop(engine.reclaim_staging());
                self.world.interrupt_with(reclaim);
                None
            }
        }
    }

    fn end_commit(&mut self, committing: Option<Committing>) {
        let still_waits = self.world.was_not_interrupted();
        let Some((layer, then, base, contents)) = committing else {
            return;
        };
        if still_waits {
            let engine = self.world.engine();
            engine.layer_committed(layer, &contents).expect("commits");
        }
        (self.world.base, self.world.after_layer) = (base, layer);
        assert_eq!(
            tree_of(&self.world.base),
            then,
            "the version is the tree at its freeze"
        );
    }

    fn run_layer_op(&mut self, op: &Op) {
        match op {
            Op::Freeze if self.frozen.is_none() => {
                let layer = self.world.freeze();
                self.frozen = layer.map(|layer| (layer, self.local.tree()));
            }
            Op::Commit => {
                if let Some((layer, then)) = self.frozen.take() {
                    self.world.commit(layer);
                    assert_eq!(
                        tree_of(&self.world.base),
                        then,
                        "the version is the tree at its freeze"
                    );
                }
            }
            Op::Fail => {
                if let Some((layer, _)) = self.frozen.take() {
                    self.world.load_nameless();
                    let engine = self.world.engine();
                    engine.layer_failed(layer).expect("joins");
                }
            }
            Op::Crash => self.crash(),
            Op::CrashBehindHead => {
                if let Some((layer, _)) = self.frozen.take() {
                    self.world.base = self.world.publish(layer).0;
                    self.world.after_layer = layer;
                    self.crash();
                }
            }
            Op::Evict => drop(self.world.engine().evict(0).expect("evicts")),
            Op::Checkpoint => drop(self.world.engine().checkpoint().expect("checkpoints")),
            Op::Remount => self.remount(),
            Op::Look => self.compare("all there is"),
            Op::Trim => drop(self.world.engine().trim_staging(0).expect("trims")),
            Op::Reclaim => drop(self.world.engine().reclaim_staging().expect("reclaims")),
            Op::NextSegment => self.fill_segment(),
            _ => {}
        }
    }

    fn crash(&mut self) {
        self.frozen = None;
        self.held.clear();
        self.late.clear();
        self.world.crash();
    }

    fn remount(&mut self) {
        if let Some((layer, _)) = self.frozen.take() {
            self.world.commit(layer);
        }
        if let Some(layer) = self.world.freeze() {
            self.world.commit(layer);
        }
        self.crash();
    }

    fn compare(&self, what: &str) {
        assert_eq!(
            without_root_mode(self.world.tree()),
            without_root_mode(self.local.tree()),
            "{what}"
        );
    }

    fn pick(&self, which: usize) -> Option<&Held> {
        self.held.get(which % self.held.len().max(1))
    }

    fn run_on_open(&mut self, op: &Op) {
        match op {
            Op::Open(at, is_writable) => self.open(at, *is_writable),
            Op::OpenUnnamed(at) => self.open_unnamed(at),
            Op::LinkOpen(which, at) => self.link_open(*which, at),
            Op::CopyOpen(from, to, range) => self.copy_open(*from, *to, *range),
            Op::MoveInPass(from, to, range, punches) => {
                self.move_in_pass(from, to, *range, *punches);
            }
            Op::WriteOpen(which, offset, length, byte) => {
                let bytes = vec![*byte; usize::from(*length)];
                self.write_open(*which, u64::from(*offset), &bytes);
            }
            Op::TruncateOpen(which, size) => self.truncate_open(*which, u64::from(*size)),
            Op::ReadOpen(which) => self.read_open(*which),
            Op::Close(which) if !self.held.is_empty() => {
                let closed = self.held.swap_remove(which % self.held.len());
                let released = self.world.ask(|engine| engine.release(closed.fh));
                released.expect("closes");
            }
            Op::StartLoad(which) => {
                let ino = self.pick(*which).map(|held| held.ino);
                if let Some(ino) = ino.filter(|ino| self.world.base.inodes.contains_key(ino)) {
                    let base = &self.world.base;
                    self.late
                        .push((ino, base.extents_of(ino), base.xattrs_of(ino)));
                }
            }
            Op::EndLoad => {
                for (ino, extents, xattrs) in self.late.drain(..) {
                    // Refused is right as well, when they are of another time.
                    let _ = self.world.engine().load_content(ino, &extents, &xattrs);
                }
            }
            _ => {}
        }
    }

    fn open(&mut self, at: &Where, is_writable: bool) {
        let Ok(path) = self.local.file(at) else {
            return;
        };
        let opened = fs::File::options().read(true).write(true).open(path);
        let ino = self.world.resolve(&at.path()).expect("exists here too");
        let flags = if is_writable {
            libc::O_RDWR
        } else {
            libc::O_RDONLY
        };
        let fh = self.world.ask(|engine| engine.open_file(ino, flags));
        self.held.push(Held {
            fh: fh.expect("opens"),
            ino,
            file: opened.expect("opens"),
            is_writable,
        });
    }

    fn open_unnamed(&mut self, at: &Where) {
        let path = at.path();
        let made = self.world.place(&path).and_then(|(parent, _)| {
            let flags = libc::O_RDWR;
            let caller = root_user();
            self.world
                .ask(|engine| engine.create_unnamed(parent, 0o640, flags, &caller))
        });
        match (made, self.local.unnamed(at)) {
            (Ok((attr, fh)), Ok(file)) => {
                let engine = self.world.engine();
                engine.forget(attr.ino, 1).expect("forgets");
                let ino = attr.ino;
                self.held.push(Held {
                    fh,
                    ino,
                    file,
                    is_writable: true,
                });
            }
            (made, expected) => assert_eq!(
                made.map(drop),
                expected.map(drop).map_err(Errno::from),
                "a file without a name at {path}"
            ),
        }
    }

    fn link_open(&self, which: usize, at: &Where) {
        let Some(held) = self.pick(which) else {
            return;
        };
        let path = at.path();
        let linked = self.world.place(&path).and_then(|(parent, name)| {
            self.world
                .ask(|engine| engine.link(held.ino, parent, name))?;
            self.world.ask(|engine| engine.forget(held.ino, 1))
        });
        let expected = self.local.link_open(&held.file, at);
        assert_eq!(
            linked,
            expected.map_err(Errno::from),
            "a name for an open file"
        );
    }

    fn copy_open(&self, from: usize, to: usize, range: (u16, u16, u16)) {
        let (Some(source), Some(target)) = (self.pick(from), self.pick(to)) else {
            return;
        };
        if !target.is_writable {
            return;
        }
        let copied = engine::copy(
            &self.world,
            (source.fh, source.ino),
            (target.fh, target.ino),
            range,
        );
        if copied == Err(Errno::ENOSPC) {
            return;
        }
        let expected = local::copy(&source.file, &target.file, range);
        assert_eq!(
            copied,
            expected.map_err(Errno::from),
            "a copy of open files"
        );
    }

    fn write_open(&self, which: usize, offset: u64, bytes: &[u8]) {
        let Some(held) = self.pick(which).filter(|held| held.is_writable) else {
            return;
        };
        let written = self
            .world
            .ask(|engine| engine.write(held.fh, offset, bytes, true));
        if written == Err(Errno::ENOSPC) {
            return;
        }
        assert_eq!(written, Ok(bytes.len()));
        held.file.write_all_at(bytes, offset).expect("writes");
    }

    fn truncate_open(&self, which: usize, size: u64) {
        let Some(held) = self.pick(which) else {
            return;
        };
        held.file.set_len(size).expect("truncates");
        let change = AttrChange {
            size: Some(size),
            ..AttrChange::default()
        };
        let outcome = self
            .world
            .ask(|engine| engine.setattr(held.ino, &root_user(), &change));
        assert_eq!(outcome.map(|attr| attr.size), Ok(size));
    }

    fn read_open(&self, which: usize) {
        let Some(held) = self.pick(which) else {
            return;
        };
        let found = held.file.metadata().expect("exists");
        let mut bytes = vec![0; found.len() as usize];
        held.file.read_exact_at(&mut bytes, 0).expect("reads");
        let read = self
            .world
            .ask(|engine| engine.read_file(held.fh, 0, 1 << 20));
        assert!(read == Ok(bytes), "the bytes of an open file");
        let attr = self.world.ask(|engine| engine.getattr(held.ino));
        assert_eq!(u64::from(attr.expect("exists").nlink), found.nlink());
        let names = self.world.ask(|engine| engine.list_xattrs(held.ino));
        let expected = local::xattrs(&local::path_of(&held.file));
        assert_eq!(
            names.expect("lists"),
            expected.into_keys().collect::<Vec<_>>()
        );
    }
}

/// Layer, tree at its freeze, the version, and what `layer_committed` is told.
type Committing = (u64, Tree, Base, Vec<(Ino, u64, Vec<ExtentRow>)>);

/// Modes of the roots differ by the umask and are not the engine's.
fn without_root_mode(mut tree: Tree) -> Tree {
    tree.get_mut(Path::new("/")).expect("a root").mode = 0;
    tree
}

fn check(before: &[Op], ops: &[Op], segment_bytes: u64, limit_bytes: u64) {
    let mut model = Model::new(before, segment_bytes, limit_bytes);
    ops.iter().for_each(|op| model.run(op));
    for which in 0..model.held.len() {
        model.read_open(which);
    }
    model.compare("at the end");
    model.crash();
    model.compare("after a crash");
    model.remount();
    assert_eq!(
        without_root_mode(tree_of(&model.world.base)),
        without_root_mode(model.local.tree()),
        "after a commit"
    );
    assert!(!model.world.engine().is_dirty().expect("says"));
    model.world.engine().trim_staging(0).expect("trims");
    model.compare("from chunks alone");
}

/// Short ones fill up, so that they are left to be reclaimed and their files to be used again.
fn segment_bytes() -> impl Strategy<Value = u64> {
    prop_oneof![Just(16 << 10), Just(SEGMENT_BYTES)]
}

#[test]
fn an_engine_is_a_local_directory_with_versions() {
    let limit_bytes = prop_oneof![3 => Just(LIMIT_BYTES), 1 => Just(NARROW_LIMIT_BYTES)];
    let before = prop::collection::vec(op(), 0..40);
    let ops = prop::collection::vec(op(), 1..100);
    let cases = (before, ops, segment_bytes(), limit_bytes);
    run_cases(100, cases, |(before, ops, segment_bytes, limit_bytes)| {
        check(&before, &ops, segment_bytes, limit_bytes)
    });
}
