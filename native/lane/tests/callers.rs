//! No caller waits without end: a killed caller whose request waits for one load after the other is
//! released; a caller whose reply the kernel refuses gets an error.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use cowfs_base::ROOT_INO;
use cowfs_engine::{Engine, InodeRow, Options};
use cowfs_fuse_abi::{REPLY_HEADER_BYTES, opcode};
use cowfs_lane::Lane;
use cowfs_mounted::Mounted;

const PATIENCE_MS: i32 = 60_000;

fn pair() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: the kernel fills an array of two; each descriptor is owned by one value from then on.
    unsafe {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        let made = libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr());
        assert_eq!(made, 0);
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    }
}

/// An engine whose root directory has to be loaded.
fn engine(dir: &std::path::Path) -> Engine {
    let root = InodeRow {
        ino: ROOT_INO,
        mode: libc::S_IFDIR | 0o755,
        nlink: 2,
        ..InodeRow::default()
    };
    let options = Options {
        root,
        next_ino: 2,
        cache_dir: dir.join("cache"),
        memory_cache_bytes: 0,
        is_store_near: false,
        staging_dir: None,
        staging_limit_bytes: 0,
        segment_bytes: 1 << 20,
        checkpoint_bytes: cowfs_engine::CHECKPOINT_BYTES,
        after_layer: 0,
        boot_id: "this one".into(),
        failures_file: None,
    };
    Engine::open(options).expect("opens")
}

fn send(device: &OwnedFd, number: u32, unique: u64, pid: u32, body: &[u8]) {
    let mut message = ((40 + body.len()) as u32).to_le_bytes().to_vec();
    message.extend(number.to_le_bytes());
    message.extend(unique.to_le_bytes());
    message.extend(ROOT_INO.to_le_bytes());
    message.extend([0; 8]);
    message.extend(pid.to_le_bytes());
    message.extend([0; 4]);
    message.extend(body);
    // SAFETY: the message's own bytes are read.
    let sent = unsafe {
        libc::send(
            device.as_raw_fd(),
            message.as_ptr().cast(),
            message.len(),
            0,
        )
    };
    assert_eq!(sent, message.len() as isize);
}

/// Number and error of the next reply.
fn reply(device: &OwnedFd) -> (u64, i32) {
    let (unique, error, _) = reply_with_number(device);
    (unique, error)
}

/// The same, and the first number of its body.
fn reply_with_number(device: &OwnedFd) -> (u64, i32, u64) {
    let mut polled = libc::pollfd {
        fd: device.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut buffer = [0u8; 4096];
    // SAFETY: one live pollfd structure; then at most the buffer's length is written into it.
    let length = unsafe {
        assert_eq!(libc::poll(&mut polled, 1, PATIENCE_MS), 1, "no reply");
        libc::recv(
            device.as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            0,
        )
    };
    assert!(length as usize >= REPLY_HEADER_BYTES, "no reply");
    let error = i32::from_le_bytes(*buffer[4..].first_chunk().expect("four bytes"));
    let number = |at| u64::from_le_bytes(*buffer[at..].first_chunk().expect("eight bytes"));
    (number(8), error, number(REPLY_HEADER_BYTES))
}

#[test]
fn an_interrupt_is_remembered_when_a_request_is_parked_again() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (kernel, device) = pair();
    let lane = Lane::new(
        Arc::new(Mounted::new(Arc::new(engine(dir.path())))),
        device,
        &Default::default(),
    );
    let lane = lane.expect("a lane");
    lane.start().expect("starts");
    let mut caller = Command::new("sleep")
        .arg("1000")
        .stdin(Stdio::null())
        .spawn()
        .expect("a process");
    send(&kernel, opcode::LOOKUP, 2, caller.id(), b"name\0");
    let wanted = lane.next_wanted().expect("parked");
    // A signal that does not kill: the kernel reports it once, and never again.
    send(&kernel, opcode::INTERRUPT, 3, 0, &2u64.to_le_bytes());
    std::thread::sleep(Duration::from_millis(50));
    // Nothing was loaded, as when one load only shows the next.
    lane.resume(wanted.unique);
    let again = lane.next_wanted().expect("parked again");
    assert_eq!(again.unique, wanted.unique);
    caller.kill().expect("killed");
    caller.wait().expect("ended");
    assert_eq!(reply(&kernel), (2, -libc::EINTR));
    lane.stop(Duration::ZERO);
}

#[test]
fn a_reply_that_cannot_be_written_becomes_an_error() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (kernel, device) = pair();
    let least: libc::c_int = 1;
    // SAFETY: the kernel reads four bytes of a live number.
    let set = unsafe {
        let value = (&raw const least).cast();
        libc::setsockopt(
            device.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            value,
            4,
        )
    };
    assert_eq!(set, 0);
    let engine = engine(dir.path());
    let file = |number: u64| InodeRow {
        ino: 2 + number,
        mode: libc::S_IFREG | 0o644,
        nlink: 1,
        ..InodeRow::default()
    };
    let name = |number: u64| format!("{number:0100}").into_bytes().into_boxed_slice();
    let entries: Vec<_> = (0..100)
        .map(|number| (name(number), file(number)))
        .collect();
    engine.load_directory(ROOT_INO, &entries).expect("loads");
    let files = Arc::new(Mounted::new(Arc::new(engine)));
    let lane = Lane::new(files, device, &Default::default()).expect("a lane");
    lane.start().expect("starts");
    send(&kernel, opcode::OPENDIR, 1, 1, &[0; 8]);
    let (_, error, fh) = reply_with_number(&kernel);
    assert_eq!(error, 0);
    let mut body = [0; 40];
    body[..8].copy_from_slice(&fh.to_le_bytes());
    for (unique, bytes, error) in [(2, 64 << 10, -libc::EIO), (4, 1024_u32, 0)] {
        body[16..20].copy_from_slice(&bytes.to_le_bytes());
        send(&kernel, opcode::READDIR, unique, 1, &body);
        assert_eq!(reply(&kernel), (unique, error), "{bytes} bytes");
    }
    lane.stop(Duration::ZERO);
}
