//! The engines of viewed versions. An engine without open files can be closed. A call with one of
//! its numbers then gets `Missing::Closed`, and the engine is opened again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cowfs_base::sync::RwLock;
use cowfs_engine::Engine;

use crate::error::{Error, Missing, Result};
use crate::number::Version;

#[derive(Default)]
struct Place {
    /// Held shared while its engine answers a call, so that no call meets an engine that is being
    /// closed. Calls wait only for the local disk.
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
    /// The result of `call` on the engine of a version.
    pub fn ask<T>(
        &self,
        version: Version,
        call: impl FnOnce(&Engine) -> cowfs_engine::Result<T>,
    ) -> Result<T> {
        self.ask_and_count(version, call, |_| {})
    }

    /// As `ask`, for a call that opens a handle.
    pub fn ask_for_handle(
        &self,
        version: Version,
        call: impl FnOnce(&Engine) -> cowfs_engine::Result<u64>,
    ) -> Result<u64> {
        self.ask_and_count(version, call, |handles| {
            handles.fetch_add(1, Ordering::AcqRel);
        })
    }

    /// As `ask`, for a call that closes a handle.
    pub fn release(
        &self,
        version: Version,
        call: impl FnOnce(&Engine) -> cowfs_engine::Result<()>,
    ) -> Result<()> {
        self.ask_and_count(version, call, |handles| {
            handles.fetch_sub(1, Ordering::AcqRel);
        })
    }

    /// Counts before the engine may be closed again.
    fn ask_and_count<T>(
        &self,
        version: Version,
        call: impl FnOnce(&Engine) -> cowfs_engine::Result<T>,
        count: impl FnOnce(&AtomicU64),
    ) -> Result<T> {
        let closed = || Error::NotResident(Missing::Closed(version));
        let place = self.place(version).ok_or_else(closed)?;
        let engine = place.engine.read();
        let engine = engine.as_ref().ok_or_else(closed)?;
        place.used.store(self.now(), Ordering::Relaxed);
        let outcome = call(engine).map_err(|error| Error::of(version, error))?;
        count(&place.handles);
        Ok(outcome)
    }

    pub fn open(&self, version: Version, engine: Arc<Engine>) {
        let place = self.places.write().entry(version).or_default().clone();
        place.used.store(self.now(), Ordering::Relaxed);
        *place.engine.write() = Some(engine);
    }

    /// Drops the engine of a version, unless it has an open handle; returns whether it did.
    pub fn close(&self, version: Version) -> bool {
        let Some(place) = self.place(version) else {
            return true;
        };
        let mut engine = place.engine.write();
        let is_idle = place.handles.load(Ordering::Acquire) == 0;
        if is_idle {
            *engine = None;
        }
        is_idle
    }

    /// Versions with an engine, least recently used first.
    pub fn by_use(&self) -> Vec<Version> {
        let places: Vec<(Version, Arc<Place>)> = {
            let places = self.places.read();
            let places = places.iter();
            places
                .map(|(version, place)| (*version, place.clone()))
                .collect()
        };
        let mut open: Vec<(u64, Version)> = places
            .into_iter()
            .filter(|(_, place)| place.engine.read().is_some())
            .map(|(version, place)| (place.used.load(Ordering::Relaxed), version))
            .collect();
        open.sort_unstable();
        open.into_iter().map(|(_, version)| version).collect()
    }

    fn place(&self, version: Version) -> Option<Arc<Place>> {
        self.places.read().get(&version).cloned()
    }

    fn now(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }
}
