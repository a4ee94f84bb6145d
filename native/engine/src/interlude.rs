//! A hook for tests between the two halves of an operation, where it holds no lock.
//!
//! A copy, the first name of a file, a read, and a pass over staging each look at the state,
//! release the lock, and act later. Errors in such code show when another operation runs in
//! between, which threads hit too seldom. Tests put an operation of their own there
//! (`Engine::set_interlude`). In production the hook is empty.

use std::sync::OnceLock;

use crate::engine::Engine;

type Hook = Box<dyn Fn(&Engine) + Send + Sync>;

/// A hook between the halves of an operation; only tests use it.
#[derive(Default)]
pub(crate) struct Interlude(OnceLock<Hook>);

impl Engine {
    /// For tests: `hook` is called, without a lock held, between the halves of each operation that
    /// has two. Only the first call counts.
    pub fn set_interlude(&self, hook: impl Fn(&Engine) + Send + Sync + 'static) {
        let _ = self.interlude.0.set(Box::new(hook));
    }

    pub(crate) fn play_interlude(&self) {
        if let Some(hook) = self.interlude.0.get() {
            hook(self);
        }
    }
}
