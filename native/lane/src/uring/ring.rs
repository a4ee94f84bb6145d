//! One ring: entries in memory that the kernel fills with requests, and the thread that answers
//! them.
//!
//! ```text
//! entry i of the arena, at i × STRIDE
//! 0      header (cowfs_fuse_abi::ring)
//! …4096  head: on arrival the request's header and fixed part are copied to end here, so that the message is one piece
//! 4096   payload, PAYLOAD_BYTES
//! ```
//!
//! An entry is the kernel's from REGISTER or COMMIT_AND_FETCH to its completion, and ours from
//! then on. The kernel completes requests, and writes into entries, only inside this thread's
//! io_uring_enter (DEFER_TASKRUN). So after all completions were read, the kernel's entries stay
//! untouched until the next call, and memory that large requests have touched can be given back.
//! All rings together keep at most `KEPT_BYTES` of it, each an equal part. A parked request
//! releases the part of its buffer that the reply does not need.
//!
//! If a commit fails, what its answer counted is undone, as after a failed write to the device.
//! Once the connection is gone, counts no longer matter.

use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use cowfs_base::Errno;
use cowfs_fuse_abi::ring::{self, RING_HEADER_BYTES, RingRequest};
use cowfs_fuse_abi::{REPLY_HEADER_BYTES, Reply};
use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};

use crate::answer::Answer;
use crate::buffer::Data;
use crate::cpus::{bind, this_thread};
use crate::device::MAX_WRITE_BYTES;
use crate::lane::Shared;
use crate::park::Tries;
use crate::route::Outcome;
use crate::uring::{Place, Share, Uring};

/// The kernel wants room for the largest write and for max_pages pages; both are this.
const PAYLOAD_BYTES: usize = MAX_WRITE_BYTES as usize;
const PAYLOAD_AT: usize = 4096;
const STRIDE: usize = PAYLOAD_AT + PAYLOAD_BYTES;
/// Payload memory that all rings together keep when it is not used: a mount has one for each CPU,
/// up to 16.
const KEPT_BYTES: usize = 8 << 20;
/// Payloads up to this size are not worth giving back.
const SMALL_BYTES: usize = 64 << 10;
/// Submissions that can wait for the next call; more of them make a call.
const SUBMISSIONS: u32 = 256;
/// Replies that may wait while further requests of the same completion are answered.
const BATCH: usize = 8;
/// The device's number among the ring's registered files.
const DEVICE: types::Fixed = types::Fixed(0);
const WOKEN: u64 = u64::MAX;

pub(crate) struct Ring {
    // Declared first, dropped first: the kernel releases the memory below.
    uring: IoUring<Entry128, cqueue::Entry>,
    arena: Arena,
    entries: Vec<Entry>,
    number: usize,
    wake: RawFd,
    woken: Box<u64>,
    touched_bytes: usize,
    kept_bytes: usize,
    unsubmitted: usize,
    /// Completions that were read and not looked at: user data and outcome.
    completed: Vec<(u64, i32)>,
}

struct Entry {
    queue: u16,
    /// Header and payload, for REGISTER.
    buffers: [libc::iovec; 2],
    is_ours: bool,
    /// The kernel has taken it once.
    is_registered: bool,
    /// The request in it; 0: none, or answered.
    unique: u64,
    /// What was sent last, without its bytes; the kernel has not said yet that it took it.
    sent: Option<Answer>,
    touched_bytes: usize,
}

impl Ring {
    /// Prepares the calling thread's ring; nothing is registered yet.
    pub fn new(number: usize, share: &Share, device: RawFd, rings: &Uring) -> io::Result<Ring> {
        bind(this_thread(), &share.cpus);
        let count: usize = share.queues.iter().map(|(_, depth)| depth).sum();
        let uring = IoUring::<Entry128>::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_clamp()
            .setup_cqsize((count as u32 + 2).max(SUBMISSIONS).next_power_of_two())
            .build(SUBMISSIONS)?;
        uring.submitter().register_files(&[device])?;
        let arena = Arena::new(count)?;
        let queues = share.queues.iter();
        let entries = queues
            .flat_map(|(queue, depth)| std::iter::repeat_n(*queue, *depth))
            .enumerate()
            .map(|(index, queue)| Entry {
                queue,
                buffers: arena.buffers(index),
                is_ours: true,
                is_registered: false,
                unique: 0,
                sent: None,
                touched_bytes: 0,
            })
            .collect();
        Ok(Ring {
            uring,
            arena,
            entries,
            number,
            wake: rings.wake_descriptor(number),
            woken: Box::default(),
            touched_bytes: 0,
            kept_bytes: KEPT_BYTES / rings.count().max(1),
            unsubmitted: 0,
            completed: Vec::new(),
        })
    }

