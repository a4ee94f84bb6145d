//! A world around an engine: a temporary working copy, and a base version that loads it and takes
//! its commits, as the index and the packs do in earnest.

#![allow(
    dead_code,
    unused_imports,
    reason = "each test file uses its part of it"
)]

mod base;
pub mod cases;
mod tree;

use std::sync::{Arc, Mutex, OnceLock};

use cowfs_base::{Errno, Ino, Layer};
use cowfs_engine::{
    Attr, CHECKPOINT_BYTES, Caller, Engine, Error, ExtentRow, Missing, Options, Punching, Recovery,
    Result, SEGMENT_BYTES,
};
use tempfile::TempDir;

pub use base::Base;
pub use tree::{Seen, Tree, list, read_all, tree, tree_of};

pub const ROOT: Ino = 1;
/// Committed chunks are no longer than this.
const CHUNK_BYTES: u64 = 3000;

pub fn root_user() -> Caller {
    Caller {
        groups: Some(vec![0]),
        ..Caller::default()
    }
}

pub fn user(uid: u32, gid: u32) -> Caller {
    Caller {
        uid,
        gid,
        groups: Some(vec![gid]),
        ..Caller::default()
    }
}

/// As the servers ask for.
pub const RELIEF_BYTES: u64 = 64 << 20;

/// What happens between the halves of an operation.
type Interlude = Box<dyn FnOnce(&Engine) + Send>;

/// The same, each time.
type Always = Box<dyn Fn(&Engine) + Send + Sync>;

/// A working copy with its engine. Dropping the engine without closing it is a crash.
pub struct World {
    pub temp: TempDir,
    pub base: Base,
    pub after_layer: Layer,
    pub boot_id: String,
    engine: Option<Engine>,
    /// After so many others.
    interlude: Arc<Mutex<Option<(usize, Interlude)>>>,
    always: Arc<OnceLock<Always>>,
    pub staging_limit_bytes: u64,
    pub segment_bytes: u64,
    pub checkpoint_bytes: u64,
    /// With the kernel; 0: requests are not noted.
    pub connection: u64,
    /// Whether the kernel's connection outlives the engine.
    pub goes_on: bool,
}

impl World {
    pub fn new() -> World {
        World::on(Base::empty())
    }

    pub fn on(base: Base) -> World {
        World::with_segments(base, SEGMENT_BYTES)
    }

    /// With short segments, so that little writing fills many.
    pub fn with_segments(base: Base, segment_bytes: u64) -> World {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let mut world = World {
            temp,
            base,
            checkpoint_bytes: CHECKPOINT_BYTES,
            connection: 0,
            goes_on: false,
            after_layer: 0,
            boot_id: "boot-1".into(),
            engine: None,
            interlude: Arc::default(),
            always: Arc::default(),
            staging_limit_bytes: 0,
            segment_bytes,
        };
        world.open().expect("opens");
        world
    }

