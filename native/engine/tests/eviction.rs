//! Which data may leave memory and which may not, and that an eviction cannot be observed.

mod support;

use cowfs_base::Errno;
use cowfs_engine::{AttrChange, Error, Missing};
use support::{Base, ROOT, World, list, read_all, root_user};

/// A world whose files are all committed and not looked at since it was opened.
fn committed(paths: &[&str]) -> World {
    let mut world = World::on(Base::empty());
    for path in paths {
        match path.strip_suffix('/') {
            Some(directory) => drop(world.mkdir(directory)),
            None => drop(world.put(path, path.as_bytes())),
        }
    }
    let layer = world.freeze().expect("something changed");
    world.commit(layer);
    world.crash();
    world
}

fn inodes(world: &World) -> u64 {
    world.engine().inodes_in_memory().expect("counts")
}

fn evict_all(world: &World) {
    world.engine().evict(0).expect("evicts");
}

#[test]
fn everything_clean_leaves_and_comes_back() {
    let world = committed(&["d/", "d/e/", "d/e/f", "d/g", "h"]);
    let before = world.tree();
    assert_eq!(inodes(&world), 6);
    evict_all(&world);
    assert_eq!(inodes(&world), 1, "the root stays");
    assert_eq!(world.tree(), before);
}

#[test]
fn the_kernel_may_ask_by_number() {
    let world = committed(&["d/", "d/f"]);
    let directory = world.ask(|engine| engine.lookup(ROOT, b"d")).unwrap().ino;
    let file = world.ask(|engine| engine.lookup(directory, b"f")).unwrap();
    evict_all(&world);
    assert_eq!(inodes(&world), 1);
    let missing = world.engine().getattr(file.ino).expect_err("is away");
    assert!(matches!(missing, Error::NotResident(Missing::Inode(ino)) if ino == file.ino));
    assert_eq!(
        world.ask(|engine| engine.getattr(file.ino)),
        Ok(file.clone())
    );
    assert_eq!(read_all(world.engine(), &world.base, file.ino), b"d/f");
    let up = world.ask(|engine| engine.lookup(directory, b"..")).unwrap();
    assert_eq!(up.ino, ROOT);
}

#[test]
fn references_are_counted_while_an_inode_is_away() {
    let world = committed(&["f"]);
    let ino = world.ask(|engine| engine.lookup(ROOT, b"f")).unwrap().ino;
    world.ask(|engine| engine.lookup(ROOT, b"f")).unwrap();
    evict_all(&world);
    world.engine().forget(ino, 1).unwrap();
    world.engine().entry_delivered(ino).unwrap();
    evict_all(&world);
    world.unlink("f").expect("unlinks");
    world.engine().forget(ino, 1).unwrap();
    assert_eq!(inodes(&world), 2, "one reference is left");
    world.engine().forget(ino, 1).unwrap();
    assert_eq!(inodes(&world), 1, "nobody can reach it");
    assert_eq!(world.ask(|engine| engine.getattr(ino)), Err(Errno::ENOENT));
}

#[test]
fn what_is_not_committed_stays() {
    let mut world = committed(&["d/", "d/f", "d/g"]);
    world.put("d/new", b"new");
    world.write_at("d/f", 0, b"changed").unwrap();
    evict_all(&world);
    assert_eq!(
        inodes(&world),
        4,
        "the root, the directory, two changed files"
    );
    let layer = world.freeze().expect("dirty");
    evict_all(&world);
    assert_eq!(inodes(&world), 4, "a frozen layer is not committed");
    world.commit(layer);
    evict_all(&world);
    assert_eq!(inodes(&world), 1);
    assert_eq!(world.get("d/f"), b"changed");
    assert_eq!(world.get("d/new"), b"new");
}

#[test]
fn what_is_open_stays() {
    let world = committed(&["d/", "d/f", "d/g", "d/h"]);
    let directory = world.resolve("d").unwrap();
    let file = world.resolve("d/f").unwrap();
    let fh = world
        .ask(|engine| engine.open_file(file, libc::O_RDONLY))
        .unwrap();
    let dir_fh = world
        .ask(|engine| engine.open_directory(directory))
        .unwrap();
    let first = world
        .ask(|engine| engine.read_directory(dir_fh, 0, 3))
        .unwrap();
    evict_all(&world);
    assert_eq!(inodes(&world), 3);
    let rest = world
        .ask(|engine| engine.read_directory(dir_fh, first[2].cookie, 9))
        .unwrap();
    let names: Vec<_> = first[2..]
        .iter()
        .chain(&rest)
        .map(|entry| &entry.name[..])
        .collect();
    assert_eq!(names, [b"f", b"g", b"h"], "each once");
    world.unlink("d/f").unwrap();
    evict_all(&world);
    let bytes = world.ask(|engine| engine.read_file(fh, 0, 100)).unwrap();
    assert_eq!(bytes, b"d/f", "a file without a name is in no version");
}

#[test]
fn a_directory_may_hold_inodes_that_are_away() {
    let mut world = committed(&["d/", "d/f", "d/g"]);
    let directory = world.resolve("d").unwrap();
    world.put("d/new", b"");
    world.unlink("d/g").unwrap();
    evict_all(&world);
    assert_eq!(
        inodes(&world),
        3,
        "the root, the changed directory, the new file"
    );
    let names: Vec<_> = list(world.engine(), &world.base, directory)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, [&b"f"[..], b"new"]);
    let layer = world.freeze().expect("dirty");
    world.commit(layer);
    assert_eq!(
        world.base.inodes.len(),
        4,
        "what was removed did not come back"
    );
}

