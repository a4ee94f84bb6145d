//! Threads for calls that wait for the disk: as many as have something to wait for, so that fsyncs share a group commit.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

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

/// Runs tasks in the order they came, side by side. Threads end when it is dropped, after the tasks that are queued.
#[derive(Default)]
pub(crate) struct Syncing(Arc<Shared>);

impl Syncing {
    pub fn run(&self, task: impl FnOnce() + Send + 'static) {
        let mut state = self.0.state.lock();
        state.tasks.push_back(Box::new(task));
        if state.idle < state.tasks.len() && state.threads < THREADS_MAX {
            state.threads += 1;
            let shared = self.0.clone();
            let started = std::thread::Builder::new()
                .name("lane-sync".into())
                .spawn(move || work(&shared));
            if started.is_err() {
                state.threads -= 1;
                if state.threads == 0 {
                    // No thread to be had: whoever asks waits instead.
                    let tasks = std::mem::take(&mut state.tasks);
                    drop(state);
                    tasks.into_iter().for_each(|task| task());
                    return;
                }
            }
        }
        drop(state);
        self.0.changed.notify_one();
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
            task();
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
