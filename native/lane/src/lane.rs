//! One mount's lane as its user sees it, and the life of its threads: those of the device, those of
//! rings, and one that looks after interrupted callers.
//!
//! `start` prepares rings, if they are wanted, before any thread reads the device: the kernel's
//! handshake, the first request, says whether they are used. `stop` wakes the device's threads by a
//! signal and joins them; then parked requests have their time; then rings end. If the mount goes
//! by itself, the last thread that takes requests answers the parked ones. A thread that panics
//! outside of a request ends the lane with EIO.
//!
//! Not here: the handling of a request (`route`).

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::thread::JoinHandleExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cowfs_base::sync::{Condvar, Mutex};
use cowfs_base::{Errno, Owners};
use cowfs_fuse_abi::{Header, flag, invalidate_entry, invalidate_inode, opcode, resend};
use cowfs_mounted::Mounted;
use cowfs_survival::Table;

use crate::answer::{Lifetime, RESENT};
use crate::buffer::share_spare;
use crate::caller::is_dying;
use crate::device::{Device, REQUEST_BYTES, Received};
use crate::handshake::Handshake;
use crate::interrupts::Interrupts;
use crate::pages::Pages;
use crate::park::{Park, Tries, Waiting, Wanted};
use crate::passthrough::Passthrough;
use crate::route::Outcome;
use crate::signal::{ignore_wake_signal, wake_signal};
use crate::spin::Spin;
use crate::syncing::Syncing;
use crate::uring::ring::Ring;
use crate::uring::{Share, Uring};

const THREADS_MAX: usize = 2;

/// How requests and replies travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// Reads and writes of the device.
    #[default]
    Device,
    /// FUSE over io_uring; `Lane::start` fails where this process may not.
    Uring,
}

/// How to answer.
#[derive(Clone, Default)]
pub struct Options {
    /// How long the kernel may believe attributes.
    pub attr_ns: u64,
    /// How long the kernel may cache names, including names that do not exist.
    pub entry_ns: u64,
    /// How long names of directories.
    pub dir_entry_ns: u64,
    /// Whether the kernel may read files of a read-only mount from local files by itself, if it
    /// can.
    pub passthrough: bool,
    /// Whether a thread may spin on a processor while requests follow each other closely, if that
    /// pays.
    pub spins: bool,
    /// The transport of requests after the handshake, which always goes over the device.
    pub transport: Transport,
    /// Whom the mount shows in whose place.
    pub owners: Owners,
    /// The earlier agreement, for a descriptor whose INIT has been answered; None: the kernel asks
    /// first, unless `table` has it.
    pub handshake: Option<Handshake>,
    /// Another server may go on with the mount if this one is killed, and gets this table: no
    /// request is to get EIO by that. It takes 2 MiB of locked memory for each thread that reads
    /// the device.
    pub table: Option<Arc<Table>>,
}

/// One mount's lane. Every method may be called from any thread.
pub struct Lane {
    shared: Arc<Shared>,
    transport: Transport,
    threads: Mutex<Vec<JoinHandle<()>>>,
    ring_threads: Mutex<Vec<JoinHandle<()>>>,
    callers_thread: Mutex<Option<JoinHandle<()>>>,
}

pub(crate) struct Shared {
    pub files: Arc<Mounted>,
    pub lifetime: Lifetime,
    pub owners: Owners,
    /// For the server that may go on with the mount.
    pub table: Option<Arc<Table>>,
    pub device: Device,
    pub passthrough: Passthrough,
    pub uring: Uring,
    pub spin: Spin,
    pub park: Park,
    pub interrupts: Interrupts,
    pub syncing: Syncing,
    /// Set once requests are answered: the kernel's handshake has been made, and rings are
    /// registered if there are any.
    handshake: OnceLock<Handshake>,
    is_stopping: AtomicBool,
    /// The errno of a device that failed; 0: none did.
    failure: AtomicI32,
    /// How many threads may still be sent requests again.
    repeating: AtomicUsize,
    /// How many threads are left that take requests.
    running: Mutex<usize>,
    /// For changes of `running`, `failure` and `handshake`.
    changed: Condvar,
}

