//! File system operations, in the order of the FUSE protocol.

use cowfs_base::Errno;
use cowfs_engine::{AttrChange, HandleId};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::engine::PyEngine;
use crate::values::{PyAttr, PyCaller};

/// Inode and number of a handle.
type Handle = (u64, u64);

fn handle((ino, fh): Handle) -> HandleId {
    HandleId { ino, fh }
}

type Entry<'py> = (Bound<'py, PyBytes>, u64, PyAttr);

/// Times from 1677 to 2262 can be held; as on any file system, others become the nearest that can.
fn nearest_time_ns(time_ns: i128) -> i64 {
    time_ns.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

#[pymethods]
impl PyEngine {
    fn lookup(&self, py: Python<'_>, parent: u64, name: &[u8]) -> PyResult<PyAttr> {
        self.ask(py, |files| files.lookup(parent, name))
            .map(PyAttr::from)
    }

    fn forget(&self, py: Python<'_>, ino: u64, count: u64) -> PyResult<()> {
        self.ask(py, |files| files.forget(ino, count))
    }

    fn getattr(&self, py: Python<'_>, ino: u64) -> PyResult<PyAttr> {
        self.ask(py, |files| files.getattr(ino)).map(PyAttr::from)
    }

    #[pyo3(signature = (ino, caller, *, mode=None, uid=None, gid=None, size=None, atime_ns=None, mtime_ns=None, ctime_ns=None))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments")]
    fn setattr(
        &self,
        py: Python<'_>,
        ino: u64,
        caller: &PyCaller,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime_ns: Option<i128>,
        mtime_ns: Option<i128>,
        ctime_ns: Option<i128>,
    ) -> PyResult<PyAttr> {
        let change = AttrChange {
            mode,
            uid,
            gid,
            size,
            atime_ns: atime_ns.map(nearest_time_ns),
            mtime_ns: mtime_ns.map(nearest_time_ns),
            ctime_ns: ctime_ns.map(nearest_time_ns),
        };
        self.change(py, ino, |engine| engine.setattr(ino, &caller.0, &change))
            .map(PyAttr::from)
    }

    fn readlink<'py>(&self, py: Python<'py>, ino: u64) -> PyResult<Bound<'py, PyBytes>> {
        self.ask(py, |files| files.readlink(ino))
            .map(|target| PyBytes::new(py, &target))
    }

    fn mknod(
        &self,
        py: Python<'_>,
        parent: u64,
        name: &[u8],
        mode: u32,
        rdev: u32,
        caller: &PyCaller,
    ) -> PyResult<PyAttr> {
        self.change_in(py, parent, name, |engine| {
            engine.mknod(parent, name, mode, rdev, &caller.0)
        })
        .map(PyAttr::from)
    }

    fn mkdir(
        &self,
        py: Python<'_>,
        parent: u64,
        name: &[u8],
        mode: u32,
        caller: &PyCaller,
    ) -> PyResult<PyAttr> {
        self.change_in(py, parent, name, |engine| {
            engine.mkdir(parent, name, mode, &caller.0)
        })
        .map(PyAttr::from)
    }

    fn symlink(
        &self,
        py: Python<'_>,
        parent: u64,
        name: &[u8],
        target: &[u8],
        caller: &PyCaller,
    ) -> PyResult<PyAttr> {
        self.change_in(py, parent, name, |engine| {
            engine.symlink(parent, name, target, &caller.0)
        })
        .map(PyAttr::from)
    }

    fn link(&self, py: Python<'_>, ino: u64, parent: u64, name: &[u8]) -> PyResult<PyAttr> {
        self.ask(py, |files| {
            let engine = files.own_parent(parent, name)?;
            Ok(engine.link(files.own_source(ino)?, parent, name)?)
        })
        .map(PyAttr::from)
    }

    fn unlink(&self, py: Python<'_>, parent: u64, name: &[u8], caller: &PyCaller) -> PyResult<()> {
        self.change_in(py, parent, name, |engine| {
            engine.unlink(parent, name, &caller.0)
        })
    }

    fn rmdir(&self, py: Python<'_>, parent: u64, name: &[u8], caller: &PyCaller) -> PyResult<()> {
        self.change_in(py, parent, name, |engine| {
            engine.rmdir(parent, name, &caller.0)
        })
    }

    #[allow(clippy::too_many_arguments, reason = "rename has two ends")]
    fn rename(
        &self,
        py: Python<'_>,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        flags: u32,
        caller: &PyCaller,
    ) -> PyResult<()> {
        self.ask(py, |files| {
            files.own_parent(parent, name)?;
            let engine = files.own_parent(new_parent, new_name)?;
            Ok(engine.rename(parent, name, new_parent, new_name, flags, &caller.0)?)
        })
    }

    fn create(
        &self,
        py: Python<'_>,
        parent: u64,
        name: &[u8],
        mode: u32,
        flags: i32,
        caller: &PyCaller,
    ) -> PyResult<(PyAttr, Handle)> {
        self.change_in(py, parent, name, |engine| {
            engine.create(parent, name, mode, flags, &caller.0)
        })
        .map(|(attr, id)| (attr.into(), (id.ino, id.fh)))
    }

    fn open_file(&self, py: Python<'_>, ino: u64, flags: i32) -> PyResult<Handle> {
        self.ask(py, |files| files.open_file(ino, flags))
            .map(|id| (id.ino, id.fh))
    }

    fn read<'py>(
        &self,
        py: Python<'py>,
        fh: Handle,
        offset: u64,
        size: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.ask(py, |files| files.read_file(handle(fh), offset, size))
            .map(|bytes| PyBytes::new(py, &bytes))
    }

    fn write(&self, py: Python<'_>, fh: Handle, offset: u64, data: &[u8]) -> PyResult<usize> {
        self.change(py, fh.0, |engine| {
            engine.write_at_once(handle(fh), offset, data, true)
        })
    }

    fn append(&self, py: Python<'_>, fh: Handle, data: &[u8]) -> PyResult<u64> {
        self.change(py, fh.0, |engine| engine.append(handle(fh), data, true))
    }

    fn replace(&self, py: Python<'_>, fh: Handle, data: &[u8]) -> PyResult<()> {
        self.change(py, fh.0, |engine| engine.replace(handle(fh), data, true))
    }

    fn copy_range(
        &self,
        py: Python<'_>,
        source: (Handle, u64),
        target: (Handle, u64),
        length: u64,
    ) -> PyResult<u64> {
        self.ask(py, |files| {
            let engine = files.own(target.0.0)?;
            files.own_source(source.0.0)?;
            let (source, target) = ((handle(source.0), source.1), (handle(target.0), target.1));
            Ok(engine.copy_range(source, target, length, true)?)
        })
    }

    fn note_failed_write(
        &self,
        py: Python<'_>,
        fh: Handle,
        offset: u64,
        length: u64,
        errno: i32,
    ) -> PyResult<()> {
        self.change(py, fh.0, |engine| {
            engine.note_failed_write(handle(fh), offset, length, Errno(errno))
        })
    }

    fn fsync(&self, py: Python<'_>, fh: Handle, datasync: bool) -> PyResult<()> {
        self.ask(py, |files| files.fsync(handle(fh), datasync))
    }

    fn release(&self, py: Python<'_>, fh: Handle) -> PyResult<()> {
        self.ask(py, |files| files.release(handle(fh)))
    }

    fn open_directory(&self, py: Python<'_>, ino: u64) -> PyResult<Handle> {
        self.ask(py, |files| files.open_directory(ino))
            .map(|id| (id.ino, id.fh))
    }

    fn read_directory<'py>(
        &self,
        py: Python<'py>,
        fh: Handle,
        cookie: u64,
        limit: usize,
    ) -> PyResult<Vec<Entry<'py>>> {
        let entries = self.ask(py, |files| files.read_directory(handle(fh), cookie, limit))?;
        let tuple = |entry: cowfs_engine::DirectoryEntry| {
            (
                PyBytes::new(py, &entry.name),
                entry.cookie,
                entry.attr.into(),
            )
        };
        Ok(entries.into_iter().map(tuple).collect())
    }

    fn entry_delivered(&self, py: Python<'_>, ino: u64) -> PyResult<()> {
        self.ask(py, |files| files.entry_delivered(ino))
    }

    fn release_directory(&self, py: Python<'_>, fh: Handle) -> PyResult<()> {
        self.ask(py, |files| files.release_directory(handle(fh)))
    }

    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |engine| engine.sync())
    }

    fn statfs(&self, py: Python<'_>) -> PyResult<(u64, u64, u64)> {
        self.call(py, |engine| engine.statfs())
    }

    fn count_base(&self, py: Python<'_>, bytes: u64, inodes: u64) -> PyResult<()> {
        self.call(py, |engine| engine.count_base(bytes, inodes))
    }

    fn set_quota(&self, py: Python<'_>, bytes: u64) -> PyResult<()> {
        self.call(py, |engine| engine.set_quota(bytes))
    }

    fn quota(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |engine| engine.quota())
    }

    fn begin_apart(&self, py: Python<'_>, kept_bytes: u64) -> PyResult<()> {
        self.call(py, |engine| engine.begin_apart(kept_bytes))
    }

    fn resize_apart(&self, py: Python<'_>, ino: u64, size: u64) -> PyResult<()> {
        self.call(py, |engine| engine.resize_apart(ino, size).map(drop))
    }

    fn end_apart(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |engine| engine.end_apart())
    }

    fn inodes_in_memory(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |engine| engine.inodes_in_memory())
    }

    fn set_xattr(
        &self,
        py: Python<'_>,
        ino: u64,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> PyResult<()> {
        self.change(py, ino, |engine| engine.set_xattr(ino, name, value, flags))
    }

    fn set_acl(
        &self,
        py: Python<'_>,
        ino: u64,
        name: &[u8],
        value: &[u8],
        caller: &PyCaller,
    ) -> PyResult<()> {
        self.change(py, ino, |engine| {
            engine.set_acl(ino, name, value, &caller.0)
        })
    }

    fn get_xattr<'py>(
        &self,
        py: Python<'py>,
        ino: u64,
        name: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.ask(py, |files| files.get_xattr(ino, name))
            .map(|value| PyBytes::new(py, &value))
    }

    fn list_xattrs<'py>(&self, py: Python<'py>, ino: u64) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let names = self.ask(py, |files| files.list_xattrs(ino))?;
        Ok(names.iter().map(|name| PyBytes::new(py, name)).collect())
    }

    fn remove_xattr(&self, py: Python<'_>, ino: u64, name: &[u8]) -> PyResult<()> {
        self.change(py, ino, |engine| engine.remove_xattr(ino, name))
    }
}
