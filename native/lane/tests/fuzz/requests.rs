//! Requests: sensible ones about what the kernel would know, then mutated now and then.

use cowfs_fuse_abi::{HEADER_BYTES, Header, Operation, opcode};

use crate::random::Random;

/// Writes, sizes and copies begin near the start of a file or at one of these.
pub const FAR_OFFSETS: [u64; 4] = [1 << 32, (1 << 40) - 7, (1 << 62) + 4095, (1 << 63) - 70_000];
/// The socket in place of the device carries no more in one message.
pub const SIZE_MAX_BYTES: u32 = 96 << 10;
/// What the version is called that can be looked at.
pub const OLD_ID: &[u8] = b"0a1b2c3d";
const NEAR_OFFSETS: u64 = 1 << 20;
const LARGEST_OPCODE: u64 = 60;
/// A pid that no process has, so an interrupted caller counts as dead.
const PID_OF_NOBODY: u32 = 0x3fff_fff1;

/// Operations and how often they come.
const MIX: [(u32, u64); 36] = [
    (opcode::LOOKUP, 14),
    (opcode::GETATTR, 6),
    (opcode::SETATTR, 8),
    (opcode::READLINK, 2),
    (opcode::SYMLINK, 3),
    (opcode::MKNOD, 4),
    (opcode::MKDIR, 4),
    (opcode::UNLINK, 6),
    (opcode::RMDIR, 3),
    (opcode::RENAME, 4),
    (opcode::RENAME2, 5),
    (opcode::LINK, 4),
    (opcode::OPEN, 6),
    (opcode::READ, 10),
    (opcode::WRITE, 12),
    (opcode::STATFS, 1),
    (opcode::RELEASE, 5),
    (opcode::SETXATTR, 4),
    (opcode::GETXATTR, 3),
    (opcode::LISTXATTR, 2),
    (opcode::REMOVEXATTR, 2),
    (opcode::FLUSH, 2),
    (opcode::INIT, 1),
    (opcode::OPENDIR, 4),
    (opcode::READDIR, 4),
    (opcode::READDIRPLUS, 4),
    (opcode::RELEASEDIR, 2),
    (opcode::ACCESS, 1),
    (opcode::CREATE, 9),
    (opcode::INTERRUPT, 2),
    (opcode::DESTROY, 1),
    (opcode::FALLOCATE, 4),
    (opcode::LSEEK, 3),
    (opcode::COPY_FILE_RANGE, 3),
    (opcode::TMPFILE, 3),
    (opcode::COPY_FILE_RANGE_64, 2),
];
/// The last ones lead to a version beside the volume.
const NAMES: [&[u8]; 16] = [
    b"a",
    b"b",
    b"c",
    b"d",
    b"b2",
    b"b3",
    b"b4",
    b"b9",
    b"long name with spaces",
    b"\xff\xfe",
    b"e\xcc\x81",
    b"z",
    b".cowfs",
    b"versions",
    OLD_ID,
    b"tag",
];
const ODD_NAMES: [&[u8]; 6] = [b"", b".", b"..", b"with/slash", &[b'n'; 255], &[b'n'; 256]];
const ACL_PREFIX: &[u8] = b"system.posix_acl_";
const XATTRS: [&[u8]; 8] = [
    b"user.a",
    b"user.base",
    b"trusted.t",
    b"security.capability",
    b"system.posix_acl_access",
    b"system.posix_acl_default",
    b"user.",
    b"nonsense",
];

/// What the kernel holds, as far as requests are made from it.
#[derive(Default)]
pub struct Known {
    pub nodes: Vec<u64>,
    pub handles: Vec<u64>,
    pub last_unique: u64,
}

/// One message; `unique` is its number, even if the message was mutated.
pub struct Request {
    pub message: Vec<u8>,
    pub unique: u64,
}

struct Body<'a> {
    bytes: Vec<u8>,
    random: &'a mut Random,
    known: &'a Known,
}

