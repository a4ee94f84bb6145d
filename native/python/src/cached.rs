//! Chunks in a cache directory, without an engine.

use std::path::PathBuf;

use cowfs_cache::ChunkCache;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::convert::hash_from;

/// The chunks of a cache directory, to look at.
#[pyclass(name = "CachedChunks", module = "cowfs._native", frozen)]
pub struct PyCachedChunks(ChunkCache);

#[pymethods]
impl PyCachedChunks {
    #[new]
    fn new(cache_dir: PathBuf) -> PyCachedChunks {
        PyCachedChunks(ChunkCache::open(&cache_dir, 0))
    }

    fn get<'py>(
        &self,
        py: Python<'py>,
        hash: &[u8],
        raw_length: u64,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let hash = hash_from(hash)?;
        let chunk = py.detach(|| self.0.get(&hash.0, raw_length));
        Ok(chunk.map(|data| PyBytes::new(py, &data)))
    }
}
