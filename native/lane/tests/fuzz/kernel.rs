//! The kernel's side: sends requests, judges replies, keeps count of its references, and looks at
//! the engine afterwards.

mod listing;
mod reply;

use std::collections::HashMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cowfs_base::{Owners, ROOT_INO};
use cowfs_engine::Engine;
use cowfs_fuse_abi::{Header, Operation, opcode};
use cowfs_lane::{Lane, Options};
use cowfs_mounted::Mounted;

use self::reply::{ReplyHeader, listed_nodes, reply_file_handle, reply_node, reply_owners};
use crate::loader::start_loader;
use crate::random::Random;
use crate::requests::{self, Known, Request};
use crate::stores::{Store, Stores};
use crate::tree::{difference, inodes, tree};
use crate::world::Base;

/// Far above what any request takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Requests outstanding in a round of the second kind: more than device threads, fewer than the
/// socket holds.
const WINDOW: usize = 16;
const STAGING_LIMIT_BYTES: u64 = 12 << 20;
/// Fewer than the kernel would know, so that the tree is not only broad.
const NODES_MAX: usize = 400;
const HANDLES_MAX: usize = 200;
/// Both are callers, and the first owns the base version.
const OWNER_KEPT: (u32, u32) = (0, 0);
const OWNER_SHOWN: (u32, u32) = (1000, 1000);

/// Data about an outstanding request.
struct Outstanding {
    number: u32,
    /// The kernel held a reference to the node when it asked.
    node_is_held: bool,
    node: u64,
    closes: Option<u64>,
    store: Store,
}

struct Kernel {
    device: OwnedFd,
    random: Random,
    known: Known,
    counts: HashMap<u64, u64>,
    outstanding: HashMap<u64, Outstanding>,
    stores: Stores,
    /// Nothing is shown as `OWNER_KEPT`'s.
    is_mapped: bool,
    /// Error and body of the last reply.
    last: (i32, Vec<u8>),
    buffer: Vec<u8>,
    replies: u64,
    successes: u64,
}

/// One world from its beginning to its recovery; returns how many replies came, and how many of
/// them were no errors.
pub fn round(seed: u64, requests: u64) -> (u64, u64) {
    let window = if seed & 1 == 0 { 1 } else { WINDOW };
    let temp = tempfile::tempdir().expect("a temporary directory");
    let base = Arc::new(Base::new());
    let limit_bytes = if seed & 2 == 0 {
        0
    } else {
        STAGING_LIMIT_BYTES
    };
    let engine = Arc::new(base.open(temp.path(), limit_bytes));
    let (ours, device) = pair();
    let second = 1_000_000_000;
    let options = Options {
        attr_ns: second,
        entry_ns: second,
        dir_entry_ns: second,
        passthrough: true,
        spins: seed & 16 == 0,
        owners: if seed & 32 == 0 {
            Owners::new(OWNER_KEPT, OWNER_SHOWN)
        } else {
            Owners::default()
        },
        ..Options::default()
    };
    let files = Arc::new(Mounted::with_versions(engine.clone(), seed & 4 == 0));
    let lane = Arc::new(Lane::new(files.clone(), device, &options).expect("a lane"));
    lane.start().expect("starts");
    let is_loading = Arc::new(AtomicBool::new(true));
    let old = Arc::new(base.open_to_read(temp.path()));
    let before_looks = tree(&old, &base);
    let loader = start_loader(&lane, &files, &old, &base, &is_loading);

    let mut kernel = Kernel::new(ours, Random::new(seed));
    kernel.is_mapped = seed & 32 == 0;
    for _ in 0..requests {
        kernel.step(window, &engine);
    }
    kernel.receive_all();
    if window == 1 {
        kernel.stores.check(&engine);
    }
    if seed & 8 == 0 {
        kernel.let_go_of_everything(&engine, &base);
    }
    // Requests parked when the lane ends are answered, too.
    is_loading.store(false, Ordering::Release);
    for _ in 0..WINDOW {
        kernel.send_one(WINDOW);
    }
    let stopping = {
        let lane = lane.clone();
        thread::spawn(move || lane.stop(Duration::from_millis(20)))
    };
    stopping.join().expect("the lane stops");
    lane.wait().expect("no device failed");
    loader.join().expect("the loader ends");
    kernel.receive_rest();
    drop(lane);
    drop(files);
    if let Some(difference) = difference(&before_looks, &tree(&old, &base)) {
        panic!("seed {seed:#x}: the version was changed at {difference}");
    }

    let before = tree(&engine, &base);
    drop(Arc::into_inner(engine).expect("nobody else uses the engine")); // not closed: as after a kill
    let recovered = base.open(temp.path(), 0);
    let after = tree(&recovered, &base);
    if let Some(difference) = difference(&before, &after) {
        panic!("seed {seed:#x}: recovery differs at {difference}");
    }
    (kernel.replies, kernel.successes)
}

