//! Memory into which the kernel copies requests, and from which it copies the bytes of reads.
//!
//! In a process that is being killed no page can be brought in: the copy fails, and the request's
//! caller gets EIO, although another server goes on with the mount. So where one may
//! (`Options::table`), this memory is written once and locked when it is made. If the limit of
//! locked memory (RLIMIT_MEMLOCK) forbids that, it is only written. Memory of others, which a reply
//! is sent from, is brought in before (`bring_in`).

use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

const PAGE_BYTES: usize = 4096;

/// Bytes, zeros at first.
pub(crate) struct Pages {
    start: NonNull<u8>,
    length: usize,
    pub is_locked: bool,
}

// SAFETY: it owns its pages, and gives access to them as a Vec<u8> does.
unsafe impl Send for Pages {}

impl Pages {
    /// is_locked: all its pages stay in memory from now on.
    pub fn new(length: usize, is_locked: bool) -> io::Result<Pages> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new pages at a place of the kernel's choice.
        let place = unsafe { libc::mmap(std::ptr::null_mut(), length, access, kind, -1, 0) };
        if place == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(place.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        if is_locked {
            // SAFETY: the pages were mapped above and are used by nothing else yet. Huge pages may
            // be taken apart and moved; after a fork each page would be copied at its next write.
            unsafe {
                libc::madvise(place, length, libc::MADV_NOHUGEPAGE);
                libc::madvise(place, length, libc::MADV_DONTFORK);
                start.as_ptr().write_bytes(0, length);
                libc::mlock(place, length);
            }
        }
        Ok(Pages {
            start,
            length,
            is_locked,
        })
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: so many bytes are mapped until it is dropped, zeros where nothing was written.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`; the only reference is `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the pages are its own, and no reference to them is left. This unlocks them, too.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Brings the pages of these bytes in. Those that lie in no swap are here already.
pub(crate) fn bring_in(bytes: &[u8]) {
    let first = bytes.as_ptr() as usize & !(PAGE_BYTES - 1);
    let length = bytes.as_ptr() as usize + bytes.len() - first;
    // SAFETY: it changes no byte, and all bytes are in mapped pages. A kernel that sends requests
    // again knows it.
    unsafe { libc::madvise(first as *mut _, length, libc::MADV_POPULATE_READ) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of the pages from `start` on that are in memory.
    fn present(bytes: &[u8]) -> usize {
        let mut pages = vec![0; bytes.len().div_ceil(PAGE_BYTES)];
        let start = bytes.as_ptr().cast_mut().cast();
        // SAFETY: the kernel writes one byte for each page of memory that is mapped.
        let asked = unsafe { libc::mincore(start, bytes.len(), pages.as_mut_ptr()) };
        assert_eq!(asked, 0);
        pages.iter().filter(|page| **page & 1 == 1).count() * PAGE_BYTES
    }

    #[test]
    fn locked_pages_are_in_memory_before_they_are_used() {
        const LENGTH: usize = 1 << 20;
        let plain = Pages::new(LENGTH, false).unwrap();
        assert_eq!(present(&plain), 0);
        let mut bytes = Pages::new(LENGTH, true).unwrap();
        assert_eq!(present(&bytes), LENGTH);
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes[LENGTH - 1] = 7;
        bring_in(&plain[100..5000]);
        assert_eq!(present(&plain), 2 * PAGE_BYTES);
        let moved = std::thread::spawn(move || bytes[LENGTH - 1]);
        assert_eq!(moved.join().unwrap(), 7);
    }
}
