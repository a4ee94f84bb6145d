//! The server behind the lane: answers what is forwarded with errors, after replies that nobody asked for.

use std::os::fd::{AsRawFd, OwnedFd};

use cowfs_fuse_abi::{Header, Reply, opcode};

use crate::random::Random;

/// Operations that change no counts.
pub const FORWARDED: [u32; 4] = [
    opcode::GETXATTR,
    opcode::STATFS,
    opcode::ACCESS,
    opcode::READLINK,
];

/// Serves until the lane's end of the pair is closed.
pub fn serve(socket: &OwnedFd, mut random: Random) {
    let mut buffer = vec![0; 1 << 20];
    loop {
        // SAFETY: at most the buffer's length is written into it.
        let length = unsafe {
            libc::recv(
                socket.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                0,
            )
        };
        if length <= 0 {
            return;
        }
        let Some((header, _)) = Header::parse(&buffer[..length as usize]) else {
            panic!("the lane forwarded what is no request");
        };
        if random.once_in(10) {
            send(
                socket,
                &Reply::error(random.next() | 1 << 60, libc::EIO).finish(0),
            );
            send(socket, &[0xff; 7]);
            let mut torn = Reply::error(header.unique, libc::EIO).finish(0);
            torn[0] = 200;
            send(socket, &torn);
        }
        let errno = random.pick(&[libc::ENOSYS, libc::EIO, libc::ENODATA, 0, -3, 600]);
        send(socket, &Reply::error(header.unique, errno).finish(0));
    }
}

fn send(socket: &OwnedFd, message: &[u8]) {
    // SAFETY: the message's own bytes are read. A lane that has ended takes nothing more.
    unsafe {
        libc::send(
            socket.as_raw_fd(),
            message.as_ptr().cast(),
            message.len(),
            libc::MSG_NOSIGNAL,
        )
    };
}
