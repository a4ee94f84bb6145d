//! The relay to the other FUSE server, for which the lane is the kernel. Requests and replies
//! travel unchanged over a SEQPACKET socket, one message each.
//!
//! Sends never block: a message that does not fit into the socket waits in a queue. One thread
//! sends, receives, and checks whether callers of forwarded or parked requests are dying. If the
//! kernel does not want a relayed reply, its counts and handles are undone; the other server
//! raised them in the same engine.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cowfs_base::Errno;
use cowfs_fuse_abi::{Header, ReplyHeader, encode_init, flag, opcode};
use parking_lot::Mutex;

/// The number of the handshake; the kernel's begin at 2 and are even.
const INIT_UNIQUE: u64 = 1;
/// What the other server is told: an old protocol without splicing and notifications.
const MINOR: u32 = 13;
/// pyfuse3 refuses a kernel that does not offer READDIRPLUS.
const FEATURES: u32 = (flag::ASYNC_READ
    | flag::BIG_WRITES
    | flag::DONT_MASK
    | flag::DO_READDIRPLUS
    | flag::PARALLEL_DIROPS) as u32;
const MAX_READAHEAD: u32 = 128 << 10;
/// File data does not pass the pair, and pyfuse3 lists with attributes only.
const NEVER_FORWARDED: [u32; 3] = [opcode::READ, opcode::WRITE, opcode::READDIR];
/// Largest reply: a listing of the size the kernel asks for.
pub(crate) const REPLY_BYTES: usize = 1 << 20;
/// How often interrupted callers are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOKS_MAX: u32 = 10;

pub(crate) struct Relay {
    socket: OwnedFd,
    wake: OwnedFd,
    forwarded: Vec<u32>,
    state: Mutex<State>,
    is_closed: AtomicBool,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Vec<u8>>,
    outstanding: HashMap<u64, Outstanding>,
    /// Requests whose callers were interrupted, and how often nobody was found to wait for them.
    interrupted: Vec<(u64, u32)>,
    /// When they are to be looked at next.
    look_at: Option<Instant>,
}

struct Outstanding {
    opcode: u32,
    pid: u32,
    is_let_go: bool,
}

/// What the relay's thread has to do next.
pub(crate) enum Event {
    Reply(usize),
    Look,
    Closed,
}

impl Relay {
    /// `forwarded`: the operations that the other server answers.
    pub fn new(socket: OwnedFd, forwarded: &[u32]) -> io::Result<Relay> {
        // SAFETY: eventfd takes no pointers; the descriptor it returns is owned here.
        let wake = unsafe {
            let raw = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if raw < 0 {
                return Err(io::Error::last_os_error());
            }
            std::os::fd::FromRawFd::from_raw_fd(raw)
        };
        Ok(Relay {
            socket,
            wake,
            forwarded: forwarded
                .iter()
                .copied()
                .filter(|number| !NEVER_FORWARDED.contains(number))
                .collect(),
            state: Mutex::default(),
            is_closed: AtomicBool::new(false),
        })
    }

    pub fn forwards(&self, number: u32) -> bool {
        self.forwarded.contains(&number)
    }

    /// Begins the other server's session.
    pub fn shake_hands(&self) {
        let message = encode_init(INIT_UNIQUE, MINOR, MAX_READAHEAD, FEATURES);
        self.state.lock().queue.push_back(message);
        self.wake();
    }

