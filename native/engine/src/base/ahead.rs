//! Read-ahead of our own: it names the chunks that sequential readers will need next, before they
//! ask.
//!
//! Each handle follows its reader. While the reader continues where it stopped, a window in front
//! of it grows from `WINDOW_MIN_BYTES` to `WINDOW_MAX_BYTES`, or to a part of `WINDOWS_BYTES` where
//! several readers share it: chunks fetched ahead should be read before they leave the cache's
//! memory for the disk. Whenever there is room in it for another share, or half of a small one is
//! used up, the handle joins a queue. `next_ahead` serves the readers in the queue in turn, and
//! names the missing chunks of one share of the window, or of all shares if there is only one
//! reader. Where the window is long, a share goes on to the end of its last pack, so that packs are
//! fetched by one request each: a store reads its own blocks once then (decision 64). A jump closes
//! the window, so random readers get no read-ahead. No thread waits for the named chunks: if a
//! chunk is not fetched after all, its reader waits for it as for any other.
//!
//! The queue holds each open handle at most once. The lock of a handle's `Stream` and that of the
//! queue are never held together, and no other lock is taken under either.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use cowfs_base::Ino;
use cowfs_base::sync::{Condvar, Mutex};

use crate::engine::Engine;
use crate::extents::Extent;
use crate::handle::Handle;
use crate::read::readable_staged;
use crate::row::ChunkRef;

const WINDOW_MIN_BYTES: u64 = 2 << 20;
/// At 1 GB/s this covers 64 ms from asking to having.
const WINDOW_MAX_BYTES: u64 = 64 << 20;
/// A reader that has read what the smallest window named is no random one: its third window is a
/// long one.
const GROWTH: u64 = 4;
/// The windows of all readers together, as far as a share for each allows. They fit into the memory
/// of the chunk cache (cowfs/session/opening.py).
const WINDOWS_BYTES: u64 = 64 << 20;
/// A reader without requests for this long does not count.
const RECENT: Duration = Duration::from_secs(1);
/// The share of one reader before the next one's turn: about a pack.
const SHARE_BYTES: u64 = 16 << 20;
/// The kernel's own read-ahead sends its requests side by side. A request no further off than this
/// still counts as sequential.
const SEQUENTIAL_BYTES: u64 = 4 << 20;

/// The position of a handle's reader, and the window in front of it that has been named.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    next: u64,
    window: u64,
    /// Up to here it was named.
    named: u64,
    /// The end of the range to be named.
    wanted: u64,
    is_queued: bool,
}

impl Stream {
    /// Notes a read; whether the handle is to join the queue. `most`: the longest window.
    fn follow(&mut self, offset: u64, end: u64, size: u64, most: u64) -> bool {
        if offset.abs_diff(self.next) > SEQUENTIAL_BYTES {
            *self = Stream {
                next: end,
                named: end,
                wanted: end,
                is_queued: self.is_queued,
                ..Stream::default()
            };
            return false;
        }
        let is_news = self.next > 0 && end > self.next; // neither the first request nor a repeated one
        self.next = self.next.max(end);
        self.named = self.named.max(self.next);
        let room = (self.window.min(most) / 2).min(SHARE_BYTES);
        if !is_news || self.named >= size || self.wanted > self.next + self.window.min(most) - room
        {
            return false;
        }
        self.window = (self.window * GROWTH).clamp(WINDOW_MIN_BYTES, most);
        self.wanted = size.min(self.next + self.window);
        self.wanted > self.named && !std::mem::replace(&mut self.is_queued, true)
    }

    /// More was named than `take` said.
    fn named_to(&mut self, end: u64) {
        self.named = self.named.max(end);
    }

    /// The next share to name, whether there is more, and whether it goes on to the end of its
    /// pack.
    fn take(&mut self) -> (u64, u64, bool, bool) {
        let from = self.named.max(self.next);
        let to = self.wanted.min(from + SHARE_BYTES);
        self.named = from.max(to);
        self.is_queued = to < self.wanted;
        (from, to, self.is_queued, self.window >= SHARE_BYTES)
    }
}

