//! The way of a request through the lane: answered at once, parked until the missing data is here,
//! or handed to a thread that may wait for the disk; and the way of its answer.
//!
//! Each request gets one answer, from the thread that handles it last. An answer to a request from
//! io_uring goes through the ring that holds it (`Uring::post`), any other through the device. If
//! the kernel does not accept an answer, its effects are undone: raised counts and opened handles.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cowfs_base::{Errno, faults};
use cowfs_engine::HandleId;
use cowfs_fuse_abi::{Header, Operation, Reply};
use cowfs_mounted::{Error, Mounted};

use crate::answer::{Answer, RESENT};
use crate::caller::is_signalled;
use crate::lane::Shared;
use crate::park::{Need, Parked, Tries};
use crate::uring::Place;

/// A path component, a directory, contents, then chunks that push each other out of a small cache:
/// a handful is usual.
pub const LOADS_MAX: u32 = 64;
/// Copying so much takes longer than waking a thread.
const LARGE_BYTES: usize = 64 << 10;

/// The message for a failed request.
fn said(error: &Error) -> String {
    match error {
        Error::NotResident(missing) => {
            let what = missing.name();
            format!("{what} was loaded {LOADS_MAX} times and was missing again each time")
        }
        Error::JournalCorrupt(reason) => reason.clone(),
        Error::Os(errno) => errno.to_string(),
    }
}

/// The outcome of a request.
pub(crate) enum Outcome {
    /// The thread that took the request sends this.
    Answered(Answer),
    /// It will be answered by its number, from another thread perhaps.
    Later,
    /// No reply is sent.
    Silent,
}

impl Shared {
    /// Whether an idle thread should spin on its processor, now that this request gets its answer.
    pub(crate) fn is_to_keep_near(&self, message: &[u8], answer: &Answer) -> bool {
        self.spin.is_on() && {
            let caller = Header::parse(message).map_or(0, |(header, _)| header.pid);
            let bytes = message.len().max(answer.data.len());
            self.spin.reply(caller, bytes >= LARGE_BYTES)
        }
    }

    /// Handles a request; a panic is answered EIO, since a caller without an answer would wait
    /// without end. `place`: where in a ring the request lies; None if it came from the device or
    /// was parked before.
    pub(crate) fn handle(
        self: &Arc<Shared>,
        message: &[u8],
        tries: Tries,
        place: Option<Place>,
    ) -> Outcome {
        let Some((header, body)) = Header::parse(message) else {
            return Outcome::Silent;
        };
        let way = AssertUnwindSafe(|| self.pass(&header, body, message, tries, place));
        catch_unwind(way).unwrap_or_else(|_| {
            if place.is_some() {
                self.uring.let_go(header.unique);
            }
            Outcome::Answered(Answer::error(header.unique, Errno::EIO))
        })
    }

    /// The way of a request: answered, or parked.
    fn pass(
        self: &Arc<Shared>,
        header: &Header,
        body: &[u8],
        message: &[u8],
        tries: Tries,
        place: Option<Place>,
    ) -> Outcome {
        let unique = header.unique;
        let Some(operation) = Operation::parse(header.opcode, body) else {
            let (opcode, bytes) = (header.opcode, message.len());
            faults::note(format_args!(
                "request {opcode} of {bytes} bytes is not laid out as the protocol says"
            ));
            return Outcome::Answered(Answer::error(unique, Errno::EIO));
        };
        match operation {
            Operation::Interrupt { unique } => self.interrupts.watch(unique),
            Operation::Forget { count } => self.forget(header.nodeid, count),
            Operation::BatchForget(forgets) => {
                forgets.for_each(|(node, count)| self.forget(node, count))
            }
            Operation::Fsync { fh, datasync } => {
                self.uring.hold(unique, place);
                let id = HandleId {
                    ino: header.nodeid,
                    fh,
                };
                self.sync(unique, move |files| files.fsync(id, datasync));
                return Outcome::Later;
            }
            Operation::Write(..)
                if !tries.asked_for_room && self.files.engine().is_reclaim_overdue() =>
            {
                let tries = Tries {
                    asked_for_room: true,
                    ..tries
                };
                self.park(header, message, tries, place, Need::Room, Errno::EIO);
                return Outcome::Later;
            }
            Operation::FsyncDir | Operation::SyncFs => {
                self.uring.hold(unique, place);
                self.sync(unique, |files| Ok(files.engine().sync()?));
                return Outcome::Later;
            }
            _ => {
                return match self.answer(header, operation) {
                    Ok(answer) => Outcome::Answered(answer),
                    Err(error) => self.put_off(header, message, tries, place, error),
                };
            }
        }
        Outcome::Silent
    }

