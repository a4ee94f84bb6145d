//! A FUSE server that does nothing: the limit of FUSE for the lane, since it has the lane's device
//! loop, handshake and threads, and answers every request with a constant. `make bench` runs it
//! beside cowfs.
//!
//! `do_nothing MOUNT_POINT SMALL_BYTES LARGE_BYTES`: as root, until it is unmounted. It remembers
//! which names exist and nothing else. Names that begin with `d` are directories, those with
//! `large` files of LARGE_BYTES, all others of SMALL_BYTES. Reads give zeros, writes are discarded,
//! and directories cannot be listed.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs::OpenOptions;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex};

use cowfs_base::Attr;
use cowfs_fuse_abi::{
    FOPEN_KEEP_CACHE, FOPEN_NOFLUSH, Header, InitReply, MINOR, Operation, Reply, Terms, flag,
};
use device::{Device, MAX_WRITE_BYTES, REQUEST_BYTES, Received};

#[path = "../src/device.rs"]
#[allow(dead_code, reason = "the lane uses all of it")]
mod device;

const THREADS: usize = 2;
const HOUR_NS: u64 = 3600 * 1_000_000_000;
const IS_DIRECTORY: u64 = 1 << 62;
const IS_LARGE: u64 = 1 << 61;
const ROOT: u64 = 1;
const OPENED: u32 = FOPEN_KEEP_CACHE | FOPEN_NOFLUSH;
const BACKGROUND_MAX: u16 = 128;
const LIFETIMES: Terms = Terms {
    generation: 0,
    entry_ns: HOUR_NS,
    attr_ns: HOUR_NS,
};
/// The lane's (`lane/src/handshake.rs`), without those that would need an answer.
const FEATURES: u64 = flag::ASYNC_READ
    | flag::BIG_WRITES
    | flag::DONT_MASK
    | flag::ASYNC_DIO
    | flag::PARALLEL_DIROPS
    | flag::MAX_PAGES
    | flag::HANDLE_KILLPRIV_V2;

struct Server {
    device: Device,
    names: Mutex<HashSet<u64>>,
    small_bytes: u64,
    large_bytes: u64,
    zeros: Vec<u8>,
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [mount_point, small, large] = &arguments[..] else {
        return Err(io::Error::other(
            "do_nothing MOUNT_POINT SMALL_BYTES LARGE_BYTES",
        ));
    };
    let server = Arc::new(Server {
        device: Device::new(mount(mount_point)?)?,
        names: Mutex::default(),
        small_bytes: small.parse().map_err(io::Error::other)?,
        large_bytes: large.parse().map_err(io::Error::other)?,
        zeros: vec![0; MAX_WRITE_BYTES as usize],
    });
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let server = server.clone();
            std::thread::spawn(move || server.serve())
        })
        .collect();
    for thread in threads {
        thread
            .join()
            .map_err(|_| io::Error::other("a thread panicked"))??;
    }
    Ok(())
}

fn mount(mount_point: &str) -> io::Result<OwnedFd> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")?;
    let options = CString::new(format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other",
        device.as_raw_fd()
    ))?;
    let target = CString::new(mount_point)?;
    // SAFETY: all pointers are to strings that end with a zero byte and outlive the call.
    let outcome = unsafe {
        libc::mount(
            c"do-nothing".as_ptr(),
            target.as_ptr(),
            c"fuse.do-nothing".as_ptr(),
            libc::MS_NOSUID | libc::MS_NODEV,
            options.as_ptr().cast(),
        )
    };
    if outcome < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(device.into())
}

impl Server {
    fn serve(&self) -> io::Result<()> {
        let mut buffer = vec![0; REQUEST_BYTES];
        loop {
            match self.device.receive(&mut buffer)? {
                Received::Request(length) => self.handle(&buffer[..length]),
                Received::Nothing => {}
                Received::Gone => return Ok(()),
            }
        }
    }

    fn handle(&self, message: &[u8]) {
        let Some((header, body)) = Header::parse(message) else {
            return;
        };
        let operation = Operation::parse(header.opcode, body).unwrap_or(Operation::Other);
        if let Some((reply, data)) = self.answer(&header, operation) {
            // The only possible error: the request's caller no longer waits.
            let _ = self.device.send(&reply.finish(data.len()), [data]);
        }
    }

