//! Lets maintenance threads sleep while nothing changes.
//!
//! Eviction and checkpoints have work only after a change. Their threads call `Engine::watch`,
//! look, and then wait in `Engine::wait_changed` with the result of `watch`. The wait returns once
//! anything was changed or loaded since that `watch`, even before the wait began. So an idle mount
//! wakes no thread.
//!
//! A change costs one load while no thread watches. The first change after a `watch` takes a lock
//! and wakes all waiting threads. It does so under the state's lock, and holds no other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cowfs_base::sync::{Condvar, Mutex};

use crate::engine::Engine;

#[derive(Default)]
pub(crate) struct Activity {
    /// A thread waits for the next change.
    is_watched: AtomicBool,
    seen: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Default)]
struct Seen {
    /// The number of changes noted. Changes while no thread watched are not counted.
    changes: u64,
    has_ended: bool,
}

impl Activity {
    fn watch(&self) -> u64 {
        let seen = self.seen.lock();
        self.is_watched.store(true, Ordering::Relaxed);
        seen.changes
    }

    /// Called under the state's lock. So a thread that looks at the state after `watch` either sees
    /// the change, or the change sees the mark.
    pub fn note(&self) {
        if self.is_watched.load(Ordering::Relaxed) {
            let mut seen = self.seen.lock();
            self.is_watched.store(false, Ordering::Relaxed);
            seen.changes += 1;
            self.changed.notify_all();
        }
    }

    /// Notes a change outside the state's lock, such as a failed sync.
    pub fn note_apart(&self) {
        self.seen.lock().changes += 1;
        self.changed.notify_all();
    }

    fn wait_changed(&self, since: u64, timeout: Duration) {
        let end = Instant::now() + timeout;
        let mut seen = self.seen.lock();
        while seen.changes == since && !seen.has_ended {
            if self.changed.wait_until(&mut seen, end).timed_out() {
                return;
            }
        }
    }

    fn end(&self) {
        self.seen.lock().has_ended = true;
        self.changed.notify_all();
    }
}

impl Engine {
    /// Begins to watch for changes; for `wait_changed`.
    pub fn watch(&self) -> u64 {
        self.activity.watch()
    }

    /// Waits until something was changed or loaded since the `watch` that gave `since`, `end_waits`
    /// was called, or the time is over.
    pub fn wait_changed(&self, since: u64, timeout: Duration) {
        self.activity.wait_changed(since, timeout);
    }

    /// The mount ends: `wait_changed` and `reclaim_when_due` return now.
    pub fn end_waits(&self) {
        self.activity.end();
        if let Ok(disk) = self.disk() {
            disk.reclaim.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_change_between_watch_and_wait_is_not_missed() {
        let activity = Activity::default();
        let since = activity.watch();
        activity.note();
        activity.wait_changed(since, LONG);
    }

    #[test]
    fn each_watcher_hears_of_a_change_whoever_watched_last() {
        let activity = Activity::default();
        let first = activity.watch();
        activity.note();
        let second = activity.watch();
        assert_ne!(first, second);
        activity.wait_changed(first, LONG);
        activity.note();
        activity.wait_changed(second, LONG);
    }

    #[test]
    fn what_is_not_under_the_lock_is_heard_of_by_whoever_watched_last() {
        let activity = Activity::default();
        let since = activity.watch();
        activity.note();
        let later = activity.watch();
        activity.note_apart();
        activity.wait_changed(since, LONG);
        activity.wait_changed(later, LONG);
    }

    #[test]
    fn a_change_wakes_who_waits() {
        let activity = Activity::default();
        let since = activity.watch();
        std::thread::scope(|threads| {
            let waiter = threads.spawn(|| activity.wait_changed(since, LONG));
            while !waiter.is_finished() {
                activity.note();
                std::thread::yield_now();
            }
        });
    }

    #[test]
    fn the_end_wakes_who_waits_and_nobody_waits_behind_it() {
        let activity = Activity::default();
        let since = activity.watch();
        std::thread::scope(|threads| {
            threads.spawn(|| activity.wait_changed(since, LONG));
            activity.end();
        });
        activity.wait_changed(activity.watch(), LONG);
    }

    #[test]
    fn without_a_change_the_time_ends_the_wait() {
        let activity = Activity::default();
        let since = activity.watch();
        activity.wait_changed(since, Duration::from_millis(1));
        assert_eq!(activity.watch(), since);
    }
}
