//! The buffer of a read on its way to the kernel: one for each thread of the lane, and a few that
//! other threads share; used again and again.
//!
//! A fresh buffer of 1 MiB costs a page fault for each 4 KiB, and clearing it another pass over
//! the bytes. A used buffer is neither cleared nor freed, and stays in the core's cache. It holds
//! bytes of earlier reads, so its user must fill every byte that it sends.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use cowfs_base::sync::Mutex;
use cowfs_engine::Lent;

thread_local! {
    static SPARE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The bytes that follow the message of an answer.
pub(crate) enum Data {
    Copied(ReadBuffer),
    Lent(Vec<Lent>),
}

/// As many threads as answer reads that waited for the store at once, on most machines.
const SHARED_MAX: usize = 4;
static SHARED: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Bytes that go back to their thread when dropped.
#[derive(Default)]
pub(crate) struct ReadBuffer {
    bytes: Vec<u8>,
    length: usize,
}

impl ReadBuffer {
    /// A buffer of this length, with undefined content.
    pub fn take(length: usize) -> ReadBuffer {
        let mut bytes = SPARE.take();
        if bytes.is_empty() {
            bytes = SHARED.lock().pop().unwrap_or_default();
        }
        if bytes.len() < length {
            bytes.resize(length, 0);
        }
        ReadBuffer { bytes, length }
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
    let bytes = SPARE.take();
    let mut shared = SHARED.lock();
    if !bytes.is_empty() && shared.len() < SHARED_MAX {
        shared.push(bytes);
    }
}

impl Drop for ReadBuffer {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if !bytes.is_empty() {
            // A thread that is ending has no use for it.
            let _ = SPARE.try_with(|spare| spare.replace(bytes));
        }
    }
}

impl Deref for ReadBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl DerefMut for ReadBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again() {
        let mut first = ReadBuffer::take(100);
        first[99] = 1;
        first.truncate(10);
        assert_eq!(first.len(), 10);
        let place = first.as_ptr();
        drop(first);
        let second = ReadBuffer::take(50);
        assert_eq!((second.as_ptr(), second.len()), (place, 50));
        assert_eq!(ReadBuffer::take(200).len(), 200, "the other one is in use");
        drop(second);
        assert!(SPARE.with_borrow(|spare| !spare.is_empty()));
        share_spare();
        assert!(SPARE.with_borrow(Vec::is_empty));
        let by_another = std::thread::spawn(move || ReadBuffer::take(50).as_ptr() as usize);
        assert_eq!(by_another.join().unwrap(), place as usize);
    }
}