impl Lane {
    /// Takes over the device, which is mounted. InvalidInput, with the reason, for a handshake that
    /// this lane cannot continue.
    pub fn new(files: Arc<Mounted>, device: OwnedFd, options: &Options) -> io::Result<Lane> {
        let handshake = OnceLock::new();
        let table = options.table.clone();
        if table.is_some() && (options.passthrough || options.transport != Transport::Device) {
            let reason = "a mount that is continued uses the device alone";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let earlier = table.as_ref().and_then(|table| table.handshake());
        let earlier = earlier.map(Handshake::from_numbers).transpose()?;
        if let Some(agreed) = options.handshake.or(earlier) {
            agreed.check(files.engine().is_read_only(), options.transport)?;
            handshake.get_or_init(|| agreed);
        }
        if let Some(table) = &table {
            files.keep_attachments(table.clone());
        }
        let passthrough = Passthrough::new(options.passthrough && files.engine().is_read_only());
        let shared = Shared {
            files,
            lifetime: Lifetime {
                attr_ns: options.attr_ns,
                entry_ns: options.entry_ns,
                dir_entry_ns: options.dir_entry_ns,
            },
            owners: options.owners,
            table,
            uring: Uring::default(),
            spin: Spin::new(options.spins),
            device: Device::new(device)?,
            passthrough,
            park: Park::default(),
            interrupts: Interrupts::default(),
            syncing: Syncing::default(),
            handshake,
            is_stopping: AtomicBool::new(false),
            failure: AtomicI32::new(0),
            repeating: cores().min(THREADS_MAX).into(),
            running: Mutex::new(0),
            changed: Condvar::new(),
        };
        Ok(Lane {
            shared: Arc::new(shared),
            transport: options.transport,
            threads: Mutex::default(),
            ring_threads: Mutex::default(),
            callers_thread: Mutex::default(),
        })
    }

    /// Starts answering; the kernel's handshake is the first request, unless it has been made.
    /// Fails when rings are demanded and cannot be had.
    pub fn start(&self) -> io::Result<()> {
        ignore_wake_signal()?;
        self.shared.syncing.start()?;
        self.start_looking()?;
        if self.transport == Transport::Uring {
            self.start_rings()?;
        }
        if self.shared.handshake.get().is_some() {
            self.ask_again();
        }
        let mut threads = self.threads.lock();
        for _ in 0..cores().min(THREADS_MAX) {
            let shared = self.shared.clone();
            let buffer = Pages::new(REQUEST_BYTES, self.shared.is_continued())?;
            *self.shared.running.lock() += 1;
            let started = std::thread::Builder::new()
                .name("lane".into())
                .spawn(move || shared.serve(buffer));
            match started {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    *self.shared.running.lock() -= 1;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Makes the kernel send the requests again that an earlier server took and did not answer.
    /// Before this lane takes any: those would come twice.
    fn ask_again(&self) {
        // Before Linux 6.9 the kernel does not know the notice; after a clean end of the server
        // there are no such requests.
        let _ = self.shared.device.send(&resend(), []);
    }

    /// Starts the thread that looks after interrupted callers.
    fn start_looking(&self) -> io::Result<()> {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new()
            .name("lane-callers".into())
            .spawn(move || shared.look_after_callers())?;
        *self.callers_thread.lock() = Some(thread);
        Ok(())
    }

    /// Prepares one ring a thread; none is left when one of them fails.
    fn start_rings(&self) -> io::Result<()> {
        let rings = &self.shared.uring;
        let mut threads = self.ring_threads.lock();
        let started = rings
            .plan()?
            .into_iter()
            .enumerate()
            .try_for_each(|(number, share)| {
                let shared = self.shared.clone();
                let thread = std::thread::Builder::new()
                    .name("lane-ring".into())
                    .spawn(move || shared.serve_ring(number, &share))?;
                threads.push(thread);
                Ok(())
            });
        let prepared = started.and_then(|()| rings.wait_until_prepared());
        if prepared.is_err() {
            rings.end();
            threads.drain(..).for_each(|thread| drop(thread.join()));
        }
        prepared
    }

    /// Waits until the kernel has finished its handshake, from when on requests are answered.
    /// Returns the agreed values; None if the lane ended before.
    pub fn handshake(&self) -> Option<Handshake> {
        let mut running = self.shared.running.lock();
        loop {
            let agreed = self.shared.handshake.get().copied();
            let is_over = *running == 0 || self.shared.failure.load(Ordering::Acquire) != 0;
            if agreed.is_some() || is_over {
                return agreed;
            }
            self.shared.changed.wait(&mut running);
        }
    }

    /// Whether requests come over io_uring; known after the handshake.
    pub fn is_over_uring(&self) -> bool {
        self.shared.uring.is_serving()
    }

    /// Waits until the lane has ended or cannot continue; returns the errno of a failed device.
    pub fn wait(&self) -> Result<(), Errno> {
        let mut running = self.shared.running.lock();
        loop {
            match self.shared.failure.load(Ordering::Acquire) {
                0 if *running == 0 => return Ok(()),
                0 => self.shared.changed.wait(&mut running),
                errno => return Err(Errno(errno)),
            }
        }
    }

    /// Ends the lane: it takes no more requests. Parked requests have `grace` to be answered, then
    /// they get EIO. The kernel still has the mount, and its requests wait until another server
    /// reads the descriptor, or the last one closes it.
    pub fn stop(&self, grace: Duration) {
        self.shared.is_stopping.store(true, Ordering::Release);
        for thread in self.threads.lock().drain(..) {
            while !thread.is_finished() {
                // SAFETY: the thread has not been joined, so its handle is valid; the signal's
                // handler does nothing.
                unsafe { libc::pthread_kill(thread.as_pthread_t(), wake_signal()) };
                std::thread::sleep(Duration::from_millis(1));
            }
            // A panic has been counted and reported by the thread's own hook.
            let _ = thread.join();
        }
        let deadline = Instant::now() + grace;
        while self.shared.has_unanswered() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.shared.let_go_of_everything();
        self.shared.uring.end();
        let rings = std::mem::take(&mut *self.ring_threads.lock());
        let callers = self.callers_thread.lock().take();
        for thread in rings.into_iter().chain(callers) {
            let _ = thread.join();
        }
    }

    /// Waits for the next need; None once the lane has ended.
    pub fn next_wanted(&self) -> Option<Wanted> {
        self.shared.park.next()
    }

    /// All parked requests, so that a caller can find those whose need is not being served.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.shared.park.waiting()
    }

    /// Makes a parked request's call again. Should it be parked again, an interrupt that came
    /// before still counts.
    pub fn resume(&self, unique: u64) {
        if let Some(parked) = self.shared.park.take(unique)
            && let Outcome::Answered(answer) =
                self.shared.handle(&parked.message, parked.tries, None)
        {
            self.shared.interrupts.unwatch(unique);
            self.shared.deliver(unique, answer);
        }
        share_spare(); // the caller's many threads load, the lane's own answer most reads
    }

    /// Answers a parked request with an error.
    pub fn fail(&self, unique: u64, errno: Errno) {
        if self.shared.park.take(unique).is_some() {
            self.shared.interrupts.unwatch(unique);
            self.shared.refuse(unique, errno);
        }
    }

    /// Makes the kernel write back and drop every page of an inode. Returns when the writes have
    /// been answered, so it must not be called by a thread the lane or the engine waits for.
    /// ENOENT: the kernel does not know the inode.
    pub fn invalidate_inode(&self, ino: u64) -> Result<(), Errno> {
        self.shared.device.send(&invalidate_inode(ino), [])
    }

    /// Makes the kernel forget what a name of a directory leads to, or that it leads nowhere. Waits
    /// for requests about that directory, so it must not be called by a thread that one of them
    /// waits for. ENOENT: the kernel does not know the name or the directory.
    pub fn invalidate_entry(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        self.shared.device.send(&invalidate_entry(parent, name), [])
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

impl Shared {
    fn serve(self: Arc<Shared>, mut buffer: Pages) {
        let _counted = Counted(&self);
        let thread = self.spin.enter();
        let mut may_repeat = true;
        while !self.is_stopping() {
            match self.device.receive(&mut buffer) {
                Ok(Received::Request(length)) => {
                    let outcome = self.handle(&buffer[..length], Tries::default(), None);
                    if may_repeat && is_new(&buffer[..length]) {
                        may_repeat = false;
                        self.note_last_repeated();
                    }
                    if let Outcome::Answered(answer) = outcome {
                        if let (Some(table), Some(agreed)) = (&self.table, answer.agreed) {
                            table.set_handshake(agreed.to_numbers());
                        }
                        let is_taken = self.send(&answer);
                        if let Some(agreed) = answer.agreed
                            && is_taken
                        {
                            self.begin(agreed);
                        }
                        if self.is_to_keep_near(&buffer[..length], &answer) {
                            thread.keep(|| self.is_stopping());
                        }
                    }
                }
                Ok(Received::Nothing) => {}
                Ok(Received::Gone) => return,
                Err(error) => {
                    self.failure.store(Errno::from(error).0, Ordering::Release);
                    return;
                }
            }
        }
    }

    /// This thread has handled all requests that it was sent again: the kernel sends those first.
    fn note_last_repeated(&self) {
        if self.repeating.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.files.engine().forget_earlier_requests();
        }
    }

    /// The handshake is done: the rings are filled, if there are to be any.
    fn begin(&self, agreed: Handshake) {
        if agreed.flags & flag::OVER_IO_URING != 0 {
            self.uring.begin();
        } else {
            self.uring.end();
        }
        let _running = self.running.lock(); // so that no thread is between looking and waiting
        self.handshake.get_or_init(|| agreed); // the kernel asks once
        self.changed.notify_all();
    }

    /// The life of a ring, on its own thread.
    fn serve_ring(self: Arc<Shared>, number: usize, share: &Share) {
        let ring = Ring::new(number, share, self.device.descriptor(), &self.uring);
        let Some(mut ring) = self.uring.prepared(ring) else {
            return;
        };
        // A device thread is there and waits for the registration, so the count has not been zero.
        *self.running.lock() += 1;
        let _counted = Counted(&self);
        self.uring.registered(ring.register());
        if let Err(error) = ring.serve(&self) {
            self.failure.store(Errno::from(error).0, Ordering::Release);
        }
    }

    /// Whether another server may go on with the mount.
    pub(crate) fn is_continued(&self) -> bool {
        self.table.is_some()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Answers requests that wait, and whose callers are about to die, until the lane ends.
    fn look_after_callers(&self) {
        while let Some(watched) = self.interrupts.next() {
            // A look that panics is lost; the hook has reported it, and the next one needs this
            // thread.
            let look = AssertUnwindSafe(|| watched.into_iter().for_each(|it| self.look_after(it)));
            let _ = catch_unwind(look);
        }
    }

    fn look_after(&self, unique: u64) {
        match self.park.caller(unique) {
            Some(pid) if is_dying(pid) => {
                if self.park.take(unique).is_some() {
                    self.refuse(unique, Errno(libc::EINTR));
                }
                self.interrupts.unwatch(unique);
            }
            Some(_) => self.interrupts.keep_watching(unique),
            None => {}
        }
    }

    fn has_unanswered(&self) -> bool {
        !self.park.is_empty() || self.uring.has_held()
    }

    fn let_go_of_everything(&self) {
        self.interrupts.close();
        for (unique, _) in self.park.close() {
            self.refuse(unique, Errno::EIO);
        }
    }
}

/// Whether the kernel sends this for the first time, behind all that it sends again. What has a
/// queue of its own says nothing.
fn is_new(message: &[u8]) -> bool {
    let apart = [opcode::FORGET, opcode::BATCH_FORGET, opcode::INTERRUPT];
    Header::parse(message)
        .is_some_and(|(header, _)| header.unique & RESENT == 0 && !apart.contains(&header.opcode))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Counts a thread out that takes requests, however it ends.
struct Counted<'a>(&'a Shared);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.failure.store(libc::EIO, Ordering::Release);
        }
        let mut running = self.0.running.lock();
        *running -= 1;
        let is_last = *running == 0;
        drop(running);
        // A lane that is being stopped gives them some time.
        if is_last && !self.0.is_stopping.load(Ordering::Acquire) {
            self.0.let_go_of_everything();
        }
        self.0.changed.notify_all();
    }
}
