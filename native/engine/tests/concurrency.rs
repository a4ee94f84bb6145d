//! Many threads on one engine.

mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use cowfs_base::Ino;
use cowfs_engine::{AttrChange, Engine, Punching};
use support::{Base, ROOT, World, root_user, tree_of};

#[test]
fn writes_of_many_threads_to_one_file_are_whole_and_none_is_lost() {
    let mut world = World::new();
    let ino = world.put("log", b"");
    let engine = world.engine();
    thread::scope(|scope| {
        for thread in 0..4_u8 {
            scope.spawn(move || {
                let fh = engine.open_file(ino, libc::O_WRONLY).expect("opens");
                for number in 0..200_u8 {
                    let offset = (u64::from(number) * 4 + u64::from(thread)) * 4;
                    engine
                        .write(fh, offset, &[thread, number, thread, number], true)
                        .expect("writes");
                    if number % 50 == 0 {
                        engine.fsync(fh, false).expect("syncs");
                    }
                }
                engine.release(fh).expect("closes");
            });
        }
    });
    let expected: Vec<u8> = (0..200_u8)
        .flat_map(|number| (0..4_u8).flat_map(move |thread| [thread, number, thread, number]))
        .collect();
    assert_eq!(world.get("log"), expected);
    world.crash();
    assert_eq!(world.get("log"), expected);
}

#[test]
fn commits_go_on_while_threads_write_and_trim() {
    let mut world = World::new();
    let stop = AtomicBool::new(false);
    assert!(world.names("").is_empty(), "and loads the root");
    thread::scope(|scope| {
        let (engine, stop) = (world.engine(), &stop);
        let writer = |name: &'static str| {
            move || {
                let (attr, fh) = engine
                    .create(ROOT, name.as_bytes(), 0o644, libc::O_RDWR, &root_user())
                    .expect("creates");
                let mut number = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    let bytes = [(number % 250) as u8 + 1; 700];
                    engine
                        .write(fh, (number % 40) * 500, &bytes, true)
                        .expect("writes");
                    let seen = engine.read_file(fh, (number % 40) * 500, 700);
                    // Bytes committed and trimmed in between are in chunks, which no thread loads
                    // here.
                    assert!(seen.is_err() || seen.is_ok_and(|seen| seen == bytes));
                    number += 1;
                }
                attr.ino
            }
        };
        let writers = ["a", "b"].map(|name| scope.spawn(writer(name)));
        let mut base = world.base.clone();
        for round in 0..30 {
            thread::yield_now();
            engine.trim_staging(0).expect("trims");
            let Some(layer) = engine.freeze().expect("freezes") else {
                continue;
            };
            if round % 5 == 4 {
                engine.layer_failed(layer).expect("joins");
                continue;
            }
            let (next, contents) = world.publish_on(&base, layer);
            engine
                .layer_committed(layer, &contents.iter().collect())
                .expect("commits");
            for (hash, chunk) in &next.chunks {
                engine.cache_chunk(&cowfs_base::ChunkHash(*hash), chunk);
            }
            base = next;
        }
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.join().expect("no panic");
        }
        if let Some(layer) = engine.freeze().expect("freezes") {
            let (next, contents) = world.publish_on(&base, layer);
            engine
                .layer_committed(layer, &contents.iter().collect())
                .expect("commits");
            base = next;
        }
        let live = support::tree(engine, &base);
        assert_eq!(tree_of(&base), live);
    });
    world.drop_engine();
}

#[test]
fn directories_hold_when_threads_fight_over_names() {
    let world = World::new();
    let engine = world.engine();
    let (left, right) = (world.mkdir("left"), world.mkdir("right"));
    thread::scope(|scope| {
        for thread in 0..4_u32 {
            scope.spawn(move || {
                let caller = root_user();
                for number in 0..500_u32 {
                    let name = format!("n{}", (number * 7 + thread) % 13);
                    let (from, to) = if (number + thread) % 2 == 0 {
                        (left, right)
                    } else {
                        (right, left)
                    };
                    // Each may fail, depending on the order; none may leave the tables
                    // inconsistent.
                    let _ = engine.mkdir(from, name.as_bytes(), 0o755, &caller);
                    let _ = engine.rename(
                        from,
                        name.as_bytes(),
                        to,
                        name.as_bytes(),
                        number % 3,
                        &caller,
                    );
                    let _ = engine.rmdir(to, name.as_bytes(), &caller);
                }
            });
        }
    });
    for path in ["left", "right"] {
        assert_eq!(world.stat(path).nlink as usize, 2 + world.names(path).len());
    }
}

