//! Inodes in memory: fixed-size records in pages that never move, found through a table of 32-bit
//! slot numbers.
//!
//! A record has what every regular file needs and 80 bytes; what few inodes have (entries, targets,
//! device numbers, holes and attributes that are not loaded) hangs on it. With its slot number, its
//! place in a directory and a name of 20 bytes a clean file takes about 130 bytes
//! (`tests/memory.rs` holds the bound).

use std::sync::atomic::{AtomicU32, Ordering};

use cowfs_base::{Attr, Ino};
use hashbrown::HashTable;

use crate::content::Content;
use crate::directory::Directory;
use crate::row::{INODE_HAS_XATTRS, InodeRow, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};

/// Data that depends on the inode's type.
#[derive(Debug)]
enum Node {
    Plain,
    Directory(Box<Directory>),
    Symlink(Box<[u8]>),
}

/// Data that few inodes have.
#[derive(Debug)]
struct Extra {
    node: Node,
    rdev: u32,
    /// As loaded; the content knows better once it is here.
    has_xattrs: bool,
    /// Likewise.
    mapped_bytes: u64,
}

/// In `lookups`: used since eviction looked at it last.
const USED: u32 = 1 << 31;
const LOST: u32 = USED - 1;

/// One inode. Counts are atomic so that look-ups and opens need only a shared lock.
#[derive(Debug)]
pub(crate) struct Inode {
    pub ino: Ino,
    pub size: u64,
    pub atime_ns: i64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
    /// How many references the kernel holds; at `LOST` it is lost count of, and the inode stays.
    /// With the bit `USED`.
    lookups: AtomicU32,
    /// How many handles are open.
    pub opens: AtomicU32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub content: Option<Box<Content>>,
    /// None for a regular file without holes and attributes or with its content here, a FIFO or a
    /// socket.
    extra: Option<Box<Extra>>,
}

impl Inode {
    /// An inode of a base version: its content and entries are not here, unless the row says that
    /// there are no such.
    pub fn loaded(row: &InodeRow) -> Inode {
        let mut inode = Inode::from_row(row, false);
        let has_extents = inode.is_file() && row.size > 0;
        if !has_extents && row.flags & INODE_HAS_XATTRS == 0 && inode.is_file() {
            inode.content = Some(Box::default());
        }
        inode
    }

    /// A new inode: resident from birth.
    pub fn created(row: &InodeRow) -> Inode {
        let mut inode = Inode::from_row(row, true);
        inode.content = Some(Box::default());
        inode
    }

    fn from_row(row: &InodeRow, is_new: bool) -> Inode {
        let node = match row.mode & S_IFMT {
            S_IFDIR => Node::Directory(Box::new(Directory::new(is_new))),
            S_IFLNK => Node::Symlink(row.target.clone()),
            _ => Node::Plain,
        };
        let has_xattrs = row.flags & INODE_HAS_XATTRS != 0;
        let has_holes = row.mode & S_IFMT == S_IFREG && row.mapped_bytes != row.size;
        let is_plain = matches!(node, Node::Plain) && row.rdev == 0;
        let extra = Extra {
            node,
            rdev: row.rdev,
            has_xattrs,
            mapped_bytes: row.mapped_bytes,
        };
        let needs_extra = !is_plain || (!is_new && (has_xattrs || has_holes));
        Inode {
            ino: row.ino,
            size: row.size,
            atime_ns: row.atime_ns,
            mtime_ns: row.mtime_ns,
            ctime_ns: row.ctime_ns,
            lookups: AtomicU32::new(USED),
            opens: AtomicU32::new(0),
            mode: row.mode,
            nlink: row.nlink,
            uid: row.uid,
            gid: row.gid,
            content: None,
            extra: needs_extra.then(|| Box::new(extra)),
        }
    }

    /// The content of a slot without an inode.
    fn vacant() -> Inode {
        Inode::from_row(&InodeRow::default(), true)
    }

    /// Takes over everything of the row but number and type (with target and device number), and
    /// flags and mapped bytes, which follow from other effects.
    pub fn set_row(&mut self, row: &InodeRow) {
        if self.content.is_none() && self.is_file() && self.extra.is_none() && row.size != self.size
        {
            // No longer a file without holes.
            self.extra = Some(Box::new(Extra {
                node: Node::Plain,
                rdev: 0,
                has_xattrs: false,
                mapped_bytes: self.size,
            }));
        }
        self.mode = row.mode;
        self.nlink = row.nlink;
        self.uid = row.uid;
        self.gid = row.gid;
        self.size = row.size;
        self.atime_ns = row.atime_ns;
        self.mtime_ns = row.mtime_ns;
        self.ctime_ns = row.ctime_ns;
    }

