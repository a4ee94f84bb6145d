//! The survival table of a mount: what its next server must know of the kernel's connection, and
//! what is neither in the journal nor in requests.
//!
//! It is shared memory (a memfd). Whoever keeps the device for the next server keeps it, too. It
//! outlives processes, never the machine, as the connection does. `docs/format/journal.md` has the
//! layout. A change is a store, no system call.
//!
//! The memory cannot shrink while it is mapped (a seal, which `open` demands). Its content may be
//! anything: numbers are checked where they are read, and slots are counted by the layout alone.
//!
//! Threads: one lock for the slots; readers of the content need none.

mod memory;

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use cowfs_base::sync::Mutex;
use cowfs_base::{Ino, LAST_INO};

use crate::memory::Memory;

const MAGIC: u64 = u64::from_le_bytes(*b"cowfssrv");
const FORMAT: u64 = 1;
/// Words of the header.
const AT_MAGIC: usize = 0;
const AT_FORMAT: usize = 1;
const AT_CONNECTION: usize = 2;
const AT_HANDSHAKE: usize = 3;
const AT_HAS_HANDSHAKE: usize = 7;
const AT_LACKS_HANDLES: usize = 8;
/// The first slot of a handle: two words, the handle and its inode.
const AT_HANDLES: usize = 512;
/// Slots for handles. Memory is taken for those in use.
const HANDLES: usize = 1 << 20;
/// The slot of attachment 0, which has none: its generation, then its id.
const AT_ATTACHMENTS: usize = AT_HANDLES + 2 * HANDLES;
const ATTACHMENT_WORDS: usize = 1 + ID_BYTES / 8;
const ATTACHMENTS: usize = 1 << 16;
const ID_BYTES: usize = 32;
/// The size of a table.
pub const TABLE_BYTES: usize = (AT_ATTACHMENTS + ATTACHMENT_WORDS * ATTACHMENTS) * 8;

/// What a mount shows beside its volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attachment {
    /// Not 0. It is in the numbers of its inodes.
    pub number: u16,
    /// Not 0. Entries of its inodes have it.
    pub generation: u32,
    /// Which version it is.
    pub id: [u8; ID_BYTES],
}

/// One mount's table.
pub struct Table {
    memory: Memory,
    slots: Mutex<Slots>,
}

#[derive(Default)]
struct Slots {
    by_handle: HashMap<(Ino, u64), usize>,
    free: Vec<usize>,
    /// From here on all are free.
    end: usize,
}

impl Table {
    /// New memory for a table.
    pub fn allocate() -> io::Result<OwnedFd> {
        memory::allocate(TABLE_BYTES)
    }

    /// Maps a table, and begins it if all of it is zeros. connection: the number it gets then:
    /// random, not 0. InvalidInput, with the reason, for anything else.
    pub fn open(memory: BorrowedFd<'_>, connection: u64) -> io::Result<Table> {
        let memory = Memory::map(memory, TABLE_BYTES)?;
        let table = Table {
            memory,
            slots: Mutex::default(),
        };
        match (table.load(AT_MAGIC), table.load(AT_FORMAT)) {
            (0, 0) => {
                table.store(AT_CONNECTION, connection);
                table.store(AT_FORMAT, FORMAT);
                table.store(AT_MAGIC, MAGIC);
            }
            (0 | MAGIC, FORMAT) => table.store(AT_MAGIC, MAGIC),
            (MAGIC, format) => return Err(refused(format!("its format is {format}"))),
            _ => return Err(refused("it is no survival table".into())),
        }
        if table.connection() == 0 {
            return Err(refused("it has no connection".into()));
        }
        table.find_handles();
        Ok(table)
    }

    fn find_handles(&self) {
        let mut slots = self.slots.lock();
        let touched = || self.memory.touched(AT_HANDLES, 2, HANDLES);
        let mut is_used = |slot: usize| {
            let handle = self.handle_at(slot);
            handle.is_some_and(|handle| slots.by_handle.insert(handle, slot).is_none())
        };
        let free = touched().filter(|slot| !is_used(*slot)).collect();
        // Slots are taken from the front.
        let end = touched().next_back().map_or(0, |last| last + 1);
        (slots.free, slots.end) = (free, end);
    }

    /// The connection's number.
    pub fn connection(&self) -> u64 {
        self.load(AT_CONNECTION)
    }

    // -- the handshake

    /// What kernel and server agreed on; None: the kernel has not got an answer.
    pub fn handshake(&self) -> Option<[u64; 4]> {
        let is_there = self.load(AT_HAS_HANDSHAKE) == 1;
        is_there.then(|| std::array::from_fn(|at| self.load(AT_HANDSHAKE + at)))
    }

