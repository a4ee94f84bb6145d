//! Appends to the journal of one layer, syncs it, and continues with the next layer.
//!
//! Locks: `tail` (numbering and writing; a successor takes its own, then its predecessor's once)
//! and `syncing` (the one fdatasync in flight; a waiting caller usually finds its record covered).
//! `syncing` → `tail`, never the other way; appends go on while an fdatasync runs.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cowfs_base::failpoints::hit;

use crate::checkpoint::{self, Checkpoint};
use crate::format::{self, HEADER_BYTES, Header, MAX_BOOT_ID_BYTES, MAX_PAYLOAD_BYTES, Record};
use crate::{JournalFiles, remove_if_there};

/// The journal of one layer, open for appending. Cheap to clone (a handle); every method may be
/// called from any thread.
#[derive(Clone)]
pub struct Journal {
    inner: Arc<Inner>,
}

struct Inner {
    dir: PathBuf,
    header: Header,
    seed: u32,
    file: File,
    tail: Mutex<Tail>,
    /// Every record up to this sequence number is on stable storage. Rises only.
    synced: AtomicU64,
    syncing: Mutex<Syncing>,
}

struct Tail {
    end: u64,
    last_sequence: u64,
    ordinal: u32,
    /// Records in the predecessor's file.
    before: u32,
    /// The journal whose numbering this one continues; taken by the first append, which seals it.
    continues: Option<Journal>,
    sealed: bool,
    buffer: Vec<u8>,
}

struct Syncing {
    /// Must be durable before anything here is; dropped once it is.
    predecessor: Option<Journal>,
    /// A failed fdatasync is final: the kernel reports a lost page once and calls it clean
    /// afterwards.
    failed: bool,
}

impl Journal {
    /// Starts the first journal after an open or a recovery.
    ///
    /// `layer` must be greater than any in `dir`, and no process may append to those any more: they
    /// are made durable first. Creates `dir` if need be; the file and its name are durable on
    /// return (some fsyncs). AlreadyExists if the layer has one.
    pub fn create(dir: &Path, layer: u64, boot_id: &str) -> io::Result<Journal> {
        std::fs::create_dir_all(dir)?;
        for older in JournalFiles::list(dir)?.logs {
            File::open(&older.path)?.sync_all()?;
        }
        let mut chain = [0; 16];
        rustix::rand::getrandom(&mut chain[..], rustix::rand::GetRandomFlags::empty())?;
        Journal::start(
            dir,
            Header {
                layer,
                chain,
                boot_id: boot_id.as_bytes().to_vec(),
                is_first: true,
            },
            None,
        )
    }

    /// Creates the journal of layer + 1, to go on from this one at a freeze.
    ///
    /// Slow (two fsyncs): call it *before* taking the engine's locks. `self` may be appended to
    /// until the first `append` to the successor, which seals it. A `sync` of the successor syncs
    /// `self` first.
    pub fn successor(&self) -> io::Result<Journal> {
        self.settle_predecessor();
        let header = Header {
            layer: self.inner.header.layer + 1,
            is_first: false,
            ..self.inner.header.clone()
        };
        Journal::start(&self.inner.dir, header, Some(self.clone()))
    }

