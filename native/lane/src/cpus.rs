//! Which processors a thread may run on.

use std::io;

pub(crate) fn allowed_cpus() -> io::Result<Vec<usize>> {
    // SAFETY: a zeroed set is an empty one; the kernel writes at most its size into it, and
    // CPU_ISSET reads inside of it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Err(io::Error::last_os_error());
        }
        let all = 0..libc::CPU_SETSIZE as usize;
        Ok(all.filter(|cpu| libc::CPU_ISSET(*cpu, &set)).collect())
    }
}

/// Binds a thread of this process to processors; where that is not permitted it runs anywhere, a
/// little slower.
pub(crate) fn bind(thread: libc::pid_t, cpus: &[usize]) {
    let fitting = cpus.iter().filter(|cpu| **cpu < libc::CPU_SETSIZE as usize);
    // SAFETY: a zeroed set is an empty one; CPU_SET panics for numbers that do not fit, and is given
    // none; the kernel reads the set's own size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        fitting.for_each(|cpu| libc::CPU_SET(*cpu, &mut set));
        libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// The calling thread's number, as the kernel has it.
pub(crate) fn this_thread() -> libc::pid_t {
    // SAFETY: it cannot fail and touches nothing.
    unsafe { libc::gettid() }
}

/// The processor the calling thread runs on at the moment.
pub(crate) fn this_processor() -> usize {
    // SAFETY: it touches nothing; an error is no processor's number.
    unsafe { libc::sched_getcpu() as usize }
}
