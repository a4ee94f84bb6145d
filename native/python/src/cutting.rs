//! Cut points, zero runs and compression, of any buffer or a part of it; and buffers to fill.
//!
//! A buffer must not be changed while a call has it. Python has to ensure that, since a buffer can
//! be locked against resizing only. `version.publish.recut` gives whole `bytes`.
//! `version.publish.cut_file` gives buffers of its own, which it fills before it cuts them, and
//! only while no piece refers to them. Pieces of a range (`store.contract`) stay unchanged until
//! the next one is requested.

use cowfs_chunking::Gear;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Ends of chunks of `data[begin:end]`, counted from the beginning of `data`.
#[pyfunction]
#[pyo3(signature = (data, r#final, begin = 0, end = None, gear = None))]
pub(crate) fn cut_points(
    py: Python<'_>,
    data: PyBuffer<u8>,
    r#final: bool,
    begin: usize,
    end: Option<usize>,
    gear: Option<&[u8]>,
) -> PyResult<Vec<usize>> {
    // SAFETY: Python's part of this call.
    let part = unsafe { part(&data, begin, end) }?;
    let gear = gear.map(parse_gear).transpose()?;
    let ends = py.detach(|| match gear {
        None => cowfs_chunking::cut_points(part, r#final),
        Some(gear) => cowfs_chunking::cut_points_with(&gear, part, r#final),
    });
    Ok(ends.into_iter().map(|end| begin + end).collect())
}

/// (offset, length) of runs of zeros in the first `end` bytes of `data`.
#[pyfunction]
#[pyo3(signature = (data, minimum, end = None))]
pub(crate) fn zero_runs(
    py: Python<'_>,
    data: PyBuffer<u8>,
    minimum: usize,
    end: Option<usize>,
) -> PyResult<Vec<(usize, usize)>> {
    // SAFETY: Python's part of this call.
    let part = unsafe { part(&data, 0, end) }?;
    Ok(py.detach(|| cowfs_chunking::zero_runs(part, minimum)))
}

/// One zstd frame of `data`, None where it does not pay.
#[pyfunction]
pub(crate) fn compressed<'py>(
    py: Python<'py>,
    data: PyBuffer<u8>,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    // SAFETY: Python's part of this call.
    let raw = unsafe { part(&data, 0, None) }?;
    let stored = py.detach(|| cowfs_blob::compressed(raw));
    Ok(stored.map(|stored| PyBytes::new(py, &stored)))
}

fn parse_gear(bytes: &[u8]) -> PyResult<Gear> {
    let bytes = bytes
        .try_into()
        .map_err(|_| PyValueError::new_err("a gear table has 2048 bytes"))?;
    Ok(Gear::from_bytes(bytes))
}

/// The bytes of `data[begin:end]`, for as long as the buffer is held.
///
/// # Safety
/// These bytes must not be written meanwhile.
pub(crate) unsafe fn part(
    data: &PyBuffer<u8>,
    begin: usize,
    end: Option<usize>,
) -> PyResult<&[u8]> {
    let end = end.unwrap_or(data.item_count());
    if !data.is_c_contiguous() || begin > end || end > data.item_count() {
        return Err(PyValueError::new_err("a range outside of the buffer"));
    }
    if begin == end {
        return Ok(&[]); // an empty buffer may have no address
    }
    // SAFETY: contiguous and in bounds, as just checked; memory and length do not change while the
    // buffer is exported, which `data` holds; the caller rules out writers.
    Ok(unsafe { std::slice::from_raw_parts(data.buf_ptr().cast::<u8>().add(begin), end - begin) })
}

/// The bytes of a writable buffer, for as long as it is held.
///
/// # Safety
/// No other code may read or write these bytes meanwhile.
#[allow(clippy::mut_from_ref, reason = "whoever holds the buffer writes it")]
pub(crate) unsafe fn writable(target: &PyBuffer<u8>) -> PyResult<&mut [u8]> {
    if target.readonly() || !target.is_c_contiguous() {
        return Err(PyValueError::new_err("a buffer that cannot be filled"));
    }
    if target.item_count() == 0 {
        return Ok(&mut []); // an empty buffer may have no address
    }
    // SAFETY: contiguous and writable, as just checked; memory and length do not change while the
    // buffer is exported, which `target` holds; the caller rules out other users.
    Ok(unsafe {
        std::slice::from_raw_parts_mut(target.buf_ptr().cast::<u8>(), target.item_count())
    })
}
