//! A frozen layer as a commit reads it: in pages, in the order of the index's keys.
//!
//! Each page names the key it starts behind. So nothing is kept between two pages but the order of
//! the keys (`KeyOrder`), and neither side holds more than a page of rows. An empty page marks the
//! end. The state's lock is released now and then; what writers change meanwhile is saved first.

use std::sync::{Arc, OnceLock};

use cowfs_base::{Errno, Ino, Layer};

use crate::changes::{Changes, EXTENTS, EntryAt, Frozen, ROW, XATTRS};
use crate::content::XattrPair;
use crate::engine::Engine;
use crate::error::Result;
use crate::key_order::KeyOrder;
use crate::layers::{BATCH, layer_rows};
use crate::row::{InodeRow, LayerExtent};
use crate::state::State;

/// A layer's keys, without a lock.
pub(crate) struct Keys {
    changes: Arc<Changes>,
    order: Arc<OnceLock<KeyOrder>>,
}

impl Keys {
    /// Inodes behind `after` whose extents changed.
    pub fn content_inodes(&self, after: Ino) -> impl Iterator<Item = Ino> {
        self.inodes(after, EXTENTS)
    }

    fn order(&self) -> &KeyOrder {
        self.order.get_or_init(|| KeyOrder::of(&self.changes))
    }

    /// Inodes behind `after` with a change of the kind `what`.
    fn inodes(&self, after: Ino, what: u8) -> impl Iterator<Item = Ino> {
        self.order()
            .inodes(&self.changes, after)
            .filter(move |(_, marks)| marks & what != 0)
            .map(|(ino, _)| ino)
    }
}

impl Engine {
    /// Inodes whose row or extents changed and which have a name, as they were at the freeze: by
    /// number, up to `limit` of those behind `after`. A file of `layer_contents` counts its mapped
    /// bytes before the commit cuts it: zeros may become holes.
    pub fn layer_inodes(&self, layer: Layer, after: Ino, limit: usize) -> Result<Vec<InodeRow>> {
        let keys = self.layer_keys(layer)?;
        let inodes = keys.inodes(after, ROW | EXTENTS);
        self.page(layer, inodes, limit, State::frozen_row)
    }

    /// Inodes of the base version, or of an earlier layer, that have no name any more; likewise.
    pub fn layer_removed(&self, layer: Layer, after: Ino, limit: usize) -> Result<Vec<Ino>> {
        let keys = self.layer_keys(layer)?;
        let first_ino = keys.changes.first_ino;
        let older = keys
            .inodes(after, u8::MAX)
            .take_while(|ino| *ino < first_ino);
        self.page(layer, older, limit, |state, frozen, ino| {
            match state.frozen_row(frozen, ino) {
                Some(_) => None,
                None => Some(ino),
            }
        })
    }

    /// (parent, name, inode) of each entry that changed, by parent and name, up to `limit` behind
    /// `after`; inode 0: removed.
    pub fn layer_entries(
        &self,
        layer: Layer,
        after: (Ino, &[u8]),
        limit: usize,
    ) -> Result<Vec<(Ino, Vec<u8>, Ino)>> {
        let keys = self.layer_keys(layer)?;
        let (parent, name) = after;
        let entries = keys
            .order()
            .entries(&keys.changes, EntryAt { parent, name });
        self.page(layer, entries, limit, |state, frozen, key| {
            let ino = state.frozen_entry(frozen, key);
            Some((key.parent, key.name.to_vec(), ino))
        })
    }

    /// (inode, data version) of each file whose extents changed and which has a name: by number, up
    /// to `limit` behind `after`.
    pub fn layer_contents(
        &self,
        layer: Layer,
        after: Ino,
        limit: usize,
    ) -> Result<Vec<(Ino, u64)>> {
        let keys = self.layer_keys(layer)?;
        let inodes = keys.inodes(after, EXTENTS);
        self.page(layer, inodes, limit, |state, frozen, ino| {
            state.frozen_row(frozen, ino)?;
            let (version, _) = state.frozen_extents(frozen, ino)?;
            Some((ino, version))
        })
    }

    /// How many files `layer_contents` has, and how many bytes of them are staged and in no chunk.
    pub fn layer_totals(&self, layer: Layer) -> Result<(u64, u64)> {
        let keys = self.layer_keys(layer)?;
        let (mut files, mut bytes) = (0, 0);
        let inodes = keys.inodes(0, EXTENTS);
        self.page(layer, inodes, usize::MAX, |state, frozen, ino| {
            state.frozen_row(frozen, ino)?;
            let (_, extents) = state.frozen_extents(frozen, ino)?;
            let new = extents.iter().filter(|extent| extent.chunk.is_none());
            files += 1;
            bytes += new.map(|extent| extent.length).sum::<u64>();
            None::<()>
        })?;
        Ok((files, bytes))
    }

    /// The extents of one file of `layer_contents`, as they were at the freeze. ENOENT for any
    /// other.
    pub fn layer_extents(&self, layer: Layer, ino: Ino) -> Result<Vec<LayerExtent>> {
        let state = self.read()?;
        let frozen = state.frozen_layer(layer)?;
        if !frozen.changes.has(ino, EXTENTS) || state.frozen_row(frozen, ino).is_none() {
            return Err(Errno::ENOENT.into());
        }
        let (_, extents) = state.frozen_extents(frozen, ino).ok_or(Errno::ENOENT)?;
        Ok(layer_rows(&state, extents))
    }

    /// Inodes whose extended attributes changed and which have a name, each with all it has: by
    /// number, up to `limit` behind `after`.
    pub fn layer_xattrs(
        &self,
        layer: Layer,
        after: Ino,
        limit: usize,
    ) -> Result<Vec<(Ino, Vec<XattrPair>)>> {
        let keys = self.layer_keys(layer)?;
        let inodes = keys.inodes(after, XATTRS);
        self.page(layer, inodes, limit, |state, frozen, ino| {
            state.frozen_row(frozen, ino)?;
            Some((ino, state.frozen_xattrs(frozen, ino)))
        })
    }

    /// The first inode number that was free at the freeze.
    pub fn layer_next_ino(&self, layer: Layer) -> Result<Ino> {
        Ok(self.read()?.frozen_layer(layer)?.next_ino)
    }

    pub(crate) fn layer_keys(&self, layer: Layer) -> Result<Keys> {
        let state = self.read()?;
        let frozen = state.frozen_layer(layer)?;
        Ok(Keys {
            changes: frozen.changes.clone(),
            order: frozen.order.clone(),
        })
    }

    /// Up to `limit` values of a layer's keys, a batch at a time: writers get in between, and what
    /// they change is saved first.
    fn page<K, T>(
        &self,
        layer: Layer,
        keys: impl Iterator<Item = K>,
        limit: usize,
        mut value: impl FnMut(&State, &Frozen, K) -> Option<T>,
    ) -> Result<Vec<T>> {
        let mut keys = keys.peekable();
        let mut values = Vec::new();
        while values.len() < limit && keys.peek().is_some() {
            let state = self.read()?;
            let frozen = state.frozen_layer(layer)?;
            let some = keys.by_ref().take(BATCH);
            let room = limit - values.len();
            values.extend(some.filter_map(|key| value(&state, frozen, key)).take(room));
        }
        Ok(values)
    }
}
