//! Loading from the base version and the packs.

use cowfs_engine::{Engine, ReadRange};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::convert::{
    ContentTuple, ExtentTuple, InodeIn, XattrTuple, extent_rows, hash_from, xattr_pairs,
};
use crate::engine::PyEngine;
use crate::errors::chunk_refs;
use crate::tables::PyDirectoryRows;
use crate::values::PyChunkRef;

#[pymethods]
impl PyEngine {
    fn load_inode(&self, py: Python<'_>, row: InodeIn) -> PyResult<()> {
        self.call(py, |engine| engine.load_inode(&row.0))
    }

    fn load_parent(&self, py: Python<'_>, ino: u64, parent: u64) -> PyResult<()> {
        self.call(py, |engine| engine.load_parent(ino, parent))
    }

    fn load_directory(
        &self,
        py: Python<'_>,
        ino: u64,
        entries: &PyDirectoryRows,
    ) -> PyResult<Vec<u64>> {
        let entries = entries.take();
        self.call(py, |engine| engine.load_directory(ino, &entries))
    }

    fn unloaded_directories(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        self.call(py, Engine::unloaded_directories)
    }

    fn nameless_without_content(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        self.call(py, Engine::nameless_without_content)
    }

    fn load_content(
        &self,
        py: Python<'_>,
        ino: u64,
        extents: Vec<ExtentTuple>,
        xattrs: Vec<XattrTuple>,
    ) -> PyResult<()> {
        let (extents, xattrs) = (extent_rows(extents)?, xattr_pairs(xattrs));
        self.call(py, |engine| engine.load_content(ino, &extents, &xattrs))
    }

    fn load_contents(&self, py: Python<'_>, contents: Vec<ContentTuple>) -> PyResult<()> {
        let contents = contents
            .into_iter()
            .map(|(ino, extents, xattrs)| Ok((ino, extent_rows(extents)?, xattr_pairs(xattrs))))
            .collect::<PyResult<Vec<_>>>()?;
        self.call(py, |engine| engine.load_contents(&contents))
    }

    fn cache_chunk(&self, py: Python<'_>, hash: &[u8], data: &[u8]) -> PyResult<()> {
        let hash = hash_from(hash)?;
        self.call(py, |engine| {
            engine.cache_chunk(&hash, data);
            Ok(())
        })
    }

    fn cached_chunk<'py>(
        &self,
        py: Python<'py>,
        hash: &[u8],
        raw_length: u64,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let hash = hash_from(hash)?;
        let chunk = self.call(py, |engine| Ok(engine.cached_chunk(&hash, raw_length)))?;
        Ok(chunk.map(|data| PyBytes::new(py, &data)))
    }

    fn assemble_file(&self, py: Python<'_>, ino: u64) -> PyResult<()> {
        self.call(py, |engine| engine.assemble_file(ino))
    }

    fn absent_chunks(
        &self,
        py: Python<'_>,
        ino: u64,
        start: u64,
        end: u64,
    ) -> PyResult<Vec<PyChunkRef>> {
        let chunks = self.call(py, |engine| Ok(engine.absent_chunks(ino, start, end)))?;
        Ok(chunk_refs(chunks))
    }

    fn next_ahead(&self, py: Python<'_>) -> PyResult<Option<Vec<PyChunkRef>>> {
        let chunks = self.call(py, |engine| Ok(engine.next_ahead()))?;
        Ok(chunks.map(chunk_refs))
    }

    fn note_reads(&self) {
        self.shared().note_reads();
    }

    fn take_reads(&self, py: Python<'_>) -> PyResult<Vec<(u64, u64, u64)>> {
        let ranges = self.call(py, |engine| Ok(engine.take_reads()))?;
        let row = |range: &ReadRange| (range.ino, range.offset, range.length);
        Ok(ranges.iter().map(row).collect())
    }

    fn evict(&self, py: Python<'_>, max_bytes: u64) -> PyResult<u64> {
        self.call(py, |engine| engine.evict(max_bytes))
    }

    fn keep_chunks(
        &self,
        py: Python<'_>,
        chunks: Vec<(PyBackedBytes, u64)>,
    ) -> PyResult<Vec<usize>> {
        let named: PyResult<Vec<_>> = chunks
            .iter()
            .map(|(hash, raw_length)| Ok((hash_from(hash)?, *raw_length)))
            .collect();
        let named = named?;
        self.call(py, |engine| {
            let is_absent = |place: &usize| {
                let (hash, raw_length) = &named[*place];
                !engine.keep_chunk(hash, *raw_length)
            };
            Ok((0..named.len()).filter(is_absent).collect())
        })
    }

    fn flush_cache(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |engine| {
            engine.flush_cache();
            Ok(())
        })
    }

    fn cache_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |engine| Ok(engine.cache_bytes()))
    }

    fn cache_grown_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |engine| Ok(engine.cache_grown_bytes()))
    }

    fn trim_cache(&self, py: Python<'_>, max_bytes: u64) -> PyResult<u64> {
        self.call(py, |engine| Ok(engine.trim_cache(max_bytes)))
    }

    fn free_cache(&self, py: Python<'_>, wanted_bytes: u64) -> PyResult<u64> {
        self.call(py, |engine| Ok(engine.free_cache(wanted_bytes)))
    }
}
