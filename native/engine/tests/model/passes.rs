//! Operations on files while a pass over staging counts their bytes by segment.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use cowfs_base::{Errno, Ino};
use cowfs_engine::{AttrChange, Punching};

use crate::support::{ROOT, World, root_user};
use crate::{LIMIT_BYTES, Model, Where, local};

/// A file on both sides.
struct Both {
    ino: Ino,
    file: File,
}

impl Both {
    /// None: there is no such file.
    fn at(model: &Model, at: &Where) -> Option<Both> {
        let path = model.local.file(at).ok()?;
        let opened = File::options().read(true).write(true).open(path);
        Some(Both {
            ino: model.world.resolve(&at.path()).expect("exists here too"),
            file: opened.expect("opens"),
        })
    }

    fn open(&self, world: &World, flags: i32) -> cowfs_engine::HandleId {
        let opened = world.ask(|engine| engine.open_file(self.ino, flags));
        opened.expect("opens")
    }

    /// Through a handle that is closed a moment later: a file that may be mapped writable is never
    /// shared.
    fn write(&self, world: &World, offset: u64, bytes: &[u8]) {
        let fh = self.open(world, libc::O_RDWR);
        let written = world.ask(|engine| engine.write(fh, offset, bytes, false));
        world.ask(|engine| engine.release(fh)).expect("closes");
        if written != Err(Errno::ENOSPC) {
            assert_eq!(written, Ok(bytes.len()));
            self.file.write_all_at(bytes, offset).expect("writes");
        }
    }
}

impl Model {
    /// A pass over a file whose bytes have a segment for themselves. As soon as a few extents are
    /// counted, they are copied to another file by reference, and the first is emptied. They must
    /// not count as dead.
    pub fn move_in_pass(&self, from: &Where, to: &Where, range: (u16, u16, u16), punches: bool) {
        let (Some(source), Some(target)) = (Both::at(self, from), Both::at(self, to)) else {
            return;
        };
        let inode_of = |both: &Both| both.file.metadata().expect("exists").ino();
        if inode_of(&source) == inode_of(&target) {
            return;
        }
        self.fill_segment();
        source.write(&self.world, range.0.into(), &vec![7; range.2.into()]);
        self.fill_segment();
        let handles = [&source, &target].map(|both| both.open(&self.world, libc::O_RDWR));
        // In memory from then on.
        for fh in handles {
            let read = self.world.ask(|engine| engine.read_file(fh, 0, 1));
            read.expect("reads");
        }
        let engine = self.world.engine();
        engine.release(handles[0]).expect("closes");
        let (from, to) = (source.open(&self.world, libc::O_RDONLY), handles[1]);
        let (ino, (told, tells)) = (source.ino, std::sync::mpsc::channel());
        self.world.interrupt_with(move |engine| {
            let places = ((from, range.0.into()), (to, range.1.into()));
            let copied = engine.copy_range(places.0, places.1, range.2.into(), false);
            let change = AttrChange {
                size: Some(0),
                ..AttrChange::default()
            };
            let cut = copied.and_then(|copied| {
                engine.setattr(ino, &root_user(), &change)?;
                Ok(copied)
            });
            told.send(cut.unwrap_or(0)).expect("is heard");
        });
        let passed = if punches {
            engine.punch_staging(Punching::Thorough)
        } else {
            engine.reclaim_staging()
        };
        passed.expect("passes");
        self.world.was_not_interrupted();
        if let Ok(copied @ 1..) = tells.recv() {
            let range = (range.0, range.1, copied as u16);
            local::copy(&source.file, &target.file, range).expect("copies");
            source.file.set_len(0).expect("cuts");
        }
        engine.release(from).expect("closes");
        engine.release(to).expect("closes");
    }

    /// Makes the next write go to another segment.
    pub fn fill_segment(&self) {
        let world = &self.world;
        let made =
            world.ask(|engine| engine.create(ROOT, b"big", 0o600, libc::O_RDWR, &root_user()));
        let (attr, fh) = made.expect("creates");
        // A segment that cannot take a write is closed.
        let length = (LIMIT_BYTES + 1).min(world.segment_bytes) as usize;
        let outcome = world.ask(|engine| engine.write(fh, 0, &vec![0; length], true));
        assert!(outcome == Err(Errno::ENOSPC) || outcome == Ok(world.segment_bytes as usize));
        world.unlink("big").expect("unlinks");
        world.engine().release(fh).expect("closes");
        world.engine().forget(attr.ino, 1).expect("forgets");
    }
}
