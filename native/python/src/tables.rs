//! Tables of a commit and of a load: kept on this side in little memory, handed over and read in
//! pages.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cowfs_chunking::{ChunkPlaces, Pack, Place};
use cowfs_engine::{ExtentRow, FileRows, InodeRow};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::convert::{ExtentOut, ExtentTuple, InodeIn, extent_out, extent_rows};

/// Locks the table, even after a panic of an earlier holder: an interrupted change may leave it
/// incomplete, but never wrong.
pub(crate) fn locked<T>(table: &Mutex<T>) -> MutexGuard<'_, T> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Extent rows of many files.
#[pyclass(name = "FileRows", module = "cowfs._native", frozen)]
#[derive(Default)]
pub struct PyFileRows(Mutex<FileRows>);

type ContentOut<'py> = (u64, u64, Vec<ExtentOut<'py>>);

impl PyFileRows {
    pub(crate) fn lock(&self) -> MutexGuard<'_, FileRows> {
        locked(&self.0)
    }
}

/// In which order these tables are locked: by address, so that two callers cannot wait for each
/// other. ValueError: one is there twice, and would wait for itself.
pub(crate) fn lock_order(tables: &[&PyFileRows]) -> PyResult<Vec<usize>> {
    let address = |at: &usize| std::ptr::from_ref(tables[*at]).addr();
    let mut order: Vec<usize> = (0..tables.len()).collect();
    order.sort_by_key(address);
    match order
        .windows(2)
        .any(|pair| address(&pair[0]) == address(&pair[1]))
    {
        true => Err(PyValueError::new_err("the same file rows are given twice")),
        false => Ok(order),
    }
}

/// All of them, locked in this order.
pub(crate) fn lock_all<'a>(
    order: &[usize],
    tables: &[&'a PyFileRows],
) -> Vec<MutexGuard<'a, FileRows>> {
    let mut guards: Vec<Option<_>> = tables.iter().map(|_| None).collect();
    for at in order {
        guards[*at] = Some(tables[*at].lock());
    }
    guards.into_iter().flatten().collect()
}

#[pymethods]
impl PyFileRows {
    #[new]
    fn new() -> PyFileRows {
        PyFileRows::default()
    }

    fn count(&self) -> usize {
        self.lock().len()
    }

    fn put(&self, ino: u64, version: u64, rows: Vec<ExtentTuple>) -> PyResult<()> {
        let rows = extent_rows(rows)?;
        self.lock().put(ino, version, &rows);
        Ok(())
    }

    fn get<'py>(&self, py: Python<'py>, ino: u64) -> Option<(u64, Vec<ExtentOut<'py>>)> {
        let (version, rows) = self.lock().get(ino)?;
        Some((
            version,
            rows.iter().map(|row| extent_out(py, row)).collect(),
        ))
    }

    fn version(&self, ino: u64) -> Option<u64> {
        self.lock().version(ino)
    }

    fn packs(&self, py: Python<'_>) -> Vec<u64> {
        py.detach(|| self.lock().packs().into_iter().collect())
    }

    fn page<'py>(&self, py: Python<'py>, place: u64, limit: usize) -> (Vec<ContentOut<'py>>, u64) {
        let (mut files, mut place) = (Vec::new(), place);
        let table = self.lock();
        while files.len() < limit
            && let Some((file, next)) = table.next(place)
        {
            files.push(file);
            place = next;
        }
        drop(table); // before objects are made: making them may run anything
        let out = |row: &ExtentRow| extent_out(py, row);
        let files = files
            .iter()
            .map(|(ino, version, rows)| (*ino, *version, rows.iter().map(out).collect()))
            .collect();
        (files, place)
    }
}

/// The places of chunks.
#[pyclass(name = "ChunkPlaces", module = "cowfs._native", frozen)]
#[derive(Default)]
pub struct PyChunkPlaces(pub(crate) Mutex<ChunkPlaces>);