    /// Call it before the kernel gets the answer.
    pub fn set_handshake(&self, agreed: [u64; 4]) {
        for (at, number) in agreed.into_iter().enumerate() {
            self.store(AT_HANDSHAKE + at, number);
        }
        self.store(AT_HAS_HANDSHAKE, 1);
    }

    // -- handles of directories, and of files for reading and writing

    /// A file is open. If it is in the table already, nothing changes.
    pub fn add_handle(&self, ino: Ino, fh: u64) {
        let mut slots = self.slots.lock();
        if slots.by_handle.contains_key(&(ino, fh)) {
            return;
        }
        let slot = slots.free.pop().unwrap_or(slots.end);
        if slot == HANDLES {
            self.store(AT_LACKS_HANDLES, 1);
            return;
        }
        slots.end = slots.end.max(slot + 1);
        slots.by_handle.insert((ino, fh), slot);
        self.store(AT_HANDLES + 2 * slot, fh);
        self.store(AT_HANDLES + 2 * slot + 1, ino);
    }

    /// A file is closed.
    pub fn remove_handle(&self, ino: Ino, fh: u64) {
        let mut slots = self.slots.lock();
        if let Some(slot) = slots.by_handle.remove(&(ino, fh)) {
            self.store(AT_HANDLES + 2 * slot + 1, 0);
            slots.free.push(slot);
        }
    }

    /// (inode, handle) of each, in no order.
    pub fn handles(&self) -> Vec<(Ino, u64)> {
        self.slots.lock().by_handle.keys().copied().collect()
    }

    /// Whether each handle has had a slot.
    pub fn has_all_handles(&self) -> bool {
        self.load(AT_LACKS_HANDLES) == 0
    }

    fn handle_at(&self, slot: usize) -> Option<(Ino, u64)> {
        let fh = self.load(AT_HANDLES + 2 * slot);
        let ino = self.load(AT_HANDLES + 2 * slot + 1);
        (1..=LAST_INO).contains(&ino).then_some((ino, fh))
    }

    // -- attachments

    /// The kernel is about to refer to something that the mount shows. Threads that add the same at
    /// once never take it away from each other.
    pub fn add_attachment(&self, attachment: &Attachment) {
        match self.attachment(attachment.number.into()) {
            Some(known) if known == *attachment => return,
            Some(_) => self.remove_attachment(attachment.number),
            None => {}
        }
        let at = attachment_at(attachment.number);
        for (word, bytes) in attachment.id.as_chunks::<8>().0.iter().enumerate() {
            self.store(at + 1 + word, u64::from_le_bytes(*bytes));
        }
        self.store(at, attachment.generation.into());
    }

    /// The number is free. Call it only when the kernel refers to nothing of the attachment.
    pub fn remove_attachment(&self, number: u16) {
        self.store(attachment_at(number), 0);
    }

    /// Those that an earlier server of the connection has added, ascending. Call it before others
    /// are.
    pub fn attachments(&self) -> Vec<Attachment> {
        let touched = self
            .memory
            .touched(AT_ATTACHMENTS, ATTACHMENT_WORDS, ATTACHMENTS);
        let mut all: Vec<Attachment> = touched.filter_map(|slot| self.attachment(slot)).collect();
        // A slot may lie in two pages.
        all.dedup();
        all
    }

    fn attachment(&self, slot: usize) -> Option<Attachment> {
        let number = u16::try_from(slot).ok().filter(|number| *number != 0)?;
        let at = attachment_at(number);
        let generation = u32::try_from(self.load(at)).ok()?;
        let mut id = [0; ID_BYTES];
        for (word, bytes) in id.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *bytes = self.load(at + 1 + word).to_le_bytes();
        }
        (generation != 0).then_some(Attachment {
            number,
            generation,
            id,
        })
    }

    fn load(&self, word: usize) -> u64 {
        u64::from_le(self.memory.load(word))
    }

    fn store(&self, word: usize, value: u64) {
        self.memory.store(word, value.to_le());
    }
}

fn attachment_at(number: u16) -> usize {
    AT_ATTACHMENTS + ATTACHMENT_WORDS * usize::from(number)
}

