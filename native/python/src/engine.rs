//! The engine's class: opening, closing, recovery.

use std::path::PathBuf;
use std::sync::Arc;

use cowfs_engine::{CHECKPOINT_BYTES, Engine, Options, Result, SEGMENT_BYTES};
use cowfs_mounted::{Mounted, Target, node_of_shown, shown_ino};
use pyo3::prelude::*;

use crate::convert::InodeIn;
use crate::errors::to_python;
use crate::survival::PySurvivalTable;
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

    fn keep_for_next_server(&self, table: &PySurvivalTable) {
        self.0.engine().note_requests(table.0.connection());
        self.0.engine().keep_handles(table.0.clone());
    }

    fn expect_earlier_references(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, Engine::expect_earlier_references)
    }

    fn with_versions(&self, is_listed: bool) -> PyEngine {
        PyEngine(Arc::new(Mounted::with_versions(self.shared(), is_listed)))
    }

    fn name_version(&self, py: Python<'_>, name: &[u8], target: Option<Vec<u8>>) -> PyResult<()> {
        self.ask(py, |files| files.name_version(name, target_of(target)))
    }

    fn list_versions(
        &self,
        py: Python<'_>,
        names: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    ) -> PyResult<()> {
        let names = names.into_iter();
        let names = names.map(|(name, target)| (name, target_of(target)));
        let names = names.collect();
        self.ask(py, |files| files.list_versions(names))
    }

    fn open_version(&self, py: Python<'_>, attachment: u16, id: &[u8], engine: &PyEngine) -> bool {
        py.detach(|| self.0.open_version(attachment, id, engine.shared()))
    }

    fn close_version(&self, py: Python<'_>, attachment: u16) -> bool {
        py.detach(|| self.0.close_version(attachment))
    }

    fn open_versions(&self, py: Python<'_>) -> Vec<u16> {
        py.detach(|| self.0.open_versions())
    }

    fn next_ino(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, Engine::next_ino)
    }

    #[staticmethod]
    fn shown_ino(node: u64) -> u64 {
        shown_ino(node)
    }

    #[staticmethod]
    fn node_of_shown(shown: u64) -> u64 {
        node_of_shown(shown)
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

/// The id behind a name in `.cowfs/versions`; None: the name is a version's whole id.
fn target_of(id: Option<Vec<u8>>) -> Target {
    id.map_or(Target::Version, Target::Id)
}