impl Kernel {
    fn new(device: OwnedFd, random: Random) -> Kernel {
        let known = Known {
            nodes: vec![ROOT_INO],
            handles: Vec::new(),
            last_unique: 0,
        };
        Kernel {
            device,
            random,
            known,
            counts: HashMap::new(),
            outstanding: HashMap::new(),
            stores: Stores::default(),
            is_mapped: false,
            last: (0, Vec::new()),
            buffer: vec![0; 1 << 20],
            replies: 0,
            successes: 0,
        }
    }

    /// One request, or something else that happens to a mount.
    fn step(&mut self, window: usize, engine: &Engine) {
        match self.random.below(1000) {
            0 => drop(engine.freeze()),
            1 => (1..100).for_each(|layer| drop(engine.layer_failed(layer))),
            2 => self.sync(),
            3 if window == 1 => self.list_while_it_changes(),
            n if n < 100 => self.forget_some(),
            _ => self.send_one(window),
        }
        while self.outstanding.len() >= window {
            self.receive();
        }
    }

    fn unique(&mut self) -> u64 {
        self.known.last_unique += 2;
        self.known.last_unique
    }

    fn send_one(&mut self, window: usize) {
        let unique = self.unique();
        let mut request = requests::request(&mut self.random, &self.known, unique);
        self.stores.aim(&mut request.message);
        if requests::is_fit(&request.message) {
            self.send(&request, window);
        }
    }

    fn sync(&mut self) {
        let unique = self.unique();
        let number = self
            .random
            .pick(&[opcode::FSYNC, opcode::FSYNCDIR, opcode::SYNCFS]);
        let fh = self.known.handles.last().copied().unwrap_or(0);
        let body = [&fh.to_le_bytes()[..], &[0; 8]].concat();
        let node = self.stores.owner(fh);
        let message = requests::message(&mut self.random, number, unique, node, &body);
        self.send(&Request { message, unique }, 1);
    }

    fn send(&mut self, request: &Request, window: usize) {
        if let Some((header, body)) = Header::parse(&request.message) {
            let operation = Operation::parse(header.opcode, body);
            let closes = match operation {
                Some(Operation::Release { fh } | Operation::ReleaseDir { fh }) => Some(fh),
                _ => None,
            };
            if !matches!(operation, Some(Operation::Interrupt { .. })) {
                let node_is_held = self.counts.contains_key(&header.nodeid);
                let outstanding = Outstanding {
                    number: header.opcode,
                    node_is_held,
                    node: header.nodeid,
                    closes,
                    store: self.stores.sent(&request.message),
                };
                self.outstanding.insert(request.unique, outstanding);
            }
        }
        // A handle that is being closed is not used any more when requests overtake each other.
        if window > 1
            && let Some(fh) = self
                .outstanding
                .get(&request.unique)
                .and_then(|request| request.closes)
        {
            self.known.handles.retain(|known| *known != fh);
        }
        write(&self.device, &request.message);
    }

    /// Sends one request and waits for its reply: the body, unless it is an error.
    fn ask(&mut self, number: u32, node: u64, body: &[u8]) -> Option<Vec<u8>> {
        let unique = self.unique();
        let message = requests::message(&mut self.random, number, unique, node, body);
        self.send(&Request { message, unique }, 1);
        self.receive_all();
        let (error, body) = std::mem::take(&mut self.last);
        (error == 0).then_some(body)
    }

    /// Drops references that the kernel holds: some of one node, or all of a few in one message.
    fn forget_some(&mut self) {
        let mut given_up = Vec::new();
        for _ in 0..1 + self.random.below(3) {
            if self.known.nodes.len() < 2 {
                break;
            }
            let node = self.random.pick(&self.known.nodes[1..]);
            let Some(count) = self.counts.get_mut(&node) else {
                continue;
            };
            let few = 1 + self.random.below(*count);
            *count -= few;
            given_up.push((node, few));
            if *count == 0 {
                self.counts.remove(&node);
                // Now and then it goes on being asked about.
                if !self.random.once_in(5) {
                    self.known.nodes.retain(|known| *known != node);
                }
            }
        }
        self.send_forgets(&given_up);
    }

    fn send_forgets(&mut self, forgets: &[(u64, u64)]) {
        // A request under way may be answered after them: the lane has two threads.
        for request in self.outstanding.values_mut() {
            request.node_is_held &= forgets.iter().all(|(node, _)| *node != request.node);
        }
        for some in forgets.chunks(1000) {
            let unique = self.unique();
            let mut body = (some.len() as u64).to_le_bytes().to_vec();
            for (node, count) in some {
                body.extend_from_slice(&node.to_le_bytes());
                body.extend_from_slice(&count.to_le_bytes());
            }
            let message = match some {
                [(node, count)] => requests::message(
                    &mut self.random,
                    opcode::FORGET,
                    unique,
                    *node,
                    &count.to_le_bytes(),
                ),
                _ => requests::message(&mut self.random, opcode::BATCH_FORGET, unique, 0, &body),
            };
            write(&self.device, &message);
        }
    }

    fn receive_all(&mut self) {
        while !self.outstanding.is_empty() {
            self.receive();
        }
    }

    /// After the lane has ended: every reply there will be is in the socket. Requests that it never
    /// read have none.
    fn receive_rest(&mut self) {
        while poll(&self.device, Duration::ZERO) {
            self.receive();
        }
        let unread = self.outstanding.len();
        assert!(unread <= WINDOW, "{unread} requests without a reply");
    }

