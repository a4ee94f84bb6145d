//! Recently inserted chunks, in memory: readers get them from here, and the disk gets them in
//! slabs.
//!
//! ```text
//! insert ─▶ the slab that is being filled ─▶ full: written by the thread that completed it ─▶ held until newer ones need the memory
//! ```
//!
//! A slab is full when the next chunk does not fit. If no more chunks come, the filled part is
//! written as a batch of its own, and the next batch begins in the rest of the slab.
//!
//! All slabs together take at most `max_bytes`. The slab being filled and those being written (one
//! for each inserting thread) get the memory that they need. The rest is for slabs that are held
//! after their write, even a failed one; the oldest is dropped first. So a slow disk reduces the
//! memory for held slabs.
//!
//! There is one lock. It is held for a few instructions, never while bytes are copied or written.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Hash;
use crate::record::Record;
use crate::slab::{PAGE, Slab, Slabs};

/// Larger chunks begin at a page, so that what reads them does not straddle one more.
const ALIGNED_FROM: usize = 64 << 10;
const SMALL_ALIGNMENT: usize = 64;
pub struct Fresh {
    slab_bytes: usize,
    /// A lower limit for a batch than the slab's size.
    batch_bytes: AtomicUsize,
    max_bytes: usize,
    slabs: Arc<Slabs>,
    state: Mutex<State>,
    /// How many there are of `Lent`.
    lent: Arc<AtomicUsize>,
    /// A batch has been written.
    written: Condvar,
}

#[derive(Default)]
struct State {
    chunks: HashMap<Hash, Chunk>,
    /// The slab that takes the next chunk.
    current: Option<u64>,
    /// The current batch, and full batches in which some range is still being filled.
    filling: HashMap<u64, Batch>,
    /// Batches that have been given out to be written.
    writing: HashSet<u64>,
    next: u64,
    /// A slab with room behind a batch that was written before it was full.
    rest: Option<(Arc<Slab>, usize)>,
    held: VecDeque<Batch>,
}

/// A chunk in memory.
#[derive(Clone)]
pub struct Chunk {
    slab: Arc<Slab>,
    at: usize,
    raw_len: usize,
    pub since: Instant,
    /// It was not written to the disk.
    pub is_refused: bool,
}

/// A part of a slab and the chunks in it; its records say where, from its start.
pub struct Batch {
    number: u64,
    slab: Arc<Slab>,
    start: usize,
    used: usize,
    pending: usize,
    /// Bytes of chunks that the disk should have, and of the others.
    for_disk_bytes: usize,
    memory_bytes: usize,
    hashes: Vec<Hash>,
    held_since: Instant,
    records: Vec<Record>,
}

impl Chunk {
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: it was published; the slab is not filled again while this chunk holds it.
        unsafe { self.slab.range(self.at, self.raw_len) }
    }
}

/// Bytes of a chunk where they lie in memory. As long as this is there, so are they, and their
/// slab.
pub struct Lent {
    chunk: Chunk,
    range: Range<usize>,
    lent: Arc<AtomicUsize>,
}

impl Deref for Lent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.chunk.bytes()[self.range.clone()]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.lent.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Batch {
    /// Takes the batch's index records.
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// Whether the disk should have at least half of it.
    pub fn is_for_disk(&self) -> bool {
        self.for_disk_bytes >= self.memory_bytes
    }

    fn length(&self) -> usize {
        (self.used - self.start).next_multiple_of(PAGE)
    }

    /// All bytes of a batch that is complete, up to the end of a page.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: batches are given out when everything reserved in them has been published.
        unsafe { self.slab.range(self.start, self.length()) }
    }
}

impl Fresh {
    pub fn new(slab_bytes: usize, max_bytes: usize) -> Fresh {
        Fresh {
            slab_bytes,
            batch_bytes: AtomicUsize::new(slab_bytes),
            max_bytes,
            slabs: Arc::default(),
            state: Mutex::default(),
            lent: Arc::default(),
            written: Condvar::new(),
        }
    }

