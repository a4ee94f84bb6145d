//! Requests that a killed server had applied: the next one knows them until they are answered.

mod support;

use cowfs_base::Errno;
use cowfs_engine::{Attr, Engine};
use support::{ROOT, World, root_user};

const CONNECTION: u64 = 77;

fn world() -> World {
    let mut world = World::new();
    world.connection = CONNECTION;
    world.crash();
    world
}

/// A call for the request with this number.
fn ask<T>(
    world: &World,
    unique: u64,
    call: impl Fn(&Engine) -> cowfs_engine::Result<T>,
) -> Result<T, Errno> {
    world.ask(|engine| engine.for_request(unique, || call(engine)))
}

fn mkdir(world: &World, unique: u64, name: &[u8]) -> Attr {
    let make = |engine: &Engine| engine.mkdir(ROOT, name, 0o755, &root_user());
    ask(world, unique, make).expect("made")
}

fn result(world: &World, unique: u64) -> Option<u64> {
    world.engine().result_of_request(unique)
}

#[test]
fn what_was_applied_is_known_with_its_result() {
    let mut world = world();
    let made = mkdir(&world, 10, b"d");
    let again = ask(&world, 12, |engine| {
        engine.mkdir(ROOT, b"d", 0o755, &root_user())
    });
    assert_eq!(again.map(drop), Err(Errno::EEXIST));
    ask(&world, 14, |engine| engine.rmdir(ROOT, b"d", &root_user())).expect("removed");
    let old = world.put("old", b"truncated");
    ask(&world, 18, |engine| {
        engine.create(
            ROOT,
            b"old",
            0o644,
            libc::O_RDWR | libc::O_TRUNC,
            &root_user(),
        )
    })
    .expect("opened");
    assert_eq!(
        world
            .ask(|engine| engine.getattr(old))
            .expect("is there")
            .size,
        0
    );
    // Of no request.
    world.mkdir("other");
    let (from, to) = (world.put("from", &[7; 9000]), world.put("to", b""));
    let open = |ino, flags| world.ask(|engine| engine.open_file(ino, flags));
    let from = open(from, libc::O_RDONLY).expect("opens");
    let to = open(to, libc::O_WRONLY).expect("opens");
    let copied = ask(&world, 16, |engine| {
        engine.copy_range((from, 0), (to, 0), 5000, false)
    });
    assert_eq!(copied, Ok(5000));
    world.crash();
    assert_eq!(result(&world, 10), Some(made.ino));
    assert_eq!(result(&world, 12), None, "it was refused");
    assert_eq!(result(&world, 14), Some(0));
    assert_eq!(result(&world, 16), Some(5000));
    assert_eq!(result(&world, 18), Some(0), "no entry was made");
    assert_eq!(result(&world, 0), None);
}

#[test]
fn numbers_of_another_connection_mean_nothing() {
    let mut world = world();
    mkdir(&world, 10, b"d");
    world.connection += 1;
    world.crash();
    assert_eq!(result(&world, 10), None);
    assert!(world.resolve("d").is_ok());
}

#[test]
fn no_commit_or_checkpoint_forgets_a_request_before_its_answer() {
    let mut world = world();
    let early = mkdir(&world, 10, b"early").ino;
    mkdir(&world, 12, b"answered");
    world.engine().request_is_answered(12);
    for round in 0..3_u64 {
        // Also of a layer that another server left.
        let layer = world.freeze().expect("changed");
        world.commit(layer);
        world.crash();
        mkdir(&world, 100 + round, format!("d{round}").as_bytes());
        assert!(world.engine().checkpoint().expect("made"));
        world.crash();
        mkdir(&world, 200 + round, format!("e{round}").as_bytes());
    }
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    world.crash();
    assert_eq!(result(&world, 12), None);
    assert_eq!(result(&world, 10), Some(early));
    for round in 0..3 {
        assert!(result(&world, 100 + round).is_some() && result(&world, 200 + round).is_some());
    }
    // Those that were asked for stay until their answer; the others go when none is repeated.
    world.engine().forget_earlier_requests();
    assert_eq!(result(&world, 10), Some(early));
    world.engine().request_is_answered(10);
    assert_eq!(result(&world, 10), None);
}

#[test]
fn what_is_not_asked_for_again_is_not_carried_on() {
    let mut world = world();
    mkdir(&world, 10, b"d");
    world.crash();
    world.engine().forget_earlier_requests();
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    world.crash();
    assert_eq!(result(&world, 10), None);
}