fn refused(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd, FromRawFd};

    use super::*;

    fn write(memory: &OwnedFd, word: usize, value: u64) {
        let file = std::fs::File::from(memory.try_clone().unwrap());
        let bytes = value.to_le_bytes();
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes, word as u64 * 8).unwrap();
    }

    fn reason(memory: &OwnedFd) -> String {
        let opened = Table::open(memory.as_fd(), 1);
        opened.map(drop).unwrap_err().to_string()
    }

    #[test]
    fn the_next_server_finds_what_was_stored() {
        let memory = Table::allocate().unwrap();
        let first = Table::open(memory.as_fd(), 5).unwrap();
        assert_eq!((first.connection(), first.handshake()), (5, None));
        first.set_handshake([1, 2, 3, 4]);
        for ino in 1..1000 {
            first.add_handle(ino, ino * 8 + 2);
            first.add_handle(ino, ino * 8 + 2);
        }
        for ino in 1..990 {
            first.remove_handle(ino, ino * 8 + 2);
        }
        first.remove_handle(995, 1);
        drop(first);
        let second = Table::open(memory.as_fd(), 6).unwrap();
        assert_eq!(second.connection(), 5);
        assert_eq!(second.handshake(), Some([1, 2, 3, 4]));
        let mut handles = second.handles();
        handles.sort_unstable();
        let wanted: Vec<(Ino, u64)> = (990..1000).map(|ino| (ino, ino * 8 + 2)).collect();
        assert_eq!(handles, wanted);
        second.remove_handle(990, 990 * 8 + 2);
        second.add_handle(7, 7);
        let third = Table::open(memory.as_fd(), 6).unwrap();
        assert_eq!(third.handles().len(), 10);
        assert!(third.handles().contains(&(7, 7)) && third.has_all_handles());
    }

    #[test]
    fn handles_without_a_slot_are_known_to_be_missing() {
        let memory = Table::allocate().unwrap();
        let table = Table::open(memory.as_fd(), 5).unwrap();
        for fh in 0..HANDLES as u64 {
            table.add_handle(1, fh);
        }
        assert!(table.has_all_handles());
        table.add_handle(2, 0);
        table.remove_handle(2, 0);
        assert!(!table.has_all_handles());
        let next = Table::open(memory.as_fd(), 5).unwrap();
        assert!(!next.has_all_handles());
        assert_eq!(next.handles().len(), HANDLES);
    }

    #[test]
    fn attachments_keep_their_numbers_until_they_are_removed() {
        let memory = Table::allocate().unwrap();
        let table = Table::open(memory.as_fd(), 5).unwrap();
        table.add_handle(1, 2);
        let attachment = |number: u16, byte| Attachment {
            number,
            generation: u32::MAX - u32::from(number),
            id: std::array::from_fn(|at| byte + at as u8),
        };
        let numbers = (1..=300).chain([30_000, u16::MAX]);
        let all: Vec<Attachment> = numbers.map(|number| attachment(number, 1)).collect();
        all.iter().for_each(|it| table.add_attachment(it));
        table.add_attachment(&attachment(9, 7));
        table.remove_attachment(10);
        let next = Table::open(memory.as_fd(), 6).unwrap();
        let mut wanted = all;
        wanted[8] = attachment(9, 7);
        wanted.remove(9);
        assert_eq!(next.attachments(), wanted);
        assert_eq!(next.handles(), [(1, 2)]);
    }

    #[test]
    fn impossible_content_is_refused_or_left_out() {
        let memory = Table::allocate().unwrap();
        write(&memory, AT_MAGIC, 1);
        assert!(reason(&memory).contains("no survival table"));
        write(&memory, AT_MAGIC, MAGIC);
        write(&memory, AT_FORMAT, 2);
        assert!(reason(&memory).contains("format is 2"));
        write(&memory, AT_FORMAT, FORMAT);
        assert!(reason(&memory).contains("no connection"));
        write(&memory, AT_CONNECTION, 9);
        for (slot, ino) in [(0, LAST_INO + 1), (1, 3), (2, 3), (HANDLES - 1, u64::MAX)] {
            write(&memory, AT_HANDLES + 2 * slot, 10);
            write(&memory, AT_HANDLES + 2 * slot + 1, ino);
        }
        write(&memory, AT_HAS_HANDSHAKE, 7);
        write(&memory, attachment_at(0), 1);
        write(&memory, attachment_at(1), 1 << 32);
        let table = Table::open(memory.as_fd(), 1).unwrap();
        assert_eq!((table.handles(), table.handshake()), (vec![(3, 10)], None));
        assert_eq!(table.attachments(), []);
        table.add_handle(4, 2);
        assert_eq!(table.handles().len(), 2);
    }

    #[test]
    fn memory_that_could_shrink_is_refused() {
        let short = memory::allocate(TABLE_BYTES - 1).unwrap();
        assert!(reason(&short).contains("bytes"));
        // SAFETY: a call without memory of ours but a name.
        let plain = unsafe { libc::memfd_create(c"table".as_ptr(), 0) };
        // SAFETY: it was just made.
        let plain = unsafe { OwnedFd::from_raw_fd(plain) };
        // SAFETY: no memory is involved.
        unsafe { libc::ftruncate(plain.as_raw_fd(), TABLE_BYTES as i64) };
        assert!(reason(&plain).contains("shrink"));
    }
}
