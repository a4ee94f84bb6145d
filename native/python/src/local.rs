//! Directories of this machine: listings, and small files as blobs.

use std::os::fd::{BorrowedFd, IntoRawFd};

use cowfs_base::Errno;
use cowfs_blob::{Blob, CODEC_RAW, CODEC_ZSTD};
use cowfs_local::{Mode, OFlags, Stat};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::to_python;

type Shown = (u64, u64, u32, u64, u64, i64, i64);

fn shown(found: Stat) -> Shown {
    let Stat {
        dev,
        ino,
        mode,
        nlink,
        ..
    } = found;
    (
        dev,
        ino,
        mode,
        nlink,
        found.size,
        found.mtime_ns,
        found.ctime_ns,
    )
}

/// Borrows a descriptor for the length of a call; EBADF for a negative number.
fn borrowed<'a>(py: Python<'_>, fd: i32) -> PyResult<BorrowedFd<'a>> {
    if fd < 0 {
        return Err(to_python(py, Errno::EBADF));
    }
    // SAFETY: not -1; the caller keeps it open until the call has returned, as it would for
    // os.listdir.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// (name, attributes) of the entries of a directory, by name.
#[pyfunction]
pub(crate) fn list_directory(
    py: Python<'_>,
    fd: i32,
) -> PyResult<Vec<(Bound<'_, PyBytes>, Shown)>> {
    let fd = borrowed(py, fd)?;
    let found = py
        .detach(|| cowfs_local::list(fd))
        .map_err(|error| os_error(py, error))?;
    let entry = |(name, stat): (Vec<u8>, Stat)| (PyBytes::new(py, &name), shown(stat));
    Ok(found.into_iter().map(entry).collect())
}

/// With the number of a system call's error, which pyo3 leaves out.
fn os_error(py: Python<'_>, error: std::io::Error) -> PyErr {
    let errno = error.raw_os_error().map_or(Errno::EIO, Errno);
    to_python(py, errno)
}

/// A descriptor of the file or directory at `path` below the directory `root`; flags as of
/// `os.open`.
#[pyfunction]
#[pyo3(signature = (root, path, flags, mode = 0))]
pub(crate) fn open_beneath(
    py: Python<'_>,
    root: i32,
    path: &[u8],
    flags: u32,
    mode: u32,
) -> PyResult<i32> {
    let flags = OFlags::from_bits_retain(flags);
    let mode = Mode::from_raw_mode(mode);
    let root = borrowed(py, root)?;
    let opened = py
        .detach(|| cowfs_local::open(root, path, flags, mode))
        .map_err(|error| os_error(py, error))?;
    Ok(opened.into_raw_fd())
}

type Small<'py> = (Shown, Bound<'py, PyBytes>, u32, Bound<'py, PyBytes>);

/// (attributes, name, codec, stored bytes) of each of these files of a directory; None for one to
/// be looked at closer.
#[pyfunction]
pub(crate) fn read_small_files(
    py: Python<'_>,
    fd: i32,
    names: Vec<Vec<u8>>,
    limit: u64,
    name_key: Option<[u8; 32]>,
    compresses: bool,
) -> PyResult<Vec<Option<Small<'_>>>> {
    let fd = borrowed(py, fd)?;
    let found: Vec<_> = py.detach(|| {
        let read = |name: &Vec<u8>| {
            cowfs_local::read_small(fd, name, limit)
                .map(|(stat, data)| (stat, Blob::of(&data, name_key.as_ref(), compresses), data))
        };
        names.iter().map(read).collect()
    });
    let small = |(stat, blob, data): (Stat, Blob, Vec<u8>)| {
        let (codec, stored) = match blob.stored {
            Some(stored) => (CODEC_ZSTD, stored),
            None => (CODEC_RAW, data),
        };
        let (name, stored) = (PyBytes::new(py, &blob.name), PyBytes::new(py, &stored));
        (shown(stat), name, codec, stored)
    };
    Ok(found.into_iter().map(|each| each.map(small)).collect())
}
