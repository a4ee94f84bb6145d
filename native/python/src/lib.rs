//! `cowfs._native`: the engine as Python sees it. `cowfs/_native.pyi` documents every name.
//!
//! Conversion only: arguments are taken apart, the GIL is released, the engine is called, the
//! answer is put together. No engine call is made with the GIL held, and none calls back.

mod cached;
mod convert;
mod cutting;
mod engine;
mod errors;
mod faults;
mod filling;
mod ignoring;
mod lane;
mod layers;
mod local;
mod operations;
mod residency;
mod rows;
mod storing;
mod survival;
mod tables;
mod values;

use pyo3::prelude::*;

#[pymodule(name = "_native")]
mod native {
    use super::*;

    #[pymodule_export]
    use crate::cached::PyCachedChunks;
    #[pymodule_export]
    use crate::cutting::{compressed, cut_points, zero_runs};
    #[pymodule_export]
    use crate::engine::PyEngine;
    #[pymodule_export]
    use crate::errors::{JournalCorrupt, NotResident};
    #[pymodule_export]
    use crate::faults::take_faults;
    #[pymodule_export]
    use crate::filling::PyChunkRun;
    #[pymodule_export]
    use crate::ignoring::PyIgnorePatterns;
    #[pymodule_export]
    use crate::lane::PyLane;
    #[pymodule_export]
    use crate::local::{list_directory, open_beneath, read_small_files};
    #[pymodule_export]
    use crate::rows::{plain_contents, plain_entries, plain_inodes};
    #[pymodule_export]
    use crate::storing::PySmallFiles;
    #[pymodule_export]
    use crate::survival::PySurvivalTable;
    #[pymodule_export]
    use crate::tables::{PyChunkPlaces, PyDirectoryRows, PyFileRows};
    #[pymodule_export]
    use crate::values::{PyAttr, PyCaller, PyChunkRef, PyLayerExtent, PyOwners, PyRecovery};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("INODE_HAS_XATTRS", cowfs_engine::INODE_HAS_XATTRS)?;
        module.add("ROOT_INO", cowfs_base::ROOT_INO)?;
        module.add("LAST_INO", cowfs_base::LAST_INO)?;
        module.add("COUNTED_BYTES", cowfs_base::COUNTED_BYTES)?;
        module.add("ACL_ACCESS", cowfs_engine::ACL_ACCESS)?;
        module.add("ACL_DEFAULT", cowfs_engine::ACL_DEFAULT)?;
        module.add("MAX_BACKGROUND", cowfs_lane::MAX_BACKGROUND)?;
        module.add("CONGESTION", cowfs_lane::CONGESTION)?;
        module.add("DIRECTORY_RUN", cowfs_engine::DIRECTORY_RUN)?;
        module.add("LOADS_MAX", cowfs_lane::LOADS_MAX)?;
        module.add("CODEC_RAW", cowfs_blob::CODEC_RAW)?;
        module.add("CODEC_ZSTD", cowfs_blob::CODEC_ZSTD)
    }
}
