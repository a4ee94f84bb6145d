//! The entries of one directory, in the order of their cookies, and a hash index from names to
//! slots.
//!
//! A cookie is the number of the entry's inode and 15 bits of a hash of its name (`natural`). So
//! each load of a directory gives its entries the cookies they had before, and a reader goes on
//! from a cookie that an earlier process gave out. Where a cookie is taken, the entry gets the next
//! one that is free; a load does this in the order of the names' bytes.
//!
//! A cookie does not change while the directory is in memory. So a reader that goes on from a
//! cookie sees every entry that is there all the time exactly once, while others come and go. A
//! reader stops at the cookie that was next when it began (`listing`): inodes made since have
//! larger numbers. An entry that is renamed within the directory keeps its slot and its cookie:
//! `put` gives it the one that the same inode has just left. One that is renamed onto another gives
//! its inode to the slot of that name, which was there all the time and has to be listed; a reader
//! between the two slots gets the inode under both names. The next load gives such entries their
//! natural cookies again, unless the journal has those that they had (`cookies`).
//!
//! ```text
//! slots      0 .. sorted    ascending by cookie; removed entries keep their place
//!            sorted ..      any order; `late` has the live ones by cookie
//! moved      cookies that are not natural, by slot
//! ```
//!
//! New inodes have larger numbers than older ones, so a new entry is mostly the next sorted slot.
//! When half of the slots are of removed entries, half of the names are dead, or many slots are
//! late, the table is compacted, and all slots are sorted again.
//!
//! An entry takes 12 bytes, 5 of a hash table that is about half full, and its name with a byte for
//! its length. Names lie in one allocation.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::iter::Peekable;
use std::sync::LazyLock;

use cowfs_base::{Ino, ROOT_INO};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use crate::row::NAME_MAX_BYTES;

/// Cookies 1 and 2 are "." and "..".
pub(crate) const FIRST_COOKIE: u64 = 3;
/// The last number of 63 bits is that of an entry beside the volume's (`cowfs_mounted`).
const LAST_COOKIE: u64 = i64::MAX as u64 - 1;
const HASH_BITS: u32 = 15;

/// In the number of a removed entry's inode.
const REMOVED: u64 = 1 << 63;
/// Fewer dead bytes than this are not worth compacting for.
const DEAD_NAME_BYTES: usize = 4096;
/// So many late slots are not worth sorting again.
const LATE_SLOTS: usize = 1024;

/// One directory. Not resident: its entries are unknown.
#[derive(Debug)]
pub(crate) struct Directory {
    /// The directory it is in; 0 while not known (loaded by number, not yet through its parent).
    pub parent: Ino,
    pub is_resident: bool,
    live: usize,
    dead_name_bytes: usize,
    /// The slot that the last change left.
    left: Option<Left>,
    /// Each with its length in front.
    names: Vec<u8>,
    /// By slot.
    inos: Vec<Ino>,
    /// The place of the name, by slot.
    starts: Vec<u32>,
    sorted: usize,
    late: BTreeMap<u64, u32>,
    moved: HashMap<u32, u64>,
    index: HashTable<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Left {
    slot: u32,
    ino: Ino,
    cookie: u64,
}

/// Each process has a key of its own: the author of a version cannot choose names that collide.
fn hash_of(name: &[u8]) -> u64 {
    static KEY: LazyLock<DefaultHashBuilder> = LazyLock::new(DefaultHashBuilder::default);
    KEY.hash_one(name)
}

/// The cookie of an entry if no other one has it. It is the same in each process and version of
/// this program, or listings under way skip or repeat entries when a daemon is started again.
fn natural(ino: Ino, name: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let hash = name.chunks(8).fold(name.len() as u64, |hash, part| {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        let mixed = (hash ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
        mixed ^ (mixed >> 32)
    });
    let bits = hash.wrapping_mul(FACTOR) >> (u64::BITS - HASH_BITS);
    (ino << HASH_BITS | bits).min(LAST_COOKIE)
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
            live: 0,
            dead_name_bytes: 0,
            left: None,
            names: Vec::new(),
            inos: Vec::new(),
            starts: Vec::new(),
            sorted: 0,
            late: BTreeMap::new(),
            moved: HashMap::new(),
            index: HashTable::new(),
        }
    }

