//! Listings under way go on with the next server of the same connection: whatever happened before,
//! entries of a directory that is open have the cookies that they had.

mod support;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use cowfs_base::{Errno, Ino, Layer};
use cowfs_engine::{HandleId, RENAME_EXCHANGE};
use cowfs_survival::Table;
use proptest::prelude::*;
use support::{ROOT, World, root_user};

const CONNECTION: u64 = 77;
const NAMES: usize = 6;
/// So many that some of them want the same cookie.
const LINKS: usize = 600;

/// Two directories, and the kernel's open handles.
struct Mount {
    world: World,
    memory: OwnedFd,
    directories: [Ino; 2],
    open: Vec<HandleId>,
    frozen: Option<Layer>,
}

type Listed = Vec<(Vec<u8>, u64, Ino)>;

impl Mount {
    fn new() -> Mount {
        let mut world = World::new();
        world.connection = CONNECTION;
        world.goes_on = true;
        world.crash();
        let directory = world.mkdir("d");
        for name in 0..NAMES / 2 {
            world.put(&format!("{name}"), b"");
        }
        let mount = Mount {
            world,
            memory: Table::allocate().expect("memory"),
            directories: [ROOT, directory],
            open: Vec::new(),
            frozen: None,
        };
        mount.keep_handles();
        mount
    }

    fn keep_handles(&self) {
        let table = Table::open(self.memory.as_fd(), CONNECTION).expect("a table");
        self.world.engine().keep_handles(Arc::new(table));
    }

    fn open(&mut self, which: usize) {
        let ino = self.directories[which];
        let id = self.world.ask(|engine| engine.open_directory(ino));
        self.open.push(id.expect("opens"));
    }

    fn close(&mut self, which: usize) {
        let ino = self.directories[which];
        if let Some(at) = self.open.iter().position(|id| id.ino == ino) {
            let id = self.open.swap_remove(at);
            let closed = self.world.ask(|engine| engine.release_directory(id));
            closed.expect("closes");
        }
    }

    /// All of a directory, as a reader finds it that opened it at some time.
    fn list(&self, ino: Ino) -> Listed {
        let fh = 1 << 62 | 4;
        let id = HandleId { ino, fh };
        let all = self
            .world
            .ask(|engine| engine.read_directory(id, 2, 1 << 20));
        let all = all.expect("lists").into_iter();
        let all = all.map(|entry| (entry.name, entry.cookie, entry.attr.ino));
        let listed = all.collect();
        self.world.engine().release(id).expect("closes");
        listed
    }

    fn crash(&mut self) {
        let lists = |mount: &Mount| -> Vec<Listed> {
            let open = mount.open.iter().map(|id| mount.list(id.ino));
            open.collect()
        };
        let before = lists(self);
        self.frozen = None;
        self.world.crash();
        self.keep_handles();
        assert_eq!(lists(self), before);
    }

    fn freeze(&mut self) {
        if self.frozen.is_none() {
            self.frozen = self.world.freeze();
        }
    }

    fn commit(&mut self) {
        self.freeze();
        if let Some(layer) = self.frozen.take() {
            self.world.commit(layer);
        }
    }

    fn rename(&self, (from, name): Place, (to, new_name): Place, flags: u32) -> Result<(), Errno> {
        let (from, to) = (self.directories[from], self.directories[to]);
        let (name, new_name) = (name.to_string(), new_name.to_string());
        let (name, new_name) = (name.as_bytes(), new_name.as_bytes());
        self.world
            .ask(|engine| engine.rename(from, name, to, new_name, flags, &root_user()))
    }

    fn run(&mut self, op: &Op) {
        let place = |(which, name): Place| (self.directories[which], name.to_string());
        match *op {
            Op::Make(at) => {
                let (parent, name) = place(at);
                let (name, caller) = (name.as_bytes(), root_user());
                let flags = libc::O_RDWR | libc::O_EXCL;
                let world = &self.world;
                let made = world.ask(|engine| engine.create(parent, name, 0o644, flags, &caller));
                if let Ok((_, id)) = made {
                    world.ask(|engine| engine.release(id)).expect("closes");
                }
            }
            Op::Unlink(at) => {
                let (parent, name) = place(at);
                let caller = root_user();
                let world = &self.world;
                let _ = world.ask(|engine| engine.unlink(parent, name.as_bytes(), &caller));
            }
            Op::Link(from, to) => {
                let ((parent, name), (new_parent, new_name)) = (place(from), place(to));
                let found = self
                    .world
                    .ask(|engine| engine.lookup(parent, name.as_bytes()));
                if let Ok(attr) = found {
                    let link = |engine: &cowfs_engine::Engine| {
                        engine.link(attr.ino, new_parent, new_name.as_bytes())
                    };
                    let _ = self.world.ask(link);
                }
            }
            Op::Rename(from, to, flags) => drop(self.rename(from, to, flags)),
            Op::Open(which) => self.open(which),
            Op::Close(which) => self.close(which),
            Op::Freeze => self.freeze(),
            Op::Commit => self.commit(),
            Op::Fail => {
                if let Some(layer) = self.frozen.take() {
                    self.world.engine().layer_failed(layer).expect("joined");
                }
            }
            Op::Checkpoint => drop(self.world.engine().checkpoint().expect("made")),
            Op::Evict => drop(self.world.engine().evict(0).expect("evicts")),
            Op::Crash => self.crash(),
        }
    }
}