    /// Batches are no longer than this from now on, but for those of a single chunk.
    pub fn set_batch_bytes(&self, bytes: usize) {
        self.batch_bytes.store(bytes, Ordering::Relaxed);
    }

    pub fn get(&self, hash: &Hash, raw_len: u64) -> Option<Chunk> {
        let state = self.lock();
        let chunk = state.chunks.get(hash)?;
        (chunk.raw_len as u64 == raw_len).then(|| chunk.clone())
    }

    /// None if the chunk is shorter than the range, or if lent chunks might pin half of all slabs.
    pub fn lend(&self, chunk: Chunk, range: Range<usize>) -> Option<Lent> {
        chunk.bytes().get(range.clone())?;
        let most = self.max_bytes / self.slab_bytes / 2;
        let more = |lent| (lent < most).then_some(lent + 1);
        self.lent
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()?;
        let lent = self.lent.clone();
        Some(Lent { chunk, range, lent })
    }

    /// Takes the chunk in; the batches that are to be written now, by the caller, and then `hold`.
    pub fn insert(&self, mut record: Record, data: &[u8], is_for_disk: bool) -> Vec<Batch> {
        let mut full = Vec::new();
        let most = self
            .batch_bytes
            .load(Ordering::Relaxed)
            .min(self.slab_bytes);
        let begun = self.lock().reserve(data.len(), most, self, &mut full);
        let (number, slab, start, at) = begun;
        // SAFETY: just reserved.
        unsafe { slab.fill(at, data) };
        let chunk = Chunk {
            slab,
            at,
            raw_len: data.len(),
            since: Instant::now(),
            is_refused: false,
        };
        record.offset = (at - start) as u32;
        let published = self.lock().publish(number, record, chunk, is_for_disk);
        full.extend(published);
        full
    }

    /// The batch that is being filled: to be written and `hold` now. With it, what to `wait` for.
    pub fn seal(&self) -> (Option<Batch>, u64) {
        let mut state = self.lock();
        let batch = state.current.and_then(|number| state.filling.get(&number));
        let rest = batch.map(|batch| (batch.slab.clone(), batch.start + batch.length()));
        if rest.is_some() {
            state.rest = rest;
        }
        (state.seal(), state.next)
    }

    /// Returns when every batch begun before the `seal` that returned `end` is held. Batches that
    /// other threads began since do not count: perhaps they are never sealed.
    pub fn wait(&self, end: u64) {
        let mut state = self.lock();
        while state
            .filling
            .keys()
            .chain(&state.writing)
            .any(|number| *number < end)
        {
            state = self
                .written
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Keeps a batch, which `write` may have written (then it is true), as long as there is memory
    /// for it; also if `write` panics, since others `wait` for the batch.
    pub fn hold_after(&self, batch: Batch, write: impl FnOnce(&mut Batch) -> bool) {
        struct Writing<'a>(&'a Fresh, Option<Batch>, bool);
        impl Drop for Writing<'_> {
            fn drop(&mut self) {
                if let Some(batch) = self.1.take() {
                    self.0.hold(batch, self.2);
                }
            }
        }
        let mut writing = Writing(self, Some(batch), false);
        if let Some(batch) = &mut writing.1 {
            writing.2 = write(batch);
        }
    }

    fn hold(&self, mut batch: Batch, is_written: bool) {
        batch.held_since = Instant::now();
        let mut state = self.lock();
        state.writing.remove(&batch.number);
        if !is_written {
            for hash in &batch.hashes {
                if let Some(chunk) = state.chunks.get_mut(hash) {
                    chunk.is_refused = true;
                }
            }
        }
        self.written.notify_all();
        state.held.push_back(batch);
        while self.slabs.bytes() > self.max_bytes && (self.slabs.clear() || state.forget_oldest()) {
        }
    }

