//! Requests that wait for something to be made resident, or for space; and the queue of their
//! needs.
//!
//! A request is parked before its need is queued. `take` hands it to one caller only: the thread
//! that has loaded the missing data, or the one that releases the request's caller. So only one
//! reply is written.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use cowfs_base::sync::{Condvar, Mutex};
use cowfs_fuse_abi::Header;
use cowfs_mounted::Missing;

/// The need of a parked request.
#[derive(Debug, Clone)]
pub enum Need {
    /// Rows or chunks of the base version, or of another version being viewed.
    Resident(Missing),
    /// Local disk space.
    Space,
    /// A reclaim pass (`Engine::reclaim_overdue`): more was overwritten than staging is to hold.
    Room,
}

impl Need {
    /// In a word.
    pub fn name(&self) -> &'static str {
        match self {
            Need::Resident(missing) => missing.name(),
            Need::Space => "space",
            Need::Room => "room",
        }
    }
}

/// A request that is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// The request's number.
    pub unique: u64,
    /// The name of its need (`Need::name`).
    pub need: &'static str,
    /// For how long.
    pub age: Duration,
    /// The need is still in the queue.
    pub is_queued: bool,
}

/// One entry of the queue: `unique` names the parked request to `Lane::resume` and `Lane::fail`.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The request's number.
    pub unique: u64,
    /// The reason for the wait.
    pub need: Need,
}

/// A request as it came, and how often it has been tried.
#[derive(Debug)]
pub(crate) struct Parked {
    pub message: Vec<u8>,
    pub tries: Tries,
}

struct Place {
    parked: Parked,
    need: &'static str,
    since: Instant,
}

/// The attempts made for a request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tries {
    pub loads: u32,
    pub asked_for_space: bool,
    pub asked_for_room: bool,
}

#[derive(Default)]
pub(crate) struct Park {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    parked: HashMap<u64, Place>,
    wanted: VecDeque<Wanted>,
    is_closed: bool,
}

impl Park {
    /// Parks a request. Returns false, and does nothing, if the park is closed.
    pub fn park(&self, unique: u64, parked: Parked, need: Need) -> bool {
        let mut state = self.state.lock();
        if state.is_closed {
            return false;
        }
        let place = Place {
            parked,
            need: need.name(),
            since: Instant::now(),
        };
        state.parked.insert(unique, place);
        state.wanted.push_back(Wanted { unique, need });
        drop(state);
        self.changed.notify_one();
        true
    }

    /// Waits for the next need; None once the park is closed.
    pub fn next(&self) -> Option<Wanted> {
        let mut state = self.state.lock();
        while state.wanted.is_empty() && !state.is_closed {
            self.changed.wait(&mut state);
        }
        if state.is_closed {
            return None;
        }
        state.wanted.pop_front()
    }

    /// Removes and returns a parked request; None if another thread has taken it.
    pub fn take(&self, unique: u64) -> Option<Parked> {
        let place = self.state.lock().parked.remove(&unique)?;
        Some(place.parked)
    }

    /// The thread that waits for a parked request.
    pub fn caller(&self, unique: u64) -> Option<u32> {
        let state = self.state.lock();
        Header::parse(&state.parked.get(&unique)?.parked.message).map(|(header, _)| header.pid)
    }

    /// Everything that is parked.
    pub fn waiting(&self) -> Vec<Waiting> {
        let state = self.state.lock();
        let queued: HashSet<u64> = state.wanted.iter().map(|wanted| wanted.unique).collect();
        let places = state.parked.iter();
        places
            .map(|(unique, place)| Waiting {
                unique: *unique,
                need: place.need,
                age: place.since.elapsed(),
                is_queued: queued.contains(unique),
            })
            .collect()
    }

    pub fn is_empty(&self) -> bool {
        self.state.lock().parked.is_empty()
    }

    /// Parks no more requests; returns those that were parked.
    pub fn close(&self) -> Vec<(u64, Parked)> {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.wanted.clear();
        let places = state.parked.drain();
        let parked = places
            .map(|(unique, place)| (unique, place.parked))
            .collect();
        drop(state);
        self.changed.notify_all();
        parked
    }
}
