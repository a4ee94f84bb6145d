//! Engine errors as Python exceptions.

use std::sync::Arc;

use cowfs_engine::{Error, Missing};
use pyo3::exceptions::{PyException, PyOSError};
use pyo3::prelude::*;

use crate::values::PyChunkRef;

pyo3::create_exception!(
    cowfs._native,
    NotResident,
    PyException,
    "What must be loaded before the call can be answered."
);
pyo3::create_exception!(
    cowfs._native,
    JournalCorrupt,
    PyException,
    "A journal has an invalid record with valid ones behind it."
);

pub(crate) fn to_python(py: Python<'_>, error: Error) -> PyErr {
    match error {
        Error::Os(errno) => {
            let text = errno.to_string();
            let text = text
                .split(" (os error")
                .next()
                .unwrap_or_default()
                .to_owned();
            PyOSError::new_err((errno.0, text))
        }
        Error::JournalCorrupt(reason) => JournalCorrupt::new_err(reason),
        Error::NotResident(missing) => not_resident(py, missing).unwrap_or_else(|failure| failure),
    }
}

pub(crate) fn not_resident(py: Python<'_>, missing: Missing) -> PyResult<PyErr> {
    let wanted = match &missing {
        Missing::Content { wanted, .. } => (wanted.start, wanted.end),
        _ => (0, 0),
    };
    let (what, ino, chunks) = match missing {
        Missing::Inode(ino) => ("inode", ino, Vec::new()),
        Missing::Parent(ino) => ("parent", ino, Vec::new()),
        Missing::Directory(ino) => ("directory", ino, Vec::new()),
        Missing::Content { ino, .. } => ("content", ino, Vec::new()),
        Missing::File(ino) => ("file", ino, Vec::new()),
        Missing::Chunks { ino, needed } => ("chunks", ino, needed),
    };
    let error = NotResident::new_err(format!("{what} of inode {ino}"));
    let value = error.value(py);
    value.setattr("what", what)?;
    value.setattr("ino", ino)?;
    value.setattr("wanted", wanted)?;
    value.setattr("chunks", chunk_refs(chunks))?;
    Ok(error)
}

pub(crate) fn chunk_refs(chunks: Vec<Arc<cowfs_engine::ChunkRef>>) -> Vec<PyChunkRef> {
    chunks.into_iter().map(PyChunkRef).collect()
}
