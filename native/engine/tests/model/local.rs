//! The local file system's side of the model.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::op::acl;
use crate::support::{Seen, Tree};
use crate::{Op, Where};

/// Files are made as `open` and `mkdir` are usually asked to; this is the umask.
pub const UMASK: u32 = 0o022;

pub fn acl_name(is_default: bool) -> &'static str {
    match is_default {
        true => "system.posix_acl_default",
        false => "system.posix_acl_access",
    }
}

/// The same operations on the local file system.
pub struct Local(pub tempfile::TempDir);

impl Local {
    pub fn new() -> Local {
        let local = Local(tempfile::tempdir().expect("a temporary directory"));
        let root_mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(local.0.path(), root_mode).expect("chmod");
        local
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    pub fn run(&self, op: &Op) -> std::io::Result<()> {
        match op {
            Op::Create(at) => fs::File::create_new(self.at(&at.path())).map(drop),
            Op::Mkdir(at) => fs::create_dir(self.at(&at.path())),
            Op::Symlink(at, to) => {
                std::os::unix::fs::symlink(format!("to-{to}"), self.at(&at.path()))
            }
            Op::Write(at, offset, length, byte) => {
                let file = fs::File::options().write(true).open(self.file(at)?)?;
                file.write_all_at(&vec![*byte; usize::from(*length)], u64::from(*offset))
            }
            Op::Replace(at, length, byte) => {
                fs::write(self.file(at)?, vec![*byte; usize::from(*length)])
            }
            Op::Truncate(at, size) => fs::File::options()
                .write(true)
                .open(self.file(at)?)?
                .set_len(u64::from(*size)),
            Op::Chmod(at, mode) => {
                let path = self.existing(at)?;
                fs::set_permissions(path, fs::Permissions::from_mode(u32::from(*mode)))
            }
            Op::Unlink(at) => {
                let path = self.at(&at.path());
                // remove_file on a directory is unlink(2), as wanted.
                fs::remove_file(path)
            }
            Op::Rmdir(at) => fs::remove_dir(self.at(&at.path())),
            Op::Rename(from, to, flags) => rename_with_flags(
                &self.at(&from.path()),
                &self.at(&to.path()),
                u32::from(*flags),
            ),
            Op::Link(from, to) => fs::hard_link(self.at(&from.path()), self.at(&to.path())),
            Op::SetXattr(at, name, value) => {
                let value = vec![*value; usize::from(*value)];
                set_xattr(&self.existing(at)?, &format!("user.{name}"), &value)
            }
            Op::RemoveXattr(at, name) => remove_xattr(&self.existing(at)?, &format!("user.{name}")),
            Op::SetAcl(at, which, is_default) => {
                set_xattr(&self.existing(at)?, acl_name(*is_default), &acl(*which))
            }
            Op::RemoveAcl(at, is_default) => {
                remove_xattr(&self.existing(at)?, acl_name(*is_default))
            }
            Op::Copy(from, to, range) | Op::During(_, from, to, range) => {
                let source = fs::File::options().read(true).open(self.file(from)?)?;
                let target = fs::File::options().write(true).open(self.file(to)?)?;
                copy(&source, &target, *range)
            }
            Op::Punch(at, offset, length) => {
                let file = fs::File::options().write(true).open(self.file(at)?)?;
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                allocate(&file, mode, u64::from(*offset), u64::from(*length))
            }
            Op::Allocate(at, offset, length, keeps_size) => {
                let file = fs::File::options().write(true).open(self.file(at)?)?;
                let mode = libc::FALLOC_FL_KEEP_SIZE * i32::from(*keeps_size);
                allocate(&file, mode, u64::from(*offset), u64::from(*length))
            }
            _ => Ok(()),
        }
    }

    /// A file without a name, in the directory that `at` would be in.
    pub fn unnamed(&self, at: &Where) -> std::io::Result<fs::File> {
        let path = self.at(&at.path());
        let parent = path.parent().expect("has one");
        let found = fs::symlink_metadata(parent)?;
        if found.is_symlink() {
            return Err(std::io::Error::from_raw_os_error(libc::ENOENT));
        }
        if !found.is_dir() {
            return Err(std::io::Error::from_raw_os_error(libc::ENOTDIR));
        }
        let mut options = fs::File::options();
        options.read(true).write(true).mode(0o640);
        options.custom_flags(libc::O_TMPFILE).open(parent)
    }

    /// Gives an open file a name.
    pub fn link_open(&self, file: &fs::File, at: &Where) -> std::io::Result<()> {
        let from = c_path(&path_of(file));
        let to = c_path(&self.at(&at.path()));
        // SAFETY: both are NUL-terminated strings that outlive the call.
        let outcome = unsafe {
            libc::linkat(
                libc::AT_FDCWD,
                from.as_ptr(),
                libc::AT_FDCWD,
                to.as_ptr(),
                libc::AT_SYMLINK_FOLLOW,
            )
        };
        checked(outcome.into()).map(drop)
    }

    /// The path, unless it names a symbolic link: the engine is asked about inodes and follows
    /// none.
    fn existing(&self, at: &Where) -> std::io::Result<PathBuf> {
        let path = self.at(&at.path());
        match fs::symlink_metadata(&path)?.is_symlink() {
            true => Err(std::io::Error::from_raw_os_error(libc::ELOOP)),
            false => Ok(path),
        }
    }

    /// A regular file. Nothing opens a whiteout.
    pub fn file(&self, at: &Where) -> std::io::Result<PathBuf> {
        let path = self.existing(at)?;
        let kind = fs::symlink_metadata(&path)?.file_type();
        match kind.is_file() {
            true => Ok(path),
            false if kind.is_dir() => Err(std::io::Error::from_raw_os_error(libc::EISDIR)),
            false => Err(std::io::Error::from_raw_os_error(libc::ENXIO)),
        }
    }

    pub fn tree(&self) -> Tree {
        let mut tree = Tree::new();
        let mut open = vec![self.0.path().to_path_buf()];
        while let Some(path) = open.pop() {
            let found = fs::symlink_metadata(&path).expect("exists");
            let bytes = if found.is_symlink() {
                fs::read_link(&path)
                    .expect("target")
                    .into_os_string()
                    .into_encoded_bytes()
            } else if found.is_dir() {
                open.extend(
                    fs::read_dir(&path)
                        .expect("lists")
                        .map(|entry| entry.expect("entry").path()),
                );
                Vec::new()
            } else if found.is_file() {
                fs::read(&path).expect("reads")
            } else {
                assert_eq!(found.rdev(), 0, "a whiteout");
                Vec::new()
            };
            let xattrs = if found.is_symlink() {
                Default::default()
            } else {
                xattrs(&path)
            };
            let inside = Path::new("/").join(path.strip_prefix(self.0.path()).expect("inside"));
            tree.insert(
                inside,
                Seen {
                    mode: found.mode(),
                    nlink: found.nlink() as u32,
                    bytes,
                    xattrs,
                },
            );
        }
        tree
    }
}

fn c_path(path: &Path) -> std::ffi::CString {
    std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).expect("no NUL")
}

