//! Information from /proc about the caller of a request: its groups, and whether a fatal signal is
//! pending.

use cowfs_engine::Caller;
use cowfs_fuse_abi::Header;

use crate::lane::Shared;

const S_ISGID: u32 = libc::S_ISGID;

impl Shared {
    /// The caller of a request. Its supplementary groups cost a look into /proc; they matter only
    /// for whether a setgid bit in `mode` may stay.
    pub(crate) fn caller(&self, header: &Header, umask: u32, mode: u32) -> Caller {
        let needs_groups = mode & S_ISGID != 0 && header.uid != 0 && header.pid != 0;
        Caller {
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
            umask,
            groups: if needs_groups {
                groups(header.pid)
            } else {
                None
            },
            owners: self.owners,
        }
    }
}

/// Whether the thread is about to die or has ended, and so waits for no reply. A fatal signal makes
/// SIGKILL pending for every thread of its process.
pub(crate) fn is_dying(pid: u32) -> bool {
    let kill = 1u64 << (libc::SIGKILL - 1);
    status(pid).map_or(pid != 0, |status| pending(&status) & kill != 0)
}

/// Whether any signal waits for the thread, or it has ended.
pub(crate) fn is_signalled(pid: u32) -> bool {
    status(pid).map_or(pid != 0, |status| pending(&status) != 0)
}

/// The signals that wait for a thread or its process, one bit each.
fn pending(status: &str) -> u64 {
    ["SigPnd:", "ShdPnd:"]
        .iter()
        .filter_map(|key| u64::from_str_radix(field(status, key)?.trim(), 16).ok())
        .fold(0, |all, mask| all | mask)
}

fn groups(pid: u32) -> Option<Vec<u32>> {
    field(&status(pid)?, "Groups:")?
        .split_whitespace()
        .map(|group| group.parse().ok())
        .collect()
}

fn status(pid: u32) -> Option<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/status")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn field<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_lives_and_has_groups() {
        let pid = std::process::id();
        assert!(!is_dying(pid) && !is_signalled(pid));
        assert!(groups(pid).is_some());
        assert!(is_dying(u32::MAX - 1) && is_signalled(u32::MAX - 1));
        let status = "SigPnd:\t0000000000000100\nShdPnd:\t0000000000004000\n";
        assert_eq!(pending(status), 0x4100);
    }
}
