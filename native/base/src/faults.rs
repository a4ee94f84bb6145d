//! The reasons for EIO replies: an error number has no room for a reason.
//!
//! Code that answers EIO notes here the fault that it found (which segment and offset, which row
//! and rule). The daemon takes the list every few seconds and logs it (`cowfs/session/keeper.py`).
//! There is one list per process. It is bounded: a program that reads a lost file again and again
//! raises a count.

use std::collections::BTreeMap;
use std::fmt::Display;

use crate::sync::Mutex;

/// More reasons than this between two calls of `take` are counted together.
const REASONS_MAX: usize = 64;
const OTHERS: &str = "for other reasons";

static NOTED: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

/// A call gets EIO for this reason.
pub fn note(reason: impl Display) {
    let reason = reason.to_string();
    let mut noted = NOTED.lock();
    if let Some(count) = noted.get_mut(&reason) {
        *count += 1;
    } else if noted.len() < REASONS_MAX {
        noted.insert(reason, 1);
    } else {
        *noted.entry(OTHERS.into()).or_default() += 1;
    }
}

/// Each reason with how often it was noted since the last call.
pub fn take() -> Vec<(String, u64)> {
    std::mem::take(&mut *NOTED.lock()).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_and_bounded() {
        note("again");
        note("again");
        (0..1000).for_each(note);
        let taken = take();
        assert_eq!(taken.len(), REASONS_MAX + 1);
        assert!(taken.contains(&("again".into(), 2)));
        let count: u64 = taken.iter().map(|(_, count)| count).sum();
        assert_eq!(count, 1002);
        assert_eq!(take(), []);
    }
}
