//! The survival table's class.

use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};
use std::sync::Arc;

use cowfs_base::Errno;
use cowfs_mounted::Error;
use cowfs_survival::Table;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::to_python;

/// What a mount's next server must know.
#[pyclass(name = "SurvivalTable", module = "cowfs._native", frozen)]
pub struct PySurvivalTable(pub Arc<Table>);

fn failed(py: Python<'_>, error: std::io::Error) -> PyErr {
    match error.kind() {
        std::io::ErrorKind::InvalidInput => PyValueError::new_err(error.to_string()),
        _ => to_python(py, Error::Os(Errno::from(error))),
    }
}

#[pymethods]
impl PySurvivalTable {
    #[staticmethod]
    fn allocate(py: Python<'_>) -> PyResult<RawFd> {
        let memory = Table::allocate().map_err(|error| failed(py, error))?;
        Ok(memory.into_raw_fd())
    }

    #[new]
    fn new(py: Python<'_>, descriptor: RawFd, connection: u64) -> PyResult<PySurvivalTable> {
        if descriptor < 0 || connection == 0 {
            return Err(to_python(py, Error::Os(Errno::EBADF)));
        }
        // SAFETY: the caller keeps it open during the call (`_native.pyi`).
        let memory = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let table = Table::open(memory, connection).map_err(|error| failed(py, error))?;
        Ok(PySurvivalTable(Arc::new(table)))
    }

    #[getter]
    fn is_continued(&self) -> bool {
        self.0.handshake().is_some()
    }

    #[getter]
    fn has_all_handles(&self) -> bool {
        self.0.has_all_handles()
    }
}
