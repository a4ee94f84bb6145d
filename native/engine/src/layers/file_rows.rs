//! The extent rows of many files, packed: about 75 bytes for a file of one extent, its place in the
//! index included.
//!
//! A commit keeps the rows that it has made for each file from the first upload until the head
//! stands. The index is written from them, and the engine takes them over at the end. As objects of
//! either language that would be several hundred bytes a file.
//!
//! ```text
//! record     inode, data version, number of rows, then for each row:
//!            offset, length, hash (32 bytes), pack, offset in pack, stored length, raw length, skip, codec
//! numbers    seven bits a byte, lowest first, the top bit set in all but the last
//! place      block number in the upper, offset in the block in the lower 32 bits
//! ```
//!
//! Records are never changed, so tables share their blocks: rows that a commit takes over from
//! early uploads are there once. Putting a file again leaves its old record behind; when half of
//! the bytes are of such records, the rest is moved together. Files come out in the order in which
//! they were put.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use cowfs_base::{ChunkHash, Ino};
use hashbrown::{HashMap, HashTable};

use crate::inode::hash_of;
use crate::row::{ChunkRef, ExtentRow, InodeRow};

/// A block is not enlarged beyond this; a record that is larger has one of its own.
const BLOCK_BYTES: usize = 64 << 10;
/// A block begins with so many.
const FIRST_BYTES: usize = 1 << 10;
/// Fewer dead bytes are not worth moving the rest.
const SQUEEZE_MIN_BYTES: u64 = 1 << 20;

/// The new extents of a file: inode, data version as `layer_contents` gave it, rows.
pub type FileContent = (Ino, u64, Vec<ExtentRow>);

/// In `FileRows::order`: this file was put again later.
const PUT_AGAIN: u64 = u64::MAX;

/// Rows by file.
#[derive(Debug, Default)]
pub struct FileRows {
    blocks: Vec<Arc<Vec<u8>>>,
    /// The block that records are written to.
    open: Option<usize>,
    /// Numbers of the blocks of other tables, by their addresses.
    shared: HashMap<usize, usize>,
    /// The place of each file.
    order: Vec<u64>,
    /// The place of each file in `order`.
    index: HashTable<u32>,
    bytes: u64,
    dead_bytes: u64,
}

/// A table's rows of one file. They stay valid even if the table is changed or dropped.
#[derive(Clone)]
pub struct Record {
    block: Arc<Vec<u8>>,
    offset: usize,
}

impl Record {
    /// The record of a file that is in no table.
    pub fn of(ino: Ino, version: u64, rows: &[ExtentRow]) -> Record {
        Record {
            block: Arc::new(encoded(ino, version, rows)),
            offset: 0,
        }
    }

    fn reader(&self) -> Reader<'_> {
        Reader(&self.block[self.offset..])
    }
}

impl PartialEq for Record {
    fn eq(&self, other: &Record) -> bool {
        self.reader().content() == other.reader().content()
    }
}

impl Eq for Record {}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reader().content().fmt(f)
    }
}

impl FileRows {
    /// How many files there are.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is no file.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Adds a file, or replaces its rows.
    pub fn put(&mut self, ino: Ino, version: u64, rows: &[ExtentRow]) {
        let record = encoded(ino, version, rows);
        let place = self.append(&record);
        self.add(ino, place, record.len());
    }

    /// As `put`, with a record of another table. The record's bytes are shared.
    pub fn put_record(&mut self, record: &Record) {
        let address = Arc::as_ptr(&record.block) as usize;
        let number = *self.shared.entry(address).or_insert_with(|| {
            self.blocks.push(Arc::clone(&record.block));
            self.blocks.len() - 1
        });
        let place = join(number, record.offset);
        self.add(record.reader().number(), place, record.reader().length());
    }

    /// The record of a file, for another table.
    pub fn record(&self, ino: Ino) -> Option<Record> {
        let (number, offset) = split(self.place(ino)?);
        Some(Record {
            block: Arc::clone(&self.blocks[number]),
            offset,
        })
    }

    /// Data version and rows of a file.
    pub fn get(&self, ino: Ino) -> Option<(u64, Vec<ExtentRow>)> {
        let place = self.place(ino)?;
        let (_, version, rows) = Reader::at(&self.blocks, place).content();
        Some((version, rows))
    }

    /// Data version of a file.
    pub fn version(&self, ino: Ino) -> Option<u64> {
        let mut reader = Reader::at(&self.blocks, self.place(ino)?);
        reader.number();
        Some(reader.number())
    }

    /// Every file, in the order in which they were put.
    pub fn iter(&self) -> impl Iterator<Item = FileContent> {
        let mut position = 0;
        std::iter::from_fn(move || {
            let (content, next) = self.next(position)?;
            position = next;
            Some(content)
        })
    }

    /// The first file at or behind a position, and the position behind it. The first one is 0.
    pub fn next(&self, position: u64) -> Option<(FileContent, u64)> {
        let from = usize::try_from(position).ok()?;
        let mut files = self.order.get(from..)?.iter().enumerate();
        let (skipped, place) = files.find(|(_, place)| **place != PUT_AGAIN)?;
        let content = Reader::at(&self.blocks, *place).content();
        Some((content, position + skipped as u64 + 1))
    }

