//! The signal that interrupts a thread's blocked read.

use std::io;

pub(crate) fn wake_signal() -> libc::c_int {
    libc::SIGRTMIN() + 5
}

extern "C" fn nothing(_: libc::c_int) {}

/// Installs a handler that does nothing, for the whole process.
pub(crate) fn ignore_wake_signal() -> io::Result<()> {
    // SAFETY: a zeroed sigaction is a valid one without flags (reads are not restarted); the
    // handler touches nothing.
    let outcome = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(wake_signal(), &action, std::ptr::null_mut())
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
