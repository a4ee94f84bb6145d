//! The operations that change the tree, on the engine.

use cowfs_base::Errno;
use cowfs_engine::{AttrChange, Punching};

use crate::disk::Disk;
use crate::moment::Moment;
use crate::support::cases::count;
use crate::support::{ROOT, root_user};
use crate::{Op, PATHS};

impl Disk {
    pub fn change(&mut self, op: &Op) {
        let caller = root_user();
        // Errors (a path that is not there, a directory in the way) are part of the game.
        let outcome = match op {
            Op::Put(at, length, byte) => self.put(PATHS[*at], &vec![*byte; usize::from(*length)]),
            Op::Write(at, offset, length, byte) => {
                let bytes = vec![*byte; usize::from(*length)];
                self.world.write_at(PATHS[*at], u64::from(*offset), &bytes)
            }
            Op::Truncate(at, size) => self.world.resolve(PATHS[*at]).and_then(|ino| {
                let change = AttrChange {
                    size: Some(u64::from(*size)),
                    ..AttrChange::default()
                };
                self.world
                    .ask(|engine| engine.setattr(ino, &caller, &change))
                    .map(drop)
            }),
            Op::Unlink(at) => self.world.unlink(PATHS[*at]),
            Op::Rename(from, to, exchanges) => {
                self.rename(PATHS[*from], PATHS[*to], u32::from(*exchanges) * 2)
            }
            Op::Link(from, to) => self.link(PATHS[*from], PATHS[*to]),
            Op::Mkdir(first) => {
                let name = if *first { &b"d"[..] } else { b"e" };
                self.world
                    .ask(|engine| engine.mkdir(ROOT, name, 0o755, &caller))
                    .map(drop)
            }
            Op::SetXattr(at, value) => self.world.resolve(PATHS[*at]).and_then(|ino| {
                self.world
                    .ask(|engine| engine.set_xattr(ino, b"user.x", &[*value], 0))
            }),
            Op::Copy(from, to, offset, at, length) => self.copy(
                (PATHS[*from], u64::from(*offset)),
                (PATHS[*to], u64::from(*at)),
                u64::from(*length),
            ),
            Op::Dig(at, offset, length) => {
                self.punch(PATHS[*at], u64::from(*offset), u64::from(*length))
            }
            Op::LinkUnnamed(at, length, byte, syncs) => {
                self.link_unnamed(PATHS[*at], &vec![*byte; usize::from(*length)], *syncs)
            }
            Op::Reclaim => self.world.ask(|engine| engine.reclaim_staging()).map(drop),
            Op::Punch => self
                .world
                .ask(|engine| engine.punch_staging(Punching::Thorough))
                .map(drop),
            _ => Ok(()),
        };
        count(op, outcome.is_ok());
        self.history.push(Moment::of(&self.world));
    }

    /// Two records, so two moments.
    fn put(&mut self, path: &str, bytes: &[u8]) -> Result<(), Errno> {
        let (parent, name) = self.world.place(path)?;
        let flags = libc::O_RDWR | libc::O_TRUNC;
        let (attr, fh) = self
            .world
            .ask(|engine| engine.create(parent, name, 0o644, flags, &root_user()))?;
        self.history.push(Moment::of(&self.world));
        self.world.ask(|engine| engine.write(fh, 0, bytes, true))?;
        self.world.ask(|engine| engine.release(fh))?;
        self.world.ask(|engine| engine.forget(attr.ino, 1))
    }

    fn copy(&self, from: (&str, u64), to: (&str, u64), length: u64) -> Result<(), Errno> {
        let (source, target) = (self.world.resolve(from.0)?, self.world.resolve(to.0)?);
        let open = |ino, flags| self.world.ask(|engine| engine.open_file(ino, flags));
        let (source, target) = (open(source, libc::O_RDONLY)?, open(target, libc::O_WRONLY)?);
        let copied = self
            .world
            .ask(|engine| engine.copy_range((source, from.1), (target, to.1), length, false));
        self.world.ask(|engine| engine.release(source))?;
        self.world.ask(|engine| engine.release(target))?;
        copied.map(drop)
    }

    fn punch(&self, path: &str, offset: u64, length: u64) -> Result<(), Errno> {
        let ino = self.world.resolve(path)?;
        let fh = self
            .world
            .ask(|engine| engine.open_file(ino, libc::O_WRONLY))?;
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let punched = self
            .world
            .ask(|engine| engine.allocate(fh, offset, length, mode, false));
        self.world.ask(|engine| engine.release(fh))?;
        punched
    }

    fn link_unnamed(&mut self, path: &str, bytes: &[u8], syncs: bool) -> Result<(), Errno> {
        let (parent, name) = self.world.place(path)?;
        let (attr, fh) = self
            .world
            .ask(|engine| engine.create_unnamed(ROOT, 0o640, libc::O_RDWR, &root_user()))?;
        self.world.ask(|engine| engine.write(fh, 0, bytes, true))?;
        if syncs {
            self.world.engine().fsync(fh, false).expect("syncs");
            self.journal_synced();
            self.file_synced(attr.ino);
        }
        let linked = self
            .world
            .ask(|engine| engine.link(attr.ino, parent, name))
            .map(drop);
        if syncs && linked.is_ok() {
            // Its first moment is the next one.
            self.fsynced.insert(attr.ino, self.now() + 1);
        }
        self.world.ask(|engine| engine.release(fh))?;
        let lookups = 1 + u64::from(linked.is_ok());
        self.world.ask(|engine| engine.forget(attr.ino, lookups))?;
        linked
    }

    fn rename(&self, from: &str, to: &str, flags: u32) -> Result<(), Errno> {
        let (parent, name) = self.world.place(from)?;
        let (new_parent, new_name) = self.world.place(to)?;
        self.world
            .ask(|engine| engine.rename(parent, name, new_parent, new_name, flags, &root_user()))
    }

    fn link(&self, from: &str, to: &str) -> Result<(), Errno> {
        let ino = self.world.resolve(from)?;
        let (parent, name) = self.world.place(to)?;
        self.world.ask(|engine| engine.link(ino, parent, name))?;
        self.world.ask(|engine| engine.forget(ino, 1))
    }
}