pub(crate) struct Ahead {
    state: Mutex<State>,
    changed: Condvar,
    /// The longest window that a reader may have now.
    window_bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Weak<Handle>>,
    /// The handles that recently wanted read-ahead, with the time of the last request.
    recent: Vec<(Weak<Handle>, Instant)>,
    is_closed: bool,
}

impl Default for Ahead {
    fn default() -> Ahead {
        Ahead {
            state: Mutex::default(),
            changed: Condvar::default(),
            window_bytes: AtomicU64::new(WINDOW_MAX_BYTES),
        }
    }
}

impl Ahead {
    /// A reader has read, or is about to read, from `offset` to `end` of a file of `size` bytes.
    pub fn note(&self, handle: &Arc<Handle>, offset: u64, end: u64, size: u64) {
        let most = self.window_bytes.load(Ordering::Relaxed);
        if handle.stream.lock().follow(offset, end, size, most) {
            self.count(handle);
            self.push(Arc::downgrade(handle));
        }
    }

    pub fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.queue.clear();
        drop(state);
        self.changed.notify_all();
    }

    /// Divides the windows among the active readers.
    fn count(&self, handle: &Arc<Handle>) {
        let now = Instant::now();
        let mut state = self.state.lock();
        let it = Arc::downgrade(handle);
        state.recent.retain(|(other, at)| {
            !other.ptr_eq(&it) && now.duration_since(*at) < RECENT && other.strong_count() > 0
        });
        state.recent.push((it, now));
        let most = WINDOWS_BYTES / state.recent.len() as u64;
        self.window_bytes
            .store(most.clamp(SHARE_BYTES, WINDOW_MAX_BYTES), Ordering::Relaxed);
    }

    fn push(&self, handle: Weak<Handle>) {
        self.state.lock().queue.push_back(handle);
        self.changed.notify_one();
    }

    fn has_others(&self) -> bool {
        !self.state.lock().queue.is_empty()
    }

    /// Waits for a reader whose handle is open; None once closed.
    fn next(&self) -> Option<Arc<Handle>> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return None;
            }
            match state.queue.pop_front().map(|handle| handle.upgrade()) {
                Some(Some(handle)) => return Some(handle),
                Some(None) => {}
                None => self.changed.wait(&mut state),
            }
        }
    }
}

impl Engine {
    /// Waits until a sequential reader wants chunks that are not here, and returns them, nearest
    /// first. Returns None once the engine is closed. A chunk is named once: a call before its
    /// fetch is finished returns other chunks.
    pub fn next_ahead(&self) -> Option<Vec<Arc<ChunkRef>>> {
        loop {
            let handle = self.ahead.next()?;
            let mut chunks = Vec::new();
            loop {
                let (from, mut to, has_more, is_far) = handle.stream.lock().take();
                if is_far {
                    to = self.end_of_pack(handle.ino, to);
                    handle.stream.lock().named_to(to);
                }
                chunks.extend(self.absent_chunks(handle.ino, from, to));
                if !has_more {
                    break;
                }
                if self.ahead.has_others() {
                    self.ahead.push(Arc::downgrade(&handle));
                    break;
                }
            }
            if !chunks.is_empty() {
                return Some(chunks);
            }
        }
    }

    /// Up to where the bytes behind `at` lie in the same pack as those before it, a share further
    /// at most.
    fn end_of_pack(&self, ino: Ino, at: u64) -> u64 {
        let Ok(state) = self.read() else { return at };
        let Ok(content) = state.content(ino) else {
            return at;
        };
        let mut near = content.extents.overlapping(at - 1, at + SHARE_BYTES);
        let pack_of = |extent: &Extent| extent.chunk.as_ref().map(|chunk| chunk.pack);
        let Some(last) = near.next() else { return at };
        let pack = pack_of(last);
        near.take_while(|extent| pack.is_some() && pack_of(extent) == pack)
            .fold(last.end(), |_, extent| extent.end())
            .clamp(at, at + SHARE_BYTES)
    }

