//! Looking for the next request instead of sleeping until it wakes us, while requests follow each other closely.
//!
//! Waking a sleeping thread takes 2 µs to 30 µs (a processor that has halted, in a virtual machine), a request 5 to 10 µs. So from
//! the `STREAK`th request in quick succession on, a thread looks for the next one, at most `POLL_NS` long, before it sleeps.
//!
//! **Who looks has the device to itself**: the kernel would wake a thread that sleeps there for each request, though another is
//! looking. So the others are called away (by a signal that makes their read return) and wait until nobody looks any more: no request
//! came, a large one did, the thread is at one for `BUSY_NS`, or requests pile up (`BACKLOG`).
//!
//! Nobody looks where no processor is idle: when as many callers as there are processors had a part in the last `RECENT` requests,
//! and for `HOLD_OFF_NS` after somebody was pushed off its processor while looking.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cowfs_base::monotonic_ns;
use parking_lot::{Condvar, Mutex};

use crate::lane::wake_signal;

/// A caller that thinks longer between two requests is not slowed much by a wake-up.
const POLL_NS: u64 = 50_000;
/// Requests this close to each other, wake-ups included, are in quick succession.
const NEAR_NS: u64 = 200_000;
const STREAK: u32 = 4;
/// A look takes less than 1 µs, an interrupt some 20 µs; a turn of other work is longer.
const PUSHED_NS: u64 = 100_000;
const HOLD_OFF_NS: u64 = 5_000_000;
const BUSY_NS: u64 = 1_000_000;
const RECENT: usize = 8;
const BACKLOG: u32 = 8;

pub(crate) struct Polling {
    /// 0: nobody ever looks.
    callers_max: usize,
    flow: Mutex<Flow>,
    left: Condvar,
    /// When the thread that has the device to itself began to answer a request; 0: it does not.
    busy_since_ns: AtomicU64,
}

#[derive(Default)]
struct Flow {
    /// The threads of the device.
    threads: Vec<libc::pthread_t>,
    /// Who has the device to itself.
    alone: Option<libc::pthread_t>,
    /// How many requests came in quick succession.
    streak: u32,
    last_ns: u64,
    hold_off_until_ns: u64,
    /// Behind how many in a row others waited.
    backlog: u32,
    /// Who asked: pids, 0 for nobody.
    callers: [u32; RECENT],
    next: usize,
}

/// One thread's part in it.
pub(crate) struct Poller<'a> {
    polling: &'a Polling,
    thread: libc::pthread_t,
}

impl Polling {
    /// For a machine of that many processors; on one nobody looks.
    pub fn new(is_on: bool, processors: usize) -> Polling {
        Polling {
            callers_max: if is_on { processors - 1 } else { 0 },
            flow: Mutex::default(),
            left: Condvar::new(),
            busy_since_ns: AtomicU64::new(0),
        }
    }

    /// The calling thread's.
    pub fn poller(&self) -> Poller<'_> {
        // SAFETY: it cannot fail and touches nothing.
        let thread = unsafe { libc::pthread_self() };
        self.flow.lock().threads.push(thread);
        Poller {
            polling: self,
            thread,
        }
    }

    fn is_stuck(&self) -> bool {
        let since_ns = self.busy_since_ns.load(Ordering::Relaxed);
        since_ns != 0 && monotonic_ns().saturating_sub(since_ns) > BUSY_NS
    }

    fn leave(&self, flow: &mut Flow) {
        flow.alone = None;
        self.left.notify_all();
    }
}

impl Flow {
    fn note(&mut self, now_ns: u64, caller: u32) {
        let is_near = now_ns.saturating_sub(self.last_ns) <= NEAR_NS;
        self.streak = if is_near { self.streak + 1 } else { 0 };
        self.last_ns = now_ns;
        if caller != 0 {
            self.callers[self.next] = caller;
            self.next = (self.next + 1) % RECENT;
        }
    }

    /// How many processes and threads asked lately.
    fn callers(&self) -> usize {
        let is_first = |at: &usize| !self.callers[..*at].contains(&self.callers[*at]);
        (0..RECENT).filter(is_first).count()
    }
}