    pub fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("the engine is open")
    }

    fn options(&self) -> Options {
        Options {
            root: self.base.inodes[&ROOT].clone(),
            next_ino: self.base.next_ino,
            cache_dir: self.temp.path().join("cache"),
            memory_cache_bytes: 64 << 20,
            is_store_near: false,
            staging_dir: Some(self.temp.path().join("working")),
            failures_file: Some(self.temp.path().join("failed-syncs")),
            staging_limit_bytes: self.staging_limit_bytes,
            segment_bytes: self.segment_bytes,
            checkpoint_bytes: self.checkpoint_bytes,
            after_layer: self.after_layer,
            boot_id: self.boot_id.clone(),
        }
    }

    /// Opens and recovers; returns what recovery found and how many extents were lost.
    pub fn open(&mut self) -> Result<(Recovery, u64)> {
        let engine = Engine::open(self.options())?;
        engine.note_requests(self.connection);
        let (bytes, inodes) = self.base.amount();
        engine.count_base(bytes, inodes)?;
        let recovery = engine.recover()?;
        for ino in &recovery.inodes {
            if let Some(row) = self.base.inodes.get(ino) {
                engine.load_inode(row)?;
            }
        }
        for ino in &recovery.contents {
            let (extents, xattrs) = (self.base.extents_of(*ino), self.base.xattrs_of(*ino));
            engine.load_content(*ino, &extents, &xattrs)?;
        }
        for ino in recovery
            .directories
            .iter()
            .filter(|ino| self.base.inodes.contains_key(ino))
        {
            engine.load_directory(*ino, &self.base.directory(*ino))?;
        }
        let dropped = engine.replay()?;
        if self.goes_on {
            engine.expect_earlier_references()?;
        }
        let (interlude, always) = (self.interlude.clone(), self.always.clone());
        engine.set_interlude(move |engine| {
            always.get().into_iter().for_each(|run| run(engine));
            if let Some(run) = take_due(&interlude) {
                run(engine);
            }
        });
        self.engine = Some(engine);
        Ok((recovery, dropped))
    }

    /// Between the halves of the next operation that has two, `run` is called.
    pub fn interrupt_with(&self, run: impl FnOnce(&Engine) + Send + 'static) {
        self.interrupt_after(0, run);
    }

    /// The same, in the place after so many others: a pass has many.
    pub fn interrupt_after(&self, places: usize, run: impl FnOnce(&Engine) + Send + 'static) {
        *self.interlude.lock().expect("no panic in it") = Some((places, Box::new(run)));
    }

    /// Between the halves of every operation that has two, `run` is called. Once in a world.
    pub fn interrupt_always_with(&self, run: impl Fn(&Engine) + Send + Sync + 'static) {
        assert!(self.always.set(Box::new(run)).is_ok(), "only once");
    }

    /// Whether what `interrupt_with` was given still waits; then it is forgotten.
    pub fn was_not_interrupted(&self) -> bool {
        let waiting = self.interlude.lock().expect("no panic in it").take();
        waiting.is_some()
    }

    /// Opens without recovering.
    pub fn open_unreplayed(&self) -> Engine {
        self.open_with(self.options())
    }

    pub fn open_read_only(&self) -> Engine {
        self.open_with(Options {
            staging_dir: None,
            ..self.options()
        })
    }

    fn open_with(&self, options: Options) -> Engine {
        let engine = Engine::open(options).expect("opens");
        let (bytes, inodes) = self.base.amount();
        engine.count_base(bytes, inodes).expect("counts");
        engine
    }

    pub fn drop_engine(&mut self) {
        self.engine = None;
    }

    /// The daemon dies and the working copy is mounted again.
    pub fn crash(&mut self) -> (Recovery, u64) {
        self.engine = None;
        self.open().expect("recovers")
    }

    /// Calls the engine, loading missing data on request.
    pub fn ask<T>(&self, call: impl Fn(&Engine) -> Result<T>) -> std::result::Result<T, Errno> {
        ask(self.engine(), &self.base, call)
    }

    pub fn resolve(&self, path: &str) -> std::result::Result<Ino, Errno> {
        let mut ino = ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            self.check_walkable(ino)?;
            let child = self.ask(|engine| engine.lookup(ino, name.as_bytes()))?.ino;
            self.ask(|engine| engine.forget(child, 1))?;
            ino = child;
        }
        Ok(ino)
    }

    /// The directory a path is in, and the last name.
    pub fn place<'a>(&self, path: &'a str) -> std::result::Result<(Ino, &'a [u8]), Errno> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let parent = self.resolve(parent)?;
        self.check_walkable(parent)?;
        Ok((parent, name.as_bytes()))
    }

    /// As the kernel walks a path; links of these tests lead nowhere.
    fn check_walkable(&self, ino: Ino) -> std::result::Result<(), Errno> {
        match self.ask(|engine| engine.getattr(ino))?.mode & libc::S_IFMT {
            libc::S_IFDIR => Ok(()),
            libc::S_IFLNK => Err(Errno::ENOENT),
            _ => Err(Errno::ENOTDIR),
        }
    }

    pub fn stat(&self, path: &str) -> Attr {
        let ino = self.resolve(path).expect("exists");
        self.ask(|engine| engine.getattr(ino))
            .expect("has attributes")
    }

    pub fn mkdir(&self, path: &str) -> Ino {
        let (parent, name) = self.place(path).expect("parent exists");
        let attr = self
            .ask(|engine| engine.mkdir(parent, name, 0o755, &root_user()))
            .expect("mkdir");
        self.ask(|engine| engine.forget(attr.ino, 1))
            .expect("forget");
        attr.ino
    }

    /// Makes the file if need be and replaces its content.
    pub fn put(&self, path: &str, bytes: &[u8]) -> Ino {
        let (parent, name) = self.place(path).expect("parent exists");
        let flags = libc::O_RDWR | libc::O_TRUNC;
        let (attr, fh) = self
            .ask(|engine| engine.create(parent, name, 0o644, flags, &root_user()))
            .expect("create");
        assert_eq!(
            self.ask(|engine| engine.write(fh, 0, bytes, true))
                .expect("write"),
            bytes.len()
        );
        self.ask(|engine| engine.release(fh)).expect("release");
        self.ask(|engine| engine.forget(attr.ino, 1))
            .expect("forget");
        attr.ino
    }

    pub fn write_at(
        &self,
        path: &str,
        offset: u64,
        bytes: &[u8],
    ) -> std::result::Result<(), Errno> {
        let ino = self.resolve(path)?;
        let fh = self.ask(|engine| engine.open_file(ino, libc::O_WRONLY))?;
        let outcome = self.ask(|engine| engine.write(fh, offset, bytes, true));
        self.ask(|engine| engine.release(fh))?;
        outcome.map(drop)
    }

    /// What the file holds from now on.
    pub fn replace(&self, path: &str, bytes: &[u8]) -> std::result::Result<(), Errno> {
        let ino = self.resolve(path)?;
        let fh = self.ask(|engine| engine.open_file(ino, libc::O_WRONLY))?;
        let outcome = self.ask(|engine| engine.replace(fh, bytes, true));
        self.ask(|engine| engine.release(fh))?;
        outcome
    }

    pub fn get(&self, path: &str) -> Vec<u8> {
        let ino = self.resolve(path).expect("exists");
        read_all(self.engine(), &self.base, ino)
    }

    pub fn unlink(&self, path: &str) -> std::result::Result<(), Errno> {
        let (parent, name) = self.place(path)?;
        self.ask(|engine| engine.unlink(parent, name, &root_user()))
    }

    pub fn names(&self, path: &str) -> Vec<String> {
        let ino = self.resolve(path).expect("exists");
        list(self.engine(), &self.base, ino)
            .into_iter()
            .map(|(name, _)| String::from_utf8(name).expect("UTF-8"))
            .collect()
    }

    /// Everything a user sees.
    pub fn tree(&self) -> Tree {
        tree(self.engine(), &self.base)
    }

    pub fn freeze(&self) -> Option<Layer> {
        self.ask(|engine| engine.freeze()).expect("freezes")
    }

    /// What the base becomes with the layer, and what `layer_committed` is to be told.
    pub fn publish(&self, layer: Layer) -> (Base, Vec<(Ino, u64, Vec<ExtentRow>)>) {
        self.publish_on(&self.base, layer)
    }

    pub fn publish_on(&self, base: &Base, layer: Layer) -> (Base, Vec<(Ino, u64, Vec<ExtentRow>)>) {
        let engine = self.engine();
        let mut base = base.clone();
        for ino in engine.layer_removed(layer, 0, usize::MAX).expect("removed") {
            base.inodes.remove(&ino);
            base.extents.remove(&ino);
            base.xattrs.remove(&ino);
        }
        for row in engine.layer_inodes(layer, 0, usize::MAX).expect("inodes") {
            base.inodes.insert(row.ino, row);
        }
        for (parent, name, ino) in engine
            .layer_entries(layer, (0, b""), usize::MAX)
            .expect("entries")
        {
            match ino {
                0 => base.entries.remove(&(parent, name)),
                _ => base.entries.insert((parent, name), ino),
            };
        }
        for (ino, pairs) in engine.layer_xattrs(layer, 0, usize::MAX).expect("xattrs") {
            base.xattrs.insert(ino, pairs);
        }
        let mut contents = Vec::new();
        for (ino, version) in engine
            .layer_contents(layer, 0, usize::MAX)
            .expect("contents")
        {
            let rows = self.cut(&mut base, layer, ino);
            base.extents.insert(ino, rows.clone());
            let row = base
                .inodes
                .get_mut(&ino)
                .expect("a changed file has its row");
            row.mapped_bytes = rows.iter().map(|row| row.length).sum();
            contents.push((ino, version, rows));
        }
        base.next_ino = engine.layer_next_ino(layer).expect("next inode number");
        (base, contents)
    }

    /// As `cowfs/version/publish/recut.py` does, but for neighbours that are read again: one row for a
    /// range of a chunk, and staged ranges that follow on one another are cut as one.
    fn cut(&self, base: &mut Base, layer: Layer, ino: Ino) -> Vec<ExtentRow> {
        let mut rows = Vec::new();
        let (mut start, mut bytes) = (0, Vec::new());
        for extent in self.engine().layer_extents(layer, ino).expect("extents") {
            if extent.chunk.is_some() || start + bytes.len() as u64 != extent.offset {
                add_pieces(base, start, &std::mem::take(&mut bytes), &mut rows);
                start = extent.offset;
            }
            if let Some(chunk) = extent.chunk {
                start += extent.length;
                add_kept(
                    ExtentRow {
                        offset: extent.offset,
                        length: extent.length,
                        chunk: (*chunk).clone(),
                        skip: extent.skip,
                    },
                    &mut rows,
                );
                continue;
            }
            let (segment, at) = extent.staged.expect("staged or in a chunk");
            let first = bytes.len();
            bytes.resize(first + extent.length as usize, 0);
            self.engine()
                .read_staged(segment, at, &mut bytes[first..])
                .expect("staged bytes");
        }
        add_pieces(base, start, &bytes, &mut rows);
        rows
    }

    /// Loads what the version that a commit makes will not have.
    pub fn load_nameless(&self) {
        let nameless = self.engine().nameless_without_content();
        for ino in nameless.expect("says") {
            let content = Missing::Content { ino, wanted: 0..0 };
            load(self.engine(), &self.base, &content);
        }
    }

    /// Publishes a frozen layer.
    pub fn commit(&mut self, layer: Layer) {
        self.load_nameless();
        let (base, contents) = self.publish(layer);
        self.base = base;
        self.after_layer = layer;
        self.engine()
            .layer_committed(layer, &contents.iter().collect())
            .expect("committed");
        let (bytes, inodes) = self.base.amount();
        self.engine().count_base(bytes, inodes).expect("counts");
    }
}

