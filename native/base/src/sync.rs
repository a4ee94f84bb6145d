//! Locks that keep their whole state in themselves.
//!
//! A user's process may fork while its other threads are at work, and use volumes in the child.
//! `parking_lot` keeps waiting threads in one table for the whole process. In the child that table
//! lists threads that do not exist, and a new engine hung or crashed. The locks here are the
//! standard library's (futexes), so a lock made in the child knows nothing of the parent.
//!
//! A panic does not poison a lock. The owner must notice a half-finished change.

use std::ops::{Deref, DerefMut};
use std::sync::{self, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// A lock for one.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

/// Locked until it is dropped. None only while `Condvar` waits.
#[derive(Debug)]
pub struct MutexGuard<'a, T: ?Sized>(Option<sync::MutexGuard<'a, T>>);

impl<T> Mutex<T> {
    /// Unlocked.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(sync::Mutex::new(value))
    }

    /// Unwraps the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until the lock is free.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// None if the lock is held.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(MutexGuard(Some(guard))),
            Err(TryLockError::Poisoned(error)) => Some(MutexGuard(Some(error.into_inner()))),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Needs no lock: the exclusive borrow proves that the mutex is not shared.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("is locked")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("is locked")
    }
}

/// A condition variable for use with `Mutex`.
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// A condition variable without waiters.
    pub const fn new() -> Condvar {
        Condvar(sync::Condvar::new())
    }

    /// Unlocks, waits, and locks again. It may end for no reason.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let locked = guard.0.take().expect("is locked");
        guard.0 = Some(self.0.wait(locked).unwrap_or_else(PoisonError::into_inner));
    }

    /// As `wait`, for at most this long.
    pub fn wait_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Duration,
    ) -> sync::WaitTimeoutResult {
        let locked = guard.0.take().expect("is locked");
        let waited = self.0.wait_timeout(locked, timeout);
        let (locked, result) = waited.unwrap_or_else(PoisonError::into_inner);
        guard.0 = Some(locked);
        result
    }

    /// As `wait`, until this time at most.
    pub fn wait_until<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        end: Instant,
    ) -> sync::WaitTimeoutResult {
        self.wait_for(guard, end.saturating_duration_since(Instant::now()))
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A lock for one writer or any number of readers.
#[derive(Debug, Default)]
pub struct RwLock<T> {
    lock: sync::RwLock<T>,
    /// Held by the current writer, or by a reader that is going to upgrade.
    turn: Mutex<()>,
}

/// Shared with other readers.
pub type RwLockReadGuard<'a, T> = sync::RwLockReadGuard<'a, T>;

/// Locked for this one alone until it is dropped.
#[derive(Debug)]
pub struct RwLockWriteGuard<'a, T> {
    // Dropped first.
    locked: sync::RwLockWriteGuard<'a, T>,
    _turn: MutexGuard<'a, ()>,
}

/// Shared with readers; excludes every other writer and upgradable reader.
#[derive(Debug)]
pub struct RwLockUpgradableReadGuard<'a, T> {
    lock: &'a sync::RwLock<T>,
    read: sync::RwLockReadGuard<'a, T>,
    turn: MutexGuard<'a, ()>,
}

impl<T> RwLock<T> {
    /// Unlocked.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock {
            lock: sync::RwLock::new(value),
            turn: Mutex::new(()),
        }
    }

    /// Waits until no thread holds the write lock.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.lock.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no other thread holds the lock.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let turn = self.turn.lock();
        RwLockWriteGuard {
            locked: self.lock.write().unwrap_or_else(PoisonError::into_inner),
            _turn: turn,
        }
    }

    /// As `read`, for a thread that is going to write.
    pub fn upgradable_read(&self) -> RwLockUpgradableReadGuard<'_, T> {
        let turn = self.turn.lock();
        RwLockUpgradableReadGuard {
            lock: &self.lock,
            read: self.read(),
            turn,
        }
    }
}

impl<'a, T> RwLockUpgradableReadGuard<'a, T> {
    /// Waits until the other readers have finished. No other writer runs in between.
    pub fn upgrade(guard: RwLockUpgradableReadGuard<'a, T>) -> RwLockWriteGuard<'a, T> {
        drop(guard.read);
        RwLockWriteGuard {
            locked: guard.lock.write().unwrap_or_else(PoisonError::into_inner),
            _turn: guard.turn,
        }
    }
}

impl<T> Deref for RwLockUpgradableReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.read
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.locked
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.locked
    }
}
