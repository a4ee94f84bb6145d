//! What a mount shows beside its volume: versions, each with a read-only engine while programs
//! look at it.
//!
//! An attachment has a number of its own, which is in the number of each of its inodes, and a
//! random generation, which is in each entry that the kernel gets. An engine without open files can
//! be closed. A call with one of its numbers then gets `Missing::Closed`, and the engine is opened
//! again.
//!
//! The number goes to another version only when the kernel refers to no inode of it any more.
//! `references` is exact: each entry that the kernel has taken counts, until the kernel forgets it.
//! With the same number and generation the kernel would show the pages it kept of one version in
//! another.
//!
//! A link in `.cowfs/versions` counts, too: its number says which attachment it leads to.
//!
//! Where another server may go on with the mount, the survival table has the attachments that the
//! kernel has referred to (`keep`). That server does not know how many references are left, so it
//! keeps them all. A version that was only listed is in no table.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use cowfs_base::Errno;
use cowfs_base::sync::RwLock;
use cowfs_engine::Engine;
use cowfs_survival as survival;

use crate::error::{Error, Missing, Result};
use crate::number::{Attachment, LAST_VERSION};

/// One version.
pub(crate) struct Attached {
    pub number: Attachment,
    /// Of 32 bits: the kernel keeps no more.
    pub generation: u64,
    /// The version's whole id.
    id: Vec<u8>,
    /// Held shared while it answers a call, so that no call meets an engine that is being closed.
    /// Calls wait only for the local disk.
    engine: RwLock<Option<Arc<Engine>>>,
    /// How many references to its inodes and links the kernel holds.
    references: AtomicU64,
    /// An earlier server has attached it: the kernel may hold others.
    is_earlier: bool,
    /// Where the next server is to find it, and what it finds.
    kept: Option<(Arc<survival::Table>, survival::Attachment)>,
    is_in_table: AtomicBool,
    /// When it was asked last, by the count of all calls.
    used: AtomicU64,
}

impl Attached {
    fn new(number: Attachment, generation: u64, id: Vec<u8>) -> Attached {
        Attached {
            number,
            generation,
            id,
            engine: RwLock::new(None),
            references: AtomicU64::new(0),
            is_earlier: false,
            kept: None,
            is_in_table: false.into(),
            used: AtomicU64::new(0),
        }
    }

    /// The version's whole id.
    pub fn id(&self) -> &[u8] {
        &self.id
    }

    /// The result of `call` on the engine.
    pub fn ask<T>(&self, call: impl FnOnce(&Engine) -> cowfs_engine::Result<T>) -> Result<T> {
        self.ask_and_count(call, |_| 0)
    }

    /// As `ask`; `count` says how many references the kernel gets with the answer.
    pub fn ask_and_count<T>(
        &self,
        call: impl FnOnce(&Engine) -> cowfs_engine::Result<T>,
        count: impl FnOnce(&T) -> u64,
    ) -> Result<T> {
        let engine = self.engine.read();
        let engine = engine
            .as_ref()
            .ok_or_else(|| Error::NotResident(Missing::Closed(self.number, self.id.clone())))?;
        let answer = call(engine).map_err(|error| Error::of(self.number, error))?;
        // Before the lock goes: afterwards the number may be given to another version.
        match count(&answer) {
            0 => {}
            count => self.raise(count),
        }
        Ok(answer)
    }

    /// The kernel gets so many references: with the engine locked, and before it has any.
    fn raise(&self, count: u64) {
        if let Some((table, attachment)) = &self.kept
            && !self.is_in_table.load(Ordering::Acquire)
        {
            table.add_attachment(attachment);
            self.is_in_table.store(true, Ordering::Release);
        }
        self.references.fetch_add(count, Ordering::AcqRel);
    }

    /// The kernel has taken an entry that was listed.
    pub fn count(&self) {
        let _stays = self.engine.read();
        self.raise(1);
    }

    /// The kernel has given references back.
    pub fn count_off(&self, count: u64) {
        let lowered = |known: u64| Some(known.saturating_sub(count));
        let _ = self
            .references
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, lowered);
    }

    /// Drops the engine, unless it has an open file; returns whether it did.
    fn close(&self) -> bool {
        let mut engine = self.engine.write();
        let is_idle = engine.as_ref().is_none_or(|engine| !engine.has_handles());
        if is_idle {
            *engine = None;
        }
        is_idle
    }

    /// Whether no request can lead to it, but by its name.
    fn is_unused(&self) -> bool {
        let engine = self.engine.write();
        engine.is_none() && !self.is_earlier && self.references.load(Ordering::Acquire) == 0
    }
}

#[derive(Default)]
pub(crate) struct Attachments {
    table: RwLock<Table>,
    calls: AtomicU64,
}

#[derive(Default)]
struct Table {
    by_number: HashMap<Attachment, Arc<Attached>>,
    by_id: HashMap<Vec<u8>, Arc<Attached>>,
    /// The number that was given out last.
    last: Attachment,
    random: RandomState,
    made: u64,
    /// Where the next server finds them.
    kept: OnceLock<Arc<survival::Table>>,
}

impl Attachments {
    /// From now on the table has them. Those that earlier servers put there keep their numbers and
    /// generations; they have no engine yet.
    pub fn keep(&self, kept: Arc<survival::Table>) {
        let mut table = self.table.write();
        for earlier in kept.attachments() {
            if !(1..=LAST_VERSION).contains(&earlier.number) {
                continue;
            }
            let id = hex_of(&earlier.id);
            let generation = earlier.generation.into();
            let attached = Arc::new(Attached {
                is_earlier: true,
                ..Attached::new(earlier.number, generation, id.clone())
            });
            table.last = table.last.max(earlier.number);
            table.by_number.insert(earlier.number, attached.clone());
            table.by_id.entry(id).or_insert(attached);
        }
        table.kept.get_or_init(|| kept);
    }

