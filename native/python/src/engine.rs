//! The engine's class: opening, closing, recovery.

use std::path::PathBuf;
use std::sync::Arc;

use cowfs_engine::{CHECKPOINT_BYTES, Engine, Options, Result, SEGMENT_BYTES};
use cowfs_mounted::{Mounted, Target};
use pyo3::prelude::*;

use crate::convert::InodeIn;
use crate::errors::to_python;
use crate::values::PyRecovery;

/// One mount's file system.
#[pyclass(name = "Engine", module = "cowfs._native", frozen)]
pub struct PyEngine(Arc<Mounted>);

impl PyEngine {
    /// The engine itself, for what answers from it beside Python.
    pub(crate) fn shared(&self) -> Arc<Engine> {
        self.0.engine().clone()
    }

    /// With what the mount shows beside it.
    pub(crate) fn files(&self) -> Arc<Mounted> {
        self.0.clone()
    }

    /// As `call`, with what the mount shows beside the volume.
    pub(crate) fn ask<T: Send>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&Mounted) -> cowfs_mounted::Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| ask(&self.0))
            .map_err(|error| to_python(py, error))
    }

    /// A change of what this inode or handle is of.
    pub(crate) fn change<T: Send>(
        &self,
        py: Python<'_>,
        number: u64,
        call: impl FnOnce(&Engine) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.ask(py, |files| Ok(call(files.own(number)?)?))
    }

    /// A change of a name in a directory.
    pub(crate) fn change_in<T: Send>(
        &self,
        py: Python<'_>,
        parent: u64,
        name: &[u8],
        call: impl FnOnce(&Engine) -> Result<T> + Send,
    ) -> PyResult<T> {
        self.ask(py, |files| Ok(call(files.own_parent(parent, name)?)?))
    }

    /// Calls the engine without the GIL.
    pub(crate) fn call<T: Send>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&Engine) -> Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| ask(self.0.engine()))
            .map_err(|error| to_python(py, error))
    }
}

#[pymethods]
impl PyEngine {
    #[staticmethod]
    #[pyo3(signature = (*, root, next_ino, cache_dir, memory_cache_bytes=8 << 20, store_is_near=false, staging_dir=None, failures_file=None, staging_limit_bytes=0, after_layer=0, boot_id=String::new()))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments")]
    fn open(
        py: Python<'_>,
        root: InodeIn,
        next_ino: u64,
        cache_dir: PathBuf,
        memory_cache_bytes: u64,
        store_is_near: bool,
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
            is_store_near: store_is_near,
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
        Ok(PyEngine(Arc::new(Mounted::new(Arc::new(engine)))))
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

    fn with_versions(&self, is_listed: bool) -> PyEngine {
        PyEngine(Arc::new(Mounted::with_versions(self.shared(), is_listed)))
    }

    fn name_version(&self, name: Vec<u8>, target: TargetIn) {
        self.0.name_version(name, target.into());
    }

    fn list_versions(&self, names: Vec<(Vec<u8>, TargetIn)>) {
        let names = names.into_iter();
        self.0
            .list_versions(names.map(|(name, target)| (name, target.into())).collect());
    }

    fn open_version(&self, py: Python<'_>, version: u16, engine: &PyEngine) {
        py.detach(|| self.0.open_version(version, engine.shared()));
    }

    fn close_version(&self, py: Python<'_>, version: u16) -> bool {
        py.detach(|| self.0.close_version(version))
    }

    fn open_versions(&self, py: Python<'_>) -> Vec<u16> {
        py.detach(|| self.0.open_versions())
    }

    fn may_move(&self, ino: u64) -> bool {
        self.0.may_move(ino)
    }

    fn generation(&self, ino: u64) -> u64 {
        self.0.generation(ino)
    }

    fn is_only_named(&self, ino: u64) -> bool {
        self.0.is_only_named(ino)
    }

    /// Without any lock: `replay` holds the state's.
    fn replay_progress(&self) -> (u64, u64) {
        self.shared().replay_progress()
    }
}

/// The target of a name in `.cowfs/versions`: the number of a version, or the id behind the name.
#[derive(FromPyObject)]
enum TargetIn {
    Version(u16),
    Id(Vec<u8>),
}

impl From<TargetIn> for Target {
    fn from(target: TargetIn) -> Target {
        match target {
            TargetIn::Version(version) => Target::Version(version),
            TargetIn::Id(id) => Target::Id(id),
        }
    }
}
