//! Reasons of failed calls, on their way into a log.

use pyo3::prelude::*;

/// (reason, how often) of calls that got EIO since the last call.
#[pyfunction]
pub(crate) fn take_faults() -> Vec<(String, u64)> {
    cowfs_base::faults::take()
}
