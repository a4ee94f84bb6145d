//! A full local disk: space freed for calls that add bytes, and a reserve for all other calls.
//!
//! `relieve` frees in steps and stops when there is enough, the cheapest to lose first:
//!
//! 1. files kept for later segments
//! 2. committed staged bytes, oldest first: they are read from their chunks from then on
//! 3. overwritten and removed bytes (`reclaim`), which may sync
//! 4. the dead parts of segments that still have live ones (`punching`)
//!
//! Then it takes the ballast back (`cowfs_staging::Ballast`). While part of the ballast is
//! missing, a call that adds bytes gets ENOSPC at once and asks for relief. Removing, truncating,
//! renaming and committing still work. Chunk files are not touched here: they may lie on another
//! disk.
//!
//! A relief that found nothing is repeated only after something has changed or a second has
//! passed. So programs that try to write on a full disk again and again cost next to nothing.

use std::time::{Duration, Instant};

use cowfs_base::sync::Mutex;
use cowfs_base::{Errno, Layer};
use cowfs_staging::Leaving;

use crate::engine::{Disk, Engine};
use crate::error::Result;
use crate::punching::Punching;
use crate::staged::Amount;
use crate::state::State;

const REPEATED_AFTER: Duration = Duration::from_secs(1);

/// The result of the last relief.
#[derive(Default)]
pub(crate) struct Relief {
    running: Mutex<()>,
    last: Mutex<Last>,
}

#[derive(Default, Clone, Copy)]
struct Last {
    number: u64,
    freed_bytes: u64,
    /// When a thorough search found nothing dead, and the state at that time.
    found_nothing: Option<(Instant, Seen)>,
}

/// Newest record, layer, and whether one is frozen: bytes die with a record or when a commit ends.
/// (Or when an unlinked file is closed: that waits for the second.)
type Seen = (u64, Layer, bool);

impl Engine {
    /// Frees about `wanted_bytes` of the working copy's disk, if that can be, and takes the ballast
    /// back; returns the bytes freed. 0: trying again is in vain. `Punching::Thorough` is for a call
    /// that met ENOSPC. Counts extents and may sync: for threads that may wait. Callers that came
    /// while another was at it get what that one freed.
    pub fn relieve(&self, wanted_bytes: u64, punching: Punching) -> Result<u64> {
        let disk = self.disk()?;
        let before = disk.relief.last.lock().number;
        let _one = disk.relief.running.lock();
        let last = *disk.relief.last.lock();
        if last.number != before && last.freed_bytes > 0 {
            return Ok(last.freed_bytes);
        }
        let mut freed_bytes = self.trim(disk, Amount::Freed(wanted_bytes))?;
        if freed_bytes < wanted_bytes {
            freed_bytes += self.relieve_of_dead(disk, wanted_bytes - freed_bytes, punching)?;
        }
        let was_whole = disk.ballast.is_whole();
        if disk.ballast.restore() && !was_whole {
            // Another thread has made room.
            freed_bytes = freed_bytes.max(1);
        }
        let mut last = disk.relief.last.lock();
        last.number += 1;
        last.freed_bytes = freed_bytes;
        Ok(freed_bytes)
    }

    /// Takes back what of the ballast is missing, if there is room; whether bytes may be added
    /// again.
    pub fn restore_ballast(&self) -> Result<bool> {
        Ok(self.disk()?.ballast.restore())
    }

    /// Gives up part of the ballast for a commit or an unmount that needs a little space; false if
    /// no ballast is left.
    pub fn give_up_ballast(&self) -> Result<bool> {
        Ok(self.disk()?.ballast.give_up(Leaving::Committing))
    }

    fn relieve_of_dead(&self, disk: &Disk, wanted_bytes: u64, punching: Punching) -> Result<u64> {
        let seen = seen(&*self.read()?);
        let found_nothing = disk.relief.last.lock().found_nothing;
        if found_nothing
            .is_some_and(|(at, as_seen)| as_seen == seen && at.elapsed() < REPEATED_AFTER)
        {
            return Ok(0);
        }
        let mut freed_bytes = self.reclaim_staging()?;
        if freed_bytes < wanted_bytes {
            freed_bytes += self.punch_staging(punching)?;
        }
        disk.staging.remove_spares();
        if punching == Punching::Thorough {
            let found_nothing = (freed_bytes == 0).then(|| (Instant::now(), seen));
            disk.relief.last.lock().found_nothing = found_nothing;
        }
        Ok(freed_bytes)
    }
}

fn seen(state: &State) -> Seen {
    (state.newest_seq(), state.layer, state.frozen.is_some())
}

impl State {
    /// The number of the journal's newest record, 0 if there is none.
    pub fn newest_seq(&self) -> u64 {
        let journal = self.journal.as_ref();
        journal.map_or(0, |journal| journal.last_seq())
    }

    /// ENOSPC while the local disk is full: the remaining space is for calls that free space.
    pub fn check_room(&self) -> Result<()> {
        match &self.ballast {
            Some(ballast) if !ballast.is_whole() => Err(Errno::ENOSPC.into()),
            _ => Ok(()),
        }
    }

    /// Gives up ballast for a record of a change that adds no bytes; returns whether there is space
    /// now.
    pub fn gives_up_ballast(&self) -> bool {
        let ballast = self.ballast.as_ref();
        ballast.is_some_and(|ballast| ballast.give_up(Leaving::Changing))
    }
}
