//! The descriptor of /dev/fuse: one request a read, one reply a write.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use cowfs_base::Errno;

/// Largest write the kernel may send; larger ones come in pieces.
pub(crate) const MAX_WRITE_BYTES: u32 = 1 << 20;
/// Room for a WRITE's header besides its data, and for any other request.
pub(crate) const REQUEST_BYTES: usize = MAX_WRITE_BYTES as usize + 4096;

pub(crate) struct Device(File);

/// The result of a read of the device.
pub(crate) enum Received {
    Request(usize),
    /// Nothing this time: the request was taken back, or a signal came.
    Nothing,
    /// The file system is unmounted, or the connection broken.
    Gone,
}

impl Device {
    /// Makes reads of the descriptor block, even if it was opened non-blocking.
    pub fn new(descriptor: OwnedFd) -> io::Result<Device> {
        let raw = descriptor.as_raw_fd();
        // SAFETY: fcntl on a descriptor that we own, with flags it has itself given.
        let outcome = unsafe {
            let flags = libc::fcntl(raw, libc::F_GETFL);
            libc::fcntl(raw, libc::F_SETFL, flags & !libc::O_NONBLOCK)
        };
        if outcome < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Device(File::from(descriptor)))
    }

    pub fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Waits for the next request.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        match (&self.0).read(buffer) {
            Ok(0) => Ok(Received::Gone),
            Ok(length) => Ok(Received::Request(length)),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR | libc::ENOENT | libc::EAGAIN) => Ok(Received::Nothing),
                Some(libc::ENODEV | libc::ECONNABORTED) => Ok(Received::Gone),
                _ => Err(error),
            },
        }
    }

    /// Writes one reply or notice; fails if the kernel refuses it. ENOENT: the request's caller no
    /// longer waits for the reply.
    pub fn send<'a>(
        &self,
        message: &'a [u8],
        data: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), Errno> {
        let mut data = data.into_iter();
        let written = match data.next() {
            None => (&self.0).write(message),
            Some(first) => {
                let parts = [message, first].into_iter().chain(data);
                let slices: Vec<_> = parts.map(IoSlice::new).collect();
                (&self.0).write_vectored(&slices)
            }
        };
        written.map(drop).map_err(Errno::from)
    }
}
