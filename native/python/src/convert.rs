//! Rows between Python tuples and the engine's structs.

use cowfs_base::ChunkHash;
use cowfs_engine::{ChunkRef, ExtentRow, InodeRow, XattrPair};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyTuple};

/// An inode row on its way in: ino, mode, nlink, uid, gid, rdev, size, mapped bytes, atime, mtime,
/// ctime, flags, target.
pub(crate) struct InodeIn(pub InodeRow);

impl<'py> FromPyObject<'_, 'py> for InodeIn {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<InodeIn> {
        let row = object.cast::<PyTuple>()?;
        if row.len() != 13 {
            let message = format!("an inode row has 13 values, not {}", row.len());
            return Err(PyValueError::new_err(message));
        }
        let item = |at| row.get_borrowed_item(at);
        let target: PyBackedBytes = item(12)?.extract()?;
        Ok(InodeIn(InodeRow {
            ino: item(0)?.extract()?,
            mode: item(1)?.extract()?,
            nlink: item(2)?.extract()?,
            uid: item(3)?.extract()?,
            gid: item(4)?.extract()?,
            rdev: item(5)?.extract()?,
            size: item(6)?.extract()?,
            mapped_bytes: item(7)?.extract()?,
            atime_ns: item(8)?.extract()?,
            mtime_ns: item(9)?.extract()?,
            ctime_ns: item(10)?.extract()?,
            flags: item(11)?.extract()?,
            target: (*target).into(),
        }))
    }
}

/// offset, length, hash, pack, offset in pack, stored length, raw length, skip, codec
pub(crate) type ExtentTuple = (u64, u64, PyBackedBytes, u64, u64, u32, u32, u32, u32);
/// An extent row on its way out, in the same order.
pub(crate) type ExtentOut<'py> = (u64, u64, Bound<'py, PyBytes>, u64, u64, u32, u32, u32, u32);
pub(crate) type XattrTuple = (PyBackedBytes, PyBackedBytes);
/// An inode with its rows of both kinds.
pub(crate) type ContentTuple = (u64, Vec<ExtentTuple>, Vec<XattrTuple>);
/// An inode row on its way out, in the same order.
#[derive(IntoPyObject)]
pub(crate) struct InodeOut<'py>(
    u64,
    u32,
    u32,
    u32,
    u32,
    u32,
    u64,
    u64,
    i64,
    i64,
    i64,
    u32,
    Bound<'py, PyBytes>,
);
pub(crate) type XattrsOut<'py> = Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>;

pub(crate) fn hash_from(bytes: &[u8]) -> PyResult<ChunkHash> {
    let hash = bytes.try_into().map_err(|_| {
        PyValueError::new_err(format!("a chunk hash has 32 bytes, not {}", bytes.len()))
    })?;
    Ok(ChunkHash(hash))
}

pub(crate) fn inode_out<'py>(py: Python<'py>, row: &InodeRow) -> InodeOut<'py> {
    let InodeRow {
        ino,
        mode,
        nlink,
        uid,
        gid,
        rdev,
        size,
        mapped_bytes,
        atime_ns,
        mtime_ns,
        ctime_ns,
        flags,
        target,
    } = row;
    let target = PyBytes::new(py, target);
    InodeOut(
        *ino,
        *mode,
        *nlink,
        *uid,
        *gid,
        *rdev,
        *size,
        *mapped_bytes,
        *atime_ns,
        *mtime_ns,
        *ctime_ns,
        *flags,
        target,
    )
}

pub(crate) fn extent_rows(tuples: Vec<ExtentTuple>) -> PyResult<Vec<ExtentRow>> {
    let row = |tuple: ExtentTuple| {
        let (offset, length, hash, pack, pack_offset, stored_length, raw_length, skip, codec) =
            tuple;
        let chunk = ChunkRef {
            hash: hash_from(&hash)?,
            pack,
            offset: pack_offset,
            stored_length,
            raw_length,
            codec,
        };
        Ok(ExtentRow {
            offset,
            length,
            chunk,
            skip,
        })
    };
    tuples.into_iter().map(row).collect()
}

pub(crate) fn extent_out<'py>(py: Python<'py>, row: &ExtentRow) -> ExtentOut<'py> {
    (
        row.offset,
        row.length,
        PyBytes::new(py, &row.chunk.hash.0),
        row.chunk.pack,
        row.chunk.offset,
        row.chunk.stored_length,
        row.chunk.raw_length,
        row.skip,
        row.chunk.codec,
    )
}

pub(crate) fn xattr_pairs(tuples: Vec<XattrTuple>) -> Vec<XattrPair> {
    tuples
        .into_iter()
        .map(|(name, value)| ((*name).into(), (*value).into()))
        .collect()
}

pub(crate) fn xattrs_out<'py>(py: Python<'py>, pairs: &[XattrPair]) -> XattrsOut<'py> {
    pairs
        .iter()
        .map(|(name, value)| (PyBytes::new(py, name), PyBytes::new(py, value)))
        .collect()
}
