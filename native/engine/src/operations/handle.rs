//! Open files and directories. A handle is flags and a number, and the kernel says with each request
//! which inode it belongs to. So a handle that an earlier process gave out means the same here: it
//! is taken as it stands when it is used for the first time, and closing it needs no entry.
//!
//! ```text
//! fh        number << 3 | 4 for a directory | access mode (0 to 2)
//! number    counts the handles of this process, from a random start: no handle of an earlier
//!           process has the same
//! ```

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use cowfs_base::sync::{Mutex, RwLock};
use cowfs_base::{Errno, Ino};
use cowfs_survival::Table;
use hashbrown::{HashMap, HashSet};

use crate::ahead::Stream;
use crate::attributes::Clears;
use crate::effect::Effect;
use crate::engine::Engine;
use crate::error::Result;
use crate::inode::Inode;
use crate::state::State;

const ACCESS: u64 = 3;
const DIRECTORY: u64 = 4;
const FLAG_BITS: u32 = 3;
/// Leaves room to count, and a bit in front.
const START_BITS: u32 = 58;

/// A handle as a request names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HandleId {
    /// The inode that was opened.
    pub ino: Ino,
    /// The number that `open` returned.
    pub fh: u64,
}

impl HandleId {
    fn new(inode: &Inode, flags: i32) -> HandleId {
        static LAST: LazyLock<AtomicU64> = LazyLock::new(|| {
            let random = RandomState::new().build_hasher().finish();
            AtomicU64::new(random >> (u64::BITS - START_BITS))
        });
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let directory = match inode.is_directory() {
            true => DIRECTORY,
            false => 0,
        };
        let access = (flags & libc::O_ACCMODE) as u64;
        HandleId {
            ino: inode.ino,
            fh: number << FLAG_BITS | directory | access,
        }
    }

    /// O_RDONLY, O_WRONLY or O_RDWR.
    pub(crate) fn access(self) -> i32 {
        (self.fh & ACCESS) as i32
    }

    fn is_of_directory(self) -> bool {
        self.fh & DIRECTORY != 0
    }
}

/// One open file or directory.
#[derive(Debug)]
pub(crate) struct Handle {
    pub id: HandleId,
    pub ino: Ino,
    /// Whether it counts among the inode's opens: the handle of an earlier process does not.
    is_counted: bool,
    /// The position of its reader.
    pub stream: Mutex<Stream>,
    /// A directory's: its listing ends before this cookie, so that entries made since it was begun
    /// are not in it.
    pub end_cookie: AtomicU64,
}

impl Handle {
    fn new(id: HandleId, is_counted: bool) -> Arc<Handle> {
        Arc::new(Handle {
            id,
            ino: id.ino,
            is_counted,
            stream: Mutex::default(),
            end_cookie: AtomicU64::new(0),
        })
    }

    pub fn is_writable(&self) -> bool {
        self.id.access() != libc::O_RDONLY
    }
}

/// The handles in use. Their numbers are never used twice.
#[derive(Default)]
pub(crate) struct Handles {
    open: RwLock<HashMap<HandleId, Arc<Handle>>>,
    /// Where the next server finds those of directories, and those for reading and writing.
    table: OnceLock<Arc<Table>>,
}

impl Handles {
    /// Called with the state locked, so that the inode cannot vanish in between.
    pub fn open(&self, inode: &Inode, flags: i32) -> HandleId {
        let id = HandleId::new(inode, flags);
        inode.opens.fetch_add(1, Ordering::AcqRel);
        if let Some(table) = self.table_for(id) {
            table.add_handle(id.ino, id.fh);
        }
        self.open.write().insert(id, Handle::new(id, true));
        id
    }

    /// The table, if it has this handle: a directory's, whose entries keep their cookies, or a
    /// file's that may be mapped writable.
    fn table_for(&self, id: HandleId) -> Option<&Table> {
        let is_kept = id.is_of_directory() || id.access() == libc::O_RDWR;
        self.table.get().filter(|_| is_kept).map(|table| &**table)
    }

    fn in_table(&self) -> impl Iterator<Item = HandleId> {
        let table = self.table.get();
        let all = table.map(|table| table.handles()).unwrap_or_default();
        all.into_iter().map(|(ino, fh)| HandleId { ino, fh })
    }

    pub fn directories_in_table(&self) -> impl Iterator<Item = Ino> {
        let directories = self.in_table().filter(|id| id.is_of_directory());
        directories.map(|id| id.ino)
    }
}

impl Engine {
    /// From now on the table has the handles of directories and those for reading and writing,
    /// beside those that earlier servers put there.
    pub fn keep_handles(&self, table: Arc<Table>) {
        self.handles.table.get_or_init(|| table);
    }

    /// The handle of a request. One that was given out by an earlier process is taken in; EBADF if
    /// it cannot belong to this inode.
    pub(crate) fn handle(&self, id: HandleId) -> Result<Arc<Handle>> {
        if let Some(handle) = self.handles.open.read().get(&id) {
            return Ok(handle.clone());
        }
        let state = self.read()?;
        let inode = state.inode(id.ino)?;
        let is_right = match id.is_of_directory() {
            true => inode.is_directory(),
            false => inode.is_file(),
        };
        if !is_right {
            return Err(Errno::EBADF.into());
        }
        let mut open = self.handles.open.write();
        let handle = open.entry(id).or_insert_with(|| Handle::new(id, false));
        Ok(handle.clone())
    }

    /// Opens a file; O_TRUNC in `flags` truncates.
    pub fn open_file(&self, ino: Ino, flags: i32) -> Result<HandleId> {
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
    pub fn open_directory(&self, ino: Ino) -> Result<HandleId> {
        {
            let state = self.read()?;
            state.directory(ino)?;
            if !state.has_untold_cookies(ino) {
                return Ok(self.handles.open(state.inode(ino)?, libc::O_RDONLY));
            }
        }
        let mut state = self.change()?;
        state.directory(ino)?;
        state.tell_cookies(ino);
        Ok(self.handles.open(state.inode(ino)?, libc::O_RDONLY))
    }

    /// Closes a file handle; one that an earlier process gave out, too.
    pub fn release(&self, id: HandleId) -> Result<()> {
        if let Some(table) = self.handles.table_for(id) {
            table.remove_handle(id.ino, id.fh);
        }
        let handle = self.handles.open.write().remove(&id);
        let Some(handle) = handle.filter(|handle| handle.is_counted) else {
            return Ok(());
        };
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
    pub fn release_directory(&self, id: HandleId) -> Result<()> {
        self.release(id)
    }

    /// The number that the next new inode gets, at least.
    pub fn next_ino(&self) -> Result<Ino> {
        Ok(self.read()?.next_ino)
    }

    /// Whether a file or directory is open.
    pub fn has_handles(&self) -> bool {
        !self.handles.open.read().is_empty()
    }

    /// Inodes that a live handle may have mapped writable, an earlier server's too.
    pub fn writable_handles(&self) -> Vec<Ino> {
        let earlier = self.handles.in_table();
        let open = self.handles.open.read();
        let inodes: HashSet<Ino> = open
            .keys()
            .copied()
            .chain(earlier)
            .filter(|id| id.access() == libc::O_RDWR)
            .map(|id| id.ino)
            .collect();
        inodes.into_iter().collect()
    }

    /// Lowers the kernel's count of references to an inode.
    pub fn forget(&self, ino: Ino, count: u64) -> Result<()> {
        let is_unreachable = {
            let state = self.read()?;
            match state.inodes.get(ino) {
                Some(inode) => {
                    state.lower(inode, count);
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
