//! Small files on their way into packs.
//!
//! Locks, in this order: a batch, file rows, chunk places.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cowfs_chunking::Pack;
use cowfs_engine::SmallFiles;
use cowfs_storing::Batch;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::cutting::{part, writable};
use crate::engine::PyEngine;
use crate::tables::{
    PlaceIn, PyChunkPlaces, PyFileRows, lock_all, lock_order, locked, place_in, sized,
};

/// A batch of small files.
#[pyclass(name = "SmallFiles", module = "cowfs._native", frozen)]
pub struct PySmallFiles(Mutex<Batch>);

/// Number and hash of a chunk.
type Missing<'py> = (usize, Bound<'py, PyBytes>);

impl PySmallFiles {
    fn lock(&self) -> MutexGuard<'_, Batch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new(small: SmallFiles, name_key: Option<&[u8; 32]>) -> PySmallFiles {
        PySmallFiles(Mutex::new(Batch::new(small, name_key)))
    }
}

#[pymethods]
impl PyEngine {
    #[pyo3(signature = (layer, after, limit, stored, name_key = None))]
    fn layer_small_files(
        &self,
        py: Python<'_>,
        layer: u64,
        after: u64,
        limit: usize,
        stored: Vec<PyRef<'_, PyFileRows>>,
        name_key: Option<[u8; 32]>,
    ) -> PyResult<PySmallFiles> {
        let stored: Vec<&PyFileRows> = stored.iter().map(|rows| &**rows).collect();
        let order = lock_order(&stored)?;
        self.call(py, |engine| {
            let stored = lock_all(&order, &stored);
            let stored: Vec<_> = stored.iter().map(|rows| &**rows).collect();
            let small = engine.layer_small_files(layer, after, limit, &stored)?;
            Ok(PySmallFiles::new(small, name_key.as_ref()))
        })
    }

    #[pyo3(signature = (inodes, name_key = None))]
    fn live_small_files(
        &self,
        py: Python<'_>,
        inodes: Vec<u64>,
        name_key: Option<[u8; 32]>,
    ) -> PyResult<PySmallFiles> {
        self.call(py, |engine| {
            let small = engine.live_small_files(&inodes)?;
            Ok(PySmallFiles::new(small, name_key.as_ref()))
        })
    }
}

#[pymethods]
impl PySmallFiles {
    fn count(&self) -> usize {
        self.lock().files().len()
    }

    fn size_bytes(&self) -> usize {
        self.lock().size_bytes()
    }

    fn last_ino(&self) -> Option<u64> {
        self.lock().files().last().map(|file| file.ino)
    }

    fn read_inodes(&self) -> Vec<u64> {
        let batch = self.lock();
        let read = batch.files().iter().filter(|file| file.is_staged());
        read.map(|file| file.ino).collect()
    }

    fn look_up(&self, py: Python<'_>, places: &PyChunkPlaces) {
        py.detach(|| self.lock().look_up(&locked(&places.0)));
    }

    fn doubt(&self, packs: Vec<PyBackedBytes>) -> PyResult<()> {
        let packs: PyResult<Vec<Pack>> = packs.iter().map(|pack| sized(pack)).collect();
        self.lock().doubt(&packs?);
        Ok(())
    }

    fn missing_in<'py>(
        &self,
        py: Python<'py>,
        catalogues: Vec<(PyBuffer<u8>, usize)>,
        noted: Vec<PyBackedBytes>,
    ) -> PyResult<Vec<Missing<'py>>> {
        let entries = catalogues.iter();
        let entries: PyResult<Vec<&[u8]>> = entries
            // SAFETY: Python's part of this call (`cutting`).
            .map(|(data, start)| unsafe { part(data, *start, None) })
            .collect();
        let (entries, noted) = (entries?, noted.iter().map(|hash| &**hash).collect());
        // Locked and unlocked without the GIL: a thread that has it may wait for the batch.
        let missing: Vec<(usize, [u8; 32])> = py.detach(|| {
            let batch = self.lock();
            let missing = batch.missing_in(&entries, &noted).into_iter();
            missing.map(|(number, hash)| (number, *hash)).collect()
        });
        let out = |(number, hash): &(usize, [u8; 32])| (*number, PyBytes::new(py, hash));
        Ok(missing.iter().map(out).collect())
    }

    fn found(&self, number: usize, place: PlaceIn) -> PyResult<()> {
        if self.lock().found(number, place_in(place)?) {
            Ok(())
        } else {
            Err(PyKeyError::new_err(number))
        }
    }

    fn compress(&self, py: Python<'_>, compresses: bool) {
        py.detach(|| self.lock().compress(compresses));
    }

    fn is_poured(&self) -> bool {
        self.lock().is_poured()
    }

    fn pour<'py>(
        &self,
        py: Python<'py>,
        pack: &[u8],
        offset: u32,
        room: PyBuffer<u8>,
        target: usize,
        margins: (usize, usize),
    ) -> PyResult<(usize, Bound<'py, PyBytes>)> {
        // SAFETY: Python's part of this call (`cutting`).
        let (pack, space) = (sized(pack)?, unsafe { writable(&room) }?);
        let poured = py.detach(|| self.lock().pour(&pack, offset, space, target, margins));
        Ok((poured.length, PyBytes::new(py, &poured.directory)))
    }

    fn packs<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        let packs = self.lock().packs();
        packs.iter().map(|pack| PyBytes::new(py, pack)).collect()
    }

    fn finish(
        &self,
        py: Python<'_>,
        places: &PyChunkPlaces,
        numbers: HashMap<PyBackedBytes, u64>,
        rows: &PyFileRows,
    ) -> PyResult<()> {
        let numbers: PyResult<HashMap<Pack, u64>> = numbers
            .iter()
            .map(|(pack, number)| Ok((sized(pack)?, *number)))
            .collect();
        let numbers = numbers?;
        let is_done = py.detach(|| {
            let number = |pack: &Pack| numbers.get(pack).copied();
            let mut batch = self.lock();
            let mut rows = rows.lock();
            batch.finish(&mut locked(&places.0), number, &mut rows)
        });
        if is_done {
            Ok(())
        } else {
            Err(PyValueError::new_err("not everything has a place yet"))
        }
    }
}
