//! The entries of one directory: slots in the order they were made, and a hash index from names to
//! slots.
//!
//! A slot's cookie never changes and cookies ascend with the slots. So a reader that goes on from a
//! cookie sees every entry that is there all the time exactly once, while others come and go. A
//! reader stops at the cookie that was next when it began (`listing`), so every listing ends. An
//! entry that is renamed within the directory keeps its slot: `put` gives it the one that the same
//! inode has just left. One that is renamed onto another gives its inode to the slot of that name,
//! which was there all the time and has to be listed; a reader between the two slots gets the inode
//! under both names.
//!
//! Removing leaves a tombstone. When half of the slots are tombstones, or half of the names are
//! dead, the table is compacted. From then on each entry stores its readdir cookie; before that,
//! the cookie is the slot number.
//!
//! An entry takes 12 bytes, 5 of a hash table that is about half full, and its name with a byte for
//! its length. Names lie in one allocation.

use std::hash::BuildHasher;
use std::sync::LazyLock;

use cowfs_base::{Ino, ROOT_INO};
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::row::NAME_MAX_BYTES;

/// Cookies 1 and 2 are "." and "..".
pub(crate) const FIRST_COOKIE: u64 = 3;

const NOTHING_LEFT: (u32, Ino) = (u32::MAX, 0);
/// Fewer dead bytes than this are not worth compacting for.
const DEAD_NAME_BYTES: usize = 4096;

/// One directory. Not resident: its entries are unknown.
#[derive(Debug)]
pub(crate) struct Directory {
    /// The directory it is in; 0 while not known (loaded by number, not yet through its parent).
    pub parent: Ino,
    pub is_resident: bool,
    next_cookie: u64,
    live: usize,
    dead_name_bytes: usize,
    /// The slot that the last change left, and the inode it named; slot u32::MAX: none.
    left: (u32, Ino),
    /// Each with its length in front.
    names: Vec<u8>,
    /// By slot; 0: a tombstone.
    inos: Vec<Ino>,
    /// The place of the name, by slot.
    starts: Vec<u32>,
    /// By slot, all of them; empty: slot n has cookie n + FIRST_COOKIE.
    cookies: Vec<u64>,
    index: HashTable<u32>,
}

/// Each process has a key of its own: the author of a version cannot choose names that collide.
fn hash_of(name: &[u8]) -> u64 {
    static KEY: LazyLock<DefaultHashBuilder> = LazyLock::new(DefaultHashBuilder::default);
    KEY.hash_one(name)
}

fn name_at(names: &[u8], start: u32) -> &[u8] {
    let start = start as usize;
    &names[start + 1..][..usize::from(names[start])]
}

impl Directory {
    pub fn new(is_resident: bool) -> Directory {
        Directory {
            parent: 0,
            is_resident,
            next_cookie: FIRST_COOKIE,
            live: 0,
            dead_name_bytes: 0,
            left: NOTHING_LEFT,
            names: Vec::new(),
            inos: Vec::new(),
            starts: Vec::new(),
            cookies: Vec::new(),
            index: HashTable::new(),
        }
    }

    /// Makes room for exactly so many more entries and bytes of names.
    pub fn reserve(&mut self, entries: usize, name_bytes: usize) {
        self.inos.reserve_exact(entries);
        self.starts.reserve_exact(entries);
        self.names.reserve_exact(name_bytes + entries);
        let (starts, names) = (&self.starts, &self.names);
        self.index.reserve(entries, |slot| {
            hash_of(name_at(names, starts[*slot as usize]))
        });
    }

    pub fn len(&self) -> usize {
        self.live
    }

    /// Forgets the entries, not where the directory is.
    pub fn forget(&mut self) {
        *self = Directory {
            parent: self.parent,
            ..Directory::new(false)
        };
    }

    /// About what the entries take.
    pub fn bytes(&self) -> usize {
        size_of::<Directory>()
            + self.names.capacity()
            + self.inos.capacity() * size_of::<Ino>()
            + self.starts.capacity() * size_of::<u32>()
            + self.cookies.capacity() * size_of::<u64>()
            + self.index.capacity() * (size_of::<u32>() + 1)
    }

    /// Names and slots are counted in 32 bits; a directory beyond that takes no more entries.
    pub fn has_room(&self) -> bool {
        self.has_room_for(NAME_MAX_BYTES + 1)
    }

    /// Whether so many more bytes of names can be counted, each name with a byte for its length.
    pub fn has_room_for(&self, name_bytes: usize) -> bool {
        self.names.len().saturating_add(name_bytes) < u32::MAX as usize
    }

    pub fn get(&self, name: &[u8]) -> Option<Ino> {
        self.find(name).map(|slot| self.inos[slot as usize])
    }

