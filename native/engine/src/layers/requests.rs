//! Requests that must not be applied twice. A server that was killed may have applied one without
//! having answered it; the kernel sends it again to the next server, which answers from here.
//!
//! The record with a request's effects has its number, too (`Effect::Done`): both are in the
//! journal, or neither. Only what succeeded is noted: a refused request has changed nothing. Where a
//! log may go before its requests were answered (freeze, checkpoint), their numbers are written into
//! the next one (`nameless::carry_over`).
//!
//! Numbers count for one connection with the kernel; those of another one mean nothing.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use cowfs_base::sync::Mutex;
use cowfs_base::{Attr, Ino};
use hashbrown::HashMap;

use crate::effect::Effect;
use crate::engine::Engine;
use crate::error::Result;
use crate::namespace::referenced;

thread_local! {
    /// The request that this thread works on; 0: none of those noted here.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
    /// What its answer has to say, if that is not an inode.
    static RESULT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Requests that were applied.
#[derive(Default)]
pub(crate) struct Requests {
    /// 0: none are noted.
    connection: AtomicU64,
    done: Mutex<Done>,
}

/// Results by number.
#[derive(Default)]
struct Done {
    /// By this server, and not answered yet; or asked for again.
    here: HashMap<u64, u64>,
    /// By earlier ones.
    earlier: HashMap<u64, u64>,
}

impl Requests {
    /// The effect that notes the current request, which has these.
    pub fn note(&self, effects: &[Effect<'_>]) -> Option<Effect<'static>> {
        let connection = self.connection();
        let unique = CURRENT.get();
        (connection != 0 && unique != 0).then(|| Effect::Done {
            connection,
            unique,
            result: RESULT.get().unwrap_or_else(|| made(effects)),
        })
    }

    /// 0: none are noted.
    pub fn connection(&self) -> u64 {
        self.connection.load(Ordering::Relaxed)
    }

    pub fn add(&self, connection: u64, unique: u64, result: u64) {
        if connection != 0 && connection == self.connection() {
            let mut done = self.done.lock();
            match CURRENT.get() == unique {
                true => done.here.insert(unique, result),
                false => done.earlier.insert(unique, result),
            };
        }
    }

    /// What the next log has to say.
    pub fn unanswered(&self) -> Vec<Effect<'static>> {
        let connection = self.connection();
        let done = self.done.lock();
        let effect = |(unique, result): (&u64, &u64)| Effect::Done {
            connection,
            unique: *unique,
            result: *result,
        };
        done.here.iter().chain(&done.earlier).map(effect).collect()
    }
}

/// The inode of the entry that was made; 0: none was.
fn made(effects: &[Effect<'_>]) -> u64 {
    let entry = effects.iter().rev().find_map(|effect| match effect {
        Effect::PutEntry { ino, .. } => Some(*ino),
        _ => None,
    });
    entry.unwrap_or(0)
}

/// So many bytes are the result of the current request.
pub(crate) fn set_result(bytes: u64) {
    RESULT.set(Some(bytes));
}

impl Engine {
    /// From now on requests of this connection are noted, and those of earlier servers are known
    /// after `replay`. So are files without a name (`nameless`). connection: random, not 0.
    pub fn note_requests(&self, connection: u64) {
        self.requests
            .connection
            .store(connection, Ordering::Relaxed);
    }

    /// Makes a call that changes something for the request with this number.
    pub fn for_request<T>(&self, unique: u64, call: impl FnOnce() -> T) -> T {
        struct Reset;
        impl Drop for Reset {
            fn drop(&mut self) {
                CURRENT.set(0);
                RESULT.set(None);
            }
        }
        CURRENT.set(unique);
        let _reset = Reset;
        call()
    }

    /// The result of a request that an earlier server applied: the inode of the entry it made, or
    /// the bytes it copied; 0 otherwise. None: it was not applied.
    pub fn result_of_request(&self, unique: u64) -> Option<u64> {
        let mut done = self.requests.done.lock();
        if let Some(result) = done.earlier.remove(&unique) {
            done.here.insert(unique, result);
        }
        done.here.get(&unique).copied()
    }

    /// The kernel sends no request again any more: what earlier servers did, and was not asked for,
    /// is forgotten.
    pub fn forget_earlier_requests(&self) {
        self.requests.done.lock().earlier = HashMap::new();
    }

    /// The kernel has the answer, or wants none.
    pub fn request_is_answered(&self, unique: u64) {
        if self.requests.connection() != 0 {
            self.requests.done.lock().here.remove(&unique);
        }
    }

    /// The attributes of an inode, which is referred to once more: for an entry that was made.
    pub fn refer(&self, ino: Ino) -> Result<Attr> {
        Ok(referenced(self.read()?.inode(ino)?))
    }
}
