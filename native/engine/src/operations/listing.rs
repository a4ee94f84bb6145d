//! Reading directories.

use std::sync::atomic::Ordering;

use cowfs_base::Attr;

use crate::directory::FIRST_COOKIE;
use crate::engine::Engine;
use crate::error::{Error, Missing, Result};
use crate::handle::HandleId;

/// One entry of a listing: a listing from `cookie` continues behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "said above")]
pub struct DirectoryEntry {
    pub name: Vec<u8>,
    pub cookie: u64,
    pub attr: Attr,
}

impl Engine {
    /// Up to `limit` entries after `cookie` (0: from the start), "." and ".." first. An entry that
    /// exists during the whole listing is returned exactly once, even if it or others are renamed.
    /// An entry renamed onto another takes its place, so the inode may come under both names.
    /// Entries made since the listing began, with cookie 0, are left out: it ends, however many are
    /// made meanwhile. A removed directory has no entries.
    pub fn read_directory(
        &self,
        id: HandleId,
        cookie: u64,
        limit: usize,
    ) -> Result<Vec<DirectoryEntry>> {
        let mut entries = Vec::new();
        self.list_directory(id, cookie, false, |name, cookie, attr| {
            if entries.len() == limit {
                return false;
            }
            entries.push(DirectoryEntry {
                name: name.into(),
                cookie,
                attr: attr.clone(),
            });
            true
        })?;
        Ok(entries)
    }

    /// `read_directory` without a copy: `take` gets name, cookie and attributes of one entry after
    /// the other until it returns false. With `counts`, each entry it took, other than "." and
    /// "..", raises the kernel's count of references.
    pub fn list_directory(
        &self,
        id: HandleId,
        cookie: u64,
        counts: bool,
        mut take: impl FnMut(&[u8], u64, &Attr) -> bool,
    ) -> Result<()> {
        let handle = self.handle(id)?;
        let state = self.read()?;
        let inode = state.inode(handle.ino)?;
        let directory = state.directory(handle.ino)?;
        if inode.nlink == 0 {
            return Ok(());
        }
        let end_cookie = match (cookie, handle.end_cookie.load(Ordering::Relaxed)) {
            // A handle that begins elsewhere, as a file server's does, lists the entries of now.
            (0, _) | (_, 0) => directory.next_cookie(),
            (_, known) => known,
        };
        handle.end_cookie.store(end_cookie, Ordering::Relaxed);
        let parent = state.inode(directory.parent_or_root())?;
        for (name, dot_cookie, dot) in [
            (&b"."[..], FIRST_COOKIE - 2, inode),
            (b"..", FIRST_COOKIE - 1, parent),
        ] {
            if cookie < dot_cookie && !take(name, dot_cookie, &dot.attr()) {
                return Ok(());
            }
        }
        let mut is_first = true;
        for (name, cookie, ino) in directory.after(cookie) {
            if cookie >= end_cookie {
                break;
            }
            let Some(inode) = state.inodes.get(ino) else {
                // Evicted. The entries counted so far are an answer.
                if counts && !is_first {
                    return Ok(());
                }
                return Err(Error::NotResident(Missing::Directory(handle.ino)));
            };
            is_first = false;
            if !take(name, cookie, &inode.attr()) {
                return Ok(());
            }
            if counts {
                inode.raise_lookups();
            }
        }
        Ok(())
    }
}
