//! What a volume may have together, and what is allowed beyond it.

mod support;

use cowfs_base::Errno;
use cowfs_engine::{AttrChange, Engine, Error};
use support::{World, root_user};

#[test]
fn a_volume_grows_no_further_than_it_may() {
    let mut world = World::new();
    world.engine().set_quota(10).expect("limits");
    let error = |result: Result<(), Errno>| result.expect_err("is too much");
    let file = world.put("file", b"01234567");
    assert_eq!(error(world.write_at("file", 8, b"89a")), Errno::EDQUOT);
    world
        .write_at("file", 0, b"abcdefgh")
        .expect("grows nothing");
    world.write_at("file", 8, b"89").expect("just fits");
    let grown = AttrChange {
        size: Some(11),
        ..Default::default()
    };
    let grow = |engine: &Engine| engine.setattr(file, &root_user(), &grown);
    assert_eq!(world.ask(grow).expect_err("too large"), Errno::EDQUOT);
    assert_eq!(
        world.engine().statfs().expect("answers").2,
        0,
        "nothing is free"
    );
    let layer = world.freeze().expect("something changed");
    world.commit(layer);
    assert_eq!(world.ask(grow).expect_err("too large"), Errno::EDQUOT);
    world.put("empty", b"");
    world.mkdir("folder");
    assert_eq!(error(world.write_at("empty", 0, b"x")), Errno::EDQUOT);
    world.unlink("file").expect("makes room");
    world.write_at("empty", 0, b"0123456789").expect("fits");
    assert_eq!(world.get("empty"), b"0123456789");
}

/// A program that writes while something is put in the place of something else.
#[test]
fn what_is_made_apart_is_room_for_nobody_else() {
    let world = World::new();
    let engine = world.engine();
    engine.set_quota(10).expect("limits");
    world.put("old", b"01234");
    let new = world.put("new", b"");
    world.put("program", b"");
    engine.begin_apart(4).expect("there are five");
    let append = |bytes: &[u8]| {
        let size = world.get("program").len() as u64;
        world.write_at("program", size, bytes)
    };
    append(b"a").expect("the fifth");
    assert_eq!(append(b"b"), Err(Errno::EDQUOT), "the others are kept");
    engine.resize_apart(new, 9).expect("counts later");
    world
        .write_at("new", 0, b"012345678")
        .expect("is that large");
    assert_eq!(append(b"b"), Err(Errno::EDQUOT));
    engine.end_apart().expect("all is there");
    assert_eq!(append(b"b"), Err(Errno::EDQUOT), "too much is there");
    world.unlink("old").expect("is replaced");
    assert_eq!(append(b"b"), Err(Errno::EDQUOT), "as much as may be");
    world.unlink("new").expect("goes");
    append(b"012345678").expect("fits");
    engine.set_quota(5).expect("lowered");
    let begun = engine.begin_apart(1).expect_err("nothing is left");
    assert!(matches!(begun, Error::Os(Errno::EDQUOT)));
    engine.begin_apart(0).expect("grows nothing");
    engine.end_apart().expect("ends");
}
