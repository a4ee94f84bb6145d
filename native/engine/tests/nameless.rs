//! Files without a name: the next server of the same connection has them, a later mount has not.

mod support;

use std::os::fd::AsFd;
use std::sync::Arc;

use cowfs_base::Errno;
use cowfs_engine::{Engine, HandleId};
use cowfs_survival::Table;
use support::{ROOT, World, read_all, root_user};

const CONNECTION: u64 = 77;

fn world() -> World {
    let mut world = World::new();
    world.connection = CONNECTION;
    world.goes_on = true;
    world.crash();
    world
}

/// A file that lost its name while it was open.
fn unlinked(world: &World, name: &str, bytes: &[u8]) -> HandleId {
    world.put(name, bytes);
    let (parent, name) = world.place(name).expect("a place");
    let ino = world.ask(|engine| engine.lookup(parent, name));
    let ino = ino.expect("is there").ino;
    let id = world.ask(|engine| engine.open_file(ino, libc::O_RDWR));
    world
        .ask(|engine| engine.unlink(parent, name, &root_user()))
        .expect("unlinked");
    id.expect("opens")
}

/// A committed file of 20,000 bytes 7 that lost its name while it was open. Nothing of it is in
/// memory but its row.
fn unlinked_base(world: &mut World) -> HandleId {
    world.put("base", &[7; 20_000]);
    commit(world);
    world.crash();
    let ino = world.resolve("base").expect("is there");
    let base = world.ask(|engine| engine.open_file(ino, libc::O_RDWR));
    world.unlink("base").expect("unlinked");
    base.expect("opens")
}

fn unnamed(world: &World) -> HandleId {
    let made = world.ask(|engine| engine.create_unnamed(ROOT, 0o600, libc::O_RDWR, &root_user()));
    made.expect("made").1
}

fn write(world: &World, id: HandleId, offset: u64, bytes: &[u8]) {
    let written = world.ask(|engine| engine.write(id, offset, bytes, true));
    assert_eq!(written, Ok(bytes.len()));
}

fn read(world: &World, id: HandleId) -> Vec<u8> {
    read_all(world.engine(), &world.base, id.ino)
}

fn is_there(world: &World, id: HandleId) -> bool {
    match world.ask(|engine| engine.getattr(id.ino)) {
        Ok(attr) => attr.nlink == 0,
        Err(errno) => {
            assert_eq!(errno, Errno::ENOENT);
            false
        }
    }
}

fn commit(world: &mut World) {
    world.put("changed", b"again");
    // As a server does before each freeze.
    world.load_nameless();
    let layer = world.freeze().expect("changed");
    world.commit(layer);
}

#[test]
fn the_next_server_has_files_without_a_name_as_they_were() {
    let mut world = world();
    let (one, other) = (unlinked(&world, "f", &[1; 9000]), unnamed(&world));
    let set = |engine: &Engine| engine.set_xattr(one.ino, b"user.a", b"value", 0);
    world.ask(set).expect("set");
    for round in 0..4_u8 {
        write(&world, one, 3000, &[round; 100]);
        write(&world, other, u64::from(round) * 10, &[round + 1; 10]);
        world.crash();
        let mut wanted = vec![1; 9000];
        wanted[3000..3100].fill(round);
        assert_eq!(read(&world, one), wanted);
        let wanted: Vec<u8> = (0..=round).flat_map(|byte| [byte + 1; 10]).collect();
        assert_eq!(read(&world, other), wanted);
        assert!(is_there(&world, one) && is_there(&world, other));
        let value = world.ask(|engine| engine.get_xattr(one.ino, b"user.a"));
        assert_eq!(value.expect("is set"), b"value");
    }
    let made = world.put("next", b"").max(1);
    assert!(made > other.ino, "numbers are not used twice");
    // What never had a name may get one.
    world
        .ask(|engine| engine.link(other.ino, ROOT, b"named"))
        .expect("linked");
    world.crash();
    assert_eq!(world.get("named").len(), 40);
}

#[test]
fn commits_and_checkpoints_leave_them() {
    let mut world = world();
    let base = unlinked_base(&mut world);
    let mut wanted = vec![7; 20_000];
    let staged = unlinked(&world, "staged", &[1; 100_000]);
    for round in 0..3_u8 {
        write(&world, staged, 50_000, &[round; 5000]);
        match round {
            1 => assert!(world.engine().checkpoint().expect("made")),
            _ => commit(&mut world),
        }
        world.crash();
        assert_eq!(read(&world, base), wanted);
        let mut staged_wanted = vec![1; 100_000];
        staged_wanted[50_000..55_000].fill(round);
        assert_eq!(read(&world, staged), staged_wanted);
        write(&world, base, 10, &[round; 10]);
        wanted[10..20].fill(round);
        world.engine().trim_staging(0).expect("trims");
        world.engine().reclaim_staging().expect("reclaims");
    }
    assert!(world.resolve("base").is_err() && world.resolve("staged").is_err());
}