/// A directory and a name there.
type Place = (usize, usize);

#[derive(Debug, Clone)]
enum Op {
    Make(Place),
    Unlink(Place),
    Link(Place, Place),
    Rename(Place, Place, u32),
    Open(usize),
    Close(usize),
    Freeze,
    Commit,
    Fail,
    Checkpoint,
    Evict,
    Crash,
}

fn op() -> impl Strategy<Value = Op> {
    let place = || (0..2_usize, 0..NAMES);
    let flags = prop_oneof![4 => Just(0), 1 => Just(RENAME_EXCHANGE)];
    prop_oneof![
        3 => place().prop_map(Op::Make),
        2 => place().prop_map(Op::Unlink),
        3 => (place(), place()).prop_map(|(from, to)| Op::Link(from, to)),
        9 => (place(), place(), flags).prop_map(|(from, to, flags)| Op::Rename(from, to, flags)),
        3 => (0..2_usize).prop_map(Op::Open),
        2 => (0..2_usize).prop_map(Op::Close),
        2 => Just(Op::Freeze),
        2 => Just(Op::Commit),
        1 => Just(Op::Fail),
        2 => Just(Op::Checkpoint),
        1 => Just(Op::Evict),
        4 => Just(Op::Crash),
    ]
}

/// More by COWFS_MODEL_CASES, for a long run by hand.
fn cases() -> u32 {
    let cases = std::env::var("COWFS_MODEL_CASES");
    cases
        .ok()
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(150)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn open_directories_have_the_cookies_they_had(ops in prop::collection::vec(op(), 1..60)) {
        let mut mount = Mount::new();
        ops.iter().for_each(|op| mount.run(op));
        mount.crash();
    }
}

/// What takes the place of the records of renames.
fn replaced(by: usize, mount: &mut Mount) {
    match by {
        0 => drop(mount.world.engine().checkpoint().expect("made")),
        1 => mount.commit(),
        _ => mount.freeze(),
    }
}

#[test]
fn a_listing_goes_on_after_a_checkpoint_or_a_commit() {
    for by in 0..3 {
        let mut mount = Mount::new();
        mount.open(0);
        mount.rename((0, 0), (0, 10), 0).expect("renamed");
        mount
            .rename((0, 1), (0, 2), RENAME_EXCHANGE)
            .expect("renamed");
        replaced(by, &mut mount);
        mount.crash();
        // The next server knows that it is open.
        mount.rename((0, 10), (0, 11), 0).expect("renamed");
        replaced(by, &mut mount);
        mount.world.engine().evict(0).expect("evicts");
        mount.crash();
    }
}

#[test]
fn a_listing_that_begins_after_a_checkpoint_or_a_commit_goes_on_too() {
    for by in 0..3 {
        let mut mount = Mount::new();
        mount.rename((0, 0), (0, 10), 0).expect("renamed");
        replaced(by, &mut mount);
        mount.open(0);
        mount.crash();
    }
}

#[test]
fn names_of_one_file_that_share_a_cookie_keep_theirs() {
    let mut mount = Mount::new();
    let world = &mount.world;
    let ino = world.put("file", b"");
    // Not in the order of their bytes.
    for number in (0..LINKS).rev() {
        let name = format!("link {number}");
        let linked = world.ask(|engine| engine.link(ino, ROOT, name.as_bytes()));
        linked.expect("linked");
    }
    mount.open(0);
    mount.commit();
    mount.crash();
    mount.world.unlink("link 7").expect("unlinked");
    mount.commit();
    mount.crash();
}

#[test]
fn a_mount_without_a_connection_writes_no_cookies() {
    let mut world = World::new();
    world.put("a", b"");
    let id = world.engine().open_directory(ROOT).expect("opens");
    let renamed = world.ask(|engine| engine.rename(ROOT, b"a", ROOT, b"b", 0, &root_user()));
    renamed.expect("renamed");
    let layer = world.freeze().expect("changed");
    world.commit(layer);
    world.engine().release(id).expect("closes");
    assert_eq!(world.crash().0.records, 0);
}
