//! The lane's threads, and the way of a request through it.

use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::thread::JoinHandleExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cowfs_base::Errno;
use cowfs_engine::{Engine, Error};
use cowfs_fuse_abi::{
    Header, Operation, Reply, ReplyHeader, invalidate_inode, listed_nodes, opcode,
    reply_file_handle, reply_node,
};
use parking_lot::{Condvar, Mutex};

use crate::answer::{Answer, Lifetime};
use crate::caller::is_dying;
use crate::device::{Device, REQUEST_BYTES, Received};
use crate::park::{Need, Park, Parked, Tries, Wanted};
use crate::passthrough::Passthrough;
use crate::relay::{Event, REPLY_BYTES, Relay, interrupted};
use crate::syncing::Syncing;

/// A path component, a directory, contents, then chunks that push each other out of a small cache: a handful is usual.
const LOADS_MAX: u32 = 64;
const THREADS_MAX: usize = 2;
/// What a reply may say went wrong: `fuse_dev_do_write` refuses anything else.
const ERRNOS: Range<i32> = 1..512;

/// How to answer.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// How long the kernel may believe attributes.
    pub attr_ns: u64,
    /// How long names, also those that lead nowhere.
    pub entry_ns: u64,
    /// How long names of directories.
    pub dir_entry_ns: u64,
    /// Operations (`cowfs_fuse_abi::opcode`) that the other server answers; READ, WRITE and READDIR never are.
    pub forwarded: Vec<u32>,
    /// Whether the kernel may read files of a read-only mount from local files by itself, if it can.
    pub passthrough: bool,
}

/// One mount's lane. Every method may be called from any thread.
pub struct Lane {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

pub(crate) struct Shared {
    pub engine: Arc<Engine>,
    pub lifetime: Lifetime,
    pub device: Device,
    pub passthrough: Passthrough,
    park: Park,
    relay: Relay,
    pub syncing: Syncing,
    is_stopping: AtomicBool,
    /// The errno of a device that failed; 0: none did.
    failure: AtomicI32,
    /// How many device threads are left.
    running: Mutex<usize>,
    ended: Condvar,
}

impl Lane {
    /// Takes over the device, which is mounted, and the lane's end of the socket pair.
    pub fn new(
        engine: Arc<Engine>,
        device: OwnedFd,
        relay: OwnedFd,
        options: &Options,
    ) -> io::Result<Lane> {
        let passthrough = Passthrough::new(options.passthrough && engine.is_read_only());
        let shared = Shared {
            engine,
            lifetime: Lifetime {
                attr_ns: options.attr_ns,
                entry_ns: options.entry_ns,
                dir_entry_ns: options.dir_entry_ns,
            },
            device: Device::new(device)?,
            passthrough,
            park: Park::default(),
            relay: Relay::new(relay, &options.forwarded)?,
            syncing: Syncing::default(),
            is_stopping: AtomicBool::new(false),
            failure: AtomicI32::new(0),
            running: Mutex::new(0),
            ended: Condvar::new(),
        };
        Ok(Lane {
            shared: Arc::new(shared),
            threads: Mutex::default(),
        })
    }

    /// Starts answering; the kernel's handshake is the first request.
    pub fn start(&self) -> io::Result<()> {
        ignore_wake_signal()?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut threads = self.threads.lock();
        for _ in 0..cores.min(THREADS_MAX) {
            let shared = self.shared.clone();
            *self.shared.running.lock() += 1;
            let started = std::thread::Builder::new()
                .name("lane".into())
                .spawn(move || shared.serve());
            match started {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    *self.shared.running.lock() -= 1;
                    return Err(error);
                }
            }
        }
        let shared = self.shared.clone();
        std::thread::Builder::new()
            .name("lane-relay".into())
            .spawn(move || shared.relay_replies())
            .map(drop)
    }

    /// Waits until the lane has ended; the errno of a device that failed.
    pub fn wait(&self) -> Result<(), Errno> {
        let mut running = self.shared.running.lock();
        while *running > 0 {
            self.shared.ended.wait(&mut running);
        }
        match self.shared.failure.load(Ordering::Acquire) {
            0 => Ok(()),
            errno => Err(Errno(errno)),
        }
    }