    /// EIO once the other server is gone.
    pub fn forward(&self, header: &Header, message: &[u8]) -> Result<(), Errno> {
        let outstanding = Outstanding {
            opcode: header.opcode,
            pid: header.pid,
            is_let_go: false,
        };
        let mut state = self.state.lock();
        // Under the lock: what comes in after `close` has looked would never be answered.
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Errno::EIO);
        }
        state.outstanding.insert(header.unique, outstanding);
        state.queue.push_back(message.to_vec());
        drop(state);
        self.wake();
        Ok(())
    }

    fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes from a live array into an eventfd that we own. It can only fail by being full: awake already.
        unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    /// The caller of a request was interrupted: it is looked at until it dies or the request is answered.
    pub fn watch(&self, unique: u64) {
        let mut state = self.state.lock();
        state.interrupted.push((unique, 0));
        state.look_at.get_or_insert(Instant::now() + LOOK_EVERY);
        drop(state);
        self.wake();
    }

    pub fn unwatch(&self, unique: u64) {
        self.state
            .lock()
            .interrupted
            .retain(|(watched, _)| *watched != unique);
    }

    /// What is watched, without requests that nobody has been waiting for in some time: a device thread may just be about
    /// to park or forward one.
    pub fn watched(&self) -> Vec<u64> {
        let mut state = self.state.lock();
        for (_, looks) in &mut state.interrupted {
            *looks += 1;
        }
        state.interrupted.retain(|(_, looks)| *looks <= LOOKS_MAX);
        let is_watching = !state.interrupted.is_empty();
        state.look_at = is_watching.then(|| Instant::now() + LOOK_EVERY);
        state
            .interrupted
            .iter()
            .map(|(unique, _)| *unique)
            .collect()
    }

    /// Somebody does wait.
    pub fn keep_watching(&self, unique: u64) {
        let mut state = self.state.lock();
        if let Some((_, looks)) = state
            .interrupted
            .iter_mut()
            .find(|(watched, _)| *watched == unique)
        {
            *looks = 0;
        }
    }

    pub fn has_outstanding(&self) -> bool {
        self.state
            .lock()
            .outstanding
            .values()
            .any(|request| !request.is_let_go)
    }

    /// Who waits for a forwarded request.
    pub fn caller(&self, unique: u64) -> Option<u32> {
        let state = self.state.lock();
        let request = state.outstanding.get(&unique)?;
        (!request.is_let_go).then_some(request.pid)
    }

    /// The request's reply will be dropped when it comes. True: the request may be answered EINTR now; one that changes
    /// something is not, since it may have happened.
    pub fn let_go(&self, unique: u64) -> bool {
        match self.state.lock().outstanding.get_mut(&unique) {
            Some(request) if !request.is_let_go && changes_nothing(request.opcode) => {
                request.is_let_go = true;
                true
            }
            _ => false,
        }
    }

    /// What a reply answers: the operation, and whether the kernel still wants it. None: nothing, or the handshake.
    pub fn settle(&self, reply: &ReplyHeader) -> Option<(u32, bool)> {
        let request = self.state.lock().outstanding.remove(&reply.unique)?;
        Some((request.opcode, !request.is_let_go))
    }

    /// Sends what waits, and waits for something to do. One thread only.
    pub fn next(&self, buffer: &mut [u8]) -> Event {
        loop {
            if self.is_closed.load(Ordering::Acquire) {
                return Event::Closed;
            }
            let has_more = self.send_queued();
            // However busy the pair is, whoever is about to die does not wait longer.
            let look_at = self.state.lock().look_at;
            let patience = look_at.map(|at| at.saturating_duration_since(Instant::now()));
            if patience == Some(Duration::ZERO) {
                return Event::Look;
            }
            let out = if has_more { libc::POLLOUT } else { 0 };
            let mut polled = [
                libc::pollfd {
                    fd: self.socket.as_raw_fd(),
                    events: libc::POLLIN | out,
                    revents: 0,
                },
                libc::pollfd {
                    fd: self.wake.as_raw_fd(),
                    events: libc::POLLIN,
                    revents: 0,
                },
            ];
            let timeout_ms = patience.map_or(-1, |left| left.as_millis() as i32 + 1);
            // SAFETY: two live pollfd structures, and their number.
            let ready = unsafe { libc::poll(polled.as_mut_ptr(), 2, timeout_ms) };
            if polled[1].revents != 0 {
                let mut count = [0u8; 8];
                // SAFETY: eight bytes into a live array.
                unsafe {
                    libc::read(
                        self.wake.as_raw_fd(),
                        count.as_mut_ptr().cast(),
                        count.len(),
                    )
                };
            }
            if ready <= 0 {
                continue;
            }
            if polled[0].revents & (libc::POLLIN | libc::POLLHUP | libc::POLLERR) != 0
                && let Some(event) = self.receive(buffer)
            {
                return event;
            }
        }
    }

    fn receive(&self, buffer: &mut [u8]) -> Option<Event> {
        // SAFETY: at most the buffer's length is written into it.
        let length = unsafe {
            libc::recv(
                self.socket.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                libc::MSG_DONTWAIT,
            )
        };
        match length {
            0 => Some(Event::Closed),
            1.. => Some(Event::Reply(length as usize)),
            _ => match io::Error::last_os_error().raw_os_error() {
                Some(libc::EAGAIN | libc::EINTR) => None,
                _ => Some(Event::Closed),
            },
        }
    }

    /// Returns whether something is left.
    fn send_queued(&self) -> bool {
        let mut state = self.state.lock();
        while let Some(message) = state.queue.front() {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: the message's own bytes are read.
            let sent = unsafe {
                libc::send(
                    self.socket.as_raw_fd(),
                    message.as_ptr().cast(),
                    message.len(),
                    flags,
                )
            };
            if sent < 0 {
                match io::Error::last_os_error().raw_os_error() {
                    Some(libc::EAGAIN | libc::ENOBUFS) => return true,
                    Some(libc::EINTR) => continue,
                    // The other server is gone; `receive` will say so.
                    _ => {}
                }
            }
            state.queue.pop_front();
        }
        false
    }

    /// Nothing is forwarded from now on; the requests that will not be answered, by number.
    pub fn close(&self) -> Vec<u64> {
        let mut state = self.state.lock();
        self.is_closed.store(true, Ordering::Release);
        self.wake();
        state.queue.clear();
        let outstanding = std::mem::take(&mut state.outstanding);
        outstanding
            .into_iter()
            .filter_map(|(unique, request)| (!request.is_let_go).then_some(unique))
            .collect()
    }
}

