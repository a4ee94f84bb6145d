//! The moment in an operation when it holds no lock, between what it has looked at and what it does about it.
//!
//! A copy, a first name of a file, reads and passes over staging work in two halves. What others do in between is what such code
//! gets wrong, and threads meet there too seldom. Tests put an operation of their own in that place (`Engine::set_interlude`);
//! in earnest nothing is there.

use std::sync::OnceLock;

use crate::engine::Engine;

type Hook = Box<dyn Fn(&Engine) + Send + Sync>;

/// What happens in between: nothing, but in tests.
#[derive(Default)]
pub(crate) struct Interlude(OnceLock<Hook>);

impl Engine {
    /// For tests: `hook` is called, without a lock held, between the halves of each operation that has two. Only the first call counts.
    pub fn set_interlude(&self, hook: impl Fn(&Engine) + Send + Sync + 'static) {
        let _ = self.interlude.0.set(Box::new(hook));
    }

    pub(crate) fn play_interlude(&self) {
        if let Some(hook) = self.interlude.0.get() {
            hook(self);
        }
    }
}
