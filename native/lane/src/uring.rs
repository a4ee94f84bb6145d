//! FUSE over io_uring, the rings of one mount: which thread serves which CPU's queue, and the
//! requests that are answered from elsewhere.
//!
//! The kernel puts a request into the queue of the CPU its caller runs on, so a ring's thread is
//! bound to the CPUs whose queues it serves: it is woken where the caller has just gone to sleep.
//! Every possible CPU needs a queue before the kernel sends anything this way.
//!
//! **Parked requests must not fill a queue.** A parked request keeps its entry until it is
//! answered. While a queue has no free entry, all other requests of its CPU wait in the kernel. So
//! a queue has many entries (`DEPTH_MIN` to `DEPTH_MAX`), and their memory is touched only when
//! they are used (`ring`).
//!
//! ```text
//! plan → threads prepare rings and memory → handshake agreed: begin, they register, is_serving → end: threads return
//!                                         └ not agreed, or a ring failed: end
//! ```

pub(crate) mod ring;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use cowfs_base::sync::{Condvar, Mutex};
use cowfs_fuse_abi::flag;

use crate::answer::Answer;
use crate::cpus::allowed_cpus;
use crate::uring::ring::Ring;

/// Entries of one mount, shared out over the CPUs that are online. Each costs the kernel 0.2 to 0.4
/// KiB (measured).
const ENTRIES: usize = 8192;
/// On machines with many CPUs; callers are spread over as many queues.
const DEPTH_MIN: usize = 256;
/// As many buffered reads as the kernel has in flight at once (`answer::MAX_BACKGROUND`, over all
/// queues), and what else waits.
const DEPTH_MAX: usize = 1280;
/// For a CPU that is not online. If it comes online later, it works with fewer waiting requests.
const DEPTH_OFFLINE: usize = 8;
const THREADS_MAX: usize = 16;
/// Entries are laid out, and given back, in pages of this size.
pub(crate) const PAGE_BYTES: usize = 4096;
const CPUS: &str = "/sys/devices/system/cpu";

/// The place of a request: the ring, and its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub ring: usize,
    pub entry: usize,
}

/// One thread's share: the CPUs it is bound to (none: any), and its queues with the entries of
/// each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Share {
    pub cpus: Vec<usize>,
    pub queues: Vec<(u16, usize)>,
}

/// An answer on its way to the thread whose ring has the request.
pub(crate) struct Outgoing {
    pub entry: usize,
    pub unique: u64,
    pub answer: Answer,
}

#[derive(Default)]
pub(crate) struct Uring {
    mailboxes: OnceLock<Vec<Mailbox>>,
    held: Mutex<HashMap<u64, Place>>,
    stage: Mutex<Stage>,
    changed: Condvar,
}

struct Mailbox {
    wake: OwnedFd,
    keeps: AtomicBool,
    outgoing: Mutex<Vec<Outgoing>>,
}

#[derive(Default)]
struct Stage {
    prepared: usize,
    registered: usize,
    failure: Option<io::Error>,
    is_begun: bool,
    is_serving: bool,
    is_over: bool,
}