pub(crate) type PlaceIn = (PyBackedBytes, u32, u32, u32, u8);
type PlaceOut<'py> = (Bound<'py, PyBytes>, u32, u32, u32, u8);

pub(crate) fn sized<const N: usize>(bytes: &[u8]) -> PyResult<[u8; N]> {
    bytes
        .try_into()
        .map_err(|_| PyValueError::new_err(format!("{N} bytes are wanted, not {}", bytes.len())))
}

pub(crate) fn place_in(place: PlaceIn) -> PyResult<Place> {
    let (pack, offset, stored_length, raw_length, codec) = place;
    Ok(Place {
        pack: sized(&pack)?,
        offset,
        stored_length,
        raw_length,
        codec,
    })
}

/// Records, packs, raw bytes, where to go on.
type NamedOut<'py> = (Bound<'py, PyBytes>, Vec<Bound<'py, PyBytes>>, u64, usize);

fn place_out<'py>(py: Python<'py>, place: &Place) -> PlaceOut<'py> {
    (
        PyBytes::new(py, &place.pack),
        place.offset,
        place.stored_length,
        place.raw_length,
        place.codec,
    )
}

#[pymethods]
impl PyChunkPlaces {
    #[new]
    fn new() -> PyChunkPlaces {
        PyChunkPlaces::default()
    }

    fn get<'py>(&self, py: Python<'py>, hash: &[u8]) -> PyResult<Option<PlaceOut<'py>>> {
        let place = locked(&self.0).get(&sized(hash)?);
        Ok(place.map(|place| place_out(py, &place)))
    }

    fn put(&self, hash: &[u8], place: PlaceIn, is_fresh: bool) -> PyResult<()> {
        locked(&self.0).put(&sized(hash)?, &place_in(place)?, is_fresh);
        Ok(())
    }

    fn name(&self, py: Python<'_>, files: &PyFileRows) {
        py.detach(|| {
            let files = files.lock();
            let rows = files.iter().flat_map(|(_, _, rows)| rows);
            locked(&self.0).name(rows.map(|row| row.chunk.hash.0));
        });
    }

    fn named<'py>(&self, py: Python<'py>, first: usize, limit: usize) -> Option<NamedOut<'py>> {
        let named = py.detach(|| locked(&self.0).named(first, limit))?;
        let records = PyBytes::new(py, named.records.as_flattened());
        let packs = named.packs.iter().map(|pack| PyBytes::new(py, pack));
        Some((records, packs.collect(), named.raw_bytes, named.next))
    }

    fn published(&self, left: usize) {
        locked(&self.0).published(left);
    }

    fn fresh_packs<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyBytes>> {
        let packs = locked(&self.0).fresh_packs();
        packs.iter().map(|pack| PyBytes::new(py, pack)).collect()
    }

    fn keep_fresh_in(&self, packs: Vec<PyBackedBytes>) -> PyResult<()> {
        let kept = packs
            .iter()
            .map(|pack| sized(pack))
            .collect::<PyResult<std::collections::HashSet<Pack>>>()?;
        locked(&self.0).keep_fresh_in(|pack| kept.contains(pack));
        Ok(())
    }
}

/// The entries of one directory on their way into an engine.
#[pyclass(name = "DirectoryRows", module = "cowfs._native", frozen)]
#[derive(Default)]
pub struct PyDirectoryRows(Mutex<Vec<(Box<[u8]>, InodeRow)>>);

impl PyDirectoryRows {
    pub(crate) fn take(&self) -> Vec<(Box<[u8]>, InodeRow)> {
        std::mem::take(&mut *locked(&self.0))
    }
}

#[pymethods]
impl PyDirectoryRows {
    #[new]
    fn new() -> PyDirectoryRows {
        PyDirectoryRows::default()
    }

    fn add(&self, entries: Vec<(PyBackedBytes, InodeIn)>) {
        let entries = entries.into_iter();
        locked(&self.0).extend(entries.map(|(name, row)| ((*name).into(), row.0)));
    }
}
