//! Shared memory as words: the only unsafe code of the table.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::refused;

/// A mapping that others may write to.
pub(crate) struct Memory {
    start: NonNull<AtomicU64>,
    bytes: usize,
    touched: Vec<Range<usize>>,
}

// SAFETY: all access is atomic.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// A memfd of this size, zeros, that keeps its size.
pub(crate) fn allocate(bytes: usize) -> io::Result<OwnedFd> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name ends with a zero byte.
    let raw = unsafe { libc::memfd_create(c"cowfs-survival".as_ptr(), flags) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just made, and nobody else has it.
    let memory = unsafe { OwnedFd::from_raw_fd(raw) };
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    // SAFETY: no memory of ours is involved.
    let outcome = unsafe {
        match libc::ftruncate(raw, bytes as i64) {
            0 => libc::fcntl(raw, libc::F_ADD_SEALS, seals),
            failed => failed,
        }
    };
    match outcome {
        0 => Ok(memory),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The bytes between holes: a look at a page of a hole would take memory.
fn data_in(raw: RawFd, bytes: usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut end = 0;
    loop {
        // SAFETY: no memory is involved; nobody uses the descriptor's position.
        let (data, next) = unsafe {
            match libc::lseek(raw, end, libc::SEEK_DATA) {
                -1 => (-1, -1),
                data => (data, libc::lseek(raw, data, libc::SEEK_HOLE)),
            }
        };
        if next <= end {
            return found;
        }
        found.push((data as usize).min(bytes)..(next as usize).min(bytes));
        end = next;
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is its own, and no reference to it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

impl Memory {
    /// InvalidInput, with the reason, if it has another size or may lose it.
    pub fn map(memory: BorrowedFd<'_>, bytes: usize) -> io::Result<Memory> {
        let raw = memory.as_raw_fd();
        // SAFETY: fcntl and fstat touch no memory of ours but `found`, which is plain data.
        let (seals, status) = unsafe {
            let mut found: libc::stat = std::mem::zeroed();
            let seals = libc::fcntl(raw, libc::F_GET_SEALS);
            let failed = libc::fstat(raw, &mut found);
            (seals, (failed == 0).then_some(found))
        };
        let status = status.ok_or_else(io::Error::last_os_error)?;
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return Err(refused("its memory could shrink".into()));
        }
        if status.st_size != bytes as i64 {
            return Err(refused(format!(
                "it has {} bytes, not {bytes}",
                status.st_size
            )));
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let place = std::ptr::null_mut();
        // SAFETY: a new mapping at a place of the kernel's choice.
        let place = unsafe { libc::mmap(place, bytes, access, libc::MAP_SHARED, raw, 0) };
        if place == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Memory {
            start: NonNull::new(place.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            bytes,
            touched: data_in(raw, bytes),
        })
    }

    /// The slots of some words each from the word `first` on, of which there are `slots`, that were
    /// not in a hole when it was mapped: all others are zeros.
    pub fn touched(
        &self,
        first: usize,
        words: usize,
        slots: usize,
    ) -> impl DoubleEndedIterator<Item = usize> {
        let slot = move |byte: usize| (byte / 8).saturating_sub(first);
        let touched = self.touched.iter();
        let touched = touched.map(move |range| {
            let end = slot(range.end).div_ceil(words).min(slots);
            (slot(range.start) / words).min(end)..end
        });
        touched.flatten()
    }

    pub fn load(&self, word: usize) -> u64 {
        self.word(word).load(Ordering::Acquire)
    }

    pub fn store(&self, word: usize, value: u64) {
        self.word(word).store(value, Ordering::Release);
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        assert!(word < self.bytes / 8);
        // SAFETY: so many bytes are mapped until it is dropped, and cannot go: the size is sealed.
        unsafe { &*self.start.as_ptr().add(word) }
    }
}