    pub fn row(&self) -> InodeRow {
        InodeRow {
            ino: self.ino,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev(),
            size: self.size,
            mapped_bytes: self.mapped_bytes(),
            atime_ns: self.atime_ns,
            mtime_ns: self.mtime_ns,
            ctime_ns: self.ctime_ns,
            flags: if self.has_xattrs() {
                INODE_HAS_XATTRS
            } else {
                0
            },
            target: self.target().into(),
        }
    }

    pub fn attr(&self) -> Attr {
        Attr {
            ino: self.ino,
            mode: self.mode,
            nlink: self.nlink,
            uid: self.uid,
            gid: self.gid,
            rdev: self.rdev(),
            size: self.size,
            blocks: self.occupied_bytes().div_ceil(512),
            atime_ns: self.atime_ns,
            mtime_ns: self.mtime_ns,
            ctime_ns: self.ctime_ns,
        }
    }

    pub fn mapped_bytes(&self) -> u64 {
        match (&self.content, &self.extra) {
            (Some(content), _) => content.extents.mapped_bytes(),
            (None, Some(extra)) => extra.mapped_bytes,
            (None, None) if self.is_file() => self.size,
            (None, None) => 0,
        }
    }

    /// With the holes that were allocated.
    fn occupied_bytes(&self) -> u64 {
        match &self.content {
            Some(content) => content.extents.occupied_bytes(),
            None => self.mapped_bytes(),
        }
    }

    /// Whether it has allocated holes, perhaps behind its end.
    pub fn has_allocated(&self) -> bool {
        let content = self.content.as_deref();
        content.is_some_and(|content| content.extents.allocated().next().is_some())
    }

    fn rdev(&self) -> u32 {
        self.extra.as_ref().map_or(0, |extra| extra.rdev)
    }

    pub fn kind(&self) -> u32 {
        self.mode & S_IFMT
    }

    pub fn is_file(&self) -> bool {
        self.kind() == S_IFREG
    }

    pub fn is_directory(&self) -> bool {
        self.kind() == S_IFDIR
    }

    pub fn directory(&self) -> Option<&Directory> {
        match &self.extra.as_deref()?.node {
            Node::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    pub fn directory_mut(&mut self) -> Option<&mut Directory> {
        match &mut self.extra.as_deref_mut()?.node {
            Node::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    pub fn target(&self) -> &[u8] {
        match self.extra.as_deref() {
            Some(Extra {
                node: Node::Symlink(target),
                ..
            }) => target,
            _ => &[],
        }
    }

    /// The size of its attributes, as far as they are here.
    pub fn xattr_bytes(&self) -> usize {
        let content = self.content.as_deref();
        content.map_or(0, |content| content.xattrs.bytes())
    }

    /// The size of one attribute, with its name; 0 if it does not exist or is not here.
    pub fn xattr_pair_bytes(&self, name: &[u8]) -> usize {
        let content = self.content.as_deref();
        let value = content.and_then(|content| content.xattrs.get(name));
        value.map_or(0, |value| name.len() + value.len())
    }

    pub fn has_xattrs(&self) -> bool {
        match (&self.content, &self.extra) {
            (Some(content), _) => !content.xattrs.is_empty(),
            (None, extra) => extra.as_ref().is_some_and(|extra| extra.has_xattrs),
        }
    }

    /// The kernel holds one more reference.
    pub fn raise_lookups(&self) {
        let raise = |lookups: u32| (lookups & LOST < LOST).then(|| (lookups + 1) | USED);
        // Refused where the count is lost already.
        let _ = self
            .lookups
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, raise);
    }

    /// The kernel holds `count` references less.
    pub fn lower_lookups(&self, count: u64) {
        let lower = |lookups: u32| match lookups & LOST {
            LOST => None,
            held => {
                let left = held.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
                Some(left | (lookups & USED))
            }
        };
        let _ = self
            .lookups
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, lower);
    }

    /// The kernel has forgotten an inode whose references were lost count of.
    pub fn drop_lost_lookups(&self) {
        let drop = |lookups: u32| (lookups & LOST == LOST).then_some(lookups & USED);
        let _ = self
            .lookups
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, drop);
    }

    /// No name, no handle, no reference of the kernel: the inode can no longer be reached.
    pub fn is_unreachable(&self) -> bool {
        self.nlink == 0 && self.references() == 0 && !self.is_open()
    }

    pub fn is_open(&self) -> bool {
        self.opens.load(Ordering::Acquire) > 0
    }

    pub fn references(&self) -> u32 {
        self.lookups.load(Ordering::Acquire) & LOST
    }

    /// Sets the number of references that the kernel held when the inode was evicted; None if the
    /// count is unknown.
    pub fn set_references(&mut self, references: Option<u32>) {
        *self.lookups.get_mut() = references.unwrap_or(LOST) | USED;
    }

    /// Gives it a second chance when eviction looks at it next.
    pub fn note_use(&self) {
        if self.lookups.load(Ordering::Relaxed) & USED == 0 {
            self.lookups.fetch_or(USED, Ordering::Relaxed);
        }
    }

    /// Whether it was used since the last call.
    pub fn take_use(&self) -> bool {
        self.lookups.load(Ordering::Relaxed) & USED != 0
            && self.lookups.fetch_and(!USED, Ordering::Relaxed) & USED != 0
    }

    /// Forgets the content, which can be loaded again; what the row says of it stays known.
    pub fn drop_content(&mut self) {
        let (has_xattrs, mapped_bytes) = (self.has_xattrs(), self.mapped_bytes());
        self.content = None;
        let has_holes = self.is_file() && mapped_bytes != self.size;
        match &mut self.extra {
            Some(extra) => {
                extra.has_xattrs = has_xattrs;
                extra.mapped_bytes = mapped_bytes;
            }
            None if has_xattrs || has_holes => {
                self.extra = Some(Box::new(Extra {
                    node: Node::Plain,
                    rdev: 0,
                    has_xattrs,
                    mapped_bytes,
                }));
            }
            None => {}
        }
    }
}

const PAGE: usize = 256;

/// Every inode in memory, by number.
#[derive(Debug, Default)]
pub(crate) struct InodeTable {
    pages: Vec<Box<[Inode]>>,
    free: Vec<u32>,
    index: HashTable<u32>,
}

/// For a `HashTable`. Numbers are given out in sequence, and files that were made together are used
/// together: eight numbers in a row lie beside one another in the table, such groups anywhere. The
/// top bits, by which the table tells its entries apart, differ within a group.
pub(crate) fn hash_of(ino: Ino) -> u64 {
    const IN_GROUP: u64 = 7;
    const TOP: u64 = 0x7f << 57;
    let mixed = |number: u64| {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
            ^ number.wrapping_mul(0xff51_afd7_ed55_8ccd)
    };
    (mixed(ino) & TOP) | (mixed(ino >> 3) & !(TOP | IN_GROUP)) | (ino & IN_GROUP)
}

fn at(pages: &[Box<[Inode]>], slot: u32) -> &Inode {
    &pages[slot as usize / PAGE][slot as usize % PAGE]
}

impl InodeTable {
    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn contains(&self, ino: Ino) -> bool {
        self.get(ino).is_some()
    }

