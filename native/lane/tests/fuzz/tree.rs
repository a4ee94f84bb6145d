//! Everything a user sees of an engine's tree, to compare two engines by.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use cowfs_base::{Ino, ROOT_INO};
use cowfs_engine::{Attr, Engine};

use crate::requests::FAR_OFFSETS;
use crate::world::Base;

/// Generated writes begin below this, or at one of `FAR_OFFSETS`.
const NEAR_BYTES: u64 = 1 << 20;
const STEP_BYTES: usize = 256 << 10;
const FAR_BYTES: usize = 128 << 10;

/// One inode; times and block counts are among the attributes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    attr: Attr,
    bytes: u64,
    target: Vec<u8>,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

pub type Tree = BTreeMap<Vec<u8>, Seen>;

/// Paths and their inodes.
pub fn tree(engine: &Engine, base: &Base) -> Tree {
    let mut found = BTreeMap::from([(b"/".to_vec(), seen(engine, base, ROOT_INO))]);
    let mut waiting = vec![(Vec::new(), ROOT_INO)];
    while let Some((path, ino)) = waiting.pop() {
        for (name, child) in list(engine, base, ino) {
            let child_path = [&path[..], b"/", &name].concat();
            let seen = seen(engine, base, child);
            if seen.attr.mode & libc::S_IFMT == libc::S_IFDIR {
                waiting.push((child_path.clone(), child));
            }
            found.insert(child_path, seen);
        }
    }
    found
}

/// How many inodes a tree has.
pub fn inodes(tree: &Tree) -> u64 {
    let numbers: BTreeSet<Ino> = tree.values().map(|seen| seen.attr.ino).collect();
    numbers.len() as u64
}

/// The first path that two trees differ in.
pub fn difference(left: &Tree, right: &Tree) -> Option<String> {
    let paths: BTreeSet<_> = left.keys().chain(right.keys()).collect();
    let path = paths
        .into_iter()
        .find(|path| left.get(*path) != right.get(*path))?;
    let (left, right) = (left.get(path), right.get(path));
    Some(format!(
        "{}: {left:?} and {right:?}",
        String::from_utf8_lossy(path)
    ))
}

fn list(engine: &Engine, base: &Base, ino: Ino) -> Vec<(Vec<u8>, Ino)> {
    let fh = base
        .ask(engine, |engine| engine.open_directory(ino))
        .expect("opens");
    let entries = base
        .ask(engine, |engine| engine.read_directory(fh, 0, usize::MAX))
        .expect("lists");
    engine.release_directory(fh).expect("closes");
    entries
        .into_iter()
        .filter(|entry| entry.name != b"." && entry.name != b"..")
        .map(|entry| (entry.name, entry.attr.ino))
        .collect()
}

fn seen(engine: &Engine, base: &Base, ino: Ino) -> Seen {
    let attr = base
        .ask(engine, |engine| engine.getattr(ino))
        .expect("has attributes");
    let names = base
        .ask(engine, |engine| engine.list_xattrs(ino))
        .expect("lists attributes");
    let value = |name: &[u8]| base.ask(engine, |engine| engine.get_xattr(ino, name));
    Seen {
        bytes: if attr.mode & libc::S_IFMT == libc::S_IFREG {
            bytes(engine, base, &attr)
        } else {
            0
        },
        target: if attr.mode & libc::S_IFMT == libc::S_IFLNK {
            base.ask(engine, |engine| engine.readlink(ino))
                .expect("has a target")
        } else {
            Vec::new()
        },
        xattrs: names
            .into_iter()
            .map(|name| (name.clone(), value(&name).expect("has a value")))
            .collect(),
        // Once more: blocks are counted when the content is here, and guessed from the size before.
        attr: base
            .ask(engine, |engine| engine.getattr(ino))
            .expect("has attributes"),
    }
}

/// A hash of what a file holds where anything was written.
fn bytes(engine: &Engine, base: &Base, attr: &Attr) -> u64 {
    let fh = base
        .ask(engine, |engine| engine.open_file(attr.ino, libc::O_RDONLY))
        .expect("opens");
    let mut hasher = DefaultHasher::new();
    let near = (0..attr.size.min(NEAR_BYTES + FAR_BYTES as u64))
        .step_by(STEP_BYTES)
        .map(|offset| (offset, STEP_BYTES));
    let far = FAR_OFFSETS
        .into_iter()
        .filter(|offset| *offset < attr.size)
        .map(|offset| (offset, FAR_BYTES));
    for (offset, length) in near.chain(far) {
        base.ask(engine, |engine| engine.read_file(fh, offset, length))
            .expect("reads")
            .hash(&mut hasher);
    }
    engine.release(fh).expect("closes");
    hasher.finish()
}
