//! Answers about the bytes of files.

use cowfs_base::Errno;
use cowfs_engine::Result;
use cowfs_fuse_abi::{Header, Operation, Reply, WRITE_KILL_SUIDGID, opcode};

use crate::answer::{Answer, unknown};
use crate::buffer::ReadBuffer;
use crate::caller::caller;
use crate::device::MAX_WRITE_BYTES;
use crate::lane::Shared;

const COPY_MAX_BYTES: u64 = 2 << 30;

impl Shared {
    pub(crate) fn answer_about_bytes(
        &self,
        header: &Header,
        operation: Operation<'_>,
    ) -> Result<Answer> {
        let (engine, unique) = (&*self.engine, header.unique);
        match operation {
            Operation::Open { flags } => {
                // Without ATOMIC_O_TRUNC the kernel truncates by SETATTR, after it has refused to open a running program.
                self.open(unique, header.nodeid, flags as i32 & !libc::O_TRUNC)
            }
            Operation::Read(io) => {
                let mut data = ReadBuffer::take(io.size.min(MAX_WRITE_BYTES) as usize);
                let length = engine.read_into(io.fh, io.offset, &mut data)?;
                data.truncate(length);
                let message = Reply::new(unique).finish(data.len());
                Ok(Answer {
                    message,
                    data,
                    ..Answer::default()
                })
            }
            Operation::Write(io, data) => {
                let clears = io.flags & WRITE_KILL_SUIDGID != 0;
                let written = engine.write(io.fh, io.offset, data, clears)?;
                Ok(Answer::plain(Reply::new(unique).size(written as u32)))
            }
            Operation::Flush { fh } => {
                engine.flush(fh)?;
                Ok(Answer::plain(Reply::new(unique)))
            }
            Operation::Release { fh } => {
                self.close(fh)?;
                Ok(Answer::plain(Reply::new(unique)))
            }
            Operation::Fallocate {
                fh,
                offset,
                length,
                mode,
            } => {
                engine.allocate(fh, offset, length, mode as i32, header.uid != 0)?;
                Ok(Answer::plain(Reply::new(unique)))
            }
            Operation::Seek { fh, offset, whence } => {
                let found = engine.seek(fh, offset, whence as i32)?;
                Ok(Answer::plain(Reply::new(unique).number(found)))
            }
            Operation::CopyFileRange {
                fh,
                offset,
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
                let copied = engine.copy_range(
                    (fh, offset),
                    (fh_out, offset_out),
                    length,
                    header.uid != 0,
                )?;
                let reply = Reply::new(unique);
                Ok(Answer::plain(match header.opcode {
                    opcode::COPY_FILE_RANGE => reply.size(copied as u32),
                    _ => reply.number(copied),
                }))
            }
            Operation::TmpFile(create) => {
                let caller = caller(header, create.umask, create.mode);
                let (attr, fh) = engine.create_unnamed(
                    header.nodeid,
                    create.mode,
                    create.flags as i32,
                    &caller,
                )?;
                Ok(self.created(unique, &attr, fh))
            }
            _ => Err(unknown(header.opcode).into()),
        }
    }
}
