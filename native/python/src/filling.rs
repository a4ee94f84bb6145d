//! Chunks on their way from a range of a pack into the cache: pieces in, numbers out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cowfs_base::ChunkHash;
use cowfs_blob::{Run, Stored};
use cowfs_engine::Engine;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::convert::hash_from;
use crate::cutting::part;
use crate::engine::PyEngine;

/// offset in the pack, stored length, raw length, codec, hash
type Wanted = (u64, u32, u32, u32, PyBackedBytes);

/// Some chunks of a range of a pack.
#[pyclass(name = "ChunkRun", module = "cowfs._native", frozen)]
pub struct PyChunkRun {
    engine: Arc<Engine>,
    run: Mutex<Run>,
}

impl PyChunkRun {
    fn lock(&self) -> MutexGuard<'_, Run> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, name: &[u8; 32], raw: &[u8]) {
        self.engine.cache_stored_chunk(&ChunkHash(*name), raw);
    }
}

#[pymethods]
impl PyEngine {
    #[pyo3(signature = (start, wanted, name_key = None))]
    fn chunk_run(
        &self,
        start: u64,
        wanted: Vec<Wanted>,
        name_key: Option<[u8; 32]>,
    ) -> PyResult<PyChunkRun> {
        let stored = |(offset, stored_length, raw_length, codec, hash): Wanted| {
            Ok(Stored {
                offset,
                stored_length,
                raw_length,
                codec,
                name: hash_from(&hash)?.0,
            })
        };
        let wanted: PyResult<Vec<Stored>> = wanted.into_iter().map(stored).collect();
        Ok(PyChunkRun {
            engine: self.shared(),
            run: Mutex::new(Run::new(start, wanted?, name_key)),
        })
    }
}

#[pymethods]
impl PyChunkRun {
    fn take(&self, py: Python<'_>, piece: PyBuffer<u8>) -> PyResult<usize> {
        // SAFETY: Python's part of this call (`cutting`).
        let piece = unsafe { part(&piece, 0, None) }?;
        Ok(py.detach(|| {
            let mut run = self.lock();
            run.take(piece, |name, raw| self.keep(name, raw));
            run.settled()
        }))
    }

    fn take_next(&self, py: Python<'_>, stored: PyBuffer<u8>) -> PyResult<usize> {
        // SAFETY: Python's part of this call (`cutting`).
        let stored = unsafe { part(&stored, 0, None) }?;
        Ok(py.detach(|| {
            let mut run = self.lock();
            run.take_next(stored, |name, raw| self.keep(name, raw));
            run.settled()
        }))
    }

    #[getter]
    fn failed(&self) -> Vec<usize> {
        self.lock().failed().to_vec()
    }
}
