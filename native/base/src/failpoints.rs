//! Named crash points, as `cowfs/base/failpoints.py` has them: `COWFS_FAILPOINT=NAME` kills the process
//! as `kill -9` would at the first `hit("NAME")`, `NAME:3` at the third; several are separated by
//! commas. Unset, a hit costs one look at an empty list. Names that Python hits are ignored here,
//! and the other way round.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

static ARMED: OnceLock<Vec<(String, AtomicU32)>> = OnceLock::new();

/// Marks a crash point; returns at once unless the environment armed it.
pub fn hit(name: &str) {
    let armed = ARMED.get_or_init(|| parse(&std::env::var("COWFS_FAILPOINT").unwrap_or_default()));
    let found = armed.iter().find(|(armed, _)| armed == name);
    if found.is_some_and(|(_, left)| left.fetch_sub(1, Ordering::Relaxed) == 1) {
        // SAFETY: raise(3) takes no pointers; SIGKILL cannot be caught, so nothing runs afterwards.
        unsafe { libc::raise(libc::SIGKILL) };
    }
}

/// The remaining hits until the process dies, by name. Python reports misspelt names.
fn parse(text: &str) -> Vec<(String, AtomicU32)> {
    let items = text.split(',').filter(|item| !item.is_empty());
    items
        .map(|item| {
            let (name, count) = item.split_once(':').unwrap_or((item, "1"));
            (name.to_owned(), count.parse().unwrap_or(1).into())
        })
        .collect()
}
