//! Open files and directories by handle number. A handle carries only what the kernel would tell
//! again: inode and flags.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cowfs_base::sync::{Mutex, RwLock};
use cowfs_base::{Errno, Ino};
use hashbrown::{HashMap, HashSet};

use crate::ahead::Stream;
use crate::attributes::Clears;
use crate::effect::Effect;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::inode::Inode;
use crate::state::State;

/// One open file or directory.
#[derive(Debug)]
pub(crate) struct Handle {
    pub ino: Ino,
    pub flags: i32,
    /// The position of its reader.
    pub stream: Mutex<Stream>,
    /// A directory's: its listing ends before this cookie, so that entries made since it was begun
    /// are not in it.
    pub end_cookie: AtomicU64,
}

impl Handle {
    pub fn is_writable(&self) -> bool {
        self.flags & libc::O_ACCMODE != libc::O_RDONLY
    }
}

/// Every open handle. Numbers are never used twice.
#[derive(Default)]
pub(crate) struct Handles {
    last: AtomicU64,
    open: RwLock<HashMap<u64, Arc<Handle>>>,
}

impl Handles {
    pub fn get(&self, fh: u64) -> Result<Arc<Handle>> {
        self.open
            .read()
            .get(&fh)
            .cloned()
            .ok_or(Error::Os(Errno::EBADF))
    }

    /// Called with the state locked, so that the inode cannot vanish in between.
    pub fn open(&self, inode: &Inode, flags: i32) -> u64 {
        let fh = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        inode.opens.fetch_add(1, Ordering::AcqRel);
        let handle = Handle {
            ino: inode.ino,
            flags,
            stream: Mutex::default(),
            end_cookie: AtomicU64::new(0),
        };
        self.open.write().insert(fh, Arc::new(handle));
        fh
    }
}

impl Engine {
    /// Opens a file; O_TRUNC in `flags` truncates.
    pub fn open_file(&self, ino: Ino, flags: i32) -> Result<u64> {
        if flags & libc::O_TRUNC != 0 {
            let mut state = self.change()?;
            if file(&state, ino)?.is_file() {
                Engine::truncate_to_zero(&mut state, ino)?;
            }
            return Ok(self.handles.open(file(&state, ino)?, flags));
        }
        if flags & libc::O_ACCMODE != libc::O_RDONLY {
            self.disk()?;
        }
        let state = self.read()?;
        Ok(self.handles.open(file(&state, ino)?, flags))
    }

    pub(crate) fn truncate_to_zero(state: &mut State, ino: Ino) -> Result<()> {
        let inode = state.inode(ino)?;
        if inode.has_xattrs() {
            state.content(ino)?;
        }
        let mut row = Clears::ForMember.apply(inode.row());
        row.size = 0;
        row.ctime_ns = cowfs_base::now_ns();
        row.mtime_ns = row.ctime_ns;
        Engine::record(
            state,
            &[
                Effect::Unmap {
                    ino,
                    from: 0,
                    to: u64::MAX,
                },
                Effect::PutInode(row),
            ],
        )?;
        state.refused.store_again(ino, 0, u64::MAX);
        Ok(())
    }

    /// Opens a directory for reading its entries.
    pub fn open_directory(&self, ino: Ino) -> Result<u64> {
        let state = self.read()?;
        state.directory(ino)?;
        Ok(self.handles.open(state.inode(ino)?, libc::O_DIRECTORY))
    }

    /// Closes a file handle.
    pub fn release(&self, fh: u64) -> Result<()> {
        let handle = self.handles.open.write().remove(&fh).ok_or(Errno::EBADF)?;
        let is_unreachable = {
            let state = self.read()?;
            state.inodes.get(handle.ino).is_some_and(|inode| {
                inode.opens.fetch_sub(1, Ordering::AcqRel);
                inode.is_unreachable()
            })
        };
        if is_unreachable {
            self.fill()?.destroy(handle.ino);
        }
        Ok(())
    }

    /// Closes a directory handle.
    pub fn release_directory(&self, fh: u64) -> Result<()> {
        self.release(fh)
    }

    /// A descriptor of the file was closed. Nothing waits to be written: every write was staged
    /// before it was answered.
    pub fn flush(&self, fh: u64) -> Result<()> {
        self.handles.get(fh).map(drop)
    }

    /// Inodes that a live handle may have mapped writable.
    pub fn writable_handles(&self) -> Vec<Ino> {
        let open = self.handles.open.read();
        let inodes: HashSet<Ino> = open
            .values()
            .filter(|handle| handle.flags & libc::O_ACCMODE == libc::O_RDWR)
            .map(|handle| handle.ino)
            .collect();
        inodes.into_iter().collect()
    }

    /// Lowers the kernel's count of references to an inode.
    pub fn forget(&self, ino: Ino, count: u64) -> Result<()> {
        let is_unreachable = {
            let state = self.read()?;
            match state.inodes.get(ino) {
                Some(inode) => {
                    inode.lower_lookups(count);
                    inode.is_unreachable()
                }
                None => {
                    drop(state);
                    self.fill()?.lower_references(ino, count);
                    false
                }
            }
        };
        if is_unreachable {
            self.fill()?.destroy(ino);
        }
        Ok(())
    }

    /// Raises the kernel's count of references for an entry that `read_directory` returned and the
    /// kernel took.
    pub fn entry_delivered(&self, ino: Ino) -> Result<()> {
        let state = self.read()?;
        if let Some(inode) = state.inodes.get(ino) {
            inode.raise_lookups();
        } else {
            drop(state);
            self.fill()?.raise_references(ino);
        }
        Ok(())
    }
}

fn file(state: &State, ino: Ino) -> Result<&Inode> {
    let inode = state.inode(ino)?;
    if inode.is_directory() {
        return Err(Errno::EISDIR.into());
    }
    Ok(inode)
}
