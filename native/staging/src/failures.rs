//! The failed syncs of a working copy, remembered until the machine restarts.
//!
//! The kernel reports a lost write-back once and calls the pages clean from then on: for the next
//! process a sync succeeds. So the first failure is written down before any caller learns of it, in
//! each of `places`; one of them lies on another file system if possible, since this one is
//! failing. After a power loss nothing here counts: bytes that did not reach the disk then fail
//! their checksum.
//!
//! ```text
//! cowfs-failed 1\n<boot id>\n(<segment, 16 hex; 0: the journal>\n)*<crc32c of all before, 8 hex>\n
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Stands for the journal among segment numbers, which start at 1.
const JOURNAL: u64 = 0;

/// The failed syncs of one working copy. Every method may be called from any thread.
#[derive(Default)]
pub struct Failures {
    places: Vec<PathBuf>,
    boot_id: String,
    failed: Mutex<BTreeSet<u64>>,
}

impl Failures {
    /// Reads the failures recorded by earlier processes since the machine started. An unreadable
    /// file counts as absent.
    pub fn open(places: Vec<PathBuf>, boot_id: &str) -> Failures {
        let found = places
            .iter()
            .filter_map(|place| fs::read_to_string(place).ok());
        let failed = found
            .filter_map(|text| parse(&text, boot_id))
            .flatten()
            .collect();
        Failures {
            places,
            boot_id: boot_id.to_owned(),
            failed: Mutex::new(failed),
        }
    }

    /// A sync of the segment failed.
    pub fn note_segment(&self, segment: u64) {
        self.change(|failed| failed.insert(segment));
    }

    /// The segment has been removed.
    pub(crate) fn forget_segment(&self, segment: u64) {
        self.change(|failed| failed.remove(&segment));
    }

    /// Whether a sync of the segment failed.
    pub fn has_segment(&self, segment: u64) -> bool {
        self.lock().contains(&segment)
    }

    /// A sync of the journal failed.
    pub fn note_journal(&self) {
        self.note_segment(JOURNAL);
    }

    /// All of the journal has been written anew, and synced.
    pub fn forget_journal(&self) {
        self.forget_segment(JOURNAL);
    }

    /// Whether a sync of the journal failed.
    pub fn has_journal(&self) -> bool {
        self.has_segment(JOURNAL)
    }

    fn change(&self, change: impl FnOnce(&mut BTreeSet<u64>) -> bool) {
        let mut failed = self.lock();
        if change(&mut failed) {
            let text = text(&failed, &self.boot_id);
            for place in &self.places {
                // If one place cannot store it, another may.
                let _ = match failed.is_empty() {
                    true => fs::remove_file(place),
                    false => store(place, &text),
                };
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn store(place: &Path, text: &str) -> io::Result<()> {
    let fresh = place.with_extension("new");
    let mut file = File::create(&fresh)?;
    file.write_all(text.as_bytes())?;
    // The next process finds the name even if this fails.
    let synced = file.sync_all();
    fs::rename(&fresh, place)?;
    synced
}

fn text(failed: &BTreeSet<u64>, boot_id: &str) -> String {
    let mut text = format!("cowfs-failed 1\n{boot_id}\n");
    failed
        .iter()
        .for_each(|segment| text += &format!("{segment:016x}\n"));
    let crc = crc32c::crc32c(text.as_bytes());
    text + &format!("{crc:08x}\n")
}

fn parse(found: &str, boot_id: &str) -> Option<BTreeSet<u64>> {
    let numbers = found.lines().filter(|line| line.len() == 16);
    let numbers = numbers.filter_map(|line| u64::from_str_radix(line, 16).ok());
    let failed: BTreeSet<u64> = numbers.collect();
    (text(&failed, boot_id) == found).then_some(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_known_to_the_next_process_of_this_boot() {
        let dir = tempfile::tempdir().unwrap();
        let places = vec![dir.path().join("missing/failed"), dir.path().join("failed")];
        let open = |boot: &str| Failures::open(places.clone(), boot);
        open("b1").note_segment(7);
        open("b1").note_journal();
        assert!(open("b1").has_segment(7) && open("b1").has_journal());
        assert!(!open("b1").has_segment(8) && !open("b2").has_segment(7));
        open("b1").forget_segment(7);
        assert!(!open("b1").has_segment(7) && open("b1").has_journal());
        open("b1").forget_journal();
        assert!(!places[1].exists(), "nothing is left");
    }

    #[test]
    fn a_damaged_record_counts_as_absent() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("failed");
        Failures::open(vec![place.clone()], "b").note_segment(7);
        let whole = fs::read(&place).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&place, damaged).unwrap();
            assert!(!Failures::open(vec![place.clone()], "b").has_segment(7));
        }
    }
}