    /// Takes in all entries at once, in any order. The names are different ones.
    pub fn fill<'a>(&mut self, entries: impl ExactSizeIterator<Item = (&'a [u8], Ino)>) {
        debug_assert!(self.inos.is_empty());
        let mut name_bytes = 0;
        let mut sorted: Vec<(u64, &[u8], Ino)> = entries
            .map(|(name, ino)| {
                name_bytes += name.len();
                (natural(ino, name), name, ino)
            })
            .collect();
        self.add_all(&mut sorted, name_bytes);
    }

    /// Adds entries with the cookies that they should have, or the next ones that are free.
    fn add_all(&mut self, entries: &mut [(u64, &[u8], Ino)], name_bytes: usize) {
        entries.sort_unstable();
        self.reserve(entries.len(), name_bytes);
        let mut next = FIRST_COOKIE;
        for (wanted, name, ino) in entries {
            let cookie = (*wanted).max(next);
            self.add(name, *ino, cookie);
            next = cookie + 1;
        }
    }

    /// Makes room for exactly so many more entries and bytes of names.
    fn reserve(&mut self, entries: usize, name_bytes: usize) {
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
            + self.late.len() * 2 * size_of::<(u64, u32)>()
            + self.moved.capacity() * (size_of::<(u32, u64)>() + 1)
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
        debug_assert!(name.len() <= NAME_MAX_BYTES && ino != 0 && ino & REMOVED == 0);
        let left = self.left.take();
        if let Some(slot) = self.find(name) {
            let cookie = self.cookie(slot);
            self.inos[slot as usize] = ino;
            self.keep_cookie(slot, cookie);
            return;
        }
        match left {
            Some(left) if left.ino == ino => self.take_up(left, name),
            _ => {
                let is_crowded = self.late.len() > LATE_SLOTS + self.sorted / 2;
                if is_crowded {
                    self.compact();
                }
                let cookie = self.free_cookie(natural(ino, name));
                self.add(name, ino, cookie);
            }
        }
    }

    /// Gives a slot that was just left a new name; its cookie stays.
    fn take_up(&mut self, left: Left, name: &[u8]) {
        let slot = left.slot as usize;
        self.inos[slot] = left.ino;
        self.starts[slot] = self.names.len() as u32;
        self.push_name(name);
        self.keep_cookie(left.slot, left.cookie);
        if slot >= self.sorted {
            self.late.insert(left.cookie, left.slot);
        }
        self.count_in(name, left.slot);
    }

    fn add(&mut self, name: &[u8], ino: Ino, cookie: u64) {
        let slot = self.inos.len() as u32;
        let is_next = self.sorted == self.inos.len() && self.last_sorted() < cookie;
        self.starts.push(self.names.len() as u32);
        self.inos.push(ino);
        self.push_name(name);
        self.keep_cookie(slot, cookie);
        match is_next {
            true => self.sorted += 1,
            false => drop(self.late.insert(cookie, slot)),
        }
        self.count_in(name, slot);
    }

    fn push_name(&mut self, name: &[u8]) {
        self.names.push(name.len() as u8);
        self.names.extend_from_slice(name);
    }

    fn count_in(&mut self, name: &[u8], slot: u32) {
        self.live += 1;
        let (starts, names) = (&self.starts, &self.names);
        self.index.insert_unique(hash_of(name), slot, |slot| {
            hash_of(name_at(names, starts[*slot as usize]))
        });
    }

    pub fn drop(&mut self, name: &[u8]) -> Option<Ino> {
        // Before the entry goes, so that its slot can be taken up again.
        let is_sparse = self.inos.len() > 32 && self.live * 2 < self.inos.len();
        let are_names_dead = self.dead_name_bytes > self.names.len() / 2 + DEAD_NAME_BYTES;
        if is_sparse || are_names_dead {
            self.compact();
        }
        let (starts, names) = (&self.starts, &self.names);
        let entry = self
            .index
            .find_entry(hash_of(name), |slot| {
                name_at(names, starts[*slot as usize]) == name
            })
            .ok()?;
        let (slot, _) = entry.remove();
        let (ino, cookie) = (self.inos[slot as usize], self.cookie(slot));
        self.inos[slot as usize] = ino | REMOVED;
        if slot as usize >= self.sorted {
            self.late.remove(&cookie);
        }
        self.live -= 1;
        self.dead_name_bytes += name.len() + 1;
        self.left = Some(Left { slot, ino, cookie });
        Some(ino)
    }

    /// What is put next takes up no slot that was left.
    pub fn end_change(&mut self) {
        self.left = None;
    }

    // -- cookies

    /// Whether there may be cookies that are not natural.
    pub fn has_moved(&self) -> bool {
        !self.moved.is_empty()
    }

    /// The entries whose cookies are not natural.
    pub fn moved(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let live = |slot: u32| self.inos[slot as usize] & REMOVED == 0;
        let moved = self.moved.iter().filter(move |(slot, _)| live(**slot));
        moved.map(|(slot, cookie)| {
            let name = name_at(&self.names, self.starts[*slot as usize]);
            (name, *cookie)
        })
    }

    /// Gives these entries these cookies, and all others their natural ones.
    pub fn set_cookies(&mut self, cookies: &HashMap<&[u8], u64>) {
        let mut changed = self.emptied();
        let mut entries: Vec<(u64, &[u8], Ino)> = self
            .after(0)
            .map(|(name, _, ino)| {
                let cookie = cookies.get(name).copied();
                (cookie.unwrap_or_else(|| natural(ino, name)), name, ino)
            })
            .collect();
        changed.add_all(&mut entries, self.live_name_bytes());
        *self = changed;
    }

    /// A cookie behind those of all entries. New inodes have larger numbers than older ones.
    pub fn next_cookie(&self) -> u64 {
        let late = self.late.last_key_value().map_or(0, |(cookie, _)| *cookie);
        self.last_sorted().max(late).max(FIRST_COOKIE) + 1
    }

    /// Entries after the cookie, in cookie order.
    pub fn after(&self, cookie: u64) -> impl Iterator<Item = (&[u8], u64, Ino)> {
        let from = cookie.saturating_add(1);
        let live = |slot: &u32| self.inos[*slot as usize] & REMOVED == 0;
        let sorted = self.first_sorted(from) as u32..self.sorted as u32;
        let sorted = sorted.filter(live).map(|slot| (self.cookie(slot), slot));
        let late = self.late.range(from..);
        let late = late.map(|(cookie, slot)| (*cookie, *slot));
        merged(sorted.peekable(), late.peekable()).map(|(cookie, slot)| {
            let name = name_at(&self.names, self.starts[slot as usize]);
            (name, cookie, self.inos[slot as usize])
        })
    }

    fn cookie(&self, slot: u32) -> u64 {
        match self.moved.is_empty() {
            true => self.natural(slot),
            false => {
                let moved = self.moved.get(&slot).copied();
                moved.unwrap_or_else(|| self.natural(slot))
            }
        }
    }

    fn natural(&self, slot: u32) -> u64 {
        let ino = self.inos[slot as usize] & !REMOVED;
        natural(ino, name_at(&self.names, self.starts[slot as usize]))
    }

    /// Writes down the slot's cookie, unless it follows from name and inode.
    fn keep_cookie(&mut self, slot: u32, cookie: u64) {
        if self.natural(slot) != cookie {
            self.moved.insert(slot, cookie);
        } else if !self.moved.is_empty() {
            self.moved.remove(&slot);
        }
    }

    /// The cookie, or the next one that no entry has.
    fn free_cookie(&self, mut cookie: u64) -> u64 {
        if cookie > self.last_sorted() && self.late.is_empty() {
            return cookie;
        }
        for (_, taken, _) in self.after(cookie - 1) {
            if taken != cookie {
                break;
            }
            cookie += 1;
        }
        cookie
    }

    fn last_sorted(&self) -> u64 {
        let last = self.sorted.checked_sub(1);
        last.map_or(0, |last| self.cookie(last as u32))
    }

    /// The first sorted slot whose cookie is not before this one.
    fn first_sorted(&self, cookie: u64) -> usize {
        let (mut from, mut to) = (0, self.sorted);
        while from < to {
            let middle = from + (to - from) / 2;
            match self.cookie(middle as u32) < cookie {
                true => from = middle + 1,
                false => to = middle,
            }
        }
        from
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

    fn emptied(&self) -> Directory {
        Directory {
            parent: self.parent,
            ..Directory::new(self.is_resident)
        }
    }

    fn live_name_bytes(&self) -> usize {
        self.names.len() - self.dead_name_bytes - self.live
    }

    /// Drops what is removed, and sorts the rest.
    fn compact(&mut self) {
        let mut kept = self.emptied();
        kept.reserve(self.live, self.live_name_bytes());
        for (name, cookie, ino) in self.after(0) {
            kept.add(name, ino, cookie);
        }
        *self = kept;
    }
}