    /// The reply and the bytes behind it; None for a request without a reply.
    fn answer(&self, header: &Header, operation: Operation<'_>) -> Option<(Reply, &[u8])> {
        let reply = Reply::new(header.unique);
        let parent = header.nodeid;
        let plain = match operation {
            Operation::Forget { .. } | Operation::BatchForget(_) | Operation::Interrupt { .. } => {
                return None;
            }
            Operation::Init {
                minor,
                max_readahead,
                flags,
                ..
            } => reply.init(&InitReply {
                minor: minor.min(MINOR),
                max_readahead,
                flags: flags & FEATURES,
                max_background: BACKGROUND_MAX,
                congestion_threshold: BACKGROUND_MAX * 3 / 4,
                max_write: MAX_WRITE_BYTES,
                max_pages: (MAX_WRITE_BYTES / 4096) as u16,
                max_stack_depth: 0,
            }),
            Operation::Lookup { name } => {
                let node = node(parent, name);
                let is_there = self.names.lock().is_ok_and(|names| names.contains(&node));
                let node = if is_there { node } else { 0 };
                reply.entry(node, &self.attributes(node), LIFETIMES)
            }
            Operation::MkDir { name, .. } => {
                let made = self.make(parent, name);
                reply.entry(made.ino, &made, LIFETIMES)
            }
            Operation::Create(_, name) => {
                let made = self.make(parent, name);
                reply.entry(made.ino, &made, LIFETIMES).opened(1, OPENED)
            }
            Operation::Unlink { name } | Operation::RmDir { name } => {
                self.remove(parent, name);
                reply
            }
            Operation::Rename {
                new_parent,
                name,
                new_name,
                ..
            } => {
                self.remove(parent, name);
                self.make(new_parent, new_name);
                reply
            }
            Operation::GetAttr | Operation::SetAttr(_) => {
                reply.attributes(&self.attributes(header.nodeid), HOUR_NS)
            }
            Operation::Open { .. } | Operation::OpenDir => reply.opened(1, OPENED),
            Operation::Read(io) => {
                let left = self.size(header.nodeid).saturating_sub(io.offset);
                let length = left.min(io.size.into()).min(self.zeros.len() as u64);
                return Some((reply, &self.zeros[..length as usize]));
            }
            Operation::Write(io, _) => reply.size(io.size),
            Operation::Release { .. } | Operation::ReleaseDir { .. } | Operation::Fsync { .. } => {
                reply
            }
            _ => Reply::error(header.unique, libc::ENOSYS),
        };
        Some((plain, &[]))
    }

    fn make(&self, parent: u64, name: &[u8]) -> Attr {
        let node = node(parent, name);
        if let Ok(mut names) = self.names.lock() {
            names.insert(node);
        }
        self.attributes(node)
    }

    fn remove(&self, parent: u64, name: &[u8]) {
        if let Ok(mut names) = self.names.lock() {
            names.remove(&node(parent, name));
        }
    }

    fn attributes(&self, node: u64) -> Attr {
        let is_directory = node == ROOT || node & IS_DIRECTORY != 0;
        Attr {
            ino: node,
            mode: if is_directory { 0o040_755 } else { 0o100_644 },
            nlink: 1,
            size: self.size(node),
            ..Attr::default()
        }
    }

    fn size(&self, node: u64) -> u64 {
        match node {
            _ if node == ROOT || node & IS_DIRECTORY != 0 => 0,
            _ if node & IS_LARGE != 0 => self.large_bytes,
            _ => self.small_bytes,
        }
    }
}

/// The inode number says all there is to know about a file.
fn node(parent: u64, name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (parent, name).hash(&mut hasher);
    let hash = hasher.finish() & (IS_LARGE - 1);
    match name {
        [b'd', ..] => hash | IS_DIRECTORY,
        _ if name.starts_with(b"large") => hash | IS_LARGE,
        _ => hash,
    }
}
