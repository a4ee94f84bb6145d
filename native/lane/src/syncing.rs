//! Threads for calls that wait for the disk. Each waiting call has one, up to a bound, so that
//! fsyncs share a group commit.
//!
//! `start` starts the first thread, so that every task finds one even if no other can be started.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cowfs_base::sync::{Condvar, Mutex};

const THREADS_MAX: usize = 32;

type Task = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    tasks: VecDeque<Task>,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// Runs tasks in the order they came, side by side. Threads end when it is dropped, after the tasks
/// that are queued.
#[derive(Default)]
pub(crate) struct Syncing(Arc<Shared>);

impl Syncing {
    /// Starts the first thread. Before `run`.
    pub fn start(&self) -> io::Result<()> {
        self.add_thread(&mut self.0.state.lock())
    }

    pub fn run(&self, task: impl FnOnce() + Send + 'static) {
        let mut state = self.0.state.lock();
        state.tasks.push_back(Box::new(task));
        if state.idle < state.tasks.len() && state.threads < THREADS_MAX {
            // If this fails, the existing threads take longer.
            let _ = self.add_thread(&mut state);
        }
        drop(state);
        self.0.changed.notify_one();
    }

    fn add_thread(&self, state: &mut State) -> io::Result<()> {
        let shared = self.0.clone();
        std::thread::Builder::new()
            .name("lane-sync".into())
            .spawn(move || work(&shared))?;
        state.threads += 1;
        Ok(())
    }
}

impl Drop for Syncing {
    fn drop(&mut self) {
        self.0.state.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

fn work(shared: &Shared) {
    let mut state = shared.state.lock();
    loop {
        if let Some(task) = state.tasks.pop_front() {
            drop(state);
            // A panic ends one task, not the thread.
            let _ = catch_unwind(AssertUnwindSafe(task));
            state = shared.state.lock();
        } else if state.is_closed {
            return;
        } else {
            state.idle += 1;
            shared.changed.wait(&mut state);
            state.idle -= 1;
        }
    }
}
