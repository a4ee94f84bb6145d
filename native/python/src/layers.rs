//! Data that a commit publishes, and the handling of staged bytes.

use std::time::Duration;

use cowfs_engine::{Engine, Punching};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::convert::{InodeOut, XattrsOut, inode_out, xattrs_out};
use crate::cutting::writable;
use crate::engine::PyEngine;
use crate::tables::PyFileRows;
use crate::values::PyLayerExtent;

/// Inode, bytes, errno.
type RefusedStore = (u64, u64, i32);

/// A day at most, also for infinity and NaN: a longer duration could exceed the clock's range. None
/// if negative.
fn duration_of(seconds: f64) -> Duration {
    const DAY_S: f64 = 86_400.0;
    Duration::try_from_secs_f64(seconds.min(DAY_S)).unwrap_or_default()
}

#[pymethods]
impl PyEngine {
    fn writable_handles(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        self.call(py, |engine| Ok(engine.writable_handles()))
    }

    fn is_dirty(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, |engine| engine.is_dirty())
    }

    fn lost_files(&self, py: Python<'_>) -> PyResult<Vec<(u64, u64)>> {
        self.call(py, |engine| engine.lost_files())
    }

    fn lose_unreadable(&self, py: Python<'_>, ino: u64) -> PyResult<u64> {
        self.call(py, |engine| engine.lose_unreadable(ino))
    }

    fn names_of<'py>(
        &self,
        py: Python<'py>,
        inodes: Vec<u64>,
    ) -> PyResult<Vec<(u64, u64, Bound<'py, PyBytes>)>> {
        let names = self.call(py, |engine| engine.names_of(&inodes))?;
        Ok(names
            .iter()
            .map(|(ino, parent, name)| (*ino, *parent, PyBytes::new(py, name)))
            .collect())
    }

    fn freeze(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.call(py, |engine| engine.freeze())
    }

    fn layer_inodes<'py>(
        &self,
        py: Python<'py>,
        layer: u64,
        after: u64,
        limit: usize,
        contents: &PyFileRows,
    ) -> PyResult<Vec<InodeOut<'py>>> {
        let rows = self.call(py, |engine| {
            let mut rows = engine.layer_inodes(layer, after, limit)?;
            contents.lock().count_mapped(&mut rows);
            Ok(rows)
        })?;
        Ok(rows.iter().map(|row| inode_out(py, row)).collect())
    }

    fn layer_removed(
        &self,
        py: Python<'_>,
        layer: u64,
        after: u64,
        limit: usize,
    ) -> PyResult<Vec<u64>> {
        self.call(py, |engine| engine.layer_removed(layer, after, limit))
    }

    fn layer_entries<'py>(
        &self,
        py: Python<'py>,
        layer: u64,
        after: (u64, PyBackedBytes),
        limit: usize,
    ) -> PyResult<Vec<(u64, Bound<'py, PyBytes>, u64)>> {
        let (parent, name) = &after;
        let after = (*parent, &**name);
        let entries = self.call(py, |engine| engine.layer_entries(layer, after, limit))?;
        Ok(entries
            .iter()
            .map(|(parent, name, ino)| (*parent, PyBytes::new(py, name), *ino))
            .collect())
    }

    fn layer_contents(
        &self,
        py: Python<'_>,
        layer: u64,
        after: u64,
        limit: usize,
    ) -> PyResult<Vec<(u64, u64)>> {
        self.call(py, |engine| engine.layer_contents(layer, after, limit))
    }

    fn layer_totals(&self, py: Python<'_>, layer: u64) -> PyResult<(u64, u64)> {
        self.call(py, |engine| engine.layer_totals(layer))
    }

    fn layer_extents(&self, py: Python<'_>, layer: u64, ino: u64) -> PyResult<Vec<PyLayerExtent>> {
        let extents = self.call(py, |engine| engine.layer_extents(layer, ino))?;
        Ok(extents.into_iter().map(PyLayerExtent::from).collect())
    }

    fn layer_xattrs<'py>(
        &self,
        py: Python<'py>,
        layer: u64,
        after: u64,
        limit: usize,
    ) -> PyResult<Vec<(u64, XattrsOut<'py>)>> {
        let inodes = self.call(py, |engine| engine.layer_xattrs(layer, after, limit))?;
        Ok(inodes
            .iter()
            .map(|(ino, pairs)| (*ino, xattrs_out(py, pairs)))
            .collect())
    }

    fn layer_next_ino(&self, py: Python<'_>, layer: u64) -> PyResult<u64> {
        self.call(py, |engine| engine.layer_next_ino(layer))
    }

    fn read_staged<'py>(
        &self,
        py: Python<'py>,
        segment: u64,
        offset: u64,
        length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        // Straight into the object: no other reference to it exists yet.
        PyBytes::new_with(py, length, |buffer| {
            self.call(py, |engine| engine.read_staged(segment, offset, buffer))
        })
    }

    /// Fills `target`.
    fn read_staged_into(
        &self,
        py: Python<'_>,
        segment: u64,
        offset: u64,
        target: PyBuffer<u8>,
    ) -> PyResult<()> {
        // SAFETY: Python's part of this call (`cutting`).
        let buffer = unsafe { writable(&target) }?;
        self.call(py, |engine| engine.read_staged(segment, offset, buffer))
    }

    fn layer_committed(&self, py: Python<'_>, layer: u64, contents: &PyFileRows) -> PyResult<()> {
        self.call(py, |engine| engine.layer_committed(layer, &contents.lock()))
    }

    fn layer_failed(&self, py: Python<'_>, layer: u64) -> PyResult<()> {
        self.call(py, |engine| engine.layer_failed(layer))
    }

    fn trim_staging(&self, py: Python<'_>, max_bytes: u64) -> PyResult<u64> {
        self.call(py, |engine| engine.trim_staging(max_bytes))
    }

    fn committed_staged_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |engine| engine.committed_staged_bytes())
    }

    #[pyo3(signature = (wanted_bytes, *, is_refused))]
    fn relieve(&self, py: Python<'_>, wanted_bytes: u64, is_refused: bool) -> PyResult<u64> {
        let punching = match is_refused {
            true => Punching::Thorough,
            false => Punching::Cheap,
        };
        self.call(py, |engine| engine.relieve(wanted_bytes, punching))
    }

    fn restore_ballast(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, |engine| engine.restore_ballast())
    }

    fn give_up_ballast(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, |engine| engine.give_up_ballast())
    }

    fn checkpoint_when_due(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, Engine::checkpoint_when_due)
    }

    fn checkpoint_before_close(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, Engine::checkpoint_before_close)
    }

    fn reclaim_when_due(&self, py: Python<'_>, timeout_s: f64) -> PyResult<u64> {
        let timeout = duration_of(timeout_s);
        self.call(py, |engine| engine.reclaim_when_due(timeout))
    }

    fn watch(&self) -> u64 {
        self.shared().watch()
    }

    fn wait_changed(&self, py: Python<'_>, since: u64, timeout_s: f64) -> PyResult<()> {
        let timeout = duration_of(timeout_s);
        self.call(py, |engine| {
            engine.wait_changed(since, timeout);
            Ok(())
        })
    }

    fn end_waits(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |engine| {
            engine.end_waits();
            Ok(())
        })
    }

    fn is_reclaim_overdue(&self) -> bool {
        self.shared().is_reclaim_overdue()
    }

    fn reclaim_overdue(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |engine| engine.reclaim_overdue())
    }

    fn is_broken(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, |engine| Ok(engine.is_broken()))
    }

    fn refused_stores(&self, py: Python<'_>) -> PyResult<Vec<RefusedStore>> {
        let refused = self.call(py, |engine| engine.refused_stores())?;
        let refused = refused.into_iter();
        Ok(refused.map(|it| (it.ino, it.bytes, it.errno.0)).collect())
    }

    fn quiet_files(
        &self,
        py: Python<'_>,
        idle_s: f64,
        after: (u64, u64),
        limit: usize,
    ) -> PyResult<Vec<((u64, u64), u64)>> {
        // A float too large, negative or not a number saturates.
        let idle_ns = (idle_s * 1e9) as u64;
        self.call(py, |engine| engine.quiet_files(idle_ns, after, limit))
    }

    fn staged_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |engine| engine.staged_bytes())
    }

    fn growing_files(
        &self,
        py: Python<'_>,
        least_bytes: u64,
        recent_s: f64,
        most_extents: usize,
        limit: usize,
    ) -> PyResult<Vec<u64>> {
        let recent_ns = (recent_s * 1e9) as u64;
        self.call(py, |engine| {
            engine.growing_files(least_bytes, recent_ns, most_extents, limit)
        })
    }

    fn live_extents(&self, py: Python<'_>, ino: u64) -> PyResult<(u64, Vec<PyLayerExtent>)> {
        let (version, extents) = self.call(py, |engine| engine.live_extents(ino))?;
        Ok((
            version,
            extents.into_iter().map(PyLayerExtent::from).collect(),
        ))
    }
}
