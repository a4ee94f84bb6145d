//! A disk that is full while a log is begun: a file without a name that could not be told is never
//! there for the next server with older bytes. One test only: the limit that stands in for the disk
//! applies to the whole process.

mod support;

use cowfs_base::Errno;
use support::{ROOT, World, root_user};

/// Files cannot grow beyond so many bytes; None: no limit.
fn limit_file_size(bytes: Option<u64>) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls get a valid struct; only the soft limit changes.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit), 0);
        limit.rlim_cur = bytes.unwrap_or(limit.rlim_max);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
}

#[test]
fn a_file_that_a_full_disk_left_out_is_gone_for_the_next_server() {
    // SAFETY: ignoring a signal needs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let mut world = World::new();
    world.connection = 7;
    world.goes_on = true;
    world.crash();
    let made = world.ask(|engine| engine.create_unnamed(ROOT, 0o600, libc::O_RDWR, &root_user()));
    let id = made.expect("made").1;
    let write = |world: &World, byte| world.ask(|engine| engine.write(id, 0, &[byte; 9000], true));
    write(&world, 1).expect("written");
    world.put("f", b"a change");
    // Room for the header of the next log, and for no record.
    limit_file_size(Some(128));
    let layer = world.engine().freeze().expect("frozen");
    let refused = world.ask(|engine| engine.set_xattr(id.ino, b"user.a", b"1", 0));
    limit_file_size(None);
    assert_eq!(refused, Err(Errno::EFBIG));
    world
        .engine()
        .layer_failed(layer.expect("a layer"))
        .expect("joined");
    write(&world, 2).expect("this server has it");
    world.crash();
    let found = world.ask(|engine| engine.getattr(id.ino));
    assert_eq!(found.map(drop), Err(Errno::ENOENT));
}
