//! The entries of one directory: slots in the order they were made, and a hash index from names to slots.
//!
//! A slot's cookie never changes and cookies ascend with the slots, so a reader that goes on from a cookie sees every entry
//! that is there all the time exactly once, whatever comes and goes. Removing leaves a tombstone; when half of the slots are
//! tombstones they are squeezed out, cookies unchanged. Names lie in one allocation.

use cowfs_base::{Ino, ROOT_INO};
use hashbrown::HashTable;

use crate::row::NAME_MAX_BYTES;

/// Cookies 1 and 2 are "." and "..".
pub(crate) const FIRST_COOKIE: u64 = 3;

#[derive(Debug, Clone, Copy)]
struct Slot {
    /// 0: a tombstone.
    ino: Ino,
    cookie: u64,
    name_start: u32,
    name_length: u16,
}

/// One directory. Not resident: nothing is known about its entries.
#[derive(Debug)]
pub(crate) struct Directory {
    /// The directory it is in; 0 while not known (loaded by number, not yet through its parent).
    pub parent: Ino,
    pub is_resident: bool,
    next_cookie: u64,
    live: usize,
    dead_name_bytes: usize,
    names: Vec<u8>,
    slots: Vec<Slot>,
    index: HashTable<u32>,
}

fn hash_of(name: &[u8]) -> u64 {
    // FNV-1a, then a finaliser so that all bits depend on all bytes.
    let mut hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 29)
}

impl Directory {
    pub fn new(is_resident: bool) -> Directory {
        Directory {
            parent: 0,
            is_resident,
            next_cookie: FIRST_COOKIE,
            live: 0,
            dead_name_bytes: 0,
            names: Vec::new(),
            slots: Vec::new(),
            index: HashTable::new(),
        }
    }

    /// Makes room for exactly so many more entries and bytes of names.
    pub fn reserve(&mut self, entries: usize, name_bytes: usize) {
        self.slots.reserve_exact(entries);
        self.names.reserve_exact(name_bytes);
    }

    pub fn len(&self) -> usize {
        self.live
    }

    /// Names and slots are counted in 32 bits; a directory beyond that takes no more entries.
    pub fn has_room(&self) -> bool {
        self.names.len() < u32::MAX as usize - NAME_MAX_BYTES
            && self.slots.len() < u32::MAX as usize
    }

    pub fn get(&self, name: &[u8]) -> Option<Ino> {
        self.find(name).map(|slot| self.slots[slot as usize].ino)
    }

    /// Adds the entry, or lets an existing one (which keeps its cookie) name another inode.
    pub fn put(&mut self, name: &[u8], ino: Ino) {
        if let Some(slot) = self.find(name) {
            self.slots[slot as usize].ino = ino;
            return;
        }
        let slot = self.slots.len() as u32;
        let name_start = self.names.len() as u32;
        self.names.extend_from_slice(name);
        self.slots.push(Slot {
            ino,
            cookie: self.next_cookie,
            name_start,
            name_length: name.len() as u16,
        });
        self.next_cookie += 1;
        self.live += 1;
        let (slots, names) = (&self.slots, &self.names);
        self.index.insert_unique(hash_of(name), slot, |slot| {
            hash_of(name_of(slots, names, *slot))
        });
    }

    pub fn drop(&mut self, name: &[u8]) -> Option<Ino> {
        let (slots, names) = (&self.slots, &self.names);
        let entry = self
            .index
            .find_entry(hash_of(name), |slot| name_of(slots, names, *slot) == name)
            .ok()?;
        let (slot, _) = entry.remove();
        let ino = std::mem::replace(&mut self.slots[slot as usize].ino, 0);
        self.live -= 1;
        self.dead_name_bytes += name.len();
        if self.slots.len() > 32 && self.live * 2 < self.slots.len() {
            self.squeeze();
        }
        Some(ino)
    }

    /// Entries after the cookie, in cookie order.
    pub fn after(&self, cookie: u64) -> impl Iterator<Item = (&[u8], u64, Ino)> {
        let start = self.slots.partition_point(|slot| slot.cookie <= cookie);
        self.slots[start..]
            .iter()
            .filter(|slot| slot.ino != 0)
            .map(|slot| (slot_name(slot, &self.names), slot.cookie, slot.ino))
    }

    /// What ".." names.
    pub fn parent_or_root(&self) -> Ino {
        if self.parent == 0 {
            ROOT_INO
        } else {
            self.parent
        }
    }

    fn find(&self, name: &[u8]) -> Option<u32> {
        self.index
            .find(hash_of(name), |slot| {
                name_of(&self.slots, &self.names, *slot) == name
            })
            .copied()
    }

    fn squeeze(&mut self) {
        let mut names = Vec::with_capacity(self.names.len() - self.dead_name_bytes);
        self.slots.retain(|slot| slot.ino != 0);
        for slot in &mut self.slots {
            let start = names.len() as u32;
            names.extend_from_slice(slot_name(slot, &self.names));
            slot.name_start = start;
        }
        self.names = names;
        self.dead_name_bytes = 0;
        self.index.clear();
        let (slots, names) = (&self.slots, &self.names);
        for slot in 0..slots.len() as u32 {
            self.index
                .insert_unique(hash_of(name_of(slots, names, slot)), slot, |slot| {
                    hash_of(name_of(slots, names, *slot))
                });
        }
    }
}

fn slot_name<'a>(slot: &Slot, names: &'a [u8]) -> &'a [u8] {
    &names[slot.name_start as usize..][..usize::from(slot.name_length)]
}

fn name_of<'a>(slots: &[Slot], names: &'a [u8], slot: u32) -> &'a [u8] {
    slot_name(&slots[slot as usize], names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_survive_squeezing() {
        let mut directory = Directory::new(true);
        for number in 0..1000_u64 {
            directory.put(format!("name-{number}").as_bytes(), number + 10);
        }
        let before: Vec<_> = directory
            .after(0)
            .map(|(name, cookie, _)| (name.to_vec(), cookie))
            .collect();
        for number in (0..1000).filter(|number| number % 10 != 0) {
            assert_eq!(
                directory.drop(format!("name-{number}").as_bytes()),
                Some(number + 10)
            );
        }
        assert!(directory.slots.len() < 300, "tombstones are squeezed out");
        let after: Vec<_> = directory
            .after(0)
            .map(|(name, cookie, _)| (name.to_vec(), cookie))
            .collect();
        let kept: Vec<_> = before
            .iter()
            .filter(|entry| after.contains(entry))
            .cloned()
            .collect();
        assert_eq!(after, kept);
        assert_eq!(directory.len(), 100);
        assert_eq!(directory.get(b"name-990"), Some(1000));
        assert_eq!(directory.get(b"name-991"), None);
    }

    #[test]
    fn an_entry_that_changes_its_inode_keeps_its_cookie() {
        let mut directory = Directory::new(true);
        directory.put(b"a", 7);
        directory.put(b"b", 8);
        directory.put(b"a", 9);
        let entries: Vec<_> = directory
            .after(0)
            .map(|(name, cookie, ino)| (name.to_vec(), cookie, ino))
            .collect();
        assert_eq!(entries, [(b"a".to_vec(), 3, 9), (b"b".to_vec(), 4, 8)]);
    }
}
