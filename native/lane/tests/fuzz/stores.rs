//! Stores through mappings, as the kernel writes them back: the engine remembers those that were
//! refused and not repaired since. Exact only if one request is sent at a time.

use std::collections::{HashMap, HashSet};

use cowfs_engine::Engine;
use cowfs_fuse_abi::{HEADER_BYTES, Header, Operation, WRITE_CACHE, opcode};

/// Where the node's number is in a request.
const NODE_AT: usize = 16;
/// Where the target's number is in a request to copy.
const NODE_OUT_AT: usize = HEADER_BYTES + 16;
/// Ranges that end beyond are not told apart.
const OFFSET_MAX: u64 = 1 << 62;

/// A request, as far as it matters here.
pub struct Store {
    is_cached: bool,
    /// The inodes whose bytes it may change.
    nodes: Vec<u64>,
}

#[derive(Default)]
pub struct Stores {
    /// The inode of each handle.
    owners: HashMap<u64, u64>,
    refused: HashSet<u64>,
}

impl Stores {
    /// The inode of a handle; 0 for one that was never given out.
    pub fn owner(&self, fh: u64) -> u64 {
        self.owners.get(&fh).copied().unwrap_or(0)
    }

    /// Makes a request name the inodes of its handles, as the kernel does.
    pub fn aim(&self, message: &mut [u8]) {
        let Some((header, body)) = Header::parse(message) else {
            return;
        };
        let (fh, fh_out) = match Operation::parse(header.opcode, body) {
            Some(
                Operation::Write(io, _)
                | Operation::Read(io)
                | Operation::ReadDir(io)
                | Operation::ReadDirPlus(io),
            ) => (io.fh, None),
            Some(Operation::CopyFileRange { fh, fh_out, .. }) => (fh, Some(fh_out)),
            Some(
                Operation::Release { fh }
                | Operation::ReleaseDir { fh }
                | Operation::Fsync { fh, .. }
                | Operation::Fallocate { fh, .. }
                | Operation::Seek { fh, .. },
            ) => (fh, None),
            _ => return,
        };
        let named = [(Some(fh), NODE_AT), (fh_out, NODE_OUT_AT)];
        for (fh, at) in named {
            if let Some(node) = fh.and_then(|fh| self.owners.get(&fh)) {
                message[at..at + 8].copy_from_slice(&node.to_le_bytes());
            }
        }
    }

    pub fn sent(&self, message: &[u8]) -> Store {
        let mut store = Store {
            is_cached: false,
            nodes: Vec::new(),
        };
        let Some((header, body)) = Header::parse(message) else {
            return store;
        };
        store.nodes.push(header.nodeid);
        let mut add = |fh| store.nodes.extend(self.owners.get(&fh));
        match Operation::parse(header.opcode, body) {
            Some(Operation::Write(io, data)) => {
                let is_cached = io.flags & WRITE_CACHE != 0;
                add(io.fh);
                store.is_cached = is_cached && !data.is_empty() && io.offset < OFFSET_MAX;
            }
            Some(Operation::Fallocate { fh, .. }) => add(fh),
            Some(Operation::CopyFileRange { fh_out, .. }) => add(fh_out),
            _ => {}
        }
        store
    }

    /// A reply has come; `made`: the inode and the handle it tells of.
    pub fn answered(
        &mut self,
        number: u32,
        store: &Store,
        error: i32,
        made: (Option<u64>, Option<u64>),
    ) {
        if error != 0 {
            if store.is_cached {
                self.refused.extend(store.nodes.first());
            }
            return;
        }
        let changes = matches!(
            number,
            opcode::WRITE
                | opcode::SETATTR
                | opcode::FALLOCATE
                | opcode::COPY_FILE_RANGE
                | opcode::COPY_FILE_RANGE_64
                | opcode::CREATE
        );
        if changes {
            let nodes = store.nodes.iter().copied().chain(made.0);
            for node in nodes {
                self.refused.remove(&node);
            }
        }
        if let (node, Some(fh)) = made
            && let Some(node) = node.or(store.nodes.first().copied())
        {
            self.owners.insert(fh, node);
        }
    }

    /// Checks that the engine knows the refused stores; returns how many bytes.
    pub fn check(&self, engine: &Engine) -> usize {
        let known = engine.refused_stores().expect("an open engine");
        let known: HashSet<u64> = known.into_iter().map(|store| store.ino).collect();
        let named = self.refused.iter().filter(|node| {
            engine
                .getattr(**node)
                .is_ok_and(|attr| attr.nlink > 0 && attr.mode & libc::S_IFMT == libc::S_IFREG)
        });
        let mut count = 0;
        for node in named {
            assert!(
                known.contains(node),
                "a refused store to inode {node} is forgotten"
            );
            count += 1;
        }
        count
    }
}