    /// Numbers of the packs that rows name.
    pub fn packs(&self) -> BTreeSet<u64> {
        let rows = self.iter().flat_map(|(_, _, rows)| rows);
        rows.map(|row| row.chunk.pack).collect()
    }

    /// Inodes whose rows are here count the bytes that those map.
    pub fn count_mapped(&self, inodes: &mut [InodeRow]) {
        for inode in inodes {
            if let Some((_, rows)) = self.get(inode.ino) {
                inode.mapped_bytes = rows.iter().map(|row| row.length).sum();
            }
        }
    }

    fn place(&self, ino: Ino) -> Option<u64> {
        let is_it = |at: &u32| self.ino_at(*at) == ino;
        let at = *self.index.find(hash_of(ino), is_it)?;
        Some(self.order[at as usize])
    }

    fn ino_at(&self, at: u32) -> Ino {
        Reader::at(&self.blocks, self.order[at as usize]).number()
    }

    fn add(&mut self, ino: Ino, place: u64, length: usize) {
        self.drop_old(ino);
        let at = self.order.len() as u32; // as many files as fit into memory
        self.order.push(place);
        self.bytes += length as u64;
        let (blocks, order) = (&self.blocks, &self.order);
        self.index.insert_unique(hash_of(ino), at, |at| {
            hash_of(Reader::at(blocks, order[*at as usize]).number())
        });
        if self.dead_bytes > SQUEEZE_MIN_BYTES && self.dead_bytes * 2 > self.bytes {
            self.squeeze();
        }
    }

    fn drop_old(&mut self, ino: Ino) {
        let (blocks, order) = (&self.blocks, &self.order);
        let is_it = |at: &u32| Reader::at(blocks, order[*at as usize]).number() == ino;
        if let Ok(entry) = self.index.find_entry(hash_of(ino), is_it) {
            let at = entry.remove().0 as usize;
            self.dead_bytes += Reader::at(&self.blocks, self.order[at]).length() as u64;
            self.order[at] = PUT_AGAIN;
        }
    }

    fn append(&mut self, record: &[u8]) -> u64 {
        let open = self.open.and_then(|number| {
            let block = Arc::get_mut(&mut self.blocks[number])?; // none: it is shared meanwhile
            (block.len() + record.len() <= BLOCK_BYTES).then_some(number)
        });
        let number = open.unwrap_or_else(|| {
            self.blocks.push(Arc::default());
            self.blocks.len() - 1
        });
        self.open = Some(number);
        let block = Arc::get_mut(&mut self.blocks[number]).expect("nobody shares it");
        let offset = block.len();
        if block.capacity() < offset + record.len() {
            // In steps, since a block that is shared soon stays as small as it is.
            let wanted = (4 * block.capacity()).clamp(FIRST_BYTES, BLOCK_BYTES);
            block.reserve_exact(wanted.saturating_sub(offset).max(record.len()));
        }
        block.extend_from_slice(record);
        join(number, offset)
    }

    fn squeeze(&mut self) {
        let mut kept = FileRows::default();
        for (ino, version, rows) in self.iter() {
            kept.put(ino, version, &rows);
        }
        *self = kept;
    }
}

impl<'a> FromIterator<&'a FileContent> for FileRows {
    fn from_iter<I: IntoIterator<Item = &'a FileContent>>(files: I) -> FileRows {
        let mut all = FileRows::default();
        for (ino, version, rows) in files {
            all.put(*ino, *version, rows);
        }
        all
    }
}

fn split(place: u64) -> (usize, usize) {
    ((place >> 32) as usize, (place & 0xffff_ffff) as usize)
}

fn join(block: usize, offset: usize) -> u64 {
    (block as u64) << 32 | offset as u64
}

fn encoded(ino: Ino, version: u64, rows: &[ExtentRow]) -> Vec<u8> {
    let mut record = Vec::with_capacity(32 + rows.len() * 80);
    for number in [ino, version, rows.len() as u64] {
        put_number(&mut record, number);
    }
    for row in rows {
        put_number(&mut record, row.offset);
        put_number(&mut record, row.length);
        record.extend_from_slice(&row.chunk.hash.0);
        put_number(&mut record, row.chunk.pack);
        put_number(&mut record, row.chunk.offset);
        for number in [
            row.chunk.stored_length,
            row.chunk.raw_length,
            row.skip,
            row.chunk.codec,
        ] {
            put_number(&mut record, u64::from(number));
        }
    }
    record
}

fn put_number(record: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        record.push(number as u8 | 0x80);
        number >>= 7;
    }
    record.push(number as u8);
}

