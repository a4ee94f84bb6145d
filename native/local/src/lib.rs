//! Directories of this machine as uploads read them: their entries, and small files.
//!
//! A tree of many small files costs a few system calls, a hash and a short compression a file.
//! Around each of them Python releases its lock and takes it again. With several threads, that wait
//! is longer than the work. So one call covers a directory, and one call the small files in it.
//!
//! Names are looked up in an open directory and never followed if they are links.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, Dir, ResolveFlags, SeekFrom, fstat, openat, openat2, seek, statat};
pub use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// A file's times come from the kernel's tick, 1 to 10 ms: a change within it need not show.
pub const TICK_NS: i64 = 20_000_000;
/// The resolution of times on FAT; no file system in use is coarser.
const COARSE_NS: i64 = 2_000_000_000;

/// The fields of stat(2) that tell whether a file has changed, and how it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of stat(2)")]
pub struct Stat {
    pub dev: u64,
    pub ino: u64,
    pub mode: u32,
    pub nlink: u64,
    pub size: u64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
    /// In units of 512 bytes.
    pub blocks: u64,
}

impl From<rustix::fs::Stat> for Stat {
    #[allow(clippy::unnecessary_cast, reason = "the types differ between machines")]
    fn from(found: rustix::fs::Stat) -> Stat {
        let ns = |s: i64, ns: i64| s.saturating_mul(1_000_000_000).saturating_add(ns);
        Stat {
            dev: found.st_dev as u64,
            ino: found.st_ino as u64,
            mode: found.st_mode,
            nlink: found.st_nlink as u64,
            size: found.st_size as u64,
            mtime_ns: ns(found.st_mtime as i64, found.st_mtime_nsec as i64),
            ctime_ns: ns(found.st_ctime as i64, found.st_ctime_nsec as i64),
            blocks: found.st_blocks as u64,
        }
    }
}

/// Opens the directory `path` below `root`, and no link on the way; "" is the root itself.
pub fn open_directory(root: BorrowedFd<'_>, path: &[u8]) -> io::Result<OwnedFd> {
    open(
        root,
        path,
        OFlags::RDONLY | OFlags::DIRECTORY,
        Mode::empty(),
    )
}

/// Opens `path` below `root`. A symbolic link anywhere in `path`, its last name included, is ELOOP;
/// `..` is EXDEV. "" is the root itself.
pub fn open(root: BorrowedFd<'_>, path: &[u8], flags: OFlags, mode: Mode) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    let path = if path.is_empty() { b"." } else { path };
    let mode = if flags.intersects(OFlags::CREATE | OFlags::TMPFILE) {
        mode
    } else {
        Mode::empty() // openat2 refuses an unused mode
    };
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match openat2(root, path, flags, mode, beneath) {
        // Kernels before 5.6, and sandboxes that do not know the call.
        Err(Errno::NOSYS | Errno::PERM) => open_by_name(root, path, flags, mode),
        outcome => Ok(outcome?),
    }
}

/// As above without openat2: one name at a time.
fn open_by_name(
    root: BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
    mode: Mode,
) -> io::Result<OwnedFd> {
    const STEP: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
    if path.first() == Some(&b'/') || path.split(|byte| *byte == b'/').any(|name| name == b"..") {
        return Err(Errno::XDEV.into());
    }
    let (above, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&path[..0], path),
    };
    let step = |directory: &OwnedFd, name: &[u8], flags, mode| {
        openat(directory, name, flags | OFlags::NOFOLLOW, mode).map_err(|error| {
            // O_DIRECTORY with O_NOFOLLOW calls a link no directory.
            match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(found) if found.st_mode & 0o170_000 == 0o120_000 => Errno::LOOP,
                _ => error,
            }
        })
    };
    let mut directory = root.try_clone_to_owned()?;
    for each in above
        .split(|byte| *byte == b'/')
        .filter(|each| !each.is_empty())
    {
        directory = step(&directory, each, STEP, Mode::empty())?;
    }
    let name = if name.is_empty() { b"." } else { name };
    Ok(step(&directory, name, flags, mode)?)
}

/// The entries of a directory, sorted by name; what vanishes meanwhile is left out.
pub fn list(directory: impl AsFd) -> io::Result<Vec<(Vec<u8>, Stat)>> {
    let mut found = Vec::new();
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => found.push((name.to_bytes().to_vec(), stat.into())),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    found.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    Ok(found)
}

/// A regular file of at most `limit` bytes: its attributes and all of its bytes, both from one
/// moment.
///
/// None if the caller must look closer: the file is larger, has holes, is of another kind, was
/// changed just now or meanwhile, or cannot be opened.
pub fn read_small(directory: BorrowedFd<'_>, name: &[u8], limit: u64) -> Option<(Stat, Vec<u8>)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(openat(directory, name, flags, Mode::empty()).ok()?);
    let before = Stat::from(fstat(&file).ok()?);
    let is_regular = before.mode & 0o170_000 == 0o100_000;
    let is_full = before.blocks.saturating_mul(512) >= before.size;
    if !is_regular || before.size > limit || !is_full || !is_settled(before.ctime_ns) {
        return None;
    }
    // A call that writes has set the time before it copies. Looking for a hole waits for its end,
    // where reading does not: on ext4, btrfs, tmpfs.
    let _ = seek(&file, SeekFrom::Hole(0));
    seek(&file, SeekFrom::Start(0)).ok()?;
    let mut data = Vec::with_capacity(before.size as usize + 1);
    (&mut file).take(limit + 1).read_to_end(&mut data).ok()?;
    let after = Stat::from(fstat(&file).ok()?);
    (after == before && data.len() as u64 == before.size).then_some((before, data))
}

/// Whether every later change will alter the time, because it is more than a tick ago. Whole
/// seconds come from file systems that keep no fraction (`cowfs/machine/folders/stamps.py` names
/// some).
fn is_settled(ctime_ns: i64) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_ns = now.map_or(0, |since| since.as_nanos() as i64);
    let still_ns = match ctime_ns % 1_000_000_000 {
        0 => COARSE_NS + TICK_NS,
        _ => TICK_NS,
    };
    now_ns.saturating_sub(ctime_ns) > still_ns
}

#[cfg(test)]
mod tests;
