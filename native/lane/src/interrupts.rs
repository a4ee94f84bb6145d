//! Interrupted callers: requests whose callers got a signal while they wait.
//!
//! The kernel tells of a signal once (INTERRUPT). A request is not given up for it, unless the
//! caller is about to die: programs do not expect EINTR from `stat`. So each such request is looked
//! at every `LOOK_EVERY`, on one thread, until it is answered. A request that is not found waiting
//! is looked for again, since a device thread may just be about to park it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use cowfs_base::sync::{Condvar, Mutex};

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// So often a request may not be found.
const LOOKS_MAX: u32 = 10;

#[derive(Default)]
pub(crate) struct Interrupts {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// For each request, how many looks in a row have not found it.
    watched: HashMap<u64, u32>,
    is_closed: bool,
}

impl Interrupts {
    pub fn watch(&self, unique: u64) {
        self.state.lock().watched.insert(unique, 0);
        self.changed.notify_one();
    }

    pub fn unwatch(&self, unique: u64) {
        self.state.lock().watched.remove(&unique);
    }

    /// It was found.
    pub fn keep_watching(&self, unique: u64) {
        if let Some(looks) = self.state.lock().watched.get_mut(&unique) {
            *looks = 0;
        }
    }

    /// Waits until it is time to look, and returns the requests to check; None once closed.
    pub fn next(&self) -> Option<Vec<u64>> {
        let mut state = self.state.lock();
        while state.watched.is_empty() && !state.is_closed {
            self.changed.wait(&mut state);
        }
        let look_at = Instant::now() + LOOK_EVERY;
        while !state.is_closed && !self.changed.wait_until(&mut state, look_at).timed_out() {}
        if state.is_closed {
            return None;
        }
        state.watched.retain(|_, looks| {
            *looks += 1;
            *looks <= LOOKS_MAX
        });
        Some(state.watched.keys().copied().collect())
    }

    /// Stops watching callers.
    pub fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_is_found_is_looked_at_again_and_one_that_is_not_is_dropped() {
        let interrupts = Interrupts::default();
        interrupts.watch(2);
        interrupts.watch(4);
        for _ in 0..LOOKS_MAX {
            let mut watched = interrupts.next().expect("not closed");
            watched.sort_unstable();
            assert_eq!(watched, [2, 4]);
            interrupts.keep_watching(4);
        }
        assert_eq!(interrupts.next(), Some(vec![4]));
        interrupts.unwatch(4);
        interrupts.close();
        assert_eq!(interrupts.next(), None);
    }

    /// A steady flow of new interrupts does not delay looking after the watched callers.
    #[test]
    fn callers_are_looked_after_while_others_are_interrupted() {
        let interrupts = Interrupts::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut unique = 2;
                while !interrupts.state.lock().is_closed {
                    interrupts.watch(unique);
                    unique += 2;
                }
            });
            assert!(
                interrupts
                    .next()
                    .is_some_and(|watched| watched.contains(&2))
            );
            interrupts.close();
        });
    }
}
