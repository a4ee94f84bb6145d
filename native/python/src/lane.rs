//! The lane's class.

use std::io::ErrorKind;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use cowfs_base::{Errno, Owners};
use cowfs_lane::{Handshake, Lane, Need, Options, Transport};
use cowfs_mounted::Error;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::engine::PyEngine;
use crate::errors::{not_resident, to_python};
use crate::survival::PySurvivalTable;
use crate::values::PyOwners;

/// Answers one mount's requests from its engine.
#[pyclass(name = "Lane", module = "cowfs._native", frozen)]
pub struct PyLane(Lane);

/// Minor number, features, bytes of the largest write, pages of the largest request.
type Agreed = (u32, u64, u32, u16);

fn os_error(py: Python<'_>, errno: Errno) -> PyErr {
    to_python(py, Error::Os(errno))
}

#[pymethods]
impl PyLane {
    #[new]
    #[pyo3(signature = (engine, *, device_fd, attr_ns, entry_ns, dir_entry_ns, passthrough=false, spins=false, transport="device", owners=None, handshake=None, table=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments")]
    fn new(
        py: Python<'_>,
        engine: &PyEngine,
        device_fd: RawFd,
        attr_ns: u64,
        entry_ns: u64,
        dir_entry_ns: u64,
        passthrough: bool,
        spins: bool,
        transport: &str,
        owners: Option<&PyOwners>,
        handshake: Option<Agreed>,
        table: Option<&PySurvivalTable>,
    ) -> PyResult<PyLane> {
        if device_fd < 0 {
            return Err(os_error(py, Errno::EBADF));
        }
        // SAFETY: not -1, and an open descriptor that the caller gives up (`_native.pyi`).
        let device = unsafe { OwnedFd::from_raw_fd(device_fd) };
        let options = Options {
            attr_ns,
            entry_ns,
            dir_entry_ns,
            passthrough,
            spins,
            transport: match transport {
                "device" => Transport::Device,
                "uring" => Transport::Uring,
                _ => {
                    let said = format!("{transport:?} is no transport");
                    return Err(PyValueError::new_err(said));
                }
            },
            owners: owners.map_or_else(Owners::default, |owners| owners.0),
            handshake: handshake.map(|(minor, flags, max_write, max_pages)| Handshake {
                minor,
                flags,
                max_write,
                max_pages,
            }),
            table: table.map(|table| table.0.clone()),
        };
        match Lane::new(engine.files(), device, &options) {
            Ok(lane) => Ok(PyLane(lane)),
            Err(error) if error.kind() == ErrorKind::InvalidInput => {
                Err(PyValueError::new_err(error.to_string()))
            }
            Err(error) => Err(os_error(py, error.into())),
        }
    }

    fn start(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.start())
            .map_err(|error| os_error(py, error.into()))
    }

    fn handshake(&self, py: Python<'_>) -> Option<Agreed> {
        let agreed = py.detach(|| self.0.handshake())?;
        Some((
            agreed.minor,
            agreed.flags,
            agreed.max_write,
            agreed.max_pages,
        ))
    }

    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.0.wait())
            .map_err(|errno| os_error(py, errno))
    }

    fn stop(&self, py: Python<'_>, grace_ms: u64) {
        py.detach(|| self.0.stop(Duration::from_millis(grace_ms)));
    }

    fn next_wanted(&self, py: Python<'_>) -> PyResult<Option<(u64, Py<PyAny>)>> {
        let Some(wanted) = py.detach(|| self.0.next_wanted()) else {
            return Ok(None);
        };
        let name = wanted.need.name();
        let need = match wanted.need {
            Need::Resident(missing) => not_resident(py, missing)?.into_value(py).into_any(),
            Need::Space | Need::Room => PyString::new(py, name).into_any().unbind(),
        };
        Ok(Some((wanted.unique, need)))
    }

    fn waiting(&self) -> Vec<(u64, &'static str, f64, bool)> {
        let waiting = self.0.waiting().into_iter();
        waiting
            .map(|it| (it.unique, it.need, it.age.as_secs_f64(), it.is_queued))
            .collect()
    }

    fn resume(&self, py: Python<'_>, unique: u64) {
        py.detach(|| self.0.resume(unique));
    }

    fn fail(&self, py: Python<'_>, unique: u64, errno: i32) {
        py.detach(|| self.0.fail(unique, Errno(errno)));
    }

    fn transport(&self) -> &'static str {
        match self.0.is_over_uring() {
            true => "uring",
            false => "device",
        }
    }

    fn invalidate_inode(&self, py: Python<'_>, ino: u64) -> PyResult<()> {
        py.detach(|| self.0.invalidate_inode(ino))
            .map_err(|errno| os_error(py, errno))
    }

    fn invalidate_entry(&self, py: Python<'_>, parent: u64, name: &[u8]) -> PyResult<()> {
        py.detach(|| self.0.invalidate_entry(parent, name))
            .map_err(|errno| os_error(py, errno))
    }
}
