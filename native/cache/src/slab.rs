//! The memory that chunks come into: a slab is filled from its start and written to disk as it is.
//!
//! Memory of a slab is aligned and a multiple of a page, so that it can be written past the page
//! cache, and is used again, since fresh pages cost more than the bytes that are put into them. A
//! range is reserved by one thread, filled by that thread without a lock, and given out only after
//! `Fresh` (fresh.rs) has published it; it never changes afterwards.

use std::alloc::{Layout, handle_alloc_error};
use std::mem::{ManuallyDrop, take};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

pub const PAGE: usize = 4096;
/// A huge page shared by two slabs would stay when the first is unmapped, half of it unused.
const HUGE_PAGE: usize = 2 << 20;
/// How many slabs' memory is kept for reuse: as many as are dropped while one is filled.
const SPARE_MAX: usize = 4;

/// The memory of all slabs: in use, and spare.
#[derive(Default)]
pub struct Slabs {
    bytes: AtomicUsize,
    /// Memory of dropped slabs.
    spare: Mutex<Vec<Mapping>>,
}

impl Slabs {
    /// With the spare memory.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A slab of spare memory, of just this capacity.
    pub fn take(self: &Arc<Slabs>, capacity: usize) -> Option<Slab> {
        let mut spare = self.spare();
        let fits = |mapping: &Mapping| mapping.size == size_of(capacity);
        let place = spare.iter().position(fits)?;
        Some(Slab {
            memory: ManuallyDrop::new(spare.swap_remove(place)),
            slabs: self.clone(),
        })
    }

    /// Gives spare memory back to the system; whether there was any.
    pub fn clear(&self) -> bool {
        let spare = take(&mut *self.spare());
        for mapping in &spare {
            self.bytes.fetch_sub(mapping.size, Ordering::Relaxed);
        }
        !spare.is_empty()
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Mapping>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pages of our own.
struct Mapping {
    start: NonNull<u8>,
    size: usize,
}

// SAFETY: the memory is owned. The contract of `Slab::fill` and `Slab::range` says which thread may
// touch which range and when.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(size: usize) -> Mapping {
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
        Mapping { start, size }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping of `new`, and no reference into it is left. The call cannot
        // fail.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.size) };
    }
}

/// Page-aligned bytes that are shared between the threads that fill and read ranges of them.
pub struct Slab {
    memory: ManuallyDrop<Mapping>,
    slabs: Arc<Slabs>,
}

impl Slab {
    /// Fresh memory with room for at least this many bytes.
    pub fn new(capacity: usize, slabs: &Arc<Slabs>) -> Slab {
        let memory = Mapping::new(size_of(capacity));
        slabs.bytes.fetch_add(memory.size, Ordering::Relaxed);
        Slab {
            memory: ManuallyDrop::new(memory),
            slabs: slabs.clone(),
        }
    }

    pub fn capacity(&self) -> usize {
        self.memory.size
    }

    /// Copies bytes to a place.
    ///
    /// # Safety
    /// The range was reserved by the caller and has not been published.
    pub unsafe fn fill(&self, at: usize, data: &[u8]) {
        assert!(at + data.len() <= self.capacity());
        // SAFETY: the range lies in the slab, and no other thread touches it.
        unsafe {
            let to = self.memory.start.as_ptr().add(at);
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
        unsafe { std::slice::from_raw_parts(self.memory.start.as_ptr().add(at), length) }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: it is not used behind this.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        let mut spare = self.slabs.spare();
        if spare.len() < SPARE_MAX {
            spare.push(memory);
        } else {
            self.slabs.bytes.fetch_sub(memory.size, Ordering::Relaxed);
        }
    }
}

fn size_of(capacity: usize) -> usize {
    capacity.next_multiple_of(PAGE).max(PAGE)
}
