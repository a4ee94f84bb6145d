//! The limit of a volume, and the operations allowed beyond it.

mod support;

use cowfs_base::Errno;
use cowfs_engine::{AttrChange, Engine, Error, HELD_XATTRS_MAX_BYTES};
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

#[test]
fn attributes_and_targets_count_and_have_bounds() {
    let mut world = World::new();
    world.engine().set_quota(5 << 20).expect("limits");
    let file = world.put("file", b"x");
    let used = |world: &World| world.engine().statfs().expect("answers").0;
    let set = |world: &World, number: u32, bytes: usize| {
        let name = format!("user.{number}");
        world.ask(|engine| engine.set_xattr(file, name.as_bytes(), &vec![7; bytes], 0))
    };
    for number in 10..26 {
        set(&world, number, 64 << 10).expect("16 of them fit");
    }
    assert_eq!(used(&world), 1 + (1 << 20) + 16 * 7);
    assert_eq!(set(&world, 26, 1), Err(Errno::ENOSPC));
    set(&world, 10, 10).expect("takes less");
    set(&world, 26, 10).expect("has room");
    let engine = world.engine();
    engine.set_quota(used(&world) + 100).expect("limits");
    let link = |name: &[u8], target: &[u8]| {
        world.ask(|engine| engine.symlink(support::ROOT, name, target, &root_user()))
    };
    assert_eq!(
        link(b"long", &[b'x'; 101]).expect_err("too long"),
        Errno::EDQUOT
    );
    link(b"link", &[b'x'; 100]).expect("fits");
    assert_eq!(set(&world, 10, 11), Err(Errno::EDQUOT));
    world.unlink("link").expect("makes room");
    set(&world, 10, 110).expect("fits");
    let before = used(&world);
    let layer = world.freeze().expect("something changed");
    world.commit(layer);
    assert_eq!(used(&world), before);
    world.unlink("file").expect("makes room");
    assert_eq!(used(&world), 0);
}

#[test]
fn names_go_with_the_quota() {
    let world = World::new();
    world.engine().set_quota(2560).expect("limits");
    let file = world.put("file", b"x");
    let link = |number: u32| {
        let name = format!("link {number}");
        world.ask(|engine| engine.link(file, support::ROOT, name.as_bytes()))
    };
    let made = (0..5000).take_while(|number| link(*number).is_ok()).count();
    assert_eq!(made, 4096 + 10 - 2, "the root and the file are there");
    let full = world.ask(|engine| engine.mkdir(support::ROOT, b"d", 0o755, &root_user()));
    assert_eq!(full.expect_err("one too many"), Errno::EDQUOT);
    world.unlink("link 7").expect("makes room");
    world.mkdir("folder");
}

#[test]
fn attributes_that_no_version_has_have_a_bound_without_a_quota() {
    let mut world = World::new();
    let value = vec![7; 64 << 10];
    let set = |world: &World, ino: u64, bytes: usize| {
        world.ask(|engine| engine.set_xattr(ino, b"user.a", &value[..bytes], 0))
    };
    let most = HELD_XATTRS_MAX_BYTES / ((64 << 10) + 6);
    let files: Vec<u64> = (0..=most)
        .map(|number| world.put(&number.to_string(), b""))
        .collect();
    let full = |world: &World| {
        assert_eq!(
            set(world, files[most as usize], 64 << 10),
            Err(Errno::ENOSPC)
        );
    };
    for ino in &files[..most as usize] {
        set(&world, *ino, 64 << 10).expect("is within the bound");
    }
    full(&world);
    set(&world, files[0], 64 << 10).expect("replaces as much");
    set(&world, files[0], 10).expect("takes less");
    set(&world, files[0], 64 << 10).expect("has room");

    let handle = world
        .ask(|engine| engine.open_file(files[0], libc::O_RDWR))
        .expect("opens");
    world.unlink("0").expect("goes");
    full(&world);
    world.ask(|engine| engine.release(handle)).expect("closes");
    set(&world, files[most as usize], 64 << 10).expect("has the room of the removed one");

    let layer = world.freeze().expect("something changed");
    assert_eq!(
        set(&world, files[1], 64 << 10),
        Err(Errno::ENOSPC),
        "the layer needs the old value too"
    );
    world.engine().layer_failed(layer).expect("joins");
    set(&world, files[1], 10).expect("takes less");
    set(&world, files[1], 64 << 10).expect("counts once again");
    let layer = world.freeze().expect("something changed");
    world.commit(layer);
    set(&world, files[1], 64 << 10).expect("what is committed does not count");
}