    pub fn get(&self, ino: Ino) -> Option<&Inode> {
        self.slot(ino).map(|slot| at(&self.pages, slot))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Inode> {
        self.pages.iter().flatten().filter(|inode| inode.ino != 0)
    }

    pub fn get_mut(&mut self, ino: Ino) -> Option<&mut Inode> {
        let slot = self.slot(ino)? as usize;
        Some(&mut self.pages[slot / PAGE][slot % PAGE])
    }

    /// How many slots there are, vacant ones too.
    pub fn slots(&self) -> usize {
        self.pages.len() * PAGE
    }

    pub fn at_slot(&self, slot: usize) -> Option<&Inode> {
        let inode = self.pages.get(slot / PAGE)?.get(slot % PAGE)?;
        (inode.ino != 0).then_some(inode)
    }

    fn slot(&self, ino: Ino) -> Option<u32> {
        self.index
            .find(hash_of(ino), |slot| at(&self.pages, *slot).ino == ino)
            .copied()
    }

    /// Adds an inode whose number is not in the table yet.
    pub fn insert(&mut self, inode: Inode) {
        debug_assert!(!self.contains(inode.ino));
        if self.free.is_empty() {
            let first = (self.pages.len() * PAGE) as u32;
            self.pages
                .push((0..PAGE).map(|_| Inode::vacant()).collect());
            self.free.extend((first..first + PAGE as u32).rev());
        }
        let slot = self.free.pop().expect("a page was just added");
        let ino = inode.ino;
        self.pages[slot as usize / PAGE][slot as usize % PAGE] = inode;
        let pages = &self.pages;
        self.index
            .insert_unique(hash_of(ino), slot, |slot| hash_of(at(pages, *slot).ino));
    }

    pub fn remove(&mut self, ino: Ino) -> Option<Inode> {
        let pages = &self.pages;
        let entry = self
            .index
            .find_entry(hash_of(ino), |slot| at(pages, *slot).ino == ino)
            .ok()?;
        let (slot, _) = entry.remove();
        self.free.push(slot);
        let place = &mut self.pages[slot as usize / PAGE][slot as usize % PAGE];
        Some(std::mem::replace(place, Inode::vacant()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_80_bytes() {
        assert_eq!(size_of::<Inode>(), 80);
    }

    #[test]
    fn references_that_cannot_be_counted_keep_the_inode() {
        let inode = Inode::created(&InodeRow {
            mode: S_IFREG,
            ..InodeRow::default()
        });
        inode.raise_lookups();
        inode.lower_lookups(u64::MAX);
        assert!(inode.is_unreachable());
        inode.lookups.store(LOST - 1, Ordering::Relaxed);
        inode.raise_lookups();
        inode.raise_lookups();
        inode.lower_lookups(u64::MAX);
        assert!(!inode.is_unreachable());
    }
}