    fn receive(&mut self) {
        assert!(
            poll(&self.device, PATIENCE),
            "no reply to {:?}",
            self.outstanding
                .iter()
                .map(|(unique, request)| (unique, request.number))
                .collect::<Vec<_>>()
        );
        // SAFETY: at most the buffer's length is written into it.
        let length = unsafe {
            libc::recv(
                self.device.as_raw_fd(),
                self.buffer.as_mut_ptr().cast(),
                self.buffer.len(),
                0,
            )
        };
        if length <= 0 {
            return;
        }
        let message = self.buffer[..length as usize].to_vec();
        self.judge(&message);
    }

    /// What the kernel would not take, or would take for something else, is a failure.
    fn judge(&mut self, message: &[u8]) {
        let (header, body) = ReplyHeader::parse(message).expect("a reply says its length");
        assert!(
            (-511..=0).contains(&header.error),
            "error {} is out of range",
            header.error
        );
        assert!(header.error == 0 || body.is_empty(), "an error with a body");
        self.replies += 1;
        self.successes += u64::from(header.error == 0);
        let request = self.outstanding.remove(&header.unique);
        let request = request.unwrap_or_else(|| panic!("nobody asked {}", header.unique));
        let made = (
            reply_node(request.number, body),
            reply_file_handle(request.number, body),
        );
        self.stores
            .answered(request.number, &request.store, header.error, made);
        self.last = (header.error, body.to_vec());
        if header.error != 0 {
            assert!(
                !(request.number == opcode::GETATTR
                    && request.node_is_held
                    && header.error == -libc::ENOENT),
                "an inode that the kernel holds has vanished"
            );
            return;
        }
        if self.is_mapped {
            for (user, group) in reply_owners(request.number, body) {
                assert!(
                    user != OWNER_KEPT.0 && group != OWNER_KEPT.1,
                    "{user}:{group} is shown by {}",
                    request.number
                );
            }
        }
        if let Some(fh) = request.closes {
            self.known.handles.retain(|known| *known != fh);
        }
        if let Some(fh) = made.1 {
            self.known.handles.push(fh);
            self.close_oldest();
        }
        if let Some(node) = made.0 {
            self.hold(node);
        }
        if request.number == opcode::READDIRPLUS {
            listed_nodes(body)
                .into_iter()
                .for_each(|node| self.hold(node));
        }
    }

    fn hold(&mut self, node: u64) {
        *self.counts.entry(node).or_insert(0) += 1;
        if !self.known.nodes.contains(&node) {
            self.known.nodes.push(node);
        }
        if self.known.nodes.len() > NODES_MAX {
            let oldest = self.known.nodes.remove(1);
            let count = self.counts.remove(&oldest).unwrap_or(0);
            self.send_forgets(&[(oldest, count)]);
        }
    }

    fn close_oldest(&mut self) {
        if self.known.handles.len() > HANDLES_MAX {
            let oldest = self.known.handles.remove(0);
            self.close(oldest);
        }
    }

    fn close(&mut self, fh: u64) {
        let unique = self.unique();
        let body = [&fh.to_le_bytes()[..], &[0; 16]].concat();
        let node = self.stores.owner(fh);
        let message = requests::message(&mut self.random, opcode::RELEASE, unique, node, &body);
        self.send(&Request { message, unique }, WINDOW);
    }

    /// Forgets and closes everything: then the engine holds only named inodes.
    fn let_go_of_everything(&mut self, engine: &Engine, base: &Base) {
        for fh in std::mem::take(&mut self.known.handles) {
            self.close(fh);
            self.receive();
        }
        self.receive_all();
        let forgets: Vec<_> = self.counts.drain().collect();
        self.send_forgets(&forgets);
        self.known.nodes.truncate(1);
        let named = inodes(&tree(engine, base));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let held = engine.inodes_in_memory().expect("counts");
            if held == named {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{held} inodes are held, {named} have names"
            );
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn pair() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: the kernel fills an array of two; each descriptor is owned by one value from then on.
    unsafe {
        assert_eq!(
            libc::socketpair(
                libc::AF_UNIX,
                libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC,
                0,
                ends.as_mut_ptr()
            ),
            0
        );
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    }
}

fn poll(descriptor: &OwnedFd, patience: Duration) -> bool {
    let mut polled = libc::pollfd {
        fd: descriptor.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    loop {
        // SAFETY: one live pollfd structure.
        let ready = unsafe { libc::poll(&raw mut polled, 1, patience.as_millis() as i32) };
        if ready >= 0 {
            return polled.revents & libc::POLLIN != 0;
        }
    }
}

fn write(descriptor: &OwnedFd, message: &[u8]) {
    // SAFETY: the message's own bytes are read.
    let sent = unsafe {
        libc::send(
            descriptor.as_raw_fd(),
            message.as_ptr().cast(),
            message.len(),
            libc::MSG_NOSIGNAL,
        )
    };
    assert_eq!(
        sent,
        message.len() as isize,
        "{}",
        std::io::Error::last_os_error()
    );
}
