//! The engine's only source of time.

use std::sync::OnceLock;
use std::time::Instant;

/// Wall-clock time as of the kernel's last tick, used for inode times. The kernel's file systems
/// use the same clock, so a file created there right after a file here is not older. Two calls
/// within a tick (1 to 10 ms) give the same time.
pub fn now_ns() -> i64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call fills the structure that it is given. It fails only for unknown clocks.
    let outcome = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &mut now) };
    debug_assert_eq!(outcome, 0);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// Time since the first call in this process, for durations only.
pub fn monotonic_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}