/// Parses a record; its bytes were written by `encoded`.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn at(blocks: &'a [Arc<Vec<u8>>], place: u64) -> Reader<'a> {
        let (block, offset) = split(place);
        Reader(&blocks[block][offset..])
    }

    fn number(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let (byte, rest) = self.0.split_first().expect("a whole record");
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                return number;
            }
            shift += 7;
        }
    }

    fn small(&mut self) -> u32 {
        self.number() as u32
    }

    /// The record's length in bytes.
    fn length(mut self) -> usize {
        let before = self.0.len();
        let (_, _, rows) = (self.number(), self.number(), self.number());
        for _ in 0..rows {
            self.row();
        }
        before - self.0.len()
    }

    fn content(&mut self) -> FileContent {
        let (ino, version) = (self.number(), self.number());
        let count = self.number();
        (ino, version, (0..count).map(|_| self.row()).collect())
    }

    fn row(&mut self) -> ExtentRow {
        let (offset, length) = (self.number(), self.number());
        let (hash, rest) = self.0.split_first_chunk().expect("a whole record");
        self.0 = rest;
        let (pack, pack_offset) = (self.number(), self.number());
        let (stored_length, raw_length) = (self.small(), self.small());
        let (skip, codec) = (self.small(), self.small());
        ExtentRow {
            offset,
            length,
            chunk: ChunkRef {
                hash: ChunkHash(*hash),
                pack,
                offset: pack_offset,
                stored_length,
                raw_length,
                codec,
            },
            skip,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn row() -> impl Strategy<Value = ExtentRow> {
        let sizes = any::<(u64, u64, u64, u64)>();
        let small = any::<(u32, u32, u32, u32)>();
        (any::<[u8; 32]>(), sizes, small).prop_map(|(hash, sizes, small)| ExtentRow {
            offset: sizes.0,
            length: sizes.1,
            chunk: ChunkRef {
                hash: ChunkHash(hash),
                pack: sizes.2,
                offset: sizes.3,
                stored_length: small.0,
                raw_length: small.1,
                codec: small.2,
            },
            skip: small.3,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn it_is_a_map_in_order_of_putting(
            files in prop::collection::vec(
                ((0..40_u64, any::<u64>(), prop::collection::vec(row(), 0..5)), any::<bool>()),
                0..200,
            ),
        ) {
            let (mut rows, mut other) = (FileRows::default(), FileRows::default());
            let mut model: BTreeMap<usize, &FileContent> = BTreeMap::new();
            for (at, (file, is_shared)) in files.iter().enumerate() {
                if *is_shared {
                    other.put(file.0, file.1, &file.2);
                    rows.put_record(&other.record(file.0).expect("just put"));
                } else {
                    rows.put(file.0, file.1, &file.2);
                }
                model.retain(|_, old| old.0 != file.0);
                model.insert(at, file);
            }
            drop(other);
            prop_assert_eq!(rows.len(), model.len());
            let found: Vec<_> = rows.iter().collect();
            let wanted: Vec<_> = model.values().map(|file| (*file).clone()).collect();
            prop_assert_eq!(found, wanted);
            for ino in 0..40 {
                let file = model.values().find(|file| file.0 == ino);
                prop_assert_eq!(rows.get(ino), file.map(|file| (file.1, file.2.clone())));
                prop_assert_eq!(rows.version(ino), file.map(|file| file.1));
            }
        }
    }

    fn small_row(number: u64) -> ExtentRow {
        ExtentRow {
            offset: 0,
            length: 1000,
            chunk: ChunkRef {
                hash: ChunkHash([number as u8; 32]),
                pack: 7,
                offset: 16 + number * 120,
                stored_length: 120,
                raw_length: 1000,
                codec: 1,
            },
            skip: 0,
        }
    }

    fn held(rows: &FileRows) -> usize {
        let blocks: usize = rows.blocks.iter().map(|block| block.capacity()).sum();
        blocks + held_beside(rows)
    }

    fn held_beside(rows: &FileRows) -> usize {
        let index = rows.index.capacity() * (size_of::<u32>() + 1) * 8 / 7;
        index + rows.order.capacity() * size_of::<u64>()
    }

    #[test]
    fn a_small_file_takes_little() {
        let mut rows = FileRows::default();
        for number in 0..100_000 {
            rows.put(number, number, &[small_row(number)]);
        }
        let held = held(&rows);
        assert!(held < 90 * 100_000, "{held} bytes");
    }

    #[test]
    fn what_another_table_has_takes_next_to_nothing() {
        let (mut rows, mut more) = (FileRows::default(), FileRows::default());
        for number in 0..100_000 {
            rows.put(number, number, &[small_row(number)]);
            if number % 10 == 0 {
                more.put_record(&rows.record(number).expect("just put"));
            }
        }
        let (all, some) = (held(&rows), held_beside(&more));
        assert_eq!(more.len(), 10_000);
        assert!(all < 130 * 100_000, "{all} bytes, in blocks of ten files");
        assert!(some < 30 * 10_000, "{some} bytes");
    }

    #[test]
    fn files_put_again_and_again_take_no_more_room() {
        let mut rows = FileRows::default();
        for number in 0..200_000 {
            rows.put(number % 100, number, &[small_row(number)]);
        }
        assert!(rows.bytes < 2 * SQUEEZE_MIN_BYTES + (1 << 16));
        assert_eq!(rows.len(), 100);
    }
}
