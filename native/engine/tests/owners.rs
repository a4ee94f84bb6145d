//! Callers of a mount that treats two owners as one: the owner of their new files, and their
//! permissions.

mod support;

use cowfs_base::{Errno, Owners};
use cowfs_engine::{Attr, AttrChange, Caller};
use support::{ROOT, World, root_user, user};

/// Files are kept as those of 10:20 and shown as those of 1000:1000.
fn mapped(caller: Caller) -> Caller {
    Caller {
        owners: Owners::new((10, 20), (1000, 1000)),
        ..caller
    }
}

fn make(world: &World, parent: u64, name: &str, caller: &Caller) -> Attr {
    let mode = libc::S_IFREG | 0o644;
    world
        .ask(|engine| engine.mknod(parent, name.as_bytes(), mode, 0, caller))
        .expect("makes it")
}

fn give(world: &World, ino: u64, uid: u32, gid: u32, mode: u32) {
    let change = AttrChange {
        uid: Some(uid),
        gid: Some(gid),
        mode: Some(mode),
        ..AttrChange::default()
    };
    world
        .ask(|engine| engine.setattr(ino, &root_user(), &change))
        .expect("changes it");
}

#[test]
fn what_the_shown_owner_makes_is_kept_as_the_versions() {
    let world = World::new();
    let owner = |caller: Caller, name| {
        let made = make(&world, ROOT, name, &mapped(caller));
        (made.uid, made.gid)
    };
    assert_eq!(owner(user(1000, 1000), "shown"), (10, 20));
    assert_eq!(owner(user(10, 20), "kept"), (10, 20));
    assert_eq!(owner(user(7, 1000), "of both"), (7, 20));
    assert_eq!(owner(user(7, 8), "another"), (7, 8));
    let unnamed = world
        .ask(|engine| engine.create_unnamed(ROOT, 0o644, libc::O_RDWR, &mapped(user(1000, 1000))))
        .expect("makes it");
    assert_eq!((unnamed.0.uid, unnamed.0.gid), (10, 20));
}

#[test]
fn a_sticky_directory_goes_by_owners_as_they_are_shown() {
    let world = World::new();
    let directory = world.mkdir("sticky");
    give(&world, directory, 7, 7, 0o1777);
    for (name, uid) in [("of the version", 10), ("of the shown", 1000)] {
        let made = make(&world, directory, name, &root_user());
        give(&world, made.ino, uid, 0, 0o644);
        let unlink =
            |caller: &Caller| world.ask(|engine| engine.unlink(directory, name.as_bytes(), caller));
        assert_eq!(unlink(&mapped(user(8, 8))), Err(Errno::EPERM));
        assert_eq!(unlink(&mapped(user(1000, 1000))), Ok(()));
    }
}

#[test]
fn set_id_bits_go_by_groups_as_they_are_shown() {
    let world = World::new();
    let file = make(&world, ROOT, "f", &root_user()).ino;
    let chmod = |caller: &Caller, gid: u32| {
        give(&world, file, 10, gid, 0o755);
        let change = AttrChange {
            mode: Some(0o2755),
            ..AttrChange::default()
        };
        let changed = world.ask(|engine| engine.setattr(file, caller, &change));
        changed.expect("chmod").mode & 0o2000
    };
    assert_eq!(chmod(&mapped(user(1000, 1000)), 20), 0o2000, "of the group");
    assert_eq!(chmod(&mapped(user(1000, 1000)), 1000), 0o2000, "of it too");
    assert_eq!(chmod(&mapped(user(1000, 7)), 20), 0, "of another");
    assert_eq!(chmod(&user(1000, 1000), 20), 0, "not mapped");
}
