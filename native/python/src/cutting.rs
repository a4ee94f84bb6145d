//! Cut points and zero runs.

use pyo3::prelude::*;

#[pyfunction]
#[pyo3(signature = (data, r#final))]
pub(crate) fn cut_points(py: Python<'_>, data: &[u8], r#final: bool) -> Vec<usize> {
    py.detach(|| cowfs_chunking::cut_points(data, r#final))
}

#[pyfunction]
pub(crate) fn zero_runs(py: Python<'_>, data: &[u8], minimum: usize) -> Vec<(usize, usize)> {
    py.detach(|| cowfs_chunking::zero_runs(data, minimum))
}
