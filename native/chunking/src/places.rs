//! Where chunks lie, by hash: about 65 bytes a chunk.
//!
//! A writer looks up each chunk before it stores it. A chunk that it has uploaded itself and that
//! no catalogue names yet is *fresh*. A chunk that it found in the store is remembered only for a
//! while. Before a version is made, the fresh chunks that its files use are *named*: its catalogue
//! adds exactly those.
//!
//! Chunks lie in pages that never move, found through a table of 32-bit places; packs are counted
//! once each. One thread at a time.

use hashbrown::{HashMap, HashTable};

/// The BLAKE3 of a chunk.
pub type Hash = [u8; 32];
/// The id of a pack.
pub type Pack = [u8; 16];

const PAGE: usize = 4096;
const FRESH: u8 = 1;
const NAMED: u8 = 2;

/// Where one chunk lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the index")]
pub struct Place {
    pub pack: Pack,
    pub offset: u32,
    pub stored_length: u32,
    pub raw_length: u32,
    pub codec: u8,
}

/// Bytes of a chunk in a catalogue.
pub const RECORD_BYTES: usize = 16;

/// Named chunks as a catalogue lists them (`docs/format/catalogue.md`).
#[derive(Debug, Default)]
pub struct Named {
    /// First 8 bytes of the hash, number of the pack, offset in it; ascending, none twice.
    pub records: Vec<[u8; RECORD_BYTES]>,
    /// The packs that they name, by number.
    pub packs: Vec<Pack>,
    /// The raw bytes of the chunks.
    pub raw_bytes: u64,
    /// Where the next page begins.
    pub next: usize,
}

#[derive(Debug, Clone)]
struct Entry {
    hash: Hash,
    pack: u32,
    offset: u32,
    stored_length: u32,
    raw_length: u32,
    codec: u8,
    marks: u8,
}

/// The table.
#[derive(Debug, Default)]
pub struct ChunkPlaces {
    pages: Vec<Vec<Entry>>,
    index: HashTable<u32>,
    packs: Vec<Pack>,
    numbers: HashMap<Pack, u32>,
}

impl ChunkPlaces {
    /// How many chunks are known.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether the table has no chunk.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The place of the chunk.
    pub fn get(&self, hash: &Hash) -> Option<Place> {
        self.find(hash).map(|at| self.place(self.entry(at)))
    }

    /// Remembers where a chunk lies, replacing an earlier place.
    pub fn put(&mut self, hash: &Hash, place: &Place, is_fresh: bool) {
        let pack = self.number(place.pack);
        let entry = Entry {
            hash: *hash,
            pack,
            offset: place.offset,
            stored_length: place.stored_length,
            raw_length: place.raw_length,
            codec: place.codec,
            marks: if is_fresh { FRESH } else { 0 },
        };
        match self.find(hash) {
            Some(at) => *self.entry_mut(at) = entry,
            None => self.add(entry),
        }
    }

    /// Marks the fresh chunks among `hashes` as named, and no others.
    pub fn name(&mut self, hashes: impl Iterator<Item = Hash>) {
        for entry in self.pages.iter_mut().flatten() {
            entry.marks &= !NAMED;
        }
        for hash in hashes {
            if let Some(at) = self.find(&hash) {
                let entry = self.entry_mut(at);
                entry.marks |= if entry.marks & FRESH != 0 { NAMED } else { 0 };
            }
        }
    }

    /// Up to `limit` named chunks from the `first` chunk of the table on; None at the end.
    pub fn named(&self, first: usize, limit: usize) -> Option<Named> {
        let mut named = Named {
            next: self.count(),
            ..Named::default()
        };
        let mut numbers: HashMap<u32, u32> = HashMap::new();
        for at in first..self.count() {
            let entry = self.entry(at as u32);
            if entry.marks & NAMED == 0 {
                continue;
            }
            if named.records.len() == limit {
                named.next = at;
                break;
            }
            let number = *numbers.entry(entry.pack).or_insert_with(|| {
                named.packs.push(self.packs[entry.pack as usize]);
                (named.packs.len() - 1) as u32
            });
            named
                .records
                .push(record(&entry.hash, number, entry.offset));
            named.raw_bytes += u64::from(entry.raw_length);
        }
        named.records.sort_unstable();
        named.records.dedup();
        (!named.records.is_empty()).then_some(named)
    }

    /// A version that names the named chunks is in the store: only the last `left` other fresh ones
    /// stay.
    pub fn published(&mut self, left: usize) {
        let is_left = |entry: &Entry| entry.marks & FRESH != 0 && entry.marks & NAMED == 0;
        let count = self.pages.iter().flatten().filter(|entry| is_left(entry));
        let mut dropped = count.count().saturating_sub(left);
        self.keep(|entry, _| {
            let is_dropped = dropped > 0;
            dropped -= usize::from(is_left(entry) && is_dropped);
            is_left(entry) && !is_dropped
        });
    }

    /// Forgets all but the fresh chunks for whose packs this is true.
    pub fn keep_fresh_in(&mut self, is_kept: impl Fn(&Pack) -> bool) {
        self.keep(|entry, pack| entry.marks & FRESH != 0 && is_kept(pack));
    }

    /// Packs with fresh chunks.
    pub fn fresh_packs(&self) -> Vec<Pack> {
        let mut is_fresh = vec![false; self.packs.len()];
        for entry in self.pages.iter().flatten() {
            is_fresh[entry.pack as usize] |= entry.marks & FRESH != 0;
        }
        let packs = self.packs.iter().zip(is_fresh);
        packs
            .filter(|(_, fresh)| *fresh)
            .map(|(pack, _)| *pack)
            .collect()
    }

