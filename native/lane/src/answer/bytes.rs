//! Answers about the bytes of files.

use cowfs_base::Errno;
use cowfs_engine::{Clears, HandleId, ReadBytes, depends_on_groups};
use cowfs_fuse_abi::{Header, IoIn, Operation, Reply, WRITE_CACHE, WRITE_KILL_SUIDGID};

use cowfs_mounted::{Error, Result};

use crate::answer::{Answer, unknown};
use crate::buffer::{Data, ReadBuffer};
use crate::device::MAX_WRITE_BYTES;
use crate::lane::Shared;
use crate::pages::bring_in;

const COPY_MAX_BYTES: u64 = 2 << 30;

impl Shared {
    pub(crate) fn answer_about_bytes(
        &self,
        header: &Header,
        operation: Operation<'_>,
    ) -> Result<Answer> {
        let (files, unique) = (&*self.files, header.unique);
        let handle = |fh| HandleId {
            ino: header.nodeid,
            fh,
        };
        match operation {
            Operation::Open { flags } => {
                // Without ATOMIC_O_TRUNC the kernel truncates by SETATTR, after it has refused to
                // open a running program.
                self.open(unique, header.nodeid, flags as i32 & !libc::O_TRUNC)
            }
            Operation::Read(io) => {
                let room = io.size.min(MAX_WRITE_BYTES) as usize;
                let buffer = ReadBuffer::take(room, self.is_continued());
                let mut buffer = buffer.map_err(Errno::from)?;
                let data = match files.read_or_lend(handle(io.fh), io.offset, &mut buffer)? {
                    ReadBytes::Copied(length) => {
                        buffer.truncate(length);
                        Data::Copied(buffer)
                    }
                    ReadBytes::Lent(parts) => {
                        if self.is_continued() {
                            parts.iter().for_each(|part| bring_in(part));
                        }
                        Data::Lent(parts)
                    }
                };
                let message = Reply::new(unique).finish(data.len());
                Ok(Answer {
                    message,
                    data,
                    ..Answer::default()
                })
            }
            Operation::Write(io, data) => {
                let clears = self.clears(header, io.flags & WRITE_KILL_SUIDGID != 0);
                let outcome = files.own(header.nodeid).and_then(|engine| {
                    Ok(engine.write_at_once(handle(io.fh), io.offset, data, clears)?)
                });
                if io.flags & WRITE_CACHE != 0
                    && let Err(error) = &outcome
                {
                    // Should it be tried again and succeed, it is forgotten again.
                    self.note_refused_store(header.nodeid, &io, error);
                }
                Ok(Answer::plain(Reply::new(unique).size(outcome? as u32)))
            }
            // Nothing waits to be written: every write was staged before it was answered.
            Operation::Flush { .. } => Ok(Answer::plain(Reply::new(unique))),
            Operation::Release { fh } => {
                self.close(handle(fh))?;
                Ok(Answer::plain(Reply::new(unique)))
            }
            Operation::Fallocate {
                fh,
                offset,
                length,
                mode,
            } => {
                let clears = self.clears(header, header.uid != 0);
                files.own(header.nodeid)?.allocate(
                    handle(fh),
                    offset,
                    length,
                    mode as i32,
                    clears,
                )?;
                Ok(Answer::plain(Reply::new(unique)))
            }
            Operation::Seek { fh, offset, whence } => {
                let found = files.seek(handle(fh), offset, whence as i32)?;
                Ok(Answer::plain(Reply::new(unique).number(found)))
            }
            Operation::CopyFileRange {
                fh,
                offset,
                nodeid_out,
                fh_out,
                offset_out,
                length,
                flags,
            } => {
                if flags != 0 {
                    return Err(Errno::EINVAL.into());
                }
                // The older form can only tell 32 bits.
                let length = length.min(COPY_MAX_BYTES);
                let target = Header {
                    nodeid: nodeid_out,
                    ..*header
                };
                let engine = files.own(nodeid_out)?;
                files.own_source(header.nodeid)?;
                let out = HandleId {
                    ino: nodeid_out,
                    fh: fh_out,
                };
                let copied = engine.copy_range(
                    (handle(fh), offset),
                    (out, offset_out),
                    length,
                    self.clears(&target, header.uid != 0),
                )?;
                Ok(super::copied(header, copied))
            }
            Operation::TmpFile(create) => {
                let caller = self.caller(header, create.umask, create.mode);
                let (attr, id) = files.own(header.nodeid)?.create_unnamed(
                    header.nodeid,
                    create.mode,
                    create.flags as i32,
                    &caller,
                )?;
                Ok(self.created(unique, &attr, id))
            }
            _ => Err(unknown(header.opcode).into()),
        }
    }

    /// The mode bits that a change of the file's bytes clears. Groups are looked up only if they
    /// matter.
    fn clears(&self, header: &Header, is_unprivileged: bool) -> Clears {
        if !is_unprivileged {
            return Clears::Nothing;
        }
        let Ok(attr) = self.files.getattr(header.nodeid) else {
            return Clears::ForMember;
        };
        match depends_on_groups(attr.mode)
            && self.caller(header, 0, attr.mode).is_outside_group(attr.gid)
        {
            true => Clears::ForOutsider,
            false => Clears::ForMember,
        }
    }

    fn note_refused_store(&self, node: u64, io: &IoIn, error: &Error) {
        let errno = match error {
            Error::Os(errno) => *errno,
            _ => Errno::EIO,
        };
        let length = u64::from(io.size);
        // It fails only on a closed or broken engine, which commits nothing any more.
        let _ = self
            .files
            .engine()
            .note_refused_store(node, io.offset, length, errno);
    }
}