/// Both, which ascend, as one that does.
fn merged(
    mut left: Peekable<impl Iterator<Item = (u64, u32)>>,
    mut right: Peekable<impl Iterator<Item = (u64, u32)>>,
) -> impl Iterator<Item = (u64, u32)> {
    std::iter::from_fn(move || {
        let Some(other) = right.peek() else {
            return left.next();
        };
        match left.next_if(|one| one < other) {
            Some(one) => Some(one),
            None => right.next(),
        }
    })
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
        let cookie = |ino: u64| natural(ino, format!("name-{}", ino - 10).as_bytes());
        let expected: Vec<_> = (10..110).map(|ino| (cookie(ino), ino)).collect();
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
        let expected = [(&b"d"[..], 7), (b"b", 8), (b"c", 9)];
        assert_eq!(
            entries,
            expected.map(|(name, ino)| (name.to_vec(), natural(ino, name), ino))
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
        let all = [natural(7, b"a"), natural(8, b"c"), natural(9, b"d")];
        assert_eq!(cookies(0), all);
        assert_eq!(cookies(all[1]), all[2..]);
        assert_eq!(cookies(all[2]), []);
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
        let cookies = [natural(7, b"a"), natural(8, b"b")];
        let expected = [
            (b"a".to_vec(), cookies[0], 9),
            (b"b".to_vec(), cookies[1], 8),
        ];
        assert_eq!(entries, expected);
    }

    /// A model of a directory as its readers see it: entries by cookie.
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
                        // Also a link to an older inode, and one with many names.
                        let ino = [step + 10, below(step + 1) + 10, 10][below(3) as usize];
                        let mut cookie = natural(ino, &from);
                        while expected.contains_key(&cookie) {
                            cookie += 1;
                        }
                        // Not the slot that a removed name of it has left.
                        directory.left = None;
                        expected.insert(cookie, (from.clone(), ino));
                        directory.put(&from, ino);
                        assert!(cookie < directory.next_cookie());
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
                let near = expected.keys().nth(below(30) as usize).copied();
                let after = near.unwrap_or(1) - below(2);
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

    /// All names, with their cookies and inodes.
    fn listed(directory: &Directory) -> Vec<(Vec<u8>, u64, Ino)> {
        let all = directory.after(0);
        all.map(|(name, cookie, ino)| (name.to_vec(), cookie, ino))
            .collect()
    }

    #[test]
    fn names_of_one_inode_have_the_same_cookies_after_each_load() {
        let names: Vec<Vec<u8>> = (0..10_000_u64)
            .map(|number| format!("link-{number}").into_bytes())
            .collect();
        let loaded = |names: &[Vec<u8>]| {
            let mut directory = Directory::new(true);
            directory.fill(names.iter().map(|name| (&**name, 77)));
            directory
        };
        let first = listed(&loaded(&names));
        let mut others = names.clone();
        others.reverse();
        others.rotate_left(3333);
        assert_eq!(first, listed(&loaded(&others)));
        assert_eq!(first.len(), names.len());
        assert!(first.windows(2).all(|pair| pair[0].1 < pair[1].1));
        assert!(first.iter().all(|(_, cookie, _)| cookie >> HASH_BITS == 77));
        let is_shared = |(name, cookie, ino): &(Vec<u8>, u64, Ino)| natural(*ino, name) != *cookie;
        assert!(first.iter().filter(|entry| is_shared(entry)).count() > 500);
        // Made one by one they have cookies of their own, too, and the next load has its order.
        let mut made = Directory::new(true);
        names.iter().for_each(|name| made.put(name, 77));
        let made = listed(&made);
        assert!(made.windows(2).all(|pair| pair[0].1 < pair[1].1));
        assert_eq!(made.len(), names.len());
    }

    #[test]
    fn more_names_of_an_inode_than_bits_go_on_behind_it() {
        let names: Vec<String> = (0..40_000).map(|number| format!("{number}")).collect();
        let mut directory = Directory::new(true);
        let entries = names.iter().map(|name| (name.as_bytes(), 5));
        let entries: Vec<_> = entries.chain([(&b"other"[..], 6)]).collect();
        directory.fill(entries.into_iter());
        directory.put(b"another", 5);
        let found = listed(&directory);
        assert_eq!(found.len(), 40_002);
        assert!(found.windows(2).all(|pair| pair[0].1 < pair[1].1));
    }

    /// The numbers are written down: a daemon of the next version goes on with listings.
    #[test]
    fn natural_cookies_never_change() {
        assert_eq!(natural(1, b"a") >> HASH_BITS, 1);
        let hashes = [&b"a"[..], b"name-1", b"a longer name.txt"];
        let hashes = hashes.map(|name| natural(3, name) - (3 << HASH_BITS));
        assert_eq!(hashes, [5096, 3295, 4931]);
        assert!((0..1000_u64).all(|n| natural((1 << 48) - 1, &n.to_le_bytes()) <= LAST_COOKIE));
    }

    #[test]
    fn entries_out_of_order_are_sorted_in() {
        let mut directory = Directory::new(true);
        for number in (0..5000_u64).rev() {
            directory.put(format!("name-{number}").as_bytes(), number + 10);
        }
        let found = listed(&directory);
        assert!(found.iter().map(|entry| entry.2).eq(10..5010));
        assert!(directory.late.len() <= LATE_SLOTS + directory.sorted / 2 + 1);
        for number in 0..4000_u64 {
            directory.drop(format!("name-{number}").as_bytes());
        }
        assert_eq!(listed(&directory), found[4000..]);
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