    /// Ends the lane: no request is taken any more; those that are parked or forwarded have `grace` to be answered, then they
    /// get EIO.
    pub fn stop(&self, grace: Duration) {
        self.shared.is_stopping.store(true, Ordering::Release);
        for thread in self.threads.lock().drain(..) {
            while !thread.is_finished() {
                // SAFETY: the thread has not been joined, so its handle is valid; the signal's handler does nothing.
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
    }

    /// Waits for the next thing that must be loaded; None once the lane has ended.
    pub fn next_wanted(&self) -> Option<Wanted> {
        self.shared.park.next()
    }

    /// Makes a parked request's call again.
    pub fn resume(&self, unique: u64) {
        if let Some(parked) = self.shared.park.take(unique) {
            self.shared.relay.unwatch(unique);
            self.shared.handle(&parked.message, parked.tries);
        }
    }

    /// Answers a parked request with an error.
    pub fn fail(&self, unique: u64, errno: Errno) {
        if self.shared.park.take(unique).is_some() {
            self.shared.relay.unwatch(unique);
            self.shared.refuse(unique, errno);
        }
    }

    /// Makes the kernel write back and drop every page of an inode. Returns when the writes have been answered, so it must
    /// not be called by a thread the lane or the engine waits for. ENOENT: the kernel does not know the inode.
    pub fn invalidate_inode(&self, ino: u64) -> Result<(), Errno> {
        self.shared.device.send(&invalidate_inode(ino), &[])
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

impl Shared {
    fn serve(self: Arc<Shared>) {
        let _counted = Counted(&self);
        let mut buffer = vec![0; REQUEST_BYTES];
        while !self.is_stopping.load(Ordering::Acquire) {
            match self.device.receive(&mut buffer) {
                Ok(Received::Request(length)) => self.handle(&buffer[..length], Tries::default()),
                Ok(Received::Nothing) => {}
                Ok(Received::Gone) => return,
                Err(error) => {
                    self.failure.store(Errno::from(error).0, Ordering::Release);
                    return;
                }
            }
        }
    }

    /// Handles a request; a panic is answered EIO, since a caller without an answer waits for ever.
    fn handle(self: &Arc<Shared>, message: &[u8], tries: Tries) {
        let Some((header, body)) = Header::parse(message) else {
            return;
        };
        let way = AssertUnwindSafe(|| self.pass(&header, body, message, tries));
        if catch_unwind(way).is_err() {
            self.refuse(header.unique, Errno::EIO);
        }
    }

    /// The way of a request: forwarded, or answered, or parked.
    fn pass(self: &Arc<Shared>, header: &Header, body: &[u8], message: &[u8], tries: Tries) {
        if self.relay.forwards(header.opcode) {
            if let Err(errno) = self.relay.forward(header, message) {
                self.refuse(header.unique, errno);
            }
            return;
        }
        let Some(operation) = Operation::parse(header.opcode, body) else {
            return self.refuse(header.unique, Errno::EIO);
        };
        match operation {
            Operation::Interrupt { unique } => self.relay.watch(unique),
            Operation::Forget { count } => self.forget(header.nodeid, count),
            Operation::BatchForget(forgets) => {
                forgets.for_each(|(node, count)| self.forget(node, count))
            }
            Operation::Fsync { fh, datasync } => {
                self.sync(header.unique, move |engine| engine.fsync(fh, datasync));
            }
            Operation::FsyncDir | Operation::SyncFs => self.sync(header.unique, Engine::sync),
            _ => match self.answer(header, operation) {
                Ok(answer) => {
                    self.reply(&answer);
                    if header.opcode == opcode::INIT {
                        self.relay.shake_hands();
                    }
                }
                Err(error) => self.put_off(header, message, tries, error),
            },
        }
    }

    /// Parks what can be answered later; anything else is refused.
    fn put_off(&self, header: &Header, message: &[u8], mut tries: Tries, error: Error) {
        let (need, errno) = match error {
            Error::NotResident(missing) if tries.loads < LOADS_MAX => {
                tries.loads += 1;
                (Need::Resident(missing), Errno::EIO)
            }
            Error::Os(Errno::ENOSPC) if !tries.asked_for_space => {
                tries.asked_for_space = true;
                (Need::Space, Errno::ENOSPC)
            }
            Error::Os(errno) => return self.refuse(header.unique, errno),
            _ => return self.refuse(header.unique, Errno::EIO),
        };
        let parked = Parked {
            message: message.to_vec(),
            tries,
        };
        if !self.park.park(header.unique, parked, need) {
            self.refuse(header.unique, errno);
        }
    }

    fn sync(
        self: &Arc<Shared>,
        unique: u64,
        call: impl FnOnce(&Engine) -> cowfs_engine::Result<()> + Send + 'static,
    ) {
        let shared = self.clone();
        self.syncing.run(
            move || match catch_unwind(AssertUnwindSafe(|| call(&shared.engine))) {
                Ok(Ok(())) => drop(shared.device.send(&Reply::new(unique).finish(0), &[])),
                Ok(Err(Error::Os(errno))) => shared.refuse(unique, errno),
                _ => shared.refuse(unique, Errno::EIO),
            },
        );
    }

    fn reply(&self, answer: &Answer) {
        if self.device.send(&answer.message, &answer.data).is_err() {
            self.take_back(answer.node, answer.fh);
            answer.listed.iter().for_each(|node| self.forget(*node, 1));
        }
    }

    /// The kernel never got the reply that raised a count or opened a handle.
    fn take_back(&self, node: Option<u64>, fh: Option<u64>) {
        if let Some(fh) = fh {
            // Nobody can have closed it: nobody knows it.
            let _ = self.close(fh);
        }
        if let Some(node) = node {
            self.forget(node, 1);
        }
    }

    fn forget(&self, node: u64, count: u64) {
        // It fails on a closed engine only, where no count matters any more.
        let _ = self.engine.forget(node, count);
    }

    fn refuse(&self, unique: u64, errno: Errno) {
        // The kernel takes no reply with another number, and whoever asked would wait for ever.
        let errno = if ERRNOS.contains(&errno.0) {
            errno
        } else {
            Errno::EIO
        };
        // When it fails nobody waits any more.
        let _ = self
            .device
            .send(&Reply::error(unique, errno.0).finish(0), &[]);
    }

    fn release_caller(&self, unique: u64) {
        if self.park.take(unique).is_some() || self.relay.let_go(unique) {
            let _ = self.device.send(&interrupted(unique), &[]);
        }
        self.relay.unwatch(unique);
    }

    fn relay_replies(&self) {
        let mut buffer = vec![0; REPLY_BYTES];
        loop {
            match self.relay.next(&mut buffer) {
                Event::Reply(length) => self.relay_reply(&buffer[..length]),
                Event::Look => self.look_after_callers(),
                Event::Closed => break,
            }
        }
        self.relay
            .close()
            .into_iter()
            .for_each(|unique| self.refuse(unique, Errno::EIO));
    }

    fn relay_reply(&self, message: &[u8]) {
        let Some((header, body)) = ReplyHeader::parse(message) else {
            return;
        };
        let Some((number, is_wanted)) = self.relay.settle(&header) else {
            return;
        };
        self.relay.unwatch(header.unique);
        if header.error == -libc::ENOSYS {
            // The kernel would never send the operation again, on no file.
            return self.refuse(header.unique, Errno::EOPNOTSUPP);
        }
        if header.error != 0 {
            if is_wanted {
                self.refuse(header.unique, Errno(header.error.saturating_neg()));
            }
            return;
        }
        let is_delivered = is_wanted && self.device.send(message, &[]).is_ok();
        if !is_delivered {
            self.take_back(reply_node(number, body), reply_file_handle(number, body));
            if number == opcode::READDIRPLUS {
                listed_nodes(body)
                    .into_iter()
                    .for_each(|node| self.forget(node, 1));
            }
        }
    }

    fn look_after_callers(&self) {
        for unique in self.relay.watched() {
            match self
                .park
                .caller(unique)
                .or_else(|| self.relay.caller(unique))
            {
                Some(pid) if is_dying(pid) => self.release_caller(unique),
                Some(_) => self.relay.keep_watching(unique),
                None => {}
            }
        }
    }

    fn has_unanswered(&self) -> bool {
        !self.park.is_empty() || self.relay.has_outstanding()
    }

    fn let_go_of_everything(&self) {
        let parked = self.park.close().into_iter().map(|(unique, _)| unique);
        parked
            .chain(self.relay.close())
            .for_each(|unique| self.refuse(unique, Errno::EIO));
    }
}

/// Counts a device thread out, however it ends.
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
        self.0.ended.notify_all();
    }
}

/// Only there to make a blocked read return.
fn wake_signal() -> libc::c_int {
    libc::SIGRTMIN() + 5
}

extern "C" fn nothing(_: libc::c_int) {}

fn ignore_wake_signal() -> io::Result<()> {
    // SAFETY: a zeroed sigaction is a valid one without flags (reads are not restarted); the handler touches nothing.
    let outcome = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(wake_signal(), &action, std::ptr::null_mut())
    };
    if outcome == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