    /// Adds the entry, or lets an existing one (which keeps its cookie) name another inode.
    pub fn put(&mut self, name: &[u8], ino: Ino) {
        debug_assert!(name.len() <= NAME_MAX_BYTES && ino != 0);
        let left = std::mem::replace(&mut self.left, NOTHING_LEFT);
        if let Some(slot) = self.find(name) {
            self.inos[slot as usize] = ino;
            return;
        }
        let start = self.names.len() as u32;
        let slot = if left.1 == ino {
            self.starts[left.0 as usize] = start;
            self.inos[left.0 as usize] = ino;
            left.0
        } else {
            self.add_slot(start, ino)
        };
        self.names.push(name.len() as u8);
        self.names.extend_from_slice(name);
        self.live += 1;
        let (starts, names) = (&self.starts, &self.names);
        self.index.insert_unique(hash_of(name), slot, |slot| {
            hash_of(name_at(names, starts[*slot as usize]))
        });
    }

    fn add_slot(&mut self, start: u32, ino: Ino) -> u32 {
        let slot = self.inos.len() as u32;
        self.starts.push(start);
        self.inos.push(ino);
        if self.next_cookie != u64::from(slot) + FIRST_COOKIE {
            self.cookies.push(self.next_cookie);
        }
        self.next_cookie += 1;
        slot
    }

    pub fn drop(&mut self, name: &[u8]) -> Option<Ino> {
        // Before the entry goes, so that its slot can be taken up again.
        let is_sparse = self.inos.len() > 32 && self.live * 2 < self.inos.len();
        let are_names_dead = self.dead_name_bytes > self.names.len() / 2 + DEAD_NAME_BYTES;
        if is_sparse || are_names_dead {
            self.squeeze();
        }
        let (starts, names) = (&self.starts, &self.names);
        let entry = self
            .index
            .find_entry(hash_of(name), |slot| {
                name_at(names, starts[*slot as usize]) == name
            })
            .ok()?;
        let (slot, _) = entry.remove();
        let ino = std::mem::replace(&mut self.inos[slot as usize], 0);
        self.live -= 1;
        self.dead_name_bytes += name.len() + 1;
        self.left = (slot, ino);
        Some(ino)
    }

    /// The cookie that the next new entry gets; every entry of now has a smaller one.
    pub fn next_cookie(&self) -> u64 {
        self.next_cookie
    }

    /// Entries after the cookie, in cookie order.
    pub fn after(&self, cookie: u64) -> impl Iterator<Item = (&[u8], u64, Ino)> {
        let first = if self.cookies.is_empty() {
            usize::try_from(cookie.saturating_add(1).saturating_sub(FIRST_COOKIE))
                .unwrap_or(usize::MAX)
        } else {
            self.cookies.partition_point(|known| *known <= cookie)
        };
        (first.min(self.inos.len())..self.inos.len())
            .filter(|slot| self.inos[*slot] != 0)
            .map(|slot| {
                let name = name_at(&self.names, self.starts[slot]);
                (name, self.cookie(slot), self.inos[slot])
            })
    }

    fn cookie(&self, slot: usize) -> u64 {
        match self.cookies.get(slot) {
            Some(cookie) => *cookie,
            None => slot as u64 + FIRST_COOKIE,
        }
    }

