//! The memory that chunks come into: a slab is filled from its start and written to disk as it is.
//!
//! Memory of a slab is aligned and a multiple of a page, so that it can be written past the page
//! cache, and is used again, since fresh pages cost more than the bytes that are put into them. A
//! range is reserved by one thread, filled by that thread without a lock, and given out only after
//! `Fresh` (fresh.rs) has published it; it never changes afterwards.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

pub const PAGE: usize = 4096;
/// One that lies in two slabs would stay when the first is unmapped, half of it unused.
const HUGE_PAGE: usize = 2 << 20;

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
    size: usize,
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
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let mapped = unsafe { mmap_anonymous(null_mut(), size, protection, flags) };
        let Some(start) = mapped
            .ok()
            .and_then(|start| NonNull::new(start.cast::<u8>()))
        else {
            handle_alloc_error(Layout::from_size_align(size, PAGE).expect("a slab's size"))
        };
        if start.as_ptr().addr().is_multiple_of(HUGE_PAGE) && size >= HUGE_PAGE {
            // SAFETY: the mapping just made. It is as good without.
            let _ = unsafe { madvise(start.as_ptr().cast(), size, Advice::LinuxHugepage) };
        }
        slabs.0.fetch_add(size, Ordering::Relaxed);
        Slab {
            start,
            size,
            slabs: slabs.clone(),
        }
    }

    pub fn capacity(&self) -> usize {
        self.size
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
        // SAFETY: the mapping of `new`; nobody has a part of it any more. It fails for none.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
        self.slabs.0.fetch_sub(self.size, Ordering::Relaxed);
    }
}
