//! Random operations on an engine and on a local directory, some on files held open, with freezes,
//! commits, failed commits, crashes and trimming among them: same errors, same trees, and every
//! committed version is the tree as it was at its freeze.
//!
//! The engine starts cold: its tree was committed before, nothing of it is in memory, and little of
//! it is loaded before files are opened, unlinked, replaced and committed over. Some cases have so
//! little room for staged bytes that writes fail; such an operation has changed nothing. Ends of
//! commits and trims also come between the halves of other operations, and rows of an old version
//! late.

#[path = "model/engine.rs"]
mod engine;
#[path = "model/local.rs"]
mod local;
#[path = "model/op.rs"]
mod op;
#[path = "model/passes.rs"]
mod passes;
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use cowfs_base::{Errno, Ino};
use cowfs_engine::{AttrChange, ContentRows, ExtentRow, HandleId, SEGMENT_BYTES};
use local::Local;
use op::{Between, Op, Where, ops};
use proptest::prelude::*;
use support::cases::{count, run_cases};
use support::{Base, Tree, World, root_user, tree_of};

type Outcome = Result<(), Errno>;

/// An operation, but for its place, and the place.
type OpAt = (&'static [u8], fn(Where) -> Op);

/// More than all operations of a case write.
const LIMIT_BYTES: u64 = 4 << 20;
/// Less than many cases write without a commit.
const NARROW_LIMIT_BYTES: u64 = 64 << 10;

/// The initial tree: without it most operations would find nothing to work on.
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
    fh: HandleId,
    ino: Ino,
    file: fs::File,
    is_writable: bool,
}

/// Both sides, and the operations under way.
struct Model {
    world: World,
    local: Local,
    frozen: Frozen,
    held: Vec<Held>,
    /// Rows on their way from a version.
    late: Vec<ContentRows>,
    /// Files with allocated ranges, all allocated after the last commit: no version keeps them.
    allocated: BTreeSet<Ino>,
    /// Those of before it.
    allocated_before: BTreeSet<Ino>,
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
            allocated: BTreeSet::new(),
            allocated_before: BTreeSet::new(),
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
            count(&"Full", true);
            assert!(self.world.staging_limit_bytes < LIMIT_BYTES, "{op:?}");
            return;
        }
        count(op, outcome.is_ok() && self.has_object(op));
        let expected = self.local.run(op).map_err(Errno::from);
        assert_eq!(outcome, expected, "{op:?}");
        if let Op::Allocate(at, ..) = op
            && let Ok(ino) = self.world.resolve(&at.path())
            && !self.allocated_before.contains(&ino)
        {
            self.allocated.insert(ino);
        }
        if let Op::Commit | Op::CrashBehindHead | Op::Remount = op {
            self.allocated_before.append(&mut self.allocated);
        }
        let blocks = self.blocks_of_allocated();
        self.run_layer_op(op);
        assert_eq!(self.blocks_of_allocated(), blocks, "{op:?}");
        self.run_on_open(op);
    }

    /// Of the files that have some by `fallocate` and are in no version yet: no pass, checkpoint or
    /// replay changes them.
    fn blocks_of_allocated(&self) -> Vec<(Ino, u64)> {
        let blocks = |ino: &Ino| {
            let attr = self.world.ask(|engine| engine.getattr(*ino)).ok()?;
            (attr.nlink > 0).then_some((*ino, attr.blocks))
        };
        self.allocated.iter().filter_map(blocks).collect()
    }

    /// Whether there is what the operation is about, if that is no path.
    fn has_object(&self, op: &Op) -> bool {
        match op {
            Op::Freeze => self.frozen.is_none(),
            Op::Commit | Op::Fail | Op::CrashBehindHead => self.frozen.is_some(),
            Op::LinkOpen(..) | Op::CopyOpen(..) | Op::StartLoad(_) | Op::WriteOpen(..) => {
                !self.held.is_empty()
            }
            Op::TruncateOpen(..) | Op::ReadOpen(_) | Op::Close(_) => !self.held.is_empty(),
            Op::EndLoad => !self.late.is_empty(),
            Op::Open(at, _) => self.local.file(at).is_ok(),
            _ => true,
        }
    }

    /// `between` happens in the next operation; what `end_commit` needs if it is the end of a
    /// commit.
    fn put_between(&mut self, between: Between) -> Option<Committing> {
        match between {
            Between::EndOfCommit => {
                if self.frozen.is_none() {
                    self.fill_segment();
                    self.run_layer_op(&Op::Freeze);
                }
                let (layer, then) = self.frozen.take()?;
                self.allocated_before.append(&mut self.allocated);
                self.world.load_nameless();
                let (base, contents) = self.world.publish(layer);
                // Chunks requested in the meantime may be in the new version already.
                self.world.base.chunks = base.chunks.clone();
                let rows = contents.clone();
                self.world.interrupt_with(move |engine| {
                    engine
                        .layer_committed(layer, &rows.iter().collect())
                        .expect("commits");
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
            Between::LoadNeighbours => {
                let contents = self.world.base.contents();
                let load = move |engine: &cowfs_engine::Engine| {
                    engine.load_contents(&contents).expect("loads");
                };
                self.world.interrupt_with(load);
                None
            }
        }
    }

    fn end_commit(&mut self, committing: Option<Committing>) {
        let still_waits = self.world.was_not_interrupted();
        if committing.is_some() {
            count(&"EndOfCommitBetween", !still_waits);
        }
        let Some((layer, then, base, contents)) = committing else {
            return;
        };
        if still_waits {
            let engine = self.world.engine();
            engine
                .layer_committed(layer, &contents.iter().collect())
                .expect("commits");
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
                    // Rows are never handed over after a commit (decision 21): the inodes that it
                    // published may be evicted now.
                    self.late.clear();
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
            Op::Evict => {
                let evicted = self.world.engine().evict(0).expect("evicts");
                count(&"Evicted", evicted > 0);
            }
            Op::Checkpoint => {
                let is_written = self.world.engine().checkpoint().expect("checkpoints");
                count(&"CheckpointWritten", is_written);
            }
            Op::Remount => self.remount(),
            Op::Look => self.compare("all there is"),
            Op::Trim => {
                let freed_bytes = self.world.engine().trim_staging(0).expect("trims");
                count(&"Trimmed", freed_bytes > 0);
            }
            Op::Reclaim => {
                let freed_bytes = self.world.engine().reclaim_staging().expect("reclaims");
                count(&"Reclaimed", freed_bytes > 0);
            }
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
            Op::LoadNeighbours => {
                let contents = self.world.base.contents();
                self.world.engine().load_contents(&contents).expect("loads");
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

/// Layer, tree at its freeze, the version, and the argument of `layer_committed`.
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
    let blocks = model.blocks_of_allocated();
    model.crash();
    assert_eq!(model.blocks_of_allocated(), blocks, "after a crash");
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
    let cases = (ops(0..20), ops(1..55), segment_bytes(), limit_bytes);
    run_cases(100, cases, |(before, ops, segment_bytes, limit_bytes)| {
        check(&before, &ops, segment_bytes, limit_bytes)
    });
}
