//! `.cowfs` and `.cowfs/versions`: their entries are loaded on demand.
//!
//! A version is a directory named by its whole id; a tag or a shortened id is a symbolic link to
//! that. The target of an id never changes. A link is cached for LINK_LIFE and then looked up
//! again, since any writer can move a tag. All links to a version have one number, which follows
//! from that of its attachment.
//!
//! A listing's entries come in the order of their cookies, which are hashes of their names: the
//! same in each listing, whatever came or went.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cowfs_base::sync::Mutex;
use cowfs_base::{Attr, Errno, Ino, ROOT_INO};
use cowfs_engine::{HandleId, NAME_MAX_BYTES};

use crate::attachments::{Attached, Attachments};
use crate::error::{Error, Missing, Result};
use crate::number::{HIDDEN_INO, VERSIONS_DIR, VERSIONS_INO, link_to, node_of, version_of_link};

const LINK_LIFE: Duration = Duration::from_secs(2);

/// The target of a name in `.cowfs/versions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// It is a version's whole id.
    Version,
    /// It stands for this id.
    Id(Vec<u8>),
}

/// An entry of a listing.
#[derive(Debug)]
pub(crate) struct Entry {
    pub name: Vec<u8>,
    pub ino: Ino,
    pub cookie: u64,
}

/// What a name leads to.
pub(crate) enum Found {
    Inode(Ino),
    Version(Arc<Attached>),
    /// A link to it, which is referred to once more.
    Link(Arc<Attached>),
}

#[derive(Default)]
pub(crate) struct Folder(Mutex<State>);

#[derive(Default)]
struct State {
    links: HashMap<Vec<u8>, (Arc<Attached>, Instant)>,
    listing: Option<(Arc<Vec<Entry>>, Instant)>,
    open: HashMap<HandleId, Arc<Vec<Entry>>>,
    last_fh: u64,
}

impl Folder {
    pub fn name_version(&self, beside: &Attachments, name: &[u8], target: Target) -> Result<Ino> {
        match target {
            Target::Version => {
                let attached = beside.attach(name)?;
                Ok(node_of(attached.number, ROOT_INO))
            }
            Target::Id(id) => {
                let attached = beside.attach(&id)?;
                let node = link_to(attached.number);
                let link = (attached, Instant::now());
                self.0.lock().links.insert(name.to_vec(), link);
                Ok(node)
            }
        }
    }

    pub fn list_versions(&self, beside: &Attachments, names: Vec<(Vec<u8>, Target)>) -> Result<()> {
        let entries = names.into_iter().map(|(name, target)| {
            let ino = self.name_version(beside, &name, target)?;
            Ok((name, ino))
        });
        let entries = entries.collect::<Result<_>>()?;
        let entries = listing((VERSIONS_INO, HIDDEN_INO), entries);
        self.0.lock().listing = Some((Arc::new(entries), Instant::now()));
        Ok(())
    }

    /// What a name leads to; `parent` is one of the two directories.
    pub fn find(&self, beside: &Attachments, parent: Ino, name: &[u8]) -> Result<Found> {
        if name.len() > NAME_MAX_BYTES {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let ino = match (parent, name) {
            (HIDDEN_INO | VERSIONS_INO, b".") => parent,
            (HIDDEN_INO, b"..") => ROOT_INO,
            (VERSIONS_INO, b"..") => HIDDEN_INO,
            (HIDDEN_INO, VERSIONS_DIR) => VERSIONS_INO,
            (VERSIONS_INO, _) => return self.find_version(beside, name),
            (HIDDEN_INO, _) => return Err(Errno::ENOENT.into()),
            _ => return Err(Errno::ENOTDIR.into()),
        };
        Ok(Found::Inode(ino))
    }

    fn find_version(&self, beside: &Attachments, name: &[u8]) -> Result<Found> {
        if let Some(attached) = beside.of_id(name) {
            return Ok(Found::Version(attached));
        }
        let link = self.0.lock().links.get(name).cloned();
        match link {
            Some((attached, since)) if since.elapsed() < LINK_LIFE && beside.refer(&attached) => {
                Ok(Found::Link(attached))
            }
            _ => Err(Error::NotResident(Missing::Name(name.to_vec()))),
        }
    }

    /// The target of a link.
    pub fn readlink(&self, beside: &Attachments, ino: Ino) -> Result<Vec<u8>> {
        let version = version_of_link(ino).ok_or(Errno::EINVAL)?;
        Ok(beside.get(version)?.id().to_vec())
    }

    /// `like`: the root directory's, whose owner and times it has.
    pub fn attributes(&self, beside: &Attachments, ino: Ino, like: &Attr) -> Result<Attr> {
        let (mode, nlink, size) = match (ino, version_of_link(ino)) {
            (HIDDEN_INO | VERSIONS_INO, _) => (libc::S_IFDIR | 0o555, 2, 0),
            (_, Some(version)) => {
                let target_bytes = beside.get(version)?.id().len() as u64;
                (libc::S_IFLNK | 0o777, 1, target_bytes)
            }
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

    pub fn open(&self, ino: Ino) -> Result<HandleId> {
        let mut state = self.0.lock();
        let entries = state.entries_of(ino)?;
        state.last_fh += 1;
        let fh = state.last_fh;
        let id = HandleId { ino, fh };
        state.open.insert(id, entries);
        Ok(id)
    }

    /// A handle of an earlier process gets the entries of now.
    pub fn entries(&self, id: HandleId) -> Result<Arc<Vec<Entry>>> {
        let mut state = self.0.lock();
        if let Some(entries) = state.open.get(&id) {
            return Ok(entries.clone());
        }
        let entries = state.entries_of(id.ino)?;
        state.open.insert(id, entries.clone());
        Ok(entries)
    }

    pub fn release(&self, id: HandleId) {
        self.0.lock().open.remove(&id);
    }
}

impl State {
    fn entries_of(&mut self, ino: Ino) -> Result<Arc<Vec<Entry>>> {
        match ino {
            HIDDEN_INO => {
                let versions = vec![(VERSIONS_DIR.to_vec(), VERSIONS_INO)];
                Ok(Arc::new(listing((HIDDEN_INO, ROOT_INO), versions)))
            }
            VERSIONS_INO => match self.listing.take() {
                Some((entries, since)) if since.elapsed() < LINK_LIFE => Ok(entries),
                _ => Err(Error::NotResident(Missing::Names)),
            },
            _ => Err(Errno::ENOTDIR.into()),
        }
    }
}

/// The entries of a directory in the order of their cookies, behind those of itself and of the
/// directory that it is in.
fn listing(dots: (Ino, Ino), names: Vec<(Vec<u8>, Ino)>) -> Vec<Entry> {
    let entry = |name: &[u8], ino, cookie| Entry {
        name: name.to_vec(),
        ino,
        cookie,
    };
    let mut hashed: Vec<_> = names
        .into_iter()
        .map(|(name, ino)| (hash_of(&name), name, ino))
        .collect();
    hashed.sort_unstable();
    let mut entries = vec![entry(b".", dots.0, 1), entry(b"..", dots.1, 2)];
    let mut next = 3;
    for (hash, name, ino) in hashed {
        entries.push(entry(&name, ino, hash.max(next)));
        next = hash.max(next) + 1;
    }
    entries
}

/// 62 bits of FNV-1a, the same in each process.
fn hash_of(name: &[u8]) -> u64 {
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    hash >> 2
}
