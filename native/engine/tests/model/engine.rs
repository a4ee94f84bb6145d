//! The engine's side of the model.

use cowfs_base::{Errno, Ino};
use cowfs_engine::{AttrChange, Caller};

use crate::local::{UMASK, acl_name};
use crate::op::acl;
use crate::support::{World, root_user};
use crate::{Op, Outcome, Where};

/// The operation on the engine, refusing symbolic links where `Local` does.
pub fn run(world: &World, op: &Op) -> Outcome {
    let caller = Caller {
        umask: UMASK,
        ..root_user()
    };
    let existing = |at: &Where| {
        let ino = world.resolve(&at.path())?;
        let mode = world.ask(|engine| engine.getattr(ino))?.mode;
        if mode & libc::S_IFMT == libc::S_IFLNK {
            Err(Errno::ELOOP)
        } else {
            Ok(ino)
        }
    };
    let file = |at: &Where| {
        let ino = existing(at)?;
        match world.ask(|engine| engine.getattr(ino))?.mode & libc::S_IFMT {
            libc::S_IFREG => Ok(ino),
            libc::S_IFDIR => Err(Errno::EISDIR),
            _ => Err(Errno(libc::ENXIO)),
        }
    };
    let setattr = |ino, change: AttrChange| {
        world
            .ask(|engine| engine.setattr(ino, &caller, &change))
            .map(drop)
    };
    match op {
        Op::Create(at) => {
            let path = at.path();
            let (parent, name) = world.place(&path)?;
            let flags = libc::O_RDWR | libc::O_EXCL;
            let (attr, fh) =
                world.ask(|engine| engine.create(parent, name, 0o666, flags, &caller))?;
            world.ask(|engine| engine.release(fh))?;
            world.ask(|engine| engine.forget(attr.ino, 1))
        }
        Op::Mkdir(at) => {
            let path = at.path();
            let (parent, name) = world.place(&path)?;
            let attr = world.ask(|engine| engine.mkdir(parent, name, 0o777, &caller))?;
            world.ask(|engine| engine.forget(attr.ino, 1))
        }
        Op::Symlink(at, to) => {
            let path = at.path();
            let (parent, name) = world.place(&path)?;
            let target = format!("to-{to}");
            let attr =
                world.ask(|engine| engine.symlink(parent, name, target.as_bytes(), &caller))?;
            world.ask(|engine| engine.forget(attr.ino, 1))
        }
        Op::Write(at, offset, length, byte) => {
            file(at)?;
            world.write_at(
                &at.path(),
                u64::from(*offset),
                &vec![*byte; usize::from(*length)],
            )
        }
        Op::Replace(at, length, byte) => {
            file(at)?;
            world.replace(&at.path(), &vec![*byte; usize::from(*length)])
        }
        Op::Truncate(at, size) => setattr(
            file(at)?,
            AttrChange {
                size: Some(u64::from(*size)),
                ..AttrChange::default()
            },
        ),
        Op::Chmod(at, mode) => setattr(
            existing(at)?,
            AttrChange {
                mode: Some(u32::from(*mode)),
                ..AttrChange::default()
            },
        ),
        Op::Unlink(at) => world.unlink(&at.path()),
        Op::Rmdir(at) => {
            let path = at.path();
            let (parent, name) = world.place(&path)?;
            world.ask(|engine| engine.rmdir(parent, name, &caller))
        }
        Op::Rename(from, to, flags) => {
            let (from, to) = (from.path(), to.path());
            let (parent, name) = world.place(&from)?;
            let (new_parent, new_name) = world.place(&to)?;
            world.ask(|engine| {
                engine.rename(
                    parent,
                    name,
                    new_parent,
                    new_name,
                    u32::from(*flags),
                    &caller,
                )
            })
        }
        Op::Link(from, to) => {
            let ino = world.resolve(&from.path())?;
            let to = to.path();
            let (parent, name) = world.place(&to)?;
            world.ask(|engine| engine.link(ino, parent, name))?;
            world.ask(|engine| engine.forget(ino, 1))
        }
        Op::SetXattr(at, name, value) => {
            let (ino, name) = (existing(at)?, format!("user.{name}"));
            let value = vec![*value; usize::from(*value)];
            world.ask(|engine| engine.set_xattr(ino, name.as_bytes(), &value, 0))
        }
        Op::RemoveXattr(at, name) => {
            let (ino, name) = (existing(at)?, format!("user.{name}"));
            world.ask(|engine| engine.remove_xattr(ino, name.as_bytes()))
        }
        Op::SetAcl(at, which, is_default) => {
            let (ino, name) = (existing(at)?, acl_name(*is_default).as_bytes());
            world.ask(|engine| engine.set_acl(ino, name, &acl(*which), &caller))
        }
        Op::RemoveAcl(at, is_default) => {
            let (ino, name) = (existing(at)?, acl_name(*is_default).as_bytes());
            world.ask(|engine| engine.remove_xattr(ino, name))
        }
        Op::Copy(from, to, range) | Op::During(_, from, to, range) => {
            let (source, target) = (file(from)?, file(to)?);
            let open = |ino, flags| world.ask(|engine| engine.open_file(ino, flags));
            let source = (open(source, libc::O_RDONLY)?, source);
            let target = (open(target, libc::O_WRONLY)?, target);
            let outcome = copy(world, source, target, *range);
            world.ask(|engine| engine.release(source.0))?;
            world.ask(|engine| engine.release(target.0))?;
            outcome
        }
        Op::Punch(at, offset, length) => {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            allocate(world, file(at)?, mode, (*offset, *length))
        }
        Op::Allocate(at, offset, length, keeps_size) => {
            let ino = file(at)?;
            let mode = libc::FALLOC_FL_KEEP_SIZE * i32::from(*keeps_size);
            allocate(world, ino, mode, (*offset, *length))?;
            let blocks = world.ask(|engine| engine.getattr(ino))?.blocks;
            assert!(
                blocks >= u64::from(*length).div_ceil(512),
                "{blocks} blocks"
            );
            Ok(())
        }
        _ => Ok(()),
    }
}

fn allocate(world: &World, ino: Ino, mode: i32, (offset, length): (u16, u16)) -> Outcome {
    let fh = world.ask(|engine| engine.open_file(ino, libc::O_WRONLY))?;
    let (offset, length) = (u64::from(offset), u64::from(length));
    let outcome = world.ask(|engine| engine.allocate(fh, offset, length, mode, false));
    world.ask(|engine| engine.release(fh))?;
    outcome
}

/// Copies as the kernel does: ranges that cannot be shared are read and written.
pub fn copy(
    world: &World,
    source: (cowfs_engine::HandleId, Ino),
    target: (cowfs_engine::HandleId, Ino),
    range: (u16, u16, u16),
) -> Outcome {
    let (mut from, mut to) = (u64::from(range.0), u64::from(range.1));
    let size = world.ask(|engine| engine.getattr(source.1))?.size;
    let mut left = u64::from(range.2).min(size.saturating_sub(from));
    while left > 0 {
        let copied =
            world.ask(|engine| engine.copy_range((source.0, from), (target.0, to), left, false));
        match copied {
            Ok(done) => {
                assert!(done > 0, "the source is longer");
                (from, to, left) = (from + done, to + done, left - done);
            }
            Err(Errno::EOPNOTSUPP) => {
                if source.1 == target.1 && from < to + left && to < from + left {
                    return Err(Errno::EINVAL);
                }
                let bytes = world.ask(|engine| engine.read_file(source.0, from, left as usize))?;
                world.ask(|engine| engine.write(target.0, to, &bytes, false))?;
                left = 0;
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
