//! Brings what parked requests lack: of the volume, and of the version beside it, which comes and
//! goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use cowfs_base::Errno;
use cowfs_engine::{Engine, Error};
use cowfs_lane::{Lane, Need};
use cowfs_mounted::{Attachment, Missing, Mounted, Target};

use crate::requests::OLD_ID;
use crate::world::Base;

/// The version beside the volume.
const OLD: Attachment = 1;

pub fn start_loader(
    lane: &Arc<Lane>,
    files: &Arc<Mounted>,
    old: &Arc<Engine>,
    base: &Arc<Base>,
    is_loading: &Arc<AtomicBool>,
) -> JoinHandle<()> {
    let (lane, engine, files) = (lane.clone(), files.engine().clone(), files.clone());
    let (old, base, is_loading) = (old.clone(), base.clone(), is_loading.clone());
    thread::spawn(move || {
        while let Some(wanted) = lane.next_wanted() {
            if !is_loading.load(Ordering::Acquire) {
                continue;
            }
            match wanted.need {
                // A store that fails, even with a number that is no errno.
                Need::Resident(_) if wanted.unique % 32 == 0 => lane.fail(wanted.unique, Errno(-3)),
                Need::Resident(Missing::Of(0, missing)) => {
                    match base.load(&engine, &missing) {
                        // A number of an inode that is gone.
                        Err(Error::Os(errno)) => lane.fail(wanted.unique, errno),
                        outcome => {
                            outcome.expect("loads");
                            lane.resume(wanted.unique);
                        }
                    }
                    if wanted.unique % 4 == 0 {
                        engine.evict(0).expect("evicts");
                    }
                }
                Need::Resident(missing) => {
                    match provide(&files, &old, &base, missing) {
                        Ok(()) => lane.resume(wanted.unique),
                        Err(errno) => lane.fail(wanted.unique, errno),
                    }
                    if wanted.unique % 4 == 0 {
                        files.close_version(OLD);
                    }
                }
                Need::Space if wanted.unique % 4 == 0 => lane.fail(wanted.unique, Errno::ENOSPC),
                Need::Space => lane.resume(wanted.unique),
                Need::Room => {
                    // A failed pass does not keep a writer waiting.
                    let _ = engine.reclaim_overdue();
                    lane.resume(wanted.unique);
                }
            }
        }
    })
}

/// Provides the one version beside the volume, which comes and goes.
fn provide(files: &Mounted, old: &Arc<Engine>, base: &Base, missing: Missing) -> Result<(), Errno> {
    let names = || {
        let link = (b"tag".to_vec(), Target::Id(OLD_ID.into()));
        [(OLD_ID.to_vec(), Target::Version), link]
    };
    match missing {
        Missing::Of(OLD, missing) => match base.load(old, &missing) {
            Err(Error::Os(errno)) => return Err(errno),
            outcome => outcome.expect("loads"),
        },
        Missing::Closed(OLD, id) => assert!(files.open_version(OLD, &id, old.clone())),
        Missing::Names => files.list_versions(names().into()).expect("few names"),
        Missing::Name(name) => match names().into_iter().find(|(known, _)| *known == name) {
            Some((name, target)) => files.name_version(&name, target).expect("few names"),
            None => return Err(Errno::ENOENT),
        },
        _ => return Err(Errno::ESTALE),
    }
    Ok(())
}
