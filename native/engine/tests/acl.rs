//! POSIX ACLs beside modes: setting one changes the other, and directories pass them on. The model
//! compares with a local disk (`model.rs`); these tests cover cases that it does not draw.

mod support;

use cowfs_base::{Errno, Owners};
use cowfs_engine::{
    ACL_ACCESS, ACL_DEFAULT, AttrChange, Caller, XATTR_NAMES_MAX_BYTES, XATTR_VALUE_MAX_BYTES,
    kept_acl, shown_acl,
};
use support::{ROOT, World, root_user, user};

const NO_ID: u32 = u32::MAX;

fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// With a user that is named.
fn named(user: u32) -> Vec<u8> {
    value(&[
        (1, 7, NO_ID),
        (2, 6, user),
        (4, 5, NO_ID),
        (16, 7, NO_ID),
        (32, 0, NO_ID),
    ])
}

fn set(world: &World, ino: u64, name: &[u8], value: &[u8], by: &Caller) -> Result<(), Errno> {
    world.ask(|engine| engine.set_acl(ino, name, value, by))
}

fn mode(world: &World, ino: u64) -> u32 {
    let attr = world.ask(|engine| engine.getattr(ino));
    attr.expect("is there").mode & 0o7777
}

#[test]
fn what_is_no_acl_is_refused_and_changes_nothing() {
    let world = World::new();
    let file = world.put("f", b"x");
    let whole = named(7);
    let with = |entries: &[(u16, u16, u32)]| value(entries);
    let (owner, group, others) = ((1, 7, NO_ID), (4, 5, NO_ID), (32, 0, NO_ID));
    let wrong = [
        Vec::new(),
        whole[..whole.len() - 1].to_vec(),
        whole[..4].to_vec(),
        [&3_u32.to_le_bytes()[..], &whole[4..]].concat(),
        with(&[owner, group]),
        with(&[group, owner, others]),
        with(&[owner, owner, group, others]),
        with(&[owner, group, (4, 5, 1), others]),
        with(&[(1, 8, NO_ID), group, others]),
        with(&[owner, (2, 6, 7), group, others]), // without a mask
        with(&[owner, (2, 6, NO_ID), group, (16, 7, NO_ID), others]),
        with(&[owner, group, (64, 7, NO_ID)]),
        with(&[owner, (3, 7, 7), group, (16, 7, NO_ID), others]),
    ];
    for value in wrong {
        assert_eq!(
            set(&world, file, ACL_ACCESS, &value, &root_user()),
            Err(Errno::EINVAL),
            "{value:?}"
        );
        assert_eq!(kept_acl(&value, &Owners::default()), Err(Errno::EINVAL));
        assert_eq!(shown_acl(&value, &Owners::default()), Err(Errno::EIO));
    }
    assert_eq!(world.ask(|engine| engine.list_xattrs(file)), Ok(Vec::new()));
    let by_another_way = world.ask(|engine| engine.set_xattr(file, ACL_ACCESS, &whole, 0));
    assert_eq!(by_another_way, Err(Errno::EOPNOTSUPP));
    let default = set(&world, file, ACL_DEFAULT, &whole, &root_user());
    assert_eq!(default, Err(Errno::EACCES));
    let link = world
        .ask(|engine| engine.symlink(ROOT, b"l", b"f", &root_user()))
        .expect("links")
        .ino;
    let of_a_link = set(&world, link, ACL_ACCESS, &whole, &root_user());
    assert_eq!(of_a_link, Err(Errno::EOPNOTSUPP));
}

#[test]
fn setting_an_acl_clears_setgid_for_whoever_is_outside_the_group() {
    let world = World::new();
    let file = world.put("f", b"x");
    let change = AttrChange {
        gid: Some(500),
        mode: Some(0o2755),
        ..AttrChange::default()
    };
    for (caller, expected) in [
        (root_user(), 0o2770),
        (user(1000, 500), 0o2770),
        (user(1000, 7), 0o770),
    ] {
        world
            .ask(|engine| engine.setattr(file, &root_user(), &change))
            .expect("chmod");
        set(&world, file, ACL_ACCESS, &named(7), &caller).expect("sets");
        assert_eq!(mode(&world, file), expected);
    }
}

