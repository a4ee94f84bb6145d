//! A base version that is not in memory at first, and how engines on it are opened.

use std::collections::BTreeMap;
use std::path::Path;

use cowfs_base::{ChunkHash, Errno, Ino, ROOT_INO};
use cowfs_engine::{
    CHECKPOINT_BYTES, ChunkRef, Engine, Error, ExtentRow, INODE_HAS_XATTRS, InodeRow, Missing,
    Options, Result, SEGMENT_BYTES,
};

const CHUNK_BYTES: u32 = 50_000;
const DIRECTORY: Ino = 2;
const FIRST_FILE: Ino = 3;
pub const FILES: u64 = 12;

/// A root with one directory full of files of two chunks each; every other one has an attribute.
pub struct Base {
    rows: BTreeMap<Ino, InodeRow>,
}

impl Base {
    pub fn new() -> Base {
        let directory = |ino, nlink| InodeRow {
            ino,
            mode: libc::S_IFDIR | 0o777,
            nlink,
            ..InodeRow::default()
        };
        let mut rows = BTreeMap::from([(1, directory(1, 3)), (2, directory(2, 2))]);
        for ino in FIRST_FILE..FIRST_FILE + FILES {
            let row = InodeRow {
                ino,
                mode: libc::S_IFREG | 0o644,
                nlink: 1,
                size: 2 * u64::from(CHUNK_BYTES),
                mapped_bytes: 2 * u64::from(CHUNK_BYTES),
                flags: if ino % 2 == 0 { INODE_HAS_XATTRS } else { 0 },
                ..InodeRow::default()
            };
            rows.insert(ino, row);
        }
        Base { rows }
    }

    fn options(&self, dir: &Path, staging_limit_bytes: u64) -> Options {
        Options {
            root: self.rows[&ROOT_INO].clone(),
            next_ino: FIRST_FILE + FILES,
            cache_dir: dir.join("cache"),
            memory_cache_bytes: 1 << 20,
            is_store_near: false,
            staging_dir: Some(dir.join("working")),
            failures_file: None,
            staging_limit_bytes,
            segment_bytes: SEGMENT_BYTES,
            checkpoint_bytes: CHECKPOINT_BYTES,
            after_layer: 0,
            boot_id: "this one".into(),
        }
    }

    /// Opens the engine and replays its journal.
    pub fn open(&self, dir: &Path, staging_limit_bytes: u64) -> Engine {
        let engine = Engine::open(self.options(dir, staging_limit_bytes)).expect("opens");
        let recovery = engine.recover().expect("recovers");
        for ino in &recovery.inodes {
            if let Some(row) = self.rows.get(ino) {
                engine.load_inode(row).expect("a row");
            }
        }
        for ino in recovery
            .contents
            .iter()
            .filter(|ino| self.rows.contains_key(ino))
        {
            let content = Missing::Content {
                ino: *ino,
                wanted: 0..0,
            };
            self.load(&engine, &content).expect("content");
        }
        for ino in recovery.directories.iter().filter(|ino| **ino <= DIRECTORY) {
            self.load(&engine, &Missing::Directory(*ino))
                .expect("entries");
        }
        assert_eq!(engine.replay().expect("replays"), 0);
        engine
    }

    /// The version in a read-only engine.
    pub fn open_to_read(&self, dir: &Path) -> Engine {
        let options = Options {
            staging_dir: None,
            ..self.options(dir, 0)
        };
        Engine::open(options).expect("opens")
    }

    fn chunk(&self, ino: Ino, index: u64) -> ChunkRef {
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&(ino * 2 + index).to_le_bytes());
        ChunkRef {
            hash: ChunkHash(hash),
            pack: 1,
            offset: 0,
            stored_length: CHUNK_BYTES,
            raw_length: CHUNK_BYTES,
            codec: 0,
        }
    }

    /// Loads the missing data.
    pub fn load(&self, engine: &Engine, missing: &Missing) -> Result<()> {
        match missing {
            Missing::Inode(ino) => match self.rows.get(ino) {
                Some(row) => engine.load_inode(row),
                None => Err(Errno::ENOENT.into()),
            },
            Missing::Parent(ino) => engine.load_parent(*ino, ROOT_INO),
            Missing::Directory(ino) => {
                let inside = |child: &Ino| match *ino {
                    ROOT_INO => *child == DIRECTORY,
                    _ => *child >= FIRST_FILE,
                };
                let entries: Vec<_> = self
                    .rows
                    .iter()
                    .filter(|(child, _)| inside(child))
                    .map(|(child, row)| (format!("b{child}").into_bytes().into(), row.clone()))
                    .collect();
                engine.load_directory(*ino, &entries).map(drop)
            }
            Missing::Content { ino, wanted } => {
                let extent = |index: u64| ExtentRow {
                    offset: index * u64::from(CHUNK_BYTES),
                    length: u64::from(CHUNK_BYTES),
                    chunk: self.chunk(*ino, index),
                    skip: 0,
                };
                let row = &self.rows[ino];
                let extents = if row.size > 0 {
                    vec![extent(0), extent(1)]
                } else {
                    Vec::new()
                };
                let xattrs = if row.flags & INODE_HAS_XATTRS != 0 {
                    vec![(b"user.base".as_slice().into(), b"value".as_slice().into())]
                } else {
                    Vec::new()
                };
                engine.load_content(*ino, &extents, &xattrs)?;
                let needed = engine.absent_chunks(*ino, wanted.start, wanted.end);
                self.load(engine, &Missing::Chunks { ino: *ino, needed })
            }
            Missing::File(ino) => engine.assemble_file(*ino),
            Missing::Chunks { needed, .. } => {
                for chunk in needed {
                    engine.cache_chunk(&chunk.hash, &[chunk.hash.0[0]; CHUNK_BYTES as usize]);
                }
                Ok(())
            }
        }
    }

    /// Calls the engine, loading missing data on request.
    pub fn ask<T>(
        &self,
        engine: &Engine,
        call: impl Fn(&Engine) -> Result<T>,
    ) -> std::result::Result<T, Errno> {
        loop {
            match call(engine) {
                Ok(value) => return Ok(value),
                Err(Error::Os(errno)) => return Err(errno),
                Err(Error::NotResident(missing)) => match self.load(engine, &missing) {
                    Err(Error::Os(errno)) => return Err(errno),
                    outcome => outcome.expect("loads"),
                },
                Err(error) => panic!("{error}"),
            }
        }
    }
}
