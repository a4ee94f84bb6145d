//! Requests: bytes to operations.

use crate::opcode;

/// Bytes in front of every request's body.
pub const HEADER_BYTES: usize = 40;
/// In the flags of a write: bytes from the page cache, stored through a mapping. The program gets
/// no error if it fails.
pub const WRITE_CACHE: u32 = 1 << 0;
/// In the flags of a write: set-id bits of the file are to be cleared.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;

/// Bits of `SetAttrIn::valid`.
#[allow(missing_docs, reason = "named as in the kernel's header")]
pub mod set_attr {
    pub const MODE: u32 = 1;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const CTIME: u32 = 1 << 10;
}

/// The request's header: its caller, operation and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the kernel's header")]
pub struct Header {
    pub opcode: u32,
    pub unique: u64,
    pub nodeid: u64,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
}

impl Header {
    /// The header and the body of one whole request; None unless its length is that of `message`.
    pub fn parse(message: &[u8]) -> Option<(Header, &[u8])> {
        let mut input = Input(message);
        let length = input.u32()?;
        let header = Header {
            opcode: input.u32()?,
            unique: input.u64()?,
            nodeid: input.u64()?,
            uid: input.u32()?,
            gid: input.u32()?,
            pid: input.u32()?,
        };
        let extensions = usize::from(u16::from_le_bytes(input.array()?)) * 8;
        input.array::<2>()?;
        if length as usize != message.len() {
            return None;
        }
        let body = input.0.len().checked_sub(extensions)?;
        Some((header, &input.0[..body]))
    }
}

/// The changes of SETATTR. A time beyond the range of 64 bits of nanoseconds is `i64::MIN` or
/// `i64::MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "named as in the kernel's header; times in nanoseconds"
)]
pub struct SetAttrIn {
    pub valid: u32,
    pub size: u64,
    pub atime_ns: i64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

/// A handle, and a range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the kernel's header")]
pub struct IoIn {
    pub fh: u64,
    pub offset: u64,
    pub size: u32,
    pub flags: u32,
}

/// How to make a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the kernel's header")]
pub struct CreateIn {
    pub flags: u32,
    pub mode: u32,
    pub umask: u32,
}

/// The (nodeid, count) pairs of a BATCH_FORGET.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgets<'a>(&'a [u8]);

impl Iterator for Forgets<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let mut input = Input(self.0);
        let pair = (input.u64()?, input.u64()?);
        self.0 = input.0;
        Some(pair)
    }
}

