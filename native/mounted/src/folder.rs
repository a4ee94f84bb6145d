//! `.cowfs` and `.cowfs/versions`: their entries are loaded on demand.
//!
//! A version is a directory named by its whole id; a tag or a shortened id is a symbolic link to
//! that. The target of an id never changes. A link is cached for LINK_LIFE and then looked up
//! again, since any writer can move a tag.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cowfs_base::sync::Mutex;
use cowfs_base::{Attr, Errno, Ino, ROOT_INO};
use cowfs_engine::NAME_MAX_BYTES;

use crate::error::{Error, Missing, Result};
use crate::number::{
    FIRST_LINK_INO, FOLDER, HIDDEN_INO, VERSIONS_DIR, VERSIONS_INO, Version, outer,
};

const LINK_LIFE: Duration = Duration::from_secs(2);

/// The target of a name in `.cowfs/versions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// It is a version's whole id.
    Version(Version),
    /// It stands for this id.
    Id(Vec<u8>),
}

/// An entry of a listing.
#[derive(Debug)]
pub(crate) struct Entry {
    pub name: Vec<u8>,
    pub ino: Ino,
}

impl Entry {
    fn new(name: &[u8], ino: Ino) -> Entry {
        Entry {
            name: name.into(),
            ino,
        }
    }
}

#[derive(Default)]
pub(crate) struct Folder(Mutex<State>);

#[derive(Default)]
struct State {
    versions: HashMap<Vec<u8>, Version>,
    generations: HashMap<Version, u64>,
    links: HashMap<Vec<u8>, (Ino, Instant)>,
    targets: HashMap<Ino, Vec<u8>>,
    by_target: HashMap<Vec<u8>, Ino>,
    listing: Option<(Arc<Vec<Entry>>, Instant)>,
    open: HashMap<u64, Arc<Vec<Entry>>>,
    last_fh: u64,
}

impl State {
    fn put(&mut self, name: Vec<u8>, target: Target) -> Entry {
        let ino = match target {
            Target::Version(version) => {
                self.generations.insert(version, generation_of(&name));
                self.versions.insert(name.clone(), version);
                outer(version, ROOT_INO)
            }
            Target::Id(id) => {
                let ino = self.link_to(id);
                self.links.insert(name.clone(), (ino, Instant::now()));
                ino
            }
        };
        Entry { name, ino }
    }

    fn link_to(&mut self, id: Vec<u8>) -> Ino {
        if let Some(ino) = self.by_target.get(&id) {
            return *ino;
        }
        let ino = FIRST_LINK_INO + self.targets.len() as u64;
        self.by_target.insert(id.clone(), ino);
        self.targets.insert(ino, id);
        ino
    }
}

impl Folder {
    pub fn name_version(&self, name: Vec<u8>, target: Target) {
        self.0.lock().put(name, target);
    }

    pub fn list_versions(&self, names: Vec<(Vec<u8>, Target)>) {
        let mut state = self.0.lock();
        let mut entries = vec![
            Entry::new(b".", VERSIONS_INO),
            Entry::new(b"..", HIDDEN_INO),
        ];
        for (name, target) in names {
            entries.push(state.put(name, target));
        }
        state.listing = Some((Arc::new(entries), Instant::now()));
    }

    /// The inode that a name leads to; `parent` is one of the two directories.
    pub fn find(&self, parent: Ino, name: &[u8]) -> Result<Ino> {
        if name.len() > NAME_MAX_BYTES {
            return Err(Errno::ENAMETOOLONG.into());
        }
        match (parent, name) {
            (HIDDEN_INO | VERSIONS_INO, b".") => Ok(parent),
            (HIDDEN_INO, b"..") => Ok(ROOT_INO),
            (VERSIONS_INO, b"..") => Ok(HIDDEN_INO),
            (HIDDEN_INO, VERSIONS_DIR) => Ok(VERSIONS_INO),
            (VERSIONS_INO, _) => self.find_version(name),
            (HIDDEN_INO, _) => Err(Errno::ENOENT.into()),
            _ => Err(Errno::ENOTDIR.into()),
        }
    }

    fn find_version(&self, name: &[u8]) -> Result<Ino> {
        let state = self.0.lock();
        if let Some(version) = state.versions.get(name) {
            return Ok(outer(*version, ROOT_INO));
        }
        match state.links.get(name) {
            Some((ino, since)) if since.elapsed() < LINK_LIFE => Ok(*ino),
            _ => Err(Error::NotResident(Missing::Name(name.to_vec()))),
        }
    }

    /// A number that distinguishes the version from others with the same number in another mount.
    pub fn generation(&self, version: Version) -> u64 {
        let known = self.0.lock().generations.get(&version).copied();
        known.unwrap_or(0)
    }

    /// The target of a link.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let target = self.0.lock().targets.get(&ino).cloned();
        Ok(target.ok_or(Errno::EINVAL)?)
    }

    /// `like`: the root directory's, whose owner and times it has.
    pub fn attributes(&self, ino: Ino, like: &Attr) -> Result<Attr> {
        let target_bytes = self.0.lock().targets.get(&ino).map(Vec::len);
        let (mode, nlink, size) = match (ino, target_bytes) {
            (HIDDEN_INO | VERSIONS_INO, _) => (libc::S_IFDIR | 0o555, 2, 0),
            (_, Some(bytes)) => (libc::S_IFLNK | 0o777, 1, bytes as u64),
            _ => return Err(Errno::ESTALE.into()),
        };
        Ok(Attr {
            ino,
            mode,
            nlink,
            size,
            blocks: 0,
            ..like.clone()
        })
    }

    pub fn open(&self, ino: Ino) -> Result<u64> {
        let mut state = self.0.lock();
        let entries = match ino {
            HIDDEN_INO => {
                let names: [(&[u8], Ino); 3] = [
                    (b".", HIDDEN_INO),
                    (b"..", ROOT_INO),
                    (VERSIONS_DIR, VERSIONS_INO),
                ];
                Arc::new(names.map(|(name, ino)| Entry::new(name, ino)).into())
            }
            VERSIONS_INO => match state.listing.take() {
                Some((entries, since)) if since.elapsed() < LINK_LIFE => entries,
                _ => return Err(Error::NotResident(Missing::Names)),
            },
            _ => return Err(Errno::ENOTDIR.into()),
        };
        state.last_fh += 1;
        let fh = outer(FOLDER, state.last_fh);
        state.open.insert(fh, entries);
        Ok(fh)
    }

    pub fn entries(&self, fh: u64) -> Result<Arc<Vec<Entry>>> {
        let entries = self.0.lock().open.get(&fh).cloned();
        Ok(entries.ok_or(Errno::EBADF)?)
    }

    pub fn release(&self, fh: u64) -> Result<()> {
        let closed = self.0.lock().open.remove(&fh);
        Ok(closed.map(drop).ok_or(Errno::EBADF)?)
    }
}

/// The first 32 bits of an id: the kernel keeps no more.
fn generation_of(id: &[u8]) -> u64 {
    let digits = std::str::from_utf8(&id[..id.len().min(8)]).ok();
    digits
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .unwrap_or(0)
}
