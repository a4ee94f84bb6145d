//! Requests over io_uring: how a ring's entry holds a request and then its reply, and the commands
//! that pass entries on.
//!
//! ```text
//! entry     two buffers of the server's, registered once: header (288 bytes) and payload (the largest request's, at least)
//! header    0    request header (40 bytes), and in its place the reply's (16 bytes); 128 bytes of room
//!           128  the fixed part of the operation's body; 128 bytes of room. Nothing for those that begin with a name
//!           256  flags commit_id u64, payload_sz padding u32, reserved u64
//! payload   what follows the fixed part, and in its place the whole body of the reply
//! command   80 bytes of a 128-byte submission: flags commit_id u64, queue u16, zeros
//! REGISTER          address of two iovecs, their number in the submission's length; completes with the first request
//! COMMIT_AND_FETCH  the entry's reply is there; completes with the next request. 0, or a negative errno as usual
//! ```
//!
//! The length in the request's header counts all three parts, so it tells how long the fixed part
//! is. FORGET, INTERRUPT, the handshake and notices never come this way. fs/fuse/dev_uring.c of
//! Linux 6.14 and later.

use crate::{HEADER_BYTES, REPLY_HEADER_BYTES};

/// Bytes of an entry's header buffer.
pub const RING_HEADER_BYTES: usize = 288;
/// Most bytes that stand in front of the payload in a message: request header and fixed part.
pub const HEAD_BYTES_MAX: usize = HEADER_BYTES + FIXED_BYTES_MAX;
/// Command that hands a new entry to the kernel.
pub const REGISTER: u32 = 1;
/// Command that hands in a reply.
pub const COMMIT_AND_FETCH: u32 = 2;
/// How many iovecs REGISTER takes: header, payload.
pub const REGISTER_SEGMENTS: u32 = 2;

const FIXED_BYTES_MAX: usize = 128;
const FIXED_AT: usize = 128;
const COMMIT_ID_AT: usize = 264;
const PAYLOAD_SIZE_AT: usize = 272;

/// The fields of an entry's header about its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingRequest {
    /// The request's number, which the reply is handed in under.
    pub commit_id: u64,
    /// Bytes of the fixed part.
    pub fixed_bytes: usize,
    /// Bytes of the payload.
    pub payload_bytes: usize,
}

impl RingRequest {
    /// None if the lengths contradict each other.
    pub fn parse(header: &[u8; RING_HEADER_BYTES]) -> Option<RingRequest> {
        let length = u32_at(header, 0)? as usize;
        let payload_bytes = u32_at(header, PAYLOAD_SIZE_AT)? as usize;
        let fixed_bytes = length.checked_sub(HEADER_BYTES + payload_bytes)?;
        (fixed_bytes <= FIXED_BYTES_MAX).then_some(RingRequest {
            commit_id: commit_id(header),
            fixed_bytes,
            payload_bytes,
        })
    }

    /// Copies the header and the fixed part in front of the payload into `head`, whose length is
    /// `head_bytes`.
    pub fn copy_head(&self, header: &[u8; RING_HEADER_BYTES], head: &mut [u8]) {
        head[..HEADER_BYTES].copy_from_slice(&header[..HEADER_BYTES]);
        head[HEADER_BYTES..].copy_from_slice(&header[FIXED_AT..FIXED_AT + self.fixed_bytes]);
    }

    /// Bytes in front of the payload.
    pub fn head_bytes(&self) -> usize {
        HEADER_BYTES + self.fixed_bytes
    }
}

/// The number of the request in an entry.
pub fn commit_id(header: &[u8; RING_HEADER_BYTES]) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&header[COMMIT_ID_AT..COMMIT_ID_AT + 8]);
    u64::from_le_bytes(number)
}

/// Puts a reply's header into its entry; the body is `payload_bytes` of the payload.
pub fn put_reply(
    header: &mut [u8; RING_HEADER_BYTES],
    reply: &[u8; REPLY_HEADER_BYTES],
    payload_bytes: u32,
) {
    header[..REPLY_HEADER_BYTES].copy_from_slice(reply);
    header[PAYLOAD_SIZE_AT..PAYLOAD_SIZE_AT + 4].copy_from_slice(&payload_bytes.to_le_bytes());
}

/// The bytes of a command. `commit_id` 0 for REGISTER.
pub fn command(queue: u16, commit_id: u64) -> [u8; 80] {
    let mut bytes = [0; 80];
    bytes[8..16].copy_from_slice(&commit_id.to_le_bytes());
    bytes[16..18].copy_from_slice(&queue.to_le_bytes());
    bytes
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