/// The parsed body of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the kernel's header")]
pub enum Operation<'a> {
    Init {
        major: u32,
        minor: u32,
        max_readahead: u32,
        flags: u64,
    },
    Lookup {
        name: &'a [u8],
    },
    Forget {
        count: u64,
    },
    BatchForget(Forgets<'a>),
    GetAttr,
    SetAttr(SetAttrIn),
    ReadLink,
    Symlink {
        name: &'a [u8],
        target: &'a [u8],
    },
    MkNod {
        mode: u32,
        rdev: u32,
        umask: u32,
        name: &'a [u8],
    },
    MkDir {
        mode: u32,
        umask: u32,
        name: &'a [u8],
    },
    Unlink {
        name: &'a [u8],
    },
    RmDir {
        name: &'a [u8],
    },
    Rename {
        new_parent: u64,
        flags: u32,
        name: &'a [u8],
        new_name: &'a [u8],
    },
    Link {
        nodeid: u64,
        name: &'a [u8],
    },
    Open {
        flags: u32,
    },
    Read(IoIn),
    Write(IoIn, &'a [u8]),
    StatFs,
    Release {
        fh: u64,
    },
    Fsync {
        fh: u64,
        datasync: bool,
    },
    SetXattr {
        flags: u32,
        name: &'a [u8],
        value: &'a [u8],
    },
    GetXattr {
        size: u32,
        name: &'a [u8],
    },
    ListXattr {
        size: u32,
    },
    RemoveXattr {
        name: &'a [u8],
    },
    Flush {
        fh: u64,
    },
    OpenDir,
    ReadDir(IoIn),
    ReadDirPlus(IoIn),
    ReleaseDir {
        fh: u64,
    },
    FsyncDir,
    Create(CreateIn, &'a [u8]),
    TmpFile(CreateIn),
    Interrupt {
        unique: u64,
    },
    Destroy,
    Fallocate {
        fh: u64,
        offset: u64,
        length: u64,
        mode: u32,
    },
    Seek {
        fh: u64,
        offset: u64,
        whence: u32,
    },
    CopyFileRange {
        fh: u64,
        offset: u64,
        nodeid_out: u64,
        fh_out: u64,
        offset_out: u64,
        length: u64,
        flags: u64,
    },
    SyncFs,
    /// Known to the kernel, not to this crate.
    Other,
}

impl<'a> Operation<'a> {
    /// None if the body does not fit the operation.
    pub fn parse(number: u32, body: &'a [u8]) -> Option<Operation<'a>> {
        let mut input = Input(body);
        Some(match number {
            opcode::INIT => Operation::Init {
                major: input.u32()?,
                minor: input.u32()?,
                max_readahead: input.u32()?,
                flags: {
                    let low = input.u32()?;
                    // Kernels before 7.36 send no second word.
                    u64::from(low) | u64::from(input.u32().unwrap_or(0)) << 32
                },
            },
            opcode::LOOKUP => Operation::Lookup {
                name: input.name()?,
            },
            opcode::FORGET => Operation::Forget {
                count: input.u64()?,
            },
            opcode::BATCH_FORGET => {
                let count = u64::from(input.u32()?).checked_mul(16)?;
                input.u32()?;
                Operation::BatchForget(Forgets(input.take(usize::try_from(count).ok()?)?))
            }
            opcode::GETATTR => Operation::GetAttr,
            opcode::SETATTR => Operation::SetAttr(input.set_attr()?),
            opcode::READLINK => Operation::ReadLink,
            opcode::SYMLINK => Operation::Symlink {
                name: input.name()?,
                target: input.name()?,
            },
            opcode::MKNOD => {
                let (mode, rdev, umask, _) =
                    (input.u32()?, input.u32()?, input.u32()?, input.u32()?);
                Operation::MkNod {
                    mode,
                    rdev,
                    umask,
                    name: input.name()?,
                }
            }
            opcode::MKDIR => Operation::MkDir {
                mode: input.u32()?,
                umask: input.u32()?,
                name: input.name()?,
            },
            opcode::UNLINK => Operation::Unlink {
                name: input.name()?,
            },
            opcode::RMDIR => Operation::RmDir {
                name: input.name()?,
            },
            opcode::RENAME => Operation::Rename {
                new_parent: input.u64()?,
                flags: 0,
                name: input.name()?,
                new_name: input.name()?,
            },
            opcode::RENAME2 => {
                let (new_parent, flags, _) = (input.u64()?, input.u32()?, input.u32()?);
                Operation::Rename {
                    new_parent,
                    flags,
                    name: input.name()?,
                    new_name: input.name()?,
                }
            }
            opcode::LINK => Operation::Link {
                nodeid: input.u64()?,
                name: input.name()?,
            },
            opcode::OPEN => Operation::Open {
                flags: input.u32()?,
            },
            opcode::OPENDIR => Operation::OpenDir,
            opcode::READ => Operation::Read(input.io()?),
            opcode::READDIR => Operation::ReadDir(input.io()?),
            opcode::READDIRPLUS => Operation::ReadDirPlus(input.io()?),
            opcode::WRITE => {
                let io = input.io()?;
                Operation::Write(io, input.take(io.size as usize)?)
            }
            opcode::STATFS => Operation::StatFs,
            opcode::RELEASE => Operation::Release { fh: input.u64()? },
            opcode::RELEASEDIR => Operation::ReleaseDir { fh: input.u64()? },
            opcode::FLUSH => Operation::Flush { fh: input.u64()? },
            opcode::FSYNC => Operation::Fsync {
                fh: input.u64()?,
                datasync: input.u32()? & 1 != 0,
            },
            opcode::FSYNCDIR => Operation::FsyncDir,
            opcode::SETXATTR => {
                let (size, flags) = (input.u32()?, input.u32()?);
                Operation::SetXattr {
                    flags,
                    name: input.name()?,
                    value: input.take(size as usize)?,
                }
            }
            opcode::GETXATTR => {
                let (size, _) = (input.u32()?, input.u32()?);
                Operation::GetXattr {
                    size,
                    name: input.name()?,
                }
            }
            opcode::LISTXATTR => Operation::ListXattr { size: input.u32()? },
            opcode::REMOVEXATTR => Operation::RemoveXattr {
                name: input.name()?,
            },
            opcode::CREATE => Operation::Create(input.create()?, input.name()?),
            opcode::TMPFILE => Operation::TmpFile(input.create()?),
            opcode::INTERRUPT => Operation::Interrupt {
                unique: input.u64()?,
            },
            opcode::DESTROY => Operation::Destroy,
            opcode::FALLOCATE => Operation::Fallocate {
                fh: input.u64()?,
                offset: input.u64()?,
                length: input.u64()?,
                mode: input.u32()?,
            },
            opcode::LSEEK => Operation::Seek {
                fh: input.u64()?,
                offset: input.u64()?,
                whence: input.u32()?,
            },
            opcode::COPY_FILE_RANGE | opcode::COPY_FILE_RANGE_64 => {
                let (fh, offset, nodeid_out) = (input.u64()?, input.u64()?, input.u64()?);
                Operation::CopyFileRange {
                    fh,
                    offset,
                    nodeid_out,
                    fh_out: input.u64()?,
                    offset_out: input.u64()?,
                    length: input.u64()?,
                    flags: input.u64()?,
                }
            }
            opcode::SYNCFS => Operation::SyncFs,
            _ => Operation::Other,
        })
    }
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Bytes up to a zero, which is taken too.
    fn name(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let name = self.take(end)?;
        self.take(1)?;
        Some(name)
    }

    fn io(&mut self) -> Option<IoIn> {
        let (fh, offset, size, flags) = (self.u64()?, self.u64()?, self.u32()?, self.u32()?);
        self.take(16)?;
        Some(IoIn {
            fh,
            offset,
            size,
            flags,
        })
    }

    fn create(&mut self) -> Option<CreateIn> {
        let (flags, mode, umask, _) = (self.u32()?, self.u32()?, self.u32()?, self.u32()?);
        Some(CreateIn { flags, mode, umask })
    }

    fn set_attr(&mut self) -> Option<SetAttrIn> {
        let (valid, _, _fh, size, _owner) = (
            self.u32()?,
            self.u32()?,
            self.u64()?,
            self.u64()?,
            self.u64()?,
        );
        let seconds = [self.u64()?, self.u64()?, self.u64()?];
        let nanoseconds = [self.u32()?, self.u32()?, self.u32()?];
        let ns = |at: usize| {
            let exact =
                i128::from(seconds[at] as i64) * 1_000_000_000 + i128::from(nanoseconds[at]);
            exact.clamp(i64::MIN.into(), i64::MAX.into()) as i64
        };
        let (mode, _, uid, gid) = (self.u32()?, self.u32()?, self.u32()?, self.u32()?);
        Some(SetAttrIn {
            valid,
            size,
            atime_ns: ns(0),
            mtime_ns: ns(1),
            ctime_ns: ns(2),
            mode,
            uid,
            gid,
        })
    }
}