impl Poller<'_> {
    /// Returns when a request is there, or sleeping at the device until there is one is best.
    pub fn wait(&mut self, is_ready: impl Fn() -> bool) {
        let polling = self.polling;
        if polling.callers_max == 0 {
            return;
        }
        let mut flow = polling.flow.lock();
        while flow.alone.is_some_and(|thread| thread != self.thread) && !polling.is_stuck() {
            let timeout = Duration::from_nanos(2 * BUSY_NS);
            polling.left.wait_for(&mut flow, timeout);
        }
        let now_ns = monotonic_ns();
        let flows = flow.streak >= STREAK
            && flow.callers() <= polling.callers_max
            && now_ns >= flow.hold_off_until_ns;
        if flows && flow.alone.is_none() {
            flow.alone = Some(self.thread);
            self.call_others_away(&flow);
        }
        if flow.alone != Some(self.thread) {
            return;
        }
        polling.busy_since_ns.store(0, Ordering::Relaxed);
        if !flows {
            return polling.leave(&mut flow);
        }
        drop(flow);
        if let Some(hold_off_ns) = look(is_ready, now_ns) {
            let mut flow = polling.flow.lock();
            flow.streak = 0;
            flow.hold_off_until_ns = now_ns + hold_off_ns;
            polling.leave(&mut flow);
        }
    }

    /// A request has come and is about to be answered.
    pub fn begin(&mut self, caller: u32, is_large: bool, is_ready: impl Fn() -> bool) {
        let polling = self.polling;
        if polling.callers_max == 0 {
            return;
        }
        let now_ns = monotonic_ns();
        let mut flow = polling.flow.lock();
        flow.note(now_ns, caller);
        if is_large {
            flow.streak = 0;
        }
        if flow.alone != Some(self.thread) {
            return;
        }
        flow.backlog = if is_ready() { flow.backlog + 1 } else { 0 };
        if flow.backlog >= BACKLOG {
            flow.backlog = 0;
            flow.hold_off_until_ns = now_ns + HOLD_OFF_NS;
        } else if flow.streak > 0 {
            polling.busy_since_ns.store(now_ns, Ordering::Relaxed);
            return;
        }
        polling.leave(&mut flow);
    }

    fn call_others_away(&self, flow: &Flow) {
        for thread in flow.threads.iter().filter(|it| **it != self.thread) {
            // SAFETY: a thread takes itself off the list, under the lock that is held, before it ends; the handler does nothing.
            unsafe { libc::pthread_kill(*thread, wake_signal()) };
        }
    }
}

impl Drop for Poller<'_> {
    fn drop(&mut self) {
        let mut flow = self.polling.flow.lock();
        flow.threads.retain(|thread| *thread != self.thread);
        if flow.alone == Some(self.thread) {
            self.polling.leave(&mut flow);
        }
    }
}

/// None: a request came in time. Else for how long nobody should look.
fn look(is_ready: impl Fn() -> bool, start_ns: u64) -> Option<u64> {
    let mut last_ns = start_ns;
    while !is_ready() {
        let now_ns = monotonic_ns();
        if now_ns - last_ns > PUSHED_NS {
            return Some(HOLD_OFF_NS);
        }
        if now_ns - start_ns > POLL_NS {
            return Some(0);
        }
        last_ns = now_ns;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::lane::ignore_wake_signal;

    /// Requests until this thread has the device to itself; somebody else's work may come between two of them.
    fn flow(poller: &mut Poller<'_>) {
        ignore_wake_signal().unwrap();
        while !is_alone(poller) {
            for _ in 0..RECENT {
                poller.begin(1, false, || false);
            }
            poller.wait(|| true);
        }
    }

    fn is_alone(poller: &Poller<'_>) -> bool {
        poller.polling.flow.lock().alone == Some(poller.thread)
    }

    #[test]
    fn requests_in_quick_succession_are_looked_for_until_none_comes() {
        let polling = Polling::new(true, 2);
        let mut poller = polling.poller();
        let looks = AtomicU32::new(0);
        poller.wait(|| looks.fetch_add(1, Ordering::Relaxed) > 0);
        assert_eq!(looks.into_inner(), 0, "nothing has come yet");
        flow(&mut poller);
        poller.wait(|| false);
        assert!(!is_alone(&poller));
    }

    #[test]
    fn others_wait_until_a_large_request_comes() {
        let polling = Polling::new(true, 2);
        let mut poller = polling.poller();
        flow(&mut poller);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                polling
                    .poller()
                    .wait(|| unreachable!("one looks at a time"))
            });
            std::thread::sleep(Duration::from_millis(5));
            assert!(!other.is_finished());
            poller.begin(1, true, || false);
            other.join().unwrap();
        });
        assert!(!is_alone(&poller));
    }

    #[test]
    fn others_come_back_when_a_request_takes_long_or_its_thread_ends() {
        let polling = Polling::new(true, 2);
        let mut poller = polling.poller();
        flow(&mut poller);
        std::thread::scope(|scope| {
            poller.begin(1, false, || false);
            let other = scope.spawn(|| {
                polling
                    .poller()
                    .wait(|| unreachable!("one looks at a time"))
            });
            other.join().unwrap();
        });
        assert!(is_alone(&poller));
        drop(poller);
        assert!(polling.flow.lock().alone.is_none());
        assert!(polling.flow.lock().threads.is_empty());
    }

    #[test]
    fn requests_that_pile_up_bring_the_others_back() {
        let polling = Polling::new(true, 2);
        let mut poller = polling.poller();
        flow(&mut poller);
        for _ in 0..BACKLOG {
            assert!(is_alone(&poller));
            poller.begin(1, false, || true);
        }
        assert!(!is_alone(&poller));
    }

    #[test]
    fn nobody_looks_where_no_processor_is_idle() {
        for (processors, callers) in [(1, 1), (2, 2), (4, 4)] {
            let polling = Polling::new(true, processors);
            let mut poller = polling.poller();
            for number in 0..1000 {
                poller.begin(1 + number % callers, false, || false);
                poller.wait(|| unreachable!("nobody is to look"));
            }
        }
    }
}