    /// The inode of "..".
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
                name_at(&self.names, self.starts[*slot as usize]) == name
            })
            .copied()
    }

    fn squeeze(&mut self) {
        let kept: Vec<usize> = (0..self.inos.len())
            .filter(|slot| self.inos[*slot] != 0)
            .collect();
        let mut names = Vec::with_capacity(self.names.len() - self.dead_name_bytes);
        let starts = kept.iter().map(|slot| {
            let (start, name) = (names.len() as u32, name_at(&self.names, self.starts[*slot]));
            names.push(name.len() as u8);
            names.extend_from_slice(name);
            start
        });
        self.starts = starts.collect();
        // Without tombstones the cookies follow from the slots as before. Stored ones would lack
        // those of later entries, which `add_slot` stores only when they do not follow.
        let are_dense = self.next_cookie == kept.len() as u64 + FIRST_COOKIE;
        self.cookies = if are_dense {
            Vec::new()
        } else {
            kept.iter().map(|slot| self.cookie(*slot)).collect()
        };
        self.inos = kept.iter().map(|slot| self.inos[*slot]).collect();
        self.names = names;
        self.dead_name_bytes = 0;
        self.left = NOTHING_LEFT;
        self.index.clear();
        let (starts, names) = (&self.starts, &self.names);
        let hash_at = |slot: &u32| hash_of(name_at(names, starts[*slot as usize]));
        for slot in 0..starts.len() as u32 {
            self.index.insert_unique(hash_at(&slot), slot, hash_at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

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
        assert!(directory.inos.len() < 300, "tombstones are squeezed out");
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
    fn a_renamed_entry_keeps_its_cookie_and_renaming_takes_no_room() {
        let mut directory = Directory::new(true);
        for number in 0..100_u64 {
            directory.put(format!("name-{number}").as_bytes(), number + 10);
        }
        for round in 0..10_000 {
            let number = round % 100;
            let name = |round: u64| match round / 100 {
                0 => format!("name-{number}"),
                n => format!("renamed-{number}-{n}"),
            };
            let ino = directory.drop(name(round).as_bytes()).unwrap();
            directory.put(name(round + 100).as_bytes(), ino);
        }
        let entries: Vec<_> = directory
            .after(0)
            .map(|(_, cookie, ino)| (cookie, ino))
            .collect();
        let expected: Vec<_> = (0..100).map(|number| (number + 3, number + 10)).collect();
        assert_eq!(entries, expected);
        assert!(directory.inos.len() == 100 && directory.names.len() < 20_000);
    }

    #[test]
    fn a_slot_is_taken_up_by_the_inode_that_left_it_only() {
        let mut directory = Directory::new(true);
        directory.put(b"a", 7);
        directory.put(b"b", 8);
        directory.drop(b"a");
        directory.put(b"c", 9);
        directory.put(b"d", 7);
        let entries: Vec<_> = directory
            .after(0)
            .map(|(name, cookie, ino)| (name.to_vec(), cookie, ino))
            .collect();
        let expected = [(&b"b"[..], 4, 8), (b"c", 5, 9), (b"d", 6, 7)];
        assert_eq!(
            entries,
            expected.map(|(name, cookie, ino)| (name.to_vec(), cookie, ino))
        );
    }

    #[test]
    fn a_listing_ends_at_an_entry_made_after_names_were_dropped() {
        let mut directory = Directory::new(true);
        directory.put(b"a", 7);
        for _ in 0..100 {
            for (from, to) in [(&[b'a'; 1][..], &[b'b'; 200][..]), (&[b'b'; 200], b"a")] {
                let ino = directory.drop(from).unwrap();
                directory.put(to, ino);
            }
        }
        directory.put(b"c", 8);
        directory.put(b"d", 9);
        let cookies =
            |cookie| -> Vec<u64> { directory.after(cookie).map(|entry| entry.1).collect() };
        assert_eq!(cookies(0), [3, 4, 5]);
        assert_eq!(cookies(4), [5]);
        assert_eq!(cookies(5), []);
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

    /// A model of a directory as its readers see it: entries by cookie. A cookie is never reused.
    #[test]
    fn any_changes_leave_cookies_as_they_were_given() {
        let mut seed = 7_u64;
        let mut below = |end: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % end
        };
        for round in 0..200 {
            let mut directory = Directory::new(true);
            let mut expected: BTreeMap<u64, (Vec<u8>, Ino)> = BTreeMap::new();
            // Few names, so that they meet, or many; and now and then nothing is removed.
            let (names, drops) = ([5, 60, 100_000][round % 3], below(8));
            for step in 0..400 {
                let name = |number: u64| format!("{number:0>150}").into_bytes();
                let known = expected.values().nth(below(30) as usize);
                let from = known.map_or_else(|| name(below(names)), |(known, _)| known.clone());
                let to = name(below(names));
                let cookie_of = |expected: &BTreeMap<u64, (Vec<u8>, Ino)>, name: &[u8]| {
                    let found = expected.iter().find(|(_, entry)| entry.0 == name);
                    found.map(|(cookie, _)| *cookie)
                };
                let (at, target) = (cookie_of(&expected, &from), cookie_of(&expected, &to));
                match (at, below(10) < drops) {
                    // A new one.
                    (None, _) => {
                        expected.insert(directory.next_cookie(), (from.clone(), step + 10));
                        directory.put(&from, step + 10);
                    }
                    (Some(cookie), true) => {
                        expected.remove(&cookie);
                        directory.drop(&from);
                    }
                    // A rename, onto another or not.
                    (Some(cookie), false) if from != to => {
                        let (_, ino) = expected.remove(&cookie).unwrap();
                        expected.insert(target.unwrap_or(cookie), (to.clone(), ino));
                        assert_eq!(directory.drop(&from), Some(ino));
                        directory.put(&to, ino);
                    }
                    _ => {}
                }
                let after = below(directory.next_cookie() + 2);
                let listed: Vec<_> = directory
                    .after(after)
                    .map(|(name, cookie, ino)| (cookie, (name.to_vec(), ino)))
                    .collect();
                let due = expected.range(after + 1..);
                let due: Vec<_> = due
                    .map(|(cookie, entry)| (*cookie, entry.clone()))
                    .collect();
                assert_eq!(listed, due);
            }
        }
    }

    #[test]
    fn nothing_is_behind_the_last_cookie_and_names_are_bounded() {
        let mut directory = Directory::new(true);
        directory.put(b"a", 5);
        assert_eq!(directory.after(u64::MAX).count(), 0);
        assert_eq!(directory.after(0).count(), 1);
        assert!(directory.has_room() && directory.has_room_for(1 << 30));
        assert!(!directory.has_room_for(u32::MAX as usize));
        assert!(!directory.has_room_for(usize::MAX));
    }
}
