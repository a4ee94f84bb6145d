//! Passthrough: the kernel reads files of a read-only mount from local files, at the disk's speed.
//!
//! It is offered in the handshake of a read-only mount whose daemon may register files
//! (CAP_SYS_ADMIN in the first user namespace). The first open of an inode decides how it is read,
//! until its last close: the kernel gives EIO if both ways are mixed. An inode has one backing id,
//! which is given back with its last handle. If anything fails, the file is read by requests.
//!
//! Writable mounts never use it: writes that bypass the daemon could not be frozen.
//!
//! One lock, so that the first of several opens decides for all. It is held while the engine opens
//! the file and while the kernel registers it. Neither waits for anything but the local disk.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use cowfs_base::sync::Mutex;
use cowfs_base::{Errno, Ino};
use cowfs_engine::{HandleId, LocalFile};
use cowfs_fuse_abi::{FOPEN_NOFLUSH, Reply, flag};
use cowfs_mounted::Result;

use crate::answer::{Answer, OPENED};
use crate::lane::Shared;

/// The local disk itself. A file system that is stacked already, as overlayfs, is refused; others
/// may be stacked on ours.
pub(crate) const STACK_DEPTH: u32 = 1;

/// From linux/fuse.h: _IOW(229, 1, struct fuse_backing_map), _IOW(229, 2, uint32_t).
const BACKING_OPEN: libc::c_ulong = 0x4010_e501;
const BACKING_CLOSE: libc::c_ulong = 0x4004_e502;

#[repr(C)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

#[derive(Default)]
pub(crate) struct Passthrough {
    is_offered: bool,
    is_on: AtomicBool,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    files: HashMap<Ino, OpenFile>,
    counted: HashSet<HandleId>,
}

struct OpenFile {
    handles: u32,
    /// None: the file is read by requests.
    backing_id: Option<u32>,
}

impl Passthrough {
    pub fn new(is_offered: bool) -> Passthrough {
        Passthrough {
            is_offered,
            ..Passthrough::default()
        }
    }

    /// The features that the handshake may offer.
    pub fn features(&self) -> u64 {
        match self.is_offered {
            true => flag::INIT_EXT | flag::PASSTHROUGH,
            false => 0,
        }
    }

    pub fn agree(&self, features: u64) {
        let is_on = self.is_offered && features & flag::PASSTHROUGH != 0;
        self.is_on.store(is_on, Ordering::Release);
    }
}

impl Shared {
    /// The reply to OPEN.
    pub(crate) fn open(&self, unique: u64, ino: Ino, flags: i32) -> Result<Answer> {
        let normal = |id: HandleId| Answer::opened(Reply::new(unique).opened(id.fh, OPENED), id);
        let is_on = self.passthrough.is_on.load(Ordering::Acquire);
        let Some(engine) = self.files.own(ino).ok().filter(|_| is_on) else {
            return self.files.open_file(ino, flags).map(normal);
        };
        let mut open = self.passthrough.open.lock();
        let backing_id = match open.files.get(&ino) {
            Some(file) => file.backing_id,
            None => match engine.backing_file(ino)? {
                LocalFile::Whole(file) => self.register(&file),
                LocalFile::Absent => None,
                LocalFile::Later => {
                    let engine = self.files.engine().clone();
                    // A failure leaves things as they are: read by requests.
                    self.syncing.run(move || drop(engine.assemble_file(ino)));
                    None
                }
            },
        };
        let handle = match engine.open_file(ino, flags) {
            Ok(handle) => handle,
            Err(error) => {
                if !open.files.contains_key(&ino) {
                    self.give_back(backing_id);
                }
                return Err(error.into());
            }
        };
        open.counted.insert(handle);
        let file = open.files.entry(ino).or_insert(OpenFile {
            handles: 0,
            backing_id,
        });
        file.handles += 1;
        Ok(match backing_id {
            Some(id) => {
                let reply = Reply::new(unique).opened_passthrough(handle.fh, FOPEN_NOFLUSH, id);
                Answer::opened(reply, handle)
            }
            None => normal(handle),
        })
    }

    /// Closes a file handle, whichever way it was read.
    pub(crate) fn close(&self, id: HandleId) -> Result<()> {
        let outcome = self.files.release(id);
        let mut open = self.passthrough.open.lock();
        if open.counted.remove(&id)
            && let Some(file) = open.files.get_mut(&id.ino)
        {
            file.handles -= 1;
            if file.handles == 0 {
                let backing_id = file.backing_id;
                open.files.remove(&id.ino);
                self.give_back(backing_id);
            }
        }
        outcome
    }

    fn register(&self, file: &File) -> Option<u32> {
        match backing_open(self.device.descriptor(), file) {
            Ok(id) => Some(id),
            Err(errno) => {
                // This process may not register files, or not on this disk. Trying again for each
                // file would only cost the copies.
                if matches!(errno.0, libc::EPERM | libc::ELOOP | libc::EOPNOTSUPP) {
                    self.passthrough.is_on.store(false, Ordering::Release);
                }
                None
            }
        }
    }

    fn give_back(&self, backing_id: Option<u32>) {
        if let Some(id) = backing_id {
            backing_close(self.device.descriptor(), id);
        }
    }
}

fn backing_open(device: RawFd, file: &File) -> std::result::Result<u32, Errno> {
    let map = BackingMap {
        fd: file.as_raw_fd(),
        flags: 0,
        padding: 0,
    };
    // SAFETY: both descriptors are open, and the kernel reads a structure of the size the number
    // names.
    let id = unsafe { libc::ioctl(device, BACKING_OPEN as _, &map) };
    u32::try_from(id).map_err(|_| std::io::Error::last_os_error().into())
}

/// Open files keep theirs. Fails only on a connection that is gone and has dropped all of them.
fn backing_close(device: RawFd, id: u32) {
    // SAFETY: the kernel reads four bytes.
    unsafe { libc::ioctl(device, BACKING_CLOSE as _, &id) };
}
