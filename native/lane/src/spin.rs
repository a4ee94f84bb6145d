//! Spinning on one of two CPUs while a single caller sends small requests.
//!
//! Waking a thread takes 2 µs on the same CPU, and 25 µs or more on a CPU that has halted, in a
//! virtual machine. A request itself takes 5 to 10 µs. The scheduler puts a woken thread on an
//! idle CPU if there is one. So with one caller and two CPUs, each request wakes both of them, one
//! after the other. While requests follow each other closely, an idle thread therefore spins on
//! one CPU. The caller and the answering thread take turns on the other.
//!
//! **Only where it pays.** The gap between `TRIAL` replies is measured without spinning, then with
//! it. Spinning goes on while it makes the gap at least an eighth shorter, for `PERIOD_NS` at most
//! before the next comparison. If it does not pay, nothing is tried for a while, each time for
//! longer. So it ends where waking is cheap, and where other work needs the CPU.
//!
//! It ends at once when no reply was made for `KEEP_NS`, or when two callers take turns. Nothing
//! is tried on machines of more than two CPUs: another one would be idle anyway.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cowfs_base::monotonic_ns;
use cowfs_base::sync::Mutex;

use crate::cpus::{allowed_cpus, bind, this_processor, this_thread};

/// A caller that thinks longer between two requests is not slowed much by a wake-up.
const KEEP_NS: u64 = 50_000;
/// Replies this close to each other, wake-ups included, are in quick succession.
const NEAR_NS: u64 = 200_000;
const TRIAL: u64 = 32;
const PERIOD_NS: u64 = 250_000_000;
const REST_MIN_NS: u64 = 5_000_000;
const REST_MAX_NS: u64 = 1_000_000_000;
/// Spinning pays if it reduces the gap between replies to at most this part.
const WORTH: (u64, u64) = (7, 8);
/// Looks at the clock are that many pauses apart: 2 µs.
const PAUSES: usize = 64;

pub(crate) struct Spin {
    /// The two processors; None if spinning is never tried.
    processors: Option<[usize; 2]>,
    replied_ns: AtomicU64,
    /// Whether a thread should spin on its processor.
    is_kept: AtomicBool,
    flow: Mutex<Flow>,
    /// Threads of the device.
    entered: Mutex<Vec<libc::pid_t>>,
}

/// Replies in quick succession to one caller.
#[derive(Default)]
struct Flow {
    caller: u32,
    last_ns: u64,
    /// Replies since `start_ns`, all with or all without spinning.
    count: u64,
    start_ns: u64,
    gap_without_ns: u64,
    resting_until_ns: u64,
    /// How long the last rest was; 0: it paid since.
    rest_ns: u64,
}

/// A thread of the device.
pub(crate) struct DeviceThread<'a> {
    spin: &'a Spin,
    thread: libc::pid_t,
}

impl Spin {
    pub fn new(is_on: bool) -> Spin {
        let processors = allowed_cpus().ok().and_then(|it| it.try_into().ok());
        Spin {
            processors: processors.filter(|_| is_on),
            replied_ns: AtomicU64::new(0),
            is_kept: AtomicBool::new(false),
            flow: Mutex::default(),
            entered: Mutex::default(),
        }
    }

    /// The calling thread answers requests of the device until what this returns is dropped.
    pub fn enter(&self) -> DeviceThread<'_> {
        let thread = this_thread();
        self.entered.lock().push(thread);
        DeviceThread { spin: self, thread }
    }

    /// A reply is made; whether a thread that is not needed is to `keep` its processor busy from
    /// now on.
    pub fn reply(&self, caller: u32, is_large: bool) -> bool {
        self.is_on() && self.note(monotonic_ns(), caller, is_large)
    }

    pub fn is_on(&self) -> bool {
        self.processors.is_some()
    }

    fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::Relaxed)
    }

    fn note(&self, now_ns: u64, caller: u32, is_large: bool) -> bool {
        self.replied_ns.store(now_ns, Ordering::Relaxed);
        let mut flow = self.flow.lock();
        let is_near = now_ns.saturating_sub(flow.last_ns) <= NEAR_NS && !is_large;
        // Requests that the kernel makes by itself, for example at a close, have no caller.
        let is_same = caller == 0 || caller == flow.caller;
        flow.last_ns = now_ns;
        if !is_near || !is_same {
            flow.caller = caller;
            flow.restart(now_ns);
            self.is_kept.store(false, Ordering::Relaxed);
            return false;
        }
        flow.count += 1;
        let is_kept = self.is_kept();
        let is_kept_next = match is_kept {
            true => flow.goes_on(now_ns),
            false => flow.begins(now_ns),
        };
        if is_kept_next != is_kept {
            flow.restart(now_ns);
            self.is_kept.store(is_kept_next, Ordering::Relaxed);
        }
        is_kept_next && !is_kept
    }

    /// Keeps the calling thread's processor busy, until it does not pay or the thread `is_needed`.
    pub fn keep(&self, mut is_needed: impl FnMut() -> bool) {
        let is_idle = || {
            let replied_ns = self.replied_ns.load(Ordering::Relaxed);
            monotonic_ns().saturating_sub(replied_ns) > KEEP_NS
        };
        while self.is_kept() && !is_needed() && !is_idle() {
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        }
        let mut flow = self.flow.lock();
        if self.is_kept.swap(false, Ordering::Relaxed) {
            flow.restart(monotonic_ns());
        }
    }
}

