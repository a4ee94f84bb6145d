//! What there is behind one operation.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cowfs_base::Ino;

use crate::support::{Seen, Tree, World};

/// The tree behind one operation, and what each file held.
pub struct Moment {
    pub tree: Tree,
    pub inodes: BTreeMap<PathBuf, Ino>,
}

impl Moment {
    pub fn of(world: &World) -> Moment {
        let tree = world.tree();
        let inode = |path: &PathBuf| {
            world
                .resolve(path.to_str().expect("UTF-8"))
                .expect("exists")
        };
        let inodes = tree
            .keys()
            .map(|path| (path.clone(), inode(path)))
            .collect();
        Moment { tree, inodes }
    }

    pub fn bytes_of(&self, ino: Ino) -> Option<&[u8]> {
        let (path, _) = self.inodes.iter().find(|(_, found)| **found == ino)?;
        Some(&self.tree[path].bytes)
    }

    /// As a user sees it, but for the bytes.
    pub fn shape(&self) -> Vec<(&PathBuf, Ino, u32, u32, usize, String)> {
        let line = |(path, seen): (_, &Seen)| {
            let xattrs = format!("{:?}", seen.xattrs);
            (
                path,
                self.inodes[path],
                seen.mode,
                seen.nlink,
                seen.bytes.len(),
                xattrs,
            )
        };
        self.tree.iter().map(line).collect()
    }
}
