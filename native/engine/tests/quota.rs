//! What a volume may have together, and what is allowed beyond it.

mod support;

use cowfs_base::Errno;
use cowfs_engine::{AttrChange, Engine};
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
    world.engine().allow_more(1).expect("for a while");
    world.write_at("empty", 0, b"x").expect("is allowed");
    world.engine().allow_more(0).expect("no longer");
    assert_eq!(error(world.write_at("empty", 0, b"xx")), Errno::EDQUOT);
    world.unlink("file").expect("makes room");
    world.write_at("empty", 0, b"0123456789").expect("fits");
    assert_eq!(world.get("empty"), b"0123456789");
}