fn checked(outcome: i64) -> std::io::Result<usize> {
    if outcome < 0 {
        Err(std::io::Error::last_os_error())
    } else {
        Ok(outcome as usize)
    }
}

fn rename_with_flags(from: &Path, to: &Path, flags: u32) -> std::io::Result<()> {
    let (from, to) = (c_path(from), c_path(to));
    // SAFETY: both are NUL-terminated strings that outlive the call.
    let outcome = unsafe {
        libc::renameat2(
            libc::AT_FDCWD,
            from.as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            flags,
        )
    };
    checked(outcome.into()).map(drop)
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) -> std::io::Result<()> {
    let (path, name) = (c_path(path), c_path(Path::new(name)));
    // SAFETY: strings are NUL-terminated, the value's length is its own.
    let outcome = unsafe {
        libc::setxattr(
            path.as_ptr(),
            name.as_ptr(),
            value.as_ptr().cast(),
            value.len(),
            0,
        )
    };
    checked(outcome.into()).map(drop)
}

fn remove_xattr(path: &Path, name: &str) -> std::io::Result<()> {
    let (path, name) = (c_path(path), c_path(Path::new(name)));
    // SAFETY: both are NUL-terminated strings that outlive the call.
    checked(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) }.into()).map(drop)
}

pub fn xattrs(path: &Path) -> std::collections::BTreeMap<Vec<u8>, Vec<u8>> {
    let path = c_path(path);
    let mut names = vec![0_u8; 4096];
    // SAFETY: the buffer has the length that is passed.
    let length =
        checked(
            unsafe { libc::listxattr(path.as_ptr(), names.as_mut_ptr().cast(), names.len()) }
                as i64,
        )
        .expect("lists");
    let names = names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| name.starts_with(b"user.") || name.starts_with(b"system.posix_acl_"));
    let value = |name: &[u8]| {
        let name = std::ffi::CString::new(name).expect("no NUL");
        let mut value = vec![0_u8; 4096];
        // SAFETY: the buffer has the length that is passed.
        let outcome = unsafe {
            libc::getxattr(
                path.as_ptr(),
                name.as_ptr(),
                value.as_mut_ptr().cast(),
                value.len(),
            )
        };
        value.truncate(checked(outcome as i64).expect("has a value"));
        value
    };
    names.map(|name| (name.to_vec(), value(name))).collect()
}

/// Where an open file can be found, with a name or without.
pub fn path_of(file: &fs::File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// As copy_file_range(2) does it; `range` is (from, to, how many).
pub fn copy(source: &fs::File, target: &fs::File, range: (u16, u16, u16)) -> std::io::Result<()> {
    let (from, to, length) = (range.0.into(), range.1.into(), u64::from(range.2));
    let found = source.metadata()?;
    let length = length.min(found.len().saturating_sub(from));
    if found.ino() == target.metadata()?.ino() && from < to + length && to < from + length {
        return Err(std::io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut bytes = vec![0; length as usize];
    source.read_exact_at(&mut bytes, from)?;
    target.write_all_at(&bytes, to)
}

fn allocate(file: &fs::File, mode: i32, offset: u64, length: u64) -> std::io::Result<()> {
    // SAFETY: the descriptor is open as long as the file is borrowed.
    let outcome = unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as i64, length as i64) };
    checked(outcome.into()).map(drop)
}