    /// Releases batches that have been held for longer than this, and spare memory.
    pub fn release(&self, age: Duration) {
        let mut state = self.lock();
        while state
            .held
            .front()
            .is_some_and(|batch| batch.held_since.elapsed() > age)
        {
            state.forget_oldest();
        }
        if state.held.is_empty() {
            state.rest = None;
        }
        self.slabs.clear();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn reserve(
        &mut self,
        length: usize,
        most: usize,
        limits: &Fresh,
        full: &mut Vec<Batch>,
    ) -> (u64, Arc<Slab>, usize, usize) {
        let alignment = match length >= ALIGNED_FROM {
            true => PAGE,
            false => SMALL_ALIGNMENT,
        };
        let fits = |batch: &Batch| {
            let end = batch.used.next_multiple_of(alignment) + length;
            end - batch.start <= most && end <= batch.slab.capacity()
        };
        let has_room = self
            .current
            .is_some_and(|number| self.filling.get(&number).is_some_and(fits));
        if !has_room {
            full.extend(self.seal());
            self.begin(length, most, limits);
        }
        let number = self.current.unwrap_or_default();
        let batch = self.filling.get_mut(&number).expect("just begun");
        let at = batch.used.next_multiple_of(alignment);
        batch.used = at + length;
        batch.pending += 1;
        (number, batch.slab.clone(), batch.start, at)
    }

    fn begin(&mut self, length: usize, most: usize, limits: &Fresh) {
        let rest = self.rest.take();
        let fits = |(slab, start): &(Arc<Slab>, usize)| start + length <= slab.capacity();
        let (slab, start) = rest
            .filter(fits)
            .unwrap_or_else(|| (Arc::new(self.slab(length.max(most), limits)), 0));
        let batch = Batch {
            number: self.next,
            slab,
            start,
            used: start,
            pending: 0,
            for_disk_bytes: 0,
            memory_bytes: 0,
            hashes: Vec::new(),
            held_since: Instant::now(),
            records: Vec::new(),
        };
        self.filling.insert(self.next, batch);
        self.current = Some(self.next);
        self.next += 1;
    }

    fn publish(
        &mut self,
        number: u64,
        record: Record,
        chunk: Chunk,
        is_for_disk: bool,
    ) -> Option<Batch> {
        self.chunks.insert(record.hash, chunk);
        let batch = self.filling.get_mut(&number)?;
        batch.hashes.push(record.hash);
        let bytes = match is_for_disk {
            true => &mut batch.for_disk_bytes,
            false => &mut batch.memory_bytes,
        };
        *bytes += record.raw_len as usize;
        batch.records.push(record);
        batch.pending -= 1;
        let is_complete = batch.pending == 0 && self.current != Some(number);
        is_complete.then(|| self.give_out(number)).flatten()
    }

    fn seal(&mut self) -> Option<Batch> {
        let number = self.current?;
        let is_complete = self.filling.get(&number)?.pending == 0;
        self.current = None;
        is_complete.then(|| self.give_out(number)).flatten()
    }

    fn give_out(&mut self, number: u64) -> Option<Batch> {
        self.writing.insert(number);
        self.filling.remove(&number)
    }

    /// Memory for another slab, taken from the batch held longest if necessary.
    fn slab(&mut self, capacity: usize, limits: &Fresh) -> Slab {
        loop {
            if let Some(slab) = limits.slabs.take(capacity) {
                return slab;
            }
            limits.slabs.clear();
            let is_room = limits.slabs.bytes() + capacity <= limits.max_bytes;
            if is_room || !self.forget_oldest() {
                return Slab::new(capacity, &limits.slabs);
            }
        }
    }

    /// Returns whether there was one. Its slab becomes spare when its last user drops it.
    fn forget_oldest(&mut self) -> bool {
        let Some(oldest) = self.held.pop_front() else {
            return false;
        };
        for hash in &oldest.hashes {
            if let Some(chunk) = self.chunks.get(hash)
                && Arc::ptr_eq(&chunk.slab, &oldest.slab)
            {
                self.chunks.remove(hash);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::BlockSums;

    const SLAB: usize = 64 << 10;
    const SLABS: usize = 8;

    fn insert(fresh: &Fresh, number: u32, data: &[u8]) -> Vec<Batch> {
        let record = Record {
            hash: hash(number),
            offset: 0,
            raw_len: data.len() as u32,
            stored_s: 0,
            is_used: false,
            sums: BlockSums::of(data),
        };
        fresh.insert(record, data, true)
    }

    #[test]
    fn what_a_slow_disk_has_not_written_takes_the_place_of_what_is_held() {
        let fresh = Fresh::new(SLAB, SLABS * SLAB);
        let data = vec![7; SLAB];
        let mut writing = VecDeque::new();
        for number in 0..100 {
            writing.extend(insert(&fresh, number, &data));
            let slowness = [0, 1, 5, SLABS - 2][number as usize / 25];
            while writing.len() > slowness {
                fresh.hold(writing.pop_front().unwrap(), true);
            }
            assert!(fresh.slabs.bytes() <= SLABS * SLAB);
        }
    }

    #[test]
    fn short_batches_take_no_more_memory_than_they_have() {
        let fresh = Fresh::new(SLAB, SLABS * SLAB);
        fresh.set_batch_bytes(SLAB / 4);
        for number in 0..100 {
            insert_and_hold(&fresh, number, &vec![7; SLAB / 4]);
        }
        assert!(fresh.slabs.bytes() <= SLABS * SLAB);
        let held =
            (0..100u32).filter(|number| fresh.get(&hash(*number), SLAB as u64 / 4).is_some());
        assert_eq!(held.count(), 4 * SLABS);
    }

    #[test]
    fn nobody_waits_for_a_batch_whose_write_panicked() {
        let fresh = Fresh::new(SLAB, SLABS * SLAB);
        insert(&fresh, 1, &[7; 100]);
        let (batch, end) = fresh.seal();
        let write = std::panic::AssertUnwindSafe(|| {
            fresh.hold_after(batch.unwrap(), |_| panic!("in the middle of a write"));
        });
        assert!(std::panic::catch_unwind(write).is_err());
        fresh.wait(end);
        assert!(fresh.get(&hash(1), 100).unwrap().is_refused);
    }

    fn insert_and_hold(fresh: &Fresh, number: u32, data: &[u8]) {
        for batch in insert(fresh, number, data) {
            fresh.hold(batch, true);
        }
    }

    fn hash(number: u32) -> Hash {
        let mut hash = [0; 32];
        hash[..4].copy_from_slice(&number.to_le_bytes());
        hash
    }

    #[test]
    fn what_is_lent_stays_while_its_slab_is_let_go() {
        let fresh = Fresh::new(SLAB, SLABS * SLAB);
        for number in 0..20 {
            let whole = vec![number as u8; SLAB];
            insert_and_hold(&fresh, number, &whole);
            let chunk = fresh.get(&hash(number), SLAB as u64).unwrap();
            assert!(fresh.lend(chunk.clone(), 10..SLAB + 1).is_none());
            let lent = fresh.lend(chunk, 10..SLAB).unwrap();
            for other in 0..2 * SLABS as u32 {
                insert_and_hold(&fresh, 1000 + other, &vec![200; SLAB]);
            }
            assert!(fresh.get(&hash(number), SLAB as u64).is_none());
            assert!(*lent == whole[10..]);
        }
        assert!(fresh.slabs.bytes() <= SLABS * SLAB);
    }

    #[test]
    fn what_is_lent_leaves_room_for_what_comes() {
        let fresh = Fresh::new(SLAB, SLABS * SLAB);
        let mut lent = Vec::new();
        for number in 0..100 {
            insert_and_hold(&fresh, number, &vec![7; SLAB]);
            let chunk = fresh.get(&hash(number), SLAB as u64).unwrap();
            lent.extend(fresh.lend(chunk, 0..10));
        }
        assert_eq!(lent.len(), SLABS / 2);
        for number in 97..100 {
            assert!(fresh.get(&hash(number), SLAB as u64).is_some());
        }
        lent.clear();
        let chunk = fresh.get(&hash(99), SLAB as u64).unwrap();
        assert!(fresh.lend(chunk, 0..10).is_some());
    }
}