    /// Hands every entry to the kernel, after the handshake; the first refusal.
    pub fn register(&mut self) -> io::Result<()> {
        for index in 0..self.entries.len() {
            self.register_entry(index)?;
        }
        self.submit()?;
        self.drain();
        let refused = self.completed.iter().find(|(_, outcome)| *outcome < 0);
        refused.map_or(Ok(()), |(_, outcome)| {
            Err(io::Error::from_raw_os_error(-outcome))
        })
    }

    /// Answers until the connection is gone or the rings are to end.
    pub fn serve(&mut self, shared: &Arc<Shared>) -> io::Result<()> {
        self.listen()?;
        loop {
            match self.uring.submit_and_wait(1) {
                Ok(_) => self.unsubmitted = 0,
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
            self.drain();
            if self.unsubmitted == 0 && self.touched_bytes > self.kept_bytes {
                self.give_back();
            }
            for (name, outcome) in std::mem::take(&mut self.completed) {
                if name == WOKEN {
                    self.deliver(shared)?;
                    if shared.uring.is_over() {
                        return self.submit();
                    }
                    self.listen()?;
                } else if outcome >= 0 {
                    self.answer(name as usize, shared)?;
                } else if is_gone(-outcome) {
                    return Ok(());
                } else {
                    self.recover(name as usize, shared)?;
                }
                if self.unsubmitted >= BATCH {
                    self.submit()?;
                }
            }
            // Only with every request answered: those that were taken out of the ring are not
            // looked for any more.
            if shared.uring.is_asked_to_keep(self.number) {
                self.submit()?;
                if self.unsubmitted == 0 {
                    shared.spin.keep(|| self.has_completed());
                }
            }
        }
    }

    /// Answers the request in an entry, unless none is taken any more: it then fails with the
    /// connection.
    fn answer(&mut self, index: usize, shared: &Arc<Shared>) -> io::Result<()> {
        let entry = &mut self.entries[index];
        entry.sent = None;
        if shared.is_stopping() {
            return Ok(());
        }
        let header = self.arena.header(index);
        let unique = ring::commit_id(header);
        entry.unique = unique;
        let request = RingRequest::parse(header).filter(|it| it.payload_bytes <= PAYLOAD_BYTES);
        let Some(request) = request else {
            return self.reply(index, Answer::error(unique, Errno::EIO), shared);
        };
        self.touch(index, request.payload_bytes);
        let place = Place {
            ring: self.number,
            entry: index,
        };
        let message = self.arena.message(index, &request);
        match shared.handle(message, Tries::default(), Some(place)) {
            Outcome::Answered(answer) => {
                if shared.is_to_keep_near(message, &answer) {
                    shared.uring.ask_other_to_keep(self.number);
                }
                self.reply(index, answer, shared)
            }
            Outcome::Silent => self.reply(index, Answer::plain(Reply::new(unique)), shared),
            Outcome::Later => {
                // Whoever put it off has a copy.
                if self.entries[index].touched_bytes > SMALL_BYTES {
                    self.forget_payload(index);
                }
                Ok(())
            }
        }
    }

    /// Replies to requests that were put off.
    fn deliver(&mut self, shared: &Shared) -> io::Result<()> {
        for outgoing in shared.uring.collect(self.number) {
            let entry = &self.entries[outgoing.entry];
            if entry.is_ours && entry.unique == outgoing.unique {
                self.reply(outgoing.entry, outgoing.answer, shared)?;
                if self.unsubmitted >= BATCH {
                    self.submit()?;
                }
            }
        }
        Ok(())
    }

    /// Puts a reply into its entry, to be handed in with the next call.
    fn reply(&mut self, index: usize, mut answer: Answer, shared: &Shared) -> io::Result<()> {
        let unique = self.entries[index].unique;
        if answer.message.len() + answer.data.len() > REPLY_HEADER_BYTES + PAYLOAD_BYTES {
            shared.take_back(&answer);
            answer = Answer::error(unique, Errno::EIO);
        }
        let payload_bytes = self.arena.put_reply(index, &answer);
        self.touch(index, payload_bytes);
        let entry = &mut self.entries[index];
        let command = ring::command(entry.queue, unique);
        entry.unique = 0;
        entry.is_ours = false;
        if answer.node.is_some() || answer.fh.is_some() || !answer.listed.is_empty() {
            answer.message = Vec::new();
            answer.data = Data::default();
            entry.sent = Some(answer);
        }
        let submission = opcode::UringCmd80::new(DEVICE, ring::COMMIT_AND_FETCH).cmd(command);
        self.push(submission.build().user_data(index as u64))
    }

    /// The kernel did not take a reply: what it counted is taken back. The entry is handed to it
    /// anew; one that it refused to take at all is left out.
    fn recover(&mut self, index: usize, shared: &Shared) -> io::Result<()> {
        let entry = &mut self.entries[index];
        if let Some(answer) = entry.sent.take() {
            shared.take_back(&answer);
        }
        match std::mem::replace(&mut entry.is_registered, false) {
            true => self.register_entry(index),
            false => Ok(()),
        }
    }

    fn register_entry(&mut self, index: usize) -> io::Result<()> {
        let entry = &mut self.entries[index];
        entry.is_ours = false;
        let submission = opcode::UringCmd80::new(DEVICE, ring::REGISTER)
            .cmd(ring::command(entry.queue, 0))
            .addr(Some(entry.buffers.as_ptr() as u64))
            .build()
            .user_data(index as u64);
        self.push(with_length(submission, ring::REGISTER_SEGMENTS))
    }

    /// Waits for the eventfd that tells of posted answers.
    fn listen(&mut self) -> io::Result<()> {
        let into: *mut u64 = &mut *self.woken;
        let read = opcode::Read::new(types::Fd(self.wake), into.cast(), 8).build();
        self.push(read.user_data(WOKEN).into())
    }

    fn push(&mut self, submission: Entry128) -> io::Result<()> {
        self.unsubmitted += 1;
        loop {
            // SAFETY: what submissions point to (`buffers`, `woken`, the arena) stays where it is
            // as long as the ring.
            if unsafe { self.uring.submission().push(&submission) }.is_ok() {
                return Ok(());
            }
            self.submit()?;
        }
    }

    /// Hands in what was pushed. The kernel takes requests that wait for an entry at once, and no
    /// other.
    fn submit(&mut self) -> io::Result<()> {
        match self.uring.submit() {
            Ok(_) => self.unsubmitted = 0,
            Err(error) if is_passing(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether there is something to do; the kernel looks, too.
    fn has_completed(&mut self) -> bool {
        // SAFETY: hands in nothing and waits for nothing.
        let _ = unsafe { self.uring.submitter().enter::<()>(0, 0, 1, None) };
        !self.uring.completion().is_empty()
    }

    fn drain(&mut self) {
        for completion in self.uring.completion() {
            let name = completion.user_data();
            if name != WOKEN {
                let entry = &mut self.entries[name as usize];
                entry.is_ours = true;
                entry.is_registered |= completion.result() >= 0;
            }
            self.completed.push((name, completion.result()));
        }
    }

    fn touch(&mut self, index: usize, bytes: usize) {
        let entry = &mut self.entries[index];
        let more = bytes.saturating_sub(entry.touched_bytes);
        entry.touched_bytes += more;
        self.touched_bytes += more;
    }

    /// Gives back the memory of idle entries, of those with small payloads only if the others' is
    /// not enough. Only between reading all completions and the next call.
    fn give_back(&mut self) {
        for from_bytes in [SMALL_BYTES, 0] {
            if self.touched_bytes <= self.kept_bytes {
                return;
            }
            for index in 0..self.entries.len() {
                let entry = &self.entries[index];
                if !entry.is_ours && entry.touched_bytes > from_bytes {
                    self.forget_payload(index);
                }
            }
        }
    }

    fn forget_payload(&mut self, index: usize) {
        self.arena.forget_payload(index);
        let touched_bytes = std::mem::take(&mut self.entries[index].touched_bytes);
        self.touched_bytes -= touched_bytes;
    }
}

/// The memory of a ring's entries.
struct Arena {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a private mapping that only its owner points into; it may be used from whichever thread
// owns it.
unsafe impl Send for Arena {}

impl Arena {
    fn new(entries: usize) -> io::Result<Arena> {
        let bytes = entries * STRIDE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping, at an address of the kernel's choice; the advice (no huge pages:
        // an entry's first byte would cost 2 MiB) is for this mapping and may fail.
        unsafe {
            let start = libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0);
            if start == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
            libc::madvise(start, bytes, libc::MADV_NOHUGEPAGE);
            libc::madvise(start, bytes, libc::MADV_DONTFORK);
            let start = NonNull::new(start.cast()).ok_or_else(io::Error::last_os_error)?;
            Ok(Arena { start, bytes })
        }
    }

    /// Start of an entry; STRIDE bytes from there are inside of the mapping.
    fn entry(&self, index: usize) -> *mut u8 {
        assert!((index + 1) * STRIDE <= self.bytes);
        // SAFETY: just checked.
        unsafe { self.start.as_ptr().add(index * STRIDE) }
    }

    fn buffers(&self, index: usize) -> [libc::iovec; 2] {
        let entry = self.entry(index);
        [(0, RING_HEADER_BYTES), (PAYLOAD_AT, PAYLOAD_BYTES)].map(|(at, length)| libc::iovec {
            iov_base: entry.wrapping_add(at).cast(),
            iov_len: length,
        })
    }

    /// The header of an entry that is ours.
    fn header<'a>(&self, index: usize) -> &'a [u8; RING_HEADER_BYTES] {
        // SAFETY: inside of the entry; it is ours, so nobody writes to it until its reply is put
        // there, when `answer` has no more use of the header.
        unsafe { &*self.entry(index).cast() }
    }

    /// The request of an entry that is ours, in one piece.
    fn message<'a>(&self, index: usize, request: &RingRequest) -> &'a [u8] {
        let head_bytes = request.head_bytes();
        let length = head_bytes + request.payload_bytes;
        // SAFETY: head (168 bytes at most, of 4096 - 288) and payload lie inside of the entry,
        // which is ours; the head is written before anybody sees it, and nobody writes to either
        // until the reply is put there, when `answer` has no more use of the message.
        unsafe {
            let start = self.entry(index).add(PAYLOAD_AT - head_bytes);
            request.copy_head(
                self.header(index),
                std::slice::from_raw_parts_mut(start, head_bytes),
            );
            std::slice::from_raw_parts(start, length)
        }
    }

    /// Puts a reply, which fits, into an entry that is ours; the length of its body.
    fn put_reply(&self, index: usize, answer: &Answer) -> usize {
        let entry = self.entry(index);
        let Some((head, body)) = answer.message.split_first_chunk() else {
            unreachable!("a reply has a header");
        };
        let payload_bytes = body.len() + answer.data.len();
        assert!(payload_bytes <= PAYLOAD_BYTES);
        // SAFETY: inside of the entry, as just checked; it is ours, and no reference into it is
        // left.
        unsafe {
            ring::put_reply(&mut *entry.cast(), head, payload_bytes as u32);
            let payload = std::slice::from_raw_parts_mut(entry.add(PAYLOAD_AT), payload_bytes);
            payload[..body.len()].copy_from_slice(body);
            let mut rest = &mut payload[body.len()..];
            for part in answer.data.parts() {
                let (place, behind) = rest.split_at_mut(part.len());
                place.copy_from_slice(part);
                rest = behind;
            }
        }
        payload_bytes
    }

    /// Gives a payload's memory back; it reads as zeros from now on.
    fn forget_payload(&self, index: usize) {
        // SAFETY: inside of the mapping; no reference into the payload is left, and the kernel is
        // not writing to it.
        unsafe {
            let payload = self.entry(index).add(PAYLOAD_AT);
            libc::madvise(payload.cast(), PAYLOAD_BYTES, libc::MADV_DONTNEED);
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`; the ring is closed, so the kernel has no entry in it that
        // it could still fill.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The submission with its length field set, which the builder of such commands has no word for.
fn with_length(submission: Entry128, length: u32) -> Entry128 {
    const LENGTH_AT: usize = 24;
    // SAFETY: an Entry128 is the kernel's 128-byte submission (repr(C)); every pattern of its bytes
    // is one.
    unsafe {
        let mut bytes: [u8; 128] = std::mem::transmute(submission);
        bytes[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&length.to_ne_bytes());
        std::mem::transmute(bytes)
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
    )
}

fn is_gone(errno: i32) -> bool {
    matches!(
        errno,
        libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED | libc::ENODEV
    )
}
