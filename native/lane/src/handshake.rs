//! The agreement between lane and kernel, made once in a mount's life.
//!
//! The kernel's first request is INIT: it offers features, and the reply says which of them are
//! used, and how large requests may be. The kernel never asks again. So a lane that takes over a
//! descriptor whose INIT was answered must be given that agreement. It refuses one that it cannot
//! continue.
//!
//! Requests that the server before took and did not answer are sent again (`Lane::start`). One that
//! it had applied is applied twice, if it says where it writes, as WRITE and SETATTR do. The others
//! are in the journal with their number, if `Engine::note_requests` was called, and are answered
//! from that (`answer`).
//!
//! Two features cannot be taken over. With io_uring, requests that lay in the old server's rings
//! are lost: the kernel neither resends them nor goes back to the device. With passthrough, the
//! kernel gives EIO for opens that differ from those before, which only the old server knew.

use std::io;

use cowfs_fuse_abi::flag;

use crate::device::MAX_WRITE_BYTES;
use crate::lane::Transport;

const PAGE_BYTES: u32 = 4096;
/// Pages of one request: those of the largest write.
pub(crate) const MAX_PAGES: u16 = (MAX_WRITE_BYTES / PAGE_BYTES) as u16;

/// The features of the lane. The kernel's writeback cache stays off, since a write would return
/// before its bytes are staged. Remote locks stay off, too: the kernel's own locks suffice on one
/// machine.
const FEATURES: u64 = flag::ASYNC_READ
    | flag::EXPORT_SUPPORT
    | flag::BIG_WRITES
    | flag::DONT_MASK
    | flag::DO_READDIRPLUS
    | flag::READDIRPLUS_AUTO
    | flag::PARALLEL_DIROPS
    | flag::POSIX_ACL
    | flag::MAX_PAGES
    | flag::CACHE_SYMLINKS
    | flag::HANDLE_KILLPRIV_V2;

/// The agreed values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handshake {
    /// The protocol's minor number.
    pub minor: u32,
    /// Features (`cowfs_fuse_abi::flag`).
    pub flags: u64,
    /// Bytes of the largest write.
    pub max_write: u32,
    /// Pages of the largest request.
    pub max_pages: u16,
}

/// The features of the lane without passthrough and rings. ASYNC_DIO is for read-only mounts:
/// before Linux 7.0 the kernel keeps pages that were read while an asynchronous direct write was
/// under way (docs/decisions/0025-direct-writes.md).
pub(crate) fn features(is_read_only: bool) -> u64 {
    match is_read_only {
        true => FEATURES | flag::ASYNC_DIO,
        false => FEATURES,
    }
}

impl Handshake {
    /// As `cowfs_survival::Table` keeps it.
    pub(crate) fn to_numbers(self) -> [u64; 4] {
        let (minor, most) = (self.minor.into(), self.max_write.into());
        [minor, self.flags, most, self.max_pages.into()]
    }

    /// InvalidInput: it is none.
    pub(crate) fn from_numbers(numbers: [u64; 4]) -> io::Result<Handshake> {
        let [minor, flags, max_write, max_pages] = numbers;
        let wrong = |_| io::Error::new(io::ErrorKind::InvalidInput, "an impossible handshake");
        Ok(Handshake {
            minor: minor.try_into().map_err(wrong)?,
            flags,
            max_write: max_write.try_into().map_err(wrong)?,
            max_pages: max_pages.try_into().map_err(wrong)?,
        })
    }

    /// Checks that a lane can continue with it; InvalidInput, with the reason, if not.
    pub(crate) fn check(&self, is_read_only: bool, transport: Transport) -> io::Result<()> {
        let refused = |reason: String| Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        let unknown = self.flags & !features(is_read_only);
        if transport != Transport::Device || unknown & flag::OVER_IO_URING != 0 {
            return refused("a mount over io_uring cannot be taken over".into());
        }
        if unknown & flag::PASSTHROUGH != 0 {
            return refused("a mount that passes files through cannot be taken over".into());
        }
        if unknown & !flag::INIT_EXT != 0 {
            return refused(format!(
                "features {unknown:#x} were agreed on, which this server has not"
            ));
        }
        if self.max_write > MAX_WRITE_BYTES || self.max_pages > MAX_PAGES {
            let Handshake {
                max_write,
                max_pages,
                ..
            } = self;
            return refused(format!(
                "requests of {max_write} bytes and {max_pages} pages were agreed on, which is more than this server takes"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGREED: Handshake = Handshake {
        minor: 40,
        flags: FEATURES,
        max_write: MAX_WRITE_BYTES,
        max_pages: MAX_PAGES,
    };

    fn reason(handshake: Handshake, is_read_only: bool, transport: Transport) -> Option<String> {
        let checked = handshake.check(is_read_only, transport);
        checked.err().map(|error| error.to_string())
    }

    #[test]
    fn a_table_keeps_it() {
        let numbers = AGREED.to_numbers();
        assert_eq!(Handshake::from_numbers(numbers).unwrap(), AGREED);
        assert!(Handshake::from_numbers([u64::MAX; 4]).is_err());
    }

    #[test]
    fn what_the_lane_agrees_on_can_be_taken_over_and_nothing_else() {
        let with = |flags| Handshake {
            flags: FEATURES | flags,
            ..AGREED
        };
        let device = Transport::Device;
        assert_eq!(reason(AGREED, false, device), None);
        assert_eq!(reason(with(flag::ASYNC_DIO), true, device), None);
        assert!(reason(with(flag::ASYNC_DIO), false, device).is_some());
        assert!(reason(AGREED, false, Transport::Uring).is_some_and(|it| it.contains("io_uring")));
        for (flags, word) in [
            (flag::OVER_IO_URING | flag::INIT_EXT, "io_uring"),
            (flag::PASSTHROUGH | flag::INIT_EXT, "passes files through"),
            (1 << 16, "features"), // WRITEBACK_CACHE
        ] {
            let reason = reason(with(flags), true, device).expect("refused");
            assert!(reason.contains(word), "{reason}");
        }
        let larger = Handshake {
            max_pages: MAX_PAGES + 1,
            ..AGREED
        };
        assert!(reason(larger, false, device).is_some_and(|it| it.contains("pages")));
        let larger = Handshake {
            max_write: MAX_WRITE_BYTES + 1,
            ..AGREED
        };
        assert!(reason(larger, false, device).is_some_and(|it| it.contains("bytes")));
    }
}