    /// The attachment of a version: the one it has, or a fresh one. ENFILE: the kernel refers to as
    /// many versions as there are numbers. EINVAL: the id is none that a survival table can keep.
    pub fn attach(&self, id: &[u8]) -> Result<Arc<Attached>> {
        let mut table = self.table.write();
        if let Some(known) = table.by_id.get(id) {
            return Ok(known.clone());
        }
        let number = table.free_number().ok_or(Errno(libc::ENFILE))?;
        let mut attached = Attached::new(number, table.generation(), id.to_vec());
        if let Some(kept) = table.kept.get() {
            let attachment = survival::Attachment {
                number,
                generation: attached.generation as u32,
                id: bytes_of(id).ok_or(Errno::EINVAL)?,
            };
            attached.kept = Some((kept.clone(), attachment));
        }
        let attached = Arc::new(attached);
        table.by_number.insert(number, attached.clone());
        table.by_id.insert(id.to_vec(), attached.clone());
        Ok(attached)
    }

    /// The attachment of a version, if it has one.
    pub fn of_id(&self, id: &[u8]) -> Option<Arc<Attached>> {
        self.table.read().by_id.get(id).cloned()
    }

    /// The kernel gets one reference more to a link of the attachment. False: its number belongs to
    /// another version by now.
    pub fn refer(&self, attached: &Arc<Attached>) -> bool {
        // Under the lock of the table, so that the number does not go in between.
        let table = self.table.read();
        let known = table.by_number.get(&attached.number);
        let is_known = known.is_some_and(|known| Arc::ptr_eq(known, attached));
        if is_known {
            attached.count();
        }
        is_known
    }

    /// ESTALE: there is none. The number is from an earlier mount, remembered by a file server.
    pub fn get(&self, number: Attachment) -> Result<Arc<Attached>> {
        let known = self.table.read().by_number.get(&number).cloned();
        let attached = known.ok_or(Errno::ESTALE)?;
        attached.used.store(self.now(), Ordering::Relaxed);
        Ok(attached)
    }

    /// Answers `Missing::Closed`. False: the number belongs to another version by now.
    pub fn open(&self, number: Attachment, id: &[u8], engine: Arc<Engine>) -> bool {
        // Under the lock of the table, so that the number does not go in between.
        let table = self.table.read();
        match table.by_number.get(&number) {
            Some(attached) if attached.id == id => {
                attached.used.store(self.now(), Ordering::Relaxed);
                *attached.engine.write() = Some(engine);
                true
            }
            _ => false,
        }
    }

    /// Drops the engine of a version, unless it has an open file; returns whether it did.
    pub fn close(&self, number: Attachment) -> bool {
        let known = self.table.read().by_number.get(&number).cloned();
        known.is_none_or(|attached| attached.close())
    }

    /// Versions with an engine, least recently used first.
    pub fn by_use(&self) -> Vec<Attachment> {
        let all: Vec<Arc<Attached>> = self.table.read().by_number.values().cloned().collect();
        let mut open: Vec<(u64, Attachment)> = all
            .into_iter()
            .filter(|attached| attached.engine.read().is_some())
            .map(|attached| (attached.used.load(Ordering::Relaxed), attached.number))
            .collect();
        open.sort_unstable();
        open.into_iter().map(|(_, number)| number).collect()
    }

    fn now(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }
}

impl Table {
    /// A number that none has, behind the last one given out, so that numbers come back late.
    fn free_number(&mut self) -> Option<Attachment> {
        if self.by_number.len() >= usize::from(LAST_VERSION) {
            self.drop_unused();
        }
        let mut all = (self.last + 1..=LAST_VERSION).chain(1..=self.last);
        let free = all.find(|number| !self.by_number.contains_key(number))?;
        self.last = free;
        Some(free)
    }

    fn drop_unused(&mut self) {
        self.by_number.retain(|number, attached| {
            let is_unused = attached.is_unused();
            if is_unused
                && attached.is_in_table.load(Ordering::Acquire)
                && let Some((table, _)) = &attached.kept
            {
                table.remove_attachment(*number);
            }
            !is_unused
        });
        let kept = &self.by_number;
        self.by_id
            .retain(|_, attached| kept.contains_key(&attached.number));
    }

    /// Not 0, which entries of the volume itself have.
    fn generation(&mut self) -> u64 {
        self.made += 1;
        let mut hasher = self.random.build_hasher();
        hasher.write_u64(self.made);
        (hasher.finish() & u64::from(u32::MAX)).max(1)
    }
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

fn hex_of(id: &[u8; 32]) -> Vec<u8> {
    let digit = |four: u8| DIGITS[usize::from(four)];
    let digits = id
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    digits.collect()
}

/// The bytes of 64 digits; None: it is something else.
fn bytes_of(id: &[u8]) -> Option<[u8; 32]> {
    let four = |digit: u8| DIGITS.iter().position(|known| *known == digit);
    let (pairs, rest) = id.as_chunks::<2>();
    let bytes = pairs
        .iter()
        .map(|[high, low]| Some((four(*high)? << 4 | four(*low)?) as u8))
        .collect::<Option<Vec<u8>>>()?;
    bytes.try_into().ok().filter(|_| rest.is_empty())
}