impl Flow {
    fn restart(&mut self, now_ns: u64) {
        self.count = 0;
        self.start_ns = now_ns;
    }

    fn gap_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.start_ns) / self.count
    }

    fn begins(&mut self, now_ns: u64) -> bool {
        if self.count < TRIAL {
            return false;
        }
        self.gap_without_ns = self.gap_ns(now_ns);
        self.restart(now_ns);
        now_ns >= self.resting_until_ns
    }

    fn goes_on(&mut self, now_ns: u64) -> bool {
        if self.count.is_multiple_of(TRIAL) {
            if self.gap_ns(now_ns) * WORTH.1 > self.gap_without_ns * WORTH.0 {
                self.rest_ns = (2 * self.rest_ns).clamp(REST_MIN_NS, REST_MAX_NS);
                self.resting_until_ns = now_ns + self.rest_ns;
                return false;
            }
            self.rest_ns = 0;
        }
        now_ns.saturating_sub(self.start_ns) < PERIOD_NS
    }
}

impl DeviceThread<'_> {
    /// Keeps one processor busy, with the other threads of the device on the other one.
    pub fn keep(&self, is_needed: impl FnMut() -> bool) {
        let Some(both) = self.spin.processors else {
            return;
        };
        let here = usize::from(this_processor() == both[1]);
        self.bind_all(&[both[here]], &[both[1 - here]]);
        self.spin.keep(is_needed);
        self.bind_all(&both, &both);
    }

    fn bind_all(&self, this: &[usize], others: &[usize]) {
        for thread in self.spin.entered.lock().iter() {
            bind(*thread, if *thread == self.thread { this } else { others });
        }
    }
}

impl Drop for DeviceThread<'_> {
    fn drop(&mut self) {
        // The number may soon belong to another thread.
        self.spin.entered.lock().retain(|it| *it != self.thread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_NS: u64 = 1_000_000_000;

    fn on_two() -> Spin {
        Spin {
            processors: Some([0, 1]),
            ..Spin::new(false)
        }
    }

    /// Replies to one caller; the time of the last one.
    fn replies(spin: &Spin, mut now_ns: u64, gap_ns: u64, count: u64) -> u64 {
        for _ in 0..count {
            now_ns += gap_ns;
            spin.note(now_ns, 7, false);
        }
        now_ns
    }

    #[test]
    fn it_goes_on_while_it_pays_and_is_compared_again() {
        let spin = on_two();
        let now_ns = replies(&spin, START_NS, 60_000, TRIAL);
        assert!(!spin.is_kept());
        let now_ns = replies(&spin, now_ns, 60_000, 1);
        assert!(spin.is_kept());
        let now_ns = replies(&spin, now_ns, 30_000, PERIOD_NS / 30_000);
        assert!(spin.is_kept());
        let now_ns = replies(&spin, now_ns, 30_000, 1);
        assert!(!spin.is_kept(), "time to compare");
        replies(&spin, now_ns, 60_000, TRIAL);
        assert!(spin.is_kept());
    }

    #[test]
    fn it_rests_longer_each_time_it_does_not_pay() {
        let spin = on_two();
        let mut now_ns = START_NS;
        let mut rests_ns = Vec::new();
        for _ in 0..4 {
            let asked_ns = now_ns;
            while !spin.is_kept() {
                now_ns = replies(&spin, now_ns, 20_000, 1);
            }
            rests_ns.push(now_ns - asked_ns);
            now_ns = replies(&spin, now_ns, 20_000, TRIAL);
            assert!(!spin.is_kept());
        }
        assert!(rests_ns[1] >= REST_MIN_NS);
        assert!(rests_ns[2] >= 2 * REST_MIN_NS && rests_ns[3] >= 4 * REST_MIN_NS);
    }

    #[test]
    fn callers_that_take_turns_or_think_and_large_requests_are_left_alone() {
        let spin = on_two();
        for number in 0..10_000 {
            spin.note(START_NS + number * 10_000, 7 + (number % 2) as u32, false);
            assert!(!spin.is_kept());
        }
        replies(&spin, 2 * START_NS, NEAR_NS + 1, 10_000);
        assert!(!spin.is_kept());
        for number in 0..10_000 {
            spin.note(9 * START_NS + number * 10_000, 7, true);
            assert!(!spin.is_kept());
        }
    }

    #[test]
    fn it_is_off_unless_there_are_two_processors() {
        let spin = Spin::new(false);
        assert!((0..10_000).all(|_| !spin.reply(7, false)));
    }

    #[test]
    fn a_thread_is_free_again_when_no_reply_comes() {
        let spin = on_two();
        spin.is_kept.store(true, Ordering::Relaxed);
        spin.replied_ns.store(monotonic_ns(), Ordering::Relaxed);
        spin.enter().keep(|| false);
        assert!(!spin.is_kept());
        assert!(spin.entered.lock().is_empty());
    }
}