impl Uring {
    /// A share for each thread to start. EOPNOTSUPP if pages are larger than PAGE_BYTES: the kernel
    /// then wants larger entries.
    pub fn plan(&self) -> io::Result<Vec<Share>> {
        // SAFETY: it takes a number and gives one.
        if unsafe { libc::sysconf(libc::_SC_PAGESIZE) } != PAGE_BYTES as libc::c_long {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let shares = shares(&cpus("possible")?, &cpus("online")?, &allowed_cpus()?);
        let boxes = shares
            .iter()
            .map(|_| Mailbox::new())
            .collect::<Result<_, _>>();
        self.mailboxes.get_or_init(|| boxes.unwrap_or_default());
        if self.mailboxes().is_empty() {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        Ok(shares)
    }

    /// How many there are to be, once planned.
    pub fn count(&self) -> usize {
        self.mailboxes().len()
    }

    /// The feature to offer in the handshake.
    pub fn features(&self) -> u64 {
        let stage = self.stage.lock();
        match stage.prepared > 0 && !stage.is_over {
            true => flag::OVER_IO_URING | flag::INIT_EXT,
            false => 0,
        }
    }

    /// Whether every ring was registered.
    pub fn is_serving(&self) -> bool {
        self.stage.lock().is_serving
    }

    /// The first failure of a thread, once all have said how they fare.
    pub fn wait_until_prepared(&self) -> io::Result<()> {
        let mut stage = self.stage.lock();
        while stage.prepared < self.mailboxes().len() && stage.failure.is_none() {
            self.changed.wait(&mut stage);
        }
        stage.failure.take().map_or(Ok(()), Err)
    }

    /// Reports a ring, and waits for its registration to begin; None if it never does.
    pub fn prepared(&self, ring: io::Result<Ring>) -> Option<Ring> {
        let mut stage = self.stage.lock();
        stage.prepared += 1;
        let ring = ring.map_err(|error| stage.failure = Some(error)).ok();
        self.changed.notify_all();
        while !stage.is_begun && !stage.is_over {
            self.changed.wait(&mut stage);
        }
        ring.filter(|_| !stage.is_over)
    }

    /// Reports a registration.
    pub fn registered(&self, outcome: io::Result<()>) {
        let mut stage = self.stage.lock();
        stage.registered += 1;
        if let Err(error) = outcome {
            stage.failure = Some(error);
        }
        self.changed.notify_all();
    }

    /// Lets the rings be registered; returns when they are. If one fails, the kernel stays with the
    /// device.
    pub fn begin(&self) {
        let mut stage = self.stage.lock();
        stage.is_begun = true;
        self.changed.notify_all();
        while stage.registered < self.mailboxes().len() && !stage.is_over {
            self.changed.wait(&mut stage);
        }
        stage.is_serving = stage.failure.is_none() && !stage.is_over;
    }

    /// Lets every ring's thread return, after the answers that were posted.
    pub fn end(&self) {
        self.stage.lock().is_over = true;
        self.changed.notify_all();
        self.mailboxes().iter().for_each(Mailbox::wake);
    }

    pub fn is_over(&self) -> bool {
        self.stage.lock().is_over
    }

    /// Notes where a parked request lies, so that it can be answered by its number. Called before
    /// any other thread knows the request.
    pub fn hold(&self, unique: u64, place: Option<Place>) {
        if let Some(place) = place {
            self.held.lock().insert(unique, place);
        }
    }

    pub fn let_go(&self, unique: u64) {
        self.held.lock().remove(&unique);
    }

    pub fn has_held(&self) -> bool {
        !self.held.lock().is_empty()
    }

    /// Hands an answer to the ring that has the request; gives it back when none has.
    pub fn post(&self, unique: u64, answer: Answer) -> Option<Answer> {
        let Some(place) = self.held.lock().remove(&unique) else {
            return Some(answer);
        };
        let mailbox = &self.mailboxes()[place.ring];
        mailbox.outgoing.lock().push(Outgoing {
            entry: place.entry,
            unique,
            answer,
        });
        mailbox.wake();
        None
    }

    /// The other ring's thread of two is to keep its processor busy.
    pub fn ask_other_to_keep(&self, ring: usize) {
        if let [first, second] = self.mailboxes() {
            let other = if ring == 0 { second } else { first };
            other.keeps.store(true, Ordering::Relaxed);
            other.wake();
        }
    }

    /// Whether another thread has asked this ring's thread to spin since the last call.
    pub fn is_asked_to_keep(&self, ring: usize) -> bool {
        self.mailboxes()[ring].keeps.swap(false, Ordering::Relaxed)
    }

    /// Takes the answers posted to a ring.
    pub fn collect(&self, ring: usize) -> Vec<Outgoing> {
        std::mem::take(&mut *self.mailboxes()[ring].outgoing.lock())
    }

    /// The eventfd that is written when there is something for a ring.
    pub fn wake_descriptor(&self, ring: usize) -> RawFd {
        self.mailboxes()[ring].wake.as_raw_fd()
    }

    fn mailboxes(&self) -> &[Mailbox] {
        self.mailboxes.get().map_or(&[], Vec::as_slice)
    }
}

impl Mailbox {
    fn new() -> io::Result<Mailbox> {
        // SAFETY: eventfd takes no pointers; the descriptor it returns is owned here.
        let wake = unsafe {
            let raw = libc::eventfd(0, libc::EFD_CLOEXEC);
            if raw < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(raw)
        };
        Ok(Mailbox {
            wake,
            keeps: AtomicBool::new(false),
            outgoing: Mutex::default(),
        })
    }

    fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes from a live array into an eventfd that we own, whose count never
        // comes near its limit.
        unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }
}

fn shares(possible: &[usize], online: &[usize], allowed: &[usize]) -> Vec<Share> {
    let depth = (ENTRIES / online.len().max(1)).clamp(DEPTH_MIN, DEPTH_MAX);
    let mut shares = vec![Share::default(); allowed.len().clamp(1, THREADS_MAX)];
    let count = shares.len();
    for (number, cpu) in allowed.iter().enumerate() {
        shares[number % count].cpus.push(*cpu);
    }
    for cpu in possible {
        let number = allowed.iter().position(|each| each == cpu);
        let depth = match online.contains(cpu) {
            true => depth,
            false => DEPTH_OFFLINE,
        };
        let share = &mut shares[number.unwrap_or(*cpu) % count];
        share.queues.push((*cpu as u16, depth));
    }
    shares
}

fn cpus(which: &str) -> io::Result<Vec<usize>> {
    parse_cpus(std::fs::read_to_string(format!("{CPUS}/{which}"))?.trim())
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
}

/// "0-3,8" and the like.
fn parse_cpus(list: &str) -> Option<Vec<usize>> {
    let mut found = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        found.extend(first..=last);
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        assert_eq!(parse_cpus("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_cpus("0"), Some(vec![0]));
        assert_eq!(parse_cpus("0-"), None);
        assert_eq!(parse_cpus(""), None);
    }

    #[test]
    fn every_possible_cpu_has_a_queue_and_its_own_thread_where_there_are_enough() {
        let found = shares(&[0, 1, 2, 3], &[0, 1, 2], &[0, 2]);
        let share = |cpu, queues: &[(u16, usize)]| Share {
            cpus: vec![cpu],
            queues: queues.to_vec(),
        };
        let (full, offline) = (DEPTH_MAX, DEPTH_OFFLINE);
        assert_eq!(found[0], share(0, &[(0, full)]));
        assert_eq!(found[1], share(2, &[(1, full), (2, full), (3, offline)]));

        let many: Vec<usize> = (0..128).collect();
        let found = shares(&many, &many, &many);
        assert_eq!(found.len(), THREADS_MAX);
        assert!(found.iter().all(|share| share.cpus.len() == 8));
        let queues: Vec<_> = found.iter().flat_map(|share| &share.queues).collect();
        assert_eq!(queues.len(), 128);
        assert!(queues.iter().all(|(_, depth)| *depth == DEPTH_MIN));
    }
}