impl Body<'_> {
    fn u32(&mut self, number: u32) -> &mut Self {
        self.bytes.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn u64(&mut self, number: u64) -> &mut Self {
        self.bytes.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn text(&mut self, text: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(text);
        self.bytes.push(0);
        self
    }

    fn name(&mut self) -> &mut Self {
        let odd = self.random.once_in(30);
        let name = self.random.pick(if odd { &ODD_NAMES } else { &NAMES[..] });
        self.text(name)
    }

    fn node(&mut self) -> u64 {
        match self.random.below(40) {
            0 => self.random.below(200),
            1 => self.random.next(),
            _ if self.known.nodes.is_empty() => 1,
            // Newer ones more often, or nothing ever gets deep.
            n if n % 2 == 0 => {
                let recent = self.known.nodes.len().saturating_sub(20);
                self.random.pick(&self.known.nodes[recent..])
            }
            _ => self.random.pick(&self.known.nodes),
        }
    }

    fn handle(&mut self) -> u64 {
        match self.random.below(40) {
            0 => self.random.below(100),
            1 => self.random.next(),
            _ if self.known.handles.is_empty() => 1,
            _ => self.random.pick(&self.known.handles),
        }
    }

    fn offset(&mut self) -> u64 {
        match self.random.below(40) {
            0 => u64::MAX - self.random.below(100_000),
            1 => self.random.pick(&FAR_OFFSETS),
            n if n < 20 => self.random.below(8192),
            _ => self.random.below(NEAR_OFFSETS),
        }
    }

    fn length(&mut self) -> u32 {
        let largest = if self.random.once_in(20) {
            SIZE_MAX_BYTES
        } else {
            5000
        };
        self.random.below(u64::from(largest)) as u32
    }

    fn mode(&mut self) -> u32 {
        let kinds = [
            libc::S_IFREG,
            libc::S_IFREG,
            libc::S_IFIFO,
            libc::S_IFSOCK,
            libc::S_IFCHR,
            libc::S_IFBLK,
        ];
        let kind = if self.random.once_in(50) {
            self.random.next() as u32
        } else {
            self.random.pick(&kinds)
        };
        kind | (self.random.next() as u32 & 0o7777)
    }

    fn open_flags(&mut self) -> u32 {
        let odd = if self.random.once_in(8) {
            self.random.next() as i32
        } else {
            0
        };
        let access = self.random.pick(&[
            libc::O_RDONLY,
            libc::O_WRONLY,
            libc::O_RDWR,
            libc::O_RDWR | libc::O_APPEND,
        ]);
        (access | odd) as u32
    }
}

/// The next request: its number is new. FSYNC and FORGET are the caller's business.
pub fn request(random: &mut Random, known: &Known, unique: u64) -> Request {
    let total = MIX.iter().map(|(_, weight)| weight).sum();
    let mut at = random.below(total);
    let mut number = opcode::GETATTR;
    for (candidate, weight) in MIX {
        if at < weight {
            number = candidate;
            break;
        }
        at -= weight;
    }
    let mut body = Body {
        bytes: Vec::new(),
        random,
        known,
    };
    let node = body.node();
    fill(&mut body, number);
    let bytes = body.bytes;
    let mut message = message(random, number, unique, node, &bytes);
    if random.once_in(6) {
        mutate(random, &mut message);
    }
    Request { message, unique }
}

fn fill(body: &mut Body<'_>, number: u32) {
    match number {
        opcode::INIT => {
            let flags = body.random.next();
            let minor = 20 + body.random.below(30) as u32;
            body.u32(7)
                .u32(minor)
                .u32(1 << 17)
                .u32(flags as u32)
                .u32((flags >> 32) as u32);
        }
        opcode::LOOKUP | opcode::UNLINK | opcode::RMDIR => drop(body.name()),
        opcode::REMOVEXATTR => {
            let name = body.random.pick(&XATTRS);
            body.text(name);
        }
        opcode::SETATTR => {
            let valid = body.random.next() as u32 & body.random.next() as u32 & 0x7ff;
            let (fh, size) = (body.handle(), body.offset());
            body.u32(valid).u32(0).u64(fh).u64(size).u64(0);
            for _ in 0..3 {
                let odd = body.random.once_in(10);
                let seconds = if odd {
                    body.random.next()
                } else {
                    body.random.below(1 << 32)
                };
                body.u64(seconds);
            }
            for _ in 0..3 {
                let nanoseconds = body.random.below(1_000_000_000) as u32;
                body.u32(nanoseconds);
            }
            let (mode, owner) = (body.mode(), body.random.below(3) as u32);
            body.u32(mode).u32(0).u32(owner).u32(owner).u32(0);
        }
        opcode::SYMLINK => drop(body.name().name()),
        opcode::MKNOD => {
            let (mode, rdev) = (body.mode(), body.random.next() as u32);
            body.u32(mode).u32(rdev).u32(0o22).u32(0).name();
        }
        opcode::MKDIR => {
            let mode = body.mode();
            body.u32(mode).u32(0o22).name();
        }
        opcode::CREATE | opcode::TMPFILE => {
            let (flags, mode) = (body.open_flags(), body.mode());
            body.u32(flags).u32(mode).u32(0o22).u32(0).name();
        }
        opcode::RENAME => {
            let parent = body.node();
            body.u64(parent).name().name();
        }
        opcode::RENAME2 => {
            let (parent, flags) = (body.node(), body.random.pick(&[0, 0, 1, 2, 4, 5, 3]));
            body.u64(parent).u32(flags).u32(0).name().name();
        }
        opcode::LINK => {
            let old = body.node();
            body.u64(old).name();
        }
        opcode::OPEN | opcode::OPENDIR => {
            let flags = body.open_flags();
            body.u32(flags).u32(0);
        }
        opcode::READ | opcode::READDIR | opcode::READDIRPLUS | opcode::WRITE => {
            let (fh, offset, size) = (body.handle(), body.offset(), body.length());
            let offset = if number == opcode::READDIR || number == opcode::READDIRPLUS {
                offset % 40
            } else {
                offset
            };
            let flags = body.random.pick(&[0, 0, 4, 1]);
            body.u64(fh)
                .u64(offset)
                .u32(size)
                .u32(flags)
                .u64(0)
                .u32(0)
                .u32(0);
            if number == opcode::WRITE {
                let byte = body.random.next() as u8;
                body.bytes.resize(body.bytes.len() + size as usize, byte);
            }
        }
        opcode::RELEASE | opcode::RELEASEDIR | opcode::FLUSH => {
            let fh = body.handle();
            body.u64(fh).u32(0).u32(0).u64(0);
        }
        opcode::SETXATTR => {
            let largest = if body.random.once_in(30) { 70_000 } else { 100 };
            let (size, flags) = (
                body.random.below(largest) as usize,
                body.random.pick(&[0, 0, 1, 2, 3]),
            );
            let name = body.random.pick(&XATTRS);
            let is_acl = name.starts_with(ACL_PREFIX) && !body.random.once_in(10);
            let value = match is_acl {
                true => acl(body.random),
                false => vec![b'v'; size],
            };
            body.u32(value.len() as u32).u32(flags).text(name);
            body.bytes.extend_from_slice(&value);
        }
        opcode::GETXATTR | opcode::LISTXATTR => {
            let size = body.random.pick(&[0, 1, 100, 65_536]);
            let name = body.random.pick(&XATTRS);
            body.u32(size).u32(0).text(name);
        }
        opcode::INTERRUPT => {
            // Often of a request that is parked or just being answered.
            let back = body.random.below(20);
            let unique = body.known.last_unique.saturating_sub(2 * back);
            body.u64(unique);
        }
        opcode::FALLOCATE => {
            let (fh, offset, length) = (body.handle(), body.offset(), body.offset());
            let mode = body.random.pick(&[0, 1, 3, 0x10, 0x11, 8, 2]);
            body.u64(fh).u64(offset).u64(length).u32(mode).u32(0);
        }
        opcode::LSEEK => {
            let (fh, offset) = (body.handle(), body.offset());
            let whence = body.random.pick(&[3, 4, 0, 9]);
            body.u64(fh).u64(offset).u32(whence).u32(0);
        }
        opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
            let (fh, offset, node) = (body.handle(), body.offset(), body.node());
            let (fh_out, offset_out, length) =
                (body.handle(), body.offset(), u64::from(body.length()));
            let flags = u64::from(body.random.once_in(20));
            body.u64(fh)
                .u64(offset)
                .u64(node)
                .u64(fh_out)
                .u64(offset_out)
                .u64(length)
                .u64(flags);
        }
        _ => {}
    }
}