fn changes_nothing(number: u32) -> bool {
    matches!(
        number,
        opcode::LOOKUP
            | opcode::GETATTR
            | opcode::READLINK
            | opcode::STATFS
            | opcode::GETXATTR
            | opcode::LISTXATTR
            | opcode::READDIR
            | opcode::READDIRPLUS
            | opcode::OPENDIR
            | opcode::FSYNC
            | opcode::FSYNCDIR
    )
}

#[cfg(test)]
mod tests {
    use std::os::fd::FromRawFd;
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use super::*;

    fn relay() -> (Relay, OwnedFd) {
        let mut ends = [0; 2];
        // SAFETY: the kernel fills an array of two; each descriptor is owned by one value from then on.
        let (ours, theirs) = unsafe {
            let made = libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, ends.as_mut_ptr());
            assert_eq!(made, 0);
            (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
        };
        (Relay::new(ours, &[opcode::STATFS]).unwrap(), theirs)
    }

    fn header(unique: u64) -> Header {
        let message = encode_init(unique, 0, 0, 0);
        Header::parse(&message).unwrap().0
    }

    #[test]
    fn callers_are_looked_after_while_the_pair_is_busy() {
        let (relay, theirs) = relay();
        relay.watch(2);
        let mut buffer = [0; 64];
        for _ in 0..1_000_000 {
            // SAFETY: one byte of a live array is read.
            unsafe { libc::send(theirs.as_raw_fd(), [0u8].as_ptr().cast(), 1, 0) };
            if matches!(relay.next(&mut buffer), Event::Look) {
                return;
            }
        }
        panic!("nobody looked");
    }

    #[test]
    fn a_request_is_answered_or_refused_when_the_other_server_ends() {
        for _ in 0..500 {
            let (relay, _theirs) = relay();
            let accepted = AtomicU64::new(0);
            thread::scope(|scope| {
                scope.spawn(|| {
                    for unique in 2..200 {
                        let taken = relay.forward(&header(unique), &[0]).is_ok();
                        accepted.fetch_add(u64::from(taken), Ordering::Relaxed);
                    }
                });
                let given_back = relay.close().len() as u64;
                accepted.fetch_sub(given_back, Ordering::Relaxed);
            });
            assert_eq!(accepted.load(Ordering::Relaxed), 0);
        }
    }
}
