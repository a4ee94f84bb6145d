//! Inodes in memory: fixed-size records in pages that never move, found through a table of 32-bit slot numbers.
//!
//! About 120 bytes an inode without content; with its entry in a directory a clean file stays below 200.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cowfs_base::Ino;
use hashbrown::HashTable;

use crate::content::Content;
use crate::directory::Directory;
use crate::row::{Attr, INODE_HAS_XATTRS, InodeRow, S_IFDIR, S_IFMT, S_IFREG};

/// What an inode of its type has that others don't.
#[derive(Debug)]
pub(crate) enum Node {
    Directory(Directory),
    Symlink(Box<[u8]>),
}

/// One inode. Counts are atomic so that look-ups and opens need only a shared lock.
#[derive(Debug)]
pub(crate) struct Inode {
    pub ino: Ino,
    pub size: u64,
    /// As loaded; `mapped_bytes()` knows better once the content is here.
    mapped_bytes: u64,
    pub atime_ns: i64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
    /// How many references the kernel holds.
    pub lookups: AtomicU64,
    /// How many handles are open.
    pub opens: AtomicU32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    /// As loaded; `has_xattrs` knows better once the content is here.
    flags: u32,
    pub content: Option<Box<Content>>,
    pub node: Option<Box<Node>>,
}

impl Inode {
    /// An inode of a base version: its content and entries are not here, except where the row says there are none.
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
            S_IFDIR => Some(Box::new(Node::Directory(Directory::new(is_new)))),
            crate::row::S_IFLNK => Some(Box::new(Node::Symlink(row.target.clone()))),
            _ => None,
        };
        Inode {
            ino: row.ino,
            size: row.size,
            mapped_bytes: row.mapped_bytes,
            atime_ns: row.atime_ns,
            mtime_ns: row.mtime_ns,
            ctime_ns: row.ctime_ns,
            lookups: AtomicU64::new(0),
            opens: AtomicU32::new(0),
            mode: row.mode,
            nlink: row.nlink,
            uid: row.uid,
            gid: row.gid,
            rdev: row.rdev,
            flags: row.flags,
            content: None,
            node,
        }
    }

    /// Takes over everything of the row but number, target, flags and mapped bytes, which follow from other effects.
    pub fn set_row(&mut self, row: &InodeRow) {
        self.mode = row.mode;
        self.nlink = row.nlink;
        self.uid = row.uid;
        self.gid = row.gid;
        self.rdev = row.rdev;
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
            rdev: self.rdev,
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
            rdev: self.rdev,
            size: self.size,
            blocks: self.mapped_bytes().div_ceil(512),
            atime_ns: self.atime_ns,
            mtime_ns: self.mtime_ns,
            ctime_ns: self.ctime_ns,
        }
    }

    pub fn mapped_bytes(&self) -> u64 {
        match &self.content {
            Some(content) => content.extents.mapped_bytes(),
            None => self.mapped_bytes,
        }
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
        match self.node.as_deref() {
            Some(Node::Directory(directory)) => Some(directory),
            _ => None,
        }
    }

    pub fn directory_mut(&mut self) -> Option<&mut Directory> {
        match self.node.as_deref_mut() {
            Some(Node::Directory(directory)) => Some(directory),
            _ => None,
        }
    }

    pub fn target(&self) -> &[u8] {
        match self.node.as_deref() {
            Some(Node::Symlink(target)) => target,
            _ => &[],
        }
    }

    pub fn has_xattrs(&self) -> bool {
        match &self.content {
            Some(content) => !content.xattrs.is_empty(),
            None => self.flags & INODE_HAS_XATTRS != 0,
        }
    }

    /// No name, no handle, no reference of the kernel: nobody can reach it any more.
    pub fn is_unreachable(&self) -> bool {
        self.nlink == 0
            && self.lookups.load(Ordering::Acquire) == 0
            && self.opens.load(Ordering::Acquire) == 0
    }
}

const PAGE: usize = 256;

/// Every inode in memory, by number.
#[derive(Debug, Default)]
pub(crate) struct InodeTable {
    pages: Vec<Box<[Option<Inode>]>>,
    free: Vec<u32>,
    index: HashTable<u32>,
}

fn hash_of(ino: Ino) -> u64 {
    // Numbers are given out in sequence; the table needs their entropy in the top bits.
    ino.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        ^ ino.wrapping_mul(0xff51_afd7_ed55_8ccd)
}

fn slot_ino(pages: &[Box<[Option<Inode>]>], slot: u32) -> Ino {
    pages[slot as usize / PAGE][slot as usize % PAGE]
        .as_ref()
        .map_or(0, |inode| inode.ino)
}

impl InodeTable {
    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn contains(&self, ino: Ino) -> bool {
        self.get(ino).is_some()
    }

    pub fn get(&self, ino: Ino) -> Option<&Inode> {
        let slot = *self
            .index
            .find(hash_of(ino), |slot| slot_ino(&self.pages, *slot) == ino)?
            as usize;
        self.pages[slot / PAGE][slot % PAGE].as_ref()
    }

    pub fn get_mut(&mut self, ino: Ino) -> Option<&mut Inode> {
        let slot = *self
            .index
            .find(hash_of(ino), |slot| slot_ino(&self.pages, *slot) == ino)?
            as usize;
        self.pages[slot / PAGE][slot % PAGE].as_mut()
    }

    /// Adds an inode whose number is not in the table yet.
    pub fn insert(&mut self, inode: Inode) {
        debug_assert!(!self.contains(inode.ino));
        if self.free.is_empty() {
            let first = (self.pages.len() * PAGE) as u32;
            self.pages.push((0..PAGE).map(|_| None).collect());
            self.free.extend((first..first + PAGE as u32).rev());
        }
        let slot = self.free.pop().expect("a page was just added");
        let ino = inode.ino;
        self.pages[slot as usize / PAGE][slot as usize % PAGE] = Some(inode);
        let pages = &self.pages;
        self.index
            .insert_unique(hash_of(ino), slot, |slot| hash_of(slot_ino(pages, *slot)));
    }

    pub fn remove(&mut self, ino: Ino) -> Option<Inode> {
        let pages = &self.pages;
        let entry = self
            .index
            .find_entry(hash_of(ino), |slot| slot_ino(pages, *slot) == ino)
            .ok()?;
        let (slot, _) = entry.remove();
        self.free.push(slot);
        self.pages[slot as usize / PAGE][slot as usize % PAGE].take()
    }
}