    /// Chunks between two offsets that have to be fetched; none of a file that is gone.
    pub fn absent_chunks(&self, ino: Ino, from: u64, to: u64) -> Vec<Arc<ChunkRef>> {
        let candidates: Vec<Arc<ChunkRef>> = {
            let Ok(state) = self.read() else {
                return Vec::new();
            };
            let Ok(content) = state.content(ino) else {
                return Vec::new();
            };
            content
                .extents
                .overlapping(from, to)
                .filter(|extent| readable_staged(&state, extent).is_none())
                .filter_map(|extent| extent.chunk.clone())
                .collect()
        };
        let mut absent: Vec<Arc<ChunkRef>> = Vec::new();
        for chunk in candidates {
            let is_named = absent.iter().any(|other| other.hash == chunk.hash);
            if !is_named && !self.cache.contains(&chunk.hash.0, chunk.raw_length.into()) {
                absent.push(chunk);
            }
        }
        absent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_window_grows_while_the_reader_goes_on() {
        let (mut stream, size) = (Stream::default(), 1 << 30);
        assert!(
            !stream.follow(0, 4096, size, WINDOW_MAX_BYTES),
            "a first read says little"
        );
        assert!(
            !stream.follow(0, 4096, size, WINDOW_MAX_BYTES),
            "the same one again is none of it"
        );
        assert!(stream.follow(4096, MIB, size, WINDOW_MAX_BYTES));
        assert_eq!(stream.take(), (MIB, 3 * MIB, false, false));
        let (mut at, mut farthest) = (MIB, 0);
        while at < 200 * MIB {
            if stream.follow(at, at + MIB, size, WINDOW_MAX_BYTES) {
                while stream.take().2 {}
            }
            at += MIB;
            farthest = farthest.max(stream.named - at);
            assert!(stream.named >= at + stream.window / 2 - MIB);
        }
        assert_eq!(farthest, WINDOW_MAX_BYTES);
    }

    #[test]
    fn a_jump_closes_it_and_the_end_bounds_it() {
        let (mut stream, size) = (Stream::default(), 100 * MIB);
        for number in 0..8 {
            stream.follow(number * MIB, (number + 1) * MIB, size, WINDOW_MAX_BYTES);
        }
        assert!(!stream.follow(50 * MIB, 50 * MIB + 4096, size, WINDOW_MAX_BYTES));
        assert_eq!((stream.window, stream.named), (0, 50 * MIB + 4096));
        stream.is_queued = false;
        assert!(!stream.follow(99 * MIB - 4096, 99 * MIB, size, WINDOW_MAX_BYTES));
        assert!(stream.follow(99 * MIB, 99 * MIB + 4096, size, WINDOW_MAX_BYTES));
        assert_eq!(stream.take(), (99 * MIB + 4096, size, false, false));
        assert!(!stream.follow(99 * MIB + 4096, size, size, WINDOW_MAX_BYTES));
    }

    #[test]
    fn several_readers_share_the_windows() {
        let (mut stream, size) = (Stream::default(), 1 << 30);
        let mut farthest = 0;
        for number in 0..300 {
            if stream.follow(number * MIB, (number + 1) * MIB, size, 20 * MIB) {
                while stream.take().2 {}
            }
            farthest = farthest.max(stream.named.saturating_sub((number + 1) * MIB));
        }
        assert_eq!(farthest, 20 * MIB);
    }

    #[test]
    fn requests_side_by_side_are_one_reader() {
        let (mut stream, size) = (Stream::default(), 100 * MIB);
        for number in [1, 0, 3, 2, 5, 4] {
            stream.follow(number * MIB, (number + 1) * MIB, size, WINDOW_MAX_BYTES);
        }
        assert!(stream.window > WINDOW_MIN_BYTES);
    }
}