const PIECE: usize = 1500;
const PIECES: usize = 8;

/// Writes to the first file, shares bytes with the second, and takes them from the first again;
/// each has to read as it should.
fn write_copy_and_cut(engine: &Engine, files: [Ino; 2], turns: u64) -> [Vec<u8>; 2] {
    let [first, second] = files;
    let mut bytes = [vec![0; PIECE * PIECES], vec![0; PIECE * PIECES]];
    let to = engine.open_file(second, libc::O_RDWR).expect("opens");
    for turn in 0..turns {
        let at = (turn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % PIECES * PIECE;
        let fh = engine.open_file(first, libc::O_RDWR).expect("opens");
        let data = [turn as u8 | 1; PIECE];
        engine.write(fh, at as u64, &data, true).expect("writes");
        bytes[0][at..][..PIECE].copy_from_slice(&data);
        engine.release(fh).expect("closes");
        let from = engine.open_file(first, libc::O_RDONLY).expect("opens");
        let mut place = at;
        while place < at + PIECE {
            let (left, offset) = ((at + PIECE - place) as u64, place as u64);
            let copied = engine.copy_range((from, offset), (to, offset), left, true);
            place += copied.expect("copies") as usize;
        }
        let (source, target) = bytes.split_at_mut(1);
        target[0][at..][..PIECE].copy_from_slice(&source[0][at..][..PIECE]);
        engine.release(from).expect("closes");
        let mut cut = |size: usize| {
            let change = AttrChange {
                size: Some(size as u64),
                ..AttrChange::default()
            };
            let outcome = engine.setattr(first, &root_user(), &change);
            outcome.expect("cuts");
            bytes[0].truncate(size);
            bytes[0].resize(PIECE * PIECES, 0);
        };
        cut(at);
        cut(PIECE * PIECES);
        let read = engine.read_file(to, 0, PIECE * PIECES).expect("reads");
        assert!(read[..] == bytes[1][..read.len()], "turn {turn}");
    }
    engine.release(to).expect("closes");
    bytes
}

/// One worker less, also if it panics.
struct Ends<'a>(&'a AtomicUsize);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[test]
fn nothing_is_lost_beside_endless_passes_over_staging() {
    let mut world = World::with_segments(Base::empty(), 16 << 10);
    let names = ["a", "b", "c"].map(|name| [format!("{name}1"), format!("{name}2")]);
    let inos = names.each_ref().map(|pair| {
        let made = pair.each_ref().map(|name| world.put(name, b""));
        // The second comes first when extents are counted, for one pair.
        if pair[0] == "b1" {
            [made[1], made[0]]
        } else {
            made
        }
    });
    let (engine, busy) = (world.engine(), AtomicUsize::new(inos.len()));
    let expected = thread::scope(|scope| {
        let busy = &busy;
        let workers = inos.map(|pair| {
            scope.spawn(move || {
                let _ends = Ends(busy);
                write_copy_and_cut(engine, pair, 300)
            })
        });
        let pass = |run: fn(&Engine)| {
            scope.spawn(move || {
                while busy.load(Ordering::Acquire) > 0 {
                    run(engine);
                }
            });
        };
        pass(|engine| assert!(engine.reclaim_staging().is_ok(), "reclaims"));
        pass(|engine| assert!(engine.punch_staging(Punching::Thorough).is_ok(), "punches"));
        pass(|engine| {
            if let Some(layer) = engine.freeze().expect("freezes") {
                thread::yield_now();
                engine.layer_failed(layer).expect("joins");
            }
            engine.checkpoint().expect("checkpoints");
            engine.sync().expect("syncs");
        });
        workers.map(|worker| worker.join().expect("no panic"))
    });
    for killed in [false, true] {
        for (pair, bytes) in inos.iter().zip(&expected) {
            for (ino, bytes) in pair.iter().zip(bytes) {
                let fh = world.ask(|engine| engine.open_file(*ino, libc::O_RDONLY));
                let fh = fh.expect("opens");
                let read = world.ask(|engine| engine.read_file(fh, 0, bytes.len()));
                let mut read = read.expect("reads");
                read.resize(bytes.len(), 0);
                assert!(read == *bytes, "inode {ino}, killed: {killed}");
                world.ask(|engine| engine.release(fh)).expect("closes");
            }
        }
        world.crash();
    }
}