/// A valid one, most often with a named user or group.
fn acl(random: &mut Random) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    let names = !random.once_in(4);
    for tag in [1_u16, 2, 2, 4, 8, 16, 32] {
        let is_named = tag == 2 || tag == 8;
        if (is_named || tag == 16) && !names {
            continue;
        }
        let id = match is_named {
            true => random.pick(&[0, 1, 1000, 7]),
            false => u32::MAX,
        };
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&(random.below(8) as u16).to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

/// A whole message about one node.
pub fn message(random: &mut Random, number: u32, unique: u64, node: u64, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
    message.extend_from_slice(&((HEADER_BYTES + body.len()) as u32).to_le_bytes());
    message.extend_from_slice(&number.to_le_bytes());
    message.extend_from_slice(&unique.to_le_bytes());
    message.extend_from_slice(&node.to_le_bytes());
    let owner = random.pick(&[0, 0, 1, 1000]);
    let pid = random.pick(&[0, PID_OF_NOBODY, std::process::id()]);
    for number in [owner, owner, pid, 0] {
        message.extend_from_slice(&number.to_le_bytes());
    }
    message.extend_from_slice(body);
    message
}

/// Damages anything but the request's number, by which its reply is known.
fn mutate(random: &mut Random, message: &mut Vec<u8>) {
    let tells_length = !random.once_in(5);
    match random.below(5) {
        0 => message.truncate((16 + random.below(message.len() as u64 - 15)) as usize),
        1 => {
            for _ in 0..random.below(64) {
                message.push(random.next() as u8);
            }
        }
        2 => message[4..8].copy_from_slice(&(random.below(LARGEST_OPCODE) as u32).to_le_bytes()),
        3 => {
            for _ in 0..1 + random.below(8) {
                let at = 16 + random.below(message.len() as u64 - 16) as usize;
                message[at] = random.next() as u8;
            }
        }
        _ if message.len() >= HEADER_BYTES => {
            message[36..38].copy_from_slice(&(random.below(6) as u16).to_le_bytes());
        }
        _ => {}
    }
    if tells_length {
        let length = message.len() as u32;
        message[..4].copy_from_slice(&length.to_le_bytes());
    }
}

/// Whether the request can be sent: the caller counts requests without a reply, and a reply has to
/// fit through the socket.
pub fn is_fit(message: &[u8]) -> bool {
    let Some((header, body)) = Header::parse(message) else {
        return true;
    };
    match Operation::parse(header.opcode, body) {
        Some(Operation::Forget { .. } | Operation::BatchForget(_)) => false,
        Some(Operation::Read(io) | Operation::ReadDir(io) | Operation::ReadDirPlus(io)) => {
            io.size <= SIZE_MAX_BYTES
        }
        _ => true,
    }
}
