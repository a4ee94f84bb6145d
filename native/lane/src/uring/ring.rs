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

use cowfs_base::{Errno, faults};
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
use crate::uring::{PAGE_BYTES, Place, Share, Uring};

/// The kernel wants room for the largest write and for max_pages pages; both are this.
const PAYLOAD_BYTES: usize = MAX_WRITE_BYTES as usize;
const PAYLOAD_AT: usize = PAGE_BYTES;
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
    /// Completions that were read and not looked at: user data and outcome.
    completed: Vec<(u64, i32)>,
    /// A call takes one submission less than there are.
    #[cfg(test)]
    takes_less: bool,
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
    /// The last answer sent, without its bytes; the kernel has not yet confirmed it.
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
            completed: Vec::new(),
            #[cfg(test)]
            takes_less: false,
        })
    }

    /// Hands every entry to the kernel, after the handshake; the first refusal.
    pub fn register(&mut self) -> io::Result<()> {
        for index in 0..self.entries.len() {
            self.register_entry(index)?;
        }
        self.submit_all()?;
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
            self.enter(1)?;
            self.drain();
            self.give_back();
            for (name, outcome) in std::mem::take(&mut self.completed) {
                if name == WOKEN {
                    self.deliver(shared)?;
                    if shared.uring.is_over() {
                        return self.submit_all();
                    }
                    self.listen()?;
                } else if outcome >= 0 {
                    self.answer(name as usize, shared)?;
                } else if is_gone(-outcome) {
                    return Ok(());
                } else {
                    self.recover(name as usize, shared)?;
                }
                self.submit_batch()?;
            }
            // Only when every request is answered: requests already taken out of the ring are not
            // handled while this spins.
            if shared.uring.is_asked_to_keep(self.number) {
                self.enter(0)?;
                if self.unsubmitted() == 0 {
                    shared.spin.keep(|| self.has_completed());
                }
            }
        }
    }

    /// Answers the request in an entry, unless the lane takes no more requests: it then fails with
    /// the connection.
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
            faults::note("a request in a ring whose lengths contradict each other");
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
                // The parked request has a copy.
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
                self.submit_batch()?;
            }
        }
        Ok(())
    }

    /// Puts a reply into its entry, to be handed in with the next call.
    fn reply(&mut self, index: usize, mut answer: Answer, shared: &Shared) -> io::Result<()> {
        let unique = self.entries[index].unique;
        if answer.message.len() + answer.data.len() > REPLY_HEADER_BYTES + PAYLOAD_BYTES {
            let bytes = answer.data.len();
            faults::note(format_args!(
                "a reply of {bytes} bytes does not fit into a ring's entry"
            ));
            shared.take_back(&answer);
            answer = Answer::error(unique, Errno::EIO);
        }
        self.put(index, answer)
    }

    fn put(&mut self, index: usize, mut answer: Answer) -> io::Result<()> {
        let payload_bytes = self.arena.put_reply(index, &answer);
        self.touch(index, payload_bytes);
        let entry = &mut self.entries[index];
        let command = ring::command(entry.queue, std::mem::take(&mut entry.unique));
        entry.is_ours = false;
        if answer.node.is_some() || answer.opened.is_some() || !answer.listed.is_empty() {
            answer.message = Vec::new();
            answer.data = Data::default();
            entry.sent = Some(answer);
        }
        let submission = opcode::UringCmd80::new(DEVICE, ring::COMMIT_AND_FETCH).cmd(command);
        self.push(submission.build().user_data(index as u64))
    }

    /// The kernel did not accept a reply: its counts and handles are undone. The entry is submitted
    /// again; an entry that the kernel refused to take at all is left out.
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
        loop {
            // SAFETY: what submissions point to (`buffers`, `woken`, the arena) stays where it is
            // as long as the ring.
            if unsafe { self.uring.submission().push(&submission) }.is_ok() {
                return Ok(());
            }
            self.enter(0)?;
        }
    }

    /// How many pushed entries the kernel has not taken yet. It may take fewer than it is given,
    /// for want of memory, so only the queue itself knows.
    fn unsubmitted(&mut self) -> usize {
        self.uring.submission().len()
    }

    /// Submits the pushed entries, and waits for so many completions. The kernel takes requests
    /// that wait for an entry at once, and no others.
    fn enter(&mut self, completions: usize) -> io::Result<()> {
        #[cfg(test)]
        if self.takes_less {
            let less = self.unsubmitted().saturating_sub(1) as u32;
            // SAFETY: as a call that hands in all of it.
            return unsafe { self.uring.submitter().enter::<()>(less, 0, 1, None) }.map(drop);
        }
        match self.uring.submit_and_wait(completions) {
            Err(error) if !is_passing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    fn submit_batch(&mut self) -> io::Result<()> {
        match self.unsubmitted() >= BATCH {
            true => self.enter(0),
            false => Ok(()),
        }
    }

    /// Returns when the kernel has taken everything.
    fn submit_all(&mut self) -> io::Result<()> {
        while self.unsubmitted() > 0 {
            self.enter(0)?;
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Whether a completion is ready; lets the kernel check, too.
    fn has_completed(&mut self) -> bool {
        // SAFETY: submits no entry and waits for none.
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

    /// Gives back the memory of idle entries if all together keep too much, of those with small
    /// payloads only if the others' is not enough. Only between reading all completions and the
    /// next call. Nothing while a reply is in the queue: its payload has not been read.
    fn give_back(&mut self) {
        if self.unsubmitted() > 0 {
            return;
        }
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
    fn header(&self, index: usize) -> &[u8; RING_HEADER_BYTES] {
        // SAFETY: inside of the entry, which is ours. No writer touches it until its reply is put
        // there, which borrows the arena exclusively.
        unsafe { &*self.entry(index).cast() }
    }

    /// The request of an entry that is ours, in one piece.
    fn message(&mut self, index: usize, request: &RingRequest) -> &[u8] {
        let head_bytes = request.head_bytes();
        let length = head_bytes + request.payload_bytes;
        // SAFETY: head (168 bytes at most, of 4096 - 288) and payload lie inside of the entry,
        // which is ours. The head is written before any reference to it exists. Neither is written
        // until the reply is put there, which borrows the arena exclusively.
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
    fn put_reply(&mut self, index: usize, answer: &Answer) -> usize {
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
    fn forget_payload(&mut self, index: usize) {
        // SAFETY: inside of the mapping, whose pages are PAGE_BYTES large (`Uring::plan`); no
        // reference into the payload is left, and the kernel is not writing to it.
        unsafe {
            let payload = self.entry(index).add(PAYLOAD_AT);
            libc::madvise(payload.cast(), PAYLOAD_BYTES, libc::MADV_DONTNEED);
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`. The kernel copies into entries only inside of this thread's
        // io_uring_enter (DEFER_TASKRUN), and no such call follows.
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

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::buffer::ReadBuffer;

    fn large_answer(unique: u64, byte: u8) -> Answer {
        let mut data = ReadBuffer::take(PAYLOAD_BYTES, false).unwrap();
        data.fill(byte);
        Answer {
            message: Reply::new(unique).finish(PAYLOAD_BYTES),
            data: Data::Copied(data),
            ..Answer::default()
        }
    }

    /// A reply that stays in the queue when the kernel takes only some keeps its bytes: a reader
    /// would otherwise get zeros, and the page cache would keep them.
    #[test]
    fn a_reply_that_the_kernel_has_not_taken_keeps_its_bytes() {
        let rings = Uring::default();
        rings.plan().unwrap();
        let share = Share {
            cpus: Vec::new(),
            queues: vec![(0, 4)],
        };
        let device = std::fs::File::open("/dev/null").unwrap();
        let mut ring = Ring::new(0, &share, device.as_raw_fd(), &rings).unwrap();
        ring.kept_bytes = 0;
        ring.takes_less = true;
        for index in 0..4 {
            ring.entries[index].unique = 10;
            ring.put(index, large_answer(10, index as u8 + 1)).unwrap();
        }
        ring.enter(0).unwrap();
        ring.drain();
        ring.give_back();
        assert_eq!(ring.unsubmitted(), 1);
        let last = ring.arena.entry(3);
        // SAFETY: the last payload byte of the last entry.
        assert_eq!(unsafe { *last.add(PAYLOAD_AT + PAYLOAD_BYTES - 1) }, 4);
        ring.takes_less = false;
        ring.submit_all().unwrap();
        assert_eq!(ring.unsubmitted(), 0);
    }
}