fn add_pieces(base: &mut Base, start: u64, bytes: &[u8], rows: &mut Vec<ExtentRow>) {
    for (number, piece) in bytes.chunks(CHUNK_BYTES as usize).enumerate() {
        if piece.iter().any(|byte| *byte != 0) {
            rows.push(ExtentRow {
                offset: start + number as u64 * CHUNK_BYTES,
                length: piece.len() as u64,
                chunk: base.add_chunk(piece),
                skip: 0,
            });
        }
    }
}

fn add_kept(row: ExtentRow, rows: &mut Vec<ExtentRow>) {
    match rows.last_mut() {
        Some(last)
            if last.chunk == row.chunk
                && last.offset + last.length == row.offset
                && u64::from(last.skip) + last.length == u64::from(row.skip) =>
        {
            last.length += row.length;
        }
        _ => rows.push(row),
    }
}

fn take_due(interlude: &Mutex<Option<(usize, Interlude)>>) -> Option<Interlude> {
    let mut waiting = interlude.lock().expect("no panic in it");
    match &mut *waiting {
        Some((places @ 1.., _)) => {
            *places -= 1;
            None
        }
        _ => waiting.take().map(|(_, run)| run),
    }
}

pub fn ask<T>(
    engine: &Engine,
    base: &Base,
    call: impl Fn(&Engine) -> Result<T>,
) -> std::result::Result<T, Errno> {
    let mut is_relieved = false;
    for _ in 0..100 {
        match call(engine) {
            Ok(answer) => return Ok(answer),
            // As the servers do.
            Err(Error::Os(Errno::ENOSPC)) if !is_relieved => {
                is_relieved = true;
                if engine
                    .relieve(RELIEF_BYTES, Punching::Thorough)
                    .expect("relieves")
                    == 0
                {
                    return Err(Errno::ENOSPC);
                }
            }
            Err(Error::Os(errno)) => return Err(errno),
            Err(Error::NotResident(Missing::Inode(ino))) if !base.inodes.contains_key(&ino) => {
                return Err(Errno::ENOENT);
            }
            Err(Error::NotResident(missing)) => load(engine, base, &missing),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("loading does not help");
}

fn load(engine: &Engine, base: &Base, missing: &Missing) {
    match missing {
        Missing::File(ino) => engine.assemble_file(*ino).expect("assembles"),
        Missing::Inode(ino) => engine.load_inode(&base.inodes[ino]).expect("loads"),
        Missing::Parent(ino) => {
            let mut entries = base.entries.iter();
            let parent = entries.find(|(_, child)| *child == ino);
            let ((parent, _), _) = parent.expect("it has a name");
            engine.load_parent(*ino, *parent).expect("loads");
        }
        Missing::Directory(ino) => drop(
            engine
                .load_directory(*ino, &base.directory(*ino))
                .expect("loads"),
        ),
        Missing::Content { ino, wanted } => {
            engine
                .load_content(*ino, &base.extents_of(*ino), &base.xattrs_of(*ino))
                .expect("loads");
            for chunk in engine.absent_chunks(*ino, wanted.start, wanted.end) {
                engine.cache_chunk(&chunk.hash, &base.chunks[&chunk.hash.0]);
            }
        }
        Missing::Chunks { needed, .. } => {
            assert!(!needed.is_empty());
            for chunk in needed {
                engine.cache_chunk(&chunk.hash, &base.chunks[&chunk.hash.0]);
            }
        }
    }
}
