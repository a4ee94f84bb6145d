//! Many threads on one engine.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use support::{ROOT, World, root_user, tree_of};

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
                    // Bytes committed and trimmed in between are in chunks, which nobody loads here.
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
            engine.layer_committed(layer, &contents).expect("commits");
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
            engine.layer_committed(layer, &contents).expect("commits");
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
                    // Each may fail, depending on who was first; none may leave the tables at odds.
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
