//! The engine's class: opening, closing, recovery.

use std::path::PathBuf;
use std::sync::Arc;

use cowfs_engine::{CHECKPOINT_BYTES, Engine, Options, Result, SEGMENT_BYTES};
use pyo3::prelude::*;

use crate::convert::InodeIn;
use crate::errors::to_python;
use crate::values::PyRecovery;

/// One mount's file system.
#[pyclass(name = "Engine", module = "cowfs._native", frozen)]
pub struct PyEngine(Arc<Engine>);

impl PyEngine {
    /// The engine itself, for what answers from it beside Python.
    pub(crate) fn shared(&self) -> Arc<Engine> {
        self.0.clone()
    }

    /// Calls the engine without the GIL.
    pub(crate) fn call<T: Send>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&Engine) -> Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| ask(&self.0))
            .map_err(|error| to_python(py, error))
    }
}

#[pymethods]
impl PyEngine {
    #[staticmethod]
    #[pyo3(signature = (*, root, next_ino, cache_dir, memory_cache_bytes=8 << 20, staging_dir=None, failures_file=None, staging_limit_bytes=0, after_layer=0, boot_id=String::new()))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments")]
    fn open(
        py: Python<'_>,
        root: InodeIn,
        next_ino: u64,
        cache_dir: PathBuf,
        memory_cache_bytes: u64,
        staging_dir: Option<PathBuf>,
        failures_file: Option<PathBuf>,
        staging_limit_bytes: u64,
        after_layer: u64,
        boot_id: String,
    ) -> PyResult<PyEngine> {
        let options = Options {
            root: root.0,
            next_ino,
            cache_dir,
            memory_cache_bytes,
            staging_dir,
            failures_file,
            staging_limit_bytes,
            segment_bytes: SEGMENT_BYTES,
            checkpoint_bytes: CHECKPOINT_BYTES,
            after_layer,
            boot_id,
        };
        let engine = py
            .detach(|| Engine::open(options))
            .map_err(|error| to_python(py, error))?;
        Ok(PyEngine(Arc::new(engine)))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, Engine::close)
    }

    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |engine| {
            engine.abandon();
            Ok(())
        })
    }

    fn recover(&self, py: Python<'_>) -> PyResult<PyRecovery> {
        self.call(py, Engine::recover).map(PyRecovery::from)
    }

    fn replay(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, Engine::replay)
    }

    /// Without any lock: `replay` holds the state's.
    fn replay_progress(&self) -> (u64, u64) {
        self.shared().replay_progress()
    }
}
