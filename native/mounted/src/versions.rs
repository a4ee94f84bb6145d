//! The engines of versions that somebody looks at. One that nobody has a file open in can be
//! closed; who goes on with a number of it gets `Missing::Closed`, and it is opened again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cowfs_engine::Engine;
use parking_lot::RwLock;

use crate::error::{Error, Missing, Result};
use crate::number::Version;

#[derive(Default)]
struct Place {
    /// Held shared while a call is answered from it, so that none meets an engine that is being
    /// closed. Calls wait for nothing but the local disk.
    engine: RwLock<Option<Arc<Engine>>>,
    handles: AtomicU64,
    /// When it was asked last, by the count of all calls.
    used: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Versions {
    places: RwLock<HashMap<Version, Arc<Place>>>,
    calls: AtomicU64,
}

impl Versions {
    /// What `call` says of the engine of a version.
    pub fn ask<T>(
        &self,
        version: Version,
        call: impl FnOnce(&Engine) -> cowfs_engine::Result<T>,
    ) -> Result<T> {
        let place = self.places.read().get(&version).cloned();
        let closed = || Error::NotResident(Missing::Closed(version));
        let place = place.ok_or_else(closed)?;
        let engine = place.engine.read();
        let engine = engine.as_ref().ok_or_else(closed)?;
        let now = self.calls.fetch_add(1, Ordering::Relaxed);
        place.used.store(now, Ordering::Relaxed);
        call(engine).map_err(|error| Error::of(version, error))
    }

    /// As `ask`, for a call that opens a handle.
    pub fn ask_for_handle(
        &self,
        version: Version,
        call: impl FnOnce(&Engine) -> cowfs_engine::Result<u64>,
    ) -> Result<u64> {
        self.ask(version, |engine| {
            let fh = call(engine)?;
            // Within `ask`, so that it is not being closed.
            if let Some(place) = self.places.read().get(&version) {
                place.handles.fetch_add(1, Ordering::AcqRel);
            }
            Ok(fh)
        })
    }

    /// Closes a handle.
    pub fn release(
        &self,
        version: Version,
        call: impl FnOnce(&Engine) -> cowfs_engine::Result<()>,
    ) -> Result<()> {
        self.ask(version, |engine| {
            call(engine)?;
            if let Some(place) = self.places.read().get(&version) {
                place.handles.fetch_sub(1, Ordering::AcqRel);
            }
            Ok(())
        })
    }

    pub fn open(&self, version: Version, engine: Arc<Engine>) {
        let place = self.places.write().entry(version).or_default().clone();
        *place.engine.write() = Some(engine);
        let now = self.calls.fetch_add(1, Ordering::Relaxed);
        place.used.store(now, Ordering::Relaxed);
    }

    /// Lets go of the engine of a version, unless it has an open handle; whether it did.
    pub fn close(&self, version: Version) -> bool {
        let Some(place) = self.places.read().get(&version).cloned() else {
            return true;
        };
        let mut engine = place.engine.write();
        let is_idle = place.handles.load(Ordering::Acquire) == 0;
        if is_idle {
            *engine = None;
        }
        is_idle
    }

    /// Those with an engine, the one that was asked longest ago first.
    pub fn by_use(&self) -> Vec<Version> {
        let places = self.places.read();
        let mut open: Vec<(u64, Version)> = places
            .iter()
            .filter(|(_, place)| place.engine.read().is_some())
            .map(|(version, place)| (place.used.load(Ordering::Relaxed), *version))
            .collect();
        open.sort_unstable();
        open.into_iter().map(|(_, version)| version).collect()
    }
}