#[test]
fn rows_of_what_was_removed_do_not_come_in() {
    let world = committed(&["d/", "d/f"]);
    let (directory, file) = (world.resolve("d").unwrap(), world.resolve("d/f").unwrap());
    let (row, rows) = (
        world.base.inodes[&file].clone(),
        world.base.directory(directory),
    );
    world.unlink("d/f").unwrap();
    world.engine().load_inode(&row).unwrap();
    world.engine().load_directory(directory, &rows).unwrap();
    assert_eq!(inodes(&world), 2);
}

#[test]
fn holes_and_attributes_stay_known() {
    let mut world = committed(&["f"]);
    let ino = world.resolve("f").unwrap();
    let change = AttrChange {
        size: Some(1 << 20),
        ..AttrChange::default()
    };
    world
        .ask(|engine| engine.setattr(ino, &root_user(), &change))
        .unwrap();
    world
        .ask(|engine| engine.set_xattr(ino, b"user.a", b"b", 0))
        .unwrap();
    let layer = world.freeze().expect("dirty");
    world.commit(layer);
    let before = world.stat("f");
    // A reference that cannot be counted keeps the inode, not its content.
    for _ in 0..300 {
        world.ask(|engine| engine.lookup(ROOT, b"f")).unwrap();
    }
    evict_all(&world);
    assert_eq!(inodes(&world), 2);
    let missing = world
        .engine()
        .get_xattr(ino, b"user.a")
        .expect_err("is away");
    assert!(matches!(
        missing,
        Error::NotResident(Missing::Content { .. })
    ));
    assert_eq!(world.stat("f"), before);
    assert_eq!(
        world.ask(|engine| engine.get_xattr(ino, b"user.a")),
        Ok(b"b".to_vec())
    );
}

#[test]
fn a_budget_holds_whatever_is_walked() {
    let mut world = World::on(Base::empty());
    for directory in 0..20 {
        world.mkdir(&format!("d{directory}"));
        for file in 0..100 {
            world.put(&format!("d{directory}/f{file}"), b"x");
        }
    }
    let layer = world.freeze().expect("dirty");
    world.commit(layer);
    world.crash();
    let budget_bytes = 400 * 110;
    for directory in 0..20 {
        world.names(&format!("d{directory}"));
        world.engine().evict(budget_bytes).expect("evicts");
        let kept = inodes(&world);
        assert!(kept < 400, "{kept} inodes after directory {directory}");
    }
    assert!(inodes(&world) > 100, "what was used last is here");
    let before = inodes(&world);
    assert_eq!(world.engine().evict(1 << 30).expect("evicts"), 0);
    assert_eq!(inodes(&world), before);
}

#[test]
fn attributes_leave_an_inode_that_must_stay() {
    let mut world = World::on(Base::empty());
    let value = vec![7; 64 << 10];
    let set = |world: &World, ino: u64| {
        world
            .ask(|engine| engine.set_xattr(ino, b"user.a", &value, 0))
            .expect("sets");
    };
    let get = |world: &World, ino: u64| {
        world.ask(|engine| engine.get_xattr(ino, b"user.a").map(|value| value.len()))
    };
    let paths = ["open", "changed", "removed", "reset"];
    let inodes = paths.map(|path| world.put(path, path.as_bytes()));
    for ino in inodes {
        set(&world, ino);
    }
    let layer = world.freeze().expect("dirty");
    world.commit(layer);
    world.crash();
    for path in paths {
        world.resolve(path).expect("is there");
    }
    for ino in [inodes[0], inodes[2]] {
        world
            .ask(|engine| engine.open_file(ino, libc::O_RDWR))
            .expect("opens");
    }
    let change = AttrChange {
        mode: Some(0o600),
        ..AttrChange::default()
    };
    world
        .ask(|engine| engine.setattr(inodes[1], &root_user(), &change))
        .expect("changes");
    for ino in inodes {
        assert_eq!(get(&world, ino), Ok(value.len()));
    }
    world.unlink("removed").expect("goes");
    set(&world, inodes[3]);
    evict_all(&world);
    evict_all(&world);
    for ino in [inodes[0], inodes[1]] {
        let missing = world
            .engine()
            .get_xattr(ino, b"user.a")
            .map(|value| value.len())
            .expect_err("is away");
        assert!(matches!(
            missing,
            Error::NotResident(Missing::Content { .. })
        ));
    }
    for ino in [inodes[2], inodes[3]] {
        assert_eq!(
            world
                .engine()
                .get_xattr(ino, b"user.a")
                .expect("stays")
                .len(),
            value.len()
        );
    }
    world.write_at("open", 0, b"O").expect("writes");
    assert_eq!(world.get("open"), b"Open");
    for ino in inodes {
        assert_eq!(get(&world, ino), Ok(value.len()));
    }
    let layer = world.freeze().expect("dirty");
    world.commit(layer);
    world.crash();
    assert_eq!(world.get("open"), b"Open");
    assert_eq!(world.stat("changed").mode & 0o777, 0o600);
    for ino in [inodes[0], inodes[1], inodes[3]] {
        assert_eq!(get(&world, ino), Ok(value.len()));
    }
}
