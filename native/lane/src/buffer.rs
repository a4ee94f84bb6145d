//! The buffer of a read on its way to the kernel: one for each thread of the lane, and a few that
//! other threads share; used again and again.
//!
//! A fresh buffer of 1 MiB costs a page fault for each 4 KiB, and clearing it another pass over
//! the bytes. A used buffer is neither cleared nor freed, and stays in the core's cache. It holds
//! bytes of earlier reads, so its user must fill every byte that it sends. Where another server may
//! go on with the mount, it is locked (`pages`).

use std::cell::RefCell;
use std::io;
use std::ops::{Deref, DerefMut};

use cowfs_base::sync::Mutex;
use cowfs_engine::Lent;

use crate::device::MAX_WRITE_BYTES;
use crate::pages::Pages;

thread_local! {
    static SPARE: RefCell<Option<Pages>> = const { RefCell::new(None) };
}

/// The bytes that follow the message of an answer.
pub(crate) enum Data {
    Copied(ReadBuffer),
    Lent(Vec<Lent>),
}

/// As many threads as answer reads that waited for the store at once, on most machines.
const SHARED_MAX: usize = 4;
static SHARED: Mutex<Vec<Pages>> = Mutex::new(Vec::new());

/// Bytes that go back to their thread when dropped.
#[derive(Default)]
pub(crate) struct ReadBuffer {
    pages: Option<Pages>,
    length: usize,
}

impl ReadBuffer {
    /// A buffer of this length, MAX_WRITE_BYTES at most, with undefined content.
    pub fn take(length: usize, is_locked: bool) -> io::Result<ReadBuffer> {
        let spare = SPARE.take().or_else(|| SHARED.lock().pop());
        let fits = |pages: &Pages| pages.len() >= length && (pages.is_locked || !is_locked);
        let pages = match spare.filter(fits) {
            Some(pages) => pages,
            // Pages that are not locked take memory when they are used.
            None => Pages::new(MAX_WRITE_BYTES as usize, is_locked)?,
        };
        Ok(ReadBuffer {
            pages: Some(pages),
            length,
        })
    }

    pub fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

impl Default for Data {
    fn default() -> Data {
        Data::Copied(ReadBuffer::default())
    }
}

impl Data {
    pub fn len(&self) -> usize {
        self.parts().map(<[u8]>::len).sum()
    }

    /// The parts in order, none of them empty.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let (copied, lent): (Option<&[u8]>, &[Lent]) = match self {
            Data::Copied(data) => (Some(&**data), &[]),
            Data::Lent(parts) => (None, parts),
        };
        let lent = lent.iter().map(|part| &**part);
        copied
            .into_iter()
            .chain(lent)
            .filter(|part| !part.is_empty())
    }
}

/// For the many threads that answer a read only now and then: this thread's spare buffer goes to
/// the next such thread, or back to the heap.
pub(crate) fn share_spare() {
    let spare = SPARE.take();
    let mut shared = SHARED.lock();
    if shared.len() < SHARED_MAX {
        shared.extend(spare);
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        if let Some(pages) = self.pages.take() {
            // A thread that is ending has no use for it.
            let _ = SPARE.try_with(|spare| spare.replace(Some(pages)));
        }
    }
}

impl Deref for ReadBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.pages
            .as_ref()
            .map_or(&[], |pages| &pages[..self.length])
    }
}

impl DerefMut for ReadBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.pages
            .as_mut()
            .map_or(&mut [], |pages| &mut pages[..self.length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(length: usize, is_locked: bool) -> ReadBuffer {
        ReadBuffer::take(length, is_locked).unwrap()
    }

    #[test]
    fn a_buffer_is_used_again_unless_a_locked_one_is_asked_for() {
        let mut first = take(100, false);
        first[99] = 1;
        first.truncate(10);
        assert_eq!(first.len(), 10);
        let place = first.as_ptr();
        drop(first);
        let second = take(50, false);
        assert_eq!((second.as_ptr(), second.len()), (place, 50));
        assert_eq!(take(200, false).len(), 200, "the other one is in use");
        drop(second);
        assert!(SPARE.with_borrow(Option::is_some));
        share_spare();
        assert!(SPARE.with_borrow(Option::is_none));
        let by_another = std::thread::spawn(|| take(50, false).as_ptr() as usize);
        assert_eq!(by_another.join().unwrap(), place as usize);
        let mut locked = take(MAX_WRITE_BYTES as usize, true);
        assert!(locked.pages.as_ref().is_some_and(|pages| pages.is_locked));
        locked[MAX_WRITE_BYTES as usize - 1] = 1;
        assert!(ReadBuffer::default().is_empty());
    }
}
