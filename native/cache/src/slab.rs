//! The memory that chunks come into: a slab is filled from its start and written to disk as it is.
//!
//! Memory of a slab is aligned and a multiple of a page, so that it can be written past the page
//! cache, and is used again, since fresh pages cost more than the bytes that are put into them. A
//! range is reserved by one thread, filled by that thread without a lock, and given out only after
//! `Fresh` (fresh.rs) has published it; it never changes afterwards.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub const PAGE: usize = 4096;

/// How much memory slabs have, whoever holds them.
#[derive(Default)]
pub struct Slabs(AtomicUsize);

impl Slabs {
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Page-aligned bytes that are shared between the threads that fill and read ranges of them.
pub struct Slab {
    start: NonNull<u8>,
    layout: Layout,
    slabs: Arc<Slabs>,
}

// SAFETY: the memory is owned, and who may touch which range when is the contract of `fill` and
// `range`.
unsafe impl Send for Slab {}
// SAFETY: as above.
unsafe impl Sync for Slab {}

impl Slab {
    /// Room for at least this many bytes.
    pub fn new(capacity: usize, slabs: &Arc<Slabs>) -> Slab {
        let size = capacity.next_multiple_of(PAGE).max(PAGE);
        let layout = Layout::from_size_align(size, PAGE).expect("a slab's size");
        // SAFETY: the layout's size is not zero.
        let Some(start) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        slabs.0.fetch_add(size, Ordering::Relaxed);
        Slab {
            start,
            layout,
            slabs: slabs.clone(),
        }
    }

    pub fn capacity(&self) -> usize {
        self.layout.size()
    }

    /// Copies bytes to a place.
    ///
    /// # Safety
    /// The range was reserved by the caller and has not been published.
    pub unsafe fn fill(&self, at: usize, data: &[u8]) {
        assert!(at + data.len() <= self.capacity());
        // SAFETY: the range lies in the slab, and nobody else touches it.
        unsafe {
            let to = self.start.as_ptr().add(at);
            std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len());
        }
    }

    /// The bytes of a range.
    ///
    /// # Safety
    /// Every range that was reserved in it has been published, and none of it is filled again while
    /// the bytes are used.
    pub unsafe fn range(&self, at: usize, length: usize) -> &[u8] {
        assert!(at + length <= self.capacity());
        // SAFETY: the range lies in the slab, is initialised, and is not written to any more.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(at), length) }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
        self.slabs
            .0
            .fetch_sub(self.layout.size(), Ordering::Relaxed);
    }
}
