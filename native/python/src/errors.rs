//! Engine errors as Python exceptions.

use std::sync::Arc;

use cowfs_engine::Missing as Lacks;
use cowfs_mounted::{Error, Missing};
use pyo3::exceptions::{PyException, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

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

pub(crate) fn to_python(py: Python<'_>, error: impl Into<Error>) -> PyErr {
    match error.into() {
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
    let what = missing.name();
    let (attachment, lacks, name) = match missing {
        Missing::Of(attachment, lacks) => (attachment, Some(lacks), Vec::new()),
        Missing::Closed(attachment, id) => (attachment, None, id),
        Missing::Name(name) => (0, None, name),
        Missing::Names => (0, None, Vec::new()),
    };
    let (ino, wanted, chunks) = match lacks {
        Some(Lacks::Inode(ino) | Lacks::Parent(ino) | Lacks::Directory(ino) | Lacks::File(ino)) => {
            (ino, 0..0, Vec::new())
        }
        Some(Lacks::Content { ino, wanted }) => (ino, wanted, Vec::new()),
        Some(Lacks::Chunks { ino, needed }) => (ino, 0..0, needed),
        None => (0, 0..0, Vec::new()),
    };
    let error = NotResident::new_err(format!("{what} of inode {ino} of attachment {attachment}"));
    let value = error.value(py);
    value.setattr("what", what)?;
    value.setattr("attachment", attachment)?;
    value.setattr("name", PyBytes::new(py, &name))?;
    value.setattr("ino", ino)?;
    value.setattr("wanted", (wanted.start, wanted.end))?;
    value.setattr("chunks", chunk_refs(chunks))?;
    Ok(error)
}

pub(crate) fn chunk_refs(chunks: Vec<Arc<cowfs_engine::ChunkRef>>) -> Vec<PyChunkRef> {
    chunks.into_iter().map(PyChunkRef).collect()
}
