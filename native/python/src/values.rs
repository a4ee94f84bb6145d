//! The small value classes: attributes, owners, callers, chunk references, extents, recovery.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use cowfs_base::{Errno, Owners};
use cowfs_engine::{Attr, Caller, ChunkRef, LayerExtent, Recovery, kept_acl, shown_acl};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::hash_from;
use crate::errors::to_python;

/// The attributes of an inode at one moment.
#[pyclass(name = "Attr", module = "cowfs._native", frozen, get_all)]
#[allow(missing_docs, reason = "the fields of stat(2)")]
pub struct PyAttr {
    pub ino: u64,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u32,
    pub size: u64,
    pub blocks: u64,
    pub atime_ns: i64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
}

impl From<Attr> for PyAttr {
    fn from(attr: Attr) -> PyAttr {
        PyAttr {
            ino: attr.ino,
            mode: attr.mode,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            size: attr.size,
            blocks: attr.blocks,
            atime_ns: attr.atime_ns,
            mtime_ns: attr.mtime_ns,
            ctime_ns: attr.ctime_ns,
        }
    }
}

#[pymethods]
impl PyAttr {
    fn __repr__(&self) -> String {
        format!(
            "Attr(ino={}, mode={:#o}, nlink={}, uid={}, gid={}, size={})",
            self.ino, self.mode, self.nlink, self.uid, self.gid, self.size
        )
    }
}

/// Whom a mount shows in whose place.
#[pyclass(name = "Owners", module = "cowfs._native", frozen, eq)]
#[derive(PartialEq)]
pub struct PyOwners(pub(crate) Owners);

#[pymethods]
impl PyOwners {
    #[new]
    fn new(kept: (u32, u32), shown: (u32, u32)) -> PyOwners {
        PyOwners(Owners::new(kept, shown))
    }

    fn shown_user(&self, user: u32) -> u32 {
        self.0.shown_user(user)
    }

    fn shown_group(&self, group: u32) -> u32 {
        self.0.shown_group(group)
    }

    fn kept_user(&self, user: u32) -> u32 {
        self.0.kept_user(user)
    }

    fn kept_group(&self, group: u32) -> u32 {
        self.0.kept_group(group)
    }

    fn shown_acl<'py>(&self, py: Python<'py>, value: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        as_bytes(py, shown_acl(value, &self.0))
    }

    fn kept_acl<'py>(&self, py: Python<'py>, value: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        as_bytes(py, kept_acl(value, &self.0))
    }
}

fn as_bytes(py: Python<'_>, value: Result<Vec<u8>, Errno>) -> PyResult<Bound<'_, PyBytes>> {
    value
        .map(|value| PyBytes::new(py, &value))
        .map_err(|errno| to_python(py, errno))
}

/// The caller of an operation.
#[pyclass(name = "Caller", module = "cowfs._native", frozen)]
pub struct PyCaller(pub(crate) Caller);

#[pymethods]
impl PyCaller {
    #[new]
    #[pyo3(signature = (uid, gid, pid, umask, groups, owners=None))]
    fn new(
        uid: u32,
        gid: u32,
        pid: u32,
        umask: u32,
        groups: Option<Vec<u32>>,
        owners: Option<&PyOwners>,
    ) -> PyCaller {
        PyCaller(Caller {
            uid,
            gid,
            pid,
            umask,
            groups,
            owners: owners.map_or_else(Owners::default, |owners| owners.0),
        })
    }
}

/// The place of one chunk.
#[pyclass(name = "ChunkRef", module = "cowfs._native", frozen, eq, hash)]
#[derive(Clone, PartialEq)]
pub struct PyChunkRef(pub(crate) Arc<ChunkRef>);

impl Hash for PyChunkRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash.hash(state);
    }
}

#[pymethods]
impl PyChunkRef {
    #[new]
    fn new(
        hash: &[u8],
        pack: u64,
        offset: u64,
        stored_length: u32,
        raw_length: u32,
        codec: u32,
    ) -> PyResult<PyChunkRef> {
        let hash = hash_from(hash)?;
        Ok(PyChunkRef(Arc::new(ChunkRef {
            hash,
            pack,
            offset,
            stored_length,
            raw_length,
            codec,
        })))
    }

    #[getter]
    fn hash<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.hash.0)
    }

    #[getter]
    fn pack(&self) -> u64 {
        self.0.pack
    }

    #[getter]
    fn offset(&self) -> u64 {
        self.0.offset
    }

    #[getter]
    fn stored_length(&self) -> u32 {
        self.0.stored_length
    }

    #[getter]
    fn raw_length(&self) -> u32 {
        self.0.raw_length
    }

    #[getter]
    fn codec(&self) -> u32 {
        self.0.codec
    }

    fn __repr__(&self) -> String {
        format!(
            "ChunkRef({}, pack={}, offset={})",
            self.0.hash, self.0.pack, self.0.offset
        )
    }
}

/// One mapped range of a file.
#[pyclass(name = "LayerExtent", module = "cowfs._native", frozen, get_all)]
#[allow(missing_docs, reason = "see the stub file")]
pub struct PyLayerExtent {
    pub offset: u64,
    pub length: u64,
    pub segment: i64,
    pub segment_offset: u64,
    pub chunk: Option<PyChunkRef>,
    pub skip: u32,
}

impl From<LayerExtent> for PyLayerExtent {
    fn from(extent: LayerExtent) -> PyLayerExtent {
        let (segment, segment_offset) = extent
            .staged
            .map_or((-1, 0), |(segment, offset)| (segment as i64, offset));
        PyLayerExtent {
            offset: extent.offset,
            length: extent.length,
            segment,
            segment_offset,
            chunk: extent.chunk.map(PyChunkRef),
            skip: extent.skip,
        }
    }
}

#[pymethods]
impl PyLayerExtent {
    fn __repr__(&self) -> String {
        let staged = if self.segment < 0 {
            String::new()
        } else {
            format!(", segment={}@{}", self.segment, self.segment_offset)
        };
        let chunk = self.chunk.as_ref().map_or(String::new(), |chunk| {
            format!(", chunk={}+{}", chunk.0.hash, self.skip)
        });
        format!(
            "LayerExtent({}+{}{staged}{chunk})",
            self.offset, self.length
        )
    }
}

/// The content of a working copy's journal.
#[pyclass(name = "Recovery", module = "cowfs._native", frozen, get_all)]
#[allow(missing_docs, reason = "see the stub file")]
pub struct PyRecovery {
    pub directories: Vec<u64>,
    pub inodes: Vec<u64>,
    pub contents: Vec<u64>,
    pub records: u64,
    pub cut_bytes: u64,
    pub power_loss: bool,
}

impl From<Recovery> for PyRecovery {
    fn from(recovery: Recovery) -> PyRecovery {
        let Recovery {
            directories,
            inodes,
            contents,
            records,
            cut_bytes,
            power_loss,
        } = recovery;
        PyRecovery {
            directories,
            inodes,
            contents,
            records,
            cut_bytes,
            power_loss,
        }
    }
}