#[test]
fn ids_are_shown_as_owners_are() {
    let owners = Owners::new((10, 20), (1000, 1001));
    let rest = [(4, 5, NO_ID), (8, 1, 20), (16, 7, NO_ID), (32, 0, NO_ID)];
    let with = |users: &[(u16, u16, u32)], group: u32| {
        let mut entries = vec![(1, 7, NO_ID)];
        entries.extend(users);
        entries.extend(rest.map(|(tag, permissions, id)| match tag {
            8 => (8, permissions, group),
            _ => (tag, permissions, id),
        }));
        value(&entries)
    };
    let kept = with(&[(2, 6, 7), (2, 4, 10)], 20);
    let shown = with(&[(2, 6, 7), (2, 4, 1000)], 1001);
    assert_eq!(shown_acl(&kept, &owners), Ok(shown.clone()));
    assert_eq!(kept_acl(&shown, &owners), Ok(kept));
    let both = with(&[(2, 4, 10), (2, 1, 1000)], 20);
    let one = with(&[(2, 5, 1000)], 1001);
    assert_eq!(
        shown_acl(&both, &owners),
        Ok(one),
        "one with the permissions of both"
    );
}

#[test]
fn acls_of_a_version_that_are_damaged_are_errors_and_not_guesses() {
    let mut world = World::new();
    let directory = world.mkdir("d");
    set(&world, directory, ACL_DEFAULT, &named(7), &root_user()).expect("sets");
    set(&world, directory, ACL_ACCESS, &named(7), &root_user()).expect("sets");
    let layer = world.freeze().expect("something to commit");
    world.commit(layer);
    for pairs in world.base.xattrs.values_mut() {
        for (_, value) in pairs {
            *value = vec![0xff; XATTR_VALUE_MAX_BYTES].into();
        }
    }
    world.crash();
    let directory = world.resolve("d").expect("is there");
    let made = world.ask(|engine| engine.mkdir(directory, b"x", 0o777, &root_user()));
    assert_eq!(made.map(drop), Err(Errno::EIO));
    let change = AttrChange {
        mode: Some(0o700),
        ..AttrChange::default()
    };
    let changed = world.ask(|engine| engine.setattr(directory, &root_user(), &change));
    assert_eq!(changed.map(drop), Err(Errno::EIO));
    set(&world, directory, ACL_ACCESS, &named(7), &root_user()).expect("sets another one");
    world
        .ask(|engine| engine.remove_xattr(directory, ACL_DEFAULT))
        .expect("removes");
    world
        .ask(|engine| engine.mkdir(directory, b"x", 0o777, &root_user()))
        .expect("makes it");
}

#[test]
fn an_acl_is_listed_with_the_other_names() {
    let world = World::new();
    let file = world.put("f", b"x");
    let name = |number: usize| format!("user.{number:0>250}").into_bytes();
    let count = XATTR_NAMES_MAX_BYTES / (name(0).len() + 1);
    for number in 0..count {
        let put = world.ask(|engine| engine.set_xattr(file, &name(number), b"", 0));
        assert_eq!(put, Ok(()));
    }
    let before = mode(&world, file);
    let put = |value: &[u8]| set(&world, file, ACL_ACCESS, value, &root_user());
    assert_eq!(put(&named(7)), Err(Errno::ENOSPC));
    assert_eq!(mode(&world, file), before);
    let of_a_mode = value(&[(1, 7, NO_ID), (4, 5, NO_ID), (32, 0, NO_ID)]);
    assert_eq!(put(&of_a_mode), Ok(()), "it is not kept");
    world
        .ask(|engine| engine.remove_xattr(file, &name(0)))
        .expect("removes");
    assert_eq!(put(&named(7)), Ok(()));
    assert_eq!(put(&named(8)), Ok(()), "in the place of the other one");
}

#[test]
fn an_acl_costs_nothing_where_there_is_none() {
    let mut world = World::new();
    world.put("f", b"x");
    let layer = world.freeze().expect("something to commit");
    world.commit(layer);
    world.crash();
    let file = world.resolve("f").expect("is there");
    let engine = world.engine();
    let asked = engine.get_xattr(file, ACL_ACCESS);
    assert!(
        matches!(asked, Err(cowfs_engine::Error::Os(Errno::ENODATA))),
        "answered without its content"
    );
    let change = AttrChange {
        mode: Some(0o600),
        ..AttrChange::default()
    };
    assert!(engine.setattr(file, &root_user(), &change).is_ok());
}