    fn start(dir: &Path, header: Header, predecessor: Option<Journal>) -> io::Result<Journal> {
        if header.boot_id.len() > MAX_BOOT_ID_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the boot id is too long",
            ));
        }
        let file = create_durably(dir, &header)?;
        Ok(Journal {
            inner: Arc::new(Inner {
                dir: dir.to_path_buf(),
                seed: header.seed(),
                header,
                file,
                tail: Mutex::new(Tail {
                    end: HEADER_BYTES as u64,
                    last_sequence: 0,
                    ordinal: 0,
                    before: 0,
                    continues: predecessor.clone(),
                    sealed: false,
                    buffer: Vec::with_capacity(4096),
                }),
                synced: AtomicU64::new(0),
                syncing: Mutex::new(Syncing {
                    predecessor,
                    failed: false,
                }),
            }),
        })
    }

    /// Adds one record; returns its sequence number: 1, 2, … on through successors.
    ///
    /// In the kernel's hands on return: survives the death of the process. An error (ENOSPC, say)
    /// leaves the journal as it was, and a later append may succeed. InvalidInput: longer than
    /// MAX_PAYLOAD_BYTES, or a successor has taken over.
    pub fn append(&self, payload: &[u8]) -> io::Result<u64> {
        let mut guard = self.inner.lock_tail();
        let tail = &mut *guard;
        if tail.sealed {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the journal of a later layer has taken over",
            ));
        }
        if payload.len() > MAX_PAYLOAD_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the record is too long",
            ));
        }
        self.take_over(tail);
        let record = Record {
            length: payload.len(),
            sequence: tail.last_sequence + 1,
            synced: self.inner.synced.load(Ordering::Acquire),
            ordinal: tail
                .ordinal
                .checked_add(1)
                .ok_or(io::Error::from(rustix::io::Errno::FBIG))?,
            before: tail.before,
        };
        tail.buffer.clear();
        record.encode(self.inner.seed, payload, &mut tail.buffer);
        if let Err(error) = self.inner.file.write_all_at(&tail.buffer, tail.end) {
            // Part of it may be there. If this fails too, the next record overwrites it, or it ends
            // as a torn tail.
            let _ = self.inner.file.set_len(tail.end);
            return Err(error);
        }
        tail.end += tail.buffer.len() as u64;
        tail.last_sequence = record.sequence;
        tail.ordinal = record.ordinal;
        if tail.buffer.capacity() > 1 << 20 {
            tail.buffer = Vec::with_capacity(4096);
        }
        Ok(record.sequence)
    }

    /// Returns when every record up to `upto_seq` survives a power loss. Concurrent callers share
    /// one fdatasync.
    ///
    /// After a failed fdatasync every later call here and in successors fails too: the kernel may
    /// have dropped the pages.
    pub fn sync(&self, upto_seq: u64) -> io::Result<()> {
        if self.inner.synced.load(Ordering::Acquire) >= upto_seq {
            return Ok(());
        }
        let mut syncing = self.inner.lock_syncing();
        if self.inner.synced.load(Ordering::Acquire) >= upto_seq {
            return Ok(());
        }
        if syncing.failed {
            return Err(io::Error::other("an earlier sync of the journal failed"));
        }
        let (last_sequence, has_records) = {
            let tail = self.inner.lock_tail();
            (tail.last_sequence, tail.ordinal > 0)
        };
        if let Some(predecessor) = &syncing.predecessor {
            predecessor.sync(predecessor.last_seq())?;
        }
        if !has_records {
            return Ok(());
        }
        syncing.predecessor = None; // sealed by our first record, and durable
        if let Err(error) = self.inner.file.sync_data() {
            syncing.failed = true;
            return Err(error);
        }
        self.inner.synced.fetch_max(last_sequence, Ordering::AcqRel);
        Ok(())
    }

    /// Returns when every record of layers up to `layer`, at most this journal's, survives a power
    /// loss.
    pub fn sync_through(&self, layer: u64) -> io::Result<()> {
        if self.layer() <= layer {
            return self.sync(self.last_seq());
        }
        let predecessor = self.inner.lock_syncing().predecessor.clone();
        // A dropped predecessor is durable.
        predecessor.map_or(Ok(()), |predecessor| predecessor.sync_through(layer))
    }

    /// Whether a sync of this journal, or of one before it, has failed: syncs fail until a
    /// checkpoint or a commit takes its place.
    pub fn has_failed(&self) -> bool {
        let syncing = self.inner.lock_syncing();
        syncing.failed
            || syncing
                .predecessor
                .as_ref()
                .is_some_and(Journal::has_failed)
    }

    /// Sequence number of the newest record, or of a predecessor's newest if this journal has none
    /// yet; 0 before the first.
    pub fn last_seq(&self) -> u64 {
        let tail = self.inner.lock_tail();
        match &tail.continues {
            Some(predecessor) => predecessor.last_seq(),
            None => tail.last_sequence,
        }
    }

    /// Whether every record is on stable storage, including those of predecessors that were not
    /// removed.
    pub fn is_synced(&self) -> bool {
        let syncing = self.inner.lock_syncing();
        let (last_sequence, has_records) = {
            let tail = self.inner.lock_tail();
            (tail.last_sequence, tail.ordinal > 0)
        };
        match &syncing.predecessor {
            // Its own records are not synced before the predecessor's.
            _ if has_records => self.inner.synced.load(Ordering::Acquire) >= last_sequence,
            Some(predecessor) => predecessor.is_synced(),
            None => true,
        }
    }

    /// The layer whose changes this journal holds.
    pub fn layer(&self) -> u64 {
        self.inner.header.layer
    }

    /// Whether this layer has no record yet.
    pub fn is_unused(&self) -> bool {
        self.inner.lock_tail().ordinal == 0
    }

    /// Bytes of the file, for deciding when to commit.
    pub fn size_bytes(&self) -> u64 {
        self.inner.lock_tail().end
    }

    /// Bytes of its records.
    pub fn logged_bytes(&self) -> u64 {
        self.size_bytes() - HEADER_BYTES as u64
    }

    /// Deletes the journals of layers up to and including `layer`, which the store holds now.
    /// Nothing here waits for them any more, and a failed sync of one of them is forgotten. This
    /// journal's own layer is not deleted: it continues in its successor first.
    pub fn remove_through(&self, layer: u64) -> io::Result<()> {
        if layer >= self.layer() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the journal is still in use",
            ));
        }
        let mut syncing = self.inner.lock_syncing();
        if syncing
            .predecessor
            .as_ref()
            .is_some_and(|predecessor| predecessor.layer() <= layer)
        {
            syncing.predecessor = None;
        }
        drop(syncing);
        crate::remove_through(&self.inner.dir, layer)
    }

    /// Starts a checkpoint of the layers from `first` to this journal's. Ends appends here: a
    /// successor takes the records. The caller appends the combined effects of all these layers to
    /// the checkpoint, and calls `finish`. next_ino: see `Scan`.
    pub fn checkpoint(&self, first: u64, next_ino: u64) -> io::Result<Checkpoint> {
        let (sequence, records) = self.seal();
        let header = checkpoint::Header {
            first,
            last: self.layer(),
            chain: self.inner.header.chain,
            sequence,
            next_ino,
            records,
            boot_id: self.inner.header.boot_id.clone(),
        };
        Checkpoint::create(&self.inner.dir, &header)
    }

    /// Deletes the logs from layer `first` to the one before this journal's, and older checkpoints
    /// of them: a finished checkpoint replaces them. Nothing here waits for those logs any more,
    /// and a failed sync of one is forgotten.
    pub fn replace_from(&self, first: u64) -> io::Result<()> {
        let mut tail = self.inner.lock_tail();
        self.take_over(&mut tail);
        let base = tail.last_sequence - u64::from(tail.ordinal);
        self.inner.synced.fetch_max(base, Ordering::AcqRel);
        drop(tail);
        self.inner.lock_syncing().predecessor = None;
        let (found, layer) = (JournalFiles::list(&self.inner.dir)?, self.layer());
        let logs = found.logs.iter().filter(|file| file.layer < layer);
        let checkpoints = found
            .checkpoints
            .iter()
            .filter(|file| file.layer + 1 < layer);
        logs.chain(checkpoints)
            .filter(|file| file.layer >= first)
            .try_for_each(|file| {
                hit("checkpoint-replacing");
                remove_if_there(&file.path)
            })
    }

    /// Goes on with the predecessor's numbers, and seals it.
    fn take_over(&self, tail: &mut Tail) {
        if let Some(predecessor) = tail.continues.take() {
            (tail.last_sequence, tail.before) = predecessor.seal();
            self.inner.synced.fetch_max(
                predecessor.inner.synced.load(Ordering::Acquire),
                Ordering::AcqRel,
            );
        }
    }

    /// Syncs the predecessor and drops it if that succeeds, so that freezes without any sync don't
    /// pile up open files.
    fn settle_predecessor(&self) {
        let has_records = self.inner.lock_tail().ordinal > 0;
        let mut syncing = self.inner.lock_syncing();
        if let Some(predecessor) = &syncing.predecessor
            && has_records
            && predecessor.sync(predecessor.last_seq()).is_ok()
        {
            syncing.predecessor = None;
        }
    }

    /// Refuses further appends; the sequence number of the last and how many there were. An unused
    /// journal in between passes its own predecessor's number on.
    fn seal(&self) -> (u64, u32) {
        let mut tail = self.inner.lock_tail();
        tail.sealed = true;
        if let Some(predecessor) = tail.continues.take() {
            tail.last_sequence = predecessor.seal().0;
            self.inner.synced.fetch_max(
                predecessor.inner.synced.load(Ordering::Acquire),
                Ordering::AcqRel,
            );
        }
        (tail.last_sequence, tail.ordinal)
    }
}

impl Inner {
    /// A panic elsewhere never leaves the tail half changed: its fields move only after the write.
    fn lock_tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_syncing(&self) -> MutexGuard<'_, Syncing> {
        self.syncing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file gets its name only when its header is durable, so that a header that cannot be read is
/// damage, never a crash.
fn create_durably(dir: &Path, header: &Header) -> io::Result<File> {
    let path = format::path_of(dir, header.layer);
    if path.try_exists()? {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{} exists", path.display()),
        ));
    }
    let fresh = path.with_extension("new");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)?;
    let named = file
        .write_all_at(&header.encode(), 0)
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::rename(&fresh, &path))
        .and_then(|()| File::open(dir)?.sync_all());
    if let Err(error) = named {
        let _ = std::fs::remove_file(&fresh);
        let _ = std::fs::remove_file(&path);
        return Err(error);
    }
    Ok(file)
}