    /// Parks a request that can be answered later; refuses any other.
    fn put_off(
        &self,
        header: &Header,
        message: &[u8],
        mut tries: Tries,
        place: Option<Place>,
        error: Error,
    ) -> Outcome {
        let refused = |errno| Outcome::Answered(Answer::error(header.unique, errno));
        let (need, errno) = match error {
            Error::NotResident(missing) if tries.loads < LOADS_MAX => {
                tries.loads += 1;
                (Need::Resident(missing), Errno::EIO)
            }
            Error::Os(Errno::ENOSPC) if !tries.asked_for_space => {
                tries.asked_for_space = true;
                (Need::Space, Errno::ENOSPC)
            }
            Error::Os(errno) => return refused(errno),
            error => {
                faults::note(format_args!("request {}: {}", header.opcode, said(&error)));
                return refused(Errno::EIO);
            }
        };
        self.park(header, message, tries, place, need, errno);
        Outcome::Later
    }

    /// Parks a request; `errno` is its answer if the park is closed.
    fn park(
        &self,
        header: &Header,
        message: &[u8],
        tries: Tries,
        place: Option<Place>,
        need: Need,
        errno: Errno,
    ) {
        let parked = Parked {
            message: message.to_vec(),
            tries,
        };
        self.uring.hold(header.unique, place);
        match self.park.park(header.unique, parked, need) {
            true => self.watch_interrupted(header, place),
            false => self.refuse(header.unique, errno),
        }
    }

    /// The kernel does not report requests that were interrupted before they were put into a ring
    /// (fs/fuse/dev_uring.c does not look, as dev.c does), so this looks for them.
    fn watch_interrupted(&self, header: &Header, place: Option<Place>) {
        if place.is_some() && is_signalled(header.pid) {
            self.interrupts.watch(header.unique);
        }
    }

    fn sync(
        self: &Arc<Shared>,
        unique: u64,
        call: impl FnOnce(&Mounted) -> cowfs_mounted::Result<()> + Send + 'static,
    ) {
        let shared = self.clone();
        self.syncing.run(
            move || match catch_unwind(AssertUnwindSafe(|| call(&shared.files))) {
                Ok(Ok(())) => shared.deliver(unique, Answer::plain(Reply::new(unique))),
                Ok(Err(Error::Os(errno))) => shared.refuse(unique, errno),
                Ok(Err(error)) => {
                    faults::note(format_args!("a sync: {}", said(&error)));
                    shared.refuse(unique, Errno::EIO);
                }
                Err(_) => shared.refuse(unique, Errno::EIO), // the hook has reported the panic
            },
        );
    }

    /// Answers a request that was put off, from any thread.
    pub(crate) fn deliver(&self, unique: u64, answer: Answer) {
        if let Some(answer) = self.uring.post(unique, answer) {
            self.send(&answer);
        }
    }

    /// Writes an answer to the device; whether the kernel took it. If it failed before it looked at
    /// the request (EFAULT, ENOMEM), its caller still waits, and gets EIO.
    pub(crate) fn send(&self, answer: &Answer) -> bool {
        let sent = self.device.send(&answer.message, answer.data.parts());
        if self.is_continued() {
            let unique = answer.unique() & !RESENT;
            self.files.engine().request_is_answered(unique);
        }
        let Err(errno) = sent else {
            return true;
        };
        self.take_back(answer);
        if !matches!(errno.0, libc::ENOENT | libc::ENODEV | libc::ECONNABORTED) {
            faults::note(format_args!("the kernel did not take a reply: {errno}"));
            let refusal = Answer::error(answer.unique(), Errno::EIO);
            let _ = self.device.send(&refusal.message, []);
        }
        false
    }

    /// The kernel never got the reply that raised a count or opened a handle.
    pub(crate) fn take_back(&self, answer: &Answer) {
        if let Some(id) = answer.opened {
            // No caller can have closed it: none has received it.
            let _ = self.close(id);
        }
        let counted = answer.node.iter().chain(&answer.listed);
        counted.for_each(|node| self.forget(*node, 1));
    }

    fn forget(&self, node: u64, count: u64) {
        // It fails only on a closed engine, where counts no longer matter.
        let _ = self.files.forget(node, count);
    }

    pub(crate) fn refuse(&self, unique: u64, errno: Errno) {
        self.deliver(unique, Answer::error(unique, errno));
    }
}