#[test]
fn a_file_that_cannot_be_told_is_gone_and_never_wrong() {
    let mut world = world();
    let base = unlinked_base(&mut world);
    // No server has loaded it.
    let layer = world.freeze().expect("changed");
    world.load_nameless();
    write(&world, base, 0, b"bytes that no log has");
    world.commit(layer);
    assert_eq!(read(&world, base).len(), 20_000);
    world.crash();
    assert!(!is_there(&world, base));
}

#[test]
fn what_nothing_refers_to_is_gone_also_for_the_next_server() {
    let mut world = world();
    let (early, late) = (
        unlinked(&world, "f", b"bytes"),
        unlinked(&world, "g", b"bytes"),
    );
    let forget = |world: &World, id: HandleId| {
        world.ask(|engine| engine.release(id)).expect("closes");
        world
            .ask(|engine| engine.forget(id.ino, 2))
            .expect("forgets");
    };
    forget(&world, early);
    assert!(!is_there(&world, early));
    world.put("record", b"says so");
    world.crash();
    assert!(!is_there(&world, early) && is_there(&world, late));
    // This server does not know how many references there were.
    forget(&world, late);
    assert!(!is_there(&world, late));
}

#[test]
fn a_named_file_of_an_earlier_server_stays_until_the_kernel_forgets_it() {
    let mut world = world();
    let ino = world.put("f", &[3; 5000]);
    let id = world.ask(|engine| engine.open_file(ino, libc::O_RDWR));
    let id = id.expect("opens");
    world.crash();
    world.unlink("f").expect("unlinked");
    assert_eq!(read(&world, id), [3; 5000]);
    world.ask(|engine| engine.forget(ino, 1)).expect("forgets");
    assert!(!is_there(&world, id));
}

#[test]
fn a_removed_directory_stays_too() {
    let mut world = world();
    world.mkdir("d");
    commit(&mut world);
    let ino = world.resolve("d").expect("is there");
    let id = world.ask(|engine| engine.open_directory(ino));
    let id = id.expect("opens");
    world
        .ask(|engine| engine.rmdir(ROOT, b"d", &root_user()))
        .expect("removed");
    for _ in 0..2 {
        world.crash();
        assert!(is_there(&world, id));
        let made = world.ask(|engine| engine.mkdir(ino, b"e", 0o755, &root_user()));
        assert_eq!(made.map(drop), Err(Errno::ENOENT));
        commit(&mut world);
    }
}

#[test]
fn handles_of_an_earlier_server_are_among_those_that_write() {
    let memory = Table::allocate().expect("memory");
    let table = || Arc::new(Table::open(memory.as_fd(), CONNECTION).expect("a table"));
    let mut world = world();
    world.engine().keep_handles(table());
    let open = |world: &World, name: &str, flags| {
        let ino = world.put(name, b"bytes");
        let id = world.ask(|engine| engine.open_file(ino, flags));
        id.expect("opens")
    };
    let writer = open(&world, "f", libc::O_RDWR);
    let closed = open(&world, "g", libc::O_RDWR);
    open(&world, "h", libc::O_RDONLY);
    world.ask(|engine| engine.release(closed)).expect("closes");
    assert_eq!(world.engine().writable_handles(), [writer.ino]);
    world.crash();
    assert!(world.engine().writable_handles().is_empty());
    world.engine().keep_handles(table());
    assert_eq!(world.engine().writable_handles(), [writer.ino]);
    // This server has never seen it open.
    world.ask(|engine| engine.release(writer)).expect("closes");
    assert!(world.engine().writable_handles().is_empty() && table().handles().is_empty());
}

#[test]
fn another_connection_has_none_of_them() {
    let mut world = world();
    let first = unlinked(&world, "f", b"bytes");
    world.connection = CONNECTION + 1;
    world.crash();
    assert!(!is_there(&world, first));
    let second = unlinked(&world, "g", b"more");
    world.crash();
    // The first one's records are still there.
    assert!(!is_there(&world, first) && is_there(&world, second));
    world.connection = 0;
    world.goes_on = false;
    world.crash();
    assert!(!is_there(&world, second));
    assert!(world.names("").is_empty());
}