    fn keep(&mut self, mut is_kept: impl FnMut(&Entry, &Pack) -> bool) {
        let old = std::mem::take(self);
        for page in old.pages {
            for mut entry in page {
                let pack = old.packs[entry.pack as usize];
                if is_kept(&entry, &pack) {
                    entry.pack = self.number(pack);
                    self.add(entry);
                }
            }
        }
    }

    fn number(&mut self, pack: Pack) -> u32 {
        let packs = &mut self.packs;
        *self.numbers.entry(pack).or_insert_with(|| {
            packs.push(pack);
            (packs.len() - 1) as u32
        })
    }

    fn add(&mut self, entry: Entry) {
        let at = u32::try_from(self.count()).expect("chunks of one commit can be counted");
        let hash = short(&entry.hash);
        if self.pages.last().is_none_or(|page| page.len() == PAGE) {
            self.pages.push(Vec::with_capacity(PAGE));
        }
        let last = self.pages.len() - 1;
        self.pages[last].push(entry);
        let pages = &self.pages;
        self.index
            .insert_unique(hash, at, |at| short(&entry_of(pages, *at).hash));
    }

    fn count(&self) -> usize {
        self.pages
            .last()
            .map_or(0, |last| (self.pages.len() - 1) * PAGE + last.len())
    }

    fn find(&self, hash: &Hash) -> Option<u32> {
        let is_it = |at: &u32| self.entry(*at).hash == *hash;
        self.index.find(short(hash), is_it).copied()
    }

    fn entry(&self, at: u32) -> &Entry {
        entry_of(&self.pages, at)
    }

    fn entry_mut(&mut self, at: u32) -> &mut Entry {
        &mut self.pages[at as usize / PAGE][at as usize % PAGE]
    }

    fn place(&self, entry: &Entry) -> Place {
        Place {
            pack: self.packs[entry.pack as usize],
            offset: entry.offset,
            stored_length: entry.stored_length,
            raw_length: entry.raw_length,
            codec: entry.codec,
        }
    }
}

fn entry_of(pages: &[Vec<Entry>], at: u32) -> &Entry {
    &pages[at as usize / PAGE][at as usize % PAGE]
}

fn record(hash: &Hash, pack: u32, offset: u32) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..8].copy_from_slice(&hash[..8]);
    record[8..12].copy_from_slice(&pack.to_be_bytes());
    record[12..].copy_from_slice(&offset.to_be_bytes());
    record
}

/// The hash is as good as random.
fn short(hash: &Hash) -> u64 {
    u64::from_le_bytes(hash[..8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u64) -> Hash {
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
        hash
    }

    fn place(pack: u8, offset: u32) -> Place {
        Place {
            pack: [pack; 16],
            offset,
            stored_length: 10,
            raw_length: 20,
            codec: 1,
        }
    }

    /// Their records without the packs' numbers, ascending.
    fn all_named(places: &ChunkPlaces) -> Vec<([u8; 8], Pack, u32)> {
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some(named) = places.named(at, 3) {
            assert!(named.records.len() <= 3);
            for record in &named.records {
                let number = |from: usize| {
                    u32::from_be_bytes(record[from..from + 4].try_into().expect("four bytes"))
                };
                let prefix = record[..8].try_into().expect("eight bytes");
                found.push((prefix, named.packs[number(8) as usize], number(12)));
            }
            at = named.next;
        }
        found.sort_unstable();
        found
    }

    fn named_as(number: u64, pack: u8) -> ([u8; 8], Pack, u32) {
        let prefix = hash(number)[..8].try_into().expect("eight bytes");
        (prefix, [pack; 16], 0)
    }

    #[test]
    fn the_last_word_counts() {
        let mut places = ChunkPlaces::default();
        for number in 0..10_000 {
            places.put(&hash(number), &place(1, number as u32), true);
        }
        places.put(&hash(7), &place(2, 70), false);
        assert_eq!(places.get(&hash(7)), Some(place(2, 70)));
        assert_eq!(places.get(&hash(8)), Some(place(1, 8)));
        assert_eq!(places.get(&hash(10_000)), None);
        assert_eq!(places.len(), 10_000);
        assert_eq!(places.fresh_packs(), [[1; 16]]);
    }

    #[test]
    fn what_a_version_names_is_fresh_no_longer() {
        let mut places = ChunkPlaces::default();
        for number in 0..20 {
            places.put(&hash(number), &place(number as u8 % 2, 0), number < 10);
        }
        places.name((5..8).map(hash));
        places.name([3, 4, 12, 99].into_iter().map(hash));
        let mut wanted = [named_as(3, 1), named_as(4, 0)];
        wanted.sort_unstable();
        assert_eq!(all_named(&places), wanted);
        places.published(10);
        assert_eq!(places.len(), 8);
        assert_eq!(all_named(&places), []);
        assert_eq!(places.get(&hash(3)), None);
        assert_eq!(places.get(&hash(12)), None);
        assert_eq!(places.get(&hash(5)), Some(place(1, 0)));
        places.keep_fresh_in(|pack| *pack == [1; 16]);
        assert_eq!(places.fresh_packs(), [[1; 16]]);
        assert_eq!(places.len(), 4);
        places.name(std::iter::empty());
        places.published(1);
        assert_eq!(places.get(&hash(7)), None);
        assert_eq!(places.get(&hash(9)), Some(place(1, 0)));
    }

    #[test]
    fn a_chunk_takes_little() {
        assert_eq!(size_of::<Entry>(), 52);
    }
}
