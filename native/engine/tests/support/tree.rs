//! What a user sees, through an engine or of a version alone, so that two of them can be compared.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cowfs_base::Ino;
use cowfs_engine::{Attr, CHECKPOINT_BYTES, Engine, INODE_HAS_XATTRS, Options, SEGMENT_BYTES};

use super::{Base, ROOT, ask};

/// An inode as a user sees it, without times.
#[derive(Clone, PartialEq, Eq)]
pub struct Seen {
    pub mode: u32,
    pub nlink: u32,
    pub bytes: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let runs = self
            .bytes
            .chunk_by(|a, b| a == b)
            .map(|run| format!("{}x{}", run.len(), run[0]));
        let bytes = runs.take(12).collect::<Vec<_>>().join(" ");
        write!(
            formatter,
            "{:o} nlink {} [{bytes}] xattrs {:?}",
            self.mode,
            self.nlink,
            self.xattrs.keys()
        )
    }
}

pub type Tree = BTreeMap<PathBuf, Seen>;

pub fn read_all(engine: &Engine, base: &Base, ino: Ino) -> Vec<u8> {
    let fh = ask(engine, base, |engine| engine.open_file(ino, libc::O_RDONLY)).expect("opens");
    let mut bytes = Vec::new();
    loop {
        let part = ask(engine, base, |engine| {
            engine.read_file(fh, bytes.len() as u64, 5000)
        })
        .expect("reads");
        if part.is_empty() {
            break;
        }
        bytes.extend(part);
    }
    engine.release(fh).expect("closes");
    bytes
}

pub fn list(engine: &Engine, base: &Base, ino: Ino) -> Vec<(Vec<u8>, Attr)> {
    let fh = ask(engine, base, |engine| engine.open_directory(ino)).expect("opens");
    let (mut entries, mut cookie) = (Vec::new(), 0);
    loop {
        let part = ask(engine, base, |engine| engine.read_directory(fh, cookie, 7)).expect("lists");
        let Some(last) = part.last() else { break };
        cookie = last.cookie;
        entries.extend(part.into_iter().map(|entry| (entry.name, entry.attr)));
    }
    engine.release_directory(fh).expect("closes");
    entries
        .into_iter()
        .filter(|(name, _)| name != b"." && name != b"..")
        .collect()
}

/// Nothing may change meanwhile. What `statfs` says is checked against it.
pub fn tree(engine: &Engine, base: &Base) -> Tree {
    let mut tree = Tree::new();
    let mut sizes = BTreeMap::new();
    let mut open = vec![(
        PathBuf::from("/"),
        ask(engine, base, |engine| engine.getattr(ROOT)).expect("root"),
    )];
    while let Some((path, attr)) = open.pop() {
        let bytes = match attr.mode & libc::S_IFMT {
            libc::S_IFREG => read_all(engine, base, attr.ino),
            libc::S_IFLNK => engine.readlink(attr.ino).expect("target"),
            libc::S_IFDIR => {
                for (name, child) in list(engine, base, attr.ino) {
                    open.push((path.join(String::from_utf8(name).expect("UTF-8")), child));
                }
                Vec::new()
            }
            _ => Vec::new(),
        };
        let names = ask(engine, base, |engine| engine.list_xattrs(attr.ino)).expect("xattrs");
        let value = |name: &Vec<u8>| {
            ask(engine, base, |engine| engine.get_xattr(attr.ino, name)).expect("value")
        };
        let xattrs: BTreeMap<_, _> = names
            .iter()
            .map(|name| (name.clone(), value(name)))
            .collect();
        let pairs = xattrs.iter();
        let xattr_bytes: usize = pairs.map(|(name, value)| name.len() + value.len()).sum();
        let is_sized = matches!(attr.mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFLNK);
        let size = if is_sized { attr.size } else { 0 };
        sizes.insert(attr.ino, size + xattr_bytes as u64);
        tree.insert(
            path,
            Seen {
                mode: attr.mode,
                nlink: attr.nlink,
                bytes,
                xattrs,
            },
        );
    }
    let (used_bytes, inodes, _) = engine.statfs().expect("counts");
    // More while attributes that were never loaded belong to files that are gone.
    let counted_bytes = sizes.values().sum::<u64>();
    assert!(
        used_bytes >= counted_bytes,
        "{used_bytes} of {counted_bytes} bytes"
    );
    assert_eq!(inodes, sizes.len() as u64, "inodes");
    tree
}

/// What a user of the version alone would see.
pub fn tree_of(base: &Base) -> Tree {
    for (ino, row) in &base.inodes {
        let has_xattrs = base.xattrs.get(ino).is_some_and(|pairs| !pairs.is_empty());
        assert_eq!(
            row.flags & INODE_HAS_XATTRS != 0,
            has_xattrs,
            "the flag of inode {ino} tells the truth"
        );
        let extents = base.extents.get(ino).into_iter().flatten();
        assert_eq!(
            row.mapped_bytes,
            extents.map(|extent| extent.length).sum::<u64>(),
            "the mapped bytes of inode {ino} are those of its extents"
        );
    }
    let temp = tempfile::tempdir().expect("a temporary directory");
    let options = Options {
        root: base.inodes[&ROOT].clone(),
        next_ino: base.next_ino,
        cache_dir: temp.path().into(),
        memory_cache_bytes: 1 << 20,
        is_store_near: false,
        staging_dir: None,
        failures_file: None,
        staging_limit_bytes: 0,
        segment_bytes: SEGMENT_BYTES,
        checkpoint_bytes: CHECKPOINT_BYTES,
        after_layer: 0,
        boot_id: String::new(),
    };
    let engine = Engine::open(options).expect("opens");
    let (bytes, inodes) = base.amount();
    engine.count_base(bytes, inodes).expect("counts");
    tree(&engine, base)
}
